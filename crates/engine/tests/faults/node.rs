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

/// A process that starts on a busy machine, or ends there, takes no longer.
const SOON: Duration = Duration::from_secs(30);

/// The example `node`, running. It is killed at the end, if it still runs.
pub(crate) struct Node {
    child: Child,
    lines: Receiver<String>,
}

impl Node {
    /// Starts it as this, with these options beside those of the place.
    pub(crate) fn start(place: &Place, role: &str, options: &[String]) -> Self {
        Self::start_by(Command::new(example("node")), place, role, options)
    }

    /// As [`start`](Self::start), by a command that ends with the program.
    pub(crate) fn start_by(mut command: Command, place: &Place, role: &str, options: &[String]) -> Self {
        let ms = |name: &str, time: Duration| format!("{name}={}", time.as_millis());
        command.arg(role).arg(format!("rails={}", place.rails.join(",")));
        command.args([ms("heartbeat", place.heartbeat), ms("silence", place.silence)]).args(options);
        // What it says of a failure is worth reading.
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let stdout = child.stdout.take().expect("it was asked for");
        let (told, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines() {
                // Both ends may go first.
                let Ok(line) = line else { return };
                let _ = told.send(line);
            }
        });
        Self { child, lines }
    }

    /// One that connects to this address.
    pub(crate) fn connect(place: &Place, role: &str, to: SocketAddr) -> Self {
        Self::start(place, role, &[format!("peer={to}")])
    }

    /// What follows these words in the next line that begins with them.
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

    /// SIGKILL; tells when.
    pub(crate) fn kill(&mut self) -> Instant {
        let at = Instant::now();
        self.signal(Signal::KILL);
        at
    }

    /// SIGSTOP; tells when it has stopped. The signal alone is not enough: a thread that runs on another core goes on until it is interrupted, and may
    /// answer what it is asked meanwhile.
    pub(crate) fn stop(&self) -> Instant {
        self.signal(Signal::STOP);
        wait_for("stopped process", || self.is_stopped().then(Instant::now))
    }

    /// Whether each of its threads is stopped.
    fn is_stopped(&self) -> bool {
        let threads = fs::read_dir(format!("/proc/{}/task", self.child.id())).expect("it was not waited for");
        threads.flatten().all(|thread| {
            let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
            // Its name is in brackets, and may have some itself.
            stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
        })
    }

    /// SIGCONT.
    pub(crate) fn cont(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it was not waited for");
    }

    /// Waits for its end; how it ended.
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

    /// It has ended by itself, and well; what its last line says.
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
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
