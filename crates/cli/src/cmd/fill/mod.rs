//! `farreach fill`: the server writes pages of random bytes to scattered places in this process's
//! memory; every byte is checked.

mod agent;
mod client;
mod pages;
mod report;

use std::time::Duration;

use anyhow::Result;
use farreach::{CounterToken, GrantToken};
use serde::{Deserialize, Serialize};

use crate::args::ClientArgs;
use crate::bounds;
use crate::exit::{Exit, Failure};
use crate::measure::{self, Usage};
use crate::rails::Tuning;
use crate::terminal;
use crate::units::{self, parse};

pub(crate) use agent::serve;

/// `farreach fill`
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct FillArgs {
    /// Page size in bytes
    #[arg(long, short = 's', value_name = "BYTES", default_value = "64K", value_parser = parse::size_of)]
    page_size: u64,

    /// Pages in each region
    #[arg(long, short = 'n', value_name = "N", default_value_t = 1024)]
    pages: u32,

    /// Memory regions to fill
    #[arg(long, value_name = "N", default_value_t = 2)]
    regions: u32,

    /// Seed of contents and places, to repeat a run
    #[arg(long, value_name = "N")]
    seed: Option<u32>,

    /// For tests: the server alters one byte
    #[arg(long, hide = true)]
    alter_byte: bool,

    #[command(flatten)]
    pub(crate) client: ClientArgs,

    #[command(flatten)]
    tuning: Tuning,
}

const EXAMPLES: &str = "\
Examples:
  farreach fill storage-7                  128 MiB in pages of 64 KiB
  farreach fill storage-7 -s 4K -n 100000  many small pages
  farreach fill storage-7 -n 16 -v         show the place of each page
  farreach fill storage-7 --seed 7         the same contents and places again

The server writes the pages to random places of each region. A region has a
quarter more places than pages, and the gaps must stay unchanged. The last write
of each batch has immediate data, which raises the counter of the client.
Exit code: 0 success; 4 peer lost; 5 received bytes differ from those sent.";

/// The parameters for the agent. Both sides derive from them which byte goes where.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Task {
    page_bytes: u64,
    pages: u32,
    regions: u32,
    seed: u32,
    alter_byte: bool,
}

impl Task {
    /// Returns an error unless every number is within its bound.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        bounds::TRANSFER_BYTES.check(self.page_bytes)?;
        bounds::PAGES.check(self.pages)?;
        bounds::REGIONS.check(self.regions)
    }

    /// Returns the memory that the agent needs: all pages, and the places and page maps of each.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.bytes().saturating_add(self.pages_total().saturating_mul(PAGE_TABLE_BYTES))
    }

    fn pages_total(&self) -> u64 {
        u64::from(self.pages) * u64::from(self.regions)
    }

    fn bytes(&self) -> u64 {
        self.page_bytes.saturating_mul(self.pages_total())
    }

    /// Returns how long a side may take to allocate, fill and register its memory.
    fn making_patience(&self) -> Duration {
        let (bytes, pages) =
            (self.bytes() / MAKING_BYTES_PER_SECOND, self.pages_total() / MAKING_PAGES_PER_SECOND);
        Duration::from_secs(60 + bytes + pages)
    }

    /// Returns the pages per transfer. The client's counter counts each page.
    fn batch_pages(&self) -> u64 {
        (BATCH_BYTES / self.page_bytes).clamp(1, BATCH_PAGES)
    }

    /// Returns the bytes that may be in flight.
    fn batch_bytes(&self) -> u64 {
        self.page_bytes.saturating_mul(self.batch_pages() * BATCHES as u64)
    }
}

/// The limits of one transfer. An idle receiver without an event to sleep on polls rarely, so
/// transfers are short enough to notify it every few hundred pages.
const BATCH_BYTES: u64 = 8 << 20;
const BATCH_PAGES: u64 = 256;

