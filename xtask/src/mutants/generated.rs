//! Mutants that cargo-mutants generates, in addition to the list written by hand: of all code in
//! `memory`, and of the files of `verbs` and `fabric` that docs/UNSAFE.md names and unit tests
//! cover. A mutant that survives needs a reason in a list; otherwise the run fails.
//!
//! The reason may be that only device tests notice the change. Those mutants are run again with the
//! device tests in a guest, which have to catch all of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::held::{self, Held};
use crate::paths;
use crate::process::{command, output, run};

/// The release that is installed if there is none.
const CARGO_MUTANTS: &str = "27.1.0";

/// The mutants of one run.
struct Part {
    package: &'static str,
    /// Files or folders.
    places: &'static [&'static str],
    /// The device tests in a guest for mutants that survive the unit tests: parts of their names.
    /// Empty for all.
    device_tests: &'static [&'static str],
}

const PARTS: &[Part] = &[
    Part { package: "farreach-memory", places: &["crates/memory/src"], device_tests: &[] },
    Part {
        package: "farreach-verbs",
        places: &[
            "crates/verbs/src/qp/ring.rs",
            "crates/verbs/src/qp/check.rs",
            "crates/verbs/src/qp/bind.rs",
            "crates/verbs/src/mw.rs",
            "crates/verbs/src/region.rs",
            "crates/verbs/src/weak_set.rs",
            "crates/verbs/src/cq/registry.rs",
        ],
        device_tests: &["post::", "objects::windows", "datagram::what_is_no_datagram"],
    },
    Part {
        package: "farreach-fabric",
        places: &[
            "crates/fabric/src/ep/slots.rs",
            "crates/fabric/src/op/remote.rs",
            "crates/fabric/src/cq/registry.rs",
        ],
        device_tests: &[],
    },
];

/// The list of mutants that survive, each with the reason.
const SURVIVORS: &str = "xtask/src/mutants/survivors.txt";

/// The list of results, with the fingerprints of the files.
const HELD: &str = "xtask/src/mutants/generated.txt";

/// The words of a reason that a device test in a guest catches the mutant.
const IN_THE_GUEST: &str = "in the guest";

const HELD_HEADER: &str = "\
# Results of the mutants that cargo-mutants generates, with the fingerprints of the files,
# written by `cargo xtask mutants --generated --record`.
# `cargo xtask mutants --generated --changed` runs the parts whose fingerprint has changed.
";

/// Runs the mutants: all, or the parts whose files have changed.
pub(super) fn execute(only_changed: bool, record: bool, only: Option<&str>) -> Result<()> {
    let repository = paths::repository();
    // Asked at once: another task may build this program anew in the meantime, and Linux then names
    // a file that was deleted.
    let xtask = std::env::current_exe().context("the path of this program is unknown")?;
    let reasons = Reasons::read(repository)?;
    let mut held = Held::open(repository, HELD, HELD_HEADER);
    for part in PARTS {
        let survivors: Vec<_> =
            reasons.of_part(part.package).flat_map(|(name, reason)| [name, reason]).collect();
        let entry = held::entry_with(repository, part.package, &survivors, part.places)?;
        let is_meant = only.is_none_or(|only| part.package.contains(only));
        if !is_meant || (only_changed && held.has_beginning(&entry)) {
            println!("mutants of {}: skipped", part.package);
            held.keep(&entry);
            continue;
        }
        let found = part.run(&Where::Here)?;
        reasons.judge(part.package, &found)?;
        let mut line = found.to_line();
        let left_to_guest = reasons.left_to_guest(part.package);
        if !left_to_guest.is_empty() {
            let found = part.run(&Where::InGuest(&left_to_guest, &xtask))?;
            let survived: Vec<_> = found.survived.iter().map(String::as_str).collect();
            ensure!(
                survived.is_empty(),
                "mutants that survive in the guest, where {SURVIVORS} expects them to be caught:\n{}",
                survived.join("\n")
            );
            line.push_str(&format!("; {} of these are caught in the guest", found.caught));
        }
        println!("mutants of {}: {line}", part.package);
        held.note(&format!("{entry}: {line}"));
    }
    if record {
        held.write()?;
    }
    Ok(())
}

