//! Handshake timeouts: the deadlines of connections whose peer has not sent its whole preamble yet.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use farreach_proto::machine::IdMap;

use super::ConnectionId;
use super::connection::Connection;

/// Connections in their handshake, by deadline.
#[derive(Debug, Default)]
pub(super) struct HandshakeTimeouts {
    /// The timeout of each connection. Some of them have finished their handshake, or are closed.
    deadlines: BTreeMap<(Instant, ConnectionId), Duration>,
}

impl HandshakeTimeouts {
    /// Starts the timeout of a connection.
    pub(super) fn expect(&mut self, id: ConnectionId, timeout: Duration) {
        self.deadlines.insert((crate::time::after(timeout), id), timeout);
    }

    /// Returns the first deadline, and removes entries of connections that are not in their
    /// handshake any more.
    pub(super) fn due(&mut self, connections: &IdMap<ConnectionId, Connection>) -> Option<Instant> {
        while let Some(first) = self.deadlines.first_entry() {
            let (due, id) = *first.key();
            if connections.get(&id).is_some_and(|it| it.is_connecting() || it.is_in_handshake()) {
                return Some(due);
            }
            first.remove();
        }
        None
    }

    /// Takes a connection whose deadline has passed, with its timeout.
    pub(super) fn take_expired(
        &mut self,
        now: Instant,
        connections: &IdMap<ConnectionId, Connection>,
    ) -> Option<(ConnectionId, Duration)> {
        self.due(connections).filter(|due| *due <= now)?;
        self.deadlines.pop_first().map(|((_, id), timeout)| (id, timeout))
    }
}
