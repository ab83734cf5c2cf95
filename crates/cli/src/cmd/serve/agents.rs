//! Starts, limits and ends the agents of a server.
//!
//! An agent limits itself when it starts ([`crate::agent`]). The server ends an agent that uses more
//! memory or threads than it may, and one that goes on although its client is gone or its time is over:
//! it may be stopped, or hang in a library. The server keeps the client's connection open to notice its end,
//! and does not read from it.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use farreach::Origin;
use rustix::process::{Pid, Signal, kill_process};

use crate::agent::{self, WITHOUT_TEST};
use crate::cmd::THIS_PROGRAM;
use crate::exit::Exit;
use crate::handover::{self, FromAgent};
use crate::rails::Wish;
use crate::session::Security;
use crate::{terminal, units};

/// How long agents may take to disconnect from their clients when the server ends.
const GOODBYE: Duration = Duration::from_secs(3);

/// How long an agent may take to end when its client is gone. It notices that itself, within some
/// seconds at most.
const ENDS_WITHIN: Duration = Duration::from_secs(10);

/// How long an agent may take to end when it was told to.
const KILLED_AFTER: Duration = Duration::from_secs(3);

/// How long an agent counts as starting. One that takes longer does not delay others.
const STARTS_WITHIN: Duration = Duration::from_secs(10);

/// The interval at which the use of memory and threads is read.
const WATCH_EVERY: Duration = Duration::from_secs(1);

/// The interval at which an agent that is about to end is waited for.
pub(super) const REAP_EVERY: Duration = Duration::from_millis(10);

/// Memory that an agent may use beyond twice that of its order. The memory of an order is an
/// estimate, libraries differ, and a rail that is made anew has its buffers twice for a moment.
const MEMORY_SLACK: u64 = 256 << 20;

/// The threads of an agent. Nothing in an order makes more of them; libraries have some dozen.
const THREADS_MAX: u64 = 512;

/// The agents, by the number of their connection.
#[derive(Debug)]
pub(super) struct Agents {
    rails: Vec<String>,
    gid_index: Option<u32>,
    shm_dir: Option<PathBuf>,
    security: Security,
    /// The longest time of a test.
    test_time: Duration,
    running: HashMap<u64, Agent>,
    /// The number of agents, and their memory, by origin. Invariant: the sums over `running`.
    used: HashMap<Origin, Used>,
    /// Processes that got no order, and have to be waited for.
    abandoned: Vec<Child>,
    watched_at: Instant,
}

/// What the agents of one origin use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Used {
    count: usize,
    memory: u64,
}

#[derive(Debug)]
struct Agent {
    child: Child,
    /// The server's end of the socket to the agent.
    control: OwnedFd,
    connection: TcpStream,
    client: SocketAddr,
    origin: Origin,
    /// The memory of its order.
    memory: u64,
    started: Instant,
    is_starting: bool,
    /// When it has closed its socket: it ends, and has to be waited for.
    is_ending: bool,
    /// When its client has left.
    client_gone: Option<Instant>,
    /// When it was told to end.
    told_to_end: Option<Instant>,
    is_killed: bool,
}

/// An agent that is to be started.
#[derive(Debug)]
pub(super) struct NewAgent {
    child: Child,
    control: OwnedFd,
    memory: u64,
}

impl Agents {
    pub(super) fn new(
        rails: Vec<String>,
        gid_index: Option<u32>,
        shm_dir: Option<PathBuf>,
        security: Security,
        test_time: Duration,
    ) -> Self {
        Self {
            rails,
            gid_index,
            shm_dir,
            security,
            test_time,
            running: HashMap::new(),
            used: HashMap::new(),
            abandoned: Vec::new(),
            watched_at: Instant::now(),
        }
    }

    /// Returns what the agents offer.
    pub(super) fn offers(&self) -> Wish {
        Wish::offered(&self.rails, self.shm_dir.as_deref())
    }

    /// Returns the rails that the agents offer.
    pub(super) fn rails(&self) -> &[String] {
        &self.rails
    }

    pub(super) fn count(&self) -> usize {
        self.running.len()
    }

    pub(super) fn count_of(&self, origin: Origin) -> usize {
        self.used.get(&origin).map_or(0, |used| used.count)
    }

    /// Returns the number of agents that are starting.
    pub(super) fn starting(&self) -> usize {
        self.running.values().filter(|agent| agent.is_starting).count()
    }

    /// Returns the memory of all agents.
    pub(super) fn memory(&self) -> u64 {
        self.used.values().fold(0, |sum, used| sum.saturating_add(used.memory))
    }

    /// Returns the memory of the agents of an origin.
    pub(super) fn memory_of(&self, origin: Origin) -> u64 {
        self.used.get(&origin).map_or(0, |used| used.memory)
    }

