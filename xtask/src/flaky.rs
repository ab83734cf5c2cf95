//! `cargo xtask flaky`: runs built tests repeatedly beside a load, and names every test that failed
//! once. There are no second attempts.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use crate::attempts::{Attempt, Program, exactly, failures};
use crate::binaries::{Tier, all_test_binaries, build_dist_example};
use crate::cell::Cell;
use crate::host_tests::{cell_with_libraries, threads};
use crate::paths;
use crate::process::{command, require_programs};
use crate::vm::{self, Userland};

/// `cargo xtask flaky`
#[derive(Debug, clap::Args)]
pub(crate) struct FlakyArgs {
    /// Run the tests whose program or name contains this, such as `cli/library` or `ctrl_c`.
    #[arg(required_unless_present = "all")]
    name: Option<String>,

    /// Run every unit test, host test and library test.
    #[arg(long, conflicts_with = "name")]
    all: bool,

    /// The number of runs of each test. Library tests use the older libraries in every other run.
    #[arg(long, value_name = "N", default_value_t = 20)]
    runs: u32,

    /// The number of processes that keep a core busy meanwhile.
    #[arg(long, value_name = "N", default_value_t = 1)]
    load: usize,

    /// Run device tests instead, in the guests whose description contains this, such as `newest
    /// --topology one`.
    #[arg(long, value_name = "WORD", conflicts_with = "all")]
    guest: Option<String>,
}

/// The number of programs that run at the same time. Most of them wait most of the time.
const AT_ONCE: usize = 2;

/// Runs the tests. The error names those that failed.
pub(crate) fn execute(args: &FlakyArgs) -> Result<()> {
    let _load = Load::start(args.load)?;
    if let Some(guest) = &args.guest {
        return vm::repeat(guest, args.name.as_deref().unwrap_or_default(), args.runs);
    }
    let programs = programs(args.name.as_deref())?;
    if programs.iter().any(|it| it.binary.tier == Tier::Library) {
        build_dist_example("farreach-fabric", "fabric_cost")?;
        build_dist_example("farreach", "paged")?;
        build_dist_example("farreach", "within_host")?;
    }
    let cells: Vec<Cell> =
        Userland::BOTH.iter().map(|it| Ok(cell_with_libraries(*it)?.0)).collect::<Result<_>>()?;
    repeat(&programs, args.runs, AT_ONCE, |program, run| start(program, &cells[run as usize % cells.len()]))
}

/// Returns the programs that run on this machine, with their tests that match this name.
fn programs(name: Option<&str>) -> Result<Vec<Program>> {
    let mut programs = Vec::new();
    for binary in all_test_binaries()? {
        let mut tests = match binary.tier {
            // Other tasks run the ignored ones.
            Tier::Host => binary.plain()?,
            Tier::Library => binary.ignored()?,
            Tier::Device => continue,
        };
        if let Some(name) = name.filter(|name| !binary.name().contains(name)) {
            tests.retain(|test| test.contains(name));
        }
        if !tests.is_empty() {
            programs.push(Program { binary, tests });
        }
    }
    ensure!(!programs.is_empty(), "no test matches this name");
    Ok(programs)
}

fn start(program: &Program, cell: &Cell) -> Result<Command> {
    let Program { binary, tests } = program;
    let mut test = match binary.tier {
        Tier::Library => cell.command(&binary.directory, &[binary.path()?, "--ignored", threads(binary)]),
        _ => binary.command()?,
    };
    test.args(exactly(tests));
    Ok(test)
}

/// Runs the programs `runs` times, `at_once` of them at the same time. `start` returns the command
/// of a program for a run.
pub(crate) fn repeat(
    programs: &[Program],
    runs: u32,
    at_once: usize,
    start: impl Fn(&Program, u32) -> Result<Command> + Sync,
) -> Result<()> {
    let began = Instant::now();
    let minutes = || began.elapsed().as_secs_f32() / 60.0;
    let tests: usize = programs.iter().map(|program| program.tests.len()).sum();
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(Failed::default()));
    let lock = || failed.lock().unwrap_or_else(PoisonError::into_inner);
    let work = || -> Result<()> {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let (run, program) = ((index / programs.len()) as u32, &programs[index % programs.len()]);
            if run >= runs {
                return Ok(());
            }
            let attempt = Attempt::make(start(program, run)?)?;
            let mut failed = lock();
            failed.note(&program.binary.name(), run, &attempt)?;
            if (index + 1) % programs.len() == 0 {
                let count = failed.count();
                println!(
                    "run {} of {runs} ended after {:.0} min, {count} failures so far",
                    run + 1,
                    minutes()
                );
            }
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..at_once).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("a worker does not panic"))
    })?;
    let failed = lock();
    println!("flaky: {tests} tests, {runs} runs each, {} failures, {:.0} min", failed.count(), minutes());
    failed.close(runs)
}

