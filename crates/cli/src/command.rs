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
use crate::cmd::secret::SecretArgs;
use crate::cmd::serve::ServeArgs;
use crate::cmd::tls::TlsArgs;
use crate::rails::RailArgs;

/// Test, measure and diagnose RDMA
#[derive(Debug, Parser)]
#[command(name = "farreach", version, max_term_width = 100, after_help = MORE)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const MORE: &str = "\
With RDMA, one host reads and writes the memory of another: over InfiniBand,
RoCE, iWARP or AWS EFA. Without an RDMA card, the tests use tcp.

Examples:
  farreach secret new farreach.secret   make a secret, and copy it to both hosts
  farreach serve --secret-file farreach.secret             on one host,
  farreach ping storage-7 --secret-file farreach.secret    and on the other

Exit codes:
  0  success                     4  peer lost, or no connection
  1  a test or check failed      5  received bytes differ from the bytes sent
  2  usage error               130  interrupted; results so far are printed
  3  no device, or it lacks the requested feature";

/// The subcommands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List RDMA devices and libfabric providers, and what is missing
    Devices(DevicesArgs),
    /// Diagnose this host, or this host and a peer, and name the fixes
    Doctor(DoctorArgs),
    /// Run the server of all tests, for many clients at once
    Serve(ServeArgs),
    /// Make a secret for TLS, which both sides share
    Secret(SecretArgs),
    /// Make certificates for TLS: a CA, and one for each host
    Tls(TlsArgs),
    /// Measure round-trip latency: percentiles and a histogram
    Ping(PingArgs),
    /// Measure the throughput of writes, reads or messages
    Blast(BlastArgs),
    /// Have the server write random pages to this host, and verify them
    Fill(FillArgs),
    /// Test on-chip memory: message, read, write, and a lock
    Chip(ChipArgs),
    /// Measure operations × sizes × depths × queues × rails
    Bench(BenchArgs),
    /// Print a completion script for bash, zsh or fish
    Completions(CompletionsArgs),
    /// Print a manual page, or write all of them to a folder
    Man(ManArgs),
    /// Serve one client, whose connection is standard input
    #[command(hide = true)]
    Agent(AgentArgs),
    /// Print the rails of this host
    #[command(hide = true)]
    Scout(RailArgs),
    /// Query a library, or transfer bytes with it, for the doctor
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
            | Self::Secret(_)
            | Self::Tls(_)
            | Self::Agent(_)
            | Self::Scout(_)
            | Self::Examine(_)
            | Self::Completions(_)
            | Self::Man(_) => false,
        }
    }
}
