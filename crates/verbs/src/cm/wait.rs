//! Waits with deadlines.

use std::os::fd::BorrowedFd;
use std::time::Instant;

use super::error::Error;
use crate::fd;

/// Sleeps until one of the descriptors is readable or its other end is closed. Returns `false` if
/// the deadline passed first. Without a deadline it waits without limit.
pub(super) fn until_readable(fds: &[BorrowedFd<'_>], deadline: Option<Instant>) -> Result<bool, Error> {
    fd::wait_any_readable(fds, deadline)
        .map_err(|error| Error::call("poll", "the event channel", error.raw_os_error().unwrap_or(0)))
}

/// Returns the milliseconds until the deadline, rounded up so that the end is not spent spinning,
/// and never 0. `None` if the deadline has passed.
pub(super) fn milliseconds_until(deadline: Instant) -> Option<i32> {
    let left = deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())?;
    Some(i32::try_from(left.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX))
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::os::fd::AsFd;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_deadline_ends_the_wait_and_not_before() {
        let (reader, _writer) = io::pipe().unwrap();
        let (start, limit) = (Instant::now(), Duration::from_millis(20));
        assert_eq!(until_readable(&[reader.as_fd()], Some(start + limit)), Ok(false));
        assert!(start.elapsed() >= limit);
        assert_eq!(until_readable(&[reader.as_fd()], Some(start)), Ok(false), "a deadline of the past");
    }

    #[test]
    fn a_closed_end_wakes() {
        let (reader, writer) = io::pipe().unwrap();
        drop(writer);
        assert_eq!(until_readable(&[reader.as_fd()], None), Ok(true));
    }

    #[test]
    fn time_left_is_rounded_up() {
        assert_eq!(milliseconds_until(Instant::now()), None);
        assert_eq!(milliseconds_until(Instant::now() + Duration::from_micros(900)), Some(1));
        let years = Instant::now() + Duration::from_secs(1 << 40);
        assert_eq!(milliseconds_until(years), Some(i32::MAX));
    }
}
