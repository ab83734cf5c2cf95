//! Checks the soundness tests: each guard is removed in turn, and its test must fail.
//!
//! It works on a copy of the repository, which is kept with its build, so that the next run is
//! fast. Only one run at a time is possible.

mod generated;
mod list;
mod record;
mod simulated;

use std::collections::BTreeSet;
use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use self::record::Record;
use crate::binaries::built;
use crate::model::{for_models, is_model};
use crate::paths;
use crate::process::{command, output};

/// The time after which a test is ended: without a guard, a test may wait for ever.
const TIME_MAX: Duration = Duration::from_secs(180);

/// A guard, and the code without it.
struct Mutant {
    /// The wrong behaviour of the mutant.
    name: &'static str,
    /// The path from the top of the repository.
    file: &'static str,
    /// Text that occurs in the file exactly once.
    guard: &'static str,
    instead: &'static str,
    /// The test that must fail, among the unit tests of the file's crate, or of the simulation if
    /// it is a history.
    test: &'static str,
}

/// `cargo xtask mutants`
#[derive(Debug, clap::Args)]
pub(crate) struct MutantsArgs {
    /// Run only mutants whose files have changed since they were last caught, according to the list
    /// in the repository.
    #[arg(long)]
    changed: bool,

    /// Like `--changed`, and record in that list which mutants were caught.
    #[arg(long)]
    record: bool,

    /// Run the mutants that cargo-mutants generates, instead of the list written by hand.
    #[arg(long)]
    generated: bool,

    /// Run only mutants whose name, file or test contains this; of generated mutants, only those of
    /// this package.
    only: Option<String>,
}

impl Mutant {
    /// Returns the file without the guard.
    fn apply(&self, text: &str) -> Result<String> {
        let count = text.matches(self.guard).count();
        ensure!(count == 1, "its guard occurs {count} times in {}, expected once", self.file);
        Ok(text.replace(self.guard, self.instead))
    }

    fn program(&self) -> Program {
        // Tests with simulated cards are in their crate.
        let is_simulated =
            ["histories::", "tests::", "explore::"].iter().any(|module| self.test.starts_with(module));
        let krate = match is_simulated {
            true => "sim",
            false => self.file.split('/').nth(1).expect("a file of a crate"),
        };
        Program { krate, is_model: is_model(self.test) }
    }
}

/// The tests of a crate's library, with or without its models.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Program {
    krate: &'static str,
    is_model: bool,
}

impl Program {
    /// Returns the name of the package.
    fn package(self) -> String {
        match self.krate {
            "engine" => "farreach".to_owned(),
            krate => format!("farreach-{krate}"),
        }
    }
}

/// Returns all mutants.
fn all() -> impl Iterator<Item = &'static Mutant> {
    list::MUTANTS.iter().chain(simulated::MUTANTS)
}

/// Runs mutants. Fails if one survives, or its guard is not found.
pub(crate) fn execute(args: &MutantsArgs) -> Result<()> {
    if args.generated {
        return generated::execute(args.changed, args.record, args.only.as_deref());
    }
    let is_meant = |mutant: &&Mutant| match &args.only {
        None => true,
        Some(only) => [mutant.name, mutant.file, mutant.test].iter().any(|text| text.contains(only)),
    };
    let mut mutants: Vec<&Mutant> = all().filter(is_meant).collect();
    ensure!(!mutants.is_empty(), "no mutant matches this name");
    let mut record = Record::read(paths::repository())?;
    let count = mutants.len();
    if args.changed || args.record {
        let mut changed = Vec::new();
        for mutant in mutants {
            if !record.has(mutant, paths::repository())? {
                changed.push(mutant);
            }
        }
        mutants = changed;
    }
    let unchanged = count - mutants.len();
    let started = Instant::now();
    let mut failed = Vec::new();
    if !mutants.is_empty() {
        let folder = paths::target().join("mutants");
        let bench = Bench { tree: folder.join("tree"), build: folder.join("build") };
        copy(paths::repository(), &bench.tree)?;
        bench.check_unchanged(&mutants)?;
        println!("all tests pass without a mutant ({:.0} s)", started.elapsed().as_secs_f32());
        for mutant in &mutants {
            match bench.try_one(mutant) {
                Ok(end) if end.is_caught() => {
                    println!("caught    {}: {end}", mutant.name);
                    record.add(mutant, paths::repository())?;
                }
                Ok(end) => {
                    println!("SURVIVED  {}: {end}", mutant.name);
                    failed.push(mutant.name);
                }
                Err(error) => {
                    println!("UNUSABLE  {}: {error:#}", mutant.name);
                    failed.push(mutant.name);
                }
            }
        }
    }
    if args.record {
        record.write(&all().collect::<Vec<_>>(), paths::repository())?;
    }
    let (caught, took) = (mutants.len() - failed.len(), started.elapsed().as_secs_f32());
    println!("mutants: {caught} of {} caught, {took:.0} s; {unchanged} were caught before", mutants.len());
    if !failed.is_empty() {
        bail!("a test does not fail without its guard, or the list is out of date: {}", failed.join("; "));
    }
    Ok(())
}

/// A copy of the repository, and its build folder.
struct Bench {
    tree: PathBuf,
    build: PathBuf,
}

