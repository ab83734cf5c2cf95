//! Checks the processors: whether this process may run near each card, and the frequency governor.

use std::collections::BTreeMap;

use super::wire::{cards, device_path, or_hidden};
use crate::finding::{Answer, CommandLine, Finding, Fix};
use crate::pack::{Missing, Pack};

const NODES: &str = "/sys/devices/system/node";
const STATUS: &str = "/proc/self/status";

/// Checks whether this process may run on the NUMA node of each card.
pub(super) fn numa(pack: &Pack) -> Answer {
    let why_none = "no RDMA device is a PCI card";
    or_hidden(pack, Answer::of_each(cards(pack), why_none, |device| numa_of(pack, device).of(device)))
}

fn numa_of(pack: &Pack, device: &str) -> Finding {
    let nodes: Vec<&str> = pack.names(NODES).into_iter().filter(|name| node_number(name).is_some()).collect();
    let path = device_path(device, "device/numa_node");
    let node = match pack.text(&path) {
        Ok(node) => node,
        Err(Missing::Absent) if nodes.is_empty() => {
            return Finding::pass("the kernel has no NUMA nodes").read(path);
        }
        Err(missing) => return Finding::unread(&path, &missing),
    };
    if nodes.len() == 1 {
        return Finding::pass("the host has one NUMA node").read(NODES);
    }
    if node_number(&format!("node{node}")).is_none() {
        return Finding::unknown("the firmware does not report the card's NUMA node").read(path);
    }
    let cpus_path = format!("{NODES}/node{node}/cpulist");
    let near = match pack.text(&cpus_path) {
        Ok(text) => text,
        Err(missing) => return Finding::unread(&cpus_path, &missing),
    };
    let allowed = match allowed(pack) {
        Ok(text) => text,
        Err(missing) => return Finding::unread(STATUS, &missing),
    };
    let (Some(near_set), Some(allowed_set)) = (cpu_list(near), cpu_list(allowed)) else {
        return Finding::unknown(format!("cannot parse the CPU list \"{near}\" or \"{allowed}\""))
            .read(cpus_path);
    };
    let is_near = allowed_set.iter().any(|cpu| near_set.contains(cpu));
    let finding = if is_near {
        Finding::pass(format!("NUMA node {node}, CPUs {near}; this process may run there"))
    } else {
        Finding::warn(format!(
            "NUMA node {node}, CPUs {near}; this process may run only on CPUs {allowed}, so all data crosses between nodes"
        ))
        .fix(
            Fix::new("run the program on the card's node")
                .run(
                    CommandLine::new("numactl")
                        .arg(format!("--cpunodebind={node}"))
                        .arg(format!("--membind={node}"))
                        .shell("COMMAND"),
                ),
        )
        .fix(
            Fix::new("add this line to the section [Service] of the unit, and restart it")
                .at("systemd")
                .run(CommandLine::setting("CPUAffinity=", near, "")),
        )
        .fix(
            Fix::new("restrict the container to the card's node")
                .at("container")
                .run(
                    CommandLine::new("docker run")
                        .arg(format!("--cpuset-cpus={near}"))
                        .arg(format!("--cpuset-mems={node}"))
                        .shell("IMAGE"),
                ),
        )
    };
    finding.read(path).read(cpus_path).read(STATUS)
}

fn node_number(name: &str) -> Option<u32> {
    name.strip_prefix("node")?.parse().ok()
}

/// Returns the CPUs that this process may run on.
fn allowed(pack: &Pack) -> Result<&str, Missing> {
    let line = pack.text(STATUS)?.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    line.map(str::trim).ok_or_else(|| Missing::Unreadable("no line Cpus_allowed_list".to_owned()))
}

/// An upper bound on CPU numbers in Linux.
const CPUS_MAX: u32 = 8192;

/// Parses a list of CPUs: `0-3,8-11`.
fn cpu_list(text: &str) -> Option<Vec<u32>> {
    let mut cpus = Vec::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse::<u32>().ok()?, last.parse::<u32>().ok()?);
        if last > CPUS_MAX {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

/// Checks whether the processors run at full speed.
pub(super) fn governor(pack: &Pack) -> Answer {
    const CPUS: &str = "/sys/devices/system/cpu";
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for cpu in pack.names(CPUS) {
        let path = format!("{CPUS}/{cpu}/cpufreq/scaling_governor");
        match pack.text(&path) {
            Ok(governor) => *counts.entry(governor).or_default() += 1,
            Err(Missing::Absent) => {}
            Err(missing) => return Finding::unread(&path, &missing).into(),
        }
    }
    let Some((worst, _)) =
        counts.iter().find(|(governor, _)| **governor != "performance").or(counts.iter().next())
    else {
        return Answer::DoesNotApply("no frequency scaling, as in a virtual machine".to_owned());
    };
    let found = counts.iter().map(|(governor, count)| format!("{governor} on {count} CPUs"));
    let found = found.collect::<Vec<_>>().join(", ");
    let finding = if *worst == "performance" {
        Finding::pass(found)
    } else {
        Finding::warn(format!("{found}: a core that waits for a message lowers its frequency"))
            .fix(Fix::new("set the governor to performance").run("cpupower frequency-set -g performance"))
            .fix(
                Fix::new("select a profile that sets it")
                    .at("at boot")
                    .run("tuned-adm profile network-latency"),
            )
    };
    finding.read(format!("{CPUS}/cpu*/cpufreq/scaling_governor")).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_cpus_is_read_as_the_kernel_writes_it() {
        assert_eq!(cpu_list("0-2,8\n"), Some(vec![0, 1, 2, 8]));
        assert_eq!(cpu_list(""), Some(vec![]));
        assert_eq!(cpu_list("0-4294967295"), None);
        assert_eq!(cpu_list("x"), None);
    }
}
