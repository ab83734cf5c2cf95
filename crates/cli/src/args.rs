//! What was typed.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Parser, Subcommand};

use crate::agent::AgentArgs;
use crate::cmd::bench::BenchArgs;
use crate::cmd::blast::BlastArgs;
use crate::cmd::chip::ChipArgs;
use crate::cmd::completions::{CompletionsArgs, ManArgs};
use crate::cmd::devices::DevicesArgs;
use crate::cmd::fill::FillArgs;
use crate::cmd::ping::PingArgs;
use crate::cmd::serve::ServeArgs;
use crate::rails::RailArgs;
use crate::session::{PeerAddress, Wait};

/// Does RDMA work here, and how fast?
///
/// Farreach reads and writes another machine's memory over InfiniBand, RoCE, iWARP, AWS EFA, and over tcp and shared
/// memory where there is no RDMA card.
#[derive(Debug, Parser)]
#[command(name = "farreach", version, max_term_width = 100, after_help = EXIT_CODES)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXIT_CODES: &str = "\
Exit codes:
  0  all went well               4  peer lost, or no connection
  1  a test or check failed      5  bytes came that were not sent
  2  wrong usage               130  interrupted (what was measured is told)
  3  no device, or it lacks what was asked for";

/// The subcommands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List verbs devices and libfabric providers, or say what is missing
    Devices(DevicesArgs),
    /// Be the other side of all the tests below, for many clients at once
    Serve(ServeArgs),
    /// Measure the way there and back: percentiles and a histogram
    Ping(PingArgs),
    /// Write without a pause, and tell the rate
    Blast(BlastArgs),
    /// Have this process's memory filled with random pages, scattered, and check every byte
    Fill(FillArgs),
    /// Try memory on the peer's card: message, read, write, and a lock by compare-and-swap
    Chip(ChipArgs),
    /// Measure operations by size, depth, queues and rails; compare, and pass or fail
    Bench(BenchArgs),
    /// Print a script that lets a shell complete commands, flags and device names
    Completions(CompletionsArgs),
    /// Print the manual
    Man(ManArgs),
    /// Serve one client, whose connection is the standard input
    #[command(hide = true)]
    Agent(AgentArgs),
}

impl Command {
    /// Whether the reader is a program.
    pub(crate) fn wants_json(&self) -> bool {
        match self {
            Self::Devices(args) => args.json,
            Self::Bench(args) => args.client.json,
            Self::Blast(args) => args.client.json,
            Self::Fill(args) => args.client.json,
            Self::Ping(args) => args.client.json,
            Self::Chip(args) => args.client.json,
            Self::Serve(_) | Self::Agent(_) | Self::Completions(_) | Self::Man(_) => false,
        }
    }
}

/// What all tests have in common.
#[derive(Debug, Clone, ClapArgs)]
#[command(next_help_heading = "For all tests")]
pub(crate) struct ClientArgs {
    /// Where `farreach serve` runs: host, host:port or [v6]:port
    #[arg(value_name = "PEER")]
    pub(crate) peer: PeerAddress,

    /// The port, where PEER has none
    #[arg(short, long, value_name = "PORT", default_value_t = PeerAddress::DEFAULT_PORT)]
    pub(crate) port: u16,

    #[command(flatten)]
    pub(crate) rails: RailArgs,

    /// How both sides wait: spin for the shortest latency, sleep for the least CPU, or first one, then the other
    #[arg(long, value_name = "HOW", default_value = "adaptive")]
    pub(crate) wait: Wait,

    /// Speak TLS with the server; the folder has cert.pem, key.pem and ca.pem. The data itself is not encrypted
    #[arg(long, value_name = "FOLDER")]
    pub(crate) tls: Option<PathBuf>,

    /// The name that the server's certificate has, if not the host of PEER
    #[arg(long, value_name = "NAME", requires = "tls")]
    pub(crate) tls_name: Option<String>,

    /// The result as JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// Why these rails, and what happened on the way
    #[arg(short, long)]
    pub(crate) verbose: bool,
}
