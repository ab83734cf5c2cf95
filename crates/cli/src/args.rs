//! What was typed.

use clap::{Parser, Subcommand};

use crate::cmd::devices::DevicesArgs;

/// Does RDMA work here, and how fast?
///
/// Farreach reads and writes another machine's memory over InfiniBand, RoCE, iWARP, AWS EFA, and over tcp and shared
/// memory where there is no RDMA card.
#[derive(Debug, Parser)]
#[command(name = "farreach", version, max_term_width = 100)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List verbs devices and libfabric providers, or say what is missing
    Devices(DevicesArgs),
}