/// The tests to run, and the mutants.
enum Where<'a> {
    /// Unit tests on this machine, with all mutants.
    Here,
    /// Device tests in a guest, with these mutants. This program starts the guest.
    InGuest(&'a [&'a str], &'a Path),
}

impl Part {
    fn run(&self, place: &Where<'_>) -> Result<Found> {
        install()?;
        let folder = paths::target().join("mutants").join(self.package);
        fs::create_dir_all(&folder)?;
        let mut cargo = command("cargo", ["mutants", "--package", self.package, "--no-shuffle"]);
        // The text of `Debug` is only read by people.
        cargo.args(["--exclude-re", "impl fmt::Debug for"]);
        // Code that only models use, which another task runs, and code of tests.
        cargo.args(["--exclude-re", "Slots::at ", "--exclude-re", "tests::"]);
        cargo.args(["--colors", "never", "--no-times", "--output"]).arg(&folder);
        for place in self.places {
            let is_folder = paths::repository().join(place).is_dir();
            cargo.arg("--file").arg(if is_folder { format!("{place}/**") } else { (*place).to_owned() });
        }
        match place {
            // A mutant that hangs is caught. The slowest unit test takes a few seconds.
            Where::Here => {
                cargo.args(["--jobs", "2", "--timeout", "60", "--", "--lib", "--all-features"]);
                // The test of all drop orders takes as long as all other tests, and covers none of
                // these files.
                cargo.args(["--", "--skip", "in_every_order_of_dropping"]);
            }
            Where::InGuest(mutants, xtask) => {
                for mutant in *mutants {
                    cargo.arg("--re").arg(pattern_of(mutant));
                }
                // The guest sees the repository and its build, so the changed copies are there.
                let copies = folder.join("copies");
                fs::create_dir_all(&copies)?;
                let runner = format!("{} vm run --quiet --numa 2 --hugepages 64 --", xtask.display());
                cargo.env("TMPDIR", copies).env(RUNNER, runner);
                cargo.args(["--timeout", "600", "--", "--test", "device", "--", "--ignored"]);
                cargo.args(self.device_tests);
            }
        }
        cargo.current_dir(paths::repository());
        // It fails if a mutant survives, which is checked below.
        let status = cargo.status().context("cannot start cargo-mutants")?;
        let lists = folder.join("mutants.out");
        ensure!(
            matches!(status.code(), Some(0 | 2 | 3)),
            "cargo-mutants ended with {status}; see {}",
            lists.display()
        );
        let read = |name: &str| {
            fs::read_to_string(lists.join(name))
                .with_context(|| format!("cannot read {name} in {}", lists.display()))
        };
        Ok(Found {
            caught: read("caught.txt")?.lines().count() + read("timeout.txt")?.lines().count(),
            unviable: read("unviable.txt")?.lines().count(),
            survived: read("missed.txt")?.lines().map(without_place).collect(),
        })
    }
}

/// The variable with the program by which cargo runs test programs of this architecture.
const RUNNER: &str = "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER";

/// Returns the regular expression that matches a mutant without its place.
fn pattern_of(mutant: &str) -> String {
    let mut pattern = String::from("^");
    for letter in mutant.chars() {
        if r"\.+*?()|[]{}^$#&-~".contains(letter) {
            pattern.push('\\');
        }
        pattern.push(letter);
        if letter == ':' && !pattern.contains(PLACE) {
            pattern.push_str(PLACE);
        }
    }
    pattern + "$"
}

const PLACE: &str = r"\d+:\d+:";

fn install() -> Result<()> {
    if output(&mut command("cargo", ["mutants", "--version"])).is_ok() {
        return Ok(());
    }
    println!("── installing cargo-mutants {CARGO_MUTANTS}, which takes some minutes");
    run(&mut command(
        "cargo",
        ["install", "--quiet", "--locked", "cargo-mutants", "--version", CARGO_MUTANTS],
    ))
}

/// The results of a part.
#[derive(Debug, Default)]
struct Found {
    caught: usize,
    /// Mutants that do not compile.
    unviable: usize,
    /// Mutants without their places: several may have the same name.
    survived: Vec<String>,
}

impl Found {
    fn to_line(&self) -> String {
        let Self { caught, unviable, survived } = self;
        let all = caught + unviable + survived.len();
        format!(
            "{all} mutants, {caught} caught, {unviable} do not compile, {} survive with their reasons",
            survived.len()
        )
    }
}

