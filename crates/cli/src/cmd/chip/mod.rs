//! `farreach chip`: uses memory on the peer's card: as a message, by reads and writes, and as a
//! lock that many clients contend for.

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
use crate::bounds;
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
    /// Use host memory of the server instead of on-chip memory of its card
    #[arg(long)]
    host_memory: bool,

    /// Bytes of memory; less if the card has less
    #[arg(short, long, value_name = "BYTES", default_value = "128K", value_parser = parse::size_of)]
    size: u64,

    /// Clients that contend for the lock; each is a thread with its own queue pair
    #[arg(long, value_name = "N", default_value_t = 8)]
    clients: usize,

    /// Acquisitions of the lock per client
    #[arg(long, value_name = "N", default_value_t = 1000)]
    rounds: u64,

    #[command(flatten)]
    pub(crate) client: ClientArgs,

    #[command(flatten)]
    tuning: Tuning,
}

const EXAMPLES: &str = "\
Examples:
  farreach chip storage-7                              128 KiB on the card
  farreach chip storage-7 --host-memory                128 KiB of host memory
  farreach chip storage-7 --clients 64 --rounds 10000  more contention

The server sends a message from the memory. The client reads the memory, writes
it, and reads it back. Then the clients contend for a lock in the memory by
compare-and-swap. The owner of the lock increments a counter beside it by a read
and a write. If the lock excludes, the counter ends at clients × rounds.
Exit code: 0 success; 1 the lock does not exclude; 3 no on-chip memory, or no
compare-and-swap; 4 peer lost; 5 received bytes differ from those sent.";

/// The parameters for the agent.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Task {
    host_memory: bool,
    size_bytes: usize,
    clients: usize,
    wait: Wait,
    seed: u32,
}

impl Task {
    /// Returns an error unless every number is within its bound.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        bounds::CHIP_BYTES.check(self.size_bytes)?;
        bounds::CHIP_CLIENTS.check(self.clients)
    }

    /// Returns the memory that the agent needs: the memory itself, its expected and its found bytes,
    /// and those that it is filled from.
    pub(crate) fn memory_bytes(&self) -> u64 {
        4_u64.saturating_mul(self.size_bytes as u64)
    }
}

/// The client's first message: the path to the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Way {
    /// By queue pairs of its own, on a card.
    Cards,
    /// By the engine.
    Engine,
    /// None: there is no such memory.
    None,
}

/// A request of the client to the agent.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
enum Ask {
    /// Send the beginning of the memory as a message.
    Message,
    /// Check that the client's bytes are in the memory.
    Look,
    /// Set lock and counter to zero.
    Clear,
    /// Report the counter, and end.
    End,
}

/// The request is done.
#[derive(Debug, Serialize, Deserialize)]
struct Answered;

/// The agent's last message.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct End {
    /// The counter, as its own CPU sees it.
    counter: u64,
    usage: Usage,
}

/// The part of the memory that is sent as a message.
const MESSAGE_BYTES: usize = 4096;

/// How long one step may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// The longest message: the addresses of all queue pairs.
const WORD_BYTES_MAX: usize = 16 * 1024;

/// Runs all steps, and prints the report.
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
        // For human readers: the JSON report contains the failure.
        terminal::tell_failure(failure, false);
    }
    Ok(report.exit())
}

fn check(args: &ChipArgs) -> Result<(), Failure> {
    let wrong = |what: String, cause: String| {
        Err(Failure::new(Exit::Usage, what).cause(cause).fix("choose a value in this range"))
    };
    if bounds::CHIP_BYTES.check(args.size).is_err() || !args.size.is_multiple_of(8) {
        let (min, max) = (bounds::CHIP_BYTES.min(), bounds::CHIP_BYTES.max());
        let cause = format!("the size is a multiple of 8 from {min} to {max} bytes");
        return wrong(format!("-s {} is not possible", args.size), cause);
    }
    if bounds::CHIP_CLIENTS.check(args.clients).is_err() {
        return wrong(
            format!("--clients {} is not possible", args.clients),
            format!("the number of clients is 1 to {}", bounds::CHIP_CLIENTS.max()),
        );
    }
    if args.rounds == 0 {
        return wrong(
            "--rounds 0 is not possible".to_owned(),
            "each client acquires the lock at least once".to_owned(),
        );
    }
    Ok(())
}

fn rules(args: &ChipArgs) -> session::Rules {
    session::Rules { message_bytes_max: WORD_BYTES_MAX, tuning: args.tuning, ..session::Rules::default() }
}

/// Returns the access rights of a client over a card.
fn access(card: &Card) -> AccessFlags {
    let mut access = AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE;
    access.set(AccessFlags::REMOTE_ATOMIC, card.has_atomics());
    access
}

/// Returns the requirements on the queue pairs of both sides: one for each client, with one work
/// request in flight.
fn link_rules(card: &Card, task: &Task) -> LinkRules {
    LinkRules {
        count: task.clients,
        depth: 1,
        receives: None,
        access: access(card),
        operations: SendOperations::empty(),
        queue_pair: QueuePairArgs::default(),
        wait: task.wait,
    }
}
