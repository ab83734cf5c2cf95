//! Why a connection has ended: what was done, the cause, and what to do about it.

use std::net::SocketAddr;
use std::time::Duration;

use farreach_proto::wire::WireError;
use rustix::io::Errno;

use super::QUEUED_MAX;

/// Why a connection has ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CloseReason {
    /// It never began.
    #[error("connect to {peer}: {}", words(*.errno))]
    Unreachable {
        /// Who was called.
        peer: SocketAddr,
        /// What the kernel says.
        errno: Errno,
    },
    /// What the other side says is not understood.
    #[error("control connection with {peer}: {error}")]
    NotUnderstood {
        /// Who says it.
        peer: SocketAddr,
        /// What it is.
        error: WireError,
    },
    /// The other side has closed it.
    #[error("control connection with {peer}: the peer closed it{}", if *.is_torn { " in the middle of a frame" } else { "" })]
    Ended {
        /// Who has.
        peer: SocketAddr,
        /// Whether it was in the middle of something.
        is_torn: bool,
    },
    /// It broke.
    #[error("control connection with {peer}: {}", words(*.errno))]
    Closed {
        /// The other side.
        peer: SocketAddr,
        /// What the kernel says.
        errno: Errno,
    },
    /// The other side speaks TLS.
    #[error("control connection with {peer}: the peer speaks TLS, and this side does not")]
    TlsNotHere {
        /// Who does.
        peer: SocketAddr,
    },
    /// The other side does not speak TLS.
    #[cfg(feature = "tls")]
    #[error("control connection with {peer}: this side speaks TLS, and the peer does not")]
    TlsNotThere {
        /// Who does not.
        peer: SocketAddr,
    },
    /// Both do, and one of them does not trust the other.
    #[cfg(feature = "tls")]
    #[error("control connection with {peer}: {cause}")]
    Tls {
        /// The other side.
        peer: SocketAddr,
        /// Why.
        cause: String,
        /// What to do.
        fix: String,
    },
    /// The other side is there and says nothing.
    #[error("control connection with {peer}: the handshake was not done within {after:?}")]
    HandshakeTimedOut {
        /// Who has not.
        peer: SocketAddr,
        /// Since it was there.
        after: Duration,
    },
    /// The other side does not read.
    #[error("control connection with {peer}: the peer does not read, and more than {} MiB wait for it", QUEUED_MAX >> 20)]
    Unread {
        /// Who does not.
        peer: SocketAddr,
    },
}

impl CloseReason {
    /// Whom it is about.
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

    /// Why, without whom it is about.
    pub(crate) fn cause(&self) -> String {
        let text = self.to_string();
        text.split_once(": ").map_or(text.clone(), |(_, cause)| cause.to_owned())
    }

    /// Whether the other side is refused before it is a peer: it is told why, as far as it understands.
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

    /// What to do.
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

/// What to do when there are no descriptors left.
pub(super) const MORE_FILES: &str =
    "raise the limit of open files (`ulimit -n`): each peer needs one or more";

/// The kernel's words.
pub(super) fn words(errno: Errno) -> String {
    crate::error::words(&errno.into())
}