/// Returns `file:line:column: what` without the line and the column, which change with every edit.
fn without_place(line: &str) -> String {
    let mut parts = line.splitn(4, ':');
    match (parts.next(), parts.nth(2)) {
        (Some(file), Some(what)) => format!("{file}:{what}"),
        _ => line.to_owned(),
    }
}

/// The reasons why mutants survive: a line with the mutant, and one with the reason.
struct Reasons {
    known: BTreeMap<String, String>,
}

impl Reasons {
    fn read(repository: &Path) -> Result<Self> {
        let text = fs::read_to_string(repository.join(SURVIVORS))
            .with_context(|| format!("cannot read {SURVIVORS}"))?;
        Self::parse(&text)
    }

    fn parse(text: &str) -> Result<Self> {
        let lines: Vec<_> = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).collect();
        let mut known = BTreeMap::new();
        for pair in lines.chunks(2) {
            let reason = pair.get(1).and_then(|line| line.strip_prefix("    ")).filter(|it| !it.is_empty());
            let reason = reason.with_context(|| format!("{} has no reason in {SURVIVORS}", pair[0]))?;
            known.insert(pair[0].to_owned(), reason.to_owned());
        }
        Ok(Self { known })
    }

    /// Returns an error if a mutant survives without a reason, or has a reason and is caught.
    fn judge(&self, package: &str, found: &Found) -> Result<()> {
        let survived: BTreeSet<_> = found.survived.iter().map(String::as_str).collect();
        let new: Vec<_> = survived.iter().filter(|name| !self.known.contains_key(**name)).copied().collect();
        ensure!(new.is_empty(), "mutants that survive without a reason in {SURVIVORS}:\n{}", new.join("\n"));
        let gone = self.of_part(package).map(|(name, _)| name).filter(|name| !survived.contains(name));
        let gone: Vec<_> = gone.collect();
        ensure!(gone.is_empty(), "mutants in {SURVIVORS} that no longer survive:\n{}", gone.join("\n"));
        Ok(())
    }

    /// Returns the mutants of a part that device tests in a guest have to catch.
    fn left_to_guest(&self, package: &str) -> Vec<&str> {
        let left = self.of_part(package).filter(|(_, reason)| reason.contains(IN_THE_GUEST));
        left.map(|(name, _)| name).collect()
    }

    fn of_part(&self, package: &str) -> impl Iterator<Item = (&str, &str)> {
        let folder = format!("crates/{}/", package.trim_start_matches("farreach-"));
        let known = self.known.iter().map(|(name, reason)| (name.as_str(), reason.as_str()));
        known.filter(move |(name, _)| name.starts_with(&folder))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_survivor_needs_a_reason_and_a_reason_a_survivor() {
        let line = "crates/memory/src/range.rs:45:9: replace Range::len -> usize with 0";
        let name = "crates/memory/src/range.rs: replace Range::len -> usize with 0";
        assert_eq!(without_place(line), name);
        let found = |lines: &[&str]| Found {
            survived: lines.iter().map(|line| without_place(line)).collect(),
            ..Found::default()
        };
        let reasons = Reasons::parse(&format!("# why\n{name}\n    it is only printed\n")).unwrap();
        reasons.judge("farreach-memory", &found(&[line])).unwrap();
        assert!(reasons.judge("farreach-memory", &found(&[line, "a.rs:1:1: replace x"])).is_err());
        assert!(reasons.judge("farreach-memory", &found(&[])).is_err());
        reasons.judge("farreach-verbs", &found(&[])).unwrap();
        assert!(Reasons::parse(name).is_err(), "without a reason");
        assert!(reasons.left_to_guest("farreach-memory").is_empty());
        let reasons = Reasons::parse(&format!("{name}\n    a test sees it, in the guest\n")).unwrap();
        assert_eq!(reasons.left_to_guest("farreach-memory"), [name]);
        assert!(reasons.left_to_guest("farreach-verbs").is_empty());
        assert_eq!(
            pattern_of(name),
            r"^crates/memory/src/range\.rs:\d+:\d+: replace Range::len \-> usize with 0$"
        );
    }

    #[test]
    fn what_is_to_be_mutated_is_there() {
        for part in PARTS {
            held::entry(paths::repository(), part.package, part.places).unwrap();
        }
    }
}
