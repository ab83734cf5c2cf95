//! The systemd unit stays hardened.
//!
//! `cargo xtask check` asks systemd-analyze, too, if it is installed. This rule needs no systemd, and
//! names the directive that was lost.

use super::Finding;
use super::tree::{File, Tree};

/// The directives that a unit must have, with all their values. A directive that is repeated adds
/// values.
const DIRECTIVES: &[(&str, &str)] = &[
    ("KillMode", "mixed"),
    ("LimitNOFILE", "16384"),
    ("LimitCORE", "0"),
    ("TasksMax", "8192"),
    ("MemoryMax", "85%"),
    ("OOMPolicy", "continue"),
    ("DynamicUser", "yes"),
    ("CapabilityBoundingSet", ""),
    ("AmbientCapabilities", ""),
    ("NoNewPrivileges", "yes"),
    ("UMask", "0077"),
    ("RemoveIPC", "yes"),
    ("DevicePolicy", "closed"),
    ("DeviceAllow", "char-infiniband_verbs rw /dev/infiniband/rdma_cm rw"),
    ("ProtectSystem", "strict"),
    ("ProtectHome", "yes"),
    ("PrivateTmp", "yes"),
    ("PrivateMounts", "yes"),
    ("ProtectProc", "invisible"),
    ("ProtectClock", "yes"),
    ("ProtectHostname", "yes"),
    ("ProtectKernelTunables", "yes"),
    ("ProtectKernelModules", "yes"),
    ("ProtectKernelLogs", "yes"),
    ("ProtectControlGroups", "yes"),
    ("LockPersonality", "yes"),
    ("RestrictNamespaces", "yes"),
    ("RestrictRealtime", "yes"),
    ("RestrictSUIDSGID", "yes"),
    ("RestrictAddressFamilies", "AF_INET AF_INET6 AF_NETLINK AF_UNIX AF_IB"),
    ("KeyringMode", "private"),
    ("SystemCallArchitectures", "native"),
    ("SystemCallFilter", "@system-service ~@privileged @obsolete"),
    ("SystemCallErrorNumber", "EPERM"),
];

/// Directives that would undo others.
const FORBIDDEN: &[&str] =
    &["User", "Group", "PermissionsStartOnly", "BindPaths", "ReadWritePaths", "Delegate"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    tree.with_extension("service").flat_map(check_unit).collect()
}

fn check_unit(file: &File) -> Vec<Finding> {
    let mut findings = Vec::new();
    let found = directives(file, &mut findings);
    let missing: Vec<String> = DIRECTIVES
        .iter()
        .filter(|(name, value)| values(&found, name).as_deref() != Some(*value))
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    if !missing.is_empty() {
        let message = format!("lacks, or has another value for: {}", missing.join(", "));
        findings.push(Finding::new(&file.path, 1, message));
    }
    for (line, name, _) in found.iter().filter(|(_, name, _)| FORBIDDEN.contains(name)) {
        findings.push(Finding::new(
            &file.path,
            *line,
            format!("{name}= gives the service more than it needs"),
        ));
    }
    findings
}

/// A line number, a name and a value.
type Directive<'a> = (usize, &'a str, &'a str);

/// Returns the directives of the section `[Service]`.
fn directives<'a>(file: &'a File, findings: &mut Vec<Finding>) -> Vec<Directive<'a>> {
    let (mut section, mut found) = ("", Vec::new());
    for (line, text) in file.lines() {
        let text = text.trim();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        if text.starts_with('[') && text.ends_with(']') {
            section = text;
            continue;
        }
        match text.split_once('=') {
            Some((name, value)) if section == "[Service]" => found.push((line, name.trim(), value.trim())),
            Some(_) if !section.is_empty() => {}
            _ => findings.push(Finding::new(&file.path, line, "is not a directive of a unit")),
        }
    }
    found
}

/// Returns all values of a directive, or `None` if it is missing.
fn values(found: &[Directive<'_>], name: &str) -> Option<String> {
    let values: Vec<&str> =
        found.iter().filter(|(_, it, _)| *it == name).map(|(_, _, value)| *value).collect();
    (!values.is_empty()).then(|| values.join(" "))
}
