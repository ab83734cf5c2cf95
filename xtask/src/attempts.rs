//! Test programs on real engines. The machines that run them are small and busy, and some of what is tested there hangs on a datagram that nobody
//! repeats. So a test that failed has a second attempt, by itself. If it passes then it is unsteady: it is named, and few of those are borne.

use std::fs::File;
use std::io::{Read, Seek};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::binaries::TestBinary;
use crate::process::{command, last_lines, output};

/// So many unsteady tests are borne among all that run on one engine. More is no accident.
const BORNE: usize = 3;

/// What became of tests.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    passed: usize,
    failed: Vec<String>,
    /// Passed at the second attempt; among `passed`.
    unsteady: Vec<String>,
}

impl Tally {
    /// Runs a program and adds what became of its tests. `start` makes the command, with more words for libtest.
    ///
    /// Whoever passed is told in a line; whoever failed shows everything that was said.
    pub(crate) fn run(&mut self, name: &str, start: impl Fn(&[&str]) -> Command) -> Result<()> {
        let first = Attempt::make(start(&[]))?;
        let Some((mut passed, mut failed)) = first.closing else {
            println!("{name}: ended without a result ({})\n{}", first.ended, first.said);
            self.failed.push(name.to_owned());
            return Ok(());
        };
        if failed > 0 {
            println!("{name}:\n{}", first.said);
            let names = failures(&first.said);
            ensure!(names.len() == failed, "{name} tells of {failed} failures, and names {}", names.len());
            // With many, it is not an accident, and another hour is not well spent on them.
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
        println!("{name}: {passed} passed, {failed} failed");
        Ok(())
    }

    /// Tells what became of all, which should have been `expected`; an error unless they passed.
    pub(crate) fn close(&self, what: &str, expected: usize) -> Result<()> {
        let Self { passed, failed, unsteady } = self;
        for test in unsteady {
            println!("unsteady, passed at the second attempt: {test}");
        }
        println!("{what}: {passed} passed, {} failed", failed.len());
        ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
        ensure!(*passed == expected, "of {expected} {what} tests {passed} have run");
        ensure!(unsteady.len() <= BORNE, "{} tests are unsteady, which is no accident", unsteady.len());
        Ok(())
    }
}

/// Runs the tests of these names once more; those that pass now.
fn second_attempt(names: &[String], start: &impl Fn(&[&str]) -> Command) -> Result<Vec<String>> {
    let words: Vec<&str> = std::iter::once("--exact").chain(names.iter().map(String::as_str)).collect();
    let second = Attempt::make(start(&words))?;
    println!("── the second attempt:\n{}", second.said);
    let again = failures(&second.said);
    Ok(match second.closing {
        Some((passed, failed)) if passed + failed == names.len() && again.len() == failed => {
            names.iter().filter(|it| !again.contains(it)).cloned().collect()
        }
        _ => Vec::new(),
    })
}

/// A program's run.
struct Attempt {
    said: String,
    ended: String,
    is_success: bool,
    /// How many passed and how many failed, if it came to an end.
    closing: Option<(usize, usize)>,
}

impl Attempt {
    fn make(mut command: Command) -> Result<Self> {
        let mut log = tempfile::tempfile()?;
        command.stdout(log.try_clone()?).stderr(log.try_clone()?);
        let status = command.status().context("cannot start a test program")?;
        let said = read_whole(&mut log)?;
        Ok(Self {
            closing: said.lines().rev().find_map(closing),
            said,
            ended: status.to_string(),
            is_success: status.success(),
        })
    }
}

fn read_whole(log: &mut File) -> Result<String> {
    log.rewind()?;
    let mut said = Vec::new();
    log.read_to_end(&mut said)?;
    Ok(String::from_utf8_lossy(&said).into_owned())
}

/// How many passed and failed, by libtest's closing line.
fn closing(line: &str) -> Option<(usize, usize)> {
    let result = line.strip_prefix("test result: ")?;
    let number_before = |word: &str| {
        let words: Vec<&str> = result.split_whitespace().collect();
        words.windows(2).find(|pair| pair[1] == word)?[0].parse().ok()
    };
    Some((number_before("passed;")?, number_before("failed;")?))
}

/// The names in libtest's last list of failures.
fn failures(said: &str) -> Vec<String> {
    let Some((_, list)) = said.rsplit_once("\nfailures:\n") else { return Vec::new() };
    list.lines().map_while(|line| line.strip_prefix("    ")).map(ToOwned::to_owned).collect()
}

/// `cargo xtask attempt`: what a guest is told to run.
#[derive(Debug, clap::Args)]
pub(crate) struct AttemptArgs {
    /// How many tests are to be run.
    #[arg(long)]
    count: usize,

