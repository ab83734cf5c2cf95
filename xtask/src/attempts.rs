//! Runs test programs on real transports. The machines are small and busy, and some tests depend on
//! a datagram that is not repeated. Therefore a failed test gets a second attempt, alone. If it
//! passes then, it is unsteady: it is named, also at the end of CI, and more than [`BORNE`]
//! unsteady tests fail the run.

use std::fs::{self, File};
use std::io::{Read, Seek};
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::binaries::TestBinary;

/// The number of unsteady tests that are tolerated on one transport.
const BORNE: usize = 3;

/// The beginning of a line that names an unsteady test.
const UNSTEADY: &str = "unsteady, passed at the second attempt: ";

/// Returns the unsteady tests that a log names.
pub(crate) fn unsteady_in(log: &str) -> impl Iterator<Item = &str> {
    log.lines().filter_map(|line| line.strip_prefix(UNSTEADY))
}

/// A test program, and which of its tests to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Program {
    pub(crate) binary: TestBinary,
    pub(crate) tests: Vec<String>,
}

impl Program {
    /// Selects the tests that need a library or a device.
    pub(crate) fn ignored_of(binary: TestBinary) -> Result<Self> {
        let tests = binary.ignored()?;
        ensure!(!tests.is_empty(), "{} has no test that needs a library or a device", binary.name());
        Ok(Self { binary, tests })
    }
}

/// The time after which a program counts as hung. The longest takes about eight minutes, in a guest
/// without other load.
const HUNG: Duration = Duration::from_secs(1500);

/// The results of tests.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    passed: usize,
    failed: Vec<String>,
    /// Tests that passed at the second attempt. They are included in `passed`.
    unsteady: Vec<String>,
}

impl Tally {
    /// Runs tests of a program and adds their results. `start` returns the command, given the
    /// arguments for libtest that select the tests.
    ///
    /// A program whose tests pass prints one line. If one fails, the whole output is printed.
    pub(crate) fn run(
        &mut self,
        name: &str,
        tests: &[String],
        start: impl Fn(&[&str]) -> Result<Command>,
    ) -> Result<()> {
        let started = Instant::now();
        let first = Attempt::make(start(&exactly(tests))?)?;
        let Some((mut passed, mut failed)) = first.closing else {
            println!("{name}: ended without a result ({})\n{}", first.ended, first.said);
            self.failed.push(name.to_owned());
            return Ok(());
        };
        if failed > 0 {
            println!("{name}:\n{}", first.said);
            let names = failures(&first.said);
            ensure!(names.len() == failed, "{name} reports {failed} failures, but names {}", names.len());
            // With many failures it is no coincidence, and a second attempt would waste time.
            let unsteady = if failed <= BORNE { second_attempt(&names, &start)? } else { Vec::new() };
            passed += unsteady.len();
            failed -= unsteady.len();
            let still = names.iter().filter(|it| !unsteady.contains(it));
            self.failed.extend(still.map(|test| format!("{name} {test}")));
            self.unsteady.extend(unsteady.iter().map(|test| format!("{name} {test}")));
        } else if !first.is_success {
            println!("{name}: {}\n{}", first.ended, first.said);
            self.failed.push(name.to_owned());
        }
        self.passed += passed;
        println!("{name}: {passed} passed, {failed} failed, {:.0} s", started.elapsed().as_secs_f32());
        for (seconds, test) in slowest(&first.said) {
            println!("    {seconds:>6.1} s  {test}");
        }
        Ok(())
    }

    /// Prints the sum of all results. Returns an error unless `expected` tests have passed.
    pub(crate) fn close(&self, what: &str, expected: usize) -> Result<()> {
        let Self { passed, failed, unsteady } = self;
        for test in unsteady {
            println!("{UNSTEADY}{test}");
        }
        println!("{what}: {passed} passed, {} failed", failed.len());
        ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
        ensure!(*passed == expected, "{passed} of {expected} {what} tests have run");
        ensure!(
            unsteady.len() <= BORNE,
            "{} tests are unsteady, more than the limit of {BORNE}",
            unsteady.len()
        );
        Ok(())
    }
}

/// Returns the arguments that make libtest run only these tests.
pub(crate) fn exactly(tests: &[String]) -> Vec<&str> {
    std::iter::once("--exact").chain(tests.iter().map(String::as_str)).collect()
}

