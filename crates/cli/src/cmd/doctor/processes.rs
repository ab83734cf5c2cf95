//! Runs processes for the doctor: each library in one of its own (`farreach examine`), and the
//! programs that list firewall rules.
//!
//! A process that crashes, or does not answer in time, is reported and affects nothing else.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use farreach_doctor::collect::{ProgramError, Runner};
use farreach_doctor::probes::{Fabric, NO_ANSWER, Reading, Shm, Trial, Verbs};
use serde::de::DeserializeOwned;

use super::examine::Rail;
use crate::cmd::THIS_PROGRAM;

/// How long a process may take.
#[derive(Debug, Clone, Copy)]
struct Patience {
    /// For a process that is blocked.
    blocked: Duration,
    /// For a process that still uses CPU time, because the host may only be slow.
    running: Duration,
}

/// For a query of a library. A tenth of a second is usual; on a busy emulated host it took fifteen
/// seconds.
const LOOK: Patience = Patience { blocked: Duration::from_secs(20), running: Duration::from_secs(60) };

/// For a transfer, or for both libraries together if a port is down. A transfer takes a fraction of
/// a second if nothing is wrong.
const TRANSFER: Patience = Patience { blocked: Duration::from_secs(45), running: Duration::from_secs(90) };

/// For a list of firewall rules.
const RULES: Patience = Patience { blocked: Duration::from_secs(5), running: Duration::from_secs(20) };

/// The interval at which the end of a process is checked.
const GLANCE: Duration = Duration::from_millis(5);

/// The interval at which the CPU time of a process is compared.
const SAMPLE: Duration = Duration::from_secs(1);

/// Folders of programs that may be missing in PATH.
const FOLDERS: [&str; 2] = ["/usr/sbin", "/sbin"];

/// Runs everything in processes of their own.
#[derive(Debug, Clone)]
pub(super) struct Processes {
    /// The reason why no transfers are made, if so.
    pub(super) without_transfers: Option<&'static str>,
    /// The directory for the rail within a host, if one was named.
    pub(super) shm_dir: Option<PathBuf>,
}

impl Processes {
    /// For a host that is examined together with its peer.
    pub(super) fn for_a_pair(shm_dir: Option<PathBuf>) -> Self {
        Self { without_transfers: Some("replaced by the trials between the two hosts"), shm_dir }
    }

    /// Runs `farreach examine` with this directory.
    fn answer<T: DeserializeOwned>(&self, words: &[&str], patience: Patience) -> Result<T, String> {
        let mut command = examine(words);
        if let Some(path) = &self.shm_dir {
            command.arg("--shm-dir").arg(path);
        }
        answer_of(command, patience)
    }

    /// Returns the rails that could carry a transfer.
    fn rails(&self) -> Result<Vec<Rail>, String> {
        self.answer(&["rails"], TRANSFER).map_err(|reason| format!("search for rails: {reason}"))
    }

    /// Tries a transfer over a rail.
    fn transfer(&self, rail: &str) -> Trial {
        self.answer(&["transfer", rail], TRANSFER).unwrap_or_else(|reason| Trial::Failed {
            error: format!("the transfer over {rail} did not finish"),
            cause: Some(reason),
            fix: None,
        })
    }
}

impl Runner for Processes {
    fn verbs(&self) -> Reading<Verbs> {
        answer_of(examine(&["verbs"]), LOOK)
            .unwrap_or_else(|reason| Reading::Unread(format!("query of libibverbs: {reason}")))
    }

    fn fabric(&self) -> Reading<Fabric> {
        answer_of(examine(&["fabric"]), LOOK)
            .unwrap_or_else(|reason| Reading::Unread(format!("query of libfabric: {reason}")))
    }

    fn shm(&self) -> Reading<Shm> {
        self.answer(&["shm"], LOOK)
            .unwrap_or_else(|reason| Reading::Unread(format!("trial of shm: {reason}")))
    }

    /// Tries one rail after the other, so that none slows another.
    fn transfers(&self) -> Reading<BTreeMap<String, Trial>> {
        if let Some(reason) = self.without_transfers {
            return Reading::LeftOut(reason.to_owned());
        }
        let attempt = |rail: Rail| {
            let trial = rail.failed.unwrap_or_else(|| self.transfer(&rail.name));
            (rail.name, trial)
        };
        self.rails().map(|rails| rails.into_iter().map(attempt).collect()).into()
    }

    fn output(&self, program: &str, args: &[&str]) -> Result<String, ProgramError> {
        let path = env::var_os("PATH").unwrap_or_default();
        let folders = env::split_paths(&path).chain(FOLDERS.iter().map(PathBuf::from));
        let file = folders.map(|folder| folder.join(program)).find(|file| file.is_file());
        let file = file.ok_or(ProgramError::NotInstalled)?;
        match output(Command::new(&file).args(args).env("LC_ALL", "C"), RULES) {
            Ok((status, printed)) if status.success() => Ok(String::from_utf8_lossy(&printed).into_owned()),
            Ok((status, _)) => Err(ProgramError::Failed(format!("{} failed: {status}", file.display()))),
            Err(error) => Err(ProgramError::Failed(format!("{}: {error}", file.display()))),
        }
    }
}

/// Returns the command `farreach examine`.
fn examine(words: &[&str]) -> Command {
    let mut command = Command::new(THIS_PROGRAM);
    command.arg("examine").args(words);
    command
}

/// Runs `farreach examine` and returns its answer, or the reason why there is none.
fn answer_of<T: DeserializeOwned>(mut command: Command, patience: Patience) -> Result<T, String> {
    let (status, printed) = output(&mut command, patience)?;
    serde_json::from_slice(&printed).map_err(|_| match status.success() {
        true => "the output of its process cannot be parsed".to_owned(),
        false => format!("its process failed: {status}"),
    })
}

