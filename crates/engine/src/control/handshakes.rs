//! Handshake timeouts: connections that have not sent their whole preamble yet, and until when they may.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use farreach_proto::machine::IdMap;

use super::ConnectionId;
use super::connection::Connection;

/// Connections in their handshake, by deadline.
#[derive(Debug, Default)]
pub(super) struct HandshakeTimeouts {
    /// With the timeout that each was given. Some of them are done, or gone.
    deadlines: BTreeMap<(Instant, ConnectionId), Duration>,
}

impl HandshakeTimeouts {
    pub(super) fn expect(&mut self, id: ConnectionId, timeout: Duration) {
        self.deadlines.insert((crate::time::after(timeout), id), timeout);
    }

    /// Returns the first deadline.
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

    /// Takes one whose deadline has passed, with the timeout that it was given.
    pub(super) fn take_expired(
        &mut self,
        now: Instant,
        connections: &IdMap<ConnectionId, Connection>,
    ) -> Option<(ConnectionId, Duration)> {
        self.due(connections).filter(|due| *due <= now)?;
        self.deadlines.pop_first().map(|((_, id), timeout)| (id, timeout))
    }
}
