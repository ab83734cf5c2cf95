//! `farreach doctor`: what is wrong with this host, or this pair, and what to do about it.
//!
//! ```text
//! collect ──▶ Pack ──▶ checks ──▶ Report ──▶ text, JSON
//!            ▲    │
//!   --from FILE   ▼ --dump FILE
//! ```
//!
//! Checks look at nothing but the pack, so that they say the same of a host that is far away.

mod checks;
mod collect;
mod examine;
mod finding;
mod pack;
mod probes;
mod report;
mod text;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

pub(crate) use self::examine::{ExamineArgs, run as examine};
use self::pack::Pack;
use self::report::Report;
use crate::exit::{Exit, Failure};
use crate::show::paint::Paint;
use crate::terminal;

/// `farreach doctor`
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DoctorArgs {
    /// Look at what another host has dumped, instead of this one
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,

    /// Write what was read into a file, for someone who cannot reach this host; it has addresses in it, and no secrets
    #[arg(long, value_name = "FILE", conflicts_with = "from")]
    dump: Option<PathBuf>,

    /// Leave the transfers out: they take seconds
    #[arg(long)]
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
  farreach doctor --dump rack7.json   take along what was read,
  farreach doctor --from rack7.json   and look at it elsewhere

Exit code: 0 if nothing fails, 1 if something does, 3 if there is no RDMA here.";

/// Looks, tells, and ends with what the worst finding asks for.
pub(crate) fn run(args: &DoctorArgs) -> Result<Exit> {
    let pack = match &args.from {
        Some(path) => load(path)?,
        None => collect::host(args.no_transfers),
    };
    if let Some(path) = &args.dump {
        dump(&pack, path)?;
    }
    let report = Report::of(&pack);
    let text = if args.json {
        serde_json::to_string_pretty(&report).context("cannot write the report as JSON")? + "\n"
    } else {
        text::render(&report, args.verbose, terminal::width(), Paint::for_stdout())
    };
    terminal::print(&text)?;
    Ok(report.exit(args.strict))
}

fn load(path: &Path) -> Result<Pack, Failure> {
    let failure = || Failure::new(Exit::Usage, format!("read the pack {}", path.display()));
    let bytes = fs::read(path)
        .map_err(|error| failure().cause(error.to_string()).fix("give a file that --dump has written"))?;
    let pack: Pack = serde_json::from_slice(&bytes).map_err(|error| {
        failure().cause(format!("it is none: {error}")).fix("give a file that --dump has written")
    })?;
    if pack.schema_version != pack::SCHEMA_VERSION {
        let cause = format!(
            "its version is {}, and this farreach knows {}",
            pack.schema_version,
            pack::SCHEMA_VERSION
        );
        return Err(failure().cause(cause).fix(format!("read it with farreach {}", pack.farreach)));
    }
    Ok(pack)
}

fn dump(pack: &Pack, path: &Path) -> Result<()> {
    let text = serde_json::to_string_pretty(pack).context("cannot write the pack as JSON")? + "\n";
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
