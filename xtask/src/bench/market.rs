//! `cargo xtask bench market`: the engine against UCX, NIXL and Mooncake, over tcp and within a host.
//!
//! Every program writes the same scattered pages between two processes, with several operations in
//! flight, into memory that is present, and the target verifies every byte. The programs of
//! `benches/market` contain the settings with which each library is fastest. All of them run in a
//! root of their own, and in a network of their own: Mooncake listens on every address.
//!
//! The libraries are fetched at the first use. If one cannot be had, or fails, its rows say why.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::contest::{BareFailed, Contest, Measure, others_max};
use super::report::{Goal, Row};
use super::{PAGES, Pages, REGION_BYTES, SHM, text};
use crate::binaries::build_dist_example;
use crate::cell::Cell;
use crate::debian::Root;
use crate::paths;
use crate::process::{command, require_programs, run};
use crate::python::Packages;
use crate::vm::PSM;

/// Arguments of the benchmark.
#[derive(Debug, clap::Args)]
pub(crate) struct MarketArgs {
    /// The libraries to compare the engine with.
    #[arg(long = "library", value_name = "NAME", value_enum, default_values = ["ucx", "nixl", "mooncake"])]
    libraries: Vec<Library>,

    /// The transports.
    #[arg(long = "provider", value_name = "NAME", default_values = ["tcp", SHM], value_parser = ["tcp", SHM])]
    providers: Vec<String>,

    /// The number of rounds that have to count: library, engine, engine, library.
    #[arg(long, value_name = "N", default_value_t = 25)]
    rounds: usize,

    /// Count every round, however busy other processes are.
    #[arg(long)]
    busy: bool,

    /// Also write the results to this file.
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
}

/// A library that the engine is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Library {
    Ucx,
    Nixl,
    Mooncake,
}

/// Rounds of 16 MiB in one run within a host, where all are so fast that the run would be too short
/// otherwise.
const ROUNDS_WITHIN_HOST: u32 = 256;

/// The root of UCX. Like the next one, it has what the engine needs, too.
const UCX_ROOT: Root<'static> = Root {
    name: "market-ucx",
    suites: &["bookworm"],
    packages: &["coreutils", "dash", "libfabric1", "libucx-dev", "util-linux"],
    minimum: ("libucx-dev", "1.13"),
    with_dependencies: true,
    foreign: &[],
    links: &[PSM],
};

/// The version of Python in the next root.
const PYTHON: &str = "3.11";

/// The interpreter in the next root.
pub(super) const PYTHON_PROGRAM: &str = "/usr/bin/python3";

/// The root of NIXL and Mooncake: Python, and the libraries that are not in their wheels.
const PYTHON_ROOT: Root<'static> = Root {
    name: "market-python",
    suites: &["bookworm"],
    packages: &[
        "coreutils",
        "dash",
        "libcurl4",
        "libfabric1",
        "libibverbs1",
        "libnuma1",
        "libstdc++6",
        "python3",
        "util-linux",
    ],
    minimum: ("python3", PYTHON),
    with_dependencies: true,
    foreign: &[],
    links: &[PSM],
};

const NUMPY: &str = "numpy==2.4.6";

pub(super) const NIXL: Packages<'static> =
    Packages { name: "nixl", python: PYTHON, packages: &["nixl-cu12==1.5.1", NUMPY] };

pub(super) const MOONCAKE: Packages<'static> = Packages {
    name: "mooncake",
    python: PYTHON,
    packages: &["mooncake-transfer-engine-non-cuda==0.3.13.post1", NUMPY],
};

