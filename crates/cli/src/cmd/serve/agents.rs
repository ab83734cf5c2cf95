//! Starts, counts and waits for the agents of a server.

use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::agent::WITHOUT_ORDER;
use crate::cmd::THIS_PROGRAM;
use crate::exit::Exit;
use crate::session::Security;
use crate::terminal;

/// How long agents may take to disconnect from their clients.
const GOODBYE: Duration = Duration::from_secs(3);

#[derive(Debug)]
pub(super) struct Agents {
    rails: Vec<String>,
    gid_index: Option<u32>,
    security: Security,
    running: Vec<(Child, SocketAddr)>,
    /// When the last agent was started.
    started: Option<Instant>,
}

/// The time within which a client sends its order. A port scan disconnects at once.
const NEW: Duration = Duration::from_millis(500);

impl Agents {
    pub(super) fn new(rails: Vec<String>, gid_index: Option<u32>, security: Security) -> Self {
        Self { rails, gid_index, security, running: Vec::new(), started: None }
    }

    pub(super) fn count(&self) -> usize {
        self.running.len()
    }

    /// Returns whether an agent is running of which it is not yet known whether it has a client.
    pub(super) fn are_new(&self) -> bool {
        !self.running.is_empty() && self.started.is_some_and(|at| at.elapsed() < NEW)
    }

    /// Starts an agent for this client.
    pub(super) fn start(&mut self, stream: TcpStream, client: SocketAddr) {
        self.started = Some(Instant::now());
        let mut command = Command::new(THIS_PROGRAM);
        command.arg("agent").arg("--rails").arg(self.rails.join(","));
        if let Some(index) = self.gid_index {
            command.arg("--gid-index").arg(index.to_string());
        }
        command.args(self.security.flags());
        // Ctrl-C in a terminal reaches the whole process group. The server signals its agents
        // itself, once.
        command.process_group(0);
        match command.stdin(Stdio::from(OwnedFd::from(stream))).stdout(Stdio::null()).spawn() {
            Ok(child) => self.running.push((child, client)),
            Err(error) => terminal::log(&format!("{client}: cannot start an agent: {error}")),
        }
    }

    /// Removes the agents that have ended. Returns the result of one that had an order.
    pub(super) fn reap(&mut self) -> Option<Exit> {
        let mut ended = None;
        self.running.retain_mut(|(child, client)| match child.try_wait() {
            Ok(None) => true,
            Ok(Some(status)) => {
                tell_crash(*client, status);
                if status.code() != Some(WITHOUT_ORDER.code().into()) {
                    ended = Some(if status.success() { Exit::Ok } else { Exit::Failed });
                }
                false
            }
            Err(_) => false,
        });
        ended
    }

    /// Ends all agents: in order, or by force if they take too long.
    pub(super) fn end(&mut self) {
        for (child, _) in &self.running {
            if let Some(pid) = Pid::from_raw(child.id() as i32) {
                // It may have ended already.
                let _ = kill_process(pid, Signal::TERM);
            }
        }
        let deadline = Instant::now() + GOODBYE;
        while !self.running.is_empty() && Instant::now() < deadline {
            let _ = self.reap();
            thread::sleep(Duration::from_millis(10));
        }
        for (child, client) in &mut self.running {
            terminal::log(&format!("{client}: the agent did not exit and was killed"));
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Logs the crash of an agent. An agent logs any other end itself.
fn tell_crash(client: SocketAddr, status: ExitStatus) {
    if let Some(signal) = status.signal() {
        terminal::log(&format!("{client}: the agent was killed by signal {signal}"));
    }
}
