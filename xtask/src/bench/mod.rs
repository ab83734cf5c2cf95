//! Benchmarks: compares the engine with a program in C that does the same work on bare libfabric.
//!
//! Absolute times on a machine with other load mean little; ratios of runs next to each other mean
//! more. Therefore both programs run alternately (bare, engine, engine, bare), with a priority
//! above that of other processes. A round in which other processes still used too much of a core
//! does not count.

pub(crate) mod bare;
mod contest;
mod growth;
mod guest;
mod load;
mod report;
mod shm;
mod spread;

use std::path::PathBuf;

use anyhow::Result;

use crate::binaries::build_dist_example;
use crate::cell::Cell;
use crate::paths;
use crate::vm::Userland;
use contest::{Contest, Measure};
use report::{Goal, Row};

/// The benchmarks of `cargo xtask bench`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum BenchCommand {
    /// Write scattered pages to another process, and measure the throughput.
    Paged(PagedArgs),
    /// Send eight bytes back and forth, and measure the latency.
    Ping(PingArgs),
    /// Count the instructions of an operation with more and more peers, operations in flight, pages
    /// and grants.
    Growth(growth::GrowthArgs),
    /// Compare links within a host, and engines over them, with memcpy, a bounced cache line and a
    /// bare eventfd.
    Shm(shm::ShmArgs),
    /// Compare verbs and the engine on Soft-RoCE with perftest, in a guest under counted time.
    Guest(guest::GuestArgs),
}

/// Arguments of all benchmarks.
#[derive(Debug, clap::Args)]
struct CommonArgs {
    /// The release whose libfabric is used.
    #[arg(long, value_enum, default_value = "debian12")]
    userland: Userland,

    /// The provider of libfabric. For `shm`, the engine uses its own rail, and the program in C
    /// libfabric's.
    #[arg(long, value_name = "NAME", default_value = "tcp", value_parser = ["tcp", SHM])]
    provider: String,

    /// The number of rounds that have to count. A busy machine needs more rounds, at most three
    /// times as many.
    #[arg(long, value_name = "N", default_value_t = 25)]
    rounds: usize,

    /// Also write the results to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct PagedArgs {
    #[command(flatten)]
    common: CommonArgs,

    /// The number of pages in one operation of the program in C.
    #[arg(long, value_name = "N", default_value_t = 1)]
    each: u32,
}

#[derive(Debug, clap::Args)]
pub(crate) struct PingArgs {
    #[command(flatten)]
    common: CommonArgs,
}

/// The provider for which the engine uses its own rail.
const SHM: &str = "shm";

/// The work of one run. It takes about half a second; for a shorter run, the kernel's processor
/// times are too coarse.
struct Pages {
    label: &'static str,
    bytes: u64,
    /// Operations in flight.
    window: u32,
    /// Rounds of 16 MiB.
    rounds: u32,
}

const PAGES: [Pages; 3] = [
    Pages { label: "4 KiB", bytes: 4 << 10, window: 64, rounds: 32 },
    Pages { label: "64 KiB", bytes: 64 << 10, window: 32, rounds: 128 },
    Pages { label: "1 MiB", bytes: 1 << 20, window: 8, rounds: 160 },
];

/// The number of round trips in one run.
const PINGS: &str = "50000";

/// Runs a benchmark. Returns an error if a goal was missed.
pub(crate) fn execute(command: &BenchCommand) -> Result<()> {
    let (rows, json) = match command {
        BenchCommand::Paged(args) => (paged(args)?, &args.common.json),
        BenchCommand::Ping(args) => (ping(args)?, &args.common.json),
        BenchCommand::Growth(args) => return growth::execute(args),
        BenchCommand::Guest(args) => return guest::execute(args),
        BenchCommand::Shm(args) => (shm::measure(args)?, &args.json),
    };
    if let Some(file) = json {
        report::write_json(file, &rows)?;
    }
    report::judge(&rows)
}

fn paged(args: &PagedArgs) -> Result<Vec<Row>> {
    let programs = Programs::build(&args.common)?;
    println!("bare and engine, {} page(s) per operation: GB/s and their ratio", args.each);
    let mut rows = Vec::new();
    for pages in &PAGES {
        let [page, window, rounds, each] =
            [pages.bytes, pages.window.into(), pages.rounds.into(), args.each.into()]
                .map(|it| it.to_string());
        let common = ["--page", &page, "--window", &window, "--rounds", &rounds];
        let goal = (args.each == 1).then(|| goal_of_pages(&args.common.provider, pages.bytes));
        rows.push(programs.compare(
            &args.common,
            format!("write {} {}", args.common.provider, pages.label),
            &[&["write"], &common[..], &["--each", &each]].concat(),
            Measure::GB_PER_S,
            goal,
        )?);
    }
    Ok(rows)
}

/// Returns the goal for pages of this size. With small pages, several pages in one operation save
/// more than the engine costs.
fn goal_of_pages(provider: &str, page: u64) -> Goal {
    Goal::AtLeast(match (provider, page) {
        (SHM, _) => 1.0,
        (_, 4096) => 1.8,
        _ => 0.9,
    })
}

fn ping(args: &PingArgs) -> Result<Vec<Row>> {
    let programs = Programs::build(&args.common)?;
    println!("bare and engine, 8 bytes: µs one way and their ratio");
    let mut rows = Vec::new();
    for by in ["write", "message"] {
        rows.push(programs.compare(
            &args.common,
            format!("ping {} by {by}", args.common.provider),
            &["ping", "--by", by, "--count", PINGS],
            Measure::HALF_RTT_US,
            (args.common.provider != SHM).then_some(Goal::AtMost(1.3)),
        )?);
    }
    Ok(rows)
}

/// Both programs, and the cell in which they run.
struct Programs {
    cell: Cell,
    bare: PathBuf,
    engine: PathBuf,
}

impl Programs {
    fn build(args: &CommonArgs) -> Result<Self> {
        build_dist_example("farreach", "paged")?;
        let root = args.userland.root().get()?;
        println!("with the libraries of {}", root.origin);
        Ok(Self {
            cell: Cell::new(&root.path)?,
            bare: bare::build(args.userland)?,
            engine: paths::target().join("dist/examples/paged"),
        })
    }

    /// Runs both programs with the same work, and prints the result.
    fn compare(
        &self,
        args: &CommonArgs,
        label: String,
        words: &[&str],
        measure: Measure,
        goal: Option<Goal>,
    ) -> Result<Row> {
        let words = [words, &["--provider", &args.provider]].concat();
        let contest =
            Contest { cell: &self.cell, programs: [&self.bare, &self.engine], words: &words, measure };
        let row = Row::new(label, contest.hold(args.rounds)?, goal);
        println!("{row}");
        Ok(row)
    }
}
