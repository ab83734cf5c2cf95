//! The service that honest clients get: how their operations end, and how long they take.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The operations of one phase.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Service {
    /// The latency of each operation that ended well, in microseconds.
    pub(crate) ok_us: Vec<u64>,
    /// The errors of the others, and how often each was seen.
    pub(crate) errors: BTreeMap<String, u64>,
}

impl Service {
    pub(crate) fn note(&mut self, outcome: Result<(), String>, latency: Duration) {
        match outcome {
            Ok(()) => self.ok_us.push(u64::try_from(latency.as_micros()).unwrap_or(u64::MAX)),
            Err(error) => *self.errors.entry(error).or_default() += 1,
        }
    }

    /// Adds the operations of another client.
    pub(crate) fn add(&mut self, other: Self) {
        self.ok_us.extend(other.ok_us);
        for (error, count) in other.errors {
            *self.errors.entry(error).or_default() += count;
        }
    }

    /// Summarizes the operations. `limit` is the latency above which an operation counts as not
    /// served.
    pub(crate) fn summary(&self, limit: Option<Duration>) -> Summary {
        let mut sorted = self.ok_us.clone();
        sorted.sort_unstable();
        let failed: u64 = self.errors.values().sum();
        let limit_us = limit.map_or(u64::MAX, |limit| u64::try_from(limit.as_micros()).unwrap_or(u64::MAX));
        let in_time = sorted.iter().filter(|latency| **latency <= limit_us).count() as u64;
        Summary {
            operations: sorted.len() as u64 + failed,
            failed,
            in_time,
            p50_us: percentile(&sorted, 50.0),
            p99_us: percentile(&sorted, 99.0),
            max_us: sorted.last().copied().unwrap_or_default(),
            errors: self.errors.clone(),
        }
    }
}

/// The figures of one phase.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Summary {
    pub(crate) operations: u64,
    pub(crate) failed: u64,
    /// The operations that ended well and within the limit.
    pub(crate) in_time: u64,
    pub(crate) p50_us: u64,
    pub(crate) p99_us: u64,
    pub(crate) max_us: u64,
    pub(crate) errors: BTreeMap<String, u64>,
}

impl Summary {
    /// Returns the share of operations that ended well and within the limit.
    pub(crate) fn share(&self) -> f64 {
        if self.operations == 0 { 0.0 } else { self.in_time as f64 / self.operations as f64 }
    }
}

/// Returns the smallest value that at least this percentage of the sorted values do not exceed; 0 if
/// there are none.
fn percentile(sorted: &[u64], percent: f64) -> u64 {
    let rank = (sorted.len() as f64 * percent / 100.0).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_counts_what_was_late_and_what_failed() {
        let mut service = Service::default();
        for ms in 1..=100 {
            service.note(Ok(()), Duration::from_millis(ms));
        }
        service.note(Err("lost".into()), Duration::ZERO);
        let mut other = Service::default();
        other.note(Err("lost".into()), Duration::ZERO);
        service.add(other);
        let summary = service.summary(Some(Duration::from_millis(90)));
        assert_eq!((summary.operations, summary.failed, summary.in_time), (102, 2, 90));
        assert_eq!((summary.p50_us, summary.p99_us, summary.max_us), (50_000, 99_000, 100_000));
        assert_eq!(summary.errors["lost"], 2);
        assert!((summary.share() - 90.0 / 102.0).abs() < 1e-9);
    }

    #[test]
    fn nothing_is_no_service() {
        let nothing = Service::default().summary(None);
        assert_eq!((nothing.share(), nothing.p99_us), (0.0, 0));
    }
}
