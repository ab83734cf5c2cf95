//! A process that the driver has started. It ends with the driver's handle.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde::de::DeserializeOwned;

/// A process with its streams.
#[derive(Debug)]
pub(super) struct Process {
    name: String,
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    stderr: Arc<Mutex<String>>,
    reader: JoinHandle<()>,
}

/// How long the last words of a process that has ended are waited for. Its children may keep its
/// stderr open.
const LAST_WORDS: Duration = Duration::from_secs(1);

impl Process {
    /// Starts this program in another role.
    pub(super) fn role(role: &str, words: &[&str]) -> Result<Self> {
        let program = std::env::current_exe()?;
        let mut command = Command::new(program);
        command.arg(role).args(words);
        // Otherwise glibc keeps the large pools that libfabric has freed, and memory that is lost
        // could not be told from it.
        command.env("MALLOC_MMAP_THRESHOLD_", "1048576");
        Self::start(role, &mut command)
    }

    /// Starts a program.
    pub(super) fn start(name: &str, command: &mut Command) -> Result<Self> {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        let (stdout, stderr) = (child.stdout.take().context("piped")?, child.stderr.take().context("piped")?);
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let text = Arc::new(Mutex::new(String::new()));
        let kept = Arc::clone(&text);
        let reader = std::thread::spawn(move || {
            let (mut stderr, mut chunk) = (stderr, [0; 4096]);
            while let Ok(len @ 1..) = stderr.read(&mut chunk) {
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                kept.push_str(&String::from_utf8_lossy(&chunk[..len]));
            }
        });
        let stdin = child.stdin.take();
        Ok(Self { name: name.to_owned(), child, stdin, lines, stderr: text, reader })
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a command.
    pub(super) fn tell(&mut self, command: &str) -> Result<()> {
        let stdin = self.stdin.as_mut().context("stdin is closed")?;
        writeln!(stdin, "{command}").with_context(|| format!("{} takes no commands any more", self.name))
    }

    /// Returns the next line that it prints.
    pub(super) fn line(&mut self, limit: Duration) -> Result<String> {
        self.lines.recv_timeout(limit).map_err(|error| match error {
            RecvTimeoutError::Timeout => anyhow!("{} has said nothing within {limit:?}", self.name),
            RecvTimeoutError::Disconnected => match self.end(Duration::from_secs(5)) {
                Ok(status) => anyhow!("{} has ended: {}", self.name, self.how(status)),
                Err(error) => error,
            },
        })
    }

    /// Returns the next answer.
    pub(super) fn hear<T: DeserializeOwned>(&mut self, limit: Duration) -> Result<T> {
        let line = self.line(limit)?;
        serde_json::from_str(&line).with_context(|| format!("{} has answered {line:?}", self.name))
    }

    /// Sends a command, and returns its answer.
    pub(super) fn ask<T: DeserializeOwned>(&mut self, command: &str, limit: Duration) -> Result<T> {
        self.tell(command)?;
        self.hear(limit)
    }

    /// Sends a signal.
    pub(super) fn signal(&self, signal: Signal) {
        if let Some(pid) = Pid::from_raw(self.child.id() as i32) {
            // It may have ended.
            let _ = kill_process(pid, signal);
        }
    }

    /// Kills it, and waits until it is gone.
    pub(super) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Returns how it has ended; `None` while it runs.
    pub(super) fn ended(&mut self) -> Option<String> {
        let status = self.child.try_wait().ok()??;
        Some(self.how(status))
    }

    /// Waits for its end.
    pub(super) fn end(&mut self, limit: Duration) -> Result<ExitStatus> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            if Instant::now() >= deadline {
                bail!("{} has not ended within {limit:?}", self.name);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn how(&self, status: ExitStatus) -> String {
        let deadline = Instant::now() + LAST_WORDS;
        while !self.reader.is_finished() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        let said = self.said();
        let last = said.lines().rev().find(|line| !line.trim().is_empty());
        let last = self.panics().pop().unwrap_or_else(|| last.unwrap_or_default().to_owned());
        match status.signal() {
            Some(signal) => format!("by signal {signal}, {last}"),
            None => format!("with exit code {}, {last}", status.code().unwrap_or_default()),
        }
    }

    /// Returns what it has written to stderr so far.
    pub(super) fn said(&self) -> String {
        self.stderr.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the place and the message of each panic so far.
    pub(super) fn panics(&self) -> Vec<String> {
        let said = self.said();
        let mut lines = said.lines();
        let mut panics = Vec::new();
        while let Some(line) = lines.next() {
            if let Some((_, place)) = line.split_once("panicked at ") {
                panics.push(format!("panicked at {place} {}", lines.next().unwrap_or_default()));
            }
        }
        panics
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Process {
        Process::start("a shell", Command::new("sh").args(["-c", script])).unwrap()
    }

    const SOON: Duration = Duration::from_secs(20);

    #[test]
    fn commands_are_answered() {
        let mut shell = shell("while read number; do echo $((number + 1)); done");
        assert_eq!(shell.ask::<u32>("41", SOON).unwrap(), 42);
        assert_eq!(shell.ended(), None);
    }

    #[test]
    fn an_end_is_told_with_the_last_words() {
        let mut shell = shell("echo thread x panicked at y: >&2; echo over >&2; kill -SEGV $$");
        let error = shell.hear::<u32>(SOON).unwrap_err().to_string();
        assert!(error.contains("by signal 11, panicked at y: over"), "{error}");
        assert_eq!(shell.panics().len(), 1);
        assert!(shell.ended().is_some());
    }

    #[test]
    fn silence_is_told() {
        let error = shell("sleep 60").hear::<u32>(Duration::from_millis(10)).unwrap_err().to_string();
        assert!(error.contains("said nothing"), "{error}");
    }
}
