//! Runs processes for the doctor: each library in one of its own (`farreach examine`), and the
//! programs that list firewall rules.
//!
//! A process that crashes or hangs is reported, and affects nothing else.

use std::collections::BTreeMap;
use std::env;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use farreach_doctor::collect::{ProgramError, Runner};
use farreach_doctor::probes::{Fabric, Reading, Trial, Verbs};
use serde::de::DeserializeOwned;

use super::examine::Rail;
use crate::cmd::THIS_PROGRAM;

/// How long a library may take. A tenth of a second is usual; on a busy emulated host it took
/// fifteen seconds.
const LOOK: Duration = Duration::from_secs(20);

/// How long a transfer may take, or both libraries together if a port is down. A transfer takes a
/// fraction of a second if nothing is wrong.
const TRANSFER: Duration = Duration::from_secs(45);

/// The interval at which the end of a process is checked.
const GLANCE: Duration = Duration::from_millis(5);

/// How long a list of rules may take.
const RULES: Duration = Duration::from_secs(5);

/// Folders of programs that may be missing in PATH.
const FOLDERS: [&str; 2] = ["/usr/sbin", "/sbin"];

/// Runs everything in processes of their own.
#[derive(Debug, Clone, Copy)]
pub(super) struct Processes {
    /// The reason why no transfers are made, if so.
    pub(super) without_transfers: Option<&'static str>,
}

impl Processes {
    /// For a host that is examined together with its peer.
    pub(super) const FOR_A_PAIR: Self =
        Self { without_transfers: Some("left out: transfers between the two hosts were tried instead") };
}

impl Runner for Processes {
    fn verbs(&self) -> Reading<Verbs> {
        answer(&["verbs"], LOOK)
            .unwrap_or_else(|reason| Reading::Unread(format!("libibverbs was asked, and {reason}")))
    }

    fn fabric(&self) -> Reading<Fabric> {
        answer(&["fabric"], LOOK)
            .unwrap_or_else(|reason| Reading::Unread(format!("libfabric was asked, and {reason}")))
    }

    /// Tries one rail after the other, so that none slows another.
    fn transfers(&self) -> Reading<BTreeMap<String, Trial>> {
        if let Some(reason) = self.without_transfers {
            return Reading::LeftOut(reason.to_owned());
        }
        let attempt = |rail: Rail| {
            let trial = rail.failed.unwrap_or_else(|| transfer(&rail.name));
            (rail.name, trial)
        };
        rails().map(|rails| rails.into_iter().map(attempt).collect()).into()
    }

    fn output(&self, program: &str, args: &[&str]) -> Result<String, ProgramError> {
        let path = env::var_os("PATH").unwrap_or_default();
        let folders = env::split_paths(&path).chain(FOLDERS.iter().map(PathBuf::from));
        let file = folders.map(|folder| folder.join(program)).find(|file| file.is_file());
        let file = file.ok_or(ProgramError::NotInstalled)?;
        match output(Command::new(&file).args(args).env("LC_ALL", "C"), RULES) {
            Ok((status, printed)) if status.success() => Ok(String::from_utf8_lossy(&printed).into_owned()),
            Ok((status, _)) => Err(ProgramError::Failed(format!("{} fails: {status}", file.display()))),
            Err(error) => Err(ProgramError::Failed(format!("{}: {error}", file.display()))),
        }
    }
}

/// Returns the rails that could carry a transfer.
fn rails() -> Result<Vec<Rail>, String> {
    answer(&["rails"], TRANSFER).map_err(|reason| format!("rails were looked for, and {reason}"))
}

/// Tries a transfer over a rail.
fn transfer(rail: &str) -> Trial {
    answer(&["transfer", rail], TRANSFER).unwrap_or_else(|reason| Trial::Failed {
        error: format!("a transfer over {rail} did not come to its end"),
        cause: Some(reason),
        fix: None,
    })
}

/// Runs `farreach examine` and returns its answer, or the reason why there is none.
fn answer<T: DeserializeOwned>(words: &[&str], patience: Duration) -> Result<T, String> {
    let mut command = Command::new(THIS_PROGRAM);
    command.arg("examine").args(words);
    let (status, printed) = output(&mut command, patience)?;
    serde_json::from_slice(&printed).map_err(|_| match status.success() {
        true => "what came is no answer".to_owned(),
        false => format!("the process that did so has died: {status}"),
    })
}

/// Runs a command to its end, or kills it after the timeout. Its standard error is discarded.
fn output(command: &mut Command, patience: Duration) -> Result<(ExitStatus, Vec<u8>), String> {
    // Messages that libraries print are not part of the report.
    let spawned = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let mut child = spawned.map_err(|error| format!("no process could be started: {error}"))?;
    let reader = child.stdout.take().map(|mut pipe| {
        thread::spawn(move || {
            let mut printed = Vec::new();
            // Truncated output is reported when it is parsed.
            let _ = pipe.read_to_end(&mut printed);
            printed
        })
    });
    let deadline = Instant::now() + patience;
    let Some(status) = end_of(&mut child, deadline) else {
        // A process that is blocked in the kernel may not even be killed, and is abandoned.
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