    /// Starts an agent that may use this much memory. It waits for its order.
    pub(super) fn start(&self, memory: u64) -> io::Result<NewAgent> {
        let (control, theirs) = handover::pair()?;
        let mut command = Command::new(THIS_PROGRAM);
        command.arg("agent").arg("--rails").arg(self.rails.join(","));
        command.arg("--server").arg(std::process::id().to_string());
        command.arg("--memory").arg(memory.to_string());
        command.arg("--test-time").arg(self.test_time.as_secs_f64().to_string());
        if let Some(index) = self.gid_index {
            command.arg("--gid-index").arg(index.to_string());
        }
        if let Some(path) = &self.shm_dir {
            command.arg("--shm-dir").arg(path);
        }
        // The environment, which may have the secret, is inherited.
        command.args(self.security.flags());
        limit_receives(&mut command, std::env::var_os(RECEIVES).is_some());
        let child = command.stdin(Stdio::from(theirs)).stdout(Stdio::null()).spawn()?;
        Ok(NewAgent { child, control, memory })
    }

    /// Hands an order and its connection to an agent that was started. Returns the descriptors to
    /// watch: the agent's socket, and the client's connection.
    pub(super) fn hand_over(
        &mut self,
        number: u64,
        new: NewAgent,
        order: &[u8],
        connection: TcpStream,
        (client, origin): (SocketAddr, Origin),
    ) -> io::Result<(BorrowedFd<'_>, BorrowedFd<'_>)> {
        let NewAgent { child, control, memory } = new;
        let handed = handover::send_order(&control, order, &connection);
        let used = self.used.entry(origin).or_default();
        (used.count, used.memory) = (used.count + 1, used.memory.saturating_add(memory));
        // An agent without an order ends by itself, and has to be waited for all the same.
        let agent = self.running.entry(number).insert_entry(Agent {
            child,
            control,
            connection,
            client,
            origin,
            memory,
            started: Instant::now(),
            is_starting: true,
            is_ending: false,
            client_gone: None,
            told_to_end: None,
            is_killed: false,
        });
        handed?;
        let agent = agent.into_mut();
        Ok((agent.control.as_fd(), agent.connection.as_fd()))
    }

    /// Abandons an agent whose client has left before it got the order.
    pub(super) fn abandon(&mut self, mut new: NewAgent) {
        // It has no order, so nothing is lost.
        let _ = new.child.kill();
        self.abandoned.push(new.child);
    }

    /// Reads the message of an agent. Returns its socket if the agent ends.
    pub(super) fn hear(&mut self, number: u64) -> Option<BorrowedFd<'_>> {
        let agent = self.running.get_mut(&number)?;
        match handover::recv_from_agent(&agent.control) {
            FromAgent::Opened => agent.is_starting = false,
            FromAgent::End => {
                agent.is_ending = true;
                return Some(agent.control.as_fd());
            }
            FromAgent::Nothing => {}
        }
        None
    }

    /// Records that the client of an agent has left.
    pub(super) fn client_gone(&mut self, number: u64) {
        if let Some(agent) = self.running.get_mut(&number) {
            agent.client_gone.get_or_insert_with(Instant::now);
        }
    }

    /// Returns whether an agent is about to end, and has to be waited for.
    pub(super) fn are_ending(&self) -> bool {
        !self.abandoned.is_empty() || self.running.values().any(|agent| agent.is_ending)
    }

    /// Removes the agents that have ended. Returns the result of one that had begun a test.
    pub(super) fn reap(&mut self) -> Option<Exit> {
        let mut ended = None;
        self.abandoned.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
        let used = &mut self.used;
        self.running.retain(|_, agent| {
            let status = match agent.child.try_wait() {
                Ok(None) => return true,
                Ok(Some(status)) => Some(status),
                Err(_) => None,
            };
            used.retain(|origin, used| {
                if *origin == agent.origin {
                    (used.count, used.memory) = (used.count - 1, used.memory.saturating_sub(agent.memory));
                }
                used.count > 0
            });
            if let Some(status) = status {
                tell_crash(agent, status);
                if status.code() != Some(WITHOUT_TEST.code().into()) {
                    ended = Some(if status.success() { Exit::Ok } else { Exit::Failed });
                }
            }
            false
        });
        ended
    }

    /// Ends agents that use more than they may, or that go on without a client or beyond their time.
    pub(super) fn watch(&mut self, now: Instant) {
        let time = agent::time_of(self.test_time).saturating_add(ENDS_WITHIN);
        let is_due = now.saturating_duration_since(self.watched_at) >= WATCH_EVERY;
        if is_due {
            self.watched_at = now;
        }
        for agent in self.running.values_mut() {
            if is_due {
                agent.is_starting &= now.saturating_duration_since(agent.started) < STARTS_WITHIN;
                agent.limit(MEMORY_SLACK);
            }
            agent.end_in_time(now, time);
        }
    }

    /// Ends all agents: in order, or by force if they take too long.
    pub(super) fn end(&mut self) {
        for agent in self.running.values() {
            agent.signal(Signal::TERM);
        }
        let deadline = Instant::now() + GOODBYE;
        while !self.running.is_empty() && Instant::now() < deadline {
            let _ = self.reap();
            thread::sleep(REAP_EVERY);
        }
        for agent in self.running.values_mut() {
            agent.kill("it did not end with the server");
        }
        // A process that is blocked in the kernel cannot even be killed at once.
        let deadline = Instant::now() + KILLED_AFTER;
        while !self.running.is_empty() && Instant::now() < deadline {
            let _ = self.reap();
            thread::sleep(REAP_EVERY);
        }
    }
}

