//! The budgets of a server: what clients may use of it, in all and from one origin.

use std::fs;
use std::thread;
use std::time::Duration;

use clap::builder::RangedU64ValueParser;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::agent::AGENT_BYTES;
use crate::terminal;
use crate::units::{self, parse};

/// The budgets, as typed.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Budgets")]
pub(super) struct BudgetArgs {
    /// Clients served at once; more wait in a queue. One address may have three quarters of each budget
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = at_least_one())]
    clients_max: usize,

    /// Clients in the queue; more are refused
    #[arg(long, value_name = "N", default_value_t = 1024)]
    queue_max: usize,

    /// Time that a client may wait in the queue
    #[arg(long, value_name = "SECONDS", default_value = "300", value_parser = parse::seconds_of)]
    queue_time: Duration,

    /// Longest test. One that asks for more is refused; one that takes longer is ended
    #[arg(long, value_name = "SECONDS", default_value = "300", value_parser = parse::seconds_of)]
    test_time: Duration,

    /// Connections that have sent no order yet; if there are more, the oldest are closed
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = at_least_one())]
    handshakes_max: usize,

    /// Time in which a connection must have sent its order
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = parse::seconds_of)]
    handshake_time: Duration,

    /// Memory of all clients together; by default three quarters of the memory of this host
    #[arg(long, value_name = "BYTES", value_parser = parse::size_of)]
    memory_max: Option<u64>,
}

fn at_least_one() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..)
}

/// The budgets in effect.
#[derive(Debug, Clone)]
pub(super) struct Budget {
    pub(super) clients_max: usize,
    pub(super) queue_max: usize,
    pub(super) queue_time: Duration,
    pub(super) test_time: Duration,
    pub(super) handshakes_max: usize,
    pub(super) handshake_time: Duration,
    pub(super) memory_max: u64,
    /// The number of agents that may be starting at the same time.
    pub(super) starting_max: usize,
    /// Descriptors of the process, and of these the part for clients with an order.
    pub(super) descriptors_max: usize,
    descriptors_of_clients: usize,
}

/// Descriptors that are not for clients: standard streams, listener, epoll, and those of a process
/// that is being started. Twelve are in use.
const DESCRIPTORS_RESERVED: usize = 32;

/// The server's descriptors for each agent: the client's connection, and the socket to the agent.
const DESCRIPTORS_PER_AGENT: usize = 2;

/// The part of the descriptors that connections without an order may have, as a divisor.
const HANDSHAKES_PART: usize = 4;

/// The number of descriptors beyond which the limit is not raised: more than all budgets need.
const DESCRIPTORS_ENOUGH: u64 = 16_384;

/// The memory of a host whose size cannot be read.
const MEMORY_UNKNOWN: u64 = 4 << 30;

impl Budget {
    /// Returns the budgets in effect, and raises the limit on descriptors as far as it may. Logs
    /// what this host does not allow.
    pub(super) fn new(args: &BudgetArgs, is_for_one: bool) -> Self {
        let memory_max = args.memory_max.unwrap_or_else(|| share(memory_of_host()));
        let budget = Self::within(args, is_for_one, raise_descriptors(), memory_max);
        if !is_for_one && budget.clients_max < args.clients_max {
            terminal::log(&format!(
                "at most {} clients are served at once instead of {}: this process may have {} descriptors",
                budget.clients_max, args.clients_max, budget.descriptors_max
            ));
        }
        if budget.memory_of_origin() < AGENT_BYTES {
            terminal::log(&format!(
                "no client can be served: --memory-max {} is less than an agent needs",
                units::amount(memory_max)
            ));
        }
        budget
    }

    /// Returns the budgets of a process with this many descriptors.
    fn within(args: &BudgetArgs, is_for_one: bool, descriptors_max: usize, memory_max: u64) -> Self {
        let usable = descriptors_max.saturating_sub(DESCRIPTORS_RESERVED);
        let handshakes_max = args.handshakes_max.min(usable / HANDSHAKES_PART).max(1);
        let descriptors_of_clients = usable.saturating_sub(handshakes_max);
        let clients_max = args.clients_max.min(descriptors_of_clients / DESCRIPTORS_PER_AGENT);
        let cores = thread::available_parallelism().map_or(1, usize::from);
        Self {
            clients_max: if is_for_one { 1 } else { clients_max },
            queue_max: if is_for_one { 0 } else { args.queue_max },
            queue_time: args.queue_time,
            test_time: args.test_time,
            handshakes_max,
            handshake_time: args.handshake_time,
            memory_max,
            starting_max: (2 * cores).max(4),
            descriptors_max,
            descriptors_of_clients,
        }
    }

