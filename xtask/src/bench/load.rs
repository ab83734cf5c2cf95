//! Measures how busy other processes are.

use std::time::Instant;

use anyhow::{Context, Result};

/// Ticks per second: the kernel reports processor time in hundredths of a second, whatever its own
/// clock is.
const TICKS_PER_S: f64 = 100.0;

/// The processor times at one moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    taken: Instant,
    /// The busy time of all processors together, in ticks.
    busy: u64,
    /// The time of this process and of its children that have ended, in ticks.
    ours: u64,
}

impl Load {
    pub(super) fn now() -> Result<Self> {
        let read = |path: &str| std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"));
        let busy = busy(&read("/proc/stat")?).context("/proc/stat does not begin with all processors")?;
        let ours =
            ours(&read("/proc/self/stat")?).context("/proc/self/stat has fewer fields than it should")?;
        Ok(Self { taken: Instant::now(), busy, ours })
    }

    /// Returns how much of a core other processes have used since then, on average.
    pub(super) fn others_since(self) -> Result<f64> {
        let now = Self::now()?;
        let others = (now.busy - self.busy).saturating_sub(now.ours - self.ours);
        Ok(others as f64 / TICKS_PER_S / now.taken.duration_since(self.taken).as_secs_f64().max(0.001))
    }
}

/// Parses the first line of `/proc/stat`: `cpu user nice system idle iowait irq softirq steal …`;
/// see `proc_stat(5)`.
fn busy(stat: &str) -> Option<u64> {
    let fields = stat.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<u64> = fields.split_whitespace().map_while(|field| field.parse().ok()).collect();
    let [user, nice, system, _idle, _iowait, irq, softirq, steal] = *ticks.first_chunk()?;
    Some(user + nice + system + irq + softirq + steal)
}

/// Parses `utime`, `stime`, `cutime` and `cstime` of `proc_pid_stat(5)`: the fields from the 14th
/// on. The second field, the name, may contain blanks.
fn ours(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let ticks: Vec<u64> =
        fields.split_whitespace().skip(11).take(4).filter_map(|field| field.parse().ok()).collect();
    (ticks.len() == 4).then(|| ticks.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_is_what_is_not_idle() {
        let stat = "cpu  100 20 30 4000 500 6 7 8 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
        assert_eq!(busy(stat), Some(100 + 20 + 30 + 6 + 7 + 8));
        assert_eq!(busy("cpu  1 2 3\n"), None);
        assert_eq!(busy("intr 1 2 3 4 5 6 7 8\n"), None);
    }

    #[test]
    fn ours_is_that_of_the_process_and_of_its_children() {
        let stat = "77 (a (strange) name) S 1 77 77 0 -1 4194304 100 200 0 0 11 22 33 44 20 0 1 0 5000 1 1";
        assert_eq!(ours(stat), Some(11 + 22 + 33 + 44));
        assert_eq!(ours("77 (short) S 1"), None);
    }

    #[test]
    fn this_machine_tells() {
        let load = Load::now().unwrap();
        assert!(load.busy > 0);
        assert!(load.others_since().unwrap() >= 0.0);
    }
}
