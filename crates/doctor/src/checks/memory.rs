//! Checks memory: the limits on locked and mapped memory, and the page sizes.

use super::cards::{NO_DEVICE, has_efa, has_rdma};
use crate::figures;
use crate::finding::{Answer, CommandLine, Finding, Fix};
use crate::pack::{Missing, Pack};

const LIMITS: &str = "/proc/self/limits";
const STATUS: &str = "/proc/self/status";
const UID_MAP: &str = "/proc/self/uid_map";

/// A lower limit holds the queues of a card and little else.
const LOCKED_BYTES_MIN: u64 = 64 << 20;

/// The limit that Amazon asks for; enough for a program that registers models or caches.
const LOCKED_BYTES_GOOD: u64 = 16 << 30;

/// The size of the trial registration.
const TRIAL_BYTES: u64 = 1 << 20;

/// Checks how much memory may be locked.
pub(super) fn memlock(pack: &Pack) -> Answer {
    if !has_rdma(pack) {
        return Answer::DoesNotApply(format!("{NO_DEVICE}; tcp locks no memory"));
    }
    let mut findings = refused(pack);
    if findings.is_empty() {
        findings.push(locked(pack));
    }
    Answer::Findings(findings)
}

/// Returns a finding for each device that refused the trial registration. This evidence takes
/// precedence over the limit.
fn refused(pack: &Pack) -> Vec<Finding> {
    let Ok(verbs) = pack.probes().verbs.get() else { return Vec::new() };
    let limit = limit(pack);
    let refusal = |(device, error): (&String, &String)| {
        let fails = |found: String| {
            Finding::fail(found).of(device.as_str()).read("ibv_reg_mr of 1 MiB").read(LIMITS).read(STATUS)
        };
        let is_lifted = matches!(lifts_limits(pack), Ok(true));
        match &limit {
            // The library's longer message means the same.
            Ok(Limit::Bytes(bytes)) if *bytes < TRIAL_BYTES && !is_lifted => raises(fails(format!(
                "at most {} may be locked, and 1 MiB could not be registered",
                figures::size(*bytes)
            ))),
            Ok(Limit::Bytes(bytes)) if !is_lifted && is_of_memory(error) => raises(fails(format!(
                "1 MiB could not be registered: {error}; the limit is {}",
                figures::size(*bytes)
            ))),
            Ok(Limit::Bytes(_)) if !is_lifted => not_by_limit(fails(format!(
                "1 MiB could not be registered: {error}; this is not the error of the limit on locked memory"
            ))),
            Ok(_) => not_by_limit(fails(format!(
                "1 MiB could not be registered: {error}; locked memory has no limit"
            ))),
            Err(_) => not_by_limit(raises(fails(format!(
                "1 MiB could not be registered: {error}; the limit is not known"
            )))),
        }
    };
    let trials =
        verbs.devices.iter().filter_map(|(name, device)| Some((name, device.trial_registration.as_ref()?)));
    trials.map(refusal).collect()
}

/// Returns whether an error can come from the limit on locked memory: the kernel then returns
/// ENOMEM.
fn is_of_memory(error: &str) -> bool {
    ["ENOMEM", "Cannot allocate memory", "locked in memory"].iter().any(|words| error.contains(words))
}

/// Adds the fixes for a refusal that the limit on locked memory does not explain.
fn not_by_limit(finding: Finding) -> Finding {
    finding
        .fix(Fix::new("read the driver's messages in the kernel log").run("dmesg | tail -n 30"))
        .fix("see the check cgroup: a control group without objects left for the device causes this, too")
}

fn locked(pack: &Pack) -> Finding {
    let bytes = match limit(pack) {
        Ok(Limit::None) => return Finding::pass("no limit").read(LIMITS),
        Ok(Limit::Bytes(bytes)) => bytes,
        Err(missing) => return Finding::unread(LIMITS, &missing),
    };
    let found = format!("at most {} may be locked", figures::size(bytes));
    match lifts_limits(pack) {
        Ok(true) => {
            Finding::pass(format!("{found}, but CAP_IPC_LOCK lifts the limit")).read(LIMITS).read(STATUS)
        }
        Err((path, missing)) if bytes < LOCKED_BYTES_GOOD => Finding::unknown(format!(
            "{found}, unless CAP_IPC_LOCK lifts the limit; {}",
            missing.reason(path)
        ))
        .read(LIMITS)
        .read(path),
        _ if bytes < LOCKED_BYTES_MIN => raises(
            Finding::fail(format!(
                "{found}; the queues of one card and a few buffers need {}",
                figures::size(LOCKED_BYTES_MIN)
            ))
            .read(LIMITS),
        ),
        _ if bytes < LOCKED_BYTES_GOOD => {
            let need = if has_efa(pack) { "libfabric's provider efa needs" } else { "large transfers need" };
            let found = format!("{found}; {need} {} or more", figures::size(LOCKED_BYTES_GOOD));
            raises(Finding::warn(found).read(LIMITS))
        }
        _ => Finding::pass(found).read(LIMITS),
    }
}