impl Library {
    fn name(self) -> &'static str {
        match self {
            Self::Ucx => "ucx",
            Self::Nixl => "nixl",
            Self::Mooncake => "mooncake",
        }
    }

    /// Returns the goal of the ratio, where there is one.
    fn goal(self, provider: &str, page: u64) -> Option<Goal> {
        match (self, provider, page) {
            (Self::Ucx, SHM, _) => Some(Goal::AtLeast(0.9)),
            (Self::Nixl, SHM, 0..=65_536) => Some(Goal::AtLeast(1.0)),
            (Self::Nixl, SHM, _) => Some(Goal::AtLeast(0.9)),
            _ => None,
        }
    }

    /// Returns why the library does not have this transport.
    fn lacks(self, provider: &str) -> Option<&'static str> {
        let is_missing = self == Self::Mooncake && provider == SHM;
        is_missing.then_some("its wheel has no transport within a host but tcp")
    }

    /// Fetches the library, and returns a cell in which its program and the engine's run, and the
    /// program's command.
    fn prepare(self) -> Result<(Cell, Vec<String>)> {
        let (packages, program) = match self {
            Self::Ucx => {
                let root = UCX_ROOT.get()?;
                let mut cell = Cell::new(&root.path)?;
                cell.own_network()?;
                println!("{}: {}", self.name(), root.origin);
                return Ok((cell, vec![text(&compile(&root.path)?)?]));
            }
            Self::Nixl => (NIXL, "with_nixl.py"),
            Self::Mooncake => (MOONCAKE, "with_mooncake.py"),
        };
        let (cell, origin) = python_cell(Some(packages))?;
        println!("{}: {origin}", self.name());
        let program = paths::repository().join("benches/market").join(program);
        Ok((cell, vec![PYTHON_PROGRAM.to_owned(), text(&program)?]))
    }
}

/// Returns a cell in which programs import these packages, and the origin of all that is in it.
pub(super) fn python_cell(packages: Option<Packages<'static>>) -> Result<(Cell, String)> {
    let root = PYTHON_ROOT.get()?;
    let mut cell = Cell::new(&root.path)?;
    cell.own_network()?;
    // The repository is visible inside.
    cell.set("PYTHONDONTWRITEBYTECODE", "1");
    let Some(packages) = packages else { return Ok((cell, root.origin)) };
    let folder = packages.get()?;
    cell.show(&folder.path);
    cell.set("PYTHONPATH", &text(&folder.path)?);
    Ok((cell, format!("{}, {}", folder.origin, root.origin)))
}

/// Compares the engine with each library.
pub(super) fn measure(args: &MarketArgs) -> Result<Vec<Row>> {
    build_dist_example("farreach", "paged")?;
    println!("library and engine: GB/s and their ratio");
    let mut rows = Vec::new();
    for library in &args.libraries {
        let prepared = library.prepare();
        for provider in &args.providers {
            for pages in &PAGES {
                let label = format!("{} {provider} {}", library.name(), pages.label);
                let goal = library.goal(provider, pages.bytes);
                let row = match (library.lacks(provider), &prepared) {
                    (Some(lack), _) => not_measured(label, lack.to_owned()),
                    (None, Err(error)) => not_measured(label, reason(error)),
                    (None, Ok((cell, command))) => {
                        compare(args, cell, command, provider, pages, (label, goal))?
                    }
                };
                println!("{row}");
                rows.push(row);
            }
        }
    }
    Ok(rows)
}

/// Holds one contest. An error of the library's program is the reason of its row, and one of the
/// engine's program is an error.
fn compare(
    args: &MarketArgs,
    cell: &Cell,
    library: &[String],
    provider: &str,
    pages: &Pages,
    (label, goal): (String, Option<Goal>),
) -> Result<Row> {
    let rounds = if provider == SHM { ROUNDS_WITHIN_HOST } else { pages.rounds };
    let [page, region, window, times] =
        [pages.bytes, REGION_BYTES, pages.window.into(), rounds.into()].map(|it| it.to_string());
    let sizes = ["--page", &page, "--region", &region, "--window", &window, "--rounds", &times];
    let work = [&["write", "--provider", provider], &sizes[..]].concat();
    let engine = text(&paths::target().join("dist/examples/paged"))?;
    let library: Vec<&str> = library.iter().map(String::as_str).chain(work.iter().copied()).collect();
    let contest = Contest {
        cell,
        commands: [&library, &[&[&engine[..]], &work[..]].concat()],
        measure: Measure::GB_PER_S,
        bytes: Some(u64::from(rounds) * REGION_BYTES),
        others_max: others_max(args.busy),
    };
    match contest.hold(args.rounds) {
        Ok(held) => Ok(Row::new(label, held, goal)),
        Err(error) if error.is::<BareFailed>() => Ok(not_measured(label, reason(&error))),
        Err(error) => Err(error.context(label)),
    }
}

