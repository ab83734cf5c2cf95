//! The other side: a process that can be killed.

use std::env;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use farreach_testkit::{Device, example, wait_for};

/// Returns the host that the peer runs on: the other one if there are two.
pub(crate) fn far_host() -> &'static str {
    if is_alone() { "a" } else { "b" }
}

/// Returns `true` if this guest has one host only, so that both sides share its device.
pub(crate) fn is_alone() -> bool {
    env::var("FARREACH_TOPOLOGY").expect("a guest sets its topology") == "one"
}

/// Returns the peer's address.
pub(crate) fn far_address() -> [u8; 4] {
    if is_alone() { Device::find().address.octets() } else { [192, 0, 2, 2] }
}

/// Returns `true` if the other host is another machine, so that commands to it go over the network.
fn is_far_machine() -> bool {
    env::var("FARREACH_TOPOLOGY").is_ok_and(|topology| topology == "guest-a")
}

/// A running `blast`. It is killed on drop if it still runs.
pub(crate) struct Peer {
    child: Child,
}

/// Records its process id, because `host` may start it on another machine, and replaces itself by
/// the program.
const NOTE_AND_BECOME: &str = r#"echo $$ > /tmp/farreach-peer.pid && exec "$@""#;
const HOLD: &str = "kill -STOP $(cat /tmp/farreach-peer.pid)";
const KILL: &str = "kill -KILL $(cat /tmp/farreach-peer.pid)";

impl Peer {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let mut command = on_far_host(&["sh", "-c", NOTE_AND_BECOME, "sh"]);
        let command =
            command.arg(example("blast")).args(arguments).stdin(Stdio::null()).stdout(Stdio::null());
        // Its messages at its end are irrelevant.
        let child =
            command.stderr(Stdio::null()).spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        Self { child }
    }

    /// Sends SIGKILL. When it returns, the kernel has closed all files of the peer. Returns the
    /// time before the signal; for another machine, which commands reach after seconds, the time
    /// after it.
    #[track_caller]
    pub(crate) fn kill(mut self) -> Instant {
        let start = Instant::now();
        let status = on_far_host(&["sh", "-c", KILL]).status().expect("host, which every guest has");
        assert!(status.success(), "the peer is not killed: {status}");
        self.wait_end();
        if is_far_machine() { Instant::now() } else { start }
    }

    /// Sends SIGSTOP: the process can then only be killed.
    #[track_caller]
    pub(crate) fn hold(&self) {
        let status = on_far_host(&["sh", "-c", HOLD]).status().expect("host, which every guest has");
        assert!(status.success(), "the peer is not held: {status}");
    }

    /// Waits for its end.
    pub(crate) fn wait_end(&mut self) {
        wait_for("end of the peer", || (!self.is_running()).then_some(()));
    }

    fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("a child can be waited for").is_none()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        if self.is_running() {
            // It may end by itself in the meantime.
            let _ = on_far_host(&["sh", "-c", KILL]).stdout(Stdio::null()).stderr(Stdio::null()).status();
            self.wait_end();
        }
    }
}

/// Returns a command that runs on the peer's host.
pub(crate) fn on_far_host(words: &[&str]) -> Command {
    let mut command = Command::new("host");
    command.arg(far_host()).args(words);
    command
}
