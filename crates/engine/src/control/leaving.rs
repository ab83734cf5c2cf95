//! Connections that this side has ended, until the other side has what was sent before.
//!
//! A socket that is closed while bytes for it come in resets the connection, and what the other side has not read by then is lost to it.
//! So writing is ended, and reading goes on until the other side has ended it too, for a while.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use super::ConnectionId;
use super::connection::Connection;
use super::poller::Poller;

/// So long a peer that runs needs by far not.
const LINGER: Duration = Duration::from_secs(2);

/// More at a time are not waited for: strangers could use up all descriptors.
const LEAVING_MAX: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct Leaving {
    connections: HashMap<ConnectionId, Connection>,
    /// Until when they are waited for, the first one first. Some of them are gone already, but not the first.
    order: VecDeque<(Instant, ConnectionId)>,
}

impl Leaving {
    pub(super) fn add(&mut self, id: ConnectionId, mut connection: Connection, poller: &Poller) {
        connection.flush();
        if connection.is_connecting() || connection.has_failed_writing() {
            return;
        }
        go_on(id, &mut connection, poller);
        self.connections.insert(id, connection);
        self.order.push_back((Instant::now() + LINGER, id));
        if self.connections.len() > LEAVING_MAX
            && let Some((_, oldest)) = self.order.front()
        {
            self.remove(*oldest);
        }
    }

    /// How many have something to write.
    pub(super) fn unfinished(&self) -> usize {
        self.connections.values().filter(|connection| connection.unwritten() > 0).count()
    }

    /// When the first one is given up.
    pub(super) fn due(&self) -> Option<Instant> {
        self.order.front().map(|(until, _)| *until)
    }

    pub(super) fn give_up_late(&mut self, now: Instant) {
        while let Some((until, id)) = self.order.front()
            && *until <= now
        {
            self.remove(*id);
        }
    }

    /// Writes and reads what can be, once.
    pub(super) fn serve(&mut self, id: ConnectionId, scratch: &mut [u8], poller: &Poller) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.flush();
        go_on(id, connection, poller);
        if connection.has_failed_writing() || !connection.discard(scratch) {
            self.remove(id);
        }
    }

    fn remove(&mut self, id: ConnectionId) {
        self.connections.remove(&id);
        while let Some((_, first)) = self.order.front()
            && !self.connections.contains_key(first)
        {
            self.order.pop_front();
        }
    }
}

/// Waits for room to write the rest, or says that nothing follows.
fn go_on(id: ConnectionId, connection: &mut Connection, poller: &Poller) {
    let for_writing = connection.unwritten() > 0;
    if !for_writing {
        connection.end_writing();
    }
    if for_writing != connection.is_watched_for_writing {
        connection.is_watched_for_writing = for_writing;
        // It fails only for a descriptor that is not there.
        let _ = poller.change(id.token(), &connection.stream, for_writing);
    }
}
