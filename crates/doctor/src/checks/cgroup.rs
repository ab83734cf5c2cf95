//! Checks the limits of control groups on a device: contexts (`hca_handle`) and the objects created
//! on them (`hca_object`).

use super::cards::no_device;
use crate::finding::{Answer, CommandLine, Finding, Fix};
use crate::pack::{Missing, Pack};

const OWN: &str = "/proc/self/cgroup";

/// The objects that one peer on one device needs, with some margin: queue pairs, completion queues,
/// regions.
const OBJECTS_MIN: u64 = 100;

/// Checks whether a control group of this process limits RDMA.
pub(super) fn cgroup(pack: &Pack) -> Answer {
    if pack.devices().is_empty() {
        return no_device(pack);
    }
    let groups = match pack.text(OWN) {
        Ok(text) => folders(text),
        Err(missing) => return Finding::unread(OWN, &missing).into(),
    };
    let mut findings = Vec::new();
    for group in &groups {
        let file = format!("{group}/rdma.max");
        match pack.text(&file) {
            Ok(limits) => {
                let used = pack.text(&format!("{group}/rdma.current"));
                findings.extend(limits.lines().filter_map(|line| limited(line, used.clone(), &file)));
            }
            // The root group has no such file. A group without one does not control RDMA, nor do
            // the groups below it.
            Err(Missing::Absent) if *group == groups[0] => {}
            Err(Missing::Absent) => break,
            Err(missing) => findings.push(Finding::unread(&file, &missing)),
        }
    }
    if findings.is_empty() {
        findings.push(Finding::pass("no control group limits RDMA").read(OWN));
    }
    Answer::Findings(findings)
}

/// Returns the folders of this process's group, from the root down, because limits of parents apply
/// too.
fn folders(own: &str) -> Vec<String> {
    let line = |line: &str| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        let root = if controllers.is_empty() { "/sys/fs/cgroup" } else { "/sys/fs/cgroup/rdma" };
        let is_ours = controllers.is_empty() || controllers.split(',').any(|name| name == "rdma");
        is_ours.then(|| (root, path.to_owned()))
    };
    // cgroup v1 has a line of its own, before that of v2.
    let Some((root, path)) = own.lines().find_map(line) else { return Vec::new() };
    let mut folders = vec![root.to_owned()];
    for name in path.split('/').filter(|name| !name.is_empty() && *name != "..") {
        folders.push(format!("{}/{name}", folders[folders.len() - 1]));
    }
    folders
}

/// Parses a line such as `mlx5_0 hca_handle=2 hca_object=2000`; returns `None` if it limits
/// nothing.
fn limited(line: &str, used: Result<&str, Missing>, file: &str) -> Option<Finding> {
    let mut words = line.split_whitespace();
    let device = words.next()?;
    let used_line =
        used.ok().and_then(|used| used.lines().find(|line| line.split_whitespace().next() == Some(device)));
    let mut worst: Option<Finding> = None;
    for (name, max) in words.filter_map(|word| word.split_once('=')).filter(|(_, max)| *max != "max") {
        let Ok(max) = max.parse::<u64>() else {
            return Some(
                Finding::unknown(format!("cannot parse the limit \"{line}\"")).of(device).read(file),
            );
        };
        let used = used_line.and_then(|line| {
            line.split_whitespace()
                .find_map(|word| word.strip_prefix(name)?.strip_prefix('=')?.parse::<u64>().ok())
        });
        let finding = resource(device, name, used, max, file).of(device).read(file);
        if worst.as_ref().is_none_or(|worst| finding.verdict > worst.verdict) {
            worst = Some(finding);
        }
    }
    worst
}

fn resource(device: &str, name: &str, used: Option<u64>, max: u64, file: &str) -> Finding {
    let what = match name {
        "hca_handle" => "contexts",
        "hca_object" => "objects (queue pairs, memory regions and others)",
        other => other,
    };
    let Some(used) = used else {
        return Finding::unknown(format!("limited to {max} {what}; the number in use is not known"));
    };
    let found = format!("{used} of {max} {what} are in use");
    let raise = |finding: Finding| {
        finding
            .fix(
                Fix::new("remove the limit of the control group").run(
                    CommandLine::new("printf '%s\\n'").arg(format!("{device} {name}=max")).write_to(file),
                ),
            )
            .fix(
                Fix::new("remove the limit on the host, for the container's control group and its parents")
                    .at("container"),
            )
    };
    let left = max.saturating_sub(used);
    match name {
        _ if left == 0 => raise(Finding::fail(format!("{found}: no more can be created"))),
        "hca_object" if left < OBJECTS_MIN => {
            raise(Finding::warn(format!("{found}; connections to a few peers need {OBJECTS_MIN}")))
        }
        _ => Finding::pass(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_groups_of_a_process_are_found_in_both_hierarchies() {
        let new = folders("0::/system.slice/farreach.service\n");
        let root = "/sys/fs/cgroup";
        assert_eq!(
            new,
            [
                root.to_owned(),
                format!("{root}/system.slice"),
                format!("{root}/system.slice/farreach.service")
            ]
        );
        assert_eq!(folders("0::/"), [root]);
        let old = folders("4:memory:/a\n3:rdma:/docker/1\n0::/b\n");
        assert_eq!(
            old,
            ["/sys/fs/cgroup/rdma", "/sys/fs/cgroup/rdma/docker", "/sys/fs/cgroup/rdma/docker/1"]
        );
    }
}
