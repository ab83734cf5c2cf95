//! `farreach blast`: writes, reads or sends without a pause, and measures the rate.

mod agent;
mod client;
mod lane;
mod report;

use std::time::Duration;

use anyhow::Result;
use clap::{ValueEnum, value_parser};
use farreach::GrantToken;
use serde::{Deserialize, Serialize};

use crate::args::ClientArgs;
use crate::bounds;
use crate::exit::{Exit, Failure};
use crate::measure::Usage;
use crate::rails::Tuning;
use crate::session::Rules;
use crate::units::{self, parse};
use crate::{session, terminal};

pub(crate) use agent::serve;

/// `farreach blast`
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BlastArgs {
    /// Operation: write, read or send
    #[arg(long, value_name = "OP", default_value = "write", hide_possible_values = true)]
    op: Operation,

    /// Message size in bytes
    #[arg(short, long, value_name = "BYTES", default_value = "1M", value_parser = parse::size_of)]
    size: u64,

    /// Duration
    #[arg(short = 'D', long, value_name = "SECONDS", default_value = "10", value_parser = parse::seconds_of)]
    seconds: Duration,

    /// Messages in each direction, instead of -D
    #[arg(short = 'n', long, value_name = "N", value_parser = value_parser!(u64).range(1..), conflicts_with = "seconds")]
    count: Option<u64>,

    /// Messages in flight
    #[arg(long, value_name = "N", default_value_t = 16)]
    depth: usize,

    /// Both sides at once
    #[arg(short, long, conflicts_with = "reverse")]
    bidirectional: bool,

    /// The server writes, reads or sends, instead of the client
    #[arg(short, long)]
    reverse: bool,

    /// Time between progress lines (default: 1). With --json, each is a line of JSON on stdout, and the report
    /// is the last line
    #[arg(short, long, value_name = "SECONDS", value_parser = parse::seconds_of)]
    interval: Option<Duration>,

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
  farreach blast storage-7                   1 MiB writes for 10 seconds
  farreach blast storage-7 -b -s 64K         both directions at once
  farreach blast storage-7 -r -D 60          from the server, for 60 seconds
  farreach blast storage-7 -s 8 --depth 128  the rate of small messages
  farreach blast storage-7 --op read         reads of the server's memory
  farreach blast storage-7 --json -i 1       a line of JSON per second

A message counts when its bytes have arrived.
Exit code: 0 success; 4 peer lost (the results so far are printed); 5 the
contents are wrong at the end.";

/// The operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(crate) enum Operation {
    /// Writes to the other side's memory
    Write,
    /// Reads of the other side's memory
    Read,
    /// Messages
    Send,
}

/// The direction of the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(crate) enum Direction {
    ToServer,
    FromServer,
    BothWays,
}

/// The parameters for the agent.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Task {
    operation: Operation,
    direction: Direction,
    message_bytes: u64,
    depth: usize,
    count: Option<u64>,
    seed: u32,
    alter_byte: bool,
}

impl Task {
    /// Returns an error unless every number is within its bound.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        bounds::TRANSFER_BYTES.check(self.message_bytes)?;
        bounds::DEPTH.check(self.depth)
    }

    /// Returns the memory that the agent needs: a place for each operation in flight as target and
    /// as initiator, and the expected and the found bytes of a message.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let messages = (self.depth as u64).saturating_mul(2).saturating_add(4);
        self.message_bytes.saturating_mul(messages)
    }

    fn client_initiates(&self) -> bool {
        self.initiates(Direction::ToServer, Direction::FromServer)
    }

    fn server_initiates(&self) -> bool {
        self.initiates(Direction::FromServer, Direction::ToServer)
    }

    /// Returns whether the side initiates from which bytes go `away`, and to which they come
    /// `back`.
    fn initiates(&self, away: Direction, back: Direction) -> bool {
        let own = if self.operation == Operation::Read { back } else { away };
        self.direction == own || self.direction == Direction::BothWays
    }

    /// Returns whether the target receives each message. Memory needs nobody.
    fn is_received(&self) -> bool {
        self.operation == Operation::Send
    }

    /// Returns how long everything in flight may take.
    fn patience(&self) -> Duration {
        session::patience(self.message_bytes.saturating_mul(self.depth as u64))
    }

    /// Returns how long the other side may take for a message that follows all of that: the
    /// preparation of its memory, or everything in flight.
    fn reply_patience(&self) -> Duration {
        session::SOON + self.patience()
    }
}

/// The memory that the other side may write to or read, if it does.
#[derive(Debug, Serialize, Deserialize)]
struct Ends {
    memory: Option<GrantToken>,
}

/// A message of a client to its agent.
#[derive(Debug, Serialize, Deserialize)]
enum Order {
    Start,
    Stop,
}

