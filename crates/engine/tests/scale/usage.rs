//! The resources that this process uses, as the kernel counts them.

use std::fs;
use std::time::Duration;

/// Returns the processor time, of user and system.
pub(super) fn processor_time() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    // The name, in brackets, may contain anything; the rest has no brackets.
    let rest = stat.rsplit(')').next().unwrap();
    let immediates =
        |field: usize| -> u64 { rest.split_whitespace().nth(field - 3).unwrap().parse().unwrap() };
    Duration::from_millis((immediates(14) + immediates(15)) * 1000 / rustix::param::clock_ticks_per_second())
}

/// Returns the resident memory in bytes.
pub(super) fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap() * 1024
}

/// Returns the available memory of the machine in bytes.
pub(super) fn available() -> u64 {
    let memory = fs::read_to_string("/proc/meminfo").unwrap();
    let line = memory.lines().find_map(|line| line.strip_prefix("MemAvailable:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap() * 1024
}

/// Returns the number of open descriptors.
pub(super) fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}
