//! Steal time: processor time that the hypervisor took from this virtual machine.

use std::fs;
use std::time::Duration;

/// Returns the steal time of each processor since boot, on average; see `proc_stat(5)`. Returns
/// zero if there is no such file.
pub(crate) fn time() -> Duration {
    fs::read_to_string("/proc/stat").ok().and_then(|text| parse(&text)).unwrap_or_default()
}

fn parse(stat: &str) -> Option<Duration> {
    let processors = stat.lines().filter(|line| line.starts_with("cpu") && !line.starts_with("cpu ")).count();
    let all = stat.lines().find(|line| line.starts_with("cpu "))?;
    // The fields after the name are user, nice, system, idle, iowait, irq, softirq and steal, in
    // hundredths of a second.
    let stolen: u64 = all.split_whitespace().nth(8)?.parse().ok()?;
    Some(Duration::from_millis(stolen * 10 / processors.max(1) as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stolen_time_is_told_for_one_processor() {
        let stat = "cpu  10 20 30 40 50 60 70 3000 0 0\ncpu0 1 2 3 4 5 6 7 1000 0 0\ncpu1 1 2 3 4 5 6 7 2000 0 0\nintr 5\n";
        assert_eq!(parse(stat), Some(Duration::from_secs(15)));
        assert_eq!(parse("cpu  10 20"), None);
        assert!(parse(&fs::read_to_string("/proc/stat").unwrap()).is_some());
    }
}
