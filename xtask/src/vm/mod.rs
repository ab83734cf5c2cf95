//! The guest: a Linux with real RDMA (Soft-RoCE) under QEMU, made from Debian's packages. `docs/GUEST.md` tells how
//! it is put together and what it can do.

mod control;
mod fault;
mod initramfs;
mod kernel;
mod machine;
mod qemu;
mod roots;
mod spec;
mod test;

pub(crate) use self::roots::Userland;
pub(crate) use self::spec::{GuestSpec, Task};

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use self::kernel::Kernel;
use self::machine::{Ending, Machine};
use self::spec::{Place, Topology};
use crate::cache::Entry;
use crate::paths;
use crate::process::{command, last_lines, output, require_programs, run};

/// `cargo xtask vm …`
#[derive(Debug, clap::Subcommand)]
pub(crate) enum VmCommand {
    /// Run a command in a guest and end with its exit code.
    Run {
        #[command(flatten)]
        spec: GuestSpec,
        /// The command; the repository's build is on its PATH.
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
    /// Test the guest itself, and run every device test in each kind of guest.
    Test(test::TestArgs),
    /// A shell in a guest, on this terminal.
    Shell {
        #[command(flatten)]
        spec: GuestSpec,
    },
    /// Fetch kernels and roots into the cache, so that later runs need no network.
    Fetch,
}

/// The exit code of a run that the time limit ended, as `timeout(1)` has it.
const TIMED_OUT: u8 = 124;

pub(crate) fn execute(vm: VmCommand) -> Result<u8> {
    match vm {
        VmCommand::Run { spec, command: words } => {
            build()?;
            guest(&spec, Task::Command(words))
        }
        VmCommand::Test(args) => test::run(&args).map(|()| 0),
        VmCommand::Shell { spec } => {
            build()?;
            shell(&spec)
        }
        VmCommand::Fetch => fetch().map(|()| 0),
    }
}

/// Runs device tests whose names contain `filter` again and again, in each guest whose words contain `guest`.
pub(crate) fn repeat(guest: &str, filter: &str, runs: u32) -> Result<()> {
    test::repeat(guest, filter, runs)
}

/// Fetches whatever a guest can be made of.
pub(crate) fn fetch() -> Result<()> {
    use clap::ValueEnum;
    for kernel in kernel::KernelChoice::value_variants() {
        kernel.get()?;
    }
    for userland in Userland::value_variants() {
        userland.root().get()?;
    }
    Ok(())
}

/// Runs a guest to its end and gives the exit code to end with.
pub(crate) fn guest(spec: &GuestSpec, task: Task) -> Result<u8> {
    guest_on(&spec.userland().root().get()?, spec, task)
}

/// The same, on this root.
pub(crate) fn guest_on(root: &Entry, spec: &GuestSpec, task: Task) -> Result<u8> {
    require_programs(&qemu::PROGRAMS)?;
    let kernel = spec.kernel.get()?;
    if let Some(reason) = lacking(spec, &kernel) {
        bail!("{reason}\nfix: use --two-guests, or --kernel newest");
    }
    let end = run_once(root, spec, &kernel, &task)?;
    let end = match end.kernel_fault {
        Some(fault) if spec.retry_on_kernel_fault => {
            eprintln!("guest: {} after a fault of its kernel, which told:\n{fault}", end.ending);
            eprintln!("guest: trying once more, in a new guest");
            run_once(root, spec, &kernel, &task)?
        }
        _ => end,
    };
    match end.ending {
        Ending::Exited(code) => Ok(code),
        Ending::TimedOut | Ending::KernelFailed => Ok(TIMED_OUT),
        Ending::Gone => bail!("{}", end.ending),
    }
}

/// How a guest has ended.
struct End {
    ending: Ending,
    /// What the kernel told of a fault of its own, where the command did not end well.
    kernel_fault: Option<String>,
}

/// Boots a guest and runs its task to the end.
fn run_once(root: &Entry, spec: &GuestSpec, kernel: &Kernel, task: &Task) -> Result<End> {
    if !spec.quiet {
        eprintln!("guest: booting Linux {}", kernel.version);
    }
    let mut guest = match boot(spec, kernel, &root.path, task) {
        Ok(guest) => guest,
        // An emulated kernel has been seen to panic while it booted, once in some hundred times. Nothing has run yet.
        Err(error) => {
            eprintln!("guest: {error:#}\nguest: trying once more");
            boot(spec, kernel, &root.path, task)?
        }
    };
    if !spec.quiet {
        let seconds = guest.took.as_secs_f32();
        eprintln!("guest: Linux {}, {}, up in {seconds:.1} s", kernel.version, root.origin);
    }
    let ending = guest.machines[0].wait_for_exit(Duration::from_secs(spec.limit))?;
    if ending == Ending::Exited(0) {
        std::fs::remove_dir_all(&guest.folder)?;
        return Ok(End { ending, kernel_fault: None });
    }
    if !matches!(ending, Ending::Exited(_)) {
        eprintln!("guest: {ending}\n{}", kernel_log_of(&guest.machines[0]));
    }
    let kernel_fault = guest.machines.iter().find_map(|machine| fault::first_in(&machine.read_kernel_log()));
    Ok(End { ending, kernel_fault })
}

/// A guest that is up: one machine, or two of which the first has the command.
struct Guest {
    machines: Vec<Machine>,
    folder: PathBuf,
    took: Duration,
}

/// Starts the machines and waits until they are up.
fn boot(spec: &GuestSpec, kernel: &Kernel, root: &Path, task: &Task) -> Result<Guest> {
    let folder = fresh_folder()?;
    let start = |place: Place, task: &Task, name: &str| {
        let folder = folder.join(name);
        std::fs::create_dir_all(&folder)?;
        Machine::start(spec, kernel, root, place, task, folder)
    };
    let mut machines = if spec.two_guests {
        vec![start(Place::FirstOfTwo, task, "a")?, start(Place::SecondOfTwo, &Task::Agent, "b")?]
    } else {
        vec![start(Place::Alone(spec.topology), task, "a")?]
    };
    let mut took = Duration::ZERO;
    // The first one last: it is up when it has reached the other.
    for machine in machines.iter_mut().rev() {
        match machine.wait_until_ready() {
            Ok(duration) => took = duration,
            Err(error) => bail!("{error:#}\n{}", kernel_log_of(machine)),
        }
    }
    Ok(Guest { machines, folder, took })
}

/// Why this kernel cannot be such a guest, if it cannot.
fn lacking(spec: &GuestSpec, kernel: &Kernel) -> Option<String> {
    (spec.topology == Topology::Two && !kernel.has_devices_in_namespaces()).then(|| {
        format!(
            "Linux {} cannot give each namespace a Soft-RoCE of its own (7.0 and newer can)",
            kernel.version
        )
    })
}

fn shell(spec: &GuestSpec) -> Result<u8> {
    // The terminal's keys go to the guest one by one, Ctrl-C included; `stty` knows how to put it back.
    let ask = |word: &str| {
        output(command("stty", [word]).stdin(Stdio::inherit())).context("a shell needs a terminal")
    };
    let saved = ask("-g")?;
    let terminal = match ask("size")?.split_whitespace().collect::<Vec<_>>()[..] {
        [rows, columns] => format!("rows {rows} cols {columns}"),
        _ => "sane".to_owned(),
    };
    eprintln!("guest: booting; leave it with `exit`");
    run(&mut command("stty", ["raw", "-echo"]))?;
    let code = guest(spec, Task::Shell { terminal });
    run(&mut command("stty", [saved.trim()]))?;
    code
}

/// The debug build of the command, which is on the guest's PATH. With cargo's own progress: the first time it takes minutes.
///
/// Not for tests: their build has the command too, with other features of its dependencies, and this would build it a second time.
fn build() -> Result<()> {
    run(command("cargo", ["build"]).current_dir(paths::repository()))
}

/// A folder of this run's own: several guests may run at once. It stays when the run fails.
fn fresh_folder() -> Result<PathBuf> {
    let folder = paths::target().join("vm").join(std::process::id().to_string());
    if folder.exists() {
        std::fs::remove_dir_all(&folder)?;
    }
    Ok(folder)
}

/// What to look at when a guest failed: the end of its kernel log, and where the rest is.
fn kernel_log_of(machine: &Machine) -> String {
    let tail = last_lines(&machine.read_kernel_log(), 15);
    format!("the guest's kernel log is {}, and ends:\n{tail}", machine.kernel_log().display())
}
