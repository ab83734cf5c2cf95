//! The error type of the connection manager, with cause and fix of each error.

use std::net::SocketAddr;

use farreach_verbs_sys::{LibraryMissing, SymbolMissing};

use super::event::EventKind;
use super::reject::RejectReason;
use crate::error::Errno;

/// A call of the connection manager failed, or a connection was not established or has ended.
///
/// `Display` shows the failure. [`cause`](Self::cause) explains it, and [`fix`](Self::fix) says how
/// to resolve it.
///
/// ```
/// use std::time::{Duration, Instant};
/// use farreach_verbs::cm::{Connector, Error};
///
/// let deadline = Instant::now() + Duration::from_secs(2);
/// match Connector::resolve("192.0.2.1:18520".parse().unwrap(), deadline) {
///     Ok(connector) => println!("on {:?}", connector.id().device_name()),
///     Err(Error::TimedOut { .. }) => println!("no answer within two seconds"),
///     Err(error) => println!("error: {error}\ncause: {}\nfix: {}", error.cause(), error.fix()),
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A library is missing or too old, or a verb failed.
    #[error(transparent)]
    Verbs(#[from] crate::Error),
    /// A function of librdmacm failed.
    #[error("{operation} on {subject}: {errno}")]
    Call {
        /// The C function.
        operation: &'static str,
        /// The object that it was called on: `the connection to 192.0.2.1:18520`,
        /// `/dev/infiniband/rdma_cm`.
        subject: String,
        /// The error number.
        errno: Errno,
    },
    /// The call needs a device, and the id has none yet.
    #[error("{operation} on an id without a device")]
    NoDevice {
        /// The C function, which would have crashed.
        operation: &'static str,
    },
    /// The private data exceeds the room in the message.
    #[error("{operation}: {len} bytes of private data exceed the maximum of {max}")]
    PrivateDataTooLong {
        /// The C function.
        operation: &'static str,
        /// The number of bytes given.
        len: usize,
        /// The maximum number of bytes.
        max: usize,
    },
    /// The address belongs to no RDMA device that can be reached from this host.
    #[error("the address of {} was not resolved: {errno}", name(peer))]
    AddressNotResolved {
        /// The peer's address.
        peer: Option<SocketAddr>,
        /// The error number.
        errno: Errno,
    },
    /// No path leads to the resolved address.
    #[error("no route to {}: {errno}", name(peer))]
    RouteNotResolved {
        /// The peer's address.
        peer: Option<SocketAddr>,
        /// The error number.
        errno: Errno,
    },
    /// The peer, or its kernel, rejected the connection.
    #[error("{}", rejected(*peer, *reason))]
    Rejected {
        /// The peer's address.
        peer: Option<SocketAddr>,
        /// The reason.
        reason: RejectReason,
        /// The private data of the listening program, including trailing zeroes. Empty if its
        /// kernel rejected.
        private_data: Box<[u8]>,
    },
    /// The peer did not answer within the time of the kernel's retries, which is many seconds.
    #[error("{} is unreachable: {errno}", name(peer))]
    Unreachable {
        /// The peer's address.
        peer: Option<SocketAddr>,
        /// The error number.
        errno: Errno,
    },
    /// The handshake was aborted.
    #[error("the connection with {} failed: {errno}", name(peer))]
    ConnectFailed {
        /// The peer's address.
        peer: Option<SocketAddr>,
        /// The error number.
        errno: Errno,
    },
    /// The connection has ended.
    #[error("{} has disconnected", name(peer))]
    Disconnected {
        /// The peer's address.
        peer: Option<SocketAddr>,
    },
    /// A multicast group was not joined, or was lost.
    #[error("the multicast group was not joined: {errno}")]
    MulticastFailed {
        /// The error number.
        errno: Errno,
    },
    /// The device was removed.
    #[error("the RDMA device of {subject} was removed")]
    DeviceRemoved {
        /// The object that used the device.
        subject: String,
    },
    /// The deadline passed first.
    #[error("no {awaited} from {subject} before the deadline")]
    TimedOut {
        /// The expected event: `connect response`, `request`.
        awaited: &'static str,
        /// The object that was waited on.
        subject: String,
    },
    /// An event arrived that the state of the connection does not allow.
    #[error("received {kind} from {subject} instead of {awaited}")]
    Unexpected {
        /// The expected event.
        awaited: &'static str,
        /// The object that was waited on.
        subject: String,
        /// The event that arrived.
        kind: EventKind,
    },
    /// A host or a service has no address.
    #[error("{name} has no address: {reason}")]
    NameNotResolved {
        /// The host and the service.
        name: String,
        /// The resolver's message.
        reason: String,
    },
}

