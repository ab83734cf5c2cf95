//! `farreach doctor`: diagnoses this host, or this pair of hosts, and suggests fixes.
//!
//! ```text
//! collect ──▶ Dump ──▶ Report ──▶ text, JSON
//!            ▲    │
//!   --from FILE   ▼ --dump FILE
//! ```
//!
//! The crate `farreach-doctor` collects facts, runs the checks and diagnoses a pair. This module
//! starts processes, communicates with a peer, and prints.

mod examine;
mod file;
mod pair;
mod processes;
mod report;
mod text;

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap_complete::ArgValueCompleter;
use farreach_doctor::{CONTROL_PORT, Dump, collect};

pub(crate) use self::examine::{ExamineArgs, run as examine};
use self::processes::Processes;
use self::report::Report;
use self::text::Style;
use crate::args::ClientArgs;
use crate::exit::{Exit, Failure};
use crate::rails::{self, RailArgs};
use crate::session::{PeerAddress, Wait};
use crate::show::paint::Paint;
use crate::terminal;

pub(crate) use self::pair::{Task, answer, serve};

// The checks of packet filters assume the default port of the server.
const _: () = assert!(PeerAddress::DEFAULT_PORT == CONTROL_PORT);

/// `farreach doctor`
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DoctorArgs {
    /// Where `farreach serve` runs: look at that host too, and try each rail of this one with each of its
    #[arg(value_name = "PEER", conflicts_with = "from")]
    peer: Option<PeerAddress>,

    /// Try these rails of this host only, with commas between: RDMA devices (mlx5_0, rxe0) or libfabric providers (tcp, efa)
    #[arg(short, long = "device", value_name = "NAME", value_delimiter = ',', requires = "peer", add = ArgValueCompleter::new(rails::completions))]
    devices: Vec<String>,

    /// Use this GID index of this host's cards, instead of choosing the best
    #[arg(short = 'x', long, value_name = "INDEX", requires = "peer")]
    gid_index: Option<u32>,

    /// Server's port, unless PEER has one
    #[arg(short, long, value_name = "PORT", default_value_t = PeerAddress::DEFAULT_PORT)]
    port: u16,

    /// Speak TLS with the server; FOLDER has cert.pem, key.pem and ca.pem
    #[arg(long, value_name = "FOLDER", requires = "peer")]
    tls: Option<PathBuf>,

    /// Name in the server's certificate, if not PEER's
    #[arg(long, value_name = "NAME", requires = "tls")]
    tls_name: Option<String>,

    /// Look at what was dumped elsewhere, of a host or of a pair, instead of this host
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,

    /// Write what was read and tried into a file, for someone who cannot reach this host; it has addresses in it, and no secrets
    #[arg(long, value_name = "FILE", conflicts_with = "from")]
    dump: Option<PathBuf>,

    /// Leave the transfers out: they take seconds
    #[arg(long, conflicts_with_all = ["from", "peer"])]
    no_transfers: bool,

    /// End with 1 for what is unknown or a warning, too
    #[arg(long)]
    strict: bool,

    /// Show what passes, too, and where each fact was read
    #[arg(short, long)]
    verbose: bool,

    /// Print everything as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

const EXAMPLES: &str = "\
Examples:
  farreach doctor                     this host
  farreach doctor storage-7           this host, that one, and what is between
  farreach doctor --dump rack7.json   take along what was read,
  farreach doctor --from rack7.json   and look at it elsewhere

Exit code: 0 if nothing fails, 1 if something does, 3 if there is no RDMA here
(or, with a peer, no rail that both have), 4 if the peer is not reached: this
host is told of all the same.";

impl DoctorArgs {
    /// Returns the arguments of a test for the connection to the peer.
    fn client(&self, peer: &PeerAddress) -> ClientArgs {
        ClientArgs {
            peer: peer.clone(),
            rails: RailArgs { devices: self.devices.clone(), gid_index: self.gid_index, require_rdma: false },
            port: self.port,
            wait: Wait::Adaptive,
            tls: self.tls.clone(),
            tls_name: self.tls_name.clone(),
            json: self.json,
            verbose: self.verbose,
        }
    }
}

/// Collects, prints the report, and returns the exit code of the worst finding.
pub(crate) fn run(args: &DoctorArgs) -> Result<Exit> {
    let dump = match (&args.peer, &args.from) {
        (Some(peer), _) => match pair::look(&args.client(peer)) {
            Ok(pack) => Dump::Pair(Box::new(pack)),
            Err(error) => return without_peer(args, error),
        },
        (None, Some(path)) => file::load(path)?,
        (None, None) => this_host(args.no_transfers.then_some("left out by --no-transfers")),
    };
    if let Some(path) = &args.dump {
        file::save(&dump, path)?;
    }
    let report = Report::of(&dump);
    print(args, &report)?;
    Ok(report.exit(args.strict))
}

fn this_host(without_transfers: Option<&'static str>) -> Dump {
    Dump::Host(Box::new(collect::host(&Processes { without_transfers })))
}

/// Reports a peer that cannot be reached after the report on this host, which may show the cause.
fn without_peer(args: &DoctorArgs, error: anyhow::Error) -> Result<Exit> {
    let failure = Failure::of(&error);
    if failure.exit != Exit::PeerLost {
        return Err(error);
    }
    let dump = this_host(Some("left out: a peer was asked for, and is not reached"));
    if let Some(path) = &args.dump {
        file::save(&dump, path)?;
    }
    print(args, &Report::of(&dump).without_peer(&failure))?;
    // The JSON report contains the failure already.
    Ok(terminal::tell_failure(&failure, false))
}

fn print(args: &DoctorArgs, report: &Report) -> Result<()> {
    let text = if args.json {
        serde_json::to_string_pretty(report).context("cannot write the report as JSON")? + "\n"
    } else {
        let style = Style { is_verbose: args.verbose, width: terminal::width(), paint: Paint::for_stdout() };
        text::report(report, style)
    };
    Ok(terminal::print(&text)?)
}