impl Agent {
    /// Kills the agent if it uses more than it may, and logs the reason.
    fn limit(&mut self, memory_slack: u64) {
        if self.is_killed {
            return;
        }
        // An agent that has just ended has no file, or one without memory.
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap_or_default();
        let memory_max = self.memory.saturating_mul(2).saturating_add(memory_slack);
        if let Some(reason) = Usage::parse(&stat).and_then(|usage| usage.excess(memory_max)) {
            self.kill(&reason);
        }
    }

    /// Ends the agent if its client is gone or if this time is over, by a signal first and by force then.
    fn end_in_time(&mut self, now: Instant, time: Duration) {
        let is_over = |since: Option<Instant>, time: Duration| {
            since.is_some_and(|since| now.saturating_duration_since(since) >= time)
        };
        if self.is_killed {
            return;
        }
        let (is_left, is_late) = (is_over(self.client_gone, ENDS_WITHIN), is_over(Some(self.started), time));
        if self.told_to_end.is_none() && (is_left || is_late) {
            self.told_to_end = Some(now);
            self.signal(Signal::TERM);
        } else if is_over(self.told_to_end, KILLED_AFTER) && is_left {
            let seconds = (ENDS_WITHIN + KILLED_AFTER).as_secs();
            self.kill(&format!("its client was gone for {seconds} s, and it did not end"));
        } else if is_over(self.told_to_end, KILLED_AFTER) {
            self.kill("the time of its test was over (--test-time), and it did not end");
        }
    }

    fn kill(&mut self, reason: &str) {
        terminal::log(&format!("{}: the agent was killed: {reason}", self.client));
        self.is_killed = true;
        // It may have ended already.
        let _ = self.child.kill();
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = Pid::from_raw(self.child.id() as i32) {
            // It may have ended already.
            let _ = kill_process(pid, signal);
        }
    }
}

/// What a process uses.
#[derive(Debug, PartialEq, Eq)]
struct Usage {
    threads: u64,
    /// Memory in use, in bytes.
    memory: u64,
}

impl Usage {
    /// Reads the line of `/proc/PID/stat` (proc(5)).
    fn parse(stat: &str) -> Option<Self> {
        // The name of the program may contain spaces and parentheses.
        let mut words = stat.rsplit_once(')')?.1.split_whitespace().skip(17);
        let threads = words.next()?.parse().ok()?;
        // Fields 21 to 23 are between them.
        let pages: u64 = words.nth(3)?.parse().ok()?;
        Some(Self { threads, memory: pages.saturating_mul(rustix::param::page_size() as u64) })
    }

    /// Describes what is more than an agent may use.
    fn excess(&self, memory_max: u64) -> Option<String> {
        if self.memory > memory_max {
            let (used, max) = (units::amount(self.memory), units::amount(memory_max));
            return Some(format!("it used {used} of memory; its order allows {max}"));
        }
        let is_crowd = self.threads > THREADS_MAX;
        is_crowd.then(|| format!("it had {} threads; {THREADS_MAX} are allowed", self.threads))
    }
}

/// Logs the crash of an agent. An agent logs any other end itself.
fn tell_crash(agent: &Agent, status: ExitStatus) {
    let client = agent.client;
    if agent.is_killed {
        return;
    }
    if let Some(signal) = status.signal() {
        terminal::log(&format!("{client}: the agent was killed by signal {signal}"));
    } else if status.code() == Some(PANICKED) {
        terminal::log(&format!("{client}: the agent panicked, which is a defect of farreach"));
    }
}

/// The exit code of a Rust program that panicked.
const PANICKED: i32 = 101;

/// The variable with the number of receives that libfabric's tcp lets an endpoint post.
const RECEIVES: &str = "FI_TCP_MAX_RX_SIZE";

