//! `farreach examine`: queries the libraries, and moves bytes with them. Only `doctor` starts it.
//!
//! It is a process of its own because a library may crash, hang, or keep cards open. `doctor` then
//! reports this and continues.

mod rails;
mod transfer;

use std::path::PathBuf;

use anyhow::{Context, Result};
use farreach_doctor::collect::{self, InProcess, Runner};
use farreach_doctor::probes::Reading;
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
    /// Query libibverbs
    Verbs,
    /// Query libfabric
    Fabric,
    /// Try what the rail within a host needs
    Shm(ShmArgs),
    /// List the rails
    Rails(ShmArgs),
    /// Try a transfer over a rail
    Transfer {
        /// The rail
        rail: String,
        #[command(flatten)]
        shm: ShmArgs,
    },
}

#[derive(Debug, clap::Args)]
struct ShmArgs {
    /// The directory for shm
    #[arg(long)]
    shm_dir: Option<PathBuf>,
}

/// Runs in the child: prints the result as JSON.
pub(crate) fn run(args: &ExamineArgs) -> Result<Exit> {
    // The process ends with the doctor. The call cannot fail here: the signal is valid.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let found = match &args.what {
        What::Verbs => serde_json::to_string(&InProcess.verbs()),
        What::Fabric => serde_json::to_string(&InProcess.fabric()),
        What::Shm(ShmArgs { shm_dir }) => {
            serde_json::to_string(&Reading::Read(collect::shm(shm_dir.as_deref())))
        }
        What::Rails(ShmArgs { shm_dir }) => serde_json::to_string(&rails::look(shm_dir.clone())),
        What::Transfer { rail, shm } => {
            serde_json::to_string(&transfer::attempt(rail, shm.shm_dir.as_deref()))
        }
    };
    terminal::print(&found.context("cannot write the result as JSON")?)?;
    Ok(Exit::Ok)
}
