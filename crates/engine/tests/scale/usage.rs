//! What this process uses, as the kernel counts it.

use std::fs;
use std::time::Duration;

/// Time on processors, of the user's and of the system's.
pub(super) fn processor_time() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    // The name, in brackets, may hold anything; what follows has no brackets.
    let rest = stat.rsplit(')').next().unwrap();
    let immediates =
        |field: usize| -> u64 { rest.split_whitespace().nth(field - 3).unwrap().parse().unwrap() };
    Duration::from_millis((immediates(14) + immediates(15)) * 1000 / rustix::param::clock_ticks_per_second())
}

/// Memory that is there, in bytes.
pub(super) fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap() * 1024
}

/// Memory that the machine can still give, in bytes.
pub(super) fn available() -> u64 {
    let memory = fs::read_to_string("/proc/meminfo").unwrap();
    let line = memory.lines().find_map(|line| line.strip_prefix("MemAvailable:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap() * 1024
}

/// Open descriptors.
pub(super) fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}
