//! `farreach ping`: measures round trips, one at a time, and checks every byte.

mod agent;
mod client;
mod laps;
mod report;

use std::time::Duration;

use anyhow::Result;
use clap::{ValueEnum, value_parser};
use farreach::{CounterToken, GrantToken};
use serde::{Deserialize, Serialize};

use crate::args::ClientArgs;
use crate::bounds;
use crate::exit::{Exit, Failure};
use crate::rails::Tuning;
use crate::units::sweep::Sizes;
use crate::units::{self, parse};
use crate::{session, terminal};

pub(crate) use agent::serve;

/// `farreach ping`
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PingArgs {
    /// Operation: write (a write in each direction), send (a message in each direction) or read
    #[arg(long, value_name = "OP", default_value = "write", hide_possible_values = true)]
    op: Operation,

    /// Message sizes in bytes: one (64), a list (8,4K,1M) or a range that doubles (8..64K)
    #[arg(short, long = "size", alias = "sizes", value_name = "SIZES", default_value = "64")]
    sizes: Sizes,

    /// Round trips per size
    #[arg(short = 'n', long, value_name = "N", default_value = "10000", value_parser = value_parser!(u64).range(1..), conflicts_with = "seconds")]
    count: u64,

    /// Duration per size, instead of -n
    #[arg(short = 'D', long, value_name = "SECONDS", value_parser = parse::seconds_of)]
    seconds: Option<Duration>,

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
  farreach ping storage-7                  10,000 write round trips of 64 B
  farreach ping storage-7 -s 8,4K,64K      three sizes
  farreach ping storage-7 --wait busy      both sides poll without sleeping
  farreach ping storage-7 -D 10 --op read  reads, for 10 seconds

RTT is the time from the post to the arrival of the answer. For a read, the
answer is the data.
Exit code: 0 success; 4 peer lost; 5 received bytes differ from those sent.";

/// The operation of a round trip.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(crate) enum Operation {
    /// A message in each direction
    Send,
    /// A write with immediate data in each direction
    Write,
    /// A read of the peer's memory
    Read,
}

/// The parameters for the agent.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Task {
    operation: Operation,
    sizes: Vec<usize>,
    seed: u32,
    alter_byte: bool,
}

impl Task {
    /// Returns an error unless every number is within its bound.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        bounds::SIZES.check(self.sizes.len())?;
        self.sizes.iter().try_for_each(|size| bounds::SIZE_BYTES.check(*size))
    }

    /// Returns the memory that the agent needs: for one size at a time two places, the source, the
    /// expected and the received bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let longest = self.sizes.iter().copied().max().unwrap_or(0);
        5_u64.saturating_mul(longest as u64)
    }
}

/// The memory and counter that one side grants to the other for one size.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Ends {
    memory: GrantToken,
    counter: CounterToken,
}

/// The warm-up of this size is done. Reads count when the agent has confirmed this.
#[derive(Debug, Serialize, Deserialize)]
struct Begin;

/// The client is done with this size.
#[derive(Debug, Serialize, Deserialize)]
struct Enough {
    /// Round trips that did not count.
    warm_up: u64,
}

/// The maximum number of warm-up round trips, and their maximum time, which limits long messages.
/// They fill caches, establish connections and touch pages.
const WARM_UP: u64 = 100;
const WARM_UP_TIME: Duration = Duration::from_millis(200);

/// Measures and prints.
pub(crate) fn run(args: &PingArgs) -> Result<Exit> {
    check(args)?;
    let (report, histograms) = client::run(args)?;
    let exit = if report.head.is_interrupted { Exit::Interrupted } else { Exit::Ok };
    let text = if args.client.json {
        serde_json::to_string_pretty(&report)? + "\n"
    } else {
        report::text(&report, &histograms, terminal::width())
    };
    terminal::print(&text)?;
    Ok(exit)
}

fn check(args: &PingArgs) -> Result<(), Failure> {
    let (max, fix) = match args.op {
        Operation::Send => (bounds::MESSAGE_BYTES.max(), "use --op write or --op read for larger messages"),
        Operation::Write | Operation::Read => {
            (bounds::SIZE_BYTES.max(), "measure larger messages with `farreach blast`")
        }
    };
    let wrong = args.sizes.bytes().iter().find(|size| !(1..=max).contains(*size));
    match wrong {
        Some(size) => Err(Failure::new(Exit::Usage, format!("-s {} is not possible", units::size(*size)))
            .cause(format!("a message has at most {} with this operation", units::size(max)))
            .fix(fix)),
        None => Ok(()),
    }
}

fn rules(args: &PingArgs) -> session::Rules {
    let longest = args.sizes.bytes().iter().copied().max().unwrap_or(0) as usize;
    let message_bytes_max = if args.op == Operation::Send { longest.max(4096) } else { 4096 };
    let sizes = args.sizes.bytes().len() as u32;
    let time = args.seconds.unwrap_or_default().saturating_mul(sizes);
    session::Rules { message_bytes_max, time, tuning: args.tuning, ..session::Rules::default() }
}