/// Adds the fixes that raise the limit, for each place where it can be set.
fn raises(finding: Finding) -> Finding {
    finding
        .fix(
            Fix::new("raise the limit, as root or up to the hard limit")
                .at("this shell")
                .run("ulimit -l unlimited"),
        )
        .fix(
            Fix::new("raise the limit for all users, then log in again")
                .at("at login")
                .run("echo '* - memlock unlimited' > /etc/security/limits.d/rdma.conf"),
        )
        .fix(
            Fix::new("add this line to the section [Service] of the unit, and restart it")
                .at("systemd")
                .run("LimitMEMLOCK=infinity"),
        )
        .fix(
            Fix::new("start the container without the limit")
                .at("container")
                .run("docker run --ulimit memlock=-1 IMAGE"),
        )
        .fix(
            Fix::new("add this line to the container's securityContext")
                .at("Kubernetes")
                .run("capabilities: {add: [IPC_LOCK]}"),
        )
}

enum Limit {
    None,
    Bytes(u64),
}

/// Returns the soft limit, which is the one that the kernel enforces.
fn limit(pack: &Pack) -> Result<Limit, Missing> {
    let line = pack.text(LIMITS)?.lines().find_map(|line| line.strip_prefix("Max locked memory"));
    match line.and_then(|line| line.split_whitespace().next()) {
        Some("unlimited") => Ok(Limit::None),
        Some(number) => number
            .parse()
            .map(Limit::Bytes)
            .map_err(|_| Missing::Unreadable(format!("cannot parse the number of bytes \"{number}\""))),
        None => Err(Missing::Unreadable("no line \"Max locked memory\"".to_owned())),
    }
}

/// Returns whether this process has CAP_IPC_LOCK in the initial user namespace. In another user
/// namespace the capability does not lift the limit.
fn lifts_limits(pack: &Pack) -> Result<bool, (&'static str, Missing)> {
    const CAP_IPC_LOCK: u32 = 14;
    let status = pack.text(STATUS).map_err(|missing| (STATUS, missing))?;
    let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    let mask = mask.ok_or_else(|| (STATUS, Missing::Unreadable("no line \"CapEff\"".to_owned())))?;
    if mask & (1 << CAP_IPC_LOCK) == 0 {
        return Ok(false);
    }
    let map = pack.text(UID_MAP).map_err(|missing| (UID_MAP, missing))?;
    Ok(map.split_whitespace().eq(["0", "0", "4294967295"]))
}

/// Checks how many mappings a process may have.
pub(super) fn maps(pack: &Pack) -> Answer {
    const MAX_MAP_COUNT: &str = "/proc/sys/vm/max_map_count";
    /// The default of the kernel.
    const COUNT_MIN: u64 = 65_530;
    match pack.number(MAX_MAP_COUNT) {
        Ok(count) if count < COUNT_MIN => Finding::warn(format!(
            "a process may have {count} mappings, fewer than the kernel's default of {COUNT_MIN}; each memory region \
             may need one"
        ))
        .fix(Fix::new("raise the limit").run(CommandLine::new("sysctl -w").arg(format!("vm.max_map_count={COUNT_MIN}"))))
        .fix(
            Fix::new("raise the limit")
                .at("at boot")
                .run(
                    CommandLine::new("echo")
                        .arg(format!("vm.max_map_count={COUNT_MIN}"))
                        .write_to("/etc/sysctl.d/rdma-maps.conf"),
                ),
        )
        .fix(Fix::new("raise the limit on the host of the container: it applies to the whole kernel").at("container")),
        Ok(count) => Finding::pass(format!("a process may have {count} mappings")),
        Err(missing) => Finding::unread(MAX_MAP_COUNT, &missing),
    }
    .read(MAX_MAP_COUNT)
    .into()
}

const HUGE_PAGES: &str = "/sys/kernel/mm/hugepages";

/// The memory that libfabric's efa provider needs for the pools of one core.
const EFA_BYTES_PER_CORE: u64 = 110_000_000;

