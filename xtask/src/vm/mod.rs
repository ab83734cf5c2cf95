//! The guest: a Linux with real RDMA (Soft-RoCE) under QEMU, made from Debian's packages.
//! `docs/GUEST.md` describes its parts and what it can do.

mod control;
mod fault;
mod initramfs;
mod kernel;
mod machine;
mod qemu;
mod roots;
mod spec;
mod test;

pub(crate) use self::roots::{PSM, Userland};
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
    /// Run a command in a guest and exit with its exit code.
    Run {
        #[command(flatten)]
        spec: GuestSpec,
        /// The command; the build of the repository is in its PATH.
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
    /// Test the guest itself, and run every device test in each kind of guest.
    Test(test::TestArgs),
    /// Start a shell in a guest, on this terminal.
    Shell {
        #[command(flatten)]
        spec: GuestSpec,
    },
    /// Fetch kernels and roots into the cache, so that later runs need no network.
    Fetch,
}

/// The exit code of a run that the time limit ended, as of `timeout(1)`.
pub(crate) const TIMED_OUT: u8 = 124;

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

/// Runs device tests whose names contain `filter` repeatedly, in each guest whose description
/// contains `guest`.
pub(crate) fn repeat(guest: &str, filter: &str, runs: u32) -> Result<()> {
    test::repeat(guest, filter, runs)
}

/// Fetches everything that guests need.
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

/// Runs a guest to its end. Returns the exit code for this process.
pub(crate) fn guest(spec: &GuestSpec, task: Task) -> Result<u8> {
    guest_on(&spec.userland().root().get()?, spec, task)
}

/// Runs a guest like [`guest`], with this root.
pub(crate) fn guest_on(root: &Entry, spec: &GuestSpec, task: Task) -> Result<u8> {
    require_programs(&qemu::PROGRAMS)?;
    let kernel = spec.kernel.get()?;
    if let Some(reason) = lacking(spec, &kernel) {
        bail!("{reason}\nfix: use --two-guests, or --kernel newest");
    }
    let end = run_once(root, spec, &kernel, &task)?;
    let end = match end.kernel_fault {
        Some(fault) if spec.retry_on_kernel_fault => {
            eprintln!("guest: {} after a fault of its kernel:\n{fault}", end.ending);
            eprintln!("guest: trying again in a new guest");
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
    /// The fault that the kernel reported, if the command failed.
    kernel_fault: Option<String>,
}

/// Boots a guest and runs its task to the end.
fn run_once(root: &Entry, spec: &GuestSpec, kernel: &Kernel, task: &Task) -> Result<End> {
    if !spec.quiet {
        eprintln!("guest: booting Linux {}", kernel.version);
    }
    let mut guest = match boot(spec, kernel, &root.path, task) {
        Ok(guest) => guest,
        // An emulated kernel was seen to panic during boot, about once in a hundred times. No test
        // has run yet.
        Err(error) => {
            eprintln!("guest: {error:#}\nguest: trying again");
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

/// A guest that is up: one machine, or two, the first of which runs the command.
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
    // The first machine last: it is up when it has reached the other.
    for machine in machines.iter_mut().rev() {
        match machine.wait_until_ready() {
            Ok(duration) => took = duration,
            Err(error) => bail!("{error:#}\n{}", kernel_log_of(machine)),
        }
    }
    Ok(Guest { machines, folder, took })
}

/// Returns why this kernel cannot run such a guest, if it cannot.
fn lacking(spec: &GuestSpec, kernel: &Kernel) -> Option<String> {
    (spec.topology == Topology::Two && !kernel.has_devices_in_namespaces()).then(|| {
        format!(
            "Linux {} does not support a Soft-RoCE device in each namespace (7.0 and newer do)",
            kernel.version
        )
    })
}

fn shell(spec: &GuestSpec) -> Result<u8> {
    // Each key of the terminal goes to the guest, including Ctrl-C. `stty` restores the terminal.
    let ask = |word: &str| {
        output(command("stty", [word]).stdin(Stdio::inherit())).context("a shell needs a terminal")
    };
    let saved = ask("-g")?;
    let terminal = match ask("size")?.split_whitespace().collect::<Vec<_>>()[..] {
        [rows, columns] => format!("rows {rows} cols {columns}"),
        _ => "sane".to_owned(),
    };
    eprintln!("guest: booting; type `exit` to leave");
    run(&mut command("stty", ["raw", "-echo"]))?;
    let code = guest(spec, Task::Shell { terminal });
    run(&mut command("stty", [saved.trim()]))?;
    code
}

/// Builds the debug version of the command, which is in the guest's PATH. It shows cargo's
/// progress, because the first build takes minutes.
///
/// It is not called for tests: their build contains the command too, with other features of its
/// dependencies, and this would build it again.
fn build() -> Result<()> {
    run(command("cargo", ["build"]).current_dir(paths::repository()))
}

/// Creates a folder for this run: several guests may run at the same time. It is kept if the run
/// fails.
fn fresh_folder() -> Result<PathBuf> {
    let folder = paths::target().join("vm").join(std::process::id().to_string());
    if folder.exists() {
        std::fs::remove_dir_all(&folder)?;
    }
    Ok(folder)
}

/// Returns the end of the kernel log of a failed guest, and its path.
fn kernel_log_of(machine: &Machine) -> String {
    let tail = last_lines(&machine.read_kernel_log(), 15);
    format!("the guest's kernel log is {}, its last lines:\n{tail}", machine.kernel_log().display())
}
