//! A client that runs while a test does something to it, or to its server.
#![allow(dead_code, reason = "each test uses its part")]

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::run::Ended;

/// A failure is told within so long, whatever it is: nobody waits for a hang. A guest is slow, and has its own.
pub(crate) const TOLD_WITHIN: Duration = Duration::from_secs(15);

/// A client that was started. It ends with the test, also when that fails.
#[derive(Debug)]
pub(crate) struct Client {
    child: Child,
    told: String,
    started: Instant,
    stdout: Option<JoinHandle<String>>,
    stderr: Option<JoinHandle<()>>,
    /// What has come on stderr so far.
    said: Arc<Mutex<String>>,
}

impl Client {
    /// Starts it.
    pub(crate) fn start(command: &mut Command) -> Self {
        let told = format!("{command:?}");
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("cannot run {told}: {error}"));
        let (mut stdout, stderr) = (child.stdout.take().expect("piped"), child.stderr.take().expect("piped"));
        let said = Arc::new(Mutex::new(String::new()));
        let keeps = Arc::clone(&said);
        let stdout = thread::spawn(move || {
            let mut text = String::new();
            stdout.read_to_string(&mut text).expect("output is UTF-8");
            text
        });
        let stderr = thread::spawn(move || {
            for line in BufReader::new(stderr).lines() {
                let line = line.expect("output is UTF-8");
                keeps.lock().expect("nobody panics with it").push_str(&format!("{line}\n"));
            }
        });
        Self { child, told, started: Instant::now(), stdout: Some(stdout), stderr: Some(stderr), said }
    }

    /// Sends it a signal, by its id.
    pub(crate) fn signal(&self, name: &str) {
        let told = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status();
        assert!(told.expect("kill, which every system has").success(), "{} is still there", self.told);
    }

    /// Whether it has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("a child can be waited for").is_some()
    }

    /// What it has said on stderr so far.
    pub(crate) fn said(&self) -> String {
        self.said.lock().expect("nobody panics with it").clone()
    }

    /// Waits until it has said these words on stderr.
    pub(crate) fn wait_for(&mut self, words: &str, limit: Duration) {
        let has_said = self.says_before_its_end(words, limit);
        assert!(has_said, "{} has ended before it said {words:?}:\n{}", self.told, self.said());
    }

    /// Waits until it has said these words on stderr, or has ended without.
    pub(crate) fn says_before_its_end(&mut self, words: &str, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        while !self.said().contains(words) {
            if self.has_ended() {
                return false;
            }
            assert!(Instant::now() < deadline, "{} does not say {words:?}:\n{}", self.told, self.said());
            thread::sleep(Duration::from_millis(10));
        }
        true
    }

    /// How it ends, if it does within so long from now.
    pub(crate) fn end_within(mut self, limit: Duration) -> Ended {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = self.child.try_wait().expect("a child can be waited for") {
                return self.ended(status);
            }
            assert!(
                Instant::now() < deadline,
                "{} does not end within {limit:?}:\n{}",
                self.told,
                self.said()
            );
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn ended(&mut self, status: ExitStatus) -> Ended {
        let stdout = self.stdout.take().and_then(|it| it.join().ok()).unwrap_or_default();
        let _ = self.stderr.take().map(JoinHandle::join);
        let ended = Ended { code: status.code(), stdout, stderr: self.said() };
        assert!(!ended.stderr.contains("panicked at"), "{} panicked: {ended:#?}", self.told);
        ended
    }

    /// Kills it, and takes leave.
    pub(crate) fn kill(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a command that is to fail with this code: soon, with an error, a cause if there is one, a fix or that of the other side, and these words somewhere.
pub(crate) fn assert_fails(command: &mut Command, code: i32, words: &[&str]) -> Ended {
    assert_failed(Client::start(command).end_within(TOLD_WITHIN), code, words)
}

/// The same of one that has ended.
pub(crate) fn assert_failed(ended: Ended, code: i32, words: &[&str]) -> Ended {
    assert_eq!(ended.code, Some(code), "{ended:#?}");
    assert!(ended.stderr.lines().any(|line| line.starts_with("error: ")), "no error is told: {ended:#?}");
    let is_fix = |line: &str| line.starts_with("  fix: ") || line.starts_with("their fix: ");
    assert!(ended.stderr.lines().any(is_fix), "no fix is told: {ended:#?}");
    for word in words {
        assert!(ended.stderr.contains(word), "{word:?} is not told: {ended:#?}");
    }
    assert!(!ended.stderr.contains('\x1b'), "something is coloured: {ended:#?}");
    ended
}

/// Returns the text behind a lead. Its further lines, such as a command to copy, are indented.
fn told_behind(stderr: &str, lead: &str) -> Option<String> {
    let indent = " ".repeat(lead.len());
    let mut lines = stderr.lines().skip_while(|line| !line.starts_with(lead));
    let first = lines.next()?.strip_prefix(lead)?;
    let further = lines.map_while(|line| line.strip_prefix(&indent));
    Some([first].into_iter().chain(further).collect::<Vec<_>>().join("\n"))
}

/// The same with `--json`: what a program reads is what a person reads.
pub(crate) fn assert_fails_as_json(command: &mut Command, code: i32, words: &[&str]) {
    let ended = assert_fails(command.arg("--json"), code, words);
    let report = ended.json();
    assert_eq!((&report["schema_version"], &report["exit_code"]), (&1.into(), &code.into()), "{report:#}");
    let told = &report["error"];
    for (key, lead) in
        [("error", "error: "), ("cause", "cause: "), ("fix", "  fix: "), ("their_fix", "their fix: ")]
    {
        assert_eq!(
            told[key].as_str().map(str::to_owned),
            told_behind(&ended.stderr, lead),
            "{key}: {ended:#?}"
        );
    }
}
