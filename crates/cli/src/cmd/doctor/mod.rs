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
use crate::session::{PeerAddress, SecurityArgs, Wait};
use crate::show::paint::Paint;
use crate::terminal;

#[cfg(fuzzing)]
pub(crate) use self::pair::fuzz_step;
pub(crate) use self::pair::{Task, answer, serve};

// The checks of packet filters assume the default port of the server.
const _: () = assert!(PeerAddress::DEFAULT_PORT == CONTROL_PORT);

/// `farreach doctor`
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DoctorArgs {
    /// Host that runs `farreach serve`: examine it too, and try each of its rails with each rail of this host
    #[arg(value_name = "PEER", conflicts_with = "from")]
    peer: Option<PeerAddress>,

    /// Try only these rails of this host, separated by commas: RDMA devices (mlx5_0, rxe0), libfabric providers (tcp, efa), or shm within a host
    #[arg(short, long = "device", value_name = "NAME", value_delimiter = ',', requires = "peer", add = ArgValueCompleter::new(rails::completions))]
    devices: Vec<String>,

    /// Use this GID index of this host's cards instead of the best one
    #[arg(short = 'x', long, value_name = "INDEX", requires = "peer")]
    gid_index: Option<u32>,

    /// Directory that connects containers of this host over shm: try it. With PEER, the server names it, too
    #[arg(long, value_name = "DIR", conflicts_with = "from")]
    shm_dir: Option<PathBuf>,

    /// Server's port, unless PEER contains one
    #[arg(short, long, value_name = "PORT", default_value_t = PeerAddress::DEFAULT_PORT)]
    port: u16,

    /// Connect over TLS with the server's secret, from FILE; by default that in FARREACH_SECRET, if it is set.
    /// A peer on another host is examined over TLS only
    #[arg(long, value_name = "FILE", requires = "peer")]
    secret_file: Option<PathBuf>,

    /// Connect over TLS with certificates; FOLDER contains cert.pem, key.pem and ca.pem
    #[arg(long, value_name = "FOLDER", requires = "peer", conflicts_with = "secret_file")]
    tls: Option<PathBuf>,

    /// Name in the server's certificate, if it is not PEER
    #[arg(long, value_name = "NAME", requires = "tls")]
    tls_name: Option<String>,

    /// Diagnose a file written by --dump instead of this host
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,

    /// Write everything that was read and tried to a file, for diagnosis on another host. The file contains addresses, but no secrets
    #[arg(long, value_name = "FILE", conflicts_with = "from")]
    dump: Option<PathBuf>,

    /// Skip the transfers, which take a few seconds
    #[arg(long, conflicts_with_all = ["from", "peer"])]
    no_transfers: bool,

    /// Exit with 1 also if a check warns or its result is unknown
    #[arg(long)]
    strict: bool,

    /// Show passed checks too, and where each value was read
    #[arg(short, long)]
    verbose: bool,

    /// Print the report as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

const EXAMPLES: &str = "\
Examples:
  farreach doctor                     examine this host
  farreach doctor --dump rack7.json   save what was read,
  farreach doctor --from rack7.json   and diagnose it on another host
  farreach doctor storage-7 --secret-file farreach.secret
                                      examine both hosts, and try their rails
  farreach doctor --shm-dir /run/farreach
                                      try a directory that containers share

Exit code:
  0  nothing failed
  1  FAIL was reported for this host, the peer, or a pair of rails
  3  this host has no RDMA device; with a peer: the hosts have no common rail
  4  the peer was not reached; the report is about this host only";

impl DoctorArgs {
    /// Returns the arguments of a test for the connection to the peer.
    fn client(&self, peer: &PeerAddress) -> ClientArgs {
        ClientArgs {
            peer: peer.clone(),
            rails: RailArgs {
                devices: self.devices.clone(),
                gid_index: self.gid_index,
                shm_dir: self.shm_dir.clone(),
                ..RailArgs::default()
            },
            port: self.port,
            wait: Wait::Adaptive,
            security: SecurityArgs { secret_file: self.secret_file.clone(), tls: self.tls.clone() },
            tls_name: self.tls_name.clone(),
            // An inventory of a host is not given in clear text.
            insecure: false,
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
        (None, None) => this_host(args, args.no_transfers.then_some("skipped by --no-transfers")),
    };
    if let Some(path) = &args.dump {
        file::save(&dump, path)?;
    }
    let report = Report::of(&dump);
    let exit = report.exit(args.strict);
    print(args, &report.with_exit(exit))?;
    Ok(exit)
}

fn this_host(args: &DoctorArgs, without_transfers: Option<&'static str>) -> Dump {
    let processes = Processes { without_transfers, shm_dir: args.shm_dir.clone() };
    Dump::Host(Box::new(collect::host(&processes)))
}

/// Reports a peer that cannot be reached after the report on this host, which may show the cause.
fn without_peer(args: &DoctorArgs, error: anyhow::Error) -> Result<Exit> {
    let failure = Failure::of(&error);
    if failure.exit != Exit::PeerLost {
        return Err(error);
    }
    let dump = this_host(args, Some("skipped, because the peer was not reached"));
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
