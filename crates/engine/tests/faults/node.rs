//! The victim: a process.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use farreach_testkit::{example, wait_for};
use rustix::process::{Pid, Signal, kill_process};

use super::Place;

/// Time limit for a process to start or end on a busy machine.
const SOON: Duration = Duration::from_secs(30);

/// A running example `node`. Dropping it kills the process, if it still runs.
pub(crate) struct Node {
    child: Child,
    lines: Receiver<String>,
}

impl Node {
    /// Starts it in this role, with these options in addition to those of the place.
    pub(crate) fn start(place: &Place, role: &str, options: &[String]) -> Self {
        Self::start_by(Command::new(example("node")), place, role, options)
    }

    /// Like [`start`](Self::start), with a command that ends with the program.
    pub(crate) fn start_by(mut command: Command, place: &Place, role: &str, options: &[String]) -> Self {
        let ms = |name: &str, time: Duration| format!("{name}={}", time.as_millis());
        command.arg(role).arg(format!("rails={}", place.rails.join(",")));
        command.args([ms("heartbeat", place.heartbeat), ms("silence", place.silence)]).args(options);
        // Its error messages help when a test fails.
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let stdout = child.stdout.take().expect("it was asked for");
        let (told, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines() {
                // Either end may be closed first.
                let Ok(line) = line else { return };
                let _ = told.send(line);
            }
        });
        Self { child, lines }
    }

    /// Starts one that connects to this address.
    pub(crate) fn connect(place: &Place, role: &str, to: SocketAddr) -> Self {
        Self::start(place, role, &[format!("peer={to}")])
    }

    /// Waits for the next line that begins with these words, and returns the rest of it.
    #[track_caller]
    pub(crate) fn says(&self, words: &str) -> String {
        let deadline = Instant::now() + SOON;
        loop {
            let line = self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now()));
            match line {
                Ok(line) => match line.strip_prefix(words) {
                    Some(rest) => return rest.trim().to_owned(),
                    None => continue,
                },
                Err(error) => panic!("no line `{words} …` within {SOON:?}: {error}"),
            }
        }
    }

    /// Sends SIGKILL. Returns when.
    pub(crate) fn kill(&mut self) -> Instant {
        let at = Instant::now();
        self.signal(Signal::KILL);
        at
    }

    /// Sends SIGSTOP, and waits until the process has stopped. Returns when it had. The signal
    /// alone is not enough: a thread on another core continues until it is interrupted, and may
    /// answer a request meanwhile.
    pub(crate) fn stop(&self) -> Instant {
        self.signal(Signal::STOP);
        wait_for("stopped process", || self.is_stopped().then(Instant::now))
    }

    /// Returns whether each of its threads is stopped.
    fn is_stopped(&self) -> bool {
        let threads = fs::read_dir(format!("/proc/{}/task", self.child.id())).expect("it was not waited for");
        threads.flatten().all(|thread| {
            let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
            // The name is in brackets, and may contain brackets itself.
            stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
        })
    }

    /// Sends SIGCONT.
    pub(crate) fn cont(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it was not waited for");
    }

    /// Waits for its end. Returns its exit status.
    #[track_caller]
    pub(crate) fn wait_end(&mut self) -> std::process::ExitStatus {
        let deadline = Instant::now() + SOON;
        loop {
            if let Some(status) = self.child.try_wait().expect("a child can be waited for") {
                return status;
            }
            assert!(Instant::now() < deadline, "the node does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits for its end, which must be successful. Returns the rest of its last line.
    #[track_caller]
    pub(crate) fn ends_well(mut self) -> String {
        let said = self.says("ended");
        let status = self.wait_end();
        assert!(status.success(), "{status}: {said}");
        said
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
