//! Runs several jobs at the same time, each in its own process. The output of a job goes to a file
//! and is printed as a whole when the job has ended, so that the outputs of two jobs are never
//! mixed.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::attempts::unsteady_in;
use crate::paths;
use crate::process::{command, last_lines, require_programs};

/// The interval at which the running jobs are printed.
const SIGN_OF_LIFE: Duration = Duration::from_secs(30);

/// The number of lines of a failed job that are printed again at the end.
const LAST_WORDS: usize = 60;

/// A process to run, and its name.
#[derive(Debug)]
pub(crate) struct Job {
    name: String,
    command: Command,
}

impl Job {
    /// Creates a job that runs a program with arguments, in the top folder of the repository.
    pub(crate) fn new<I>(name: impl Into<String>, program: &str, arguments: I) -> Self
    where
        I: IntoIterator,
        I::Item: AsRef<OsStr>,
    {
        // The job must not outlive this process, however this process ends.
        let mut command = command("setpriv", ["--pdeathsig", "KILL", program]);
        command.args(arguments).current_dir(paths::repository());
        Self { name: name.into(), command }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Creates a job that runs another task: `cargo xtask WORDS`.
    pub(crate) fn task<I>(name: impl Into<String>, words: I) -> Self
    where
        I: IntoIterator,
        I::Item: AsRef<OsStr>,
    {
        // The program that is running, even if cargo has replaced its file in the meantime.
        Self::new(name, &format!("/proc/{}/exe", std::process::id()), words)
    }
}

/// What to do with jobs that have not started when another one fails. Running jobs are waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AfterFailure {
    /// Run them too, to learn which jobs fail and which do not.
    GoOn,
    Stop,
}

/// A job that has passed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) name: String,
    pub(crate) took: Duration,
    /// The tests that passed only at their second attempt.
    pub(crate) unsteady: Vec<String>,
}

/// Runs the jobs in their order, `at_once` of them at the same time. The error names those that
/// failed, with the end of their output: it is printed last, even if other jobs ran much longer.
pub(crate) fn run(jobs: Vec<Job>, at_once: usize, after_failure: AfterFailure) -> Result<()> {
    run_noting(jobs, at_once, after_failure, &mut |_| Ok(()))
}

