//! `farreach chip`: memory on the peer's card, as a message, by reads and writes, and as a lock that many clients contend for.

mod agent;
mod client;
mod lock;
mod reach;
mod report;

use std::time::Duration;

use anyhow::Result;
use farreach_verbs::mr::AccessFlags;
use farreach_verbs::qp::SendOperations;
use serde::{Deserialize, Serialize};

use crate::args::ClientArgs;
use crate::exit::{Exit, Failure};
use crate::measure::Usage;
use crate::native::{Card, LinkRules, QueuePairArgs};
use crate::rails::Tuning;
use crate::session::{self, Wait};
use crate::terminal;
use crate::units::parse;

pub(crate) use agent::serve;

/// `farreach chip`
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ChipArgs {
    /// Take memory of the server's host, instead of its card's
    #[arg(long)]
    host_memory: bool,

    /// Bytes of memory, or what the card has
    #[arg(short, long, value_name = "BYTES", default_value = "128K", value_parser = parse::size_of)]
    size: u64,

    /// Clients that contend for the lock, each a thread with a queue pair
    #[arg(long, value_name = "N", default_value_t = 8)]
    clients: usize,

    /// How often each client takes the lock
    #[arg(long, value_name = "N", default_value_t = 1000)]
    rounds: u64,

    #[command(flatten)]
    pub(crate) client: ClientArgs,

    #[command(flatten)]
    tuning: Tuning,
}

const EXAMPLES: &str = "\
Examples:
  farreach chip storage-7                              128 KiB on its card
  farreach chip storage-7 --host-memory                in memory of its host
  farreach chip storage-7 --clients 64 --rounds 10000  more contention

The server sends a message that lies in the memory; the client reads it, writes
it, and reads it back. Then clients take a lock in it by compare-and-swap; who
holds it raises a counter beside it by a plain read and write. If the lock
excludes, the counter is clients × rounds at the end.
Exit code: 0 if all is right, 1 if the lock does not exclude, 3 if there is no
on-chip memory (or no compare-and-swap), 4 peer lost, 5 a byte was wrong.";

/// What the agent is told.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Task {
    host_memory: bool,
    size_bytes: usize,
    clients: usize,
    wait: Wait,
    seed: u32,
}

/// By what the client reaches the memory: its first word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Way {
    /// By queue pairs of its own, on a card.
    Cards,
    /// As the engine does.
    Engine,
    /// Not at all: there is no such memory.
    None,
}

/// What the client asks of the agent, one after the other.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
enum Ask {
    /// Send the beginning of the memory as a message.
    Message,
    /// See whether the client's bytes are in the memory.
    Look,
    /// Make lock and counter zero.
    Clear,
    /// Tell what the counter is, and end.
    End,
}

/// It is done.
#[derive(Debug, Serialize, Deserialize)]
struct Answered;

/// The agent's last word.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct End {
    /// As its own processor sees it.
    counter: u64,
    usage: Usage,
}

/// The part of the memory that is sent as a message.
const MESSAGE_BYTES: usize = 4096;

/// A lock, a counter, and something around them.
const SIZE_MIN: usize = MESSAGE_BYTES;
const SIZE_MAX: usize = 1 << 30;

/// As many queue pairs as fit into one word, and threads that a host can bear.
const CLIENTS_MAX: usize = 128;

/// How long one step may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// The longest word: the addresses of all queue pairs.
const WORD_BYTES_MAX: usize = 16 * 1024;

/// Does all steps, and prints.
pub(crate) fn run(args: &ChipArgs) -> Result<Exit> {
    check(args)?;
    let report = client::run(args)?;
    let text = if args.client.json {
        serde_json::to_string_pretty(&report)? + "\n"
    } else {
        report::text(&report, terminal::width())
    };
    terminal::print(&text)?;
    if let Some(failure) = &report.failure {
        // For people: the report has it, for programs.
        terminal::tell_failure(failure, false);
    }
    Ok(report.exit())
}

fn check(args: &ChipArgs) -> Result<(), Failure> {
    let wrong = |what: String, cause: String| {
        Err(Failure::new(Exit::Usage, what).cause(cause).fix("give another number"))
    };
    if !(SIZE_MIN..=SIZE_MAX).contains(&(args.size as usize)) || !args.size.is_multiple_of(8) {
        let cause = format!("it is a multiple of 8 from {SIZE_MIN} to {SIZE_MAX}");
        return wrong(format!("-s {} cannot be", args.size), cause);
    }
    if !(1..=CLIENTS_MAX).contains(&args.clients) {
        return wrong(
            format!("--clients {} cannot be", args.clients),
            format!("there are 1 to {CLIENTS_MAX}"),
        );
    }
    if args.rounds == 0 {
        return wrong("--rounds 0 cannot be".to_owned(), "a lock that nobody takes shows nothing".to_owned());
    }
    Ok(())
}

fn rules(args: &ChipArgs) -> session::Rules {
    session::Rules { message_bytes_max: WORD_BYTES_MAX, tuning: args.tuning, ..session::Rules::default() }
}

/// What a client may do over a card.
fn access(card: &Card) -> AccessFlags {
    let mut access = AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE;
    access.set(AccessFlags::REMOTE_ATOMIC, card.has_atomics());
    access
}

/// The queue pairs of both sides: one for each client, which does one thing after the other.
fn link_rules(card: &Card, task: &Task) -> LinkRules {
    LinkRules {
        count: task.clients,
        depth: 1,
        access: access(card),
        operations: SendOperations::empty(),
        queue_pair: QueuePairArgs::default(),
        wait: task.wait,
    }
}
