//! The reason why a connection has ended: operation, cause, and fix.

use std::net::SocketAddr;
use std::time::Duration;

use farreach_proto::wire::WireError;
use rustix::io::Errno;

use super::QUEUED_MAX;

/// The reason why a connection has ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CloseReason {
    /// The connection was never established.
    #[error("connect to {peer}: {}", words(*.errno))]
    Unreachable {
        /// The address of the peer.
        peer: SocketAddr,
        /// The kernel's error.
        errno: Errno,
    },
    /// The peer sent something that is not part of the protocol.
    #[error("control connection with {peer}: {error}")]
    NotUnderstood {
        /// The address of the peer.
        peer: SocketAddr,
        /// The protocol error.
        error: WireError,
    },
    /// The peer has closed the connection.
    #[error("control connection with {peer}: the peer closed it{}", if *.is_torn { " in the middle of a frame" } else { "" })]
    Ended {
        /// The address of the peer.
        peer: SocketAddr,
        /// Whether a preamble or frame was incomplete.
        is_torn: bool,
    },
    /// The connection has failed.
    #[error("control connection with {peer}: {}", words(*.errno))]
    Closed {
        /// The address of the peer.
        peer: SocketAddr,
        /// The kernel's error.
        errno: Errno,
    },
    /// The peer uses TLS, and this side does not.
    #[error("control connection with {peer}: the peer speaks TLS, and this side does not")]
    TlsNotHere {
        /// The address of the peer.
        peer: SocketAddr,
    },
    /// This side uses TLS, and the peer does not.
    #[cfg(feature = "tls")]
    #[error("control connection with {peer}: this side speaks TLS, and the peer does not")]
    TlsNotThere {
        /// The address of the peer.
        peer: SocketAddr,
    },
    /// Both sides use TLS, and the session failed; in most cases one side does not trust the other.
    #[cfg(feature = "tls")]
    #[error("control connection with {peer}: {cause}")]
    Tls {
        /// The address of the peer.
        peer: SocketAddr,
        /// The cause.
        cause: String,
        /// The fix.
        fix: String,
    },
    /// The peer has connected and did not finish its handshake in time.
    #[error("control connection with {peer}: the handshake was not done within {after:?}")]
    HandshakeTimedOut {
        /// The address of the peer.
        peer: SocketAddr,
        /// The timeout.
        after: Duration,
    },
    /// The peer does not read.
    #[error("control connection with {peer}: the peer does not read, and more than {} MiB wait for it", QUEUED_MAX >> 20)]
    Unread {
        /// The address of the peer.
        peer: SocketAddr,
    },
}

impl CloseReason {
    /// Returns the address of the peer.
    pub(crate) fn peer(&self) -> SocketAddr {
        match self {
            Self::Unreachable { peer, .. }
            | Self::NotUnderstood { peer, .. }
            | Self::Ended { peer, .. }
            | Self::Closed { peer, .. }
            | Self::TlsNotHere { peer }
            | Self::HandshakeTimedOut { peer, .. }
            | Self::Unread { peer } => *peer,
            #[cfg(feature = "tls")]
            Self::TlsNotThere { peer } | Self::Tls { peer, .. } => *peer,
        }
    }

    /// Returns the cause, without the operation and the peer.
    pub(crate) fn cause(&self) -> String {
        let text = self.to_string();
        text.split_once(": ").map_or(text.clone(), |(_, cause)| cause.to_owned())
    }

    /// Returns whether the peer is refused in the handshake. The peer learns why from the
    /// preamble or the TLS alert.
    pub(crate) fn is_refusal(&self) -> bool {
        match self {
            Self::NotUnderstood { error, .. } => {
                matches!(error, WireError::Stranger | WireError::Version { .. })
            }
            Self::TlsNotHere { .. } => true,
            #[cfg(feature = "tls")]
            Self::TlsNotThere { .. } | Self::Tls { .. } => true,
            _ => false,
        }
    }

    /// Returns the fix.
    pub(crate) fn fix(&self) -> String {
        match self {
            Self::Unreachable { peer, errno } => match *errno {
                Errno::CONNREFUSED => format!(
                    "start the peer's engine, or see which port it listens on: nobody does on {}",
                    peer.port()
                ),
                Errno::TIMEDOUT => {
                    format!(
                        "see whether {} is up, and whether a firewall drops what goes to port {}",
                        peer.ip(),
                        peer.port()
                    )
                }
                Errno::NETUNREACH | Errno::HOSTUNREACH => {
                    format!("give this host a route to {}, as `ip route get {}` shows", peer.ip(), peer.ip())
                }
                Errno::MFILE | Errno::NFILE => MORE_FILES.to_owned(),
                _ => format!("see whether this host reaches {} at all", peer.ip()),
            },
            Self::NotUnderstood { error: WireError::Stranger, .. } => {
                "see which program uses this address: it is not an engine's".to_owned()
            }
            Self::NotUnderstood { error: WireError::Version { .. }, .. } => {
                "upgrade the older side".to_owned()
            }
            Self::NotUnderstood { .. } => {
                "run the same release on both sides; if it does, this is a bug of one of them".to_owned()
            }
            Self::Ended { .. } => "see how the peer's process ended".to_owned(),
            Self::Closed { errno: Errno::CONNRESET, .. } => {
                "see whether the peer's process was killed, or its machine restarted".to_owned()
            }
            Self::Closed { .. } => "see whether the peer's machine and the way to it are up".to_owned(),
            Self::TlsNotHere { .. } => {
                "give this engine a certificate too (`Settings::tls`), or have the peer speak without"
                    .to_owned()
            }
            #[cfg(feature = "tls")]
            Self::TlsNotThere { .. } => {
                "give the peer's engine a certificate too (`Settings::tls`), or have this side speak without"
                    .to_owned()
            }
            #[cfg(feature = "tls")]
            Self::Tls { fix, .. } => fix.clone(),
            Self::HandshakeTimedOut { .. } => {
                "see whether the peer's process is stopped or busy, and whether it is an engine".to_owned()
            }
            Self::Unread { .. } => "see whether the peer's process is stopped".to_owned(),
        }
    }
}

/// The fix when descriptors have run out.
pub(super) const MORE_FILES: &str =
    "raise the limit of open files (`ulimit -n`): each peer needs one or more";

/// Returns the kernel's text for an error.
pub(super) fn words(errno: Errno) -> String {
    crate::error::words(&errno.into())
}
