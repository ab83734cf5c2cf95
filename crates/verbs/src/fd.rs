//! File descriptors that tell of events.

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

/// Makes reading from a descriptor return at once where there is nothing to read.
pub(crate) fn set_nonblocking(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the descriptor is open, and only its flags are read.
    let flags = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) };
    if flags < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: as above; the flags are its own with one more.
    match unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Waits until there is something to read, at most until `deadline`; whether there is.
pub(crate) fn wait_readable(fd: BorrowedFd<'_>, deadline: Option<Instant>) -> io::Result<bool> {
    wait_any_readable(&[fd], deadline)
}

/// As [`wait_readable`], for whichever of several is first. One that is closed at its other end counts as readable.
pub(crate) fn wait_any_readable(fds: &[BorrowedFd<'_>], deadline: Option<Instant>) -> io::Result<bool> {
    let mut polled: Vec<_> =
        fds.iter().map(|fd| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 }).collect();
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let timeout_ms = left.map_or(-1, milliseconds);
        // SAFETY: the array is valid for reading and writing for its length, and the descriptors are open.
        let ready = unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, timeout_ms) };
        match ready {
            1.. => return Ok(true),
            0 if left.is_some_and(|left| left.is_zero()) => return Ok(false),
            // A wait longer than C can count, or one that ended in the deadline's last millisecond.
            0 => {}
            _ => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => {}
                error => return Err(error),
            },
        }
    }
}

/// Rounded up, so that nothing spins through the last millisecond.
fn milliseconds(time: Duration) -> c_int {
    c_int::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(c_int::MAX)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_wait_ends_with_data_or_with_its_deadline() {
        let (reader, mut writer) = io::pipe().unwrap();
        let start = Instant::now();
        assert!(!wait_readable(reader.as_fd(), Some(start + Duration::from_millis(5))).unwrap());
        assert!(start.elapsed() >= Duration::from_millis(5));
        assert!(!wait_readable(reader.as_fd(), Some(start)).unwrap(), "a deadline in the past asks once");
        writer.write_all(b"x").unwrap();
        assert!(wait_readable(reader.as_fd(), None).unwrap());
    }

    #[test]
    fn a_nonblocking_descriptor_has_nothing_to_read() {
        let (mut reader, _writer) = io::pipe().unwrap();
        set_nonblocking(reader.as_fd()).unwrap();
        let error = io::Read::read(&mut reader, &mut [0; 1]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }
}