/// The tests that failed, each with the files that contain its output.
#[derive(Debug, Default)]
struct Failed {
    tests: BTreeMap<String, Vec<PathBuf>>,
}

impl Failed {
    fn note(&mut self, name: &str, run: u32, attempt: &Attempt) -> Result<()> {
        if attempt.is_success {
            return Ok(());
        }
        let folder = paths::target().join("flaky");
        fs::create_dir_all(&folder)?;
        let log = folder.join(format!("{}-{run}.log", name.replace('/', "-")));
        fs::write(&log, &attempt.said).context("cannot write the output of a test")?;
        let mut tests = failures(&attempt.said);
        if tests.is_empty() {
            // A crash, or a hang that was ended: the last line shows which test it was.
            tests.push(format!("(the program: {})", attempt.ended));
        }
        for test in tests {
            println!("FAILED in run {}: {name} {test} ({})", run + 1, log.display());
            self.tests.entry(format!("{name} {test}")).or_default().push(log.clone());
        }
        Ok(())
    }

    fn count(&self) -> usize {
        self.tests.values().map(Vec::len).sum()
    }

    fn close(&self, runs: u32) -> Result<()> {
        if self.tests.is_empty() {
            return Ok(());
        }
        for (test, logs) in &self.tests {
            println!("{:>4} of {runs}  {test}", logs.len());
        }
        bail!("{} tests fail sometimes", self.tests.len())
    }
}

/// Processes that keep cores busy until this is dropped.
#[derive(Debug)]
struct Load {
    spinners: Vec<Child>,
}

impl Load {
    fn start(count: usize) -> Result<Self> {
        require_programs(&[("setpriv", "util-linux")])?;
        let spinner = || {
            // It must not outlive this process, however this process ends.
            let words = ["--pdeathsig", "KILL", "sh", "-c", "while :; do :; done"];
            command("setpriv", words).stdin(Stdio::null()).spawn().context("cannot start a busy process")
        };
        Ok(Self { spinners: (0..count).map(|_| spinner()).collect::<Result<_>>()? })
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        for spinner in &mut self.spinners {
            let _ = spinner.kill();
            let _ = spinner.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::binaries::TestBinary;

    fn attempt(script: &str) -> Attempt {
        Attempt::make(command("sh", ["-c", script])).unwrap()
    }

    #[test]
    fn every_failure_is_counted_by_its_test() {
        let mut failed = Failed::default();
        failed.note("t/host", 0, &attempt("exit 0")).unwrap();
        failed.close(1).unwrap();
        let once = attempt(r"printf '\nfailures:\n    a::b\n\ntest result: FAILED.'; exit 101");
        failed.note("t/host", 1, &once).unwrap();
        failed.note("t/host", 2, &once).unwrap();
        failed.note("t/host", 3, &attempt("kill -SEGV $$")).unwrap();
        assert_eq!(failed.count(), 3);
        let names: Vec<_> = failed.tests.keys().cloned().collect();
        assert!(names[0].contains("signal: 11"), "{names:?}");
        assert_eq!(names[1], "t/host a::b");
        assert!(failed.close(4).is_err());
    }

    #[test]
    fn every_program_runs_so_many_times() {
        let folder = tempfile::tempdir().unwrap();
        let program = |name: &str| Program {
            binary: TestBinary {
                krate: name.to_owned(),
                target: "host".to_owned(),
                tier: Tier::Host,
                executable: PathBuf::new(),
                directory: PathBuf::new(),
            },
            tests: vec!["a".to_owned()],
        };
        let programs = ["x", "y", "z"].map(program);
        for at_once in [1, 2] {
            let start = |program: &Program, run| {
                let file = folder.path().join(format!("{}-{run}-{at_once}", program.binary.krate));
                Ok(command("touch", [file.to_str().unwrap()]))
            };
            repeat(&programs, 4, at_once, start).unwrap();
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3 * 4 * 2);
    }

    #[test]
    fn a_load_ends_with_whoever_asked_for_it() {
        let load = Load::start(1).unwrap();
        let id = load.spinners[0].id();
        assert!(PathBuf::from(format!("/proc/{id}")).exists());
        drop(load);
        assert!(!PathBuf::from(format!("/proc/{id}")).exists());
    }
}
