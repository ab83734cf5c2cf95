//! `cargo xtask soundness`: the soundness tests that need no guest. They are safe programs that once
//! broke the first promise of docs/UNSAFE.md, with both generations of the libraries, and Miri on
//! unsafe code that needs no library. The tests in guests are part of `vm test`.

use std::fs;

use anyhow::{Context, Result, bail, ensure};

use crate::attempts::{Program, Tally};
use crate::binaries::{ATTACKS, Tier, test_binaries};
use crate::held::{self, Held};
use crate::host_tests::{cell_with_libraries, threads};
use crate::paths;
use crate::process::{command, last_lines, output};
use crate::vm::Userland;

/// `cargo xtask soundness`
#[derive(Debug, clap::Args)]
pub(crate) struct SoundnessArgs {
    /// Fail if Miri is not installed, instead of printing a note.
    #[arg(long)]
    strict: bool,

    /// Run Miri only on code that has changed since it last found nothing, according to the list in
    /// the repository.
    #[arg(long)]
    changed: bool,

    /// Record where Miri finds nothing. The list that it writes belongs in the commit.
    #[arg(long, conflicts_with = "changed")]
    record: bool,
}

/// The unit tests of a package that Miri runs: all, or those with these prefixes.
struct Interpreted {
    package: &'static str,
    prefixes: &'static [&'static str],
    /// The files and folders that these tests cover.
    places: &'static [&'static str],
}

const INTERPRETED: &[Interpreted] = &[
    Interpreted { package: "farreach-memory", prefixes: &[], places: &["crates/memory/src"] },
    Interpreted {
        package: "farreach-verbs",
        prefixes: &["qp::ring::", "cq::registry::"],
        places: &["crates/memory/src", "crates/verbs/src/qp/ring.rs", "crates/verbs/src/cq/registry.rs"],
    },
    Interpreted {
        package: "farreach-fabric",
        prefixes: &["ep::slots::", "cq::registry::"],
        places: &["crates/memory/src", "crates/fabric/src/ep/slots.rs", "crates/fabric/src/cq/registry.rs"],
    },
    // The ring over words of one process: Miri cannot map memory twice.
    Interpreted {
        package: "farreach-shm",
        prefixes: &["ring::"],
        places: &["crates/shm/src/ring.rs", "crates/shm/src/words.rs", "crates/shm/src/segment.rs"],
    },
];

/// The list of files in which Miri found nothing.
const HELD: &str = "xtask/src/miri-held.txt";

const HELD_HEADER: &str = "\
# Fingerprints of the files in which Miri finds nothing, written by `cargo xtask soundness --record`.
# `cargo xtask soundness --changed` runs Miri on the crates whose fingerprint is not listed.
";

/// Runs all of it, and prints one line at the end.
pub(crate) fn execute(args: &SoundnessArgs) -> Result<()> {
    let attacks = attack(args)?;
    let miri = match has_miri() {
        true => interpret(args)?,
        false if args.strict => {
            bail!("Miri is not installed: rustup component add --toolchain nightly miri rust-src")
        }
        false => "Miri is not installed and was not run".to_owned(),
    };
    let Attacks { held, combinations } = attacks;
    println!(
        "soundness: {held} attack tests passed, {combinations} combinations of operation and end tried, \
         with both generations of the libraries; {miri}"
    );
    Ok(())
}

/// Runs Miri. Returns a sentence about its result.
fn interpret(args: &SoundnessArgs) -> Result<String> {
    let repository = paths::repository();
    let (mut tests, mut unchanged, mut held) = (0, 0, Held::open(repository, HELD, HELD_HEADER));
    for interpreted in INTERPRETED {
        let entry = held::entry(repository, interpreted.package, interpreted.places)?;
        if args.changed && held.has(&entry) {
            println!("── Miri: {} has not changed since Miri last found nothing", interpreted.package);
            unchanged += 1;
            continue;
        }
        tests += interpreted.run()?;
        held.note(&entry);
    }
    if args.record {
        held.write()?;
    }
    let unchanged = match unchanged {
        0 => String::new(),
        count => {
            format!("; {count} of {} crates have not changed since it last found nothing", INTERPRETED.len())
        }
    };
    Ok(format!("Miri found nothing in {tests} tests{unchanged}"))
}

