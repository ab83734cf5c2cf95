//! Lingering closes: connections that this side has closed, until the peer has read what was sent before.
//!
//! A socket that is closed while bytes for it come in resets the connection, and the peer loses what it has not read by then.
//! So only writing is shut down, and reading goes on until the peer has closed too, for a bounded time.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use farreach_proto::machine::IdMap;

use super::ConnectionId;
use super::connection::Connection;
use super::poller::Poller;

/// A peer that has read nothing for so long does not run.
const LINGER: Duration = Duration::from_secs(2);

/// More at a time do not linger: strangers could use up all descriptors.
const LINGERING_MAX: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct LingeringCloses {
    connections: IdMap<ConnectionId, Lingering>,
    /// Deadlines, the first one first. Some connections are gone already, but not the first.
    order: VecDeque<(Instant, ConnectionId)>,
}

#[derive(Debug)]
struct Lingering {
    connection: Connection,
    /// How long it lingers at most.
    until: Instant,
}

impl LingeringCloses {
    pub(super) fn add(&mut self, id: ConnectionId, mut connection: Connection, poller: &Poller) {
        connection.write_close();
        connection.flush();
        if connection.is_connecting() || connection.has_failed_writing() {
            return;
        }
        go_on(id, &mut connection, poller);
        let until = Instant::now() + LINGER;
        self.connections.insert(id, Lingering { connection, until });
        self.order.push_back((until, id));
        if self.connections.len() > LINGERING_MAX
            && let Some((_, oldest)) = self.order.front()
        {
            self.remove(*oldest);
        }
    }

    /// How many have something to write.
    #[cfg(test)]
    pub(super) fn unfinished(&self) -> usize {
        self.connections.values().filter(|left| left.connection.unwritten() > 0).count()
    }

    /// Returns when to [expire](Self::expire) the first one.
    pub(super) fn due(&self) -> Option<Instant> {
        self.order.front().map(|(due, _)| *due)
    }

    /// Closes those that have read nothing for too long.
    pub(super) fn expire(&mut self, now: Instant) {
        while let Some((due, id)) = self.order.front().copied()
            && due <= now
        {
            match self.connections.get(&id) {
                Some(left) if left.until > now => {
                    self.order.pop_front();
                    self.order.push_back((left.until, id));
                }
                _ => self.remove(id),
            }
        }
    }

    /// Writes and reads what can be, once.
    pub(super) fn serve(&mut self, id: ConnectionId, scratch: &mut [u8], poller: &Poller) {
        let Some(Lingering { connection, until }) = self.connections.get_mut(&id) else { return };
        let unwritten = connection.unwritten();
        connection.flush();
        if connection.unwritten() < unwritten {
            *until = Instant::now() + LINGER;
        }
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
