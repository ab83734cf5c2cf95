//! The error type of this crate, with cause and fix of each error.

use std::fmt;
use std::io;

use farreach_verbs_sys::{LibraryMissing, SymbolMissing};

use crate::gid::NoGid;
use crate::limits::CreationRefused;
use crate::locked_memory::LockedMemory;
use crate::qp::state::StateChangeRefused;

/// A verb failed, or could not be called.
///
/// `Display` shows the failure. [`cause`](Self::cause) explains it, and [`fix`](Self::fix) says how
/// to resolve it.
///
/// ```
/// use farreach_verbs::device::DeviceList;
///
/// if let Err(error) = DeviceList::get() {
///     println!("error: {error}\ncause: {}\nfix: {}", error.cause(), error.fix());
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The library is missing or unusable.
    #[error(transparent)]
    Library(#[from] LibraryMissing),
    /// The library is too old and lacks a function.
    #[error(transparent)]
    Symbol(#[from] SymbolMissing),
    /// A function of the library failed.
    #[error("{operation} on {subject}: {errno}")]
    Call {
        /// The C function.
        operation: &'static str,
        /// The object that it was called on, as shown to users: `rxe0`, `port 1 of mlx5_0`, `this
        /// host`.
        subject: String,
        /// The error number.
        errno: Errno,
    },
    /// The device does not support the request.
    #[error("{operation} on {subject}: not supported, {why}")]
    Unsupported {
        /// The C function, or the unsupported feature of it.
        operation: &'static str,
        /// The object that it was called on.
        subject: String,
        /// The reason, as shown to users.
        why: &'static str,
    },
    /// Two objects do not belong to the same open device.
    #[error("the {object} belongs to another context than {subject}")]
    OtherContext {
        /// The object that was passed in.
        object: &'static str,
        /// The device of the other object.
        subject: String,
    },
    /// A range exceeds its object.
    #[error("{len} bytes at offset {offset} exceed the {what} of {size} bytes")]
    OutOfBounds {
        /// The object.
        what: &'static str,
        /// The offset of the range.
        offset: u64,
        /// The length of the range, in bytes.
        len: usize,
        /// The size of the object, in bytes.
        size: usize,
    },
    /// Memory could not be pinned.
    #[error("{0}")]
    LockedMemory(Box<LockedMemory>),
    /// The creation of a queue or queue pair was refused, perhaps because it exceeds a limit of the
    /// device.
    #[error("{0}")]
    Creation(Box<CreationRefused>),
    /// A state change of a queue pair was refused.
    #[error("{0}")]
    StateChange(Box<StateChangeRefused>),
    /// No GID of a port can reach a peer.
    #[error("{0}")]
    NoGid(Box<NoGid>),
    /// A completion queue has no room for the completions of all work requests that could be in
    /// flight.
    #[error(
        "a completion queue of {subject} holds {depth} completions, and {needed} work requests may be in flight"
    )]
    Overcommitted {
        /// The device.
        subject: String,
        /// The capacity of the completion queue.
        depth: u32,
        /// The number of work requests that all its queues together may have in flight.
        needed: u64,
    },
    /// Memory could not be allocated, or not be registered once more.
    #[error("{what}")]
    Memory {
        /// The failure, as shown to users.
        what: String,
        /// How to resolve it.
        fix: String,
    },
}

impl Error {
    pub(crate) fn call(operation: &'static str, subject: impl Into<String>, errno: i32) -> Self {
        Self::Call { operation, subject: subject.into(), errno: Errno(errno) }
    }

    /// Like [`call`](Self::call), with the thread's `errno`.
    pub(crate) fn last(operation: &'static str, subject: impl Into<String>) -> Self {
        Self::call(operation, subject, io::Error::last_os_error().raw_os_error().unwrap_or(0))
    }

