//! Waits with a limit.

use std::time::{Duration, Instant};

/// How long a test waits for something that takes milliseconds: long enough for a busy machine that
/// emulates another.
pub const WAIT_MAX: Duration = Duration::from_secs(20);

/// Repeats `attempt` until it returns a value. Panics when [`WAIT_MAX`] is over.
#[track_caller]
pub fn wait_for<T>(what: &str, attempt: impl FnMut() -> Option<T>) -> T {
    wait_at_most(WAIT_MAX, what, attempt)
}

#[track_caller]
fn wait_at_most<T>(limit: Duration, what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(found) = attempt() {
            return found;
        }
        assert!(Instant::now() < deadline, "no {what} within {limit:?}");
        // The other side may need this core to make progress.
        std::thread::yield_now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_late_is_waited_for() {
        let mut attempts = 0;
        let found = wait_for("third attempt", || {
            attempts += 1;
            (attempts == 3).then_some(attempts)
        });
        assert_eq!(found, 3);
    }

    #[test]
    #[should_panic(expected = "no answer within 1ms")]
    fn what_never_comes_is_not_waited_for_long() {
        wait_at_most(Duration::from_millis(1), "answer", || None::<()>);
    }
}