/// Runs these tests once more. Returns those that pass now.
fn second_attempt(names: &[String], start: &impl Fn(&[&str]) -> Result<Command>) -> Result<Vec<String>> {
    let second = Attempt::make(start(&exactly(names))?)?;
    println!("── second attempt:\n{}", second.said);
    let again = failures(&second.said);
    Ok(match second.closing {
        Some((passed, failed)) if passed + failed == names.len() && again.len() == failed => {
            names.iter().filter(|it| !again.contains(it)).cloned().collect()
        }
        _ => Vec::new(),
    })
}

/// One run of a test program.
pub(crate) struct Attempt {
    /// The output, of both streams.
    pub(crate) said: String,
    pub(crate) ended: String,
    pub(crate) is_success: bool,
    /// The numbers of passed and failed tests, if the program ran to its end.
    closing: Option<(usize, usize)>,
}

impl Attempt {
    /// Runs the program to its end, or until it counts as hung.
    pub(crate) fn make(command: Command) -> Result<Self> {
        Self::within(HUNG, command)
    }

    fn within(limit: Duration, mut command: Command) -> Result<Self> {
        let mut log = tempfile::tempfile()?;
        command.stdout(log.try_clone()?).stderr(log.try_clone()?);
        let mut program = command.spawn().context("cannot start a test program")?;
        let status = wait(&mut program, limit)?;
        let ended = match status {
            Some(status) => status.to_string(),
            None => kill(&mut program, limit)?,
        };
        let said = read_whole(&mut log)?;
        Ok(Self {
            closing: said.lines().rev().find_map(closing),
            said,
            ended,
            is_success: status.is_some_and(|status| status.success()),
        })
    }
}

/// Waits for a process. Returns `None` if it still runs at the limit.
fn wait(process: &mut Child, limit: Duration) -> Result<Option<ExitStatus>> {
    let started = Instant::now();
    loop {
        let status = process.try_wait()?;
        if status.is_some() || started.elapsed() > limit {
            return Ok(status);
        }
        thread::sleep(Duration::from_millis(50));
    }
}

/// Kills a process that has hung, and describes the result. A process that is blocked in the kernel
/// is left alone: waiting for it would hang too.
fn kill(process: &mut Child, limit: Duration) -> Result<String> {
    let waits_in = fs::read_to_string(format!("/proc/{}/stack", process.id())).unwrap_or_default();
    process.kill()?;
    let hung = format!("hung, ended after {} s", limit.as_secs());
    Ok(match wait(process, Duration::from_secs(10))? {
        Some(_) => hung,
        None => format!("{hung} without success: it is blocked in the kernel\n{waits_in}"),
    })
}

fn read_whole(log: &mut File) -> Result<String> {
    log.rewind()?;
    let mut said = Vec::new();
    log.read_to_end(&mut said)?;
    Ok(String::from_utf8_lossy(&said).into_owned())
}

/// Parses the numbers of passed and failed tests in libtest's last line.
fn closing(line: &str) -> Option<(usize, usize)> {
    let result = line.strip_prefix("test result: ")?;
    let number_before = |word: &str| {
        let words: Vec<&str> = result.split_whitespace().collect();
        words.windows(2).find(|pair| pair[1] == word)?[0].parse().ok()
    };
    Some((number_before("passed;")?, number_before("failed;")?))
}

/// Returns the names in libtest's last list of failures.
pub(crate) fn failures(said: &str) -> Vec<String> {
    let Some((_, list)) = said.rsplit_once("\nfailures:\n") else { return Vec::new() };
    list.lines().map_while(|line| line.strip_prefix("    ")).map(ToOwned::to_owned).collect()
}

/// The arguments that make libtest print the duration of each test, which are unstable, and the
/// variable that allows them.
pub(crate) const REPORT_TIME: [&str; 2] = ["-Zunstable-options", "--report-time"];
pub(crate) const ALLOW_UNSTABLE: (&str, &str) = ("RUSTC_BOOTSTRAP", "1");

/// Returns the slowest tests, if durations were requested.
fn slowest(said: &str) -> Vec<(f32, &str)> {
    const SHOWN: usize = 25;
    let mut times: Vec<(f32, &str)> = said
        .lines()
        .filter_map(|line| {
            let (test, rest) = line.strip_prefix("test ")?.split_once(" ... ")?;
            let seconds = rest.split_once('<')?.1.strip_suffix("s>")?.parse().ok()?;
            Some((seconds, test))
        })
        .collect();
    times.sort_by(|left, right| right.0.total_cmp(&left.0));
    times.truncate(SHOWN);
    times
}

