//! Conversions of times that users choose, without overflow.

use std::time::{Duration, Instant};

use crate::progress::FAR_AWAY;

/// Returns the time this long from now; a year from now if it cannot be represented.
pub(crate) fn after(time: Duration) -> Instant {
    later(Instant::now(), time)
}

/// Returns `now` plus a time; plus a year if the sum cannot be represented.
pub(crate) fn later(now: Instant, time: Duration) -> Instant {
    now.checked_add(time).unwrap_or_else(|| now + FAR_AWAY)
}

/// Returns nanoseconds, the machine's unit; `u64::MAX` if they do not fit.
pub(crate) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_time_is_too_long() {
        assert!(after(Duration::MAX) > Instant::now() + FAR_AWAY / 2);
        assert_eq!(nanoseconds(Duration::MAX), u64::MAX);
        assert_eq!(nanoseconds(Duration::from_secs(2)), 2_000_000_000);
    }
}
