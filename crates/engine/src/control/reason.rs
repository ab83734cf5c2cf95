//! The reason why a connection has ended: operation, cause, and fix.

use std::net::SocketAddr;
use std::time::Duration;

use farreach_proto::wire::WireError;
use rustix::io::Errno;

use super::QUEUED_MAX;
use super::exceeded::{Exceeded, MORE_FILES};

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
    #[error("control connection with {peer}: the peer uses TLS, this side does not")]
    TlsNotHere {
        /// The address of the peer.
        peer: SocketAddr,
    },
    /// This side uses TLS, and the peer does not.
    #[cfg(feature = "tls")]
    #[error("control connection with {peer}: this side uses TLS, the peer does not")]
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
    #[error("control connection with {peer}: the handshake was not complete within {after:?}")]
    HandshakeTimedOut {
        /// The address of the peer.
        peer: SocketAddr,
        /// The timeout.
        after: Duration,
    },
    /// The peer is one too many.
    #[error("control connection with {peer}: {exceeded}")]
    OverBudget {
        /// The address of the peer.
        peer: SocketAddr,
        /// The budget.
        exceeded: Exceeded,
    },
    /// The peer does not read.
    #[error("control connection with {peer}: the peer does not read, and {limit}")]
    Unread {
        /// The address of the peer.
        peer: SocketAddr,
        /// The limit of queued bytes.
        limit: QueueLimit,
    },
}

/// A limit of the bytes that wait for peers that do not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum QueueLimit {
    /// The limit of one connection.
    #[error("more than {} MiB are queued for it", QUEUED_MAX >> 20)]
    OfOne,
    /// The limit of all connections.
    #[error(
        "more than {0} bytes are queued for all peers, most of them for it: `Budgets::queued_bytes` allows no more"
    )]
    OfAll(u64),
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
            | Self::OverBudget { peer, .. }
            | Self::Unread { peer, .. } => *peer,
            #[cfg(feature = "tls")]
            Self::TlsNotThere { peer } | Self::Tls { peer, .. } => *peer,
        }
    }

    /// Returns the cause, without the operation and the peer.
    pub(crate) fn cause(&self) -> String {
        let text = self.to_string();
        // The first colon with a space ends the operation and the peer. An address of IPv6 has
        // none.
        text.split_once(": ").map_or(text.clone(), |(_, cause)| cause.to_owned())
    }

    /// Returns whether the peer is refused in the handshake. The peer learns why from the
    /// preamble, the TLS alert, or the refusal.
    pub(crate) fn is_refusal(&self) -> bool {
        match self {
            Self::NotUnderstood { error, .. } => {
                // Only these two are about the preamble. Who sends another wrong frame was no
                // stranger.
                matches!(error, WireError::Stranger | WireError::Version { .. })
            }
            Self::TlsNotHere { .. } | Self::OverBudget { .. } => true,
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
                    "start the peer's engine, or check which port it listens on: port {} is closed",
                    peer.port()
                ),
                Errno::TIMEDOUT => {
                    format!(
                        "check that {} is up, and that no firewall drops packets to port {}",
                        peer.ip(),
                        peer.port()
                    )
                }
                Errno::NETUNREACH | Errno::HOSTUNREACH => {
                    format!(
                        "add a route to {}; `ip route get {}` shows the current one",
                        peer.ip(),
                        peer.ip()
                    )
                }
                Errno::MFILE | Errno::NFILE => MORE_FILES.to_owned(),
                _ => format!("check that this host reaches {}", peer.ip()),
            },
            Self::NotUnderstood { error: WireError::Stranger, .. } => {
                "check which program uses this address: it is not an engine".to_owned()
            }
            Self::NotUnderstood { error: WireError::Version { .. }, .. } => {
                "upgrade the older side".to_owned()
            }
            Self::NotUnderstood { .. } => {
                "run the same release on both sides; if they already do, this is a bug in one of them"
                    .to_owned()
            }
            Self::Ended { .. } => "check how the peer's process ended".to_owned(),
            Self::Closed { errno: Errno::CONNRESET, .. } => {
                "check whether the peer's process was killed, or its host restarted".to_owned()
            }
            Self::Closed { .. } => "check that the peer's host and the network path to it are up".to_owned(),
            Self::TlsNotHere { .. } => {
                "configure TLS on this engine too: `Settings::secret` if the peer has a secret, otherwise `Settings::tls`".to_owned()
            }
            #[cfg(feature = "tls")]
            Self::TlsNotThere { .. } => {
                "configure TLS on the peer's engine too: `Settings::secret` if this side has a secret, otherwise `Settings::tls`".to_owned()
            }
            #[cfg(feature = "tls")]
            Self::Tls { fix, .. } => fix.clone(),
            Self::HandshakeTimedOut { .. } => {
                "check that the peer is an engine, and that its process is neither stopped nor busy"
                    .to_owned()
            }
            Self::OverBudget { exceeded, .. } => exceeded.fix().to_owned(),
            Self::Unread { .. } => "check whether the peer's process is stopped".to_owned(),
        }
    }
}

/// Returns the kernel's text for an error.
pub(super) fn words(errno: Errno) -> String {
    crate::error::words(&errno.into())
}
