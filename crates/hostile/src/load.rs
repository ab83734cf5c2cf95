//! Load of honest clients: as fast as possible, to measure the capacity, or at fixed times.
//!
//! At fixed times, the latency of an operation counts from the time at which it was due. A victim
//! that serves nothing for a second is therefore charged with every operation of that second, and
//! not only with the one that waited.

use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use crate::service::Service;

/// How long operations that were due before the end may still be begun.
const GRACE: Duration = Duration::from_secs(1);

/// The longest sleep, after which the end is looked for.
const GLANCE: Duration = Duration::from_millis(5);

/// Ends a load.
#[derive(Debug, Clone, Default)]
pub(crate) struct End(Arc<OnceLock<Instant>>);

impl End {
    /// Ends the load now.
    pub(crate) fn now(&self) {
        // A load that was ended before stays ended.
        let _ = self.0.set(Instant::now());
    }

    fn at(&self) -> Option<Instant> {
        self.0.get().copied()
    }
}

/// Runs operations at fixed times, until the end.
pub(crate) fn at_fixed_times(
    first: Instant,
    interval: Duration,
    end: &End,
    mut operation: impl FnMut(u64) -> Result<(), String>,
) -> Service {
    let mut service = Service::default();
    let mut due = first;
    for number in 0.. {
        loop {
            let now = Instant::now();
            if end.at().is_some_and(|end| due > end) {
                return service;
            }
            let early = due.saturating_duration_since(now);
            if early.is_zero() {
                break;
            }
            thread::sleep(early.min(GLANCE));
        }
        let is_too_late = end.at().is_some_and(|end| end.elapsed() > GRACE);
        let outcome =
            if is_too_late { Err("not begun before the end".to_owned()) } else { operation(number) };
        service.note(outcome, due.elapsed());
        due += interval;
    }
    service
}

/// Runs operations one after the other for this time. Returns how many ended well.
pub(crate) fn as_fast_as_possible(
    time: Duration,
    mut operation: impl FnMut(u64) -> Result<(), String>,
) -> u64 {
    let start = Instant::now();
    let mut count = 0;
    for number in 0.. {
        if start.elapsed() >= time {
            break;
        }
        count += u64::from(operation(number).is_ok());
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_pause_is_charged_to_every_operation_that_was_due_in_it() {
        let end = End::default();
        let stop = end.clone();
        let service = at_fixed_times(Instant::now(), MS, &end, |number| {
            if number == 0 {
                thread::sleep(200 * MS);
            }
            if number == 250 {
                stop.now();
            }
            Ok(())
        });
        let late = service.ok_us.iter().filter(|latency| **latency >= 100_000).count();
        assert!(late >= 90, "{late}");
        assert!(service.ok_us.len() >= 250);
    }

    #[test]
    fn what_was_due_and_could_not_begin_has_failed() {
        let end = End::default();
        let stop = end.clone();
        let service = at_fixed_times(Instant::now(), 10 * MS, &end, |_| {
            thread::sleep(100 * MS);
            stop.now();
            thread::sleep(GRACE + 100 * MS);
            Ok(())
        });
        assert_eq!(service.ok_us.len(), 1);
        let failed: u64 = service.errors.values().sum();
        assert!(failed >= 8, "{service:?}");
    }

    #[test]
    fn failures_are_no_capacity() {
        assert_eq!(as_fast_as_possible(10 * MS, |_| Err("no".into())), 0);
        assert!(as_fast_as_possible(10 * MS, |_| Ok(())) > 0);
    }
}