/// Runs a command to its end, or kills it after the timeout. Its standard error is discarded.
fn output(command: &mut Command, patience: Patience) -> Result<(ExitStatus, Vec<u8>), String> {
    // Messages that libraries print are not part of the report.
    let spawned = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let mut child = spawned.map_err(|error| format!("cannot start a process: {error}"))?;
    let reader = child.stdout.take().map(|mut pipe| {
        thread::spawn(move || {
            let mut printed = Vec::new();
            // Truncated output is reported when it is parsed.
            let _ = pipe.read_to_end(&mut printed);
            printed
        })
    });
    let status = match patient_end_of(&mut child, patience) {
        Ok(status) => status,
        Err(reason) => {
            // A process that is blocked in the kernel may not even be killed, and is abandoned.
            let _ = child.kill();
            end_of(&mut child, Instant::now() + Duration::from_secs(1));
            return Err(reason);
        }
    };
    let printed = reader.and_then(|reader| reader.join().ok()).unwrap_or_default();
    Ok((status, printed))
}

/// Waits for the end of a process. A process that does not end in time is described: whether it
/// uses CPU time, as on a slow host, or is blocked.
fn patient_end_of(child: &mut Child, patience: Patience) -> Result<ExitStatus, String> {
    let began = Instant::now();
    let mut before = Usage::of(child.id());
    loop {
        let wait = SAMPLE.min(patience.blocked);
        if let Some(status) = end_of(child, Instant::now() + wait) {
            return Ok(status);
        }
        let usage = Usage::of(child.id());
        let is_running = usage.is_running_since(&before);
        let limit = if is_running { patience.running } else { patience.blocked };
        if began.elapsed() >= limit {
            return Err(format!("{NO_ANSWER} {} s; {}", limit.as_secs_f64(), usage.words(is_running)));
        }
        before = usage;
    }
}

/// The CPU time that a process has used, and its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Usage {
    cpu: Duration,
    /// As in /proc: `R` for running, `S` for sleeping, `D` for waiting in the kernel.
    state: char,
}

impl Usage {
    /// Reads the usage of a process. If it cannot be read, the process counts as blocked.
    fn of(pid: u32) -> Self {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        Self::parse(&stat).unwrap_or(Self { cpu: Duration::ZERO, state: '?' })
    }

    fn parse(stat: &str) -> Option<Self> {
        // The name of the program may contain spaces and parentheses.
        let mut words = stat.rsplit_once(')')?.1.split_whitespace();
        let state = words.next()?.chars().next()?;
        let (user, system) = (words.nth(10)?.parse::<u64>().ok()?, words.next()?.parse::<u64>().ok()?);
        // The unit of /proc is 1/100 s, whatever the kernel's own timer is.
        Some(Self { cpu: Duration::from_millis(user.saturating_add(system).saturating_mul(10)), state })
    }

    fn is_running_since(&self, before: &Self) -> bool {
        self.cpu > before.cpu || self.state == 'R'
    }

    fn words(&self, is_running: bool) -> String {
        let seconds = self.cpu.as_secs_f64();
        let state = match (is_running, self.state) {
            (true, _) => "still running: this host may be slow or busy".to_owned(),
            (false, 'D') => "blocked in the kernel (state D)".to_owned(),
            (false, state) => format!("blocked (state {state})"),
        };
        format!("its process had used {seconds:.2} s of CPU time and was {state}")
    }
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
        let patience = Patience { blocked: Duration::from_millis(100), running: Duration::from_secs(60) };
        let error = output(Command::new("sleep").arg("60"), patience).unwrap_err();
        assert!(error.starts_with("no answer within 0.1 s; its process had used 0.0"), "{error}");
        assert!(error.ends_with("s of CPU time and was blocked (state S)"), "{error}");
        assert!(began.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn one_that_computes_has_more_time_and_is_not_called_blocked() {
        let mut command = Command::new("sh");
        command.args(["-c", "while :; do :; done"]);
        let patience = Patience { blocked: Duration::from_millis(500), running: Duration::from_millis(1500) };
        let error = output(&mut command, patience).unwrap_err();
        assert!(error.starts_with("no answer within 1.5 s; "), "{error}");
        assert!(error.contains("still running: this host may be slow"), "{error}");
        let patience = Patience { blocked: Duration::from_millis(500), running: Duration::from_secs(300) };
        let mut command = Command::new("sh");
        command.args(["-c", "i=0; while [ $i -lt 1000000 ]; do i=$((i+1)); done; echo done"]);
        let (status, printed) = output(&mut command, patience).unwrap();
        assert!(status.success() && printed == b"done\n", "{status} {printed:?}");
    }

    #[test]
    fn the_usage_of_a_process_is_read_as_the_kernel_writes_it() {
        let stat = "7 (a) b) D 1 7 7 0 -1 4194304 103 0 0 0 12 30 0 0 20 0 1 0 5 1 2 3\n";
        assert_eq!(Usage::parse(stat), Some(Usage { cpu: Duration::from_millis(420), state: 'D' }));
        assert_eq!(Usage::parse(""), None);
    }

    #[test]
    fn one_that_prints_more_than_a_pipe_holds_is_heard() {
        let mut command = Command::new("head");
        command.args(["-c", "300000", "/dev/zero"]);
        let (status, printed) = output(&mut command, LOOK).unwrap();
        assert!(status.success());
        assert_eq!(printed.len(), 300_000);
    }
}
