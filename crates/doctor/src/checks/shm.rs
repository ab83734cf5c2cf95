//! Checks what processes of one host need to share memory (the rail shm): the calls of the kernel,
//! and descriptors.

use super::cards::has_rdma;
use crate::finding::{Answer, CommandLine, Finding, Fix};
use crate::pack::{Missing, Pack};
use crate::probes::{Refused, Shm};

const LIMITS: &str = "/proc/self/limits";
const STATUS: &str = "/proc/self/status";

/// Checks whether the kernel lets this process share memory with others.
pub(super) fn shm(pack: &Pack) -> Answer {
    const SOURCE: &str = "a link over shm within this process";
    let shm = match pack.probes().shm.get() {
        Ok(shm) => shm,
        Err(reason) => return Finding::unknown(reason).read(SOURCE).into(),
    };
    if shm.refused.is_empty() {
        return usable(shm).read(SOURCE).into();
    }
    Answer::Findings(
        shm.refused.iter().map(|it| refused(pack, it).of(it.call.as_str()).read(SOURCE)).collect(),
    )
}

fn usable(shm: &Shm) -> Finding {
    match &shm.read_only_seal {
        None => Finding::pass("processes of one user can share memory, within one network namespace"),
        Some(error) => Finding::warn(format!(
            "the seal F_SEAL_FUTURE_WRITE is refused: {error}; programs that use farreach-shm cannot grant memory for \
             reading only"
        ))
        .fix("boot Linux 5.1 or newer"),
    }
}

/// Makes the finding for a refused call. It is a failure if this host has no other rail.
fn refused(pack: &Pack, refused: &Refused) -> Finding {
    let has_provider = pack.probes().fabric.get().is_ok_and(|fabric| !fabric.providers.is_empty());
    let (make, cost): (fn(String) -> Finding, _) = if has_rdma(pack) || has_provider {
        (Finding::warn, "processes of this host use another rail, which is slower")
    } else {
        (Finding::fail, "this host has no other rail")
    };
    let Refused { call, error } = refused;
    let has = |names: &[&str]| names.iter().any(|name| error.contains(&format!("({name})")));
    if call.starts_with("/proc") {
        return make(format!("cannot be read: {error}; {cost}"))
            .fix(Fix::new("mount /proc").run("mount -t proc proc /proc"));
    }
    if call == "geteuid" {
        return make(format!("{error}; {cost}"))
            .fix("run the process as a user that its user namespace has a number for, and not as nobody");
    }
    if has(&["EMFILE", "ENFILE"]) {
        return more_files(make(format!("refused: {error}; {cost}")));
    }
    if !has(&["EPERM", "EACCES", "ENOSYS"]) {
        return make(format!("refused: {error}; {cost}"))
            .fix(Fix::new("read the kernel log").run("dmesg | tail -n 30"));
    }
    let why = match has_filter(pack) {
        Some(true) => "a seccomp filter is active in this process",
        Some(false) => {
            "no seccomp filter is active; the kernel is too old, or a security module forbids the call"
        }
        None => "it is not known whether a seccomp filter is active",
    };
    make(format!("refused: {error}; {why}; {cost}"))
        .read(STATUS)
        .fix(
            Fix::new(format!("start the container with a seccomp profile that allows {}", bare(call)))
                .at("container")
                .run("docker run --security-opt seccomp=PROFILE.json IMAGE"),
        )
        .fix(
            Fix::new("add this line to the section [Service] of the unit, and restart it")
                .at("systemd")
                .run(CommandLine::setting("SystemCallFilter=", bare(call), "")),
        )
        .fix("boot Linux 5.3 or newer: older kernels lack pidfd_open, and much older ones memfd_create")
}

/// Returns the name of a call without its arguments.
fn bare(call: &str) -> &str {
    call.split('(').next().unwrap_or(call)
}

/// Returns whether a seccomp filter is active in the process that was examined.
fn has_filter(pack: &Pack) -> Option<bool> {
    let status = pack.text(STATUS).ok()?;
    let mode = status.lines().find_map(|line| line.strip_prefix("Seccomp:"))?.trim();
    Some(mode != "0")
}

/// A lower limit is too low for one link.
const FILES_MIN: u64 = 32;

/// A lower limit is used up by some ten links.
const FILES_GOOD: u64 = 256;

/// Checks how many files a process may have open.
pub(super) fn open_files(pack: &Pack) -> Answer {
    let most = match soft_limit(pack) {
        Ok(None) => return Finding::pass("no limit").read(LIMITS).into(),
        Ok(Some(most)) => most,
        Err(missing) => return Finding::unread(LIMITS, &missing).into(),
    };
    let found = format!("a process may have {most} files open");
    let finding = if most < FILES_MIN {
        more_files(Finding::fail(format!("{found}; an engine with one peer needs about {FILES_MIN}")))
    } else if most < FILES_GOOD {
        more_files(Finding::warn(format!(
            "{found}; each allocation of memory needs one, and each peer some: beyond three quarters of them, memory \
             cannot be shared over shm"
        )))
    } else {
        Finding::pass(found)
    };
    finding.read(LIMITS).into()
}

/// Adds the fixes that raise the limit, for each place where it can be set.
pub(super) fn more_files(finding: Finding) -> Finding {
    finding
        .fix(
            Fix::new("raise the limit, as root or up to the hard limit")
                .at("this shell")
                .run("ulimit -n 16384"),
        )
        .fix(
            Fix::new("raise the limit for all users, then log in again")
                .at("at login")
                .run("echo '* - nofile 16384' > /etc/security/limits.d/nofile.conf"),
        )
        .fix(
            Fix::new("add this line to the section [Service] of the unit, and restart it")
                .at("systemd")
                .run("LimitNOFILE=16384"),
        )
        .fix(
            Fix::new("start the container with a higher limit")
                .at("container")
                .run("docker run --ulimit nofile=16384 IMAGE"),
        )
}

/// Returns the soft limit, which is the one that the kernel enforces; `None` if there is none.
fn soft_limit(pack: &Pack) -> Result<Option<u64>, Missing> {
    let line = pack.text(LIMITS)?.lines().find_map(|line| line.strip_prefix("Max open files"));
    match line.and_then(|line| line.split_whitespace().next()) {
        Some("unlimited") => Ok(None),
        Some(number) => number
            .parse()
            .map(Some)
            .map_err(|_| Missing::Unreadable(format!("cannot parse the number of files \"{number}\""))),
        None => Err(Missing::Unreadable("no line \"Max open files\"".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Verdict;

    /// A host without any RDMA device, on which memfd_create is refused.
    fn host(fabric: serde_json::Value) -> Pack {
        let refused = json!([{ "call": "memfd_create", "error": "Operation not permitted (EPERM)" }]);
        let pack = json!({
            "schema_version": 1, "farreach": "0.1.0", "host": "h", "recorded_unix_seconds": 0, "looked_for": ["/*"],
            "files": {},
            "probes": { "fabric": fabric, "shm": { "read": { "refused": refused, "read_only_seal": null } } },
        });
        serde_json::from_value(pack).unwrap()
    }

    fn verdict(pack: &Pack) -> Verdict {
        match shm(pack) {
            Answer::Findings(findings) => findings[0].verdict,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn it_fails_where_nothing_else_carries_data() {
        assert_eq!(verdict(&host(json!({ "unread": "cannot open libfabric.so.1" }))), Verdict::Fail);
        let fabric = json!({ "read": { "library": "l", "version": "2.1", "providers": { "tcp": ["lo"] } } });
        assert_eq!(verdict(&host(fabric)), Verdict::Warn);
    }
}
