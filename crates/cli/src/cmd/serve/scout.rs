//! Finds the rails in a process of its own.
//!
//! Enumerating rails loads the libraries, and some of them keep cards open. A server would hold
//! these for as long as it runs, and block the removal of a card or the reload of its driver.

use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::cmd::THIS_PROGRAM;
use crate::exit::{Exit, Failure};
use crate::rails::{self, Found, RailArgs};
use crate::session::TheirFailure;
use crate::terminal;

/// Runs in the child: prints the rails for [`send`].
pub(crate) fn run(args: &RailArgs) -> Result<Exit> {
    let found = serde_json::to_string(&offered(args)).context("cannot serialize the rails")?;
    terminal::print(&found)?;
    Ok(Exit::Ok)
}

/// Starts the child, and returns the rails that it found.
pub(super) fn send(args: &RailArgs) -> Result<Vec<Found>> {
    let mut command = Command::new(THIS_PROGRAM);
    command.arg("scout");
    if !args.devices.is_empty() {
        command.arg("--device").arg(args.devices.join(","));
    }
    if let Some(index) = args.gid_index {
        command.arg("--gid-index").arg(index.to_string());
    }
    if args.require_rdma {
        command.arg("--require-rdma");
    }
    if let Some(path) = &args.shm_dir {
        command.arg("--shm-dir").arg(path);
    }
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let output = output.context("cannot start the process that lists the rails")?;
    let found: Result<Vec<Found>, TheirFailure> = serde_json::from_slice(&output.stdout).map_err(|_| {
        Failure::new(Exit::Failed, "cannot list the rails")
            .cause(format!("a library ended the process that lists them: {}", output.status))
            .fix("name the rails with -d; to see which library fails:\nfarreach devices")
    })?;
    Ok(found.map_err(TheirFailure::of_this_program)?)
}

/// Returns the rails that clients can use: the named ones, or all.
fn offered(args: &RailArgs) -> Result<Vec<Found>, Failure> {
    let (found, trouble) = rails::look(args);
    rails::check_gid(args, &found)?;
    rails::check_named(args)?;
    let offered: Vec<Found> = if args.devices.is_empty() {
        found.into_iter().filter(|rail| !args.require_rdma || rail.is_rdma).collect()
    } else {
        let named = |name: &String| {
            found.iter().find(|rail| rail.name == *name).cloned().ok_or_else(|| rails::missing(name, args))
        };
        args.devices.iter().map(named).collect::<Result<_, _>>()?
    };
    if offered.is_empty() {
        let failure = Failure::new(Exit::Unavailable, "this host has no rail to offer");
        let (cause, fix) = rails::why_no_cards(args);
        // Unless a card is required, libfabric would do as well, and is easier to install.
        return Err(match trouble.into_iter().next().filter(|_| !args.require_rdma) {
            Some(trouble) => {
                failure.cause(format!("{cause}; {}", trouble.sentence())).fix(trouble.fix.unwrap_or(fix))
            }
            None => failure.cause(cause).fix(fix),
        });
    }
    Ok(offered)
}
