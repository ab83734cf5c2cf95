//! What lines of both kinds of victims share.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::host::Memory;
use crate::judge::SLOWDOWN_MAX;
use crate::roles::{Attacked, Newcomer};
use crate::service::Service;

/// The state of a victim before an attack.
#[derive(Debug)]
pub(super) struct Baseline {
    pub(super) memory: Memory,
    pub(super) descriptors: usize,
    pub(super) files: BTreeSet<String>,
}

/// What happened during an attack.
#[derive(Debug, Default)]
pub(super) struct Phase {
    pub(super) attacked: Attacked,
    /// What the driver found that must not be.
    pub(super) breaches: Vec<String>,
    pub(super) newcomers: Vec<Newcomer>,
    /// The most peers that the victim had.
    pub(super) peers_max: u64,
}

/// The 99th percentiles of phases without an attacker.
///
/// One phase has few operations in its last percent, and on a busy machine they differ much. The
/// reference of a line is therefore the larger one of its own phase and the median of all.
#[derive(Debug)]
pub(super) struct Undisturbed {
    floor: Duration,
    p99s_us: Vec<u64>,
}

impl Undisturbed {
    pub(super) fn new(floor: Duration) -> Self {
        Self { floor, p99s_us: Vec::new() }
    }

    /// Adds a phase. Returns the latency up to which an operation is in time.
    pub(super) fn limit(&mut self, calm: &Service) -> Duration {
        let p99_us = calm.summary(None).p99_us;
        self.p99s_us.push(p99_us);
        let mut sorted = self.p99s_us.clone();
        sorted.sort_unstable();
        let reference = p99_us.max(sorted[sorted.len() / 2]);
        SLOWDOWN_MAX * Duration::from_micros(reference).max(self.floor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phase(ms: u64) -> Service {
        Service { ok_us: vec![ms * 1000; 100], ..Service::default() }
    }

    #[test]
    fn the_limit_is_five_times_the_reference() {
        const MS: Duration = Duration::from_millis(1);
        let mut undisturbed = Undisturbed::new(2 * MS);
        assert_eq!(undisturbed.limit(&phase(1)), 10 * MS, "the floor");
        assert_eq!(undisturbed.limit(&phase(20)), 100 * MS, "its own");
        assert_eq!(undisturbed.limit(&phase(10)), 50 * MS);
        assert_eq!(undisturbed.limit(&phase(1)), 50 * MS, "the median");
    }
}