    /// Returns the number of clients of one origin that are served at once.
    pub(super) fn clients_of_origin(&self) -> usize {
        share(self.clients_max as u64) as usize
    }

    /// Returns the number of clients of one origin that may wait.
    pub(super) fn queue_of_origin(&self) -> usize {
        share(self.queue_max as u64) as usize
    }

    /// Returns the number of connections of one origin without an order.
    pub(super) fn handshakes_of_origin(&self) -> usize {
        share(self.handshakes_max as u64) as usize
    }

    /// Returns the memory of the clients of one origin.
    pub(super) fn memory_of_origin(&self) -> u64 {
        share(self.memory_max)
    }

    /// Returns whether there are descriptors for one more waiting client. One is left over, so that
    /// an agent can always be started.
    pub(super) fn has_descriptor(&self, waiting: usize, agents: usize) -> bool {
        waiting + 2 + DESCRIPTORS_PER_AGENT * agents <= self.descriptors_of_clients
    }

    /// Returns whether there are descriptors to start agents for `count` of the waiting clients.
    pub(super) fn has_descriptors_to_start(&self, waiting: usize, agents: usize, count: usize) -> bool {
        waiting + DESCRIPTORS_PER_AGENT * agents + count <= self.descriptors_of_clients
    }
}

/// Returns three quarters, and at least one. One origin may have this part of a budget, so that
/// something is left for others.
fn share(budget: u64) -> u64 {
    budget - budget / 4
}

/// Raises the limit on descriptors to the hard limit, and returns it.
fn raise_descriptors() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.unwrap_or(DESCRIPTORS_ENOUGH).min(DESCRIPTORS_ENOUGH);
    let current = limit.current.unwrap_or(DESCRIPTORS_ENOUGH);
    if current >= most {
        return current as usize;
    }
    let raised = setrlimit(Resource::Nofile, Rlimit { current: Some(most), maximum: limit.maximum });
    if raised.is_ok() { most as usize } else { current as usize }
}

/// Returns the memory of this host in bytes.
fn memory_of_host() -> u64 {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    memory_in(&meminfo).unwrap_or(MEMORY_UNKNOWN)
}

fn memory_in(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args() -> BudgetArgs {
        BudgetArgs {
            clients_max: 256,
            queue_max: 1024,
            queue_time: Duration::from_secs(300),
            test_time: Duration::from_secs(300),
            handshakes_max: 512,
            handshake_time: Duration::from_secs(10),
            memory_max: None,
        }
    }

    #[test]
    fn one_origin_has_three_quarters_and_never_nothing() {
        for (budget, part) in [(0, 0), (1, 1), (2, 2), (3, 3), (4, 3), (256, 192), (u64::MAX, 3 << 62)] {
            assert_eq!(share(budget), part, "{budget}");
        }
    }

    /// The descriptors of all clients and handshakes stay within the limit, with the reserve.
    #[test]
    fn descriptors_are_never_used_up() {
        for limit in [64, 256, 1024, 16_384] {
            let budget = Budget::within(&args(), false, limit, 0);
            let (mut waiting, mut agents) = (0, 0);
            // Clients come until none is admitted, and then agents are started until none can be.
            while budget.has_descriptor(waiting, agents) {
                waiting += 1;
            }
            assert!(waiting > 0 && budget.clients_max > 0, "{limit}");
            while agents < budget.clients_max
                && waiting > 0
                && budget.has_descriptors_to_start(waiting, agents, 1)
            {
                (waiting, agents) = (waiting - 1, agents + 1);
            }
            assert!(agents > 0, "{limit}: a full queue does not keep agents from being started");
            let used = budget.handshakes_max + waiting + DESCRIPTORS_PER_AGENT * agents;
            assert!(used + DESCRIPTORS_RESERVED <= limit, "{limit}: {used}");
        }
        let usual = Budget::within(&args(), false, 1024, 0);
        assert_eq!((usual.clients_max, usual.handshakes_max), (256, 248));
        // 256 clients can come at once, while few agents have been started.
        assert!(usual.has_descriptor(256, 8));
    }

    #[test]
    fn a_server_for_one_has_no_queue() {
        let budget = Budget::within(&args(), true, 1024, 0);
        assert_eq!((budget.clients_max, budget.clients_of_origin(), budget.queue_max), (1, 1, 0));
    }

    #[test]
    fn the_memory_of_a_host_is_read() {
        assert_eq!(memory_in("MemTotal:       24576 kB\nMemFree: 1 kB\n"), Some(24 << 20));
        assert_eq!(memory_in("MemFree: 1 kB\n"), None);
        assert_eq!(memory_in("MemTotal: 99999999999999999999 kB\n"), None);
    }
}
