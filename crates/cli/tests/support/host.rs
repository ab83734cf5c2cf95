//! The hosts of a guest: `FARREACH_TOPOLOGY` tells which there are, and `host NAME COMMAND…` runs a command on one.

use std::env;
use std::process::Command;

use super::run::{Ended, FARREACH, end_of};

/// A host with an RDMA device of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Host(&'static str);

impl Host {
    /// Where this test runs.
    pub(crate) const HERE: Self = Self("a");

    /// Every host of this guest.
    pub(crate) fn all() -> &'static [Self] {
        match env::var("FARREACH_TOPOLOGY").as_deref() {
            Ok("one") => &[Self("a")],
            Ok("two" | "guest-a") => &[Self("a"), Self("b")],
            other => panic!("FARREACH_TOPOLOGY is {other:?}: cargo xtask vm test runs this test in a guest"),
        }
    }

    /// Whether it is on the machine that this test runs on: then it has the same files and processes.
    pub(crate) fn is_this_machine(self) -> bool {
        self == Self::HERE || env::var("FARREACH_TOPOLOGY").as_deref() != Ok("guest-a")
    }

    /// A command there.
    pub(crate) fn command(self, words: &[&str]) -> Command {
        let mut command = Command::new("host");
        command.arg(self.0).args(words);
        command
    }

    /// Runs a command there, to its end.
    pub(crate) fn run(self, words: &[&str]) -> Ended {
        end_of(&mut self.command(words))
    }

    /// What a command prints there; it must succeed.
    pub(crate) fn output(self, words: &[&str]) -> String {
        let ended = self.run(words);
        assert_eq!(ended.code, Some(0), "{words:?} on host {}: {ended:#?}", self.0);
        ended.stdout
    }

    /// What the command under test prints there; it must succeed.
    pub(crate) fn farreach(self, words: &[&str]) -> String {
        self.output(&[&[FARREACH], words].concat())
    }
}
