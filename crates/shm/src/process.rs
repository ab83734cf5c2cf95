//! The process at the other end of a socket.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, geteuid, pidfd_open};

use crate::user::is_told_from_others;

/// A process, by a descriptor that no other process can get.
///
/// ```
/// use farreach_shm::Process;
///
/// let (one, _other) = std::os::unix::net::UnixStream::pair()?;
/// let own = Process::of_peer(&one)?;
/// assert_eq!(own.pid(), std::process::id());
/// assert!(!own.has_ended());
/// # Ok::<(), farreach_shm::ProcessError>(())
/// ```
#[derive(Debug)]
pub struct Process {
    pidfd: OwnedFd,
    pid: u32,
}

/// The process at the other end cannot be a peer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProcessError {
    /// It belongs to another user.
    #[error("the process belongs to user {theirs}, and this one to {ours}")]
    OtherUser {
        /// Its user.
        theirs: u32,
        /// The user of this process.
        ours: u32,
    },
    /// This process cannot tell its user from others: its user namespace has no number for some of
    /// them, and they all seem to have the number of this one.
    #[error(
        "the user of the process cannot be told: user {user} here stands for all that this user namespace does not have"
    )]
    UnknownUser {
        /// The number of the user of this process.
        user: u32,
    },
    /// It is in a pid namespace that this process does not see. Since Linux 6.5 that is no obstacle.
    #[error("the process is in another pid namespace, which needs Linux 6.5 or newer")]
    Invisible,
    /// It has ended.
    #[error("the process has ended")]
    Ended,
    /// The kernel refused.
    #[error("{call}: {error}")]
    Call {
        /// The name of the call.
        call: &'static str,
        /// Its error.
        error: io::Error,
    },
}

impl From<io::Error> for ProcessError {
    fn from(error: io::Error) -> Self {
        Self::Call { call: "socketpair", error }
    }
}

impl Process {
    /// Returns the process that has connected, or listened on, the other end of a Unix socket. It
    /// must belong to the user of this process.
    pub fn of_peer(socket: impl AsFd) -> Result<Self, ProcessError> {
        let socket = socket.as_fd();
        let failed = |call| move |error: rustix::io::Errno| ProcessError::Call { call, error: error.into() };
        let credentials = check_user(socket)?;
        if !is_told_from_others() {
            return Err(ProcessError::UnknownUser { user: credentials.uid });
        }
        let pidfd = match peer_pidfd(socket) {
            Ok(pidfd) => pidfd,
            Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => {
                // The number is zero in a namespace that does not see the process.
                let pid = Pid::from_raw(credentials.pid).ok_or(ProcessError::Invisible)?;
                let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(|error| match error {
                    rustix::io::Errno::SRCH | rustix::io::Errno::INVAL => ProcessError::Ended,
                    error => failed("pidfd_open")(error),
                })?;
                // The number could belong to another process by now. It does not if the socket is
                // still open: then its process was alive when the descriptor was opened.
                if has_hung_up(socket) {
                    return Err(ProcessError::Ended);
                }
                pidfd
            }
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Err(ProcessError::Ended),
            Err(error) => return Err(ProcessError::Call { call: "getsockopt(SO_PEERPIDFD)", error }),
        };
        Ok(Self { pidfd, pid: credentials.pid.unsigned_abs() })
    }

    /// Returns `true` if the process has ended. Its threads have ended then, and none of its
    /// mappings exist.
    pub fn has_ended(&self) -> bool {
        is_ready(self.pidfd.as_fd(), PollFlags::IN)
    }

    /// Returns its number in this namespace, for messages. It is 0 if this namespace does not see the
    /// process.
    pub fn pid(&self) -> u32 {
        self.pid
    }
}

impl AsFd for Process {
    /// Returns a descriptor that becomes readable when the process has ended.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

/// Refuses a process of another user, before anything else is done for it.
pub(crate) fn check_user(socket: BorrowedFd<'_>) -> Result<libc::ucred, ProcessError> {
    let credentials = peer_credentials(socket)
        .map_err(|error| ProcessError::Call { call: "getsockopt(SO_PEERCRED)", error })?;
    let (theirs, ours) = (credentials.uid, geteuid().as_raw());
    if theirs == ours { Ok(credentials) } else { Err(ProcessError::OtherUser { theirs, ours }) }
}

pub(crate) fn has_hung_up(socket: BorrowedFd<'_>) -> bool {
    is_ready(socket, PollFlags::empty())
}

/// Returns whether one of the events, or a hang-up, is there.
fn is_ready(fd: BorrowedFd<'_>, events: PollFlags) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(fd, events)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let wanted = events | PollFlags::HUP | PollFlags::ERR;
    poll(&mut fds, Some(&now)).is_ok() && fds[0].revents().intersects(wanted)
}

/// `SO_PEERPIDFD`, since Linux 6.5. rustix has no function for it.
pub(crate) fn peer_pidfd(socket: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    const SO_PEERPIDFD: libc::c_int = 77;
    let pidfd: libc::c_int = socket_option(socket, SO_PEERPIDFD, -1)?;
    if pidfd < 0 {
        return Err(io::ErrorKind::InvalidData.into());
    }
    // SAFETY: the kernel has opened this descriptor for this call. Nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(pidfd) })
}

/// `SO_PEERCRED`. rustix returns a process number that is not zero, and the kernel's may be zero.
fn peer_credentials(socket: BorrowedFd<'_>) -> io::Result<libc::ucred> {
    socket_option(socket, libc::SO_PEERCRED, libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX })
}

/// Reads an option whose value consists of integers.
fn socket_option<T: Copy>(socket: BorrowedFd<'_>, option: libc::c_int, mut value: T) -> io::Result<T> {
    let mut len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to the local, and the length. The two callers
    // pass types of which all bit patterns are valid.
    let status = unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, option, (&raw mut value).cast(), &raw mut len)
    };
    if status == 0 { Ok(value) } else { Err(io::Error::last_os_error()) }
}
