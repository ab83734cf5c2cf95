//! What can go wrong, what it means here, and what to do about it.

use std::fmt;
use std::io;

use farreach_verbs_sys::{LibraryMissing, SymbolMissing};

/// A verb failed, or could not be called at all.
///
/// It displays as what happened; [`cause`](Self::cause) says what that means here, [`fix`](Self::fix) what to do.
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
    /// The library is there, and older than the function that is needed.
    #[error(transparent)]
    Symbol(#[from] SymbolMissing),
    /// A function of the library failed.
    #[error("{operation} on {subject}: {errno}")]
    Call {
        /// The C function.
        operation: &'static str,
        /// What it was called on, as a person names it: `rxe0`, `port 1 of mlx5_0`, `this host`.
        subject: String,
        /// Why.
        errno: Errno,
    },
}

impl Error {
    pub(crate) fn call(operation: &'static str, subject: impl Into<String>, errno: i32) -> Self {
        Self::Call { operation, subject: subject.into(), errno: Errno(errno) }
    }

    /// As [`call`](Self::call), with the thread's `errno`.
    pub(crate) fn last(operation: &'static str, subject: impl Into<String>) -> Self {
        Self::call(operation, subject, io::Error::last_os_error().raw_os_error().unwrap_or(0))
    }

    /// The C function that failed or is missing; none where the whole library is.
    pub fn operation(&self) -> Option<&'static str> {
        match self {
            Self::Library(_) => None,
            Self::Symbol(missing) => Some(missing.symbol),
            Self::Call { operation, .. } => Some(operation),
        }
    }

    /// Why the function failed, if it was called.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Library(_) | Self::Symbol(_) => None,
            Self::Call { errno, .. } => Some(*errno),
        }
    }

    /// What it means here.
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
        }
    }

    /// What to do about it.
    pub fn fix(&self) -> String {
        match self {
            Self::Library(missing) => missing.fix(),
            Self::Symbol(missing) => missing.fix(),
            Self::Call { operation, errno, .. } => meaning(operation, *errno).1.to_owned(),
        }
    }
}

/// Cause and fix of a failed call: the cases that a person meets, then what holds for any call.
fn meaning(operation: &str, errno: Errno) -> (&'static str, &'static str) {
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
            "modprobe ib_uverbs and let udev make the node; in a container, pass /dev/infiniband in",
        ),
        (_, libc::ENODEV | libc::ENXIO) => (
            "the device is gone: removed, or its driver unloaded",
            "list the devices again, and look into dmesg",
        ),
        (_, libc::EIO) => (
            "the device does not answer: it was removed, or its driver is recovering from a fault",
            "list the devices again, and look into dmesg",
        ),
        (_, libc::EMFILE | libc::ENFILE) => {
            ("the limit of open files is reached", "raise it: ulimit -n, or fs.file-max for the whole host")
        }
        (_, libc::ENOMEM) => (
            "memory, or the limit of locked memory, is used up",
            "raise the limit of locked memory: ulimit -l, LimitMEMLOCK= of a systemd unit, or memlock in \
             /etc/security/limits.d",
        ),
        (_, libc::EACCES | libc::EPERM) => {
            ("this user may not do that", "run it as a user who may, or with the capability that it needs")
        }
        (_, libc::EINVAL) => {
            ("the device refuses the arguments", "compare them with the device's limits: farreach devices -v")
        }
        (_, libc::EOPNOTSUPP | libc::ENOSYS) => (
            "this device, its driver or its provider library does not have the operation",
            "use a device that has it, or a newer kernel and rdma-core",
        ),
        (_, libc::EBUSY) => ("something that depends on it still lives", "release that first"),
        _ => ("libibverbs gives no further reason", "look into dmesg, which the drivers write to"),
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
        // The standard library's own way of adding the number: "Permission denied (os error 13)".
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
        assert!(query.cause().contains("does not have the operation"));
    }
}