/// Transfers in flight: while one ends, the next one runs.
const BATCHES: usize = 4;

/// The memory that the agent may write to, and the counter that it notifies.
#[derive(Debug, Serialize, Deserialize)]
struct Ends {
    regions: Vec<GrantToken>,
    counter: CounterToken,
}

/// The agent has generated its pages.
#[derive(Debug, Serialize, Deserialize)]
struct Ready;

/// Starts the transfers.
#[derive(Debug, Serialize, Deserialize)]
struct Go;

/// The agent's results.
#[derive(Debug, Serialize, Deserialize)]
struct Summary {
    rails: Vec<Share>,
    usage: Usage,
}

/// The share of one of the server's rails.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Share {
    #[serde(deserialize_with = "farreach_text::line")]
    rail: String,
    operations: u64,
    bytes: u64,
    immediates: u64,
}

/// The bytes of tables for each page: its place among a quarter more, its number, and both again in
/// the page map of its transfer.
const PAGE_TABLE_BYTES: u64 = 24;

/// The lowest rate at which a side prepares its memory. Random bytes come at about 200 MB/s, and at
/// a fraction of that on a busy host.
const MAKING_BYTES_PER_SECOND: u64 = 32 << 20;

/// The lowest rate for pages, each of which has a generator of its own, measured on a busy emulated
/// CPU.
const MAKING_PAGES_PER_SECOND: u64 = 5_000;

/// The limit of what both sides allocate.
const BYTES_MAX: u64 = 1 << 40;

/// Has this process's memory filled, checks it, and prints the result.
pub(crate) fn run(args: &FillArgs) -> Result<Exit> {
    let task = task(args)?;
    let report = client::run(args, &task)?;
    let exit = if report.head.is_interrupted { Exit::Interrupted } else { Exit::Ok };
    let text = if args.client.json {
        serde_json::to_string_pretty(&report)? + "\n"
    } else {
        report::text(&report, &task, args.client.verbose, terminal::width())
    };
    terminal::print(&text)?;
    Ok(exit)
}

fn task(args: &FillArgs) -> Result<Task, Failure> {
    let seed = args.seed.unwrap_or_else(measure::any_seed);
    let task = Task {
        page_bytes: args.page_size,
        pages: args.pages,
        regions: args.regions,
        seed,
        alter_byte: args.alter_byte,
    };
    let wrong = |what: &str, cause: &str| {
        Err(Failure::new(Exit::Usage, format!("{what} is not possible"))
            .cause(cause)
            .fix("see the help:\nfarreach fill --help"))
    };
    match task {
        Task { page_bytes: 0, .. } => wrong("--page-size 0", "a page has at least one byte"),
        Task { pages: 0, .. } => wrong("--pages 0", "a region has at least one page"),
        Task { regions: 0 | 65.., .. } => {
            wrong(&format!("--regions {}", args.regions), "the number of regions is 1 to 64")
        }
        Task { pages, .. } if u64::from(pages) > bounds::PAGES.max() => {
            wrong(&format!("--pages {pages}"), &format!("a region has at most {} pages", bounds::PAGES.max()))
        }
        task if task.bytes() > BYTES_MAX => {
            let (bytes, limit) = (units::amount(task.bytes()), units::amount(BYTES_MAX));
            wrong(&format!("a test with {bytes}"), &format!("the limit is {limit}"))
        }
        task => Ok(task),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_more_memory_is_asked_for_the_longer_it_may_take() {
        let task = |pages| Task { page_bytes: 1 << 20, pages, regions: 2, seed: 7, alter_byte: false };
        // At 200 MB/s, and half of that if two processes share a host.
        for pages in [1, 1024, 100_000] {
            let needed = Duration::from_secs(task(pages).bytes() / 100_000_000);
            assert!(task(pages).making_patience() > 2 * needed, "{pages} pages");
        }
        assert!(task(1).making_patience() < Duration::from_secs(120), "who has few is not waited for long");
    }
}
