//! The program, run as a user runs it: a server, clients, and their output.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use farreach_testkit::{example, listen};

/// A run that takes longer has hung. The program's own waits end before.
const RUN_MAX: Duration = Duration::from_secs(120);

/// The provider and the host that the program runs with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) provider: fn() -> &'static str,
    /// The local address, if the provider has such addresses.
    pub(crate) node: Option<fn() -> String>,
    pub(crate) environment: &'static [(&'static str, &'static str)],
    /// Whether it runs under emulation, where a program that polls takes time from the others.
    pub(crate) is_emulated: bool,
}

impl Place {
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(example("write_pages"));
        command.args(["--provider", (self.provider)()]);
        if let Some(node) = self.node {
            command.args(["--node", &node()]);
        }
        command.args(arguments).envs(self.environment.iter().copied());
        command
    }

    /// Starts the server, and waits until it has printed its address.
    pub(crate) fn serve(&self, arguments: &[&str]) -> Server {
        let (tell, told) = mpsc::channel();
        let mut command = self.command(arguments);
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let stdout = child.stdout.take().expect("stdout is piped");
        thread::spawn(move || {
            let mut line = String::new();
            // If the server ends early, nothing is read, and its stderr has the reason.
            let _ = BufReader::new(stdout).read_line(&mut line);
            let _ = tell.send(line);
        });
        let stderr = listen(child.stderr.take());
        let mut server = Server { place: *self, child, address: String::new(), stderr: Some(stderr) };
        match told.recv_timeout(RUN_MAX) {
            Ok(line) if line.len() > 2 => server.address = line.trim_end().to_owned(),
            other => {
                let said = server.end();
                panic!("no address but {other:?}; the server said: {said}");
            }
        }
        server
    }
}

/// A server, which is killed at the end.
pub(crate) struct Server {
    place: Place,
    child: Child,
    pub(crate) address: String,
    stderr: Option<JoinHandle<String>>,
}

impl Server {
    /// Runs a client to its end.
    pub(crate) fn visit(&self, arguments: &[&str]) -> Ended {
        self.start_visit(arguments).finish()
    }

    pub(crate) fn start_visit(&self, arguments: &[&str]) -> Client {
        let mut command = self.place.command(&[&[self.address.as_str()], arguments].concat());
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let (tell, lines) = mpsc::channel();
        let stdout = child.stdout.take().expect("stdout is piped");
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                // A receiver that is gone does not need it.
                let _ = tell.send(line);
            }
        });
        let stderr = Some(listen(child.stderr.take()));
        Client { name: format!("{command:?}"), child, lines, stderr }
    }

    /// Ends it. Returns its output.
    pub(crate) fn end(&mut self) -> String {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        remove_shared_memory(self.child.id());
        self.stderr.take().map(|stderr| stderr.join().expect("a reader does not panic")).unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let said = self.end();
        if thread::panicking() {
            #[expect(clippy::print_stderr, reason = "the only way to report something during a panic")]
            {
                eprintln!("the server said: {said}");
            }
        }
    }
}

pub(crate) struct Client {
    name: String,
    child: Child,
    lines: mpsc::Receiver<String>,
    stderr: Option<JoinHandle<String>>,
}

impl Client {
    /// Returns the next line that it prints.
    pub(crate) fn line(&self) -> String {
        self.lines.recv_timeout(RUN_MAX).unwrap_or_else(|error| panic!("{}: no line, {error}", self.name))
    }

    /// Kills it, so that it cannot clean up.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("the child runs");
        self.child.wait().expect("a child can be waited for");
        remove_shared_memory(self.child.id());
    }

    /// Waits for its end.
    pub(crate) fn finish(mut self) -> Ended {
        let deadline = Instant::now() + RUN_MAX;
        let code = loop {
            if let Some(status) = self.child.try_wait().expect("a child can be waited for") {
                break status.code();
            }
            if Instant::now() >= deadline {
                // It may end at this moment.
                let _ = self.child.kill();
                let lines: Vec<_> = self.lines.try_iter().collect();
                panic!("{} hangs, having said {lines:?}", self.name);
            }
            thread::sleep(Duration::from_millis(10));
        };
        let stderr = self.stderr.take().expect("it is taken once").join().expect("a reader does not panic");
        Ended { name: self.name.clone(), code, lines: self.lines.iter().collect(), stderr }
    }
}

/// The result of a client.
#[derive(Debug)]
pub(crate) struct Ended {
    name: String,
    pub(crate) code: Option<i32>,
    pub(crate) lines: Vec<String>,
    pub(crate) stderr: String,
}

impl Ended {
    /// Checks that it verified so many requests.
    #[track_caller]
    pub(crate) fn verified(&self, requests: usize) {
        let verified = self.lines.iter().filter(|line| line.ends_with(", verified")).count();
        let is_well = self.code == Some(0) && verified == requests && self.stderr.is_empty();
        assert!(is_well, "{}: {self:#?}", self.name);
    }

    /// Checks that it failed, with the three lines that every failure has.
    #[track_caller]
    pub(crate) fn failed(&self, code: i32, words: &str) {
        let starts: Vec<_> =
            self.stderr.lines().filter_map(|line| line.split_once(": ")).map(|(it, _)| it).collect();
        assert_eq!(starts, ["error", "cause", "fix"], "{self:#?}");
        assert!(self.code == Some(code) && self.stderr.contains(words), "{words:?} is not in {self:#?}");
    }
}

/// Removes the files that libfabric's shm leaves of a killed process: their names begin with its
/// number.
fn remove_shared_memory(process: u32) {
    let prefix = format!("{process}:");
    for entry in std::fs::read_dir("/dev/shm").into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(&prefix) {
            // Another process may clean up, too.
            let _ = std::fs::remove_file(entry.path());
        }
    }
}
