//! Reads a host: nothing is changed, and no secret is kept. Files by their patterns, the kernel by netlink, and the libraries by a process of their own.

mod acs;
mod counters;
mod dcb;
mod firewall;
mod netlink;
mod nodes;
mod patterns;
mod rdma;
mod walk;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use farreach_verbs::gid::Interfaces;
use nix::errno::Errno;

use super::examine;
use super::pack::{Entry, Pack, SCHEMA_VERSION};
use super::probes::{NetInterface, Probes, Reading, Trial, Verbs};
use crate::session::host_name;

/// Everything that the checks look at, of this host; but for transfers, where there is a reason to leave them out.
pub(crate) fn host(without_transfers: Option<&str>) -> Pack {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let (files, probes) = read(without_transfers);
    Pack {
        schema_version: SCHEMA_VERSION,
        farreach: env!("CARGO_PKG_VERSION").to_owned(),
        host: host_name(),
        recorded_unix_seconds: now.as_secs(),
        constructed: None,
        looked_for: patterns::PATTERNS.iter().map(|pattern| (*pattern).to_owned()).collect(),
        files,
        probes,
    }
}

/// What takes time is done at once: counters need a second, and libraries look around. Transfers come last, when nothing else runs.
fn read(without_transfers: Option<&str>) -> (BTreeMap<String, Entry>, Probes) {
    // First, or what the libraries are tried with would be counted among it.
    let (system, resources) = (rdma::system(), rdma::resources());
    let (files, mut probes) = thread::scope(|scope| {
        let counters = scope.spawn(counters::growth);
        let verbs = scope.spawn(examine::verbs);
        let fabric = scope.spawn(examine::fabric);
        let firewall = scope.spawn(firewall::read);
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
            counters_growth: joined(counters.join()),
            transfers: Reading::LeftOut(without_transfers.unwrap_or_default().to_owned()),
        };
        (files, probes)
    });
    if without_transfers.is_none() {
        probes.transfers = transfers();
    }
    (files, probes)
}

/// What a thread has read; one that panicked has read nothing.
fn joined<T>(reading: thread::Result<Reading<T>>) -> Reading<T> {
    reading.unwrap_or_else(|_| Reading::Unread("it panicked while it was read: tell the authors".to_owned()))
}

fn with_fork(verbs: Reading<Verbs>, system: Option<&rdma::System>) -> Reading<Verbs> {
    match verbs {
        Reading::Read(verbs) => {
            Reading::Read(Verbs { is_fork_safe: system.map(|system| system.copies_on_fork), ..verbs })
        }
        unread => unread,
    }
}

/// One rail after the other, so that none is slowed by another.
fn transfers() -> Reading<BTreeMap<String, Trial>> {
    let rails = examine::rails();
    let attempt = |rail: examine::Rail| {
        let trial = rail.failed.unwrap_or_else(|| examine::transfer(&rail.name));
        (rail.name, trial)
    };
    rails.map(|rails| rails.into_iter().map(attempt).collect()).into()
}

fn interfaces() -> Reading<Vec<NetInterface>> {
    let all: Vec<NetInterface> = Interfaces::of_this_namespace()
        .iter()
        .map(|it| NetInterface { name: it.name.clone(), is_up: it.is_up, addresses: it.addresses.clone() })
        .collect();
    // Every namespace has a loopback.
    if all.is_empty() { Reading::Unread("getifaddrs(3) lists none".to_owned()) } else { Reading::Read(all) }
}

/// The folders of the RDMA devices that the kernel has.
fn rdma_devices() -> Vec<PathBuf> {
    const FOLDER: &str = "/sys/class/infiniband";
    names_in(FOLDER).into_iter().map(|name| Path::new(FOLDER).join(name)).collect()
}

/// The names in a folder, in order; none where there is no folder.
fn names_in(folder: impl AsRef<Path>) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort_unstable();
    names
}

/// `Permission denied (EACCES)`
fn errno_words(code: i32) -> String {
    let errno = Errno::from_raw(code);
    format!("{} ({errno:?})", errno.desc())
}