/// Sets the number of receives of an endpoint, unless the user has. A rail posts at most 64. libfabric
/// 2.x allocates the default of 64 Ki for each link: 17 MB instead of 0.6 MB. Older releases ignore
/// the variable.
fn limit_receives(command: &mut Command, is_set: bool) {
    if !is_set {
        command.env(RECEIVES, "128");
    }
}

#[cfg(test)]
mod tests {
    use farreach::rails::fabric::FabricSettings;

    use super::*;

    #[test]
    fn the_usage_of_a_process_is_read_as_the_kernel_writes_it() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194304 103 0 0 0 12 30 0 0 20 0 5 0 99 1000000 250 18446744073709551615 1";
        let usage = Usage { threads: 5, memory: 250 * rustix::param::page_size() as u64 };
        assert_eq!(Usage::parse(stat), Some(usage));
        assert_eq!(Usage::parse(""), None);
        let own = Usage::parse(&fs::read_to_string("/proc/self/stat").unwrap()).expect("as above");
        assert!(own.threads >= 1 && own.memory > 1 << 20, "{own:?}");
    }

    #[test]
    fn usage_has_a_limit() {
        let usage = |memory, threads| Usage { threads, memory }.excess(1 << 30);
        assert_eq!(usage(1 << 30, THREADS_MAX), None, "at the limit");
        let excess = usage((1 << 30) + 1, 1).unwrap_or_default();
        assert!(excess.ends_with(&format!("its order allows {}", units::amount(1 << 30))), "{excess}");
        assert!(usage(0, THREADS_MAX + 1).is_some_and(|reason| reason.contains("it had 513 threads")));
    }

    /// An agent that is only a process.
    fn agent(command: &mut Command) -> Agent {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        Agent {
            child: command.spawn().unwrap(),
            control: handover::pair().unwrap().0,
            connection: TcpStream::connect(address).unwrap(),
            client: address,
            origin: Origin::Loopback,
            memory: 0,
            started: Instant::now(),
            is_starting: false,
            is_ending: false,
            client_gone: None,
            told_to_end: None,
            is_killed: false,
        }
    }

    #[test]
    fn an_agent_allocates_few_receives_unless_the_user_wants_more() {
        let of = |is_set| {
            let mut command = Command::new("true");
            limit_receives(&mut command, is_set);
            let envs =
                command.get_envs().filter_map(|(name, value)| Some((name.to_str()?, value?.to_str()?)));
            envs.map(|(name, value)| format!("{name}={value}")).collect::<Vec<String>>()
        };
        assert_eq!(of(false), ["FI_TCP_MAX_RX_SIZE=128"]);
        assert!(FabricSettings::default().receive_count <= 128);
        assert!(of(true).is_empty(), "it is inherited");
    }

    #[test]
    fn an_agent_that_uses_too_much_is_killed() {
        let mut agent = agent(Command::new("sleep").arg("60"));
        agent.limit(1 << 40);
        assert!(!agent.is_killed && matches!(agent.child.try_wait(), Ok(None)));
        // It is a process, and has some memory, as soon as it runs.
        while !agent.is_killed {
            agent.limit(0);
        }
        assert_eq!(agent.child.wait().unwrap().signal(), Some(9));
    }

    /// Time is an argument: nothing waits here.
    #[test]
    fn an_agent_without_a_client_is_told_to_end_and_then_killed() {
        let mut agent = agent(Command::new("sleep").arg("60"));
        agent.signal(Signal::STOP);
        // A process that has not stopped yet takes a later SIGTERM first.
        let status = format!("/proc/{}/status", agent.child.id());
        while !fs::read_to_string(&status).unwrap().contains("State:\tT") {
            thread::yield_now();
        }
        let (gone, moment) = (Instant::now(), Duration::from_millis(1));
        let time = 10 * ENDS_WITHIN;
        agent.end_in_time(agent.started + time - moment, time);
        assert_eq!(agent.told_to_end, None, "its client is there, and it has time");
        agent.client_gone = Some(gone);
        agent.end_in_time(gone + ENDS_WITHIN - moment, time);
        assert_eq!(agent.told_to_end, None);
        let told = gone + ENDS_WITHIN;
        agent.end_in_time(told, time);
        assert_eq!((agent.told_to_end, agent.is_killed), (Some(told), false));
        // The same at the end of its time.
        (agent.client_gone, agent.told_to_end) = (None, None);
        let told = agent.started + time;
        agent.end_in_time(told, time);
        assert_eq!((agent.told_to_end, agent.is_killed), (Some(told), false));
        agent.end_in_time(told + KILLED_AFTER - moment, time);
        assert!(!agent.is_killed && matches!(agent.child.try_wait(), Ok(None)), "it is stopped");
        agent.end_in_time(told + KILLED_AFTER, time);
        assert!(agent.is_killed);
        assert_eq!(agent.child.wait().unwrap().signal(), Some(9));
    }
}