/// Runs the jobs like [`run`], and calls `note` for each job as soon as it has passed.
pub(crate) fn run_noting(
    jobs: Vec<Job>,
    at_once: usize,
    after_failure: AfterFailure,
    note: &mut dyn FnMut(&Report) -> Result<()>,
) -> Result<()> {
    require_programs(&[("setpriv", "util-linux")])?;
    let logs = tempfile::tempdir().context("cannot create a folder for the output of the jobs")?;
    let (tell, ended) = channel();
    let mut waiting = jobs.into_iter();
    let (mut running, mut failed) = (Vec::<Running>::new(), Vec::new());
    loop {
        let may_begin = failed.is_empty() || after_failure == AfterFailure::GoOn;
        while may_begin
            && running.len() < at_once
            && let Some(job) = waiting.next()
        {
            running.push(Running::begin(job, logs.path(), &tell)?);
        }
        if running.is_empty() {
            break;
        }
        let (id, status) = match ended.recv_timeout(SIGN_OF_LIFE) {
            Ok(told) => told,
            Err(RecvTimeoutError::Timeout) => {
                println!("{}", sign_of_life(&running, waiting.len()));
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => bail!("the threads that wait for the jobs have ended"),
        };
        let index = running.iter().position(|job| job.id == id).context("a process that is no job ended")?;
        let job = running.remove(index);
        match job.show(status)? {
            true => note(&job.report()?)?,
            false => failed.push(job),
        }
    }
    if failed.is_empty() {
        return Ok(());
    }
    for job in &failed {
        println!("── {} failed; its last lines:\n{}", job.name, last_lines(&job.said()?, LAST_WORDS));
    }
    let failed: Vec<_> = failed.iter().map(|job| job.name.as_str()).collect();
    let left: Vec<_> = waiting.map(|job| job.name).collect();
    match left.is_empty() {
        true => bail!("failed: {}", failed.join(", ")),
        false => bail!("failed: {}; not started: {}", failed.join(", "), left.join(", ")),
    }
}

/// A job that was started.
struct Running {
    id: u32,
    name: String,
    log: PathBuf,
    started: Instant,
}

impl Running {
    fn begin(mut job: Job, logs: &Path, tell: &Sender<(u32, io::Result<ExitStatus>)>) -> Result<Self> {
        let (log, path) = tempfile::NamedTempFile::new_in(logs)?.keep()?;
        job.command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        println!("── {} starts; its output: {}", job.name, path.display());
        // Started by this thread, which stays: a job ends with the thread that started it.
        let mut child = job.command.spawn().with_context(|| format!("cannot start {}", job.name))?;
        let (id, tell) = (child.id(), tell.clone());
        std::thread::spawn(move || {
            // The receiver is gone only if another job could not be started; then everything ends.
            let _ = tell.send((id, child.wait()));
        });
        Ok(Self { id, name: job.name, log: path, started: Instant::now() })
    }

    fn said(&self) -> Result<String> {
        let said =
            std::fs::read(&self.log).with_context(|| format!("cannot read the output of {}", self.name))?;
        Ok(String::from_utf8_lossy(&said).into_owned())
    }

    fn report(&self) -> Result<Report> {
        let unsteady = unsteady_in(&self.said()?).map(ToOwned::to_owned).collect();
        Ok(Report { name: self.name.clone(), took: self.started.elapsed(), unsteady })
    }

    /// Prints the output of the job and how it ended. Returns whether it succeeded.
    fn show(&self, status: io::Result<ExitStatus>) -> Result<bool> {
        let status = status.with_context(|| format!("cannot wait for {}", self.name))?;
        let seconds = self.started.elapsed().as_secs();
        let how = match status.success() {
            true => format!("passed in {seconds} s"),
            false => format!("FAILED after {seconds} s ({status})"),
        };
        println!("── {}\n{}── {}: {how}", self.name, self.said()?, self.name);
        Ok(status.success())
    }
}

fn sign_of_life(running: &[Running], waiting: usize) -> String {
    let jobs: Vec<_> =
        running.iter().map(|job| format!("{} for {} s", job.name, job.started.elapsed().as_secs())).collect();
    format!("   running: {}; {waiting} waiting", jobs.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(name: &str, script: String) -> Job {
        Job::new(name, "sh", ["-c", &script])
    }

    /// Makes a file and waits for that of another job: fails where the two do not run at once.
    fn meets(folder: &Path, own: &str, other: &str) -> Job {
        let folder = folder.display();
        shell(
            own,
            format!(
                "touch {folder}/{own}; for i in $(seq 30); do [ -e {folder}/{other} ] && exit; sleep 0.1; done; exit 1"
            ),
        )
    }

    #[test]
    fn so_many_run_at_once_and_no_more() {
        let folder = tempfile::tempdir().unwrap();
        let pair = vec![meets(folder.path(), "a", "b"), meets(folder.path(), "b", "a")];
        let mut passed = Vec::new();
        let mut note = |report: &Report| {
            passed.push(report.name.clone());
            Ok(())
        };
        run_noting(pair, 2, AfterFailure::GoOn, &mut note).unwrap();
        passed.sort();
        assert_eq!(passed, ["a", "b"]);

        let folder = tempfile::tempdir().unwrap();
        let pair = vec![meets(folder.path(), "a", "b"), meets(folder.path(), "b", "a")];
        assert_eq!(run(pair, 1, AfterFailure::GoOn).unwrap_err().to_string(), "failed: a");
    }

    #[test]
    fn after_a_failure_the_rest_runs_or_is_not_begun() {
        let folder = tempfile::tempdir().unwrap();
        let last = folder.path().join("last");
        let jobs = || {
            let fails = shell("fails", "echo told; exit 3".into());
            vec![fails, shell("last", format!("touch {}", last.display()))]
        };
        let error = run(jobs(), 1, AfterFailure::Stop).unwrap_err().to_string();
        assert_eq!(error, "failed: fails; not started: last");
        assert!(!last.exists());
        let error = run(jobs(), 1, AfterFailure::GoOn).unwrap_err().to_string();
        assert_eq!(error, "failed: fails");
        assert!(last.exists());
    }
}
