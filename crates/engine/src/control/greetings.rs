//! Who has not greeted yet, and until when it may.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use super::ConnectionId;
use super::connection::Connection;

/// Who has not greeted yet, by when it must have.
#[derive(Debug, Default)]
pub(super) struct Greetings {
    /// And how long it was given. Some of them have greeted, or are gone.
    awaited: BTreeMap<(Instant, ConnectionId), Duration>,
}

impl Greetings {
    pub(super) fn expect(&mut self, id: ConnectionId, patience: Duration) {
        self.awaited.insert((crate::time::after(patience), id), patience);
    }

    /// By when the first one must have.
    pub(super) fn due(&mut self, connections: &HashMap<ConnectionId, Connection>) -> Option<Instant> {
        while let Some(first) = self.awaited.first_entry() {
            let (due, id) = *first.key();
            if connections.get(&id).is_some_and(|it| it.is_connecting() || it.is_greeting()) {
                return Some(due);
            }
            first.remove();
        }
        None
    }

    /// One that is late, and how long it was given.
    pub(super) fn take_late(
        &mut self,
        now: Instant,
        connections: &HashMap<ConnectionId, Connection>,
    ) -> Option<(ConnectionId, Duration)> {
        self.due(connections).filter(|due| *due <= now)?;
        self.awaited.pop_first().map(|((_, id), patience)| (id, patience))
    }
}