impl Error {
    pub(super) fn call(operation: &'static str, subject: impl Into<String>, errno: i32) -> Self {
        Self::Call { operation, subject: subject.into(), errno: Errno(errno) }
    }

    /// Returns the error number, if a function or the kernel reported one.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Verbs(error) => error.errno(),
            Self::Call { errno, .. }
            | Self::AddressNotResolved { errno, .. }
            | Self::RouteNotResolved { errno, .. }
            | Self::Unreachable { errno, .. }
            | Self::ConnectFailed { errno, .. }
            | Self::MulticastFailed { errno } => Some(*errno),
            _ => None,
        }
    }

    /// Returns an explanation of the failure.
    pub fn cause(&self) -> String {
        match self {
            Self::Verbs(error) => error.cause(),
            Self::Call { operation, errno, .. } => meaning(operation, *errno).0.to_owned(),
            Self::NoDevice { .. } => {
                "the id is not bound to a device: its address is not resolved yet, or it is bound to any address".into()
            }
            Self::PrivateDataTooLong { .. } => "the messages of the handshake have a fixed size".into(),
            Self::AddressNotResolved { errno, .. } => address_meaning(*errno).0.to_owned(),
            Self::RouteNotResolved { .. } => "the fabric's subnet manager, or the net device, gives no path".into(),
            Self::Rejected { reason, .. } => reason.to_string(),
            Self::Unreachable { .. } => "the host answers no connection messages".into(),
            Self::ConnectFailed { .. } => "one side aborted the handshake".into(),
            Self::Disconnected { .. } => "the other side, or its kernel, ended the connection".into(),
            Self::MulticastFailed { .. } => "the subnet manager or the net device refused the group".into(),
            Self::DeviceRemoved { .. } => "the device was unplugged, its driver unloaded, or the link deleted".into(),
            Self::TimedOut { .. } => "the other side is busy, gone, or its packets do not arrive".into(),
            Self::Unexpected { .. } => "the connection is not in the state that the caller expects".into(),
            Self::NameNotResolved { .. } => "the resolver does not know the host or the service".into(),
        }
    }

    /// Returns an instruction that resolves the error.
    pub fn fix(&self) -> String {
        match self {
            Self::Verbs(error) => error.fix(),
            Self::Call { operation, errno, .. } => meaning(operation, *errno).1.to_owned(),
            Self::NoDevice { .. } => "resolve the address first and wait for it, or bind to one address".into(),
            Self::PrivateDataTooLong { max, .. } => {
                format!("send at most {max} bytes with the handshake, and the rest over the connection")
            }
            Self::AddressNotResolved { errno, .. } => address_meaning(*errno).1.to_owned(),
            Self::RouteNotResolved { .. } => {
                "InfiniBand: check that a subnet manager runs (sminfo); RoCE: check that the net device is up".into()
            }
            Self::Rejected { reason, .. } => reason.fix().to_owned(),
            Self::Unreachable { .. } | Self::TimedOut { .. } => {
                "check that the other host is up and that UDP port 4791 (RoCE v2) passes every firewall on the path".into()
            }
            Self::ConnectFailed { .. } => "try again; if it persists, check dmesg on both hosts".into(),
            Self::Disconnected { .. } => "connect again".into(),
            Self::MulticastFailed { .. } => {
                "use a multicast address of the device's own network (239.0.0.0/8, ff05::/16), and check that it is up"
                    .into()
            }
            Self::DeviceRemoved { .. } => "list the devices again, and check dmesg".into(),
            Self::Unexpected { .. } => "check the connection's earlier events".into(),
            Self::NameNotResolved { .. } => "check the spelling, /etc/hosts and the resolver".into(),
        }
    }
}

impl From<LibraryMissing> for Error {
    fn from(missing: LibraryMissing) -> Self {
        Self::Verbs(missing.into())
    }
}

impl From<SymbolMissing> for Error {
    fn from(missing: SymbolMissing) -> Self {
        Self::Verbs(missing.into())
    }
}

fn name(peer: &Option<SocketAddr>) -> String {
    peer.map_or_else(|| "the other side".to_owned(), |peer| peer.to_string())
}

fn rejected(peer: Option<SocketAddr>, reason: RejectReason) -> String {
    let code = reason.code().map(|code| format!(" (reason {code})")).unwrap_or_default();
    match (reason, peer) {
        (RejectReason::InvalidServiceId, Some(peer)) => format!("rejected: nothing listens on {peer}{code}"),
        _ => format!("rejected by {}: {reason}{code}", name(&peer)),
    }
}