impl Bench {
    /// Checks that the tests exist and pass without a change: a test that always fails would catch
    /// every mutant.
    fn check_unchanged(&self, mutants: &[&Mutant]) -> Result<()> {
        for program in mutants.iter().map(|it| it.program()).collect::<BTreeSet<_>>() {
            let tests: BTreeSet<_> =
                mutants.iter().filter(|it| it.program() == program).map(|it| it.test).collect();
            let path = self.build(program)?;
            let told = output(command(&path, ["--exact"]).args(&tests).current_dir(&self.tree))?;
            for test in tests {
                ensure!(
                    told.contains(&format!("test {test} ... ok\n")),
                    "{} has no test `{test}`",
                    program.krate
                );
            }
        }
        Ok(())
    }

    fn try_one(&self, mutant: &Mutant) -> Result<End> {
        let path = self.tree.join(mutant.file);
        let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", mutant.file))?;
        std::fs::write(&path, mutant.apply(&text)?)?;
        let end = self.build(mutant.program()).and_then(|path| self.run(&path, mutant.test));
        std::fs::write(&path, text)?;
        end
    }

    /// Builds a program and returns its path.
    fn build(&self, program: Program) -> Result<String> {
        let words = ["test", "--lib", "--no-run", "--message-format=json-render-diagnostics", "--package"];
        let mut cargo = command("cargo", words);
        cargo
            .arg(program.package())
            .current_dir(&self.tree)
            .env("CARGO_TARGET_DIR", &self.build)
            .env("CARGO_INCREMENTAL", "1")
            // No one debugs these programs.
            .env("CARGO_PROFILE_DEV_DEBUG", "0");
        if program.is_model {
            for_models(&mut cargo, &self.build.join("model"));
        }
        built(&mut cargo)
    }

    fn run(&self, program: &str, test: &str) -> Result<End> {
        let started = Instant::now();
        let mut running = command(program, ["--exact", test])
            .current_dir(&self.tree)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        loop {
            if let Some(status) = running.try_wait()? {
                return Ok(End::of(status));
            }
            if started.elapsed() > TIME_MAX {
                running.kill()?;
                running.wait()?;
                return Ok(End::TookTooLong);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// The end of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Passed,
    Failed,
    /// It was killed by a signal: it accessed freed memory.
    Crashed(i32),
    TookTooLong,
    /// The program reports something else than a failed test.
    Unclear(ExitStatus),
}

impl End {
    fn of(status: ExitStatus) -> Self {
        /// The exit code of a test program with a failed test.
        const A_TEST_FAILED: i32 = 101;
        match (status.code(), status.signal()) {
            (Some(0), _) => Self::Passed,
            (Some(A_TEST_FAILED), _) => Self::Failed,
            (_, Some(signal)) => Self::Crashed(signal),
            _ => Self::Unclear(status),
        }
    }

    fn is_caught(self) -> bool {
        matches!(self, Self::Failed | Self::Crashed(_) | Self::TookTooLong)
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed => f.write_str("its test passes"),
            Self::Failed => f.write_str("its test fails"),
            Self::Crashed(signal) => write!(f, "its test crashes with signal {signal}"),
            Self::TookTooLong => write!(f, "its test does not end within {} s", TIME_MAX.as_secs()),
            Self::Unclear(status) => write!(f, "its test program exits with {status}"),
        }
    }
}

/// Makes one folder equal to the other. Equal files are not written, so that cargo does not rebuild
/// them.
fn copy(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    let mut names = BTreeSet::new();
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let (source, copied) = (entry.path(), to.join(entry.file_name()));
        if entry.file_name() == ".git" || entry.file_name() == "target" || source == paths::target() {
            continue;
        }
        names.insert(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&source, &copied)?;
            continue;
        }
        let content = std::fs::read(&source)?;
        if std::fs::read(&copied).ok().as_ref() != Some(&content) {
            std::fs::write(&copied, content)?;
        }
    }
    for entry in std::fs::read_dir(to)? {
        let entry = entry?;
        match names.contains(&entry.file_name()) {
            true => {}
            false if entry.file_type()?.is_dir() => std::fs::remove_dir_all(entry.path())?,
            false => std::fs::remove_file(entry.path())?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_guard_is_where_the_list_says() {
        let mut wrong = Vec::new();
        for mutant in all() {
            let text = std::fs::read_to_string(paths::repository().join(mutant.file)).unwrap();
            if let Err(error) = mutant.apply(&text) {
                wrong.push(format!("{}: {error}", mutant.name));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn every_mutant_has_a_name_of_its_own() {
        let names: BTreeSet<_> = all().map(|mutant| mutant.name).collect();
        assert_eq!(names.len(), all().count());
    }

    #[test]
    fn only_a_test_that_fails_or_crashes_catches() {
        let ended = |raw| End::of(ExitStatus::from_raw(raw));
        assert!(!ended(0).is_caught());
        assert!(ended(101 << 8).is_caught());
        assert_eq!(ended(11), End::Crashed(11));
        assert!(!ended(1 << 8).is_caught(), "a test program that could not run");
    }

    #[test]
    fn a_copy_becomes_like_its_original() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::create_dir(from.path().join("src")).unwrap();
        std::fs::write(from.path().join("src/lib.rs"), "new").unwrap();
        std::fs::create_dir_all(to.path().join("gone/deep")).unwrap();
        std::fs::create_dir(to.path().join("src")).unwrap();
        std::fs::write(to.path().join("src/lib.rs"), "old").unwrap();
        std::fs::write(to.path().join("src/gone.rs"), "").unwrap();
        copy(from.path(), to.path()).unwrap();
        assert_eq!(std::fs::read_to_string(to.path().join("src/lib.rs")).unwrap(), "new");
        assert!(!to.path().join("gone").exists() && !to.path().join("src/gone.rs").exists());
    }
}