/// Checks whether huge pages are reserved.
pub(super) fn huge_pages(pack: &Pack) -> Answer {
    if !has_rdma(pack) {
        return Answer::DoesNotApply(NO_DEVICE.to_owned());
    }
    let sizes = pack.names(HUGE_PAGES);
    if sizes.is_empty() {
        let path = format!("{HUGE_PAGES}/hugepages-2048kB/nr_hugepages");
        return match pack.text(&path) {
            Err(Missing::Absent) => Finding::warn("the kernel has no huge pages (CONFIG_HUGETLBFS is off)")
                .fix("boot a kernel that is built with CONFIG_HUGETLBFS")
                .read(HUGE_PAGES),
            Err(missing) => Finding::unread(HUGE_PAGES, &missing),
            Ok(_) => Finding::unknown("no page size is listed").read(HUGE_PAGES),
        }
        .into();
    }
    let (mut reserved, mut free) = (0u64, 0u64);
    for size in sizes {
        let bytes =
            size.strip_prefix("hugepages-").and_then(|size| size.strip_suffix("kB")?.parse::<u64>().ok());
        for (file, sum) in [("nr_hugepages", &mut reserved), ("free_hugepages", &mut free)] {
            let path = format!("{HUGE_PAGES}/{size}/{file}");
            match pack.number(&path) {
                Ok(pages) => {
                    let bytes = bytes.unwrap_or(0).saturating_mul(1024);
                    *sum = pages.saturating_mul(bytes).saturating_add(*sum);
                }
                Err(missing) => return Finding::unread(&path, &missing).into(),
            }
        }
    }
    pages(pack, reserved, free).read(HUGE_PAGES).into()
}

fn pages(pack: &Pack, reserved: u64, free: u64) -> Finding {
    let cores = pack.text("/sys/devices/system/cpu/online").ok().and_then(cores).unwrap_or(1);
    let (needed, whose) = if has_efa(pack) {
        (
            cores.saturating_mul(EFA_BYTES_PER_CORE),
            format!("; libfabric's provider efa needs about 110 MB for each of {cores} cores"),
        )
    } else {
        (1, String::new())
    };
    // 1 GiB is enough for a first try.
    let pages = needed.max(1 << 30).div_ceil(2 << 20);
    let reserve = |finding: Finding| {
        let size = figures::amount(pages.saturating_mul(2 << 20));
        finding
            .fix(
                Fix::new(format!("reserve {size} of huge pages"))
                    .run(CommandLine::new("sysctl -w").arg(format!("vm.nr_hugepages={pages}"))),
            )
            .fix(
                Fix::new("reserve them").at("at boot").run(
                    CommandLine::new("echo")
                        .arg(format!("vm.nr_hugepages={pages}"))
                        .write_to("/etc/sysctl.d/rdma-hugepages.conf"),
                ),
            )
            .fix(Fix::new("reserve them on the host of the container").at("container"))
            .fix(
                Fix::new("reserve them on the node, and add this line to the container's resources.limits")
                    .at("Kubernetes")
                    .run("hugepages-2Mi: 1Gi"),
            )
    };
    let cost =
        "ordinary pages are used instead: registration is slower, and the card has more addresses to look up";
    match () {
        () if reserved == 0 => reserve(Finding::warn(format!("no huge pages are reserved{whose}; {cost}"))),
        () if reserved < needed => {
            reserve(Finding::warn(format!("{} are reserved{whose}; {cost}", figures::amount(reserved))))
        }
        () if free == 0 => {
            reserve(Finding::warn(format!("all {} are in use; {cost}", figures::amount(reserved))))
        }
        () => {
            Finding::pass(format!("{} reserved, {} free", figures::amount(reserved), figures::amount(free)))
        }
    }
}

/// Returns the number of cores in a list such as `0-3,8`.
fn cores(list: &str) -> Option<u64> {
    let count = |part: &str| match part.split_once('-') {
        Some((first, last)) => last.parse::<u64>().ok()?.checked_sub(first.parse().ok()?)?.checked_add(1),
        None => part.parse::<u64>().ok().map(|_| 1),
    };
    list.split(',').map(count).try_fold(0u64, |sum, count| sum.checked_add(count?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_cores_is_counted() {
        assert_eq!(["0", "0-3", "0-3,8", "0-1,4-7,9"].map(cores), [Some(1), Some(4), Some(5), Some(7)]);
        assert_eq!(["", "a", "3-1", "1-"].map(cores), [None; 4]);
        assert_eq!(cores(&format!("0-{},3", u64::MAX - 1)), None);
    }
}