/// Returns cause and fix of an address that was not resolved.
fn address_meaning(errno: Errno) -> (&'static str, &'static str) {
    match errno.0 {
        libc::ENODEV => (
            "the address is reached by a net device without RDMA",
            "use an address of the network that an RDMA device is on: farreach devices lists them",
        ),
        libc::ENETUNREACH | libc::EHOSTUNREACH => (
            "no route leads there, or no host answers for the address",
            "check the address and the routes: ip route get ADDRESS, ip neighbour",
        ),
        libc::ETIMEDOUT => (
            "no host answered for the address in time",
            "check that the host is up and in the same network: ip neighbour shows FAILED if it is not",
        ),
        _ => ("the kernel gives no further reason", "check the address and the routes: ip route get ADDRESS"),
    }
}

/// Returns cause and fix of a failed call: first specific cases, then general ones by error number.
fn meaning(operation: &str, errno: Errno) -> (&'static str, &'static str) {
    match (operation, errno.0) {
        ("rdma_create_event_channel", libc::ENODEV) => {
            ("this host has no RDMA device", "farreach doctor finds out why")
        }
        ("rdma_create_event_channel", libc::ENOENT | libc::ENXIO) => (
            "the connection manager's node /dev/infiniband/rdma_cm is missing",
            "modprobe rdma_ucm; in a container, pass /dev/infiniband/rdma_cm in",
        ),
        ("rdma_create_event_channel", libc::EACCES | libc::EPERM) => (
            "this user may not open /dev/infiniband/rdma_cm, or its container may not",
            "give the user read and write access to it; in a container, pass it in as a device",
        ),
        ("rdma_bind_addr" | "rdma_resolve_addr", libc::EADDRNOTAVAIL | libc::ENODEV) => (
            "no RDMA device of this host has the address",
            "use an address of an RDMA device: farreach devices lists them",
        ),
        ("rdma_bind_addr" | "rdma_listen", libc::EADDRINUSE) => (
            "another program, or an id of this one, has the port",
            "choose another port, or end the other program; set_reuse_address lets ids share it",
        ),
        ("rdma_bind_addr", libc::EACCES) => {
            ("ports below 1024 are reserved for root", "choose a port of 1024 or more")
        }
        ("rdma_resolve_addr", _) if address_meaning(errno).0 != address_meaning(Errno(0)).0 => {
            address_meaning(errno)
        }
        ("rdma_accept", libc::EINVAL | libc::ENOTCONN | libc::ECONNRESET) => (
            "the other side has withdrawn its request, or it was already answered",
            "none needed: the other side can connect again",
        ),
        ("rdma_disconnect", libc::EINVAL | libc::ENOTCONN) => {
            ("there is no connection: it is not established yet, or has ended", "none needed")
        }
        (_, libc::EINVAL) => (
            "the id is not in the state that the call needs, or the arguments exceed the device's limits",
            "wait for the event of the previous step; compare the arguments with the device's limits",
        ),
        (_, libc::ENODEV) => {
            ("the device is gone, or the id has none", "list the devices again, and check dmesg")
        }
        (_, libc::EMFILE | libc::ENFILE) => (
            "the limit of open files is reached: each event channel needs one",
            "raise it: ulimit -n; or let ids share a channel",
        ),
        (_, libc::ENOSYS | libc::EOPNOTSUPP) => {
            ("this kernel or device does not support the operation", "use a newer kernel, or another device")
        }
        (_, libc::ENOMEM) => ("memory is used up", "free some, or raise the limits of this process"),
        _ => ("librdmacm gives no further reason", "check dmesg"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer() -> Option<SocketAddr> {
        Some("192.0.2.1:18520".parse().unwrap())
    }

    #[test]
    fn nobody_listening_is_said_in_words() {
        let error = Error::Rejected {
            peer: peer(),
            reason: RejectReason::InvalidServiceId,
            private_data: Box::default(),
        };
        assert_eq!(error.to_string(), "rejected: nothing listens on 192.0.2.1:18520 (reason 8)");
        assert!(error.fix().contains("start the listener"), "{}", error.fix());
    }

    #[test]
    fn a_programs_no_is_told_from_a_kernels() {
        let error =
            Error::Rejected { peer: peer(), reason: RejectReason::Consumer, private_data: Box::default() };
        assert_eq!(
            error.to_string(),
            "rejected by 192.0.2.1:18520: the listening program rejected the request (reason 28)"
        );
    }

    #[test]
    fn a_missing_node_is_named() {
        let error = Error::call("rdma_create_event_channel", "/dev/infiniband/rdma_cm", libc::ENOENT);
        assert!(error.to_string().contains("/dev/infiniband/rdma_cm: No such file"), "{error}");
        assert!(error.cause().contains("is missing"));
        assert!(error.fix().contains("modprobe rdma_ucm"));
    }

    #[test]
    fn an_error_is_small_enough_to_return() {
        assert!(size_of::<Error>() <= 128, "{}", size_of::<Error>());
    }
}
