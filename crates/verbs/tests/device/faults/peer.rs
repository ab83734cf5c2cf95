//! The other side: a process that can be killed.

use std::env;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use farreach_testkit::{Device, example, wait_for};

/// The host that the peer runs on: the other one where there are two.
pub(crate) fn far_host() -> &'static str {
    if is_alone() { "a" } else { "b" }
}

/// Whether this guest has one host only, so that both sides share its device.
pub(crate) fn is_alone() -> bool {
    env::var("FARREACH_TOPOLOGY").expect("a guest tells its topology") == "one"
}

/// The peer's address.
pub(crate) fn far_address() -> [u8; 4] {
    if is_alone() { Device::find().address.octets() } else { [192, 0, 2, 2] }
}

/// Whether the other host is another machine, so that orders to it go over the network.
fn is_far_machine() -> bool {
    env::var("FARREACH_TOPOLOGY").is_ok_and(|topology| topology == "guest-a")
}

/// `blast`, running. It is killed at the end, if it still runs.
pub(crate) struct Peer {
    child: Child,
}

/// Notes its process id, which `host` may have started by way of another machine, and becomes the program.
const NOTE_AND_BECOME: &str = r#"echo $$ > /tmp/farreach-peer.pid && exec "$@""#;
const HOLD: &str = "kill -STOP $(cat /tmp/farreach-peer.pid)";
const KILL: &str = "kill -KILL $(cat /tmp/farreach-peer.pid)";

impl Peer {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let mut command = on_far_host(&["sh", "-c", NOTE_AND_BECOME, "sh"]);
        let command =
            command.arg(example("blast")).args(arguments).stdin(Stdio::null()).stdout(Stdio::null());
        // What it says of its end is no news.
        let child =
            command.stderr(Stdio::null()).spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        Self { child }
    }

    /// SIGKILL. When it returns, the kernel has closed all that the peer had open. Tells when that began, or, of another machine, which
    /// orders reach after seconds, when it was over.
    #[track_caller]
    pub(crate) fn kill(mut self) -> Instant {
        let start = Instant::now();
        let status = on_far_host(&["sh", "-c", KILL]).status().expect("host, which every guest has");
        assert!(status.success(), "the peer is not killed: {status}");
        self.wait_end();
        if is_far_machine() { Instant::now() } else { start }
    }

    /// SIGSTOP: it does nothing more but be killed.
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

/// A command on the peer's host.
pub(crate) fn on_far_host(words: &[&str]) -> Command {
    let mut command = Command::new("host");
    command.arg(far_host()).args(words);
    command
}
