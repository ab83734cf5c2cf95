//! `farreach examine`, which `doctor` starts and nobody else: it asks the libraries, and moves bytes by them, in a process of its own. A library may crash,
//! hang, or keep the cards open that it has seen: whoever started this process tells of it, and lives.

mod rails;
mod transfer;

use anyhow::{Context, Result};
use farreach_doctor::collect::{InProcess, Runner};
use rustix::process::{Signal, set_parent_process_death_signal};

use crate::exit::Exit;
use crate::terminal;

pub(crate) use rails::Rail;

/// What to examine.
#[derive(Debug, clap::Args)]
pub(crate) struct ExamineArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// What libibverbs says
    Verbs,
    /// What libfabric says
    Fabric,
    /// What could carry a transfer
    Rails,
    /// Whether it does
    Transfer {
        /// One of them
        rail: String,
    },
}

/// The process itself: prints what it has found, as JSON.
pub(crate) fn run(args: &ExamineArgs) -> Result<Exit> {
    // Who stops the doctor stops this one too. It fails for no process that we may be.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let found = match &args.what {
        What::Verbs => serde_json::to_string(&InProcess.verbs()),
        What::Fabric => serde_json::to_string(&InProcess.fabric()),
        What::Rails => serde_json::to_string(&rails::look()),
        What::Transfer { rail } => serde_json::to_string(&transfer::attempt(rail)),
    };
    terminal::print(&found.context("cannot write what was found")?)?;
    Ok(Exit::Ok)
}