fn not_measured(label: String, reason: String) -> Row {
    Row::not_measured(label, Measure::GB_PER_S, reason)
}

/// The longest reason, in characters.
const REASON_MAX: usize = 200;

/// Returns the end of an error in one line: the last words of the program that failed.
pub(super) fn reason(error: &anyhow::Error) -> String {
    let text = format!("{error:#}");
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let end = lines[lines.len().saturating_sub(2)..].join("; ");
    let skipped = end.chars().count().saturating_sub(REASON_MAX);
    let kept: String = end.chars().skip(skipped).collect();
    if skipped == 0 { kept } else { format!("…{kept}") }
}

/// Compiles the program for UCX against the headers and the library of the root.
fn compile(root: &Path) -> Result<PathBuf> {
    require_programs(&[("cc", "gcc")])?;
    let folder = paths::target().join("market");
    std::fs::create_dir_all(&folder)?;
    let program = folder.join("ucx");
    let libraries = library_folder(root)?;
    let mut cc = command("cc", ["-std=gnu11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Werror"]);
    cc.arg("-isystem").arg(root.join("usr/include"));
    cc.arg(paths::repository().join("benches/market/ucx.c"));
    cc.args(["libucp.so.0", "libucs.so.0"].map(|name| libraries.join(name)));
    // Its dependencies are searched for at run time.
    run(cc.arg("-Wl,--allow-shlib-undefined").arg("-o").arg(&program))?;
    Ok(program)
}

/// Returns the folder of UCX's libraries in the root, of whichever architecture it has.
fn library_folder(root: &Path) -> Result<PathBuf> {
    let folders = std::fs::read_dir(root.join("usr/lib"))?.filter_map(|folder| Some(folder.ok()?.path()));
    let found = folders.into_iter().find(|folder| folder.join("libucp.so.0").exists());
    found.with_context(|| format!("{} has no libucp", root.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_are_those_within_a_host() {
        for page in PAGES.iter().map(|pages| pages.bytes) {
            assert_eq!(Library::Ucx.goal(SHM, page), Some(Goal::AtLeast(0.9)));
            let ahead = if page < 1 << 20 { 1.0 } else { 0.9 };
            assert_eq!(Library::Nixl.goal(SHM, page), Some(Goal::AtLeast(ahead)));
            for library in [Library::Ucx, Library::Nixl, Library::Mooncake] {
                assert_eq!(library.goal("tcp", page), None);
            }
        }
    }

    #[test]
    fn a_reason_is_the_end_of_an_error_in_one_line() {
        let reason_of = |text: String| reason(&anyhow::Error::msg(text).context(BareFailed));
        let told = "`unshare …` ended with 1\n\nTraceback:\n  import x\nImportError: no x\n\n".to_owned();
        assert_eq!(reason_of(told), "import x; ImportError: no x");
        assert_eq!(reason(&anyhow::Error::msg("one line")), "one line");
        assert_eq!(reason(&anyhow::Error::msg("")), "");
        let long = reason_of(format!("{} end", "é".repeat(5000)));
        assert!(long.starts_with('…') && long.ends_with("é end"), "{long}");
        assert_eq!(long.chars().count(), REASON_MAX + 1);
    }
}
