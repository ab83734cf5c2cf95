//! The resources that this process uses, as the kernel counts them.

use std::fs;
use std::time::Duration;

/// Returns the processor time, of user and system.
pub(super) fn processor_time() -> Duration {
    // The ticks of `/proc/self/stat` are samples: work that a timer begins is missed, or overcounted.
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
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
