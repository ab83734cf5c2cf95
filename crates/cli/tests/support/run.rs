//! Runs a command and keeps all that came of it.

use std::process::{Command, Output};

use serde_json::Value;

/// The command under test.
pub(crate) const FARREACH: &str = env!("CARGO_BIN_EXE_farreach");

/// A command that has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// None if a signal ended it: a crash.
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    pub(crate) fn of(output: Output) -> Self {
        let Output { status, stdout, stderr } = output;
        let text = |bytes| String::from_utf8(bytes).expect("output is UTF-8");
        Self { code: status.code(), stdout: text(stdout), stderr: text(stderr) }
    }

    /// What was printed, as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("not JSON: {error}\n{self:#?}"))
    }
}

/// Runs the command to its end.
pub(crate) fn end_of(command: &mut Command) -> Ended {
    let ended = Ended::of(command.output().unwrap_or_else(|error| panic!("cannot run {command:?}: {error}")));
    assert!(!ended.stderr.contains("panicked at"), "{command:?} panicked: {ended:#?}");
    ended
}