/// The number of attacks, and of the combinations that they tried.
struct Attacks {
    held: usize,
    combinations: usize,
}

/// Runs the programs that attack.
fn attack(args: &SoundnessArgs) -> Result<Attacks> {
    let mut programs: Vec<Program> =
        test_binaries(Tier::Library)?.into_iter().map(Program::ignored_of).collect::<Result<_>>()?;
    programs.iter_mut().for_each(|program| program.tests.retain(|test| test.starts_with(ATTACKS)));
    programs.retain(|program| !program.tests.is_empty());
    let count: usize = programs.iter().map(|program| program.tests.len()).sum();
    ensure!(count > 0, "no test has a name that begins with {ATTACKS}");
    let folder = paths::target().join("tmp");
    fs::create_dir_all(&folder)?;
    let counts = tempfile::NamedTempFile::new_in(folder)?;
    let counts_path = counts.path().to_str().context("the path of the target folder is not valid UTF-8")?;
    for userland in Userland::BOTH {
        let (mut cell, origin) = cell_with_libraries(userland)?;
        cell.set("FARREACH_TABLE_COUNTS", counts_path);
        if args.strict {
            cell.set("FARREACH_TABLE_SECONDS", "120");
        }
        println!("── with the libraries of {origin}");
        let mut tally = Tally::default();
        for Program { binary, tests } in &programs {
            let path = binary.path()?;
            tally.run(&binary.name(), tests, |chosen| {
                let words = [&[path, "--ignored", threads(binary)], chosen].concat();
                Ok(cell.command(&binary.directory, &words))
            })?;
        }
        tally.close("attack", count).with_context(|| format!("with {origin}"))?;
    }
    let combinations =
        fs::read_to_string(counts_path)?.lines().filter_map(|line| line.parse::<usize>().ok()).sum();
    ensure!(combinations > 0, "no combination was tried");
    Ok(Attacks { held: count, combinations })
}

fn has_miri() -> bool {
    output(&mut command("cargo", ["+nightly", "miri", "--version"])).is_ok()
}

impl Interpreted {
    /// Runs the tests. Returns their number.
    fn run(&self) -> Result<usize> {
        let Self { package, prefixes, .. } = self;
        println!("── Miri: {package}");
        let words = ["+nightly", "miri", "test", "--package", package, "--lib", "--"];
        let mut cargo = command("cargo", words);
        cargo.args(*prefixes).current_dir(paths::repository());
        // File descriptors are kept as integers until C is called, and addresses are sent to peers.
        cargo.env("MIRIFLAGS", "-Zmiri-permissive-provenance -Zmiri-ignore-leaks");
        cargo.env("CARGO_TARGET_DIR", paths::target().join("miri"));
        let told = output(&mut cargo)?;
        let tests =
            told.lines().filter(|line| line.ends_with(" ... ok") || line.ends_with("should panic ... ok"));
        let count = tests.count();
        ensure!(count > 0, "Miri has run no test of {package}:\n{}", last_lines(&told, 20));
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_miri_is_to_run_is_there() {
        for Interpreted { package, prefixes, places } in INTERPRETED {
            held::entry(paths::repository(), package, places).unwrap();
            let krate = paths::repository().join("crates").join(package.trim_start_matches("farreach-"));
            assert!(krate.join("src/lib.rs").exists(), "{package}");
            for prefix in *prefixes {
                let file = krate
                    .join("src")
                    .join(prefix.trim_end_matches("::").replace("::", "/"))
                    .with_extension("rs");
                let source = fs::read_to_string(&file).unwrap_or_else(|_| panic!("{}", file.display()));
                assert!(source.contains("mod tests {"), "{}", file.display());
            }
            // A folder has some, or Miri would have nothing to find.
            let has_unsafe = |place: &&str| {
                let place = paths::repository().join(place);
                place.is_dir() || fs::read_to_string(&place).is_ok_and(|source| source.contains("unsafe"))
            };
            assert!(places.iter().any(has_unsafe), "{package}");
        }
    }
}
