//! `farreach examine`, which `doctor` starts and nobody else: it asks the libraries, and moves bytes by them, in a process of its own. A library may crash,
//! hang, or keep the cards open that it has seen: whoever started this process tells of it, and lives.

mod fabric;
mod rails;
mod transfer;
mod verbs;

use std::io::Read;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::de::DeserializeOwned;

use super::probes::{Fabric, Reading, Trial, Verbs};
use crate::cmd::THIS_PROGRAM;
use crate::exit::Exit;
use crate::terminal;

pub(crate) use rails::Rail;

/// How long a library may look around: a tenth of a second is usual, and on an emulated host that is busy it has taken fifteen.
const LOOK: Duration = Duration::from_secs(20);

/// How long a transfer may take, which is over in a fraction of a second where nothing is wrong; and both libraries together, where a port is down.
const TRANSFER: Duration = Duration::from_secs(45);

/// How often it is looked whether it has ended.
const GLANCE: Duration = Duration::from_millis(5);

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
        What::Verbs => serde_json::to_string(&verbs::look()),
        What::Fabric => serde_json::to_string(&fabric::look()),
        What::Rails => serde_json::to_string(&rails::look()),
        What::Transfer { rail } => serde_json::to_string(&transfer::attempt(rail)),
    };
    terminal::print(&found.context("cannot write what was found")?)?;
    Ok(Exit::Ok)
}

/// What libibverbs says.
pub(super) fn verbs() -> Reading<Verbs> {
    answer(&["verbs"], LOOK)
        .unwrap_or_else(|reason| Reading::Unread(format!("libibverbs was asked, and {reason}")))
}

/// What libfabric says.
pub(super) fn fabric() -> Reading<Fabric> {
    answer(&["fabric"], LOOK)
        .unwrap_or_else(|reason| Reading::Unread(format!("libfabric was asked, and {reason}")))
}

/// What could carry a transfer.
pub(super) fn rails() -> Result<Vec<Rail>, String> {
    answer(&["rails"], TRANSFER).map_err(|reason| format!("rails were looked for, and {reason}"))
}

/// Whether it does.
pub(super) fn transfer(rail: &str) -> Trial {
    answer(&["transfer", rail], TRANSFER).unwrap_or_else(|reason| Trial::Failed {
        error: format!("a transfer over {rail} did not come to its end"),
        cause: Some(reason),
        fix: None,
    })
}

/// Starts the process, and takes its word, or says why there is none.
fn answer<T: DeserializeOwned>(words: &[&str], patience: Duration) -> Result<T, String> {
    let mut command = Command::new(THIS_PROGRAM);
    command.arg("examine").args(words);
    let (status, printed) = output(&mut command, patience)?;
    serde_json::from_slice(&printed).map_err(|_| match status.success() {
        true => "what came is no answer".to_owned(),
        false => format!("the process that did so has died: {status}"),
    })
}

/// Runs a command to its end, or ends it when its time is over. What it prints on standard error is lost.
pub(super) fn output(command: &mut Command, patience: Duration) -> Result<(ExitStatus, Vec<u8>), String> {
    // What libraries print beside belongs to no report.
    let spawned = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let mut child = spawned.map_err(|error| format!("no process could be started: {error}"))?;
    let reader = child.stdout.take().map(|mut pipe| {
        thread::spawn(move || {
            let mut printed = Vec::new();
            // What was cut off makes no sense, which is told.
            let _ = pipe.read_to_end(&mut printed);
            printed
        })
    });
    let deadline = Instant::now() + patience;
    let Some(status) = end_of(&mut child, deadline) else {
        // A process that waits inside of the kernel may not even end like this, and is left behind.
        let _ = child.kill();
        end_of(&mut child, Instant::now() + Duration::from_secs(1));
        return Err(format!("nothing came within {patience:?}: it hangs"));
    };
    let printed = reader.and_then(|reader| reader.join().ok()).unwrap_or_default();
    Ok((status, printed))
}

fn end_of(child: &mut Child, deadline: Instant) -> Option<ExitStatus> {
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if Instant::now() < deadline => thread::sleep(GLANCE),
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_hangs_is_ended() {
        let began = Instant::now();
        let error = output(Command::new("sleep").arg("60"), Duration::from_millis(100)).unwrap_err();
        assert!(error.contains("nothing came within 100ms"), "{error}");
        assert!(began.elapsed() < Duration::from_secs(5));
    }

    #[test]
    fn one_that_prints_more_than_a_pipe_holds_is_heard() {
        let mut command = Command::new("head");
        command.args(["-c", "300000", "/dev/zero"]);
        let (status, printed) = output(&mut command, Duration::from_secs(20)).unwrap();
        assert!(status.success());
        assert_eq!(printed.len(), 300_000);
    }
}
