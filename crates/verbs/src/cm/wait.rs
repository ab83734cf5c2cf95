//! Waits that end.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Instant;

use super::error::Error;

/// Sleeps until one of the descriptors is readable or closed at its other end; false when the deadline came first. Without a
/// deadline it waits for as long as it takes.
pub(super) fn until_readable(fds: &[BorrowedFd<'_>], deadline: Option<Instant>) -> Result<bool, Error> {
    let mut polled: Vec<_> =
        fds.iter().map(|fd| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 }).collect();
    loop {
        let timeout_ms = deadline.map_or(-1, |deadline| milliseconds_until(deadline).unwrap_or(0));
        // SAFETY: the array is valid for reading and writing for its length, and the descriptors are open.
        let ready = unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, timeout_ms) };
        match ready {
            0 if deadline.is_some_and(|deadline| deadline <= Instant::now()) => return Ok(false),
            // Woken early: a limit longer than poll takes, or a clock that was rounded.
            0 => {}
            1.. => return Ok(true),
            _ => match io::Error::last_os_error().raw_os_error() {
                Some(libc::EINTR) => {}
                errno => return Err(Error::call("poll", "the event channel", errno.unwrap_or(0))),
            },
        }
    }
}

/// How long it is, rounded up so that the end is not spun for, and never 0; none when it is over.
pub(super) fn milliseconds_until(deadline: Instant) -> Option<i32> {
    let left = deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())?;
    Some(i32::try_from(left.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX))
}

#[cfg(test)]
mod tests {
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
