//! What happens on the control channel, and to which connection.

use std::net::SocketAddr;

use farreach_proto::wire::Frame;

use super::poller::Token;
use super::reason::CloseReason;

/// A connection. The name is never used again for another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ConnectionId(pub(super) Token);

impl ConnectionId {
    pub(super) fn token(self) -> Token {
        self.0
    }
}

/// What has happened on the control channel.
#[derive(Debug)]
pub(crate) enum ControlEvent {
    /// Somebody has connected, who may still turn out to be a stranger: then it is [`Closed`](Self::Closed) without any frame.
    Accepted(ConnectionId, SocketAddr),
    /// Who was called, or whose stream was [adopted](super::Control::adopt), is there and one of us.
    Connected(ConnectionId),
    /// A peer says something.
    Frame(ConnectionId, Frame),
    /// It has ended, and nothing more of it follows. Not told for one that was [closed](super::Control::close) here.
    Closed(ConnectionId, CloseReason),
    /// Others connect and cannot be let in for now. Told once, until it goes again.
    CannotAccept {
        /// Where they do.
        local: SocketAddr,
        /// Why not.
        cause: String,
        /// What to do.
        fix: &'static str,
    },
}
