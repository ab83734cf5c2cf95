//! `cargo xtask soundness`: what attacks the first promise and needs no guest. Programs that once broke it, with both generations of the libraries,
//! and Miri over what has unsafe code and needs no library. The guest's part is in `vm test`.

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
    /// Fail where Miri is not installed, instead of saying so.
    #[arg(long)]
    strict: bool,

    /// Have Miri run only what has changed since it last found nothing there, by the list in the repository.
    #[arg(long)]
    changed: bool,

    /// Note where Miri has found nothing: the list that it writes belongs into the commit.
    #[arg(long, conflicts_with = "changed")]
    record: bool,
}

/// What Miri runs: unit tests of a package, all of them or those whose names begin so.
struct Interpreted {
    package: &'static str,
    prefixes: &'static [&'static str],
    /// The files, or folders of them, that these tests are of.
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
];

/// Where it is noted in which files Miri has found nothing.
const HELD: &str = "xtask/src/miri-held.txt";

const HELD_HEADER: &str = "\
# Fingerprints of the files in which Miri finds nothing, written by `cargo xtask soundness --record`.
# What has another one is run by `cargo xtask soundness --changed`.
";

/// Runs all of it, and ends with one line.
pub(crate) fn execute(args: &SoundnessArgs) -> Result<()> {
    let attacks = attack(args)?;
    let miri = match has_miri() {
        true => interpret(args)?,
        false if args.strict => {
            bail!("Miri is not installed: rustup component add --toolchain nightly miri rust-src")
        }
        false => "Miri is not installed here, and was not run".to_owned(),
    };
    let Attacks { held, combinations } = attacks;
    println!(
        "soundness: {held} attacks held and {combinations} combinations of operation and end tried, with both generations of the libraries; {miri}"
    );
    Ok(())
}

/// Has Miri run what it can; its verdict.
fn interpret(args: &SoundnessArgs) -> Result<String> {
    let repository = paths::repository();
    let (mut tests, mut unchanged, mut held) = (0, 0, Held::open(repository, HELD, HELD_HEADER));
    for interpreted in INTERPRETED {
        let entry = held::entry(repository, interpreted.package, interpreted.places)?;
        if args.changed && held.has(&entry) {
            println!("── Miri: {} is as it was when nothing was found in it", interpreted.package);
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
            format!(", and {count} of {} crates are as they were when it found nothing", INTERPRETED.len())
        }
    };
    Ok(format!("Miri finds nothing in {tests} tests{unchanged}"))
}

/// Programs that attack, and what they have tried.
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
    let counts_path = counts.path().to_str().context("the target folder is not text")?;
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
    /// Runs them; how many there are.
    fn run(&self) -> Result<usize> {
        let Self { package, prefixes, .. } = self;
        println!("── Miri: {package}");
        let words = ["+nightly", "miri", "test", "--package", package, "--lib", "--"];
        let mut cargo = command("cargo", words);
        cargo.args(*prefixes).current_dir(paths::repository());
        // Descriptors are kept as numbers until C is called, and addresses are told to peers.
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
                assert!(source.contains("mod tests {") && source.contains("unsafe"), "{}", file.display());
            }
        }
    }
}
