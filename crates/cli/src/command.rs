//! The command and its subcommands, as they are typed.

use clap::{Parser, Subcommand};

use crate::agent::AgentArgs;
use crate::cmd::bench::BenchArgs;
use crate::cmd::blast::BlastArgs;
use crate::cmd::chip::ChipArgs;
use crate::cmd::completions::CompletionsArgs;
use crate::cmd::devices::DevicesArgs;
use crate::cmd::doctor::{DoctorArgs, ExamineArgs};
use crate::cmd::fill::FillArgs;
use crate::cmd::man::ManArgs;
use crate::cmd::ping::PingArgs;
use crate::cmd::serve::ServeArgs;
use crate::rails::RailArgs;

/// Does RDMA work here, and how fast?
#[derive(Debug, Parser)]
#[command(name = "farreach", version, max_term_width = 100, after_help = MORE)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const MORE: &str = "\
One machine reads and writes another machine's memory: over InfiniBand, RoCE,
iWARP or AWS EFA; over tcp where there is no RDMA card.
Start `farreach serve` on one host, and a test on the same or another one, which
names the first: `farreach ping storage-7`.

Exit codes:
  0  all went well               4  peer lost, or no connection
  1  a test or check failed      5  bytes came that were not sent
  2  wrong usage               130  interrupted (what was measured is told)
  3  no device, or it lacks what was asked for";

/// The subcommands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List RDMA devices and libfabric providers, or say what is missing
    Devices(DevicesArgs),
    /// Say what is wrong with this host, or this pair, and what to do
    Doctor(DoctorArgs),
    /// Be the other side of every test, for many clients at once
    Serve(ServeArgs),
    /// Time the way there and back: percentiles and a histogram
    Ping(PingArgs),
    /// Write without a pause, and show the rate
    Blast(BlastArgs),
    /// Let the server fill memory here with random pages, and check
    Fill(FillArgs),
    /// Try on-chip memory: message, read, write, and a lock
    Chip(ChipArgs),
    /// Measure operations × sizes × depths × queues × rails
    Bench(BenchArgs),
    /// Print a script for completion in bash, zsh or fish
    Completions(CompletionsArgs),
    /// Print a manual page, or write all of them into a folder
    Man(ManArgs),
    /// Serve one client, whose connection is the standard input
    #[command(hide = true)]
    Agent(AgentArgs),
    /// Print the rails that this host has
    #[command(hide = true)]
    Scout(RailArgs),
    /// Ask a library, or move bytes by it, for the doctor
    #[command(hide = true)]
    Examine(ExamineArgs),
}

impl Command {
    /// Returns whether the output is JSON.
    pub(crate) fn wants_json(&self) -> bool {
        match self {
            Self::Devices(args) => args.json,
            Self::Doctor(args) => args.json,
            Self::Bench(args) => args.client.json,
            Self::Blast(args) => args.client.json,
            Self::Fill(args) => args.client.json,
            Self::Ping(args) => args.client.json,
            Self::Chip(args) => args.client.json,
            Self::Serve(_)
            | Self::Agent(_)
            | Self::Scout(_)
            | Self::Examine(_)
            | Self::Completions(_)
            | Self::Man(_) => false,
        }
    }
}