/// Writes the list of tests that a guest runs.
pub(crate) fn write_list(file: &Path, programs: &[Program]) -> Result<()> {
    fs::write(file, serde_json::to_string(programs)?)
        .with_context(|| format!("cannot write {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::command;

    const FAILED_ONCE: &str = "
running 3 tests
test a ... ok
test b::c ... FAILED
test d ... ok

failures:

---- b::c stdout ----
    an indented word

failures:
    b::c

test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 9 filtered out; finished in 1.20s
";
    const PASSED: &str =
        "test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.20s";

    fn names(tests: &[&str]) -> Vec<String> {
        tests.iter().map(|test| (*test).to_owned()).collect()
    }

    fn three() -> Vec<String> {
        names(&["a", "b::c", "d"])
    }

    /// Returns a program that prints the first text for three or four tests, and the other for
    /// fewer tests, at the second attempt.
    fn program(first: &str, second: &str) -> impl Fn(&[&str]) -> Result<Command> {
        move |chosen| {
            let said = if chosen.len() > 3 { first } else { second };
            let mut shell =
                command("sh", ["-c", r#"printf '%s' "$1"; case "$1" in *FAILED.*) exit 101;; esac"#, "sh"]);
            shell.arg(said);
            Ok(shell)
        }
    }

    #[test]
    fn what_passes_at_the_second_attempt_is_unsteady_and_borne() {
        let mut tally = Tally::default();
        tally.run("t", &three(), program(FAILED_ONCE, PASSED)).unwrap();
        assert_eq!(tally, Tally { passed: 3, failed: vec![], unsteady: vec!["t b::c".into()] });
        tally.close("device", 3).unwrap();
        let log = format!("device: 3 passed\n{UNSTEADY}t b::c\n");
        assert_eq!(unsteady_in(&log).collect::<Vec<_>>(), ["t b::c"]);
        assert_eq!(tally.close("device", 4).unwrap_err().to_string(), "3 of 4 device tests have run");
    }

    #[test]
    fn a_program_that_hangs_is_ended_and_what_it_said_is_kept() {
        let hangs = command("sh", ["-c", "echo test a ...; exec sleep 1000"]);
        let attempt = Attempt::within(Duration::from_millis(200), hangs).unwrap();
        assert!(!attempt.is_success && attempt.closing.is_none());
        assert_eq!(attempt.said, "test a ...\n");
        assert!(attempt.ended.starts_with("hung"), "{}", attempt.ended);
        assert!(!attempt.ended.contains("without success"), "{}", attempt.ended);
    }

    #[test]
    fn the_slowest_tests_come_first() {
        let said = "test a ... ok <0.250s>\ntest b::c ... FAILED <12.5s>\ntest d ... ok\n";
        assert_eq!(slowest(said), [(12.5, "b::c"), (0.25, "a")]);
    }

    #[test]
    fn what_fails_twice_has_failed() {
        let again = FAILED_ONCE.replace("2 passed", "0 passed");
        let mut tally = Tally::default();
        tally.run("t", &three(), program(FAILED_ONCE, &again)).unwrap();
        assert_eq!(tally.close("device", 3).unwrap_err().to_string(), "failed: t b::c");
    }

    #[test]
    fn a_second_attempt_that_ran_nothing_is_no_pass() {
        let nothing = PASSED.replace("1 passed", "0 passed");
        let mut tally = Tally::default();
        tally.run("t", &three(), program(FAILED_ONCE, &nothing)).unwrap();
        assert!(tally.close("device", 3).is_err());
    }

    #[test]
    fn a_crash_is_a_failure_without_a_second_attempt() {
        let mut tally = Tally::default();
        tally.run("t", &three(), program("running 3 tests\ntest a ... ", PASSED)).unwrap();
        assert_eq!(tally.close("device", 0).unwrap_err().to_string(), "failed: t");
        // All tests passed, but the program exited with an error.
        let mut tally = Tally::default();
        tally
            .run("t", &names(&["a"]), |_| Ok(command("sh", ["-c", &format!("echo '{PASSED}'; exit 1")])))
            .unwrap();
        assert!(tally.close("device", 1).is_err());
    }

    #[test]
    fn many_that_fail_are_no_accident() {
        let mut tally = Tally { passed: 9, failed: vec![], unsteady: vec!["x".to_owned(); BORNE + 1] };
        assert!(tally.close("device", 9).is_err());
        let many: Vec<_> = (0..=BORNE).map(|test| format!("test{test}")).collect();
        let listed: String = many.iter().map(|test| format!("    {test}\n")).collect();
        let said = format!("\nfailures:\n{listed}\n{}", PASSED.replace("1 passed; 0", "0 passed; 4"));
        tally = Tally::default();
        tally.run("t", &many, program(&format!("{said} FAILED."), PASSED)).unwrap();
        assert_eq!(tally.failed.len(), BORNE + 1);
    }
}
