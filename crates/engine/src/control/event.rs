//! Events of the control connections.

use std::net::SocketAddr;

use farreach_proto::wire::Frame;

use super::poller::Token;
use super::reason::CloseReason;

/// Identifies a connection. It is never used again for another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ConnectionId(pub(super) Token);

impl ConnectionId {
    pub(super) fn token(self) -> Token {
        self.0
    }
}

/// An event of a control connection.
#[derive(Debug)]
pub(crate) enum ControlEvent {
    /// A peer has connected, and its first frame has arrived: it is the next event.
    Accepted(ConnectionId, SocketAddr),
    /// The handshake with a peer is done, after a connect or over an
    /// [adopted](super::Control::adopt) stream.
    Connected(ConnectionId),
    /// A peer has sent a frame.
    Frame(ConnectionId, Frame),
    /// The connection has ended, and no event of it follows. Not reported for one that this side
    /// has [closed](super::Control::close).
    Closed(ConnectionId, CloseReason),
    /// Connections cannot be accepted for now. Reported once, until accepting succeeds again.
    CannotAccept {
        /// The address of the listener.
        local: SocketAddr,
        /// The cause.
        cause: String,
        /// The fix.
        fix: &'static str,
    },
}
