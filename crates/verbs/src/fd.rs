//! File descriptors that signal events.

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// Makes a descriptor non-blocking.
pub(crate) fn set_nonblocking(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: a `BorrowedFd` is open, and this command takes no pointer.
    let flags = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) };
    if flags < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a `BorrowedFd` is open, and this command takes no pointer. No memory depends on the
    // flag.
    match unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns a descriptor that is readable while one of the [added](epoll_add) descriptors is.
pub(crate) fn epoll() -> io::Result<OwnedFd> {
    // SAFETY: the function takes no pointer, and the descriptor that it opens has no other owner.
    unsafe { own(libc::epoll_create1(libc::EPOLL_CLOEXEC)) }
}

pub(crate) fn epoll_add(epoll: BorrowedFd<'_>, source: BorrowedFd<'_>) -> io::Result<()> {
    let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
    let (epoll, source) = (epoll.as_raw_fd(), source.as_raw_fd());
    // SAFETY: both descriptors are open, as `BorrowedFd`s are, and the kernel copies the event.
    match unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, source, &raw mut event) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Opens a socket of the netlink family by which RDMA devices are listed and created.
pub(crate) fn rdma_netlink() -> io::Result<OwnedFd> {
    // SAFETY: the function takes no pointer, and the descriptor that it opens has no other owner.
    unsafe { own(libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::NETLINK_RDMA)) }
}

/// Takes ownership of the descriptor that a function has just opened. Returns the thread's `errno`
/// if it is negative.
///
/// # Safety
///
/// `opened` is negative, or an open descriptor without another owner.
unsafe fn own(opened: c_int) -> io::Result<OwnedFd> {
    if opened < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it is not negative, so the caller guarantees that it is open and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(opened) })
}

/// Waits until the descriptor is readable. Returns `false` if the deadline passed first.
pub(crate) fn wait_readable(fd: BorrowedFd<'_>, deadline: Option<Instant>) -> io::Result<bool> {
    wait_any_readable(&[fd], deadline)
}

/// Like [`wait_readable`], for the first of several descriptors. A descriptor whose other end is
/// closed counts as readable.
pub(crate) fn wait_any_readable(fds: &[BorrowedFd<'_>], deadline: Option<Instant>) -> io::Result<bool> {
    let mut polled: Vec<_> =
        fds.iter().map(|fd| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 }).collect();
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let timeout_ms = left.map_or(-1, milliseconds);
        // SAFETY: the kernel gets the array with its length. The descriptors are open, because they
        // are borrowed.
        let ready = unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, timeout_ms) };
        match ready {
            1.. => return Ok(true),
            0 if left.is_some_and(|left| left.is_zero()) => return Ok(false),
            // The remaining time exceeded the range of `c_int`, or the wait ended just before the
            // deadline.
            0 => {}
            _ => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => {}
                error => return Err(error),
            },
        }
    }
}

/// Converts to milliseconds, rounded up, so that the last millisecond is not spent spinning.
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
        assert!(
            !wait_readable(reader.as_fd(), Some(start)).unwrap(),
            "a deadline in the past still polls once"
        );
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
