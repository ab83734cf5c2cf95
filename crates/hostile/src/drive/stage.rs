//! What lines of both kinds of victims share.

use std::collections::{BTreeSet, VecDeque};
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
    /// What the driver found that must not be, and how often.
    pub(super) breaches: Vec<String>,
    pub(super) hits: u64,
    pub(super) newcomers: Vec<Newcomer>,
    /// The most peers that the victim had.
    pub(super) peers_max: u64,
}

/// The service of the last phases without an attacker.
///
/// One phase has few operations in its last percent, and on a busy machine they differ much. The
/// reference of a line is therefore the 99th percentile of several phases together. The phase after a
/// line is the one before the next, so that they are spread over the run.
#[derive(Debug)]
pub(super) struct Undisturbed {
    floor: Duration,
    phases: VecDeque<Service>,
}

impl Undisturbed {
    /// The phases that make up the reference.
    const PHASES: usize = 4;

    pub(super) fn new(floor: Duration) -> Self {
        Self { floor, phases: VecDeque::new() }
    }

    /// Adds a phase. Returns the latency up to which an operation is in time.
    pub(super) fn limit(&mut self, calm: &Service) -> Duration {
        self.phases.push_back(calm.clone());
        if self.phases.len() > Self::PHASES {
            self.phases.pop_front();
        }
        let mut all = Service::default();
        self.phases.iter().for_each(|phase| all.add(phase.clone()));
        SLOWDOWN_MAX * Duration::from_micros(all.summary(None).p99_us).max(self.floor)
    }
}

/// Returns how long a phase must last at least, so that its service can be judged.
pub(super) fn phase_min(operations: u64, per_second: f64) -> Duration {
    Duration::from_secs_f64(operations as f64 / per_second.max(0.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phase(ms: u64, operations: usize) -> Service {
        Service { ok_us: vec![ms * 1000; operations], ..Service::default() }
    }

    #[test]
    fn the_limit_is_five_times_the_reference() {
        const MS: Duration = Duration::from_millis(1);
        let mut undisturbed = Undisturbed::new(2 * MS);
        assert_eq!(undisturbed.limit(&phase(1, 100)), 10 * MS, "the floor");
        assert_eq!(undisturbed.limit(&phase(20, 100)), 100 * MS, "the 99th percentile of both");
        assert_eq!(undisturbed.limit(&phase(3, 9900)), 15 * MS, "few operations were so late");
        for _ in 0..Undisturbed::PHASES {
            undisturbed.limit(&phase(4, 10));
        }
        assert_eq!(undisturbed.limit(&phase(4, 10)), 20 * MS, "early phases do not count");
    }

    #[test]
    fn a_phase_is_as_long_as_its_operations_take() {
        assert_eq!(phase_min(100, 2.5), Duration::from_secs(40));
        assert!(phase_min(100, 0.0) < Duration::from_secs(2000));
    }
}
