//! Reads a host into a [`Pack`]. It changes nothing, and records no secrets.
//!
//! It reads files by their patterns and queries the kernel by netlink. A [`Runner`] does everything
//! that may hang or crash the process, or that starts one: the two libraries, the programs that
//! list firewall rules, and transfers.

mod acs;
mod counters;
mod dcb;
mod errno;
mod fabric;
mod firewall;
#[cfg(feature = "fuzz")]
#[doc(hidden)]
pub mod fuzz;
mod netlink;
mod nodes;
mod patterns;
mod rdma;
mod runner;
mod shm;
mod sysfs;
mod verbs;
mod walk;

use std::collections::BTreeMap;
use std::fs;
use std::thread;
use std::time::SystemTime;

use farreach_verbs::gid::Interfaces;

use crate::pack::{Entry, Pack};
use crate::probes::{NetInterface, Probes, Reading, Verbs};

pub use runner::{InProcess, ProgramError, Runner};
pub use shm::shm;

/// Reads everything that the checks need from this host.
///
/// Takes about a second if there is an RDMA device, plus the time of `runner`'s transfers.
pub fn host(runner: &impl Runner) -> Pack {
    let now = SystemTime::now();
    let (files, probes) = read(runner);
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let looked_for = patterns::PATTERNS.iter().map(|pattern| (*pattern).to_owned()).collect();
    Pack::new(name.trim(), now, looked_for, files, probes)
}

/// Runs the slow readings concurrently: counters take a second, and libraries enumerate devices.
/// Transfers come last, while nothing else runs.
fn read(runner: &impl Runner) -> (BTreeMap<String, Entry>, Probes) {
    // Before the libraries, or their trial objects would be counted.
    let (system, resources) = (rdma::system(), rdma::resources());
    let (files, mut probes) = thread::scope(|scope| {
        let counters = scope.spawn(counters::growth);
        let verbs = scope.spawn(|| runner.verbs());
        let fabric = scope.spawn(|| runner.fabric());
        let shm = scope.spawn(|| runner.shm());
        let firewall = scope.spawn(|| firewall::read(runner));
        let files = walk::read(patterns::PATTERNS);
        let probes = Probes {
            rdma_netlink: rdma::has_netlink(),
            resources,
            nodes: nodes::read(),
            interfaces: interfaces(),
            dcb: dcb::read(),
            acs: acs::read(),
            firewall: joined(firewall.join()),
            verbs: with_fork(joined(verbs.join()), system.as_ref().ok()),
            rdma_namespaces: system.map(|system| system.namespaces).into(),
            fabric: joined(fabric.join()),
            shm: joined(shm.join()),
            counters_growth: joined(counters.join()),
            transfers: Reading::default(),
        };
        (files, probes)
    });
    probes.transfers = runner.transfers();
    (files, probes)
}

/// Returns what a thread has read, or `Unread` if it panicked.
fn joined<T>(reading: thread::Result<Reading<T>>) -> Reading<T> {
    reading.unwrap_or_else(|_| {
        Reading::Unread("a defect of farreach: it panicked while reading this; please report it".to_owned())
    })
}

fn with_fork(verbs: Reading<Verbs>, system: Option<&rdma::System>) -> Reading<Verbs> {
    match verbs {
        Reading::Read(verbs) => {
            Reading::Read(Verbs { is_fork_safe: system.map(|system| system.copies_on_fork), ..verbs })
        }
        unread => unread,
    }
}

fn interfaces() -> Reading<Vec<NetInterface>> {
    let all: Vec<NetInterface> = Interfaces::of_this_namespace()
        .iter()
        .map(|it| NetInterface { name: it.name.clone(), is_up: it.is_up, addresses: it.addresses.clone() })
        .collect();
    // Every network namespace has a loopback interface.
    if all.is_empty() {
        Reading::Unread("getifaddrs(3) lists no net device".to_owned())
    } else {
        Reading::Read(all)
    }
}