    /// Returns the C function that failed or is missing. `None` if the whole library is missing, or
    /// if no function was called.
    pub fn operation(&self) -> Option<&'static str> {
        match self {
            Self::Library(_) => None,
            Self::Symbol(missing) => Some(missing.symbol),
            Self::Call { operation, .. } | Self::Unsupported { operation, .. } => Some(operation),
            Self::LockedMemory(_) => Some("ibv_reg_mr"),
            Self::Creation(refused) => Some(refused.operation),
            Self::StateChange(_) => Some("ibv_modify_qp"),
            Self::OtherContext { .. }
            | Self::OutOfBounds { .. }
            | Self::NoGid(_)
            | Self::Overcommitted { .. }
            | Self::Memory { .. } => None,
        }
    }

    /// Returns the error number of the function, if it was called.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Call { errno, .. } => Some(*errno),
            Self::LockedMemory(_) => Some(Errno(libc::ENOMEM)),
            Self::Creation(refused) => Some(refused.errno),
            Self::StateChange(refused) => Some(refused.errno),
            _ => None,
        }
    }

    /// Returns an explanation of the failure.
    pub fn cause(&self) -> String {
        match self {
            Self::Library(missing) if missing.is_absent() => {
                format!("{} is not installed on this host", missing.soname)
            }
            Self::Library(missing) => format!("{} is installed and cannot be loaded", missing.soname),
            Self::Symbol(missing) => {
                format!("the installed {} is older than {}", missing.release, missing.since)
            }
            Self::Call { operation, errno, .. } => meaning(operation, *errno).0.to_owned(),
            Self::Unsupported { why, .. } => (*why).to_owned(),
            Self::OtherContext { .. } => "objects must belong to the same open device; opening a \
                                          device twice makes two contexts"
                .to_owned(),
            Self::OutOfBounds { .. } => "the range is wrong, or was computed for another object".to_owned(),
            Self::LockedMemory(refused) => refused.cause(),
            Self::Creation(refused) => refused.cause(),
            Self::StateChange(refused) => refused.cause(),
            Self::NoGid(none) => none.cause(),
            Self::Overcommitted { .. } => {
                "an overflow of a completion queue loses completions, and fails every queue pair on it"
                    .to_owned()
            }
            Self::Memory { .. } => "the system has no such memory, or a limit is reached".to_owned(),
        }
    }

    /// Returns an instruction that resolves the error.
    pub fn fix(&self) -> String {
        match self {
            Self::Library(missing) => missing.fix(),
            Self::Symbol(missing) => missing.fix(),
            Self::Call { operation, errno, .. } => meaning(operation, *errno).1.to_owned(),
            Self::Unsupported { .. } => {
                "use a device that supports it, or a newer kernel and rdma-core: farreach devices -v"
                    .to_owned()
            }
            Self::OtherContext { .. } => "open the device once, and clone its context".to_owned(),
            Self::OutOfBounds { .. } => "compare offset and length with the object's own".to_owned(),
            Self::LockedMemory(refused) => refused.fix(),
            Self::Creation(refused) => refused.fix(),
            Self::StateChange(refused) => refused.fix(),
            Self::NoGid(none) => none.fix(),
            Self::Overcommitted { needed, .. } => {
                format!(
                    "create the completion queue for {needed} completions, or its queues with fewer work requests"
                )
            }
            Self::Memory { fix, .. } => fix.clone(),
        }
    }
}

/// Returns cause and fix of a failed call: first specific cases, then general ones by error number.
pub(crate) fn meaning(operation: &str, errno: Errno) -> (&'static str, &'static str) {
    match (operation, errno.0) {
        ("ibv_get_device_list", libc::ENOSYS | libc::ENOENT) => (
            "the running kernel has no RDMA support, or none that is loaded",
            "modprobe ib_uverbs; where there is no such module, boot a kernel that is built with CONFIG_INFINIBAND",
        ),
        ("ibv_open_device", libc::EACCES | libc::EPERM) => (
            "this user may not open the device's node in /dev/infiniband, or its container may not",
            "give the user read and write access to /dev/infiniband/uverbs*; in a container also pass the device in \
             and raise the locked-memory limit",
        ),
        ("ibv_open_device", libc::ENOENT) => (
            "the device's node in /dev/infiniband is missing",
            "modprobe ib_uverbs and let udev create the node; in a container, pass /dev/infiniband in",
        ),
        (_, libc::ENODEV | libc::ENXIO) => {
            ("the device is gone: removed, or its driver unloaded", "list the devices again, and check dmesg")
        }
        (_, libc::EIO) => (
            "the device does not answer: it was removed, or its driver is recovering from a fault",
            "list the devices again, and check dmesg",
        ),
        (_, libc::EMFILE | libc::ENFILE) => {
            ("the limit of open files is reached", "raise it: ulimit -n, or fs.file-max for the whole host")
        }
        (_, libc::ENOMEM) => (
            "memory, or the limit of locked memory, is used up",
            "raise the limit of locked memory: ulimit -l, LimitMEMLOCK= of a systemd unit, or memlock in \
             /etc/security/limits.d",
        ),
        (_, libc::EACCES | libc::EPERM) => (
            "this user lacks the permission",
            "run as a user with the permission, or with the required capability",
        ),
        (_, libc::EINVAL) => {
            ("the device refuses the arguments", "compare them with the device's limits: farreach devices -v")
        }
        (_, libc::EOPNOTSUPP | libc::ENOSYS) => (
            "this device, its driver or its provider library does not support the operation",
            "use a device that supports it, or a newer kernel and rdma-core",
        ),
        (_, libc::EBUSY) => ("another object still uses it", "release that object first"),
        _ => ("libibverbs gives no further reason", "check dmesg, where drivers log errors"),
    }
}

/// An error number of the C library.
///
/// ```
/// use farreach_verbs::error::Errno;
///
/// assert_eq!(Errno(13).to_string(), "Permission denied (errno 13)");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(pub i32);

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = io::Error::from_raw_os_error(self.0).to_string();
        // The standard library appends the number in its own format: "Permission denied (os error
        // 13)".
        let words = text.split(" (os error").next().unwrap_or_default();
        write!(f, "{words} (errno {})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_call_says_what_where_and_why() {
        let error = Error::call("ibv_open_device", "rxe0", libc::EACCES);
        assert_eq!(error.to_string(), "ibv_open_device on rxe0: Permission denied (errno 13)");
        assert_eq!(error.operation(), Some("ibv_open_device"));
        assert_eq!(error.errno(), Some(Errno(libc::EACCES)));
        assert!(error.cause().contains("may not open"), "{}", error.cause());
        assert!(error.fix().contains("/dev/infiniband/uverbs"), "{}", error.fix());
    }

    #[test]
    fn the_same_number_means_what_the_call_makes_of_it() {
        let list = Error::call("ibv_get_device_list", "this host", libc::ENOSYS);
        let query = Error::call("ibv_query_device_ex", "rxe0", libc::ENOSYS);
        assert!(list.cause().contains("no RDMA support"));
        assert!(query.cause().contains("does not support the operation"));
    }
}
