//! `farreach devices`: lists the devices of both libraries and the rails of this host, or what is
//! missing.

mod collect;
mod report;
mod text;

use anyhow::{Context, Result};

use crate::exit::Exit;
use crate::terminal;

/// `farreach devices`
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DevicesArgs {
    /// Only this verbs device, this libfabric provider or domain, or shm
    #[arg(short, long, value_name = "NAME")]
    device: Option<String>,

    /// Also show limits, on-chip memory, capabilities and registration modes
    #[arg(short, long)]
    verbose: bool,

    /// Print everything as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

const EXAMPLES: &str = "\
Examples:
  farreach devices                  all devices and providers
  farreach devices -v -d mlx5_0     all details of one card
  farreach devices --json | jq '.verbs.devices[].name'

Exit code: 0 a device, provider or rail was found; 3 none was found.";

/// Prints the list. The exit code is 3 if nothing can carry data.
pub(crate) fn run(args: &DevicesArgs) -> Result<Exit> {
    let mut report = collect::report();
    if let Some(name) = &args.device {
        report.keep_only(name);
    }
    let text = if args.json {
        serde_json::to_string_pretty(&report).context("cannot serialize the report")? + "\n"
    } else {
        text::render(&report, args, terminal::width())
    };
    terminal::print(&text)?;
    Ok(if report.is_empty() { Exit::Unavailable } else { Exit::Ok })
}