/// A message of an agent to its client, several times a second and at the end.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct State {
    /// Operations of the agent that are complete.
    messages: u64,
    /// Set in the last message.
    end: Option<End>,
}

/// The agent's figures at the end.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct End {
    usage: Usage,
    /// The time from the agent's first operation to the completion of its last one. It may end
    /// before or after the client's.
    active_ns: u64,
}

/// The maximum number of messages that are received between two operations. Both sides receive as
/// they send: if each waited for the other to receive, and neither did, both would wait for ever.
const RECEIVED_MAX: usize = 2 * bounds::MESSAGES.max() as usize;

/// The interval at which a side that posts operations receives, unless each operation is a message.
const RECEIVE_EVERY: Duration = Duration::from_millis(10);

/// The maximum depth of `--op send`. Everything in flight, and a report behind it, fits into the
/// slots of the other side, so that a side that waits for its report does not wait for the other
/// one to receive.
const SEND_DEPTH_MAX: usize = bounds::MESSAGES.max() as usize / 2;

/// The interval of progress messages.
const REPORT_EVERY: Duration = Duration::from_millis(200);

/// The limit of what each side allocates for incoming data.
const MEMORY_MAX: u64 = 1 << 32;

/// Measures and prints.
pub(crate) fn run(args: &BlastArgs) -> Result<Exit> {
    check(args)?;
    let (report, failure) = client::run(args)?;
    let exit = match &failure {
        Some(failure) => failure.exit,
        None if report.head.is_interrupted => Exit::Interrupted,
        None => Exit::Ok,
    };
    let text = if args.client.json && args.interval.is_some() {
        // One JSON document on each line.
        serde_json::to_string(&report)? + "\n"
    } else if args.client.json {
        serde_json::to_string_pretty(&report)? + "\n"
    } else {
        report::text(&report, terminal::width())
    };
    terminal::print(&text)?;
    if let Some(failure) = &failure {
        // For human readers: the JSON report contains the failure.
        terminal::tell_failure(failure, false);
    }
    Ok(exit)
}

fn check(args: &BlastArgs) -> Result<(), Failure> {
    let wrong = |what: String, cause: String| {
        Err(Failure::new(Exit::Usage, format!("{what} is not possible"))
            .cause(cause)
            .fix("see the help:\nfarreach blast --help"))
    };
    if args.size == 0 {
        return wrong("-s 0".to_owned(), "a message has at least one byte".to_owned());
    }
    let depth_max = bounds::DEPTH.max();
    if !(1..=depth_max).contains(&(args.depth as u64)) {
        return wrong(
            format!("--depth {}", args.depth),
            format!("1 to {depth_max} messages can be in flight"),
        );
    }
    if args.op == Operation::Send && args.depth > SEND_DEPTH_MAX {
        let cause = format!("1 to {SEND_DEPTH_MAX} messages of --op send can be in flight");
        return wrong(format!("--depth {}", args.depth), cause);
    }
    if args.op == Operation::Send && args.size > bounds::MESSAGE_BYTES.max() {
        let cause = format!("a message has at most {} here", units::size(bounds::MESSAGE_BYTES.max()));
        return wrong(format!("--op send -s {}", units::size(args.size)), cause);
    }
    let memory = args.size.saturating_mul(args.depth as u64);
    if memory > MEMORY_MAX {
        let cause = format!(
            "that needs {} of memory; the limit is {}",
            units::amount(memory),
            units::amount(MEMORY_MAX)
        );
        return wrong(format!("--depth {} with -s {}", args.depth, units::size(args.size)), cause);
    }
    Ok(())
}

fn direction(args: &BlastArgs) -> Direction {
    let is_read = args.op == Operation::Read;
    match (args.bidirectional, args.reverse) {
        (true, _) => Direction::BothWays,
        // The bytes of a read go to its initiator.
        (_, is_reverse) if is_reverse != is_read => Direction::FromServer,
        _ => Direction::ToServer,
    }
}

/// Returns the configuration of the session. For messages, each side has twice as many slots as
/// messages in flight, within the usual number.
fn rules(args: &BlastArgs) -> Rules {
    let depth = args.depth.max(16);
    let time = if args.count.is_none() { args.seconds } else { Duration::ZERO };
    let rules = Rules { depth, time, tuning: args.tuning, ..Rules::default() };
    match args.op {
        Operation::Send => {
            Rules { messages: slots(args.depth), message_bytes_max: (args.size as usize).max(4096), ..rules }
        }
        Operation::Write | Operation::Read => rules,
    }
}

fn slots(depth: usize) -> u32 {
    (2 * depth).clamp(16, bounds::MESSAGES.max() as usize) as u32
}
