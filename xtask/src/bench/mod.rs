//! Benchmarks: compares the engine with programs that do the same work on bare libfabric, or with
//! another library.
//!
//! Absolute times on a machine with other load mean little; ratios of runs next to each other mean
//! more. Therefore both programs run alternately (bare, engine, engine, bare), with a priority
//! above that of other processes. A round in which other processes still used too much of a core
//! does not count.

pub(crate) mod bare;
mod contest;
mod growth;
mod guest;
mod instructions;
mod load;
mod many;
mod market;
mod plot;
mod readers;
mod report;
mod shm;
mod spread;
mod stores;
mod urgent;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::binaries::build_dist_example;
use crate::cell::Cell;
use crate::paths;
use crate::vm::Userland;
use contest::{Contest, Measure, others_max};
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
    /// Write single pages, 32 in flight, and measure the throughput.
    Single(SingleArgs),
    /// Send eight bytes there and back after a pause in which both sides fall asleep.
    Pause(PingArgs),
    /// Count the instructions of a page and of a message.
    Instructions(PingArgs),
    /// Measure an engine with a thousand peers and more: while they are idle, and writes to all.
    Many(many::ManyArgs),
    /// Compare links within a host, and engines over them, with memcpy, a bounced cache line and a
    /// bare eventfd.
    Shm(shm::ShmArgs),
    /// Read 4 KiB with the priority of urgent transfers, while gigabytes move and while nothing does, and
    /// compare the times.
    Urgent(urgent::UrgentArgs),
    /// Let many processes read published memory, compare their rate with that of copies, and revoke the
    /// memory meanwhile.
    Readers(readers::ReadersArgs),
    /// Run the block store on the engine, on NIXL and on Mooncake, and compare lines of code, rates, and
    /// what happens when a process is killed.
    Stores(stores::StoresArgs),
    /// Write scattered pages with UCX, NIXL and Mooncake, over tcp and within a host, and compare the
    /// throughput with the engine's.
    Market(market::MarketArgs),
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

    /// Also count rounds in which other processes are busy. The programs still have a priority above
    /// theirs, but share caches and the kernel with them: the figures say less.
    #[arg(long)]
    busy: bool,

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

#[derive(Debug, clap::Args)]
pub(crate) struct SingleArgs {
    #[command(flatten)]
    common: CommonArgs,
}

/// The provider for which the engine uses its own rail.
const SHM: &str = "shm";

/// The memory on either side, which the pages of a round fill.
const REGION_BYTES: u64 = 16 << 20;

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

/// Single writes: bytes, and rounds of 16 MiB.
const SINGLE: [Pages; 2] = [
    Pages { label: "4 KiB", bytes: 4 << 10, window: 32, rounds: 16 },
    Pages { label: "64 KiB", bytes: 64 << 10, window: 32, rounds: 128 },
];

/// Pauses in milliseconds, and the round trips of one run.
const PAUSES: [(&str, &str); 2] = [("5", "60"), ("100", "8")];

/// Runs a benchmark. Returns an error if a goal was missed.
pub(crate) fn execute(command: &BenchCommand) -> Result<()> {
    let (rows, json) = match command {
        BenchCommand::Paged(args) => (paged(args)?, &args.common.json),
        BenchCommand::Ping(args) => (ping(args)?, &args.common.json),
        BenchCommand::Growth(args) => return growth::execute(args),
        BenchCommand::Single(args) => (single(args)?, &args.common.json),
        BenchCommand::Pause(args) => (pause(args)?, &args.common.json),
        BenchCommand::Instructions(args) => (instructions::measure(&args.common)?, &args.common.json),
        BenchCommand::Many(args) => (many::measure(args)?, &args.common.json),
        BenchCommand::Guest(args) => return guest::execute(args),
        BenchCommand::Stores(args) => return stores::execute(args),
        BenchCommand::Shm(args) => (shm::measure(args)?, &args.json),
        BenchCommand::Urgent(args) => (urgent::measure(args)?, &args.json),
        BenchCommand::Readers(args) => (readers::measure(args)?, &args.json),
        BenchCommand::Market(args) => (market::measure(args)?, &args.json),
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
            (Measure::GB_PER_S, Some(u64::from(pages.rounds) * REGION_BYTES)),
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
            (Measure::HALF_RTT_US, None),
            (args.common.provider != SHM).then_some(Goal::AtMost(1.3)),
        )?);
    }
    Ok(rows)
}

/// Writes pages of which each is a transfer of its own, as `farreach bench --op write` does.
fn single(args: &SingleArgs) -> Result<Vec<Row>> {
    let programs = Programs::build(&args.common)?;
    println!("bare and engine, single writes: GB/s and their ratio");
    let mut rows = Vec::new();
    for pages in &SINGLE {
        let [page, window, rounds] =
            [pages.bytes, pages.window.into(), pages.rounds.into()].map(|it| it.to_string());
        rows.push(programs.compare(
            &args.common,
            format!("single {} {}", args.common.provider, pages.label),
            &["write", "--singly", "--page", &page, "--window", &window, "--rounds", &rounds],
            (Measure::GB_PER_S, Some(u64::from(pages.rounds) * REGION_BYTES)),
            Some(Goal::AtLeast(0.9)),
        )?);
    }
    Ok(rows)
}

/// Sends eight bytes after a pause, to a process that sleeps, beside an echo over plain TCP in C that
/// sleeps in epoll.
fn pause(args: &PingArgs) -> Result<Vec<Row>> {
    let programs = Programs::build(&args.common)?;
    println!("epoll echo in C and engine, 8 bytes after a pause: µs there and back and their ratio");
    let mut rows = Vec::new();
    for by in ["message", "write"] {
        for (pause_ms, count) in PAUSES {
            rows.push(programs.compare(
                &args.common,
                format!("{by} after {pause_ms} ms"),
                &["echo", "--by", by, "--pause", pause_ms, "--count", count],
                (Measure::RTT_US, None),
                Some(Goal::AtMost(1.5)),
            )?);
        }
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

    /// Runs both programs with the same work, and prints the result. If they move bytes, each must
    /// report the same number of them.
    fn compare(
        &self,
        args: &CommonArgs,
        label: String,
        words: &[&str],
        (measure, bytes): (Measure, Option<u64>),
        goal: Option<Goal>,
    ) -> Result<Row> {
        let (bare, engine) = (text(&self.bare)?, text(&self.engine)?);
        let [bare, engine] =
            [&bare[..], &engine].map(|program| [&[program], words, &["--provider", &args.provider]].concat());
        let commands = [&bare[..], &engine];
        let contest =
            Contest { cell: &self.cell, commands, measure, bytes, others_max: others_max(args.busy) };
        let row = Row::new(label, contest.hold(args.rounds)?, goal);
        println!("{row}");
        Ok(row)
    }
}

/// Returns a path as a word of a command.
fn text(path: &Path) -> Result<String> {
    path.to_str().map(ToOwned::to_owned).with_context(|| format!("{} is not valid UTF-8", path.display()))
}