    /// Seconds after which a program counts as hung.
    #[arg(long)]
    limit: u32,

    /// A word for libtest.
    #[arg(long = "word", allow_hyphen_values = true)]
    words: Vec<String>,

    /// The programs, as JSON.
    programs: Vec<String>,
}

impl AttemptArgs {
    /// The words that [`execute`] is given, from what they mean.
    pub(crate) fn words(
        programs: &[&TestBinary],
        words: &[String],
        count: usize,
        limit: u32,
    ) -> Result<Vec<String>> {
        let mut line = vec![format!("--count={count}"), format!("--limit={limit}")];
        line.extend(words.iter().map(|word| format!("--word={word}")));
        for program in programs {
            line.push(serde_json::to_string(program)?);
        }
        Ok(line)
    }
}

/// Runs the tests of these programs that wait for a device, and counts. One that should have run and has not is a failure, never a pass.
pub(crate) fn execute(args: &AttemptArgs) -> Result<()> {
    let mut tally = Tally::default();
    let limit = args.limit.to_string();
    for program in &args.programs {
        let binary: TestBinary = serde_json::from_str(program)?;
        let path = binary.path()?;
        tally.run(&binary.name, |more| {
            let mut test = command("timeout", [limit.as_str(), path, "--ignored", "--test-threads=1"]);
            test.args(&args.words).args(more).current_dir(&binary.directory);
            test
        })?;
    }
    tally.close("device", args.count).inspect_err(|_| {
        // Without it, what failed is told all the same.
        let log = output(&mut Command::new("dmesg")).unwrap_or_else(|error| error.to_string());
        println!("kernel log:\n{}", last_lines(&log, 30));
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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

    /// A program that says the one at first, and the other at the second attempt.
    fn program(first: &str, second: &str) -> impl Fn(&[&str]) -> Command {
        move |more| {
            let said = if more.is_empty() { first } else { second };
            let mut shell =
                command("sh", ["-c", r#"printf '%s' "$1"; case "$1" in *FAILED.*) exit 101;; esac"#, "sh"]);
            shell.arg(said);
            shell
        }
    }

    #[test]
    fn what_passes_at_the_second_attempt_is_unsteady_and_borne() {
        let mut tally = Tally::default();
        tally.run("t", program(FAILED_ONCE, PASSED)).unwrap();
        assert_eq!(tally, Tally { passed: 3, failed: vec![], unsteady: vec!["t b::c".into()] });
        tally.close("device", 3).unwrap();
        assert_eq!(tally.close("device", 4).unwrap_err().to_string(), "of 4 device tests 3 have run");
    }

    #[test]
    fn what_fails_twice_has_failed() {
        let again = FAILED_ONCE.replace("2 passed", "0 passed");
        let mut tally = Tally::default();
        tally.run("t", program(FAILED_ONCE, &again)).unwrap();
        assert_eq!(tally.close("device", 3).unwrap_err().to_string(), "failed: t b::c");
    }

    #[test]
    fn a_second_attempt_that_ran_nothing_is_no_pass() {
        let nothing = PASSED.replace("1 passed", "0 passed");
        let mut tally = Tally::default();
        tally.run("t", program(FAILED_ONCE, &nothing)).unwrap();
        assert!(tally.close("device", 3).is_err());
    }

    #[test]
    fn a_crash_is_a_failure_without_a_second_attempt() {
        let mut tally = Tally::default();
        tally.run("t", program("running 3 tests\ntest a ... ", PASSED)).unwrap();
        assert_eq!(tally.close("device", 0).unwrap_err().to_string(), "failed: t");
        // All passed, and the program ended badly all the same.
        let mut tally = Tally::default();
        tally.run("t", |_| command("sh", ["-c", &format!("echo '{PASSED}'; exit 1")])).unwrap();
        assert!(tally.close("device", 1).is_err());
    }

    #[test]
    fn many_that_fail_are_no_accident() {
        let mut tally = Tally { passed: 9, failed: vec![], unsteady: vec!["x".to_owned(); BORNE + 1] };
        assert!(tally.close("device", 9).is_err());
        let names: Vec<_> = (0..=BORNE).map(|test| format!("    test{test}")).collect();
        let said =
            format!("\nfailures:\n{}\n\n{}", names.join("\n"), PASSED.replace("1 passed; 0", "0 passed; 4"));
        tally = Tally::default();
        tally.run("t", program(&format!("{said} FAILED."), PASSED)).unwrap();
        assert_eq!(tally.failed.len(), BORNE + 1);
    }
}
