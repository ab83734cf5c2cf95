//! Lingering closes: connections that this side has closed, kept until the peer has read all sent
//! data.
//!
//! Closing a socket while bytes for it arrive resets the connection, and the peer loses the data
//! that it has not read yet. Therefore only the write direction is shut down, and reading continues
//! until the peer has closed too, for a bounded time.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use farreach_proto::machine::IdMap;

use super::ConnectionId;
use super::connection::Connection;
use super::poller::{Interest, Poller};

/// A peer that reads nothing for this long is taken for stopped.
const LINGER: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct LingeringCloses {
    /// The limit of connections.
    max: usize,
    /// The unwritten bytes of all connections.
    unwritten: usize,
    connections: IdMap<ConnectionId, Lingering>,
    /// Deadlines in order. Some connections are gone already, but the first one is not.
    order: VecDeque<(Instant, ConnectionId)>,
}

#[derive(Debug)]
struct Lingering {
    connection: Connection,
    /// The deadline. It moves when data was written.
    until: Instant,
}

impl LingeringCloses {
    /// Creates a list for at most `max` connections. One beyond closes the oldest.
    pub(super) fn new(max: usize) -> Self {
        Self { max, unwritten: 0, connections: IdMap::default(), order: VecDeque::new() }
    }

    pub(super) fn add(&mut self, id: ConnectionId, mut connection: Connection, poller: &Poller) {
        // Before `go_on`, which shuts the socket down if nothing is left to write.
        connection.write_close();
        connection.flush();
        // There is no peer, or nothing can be written to it.
        if connection.is_connecting() || connection.has_failed_writing() {
            return;
        }
        go_on(id, &mut connection, poller);
        connection.count(&mut self.unwritten);
        let until = Instant::now() + LINGER;
        self.connections.insert(id, Lingering { connection, until });
        self.order.push_back((until, id));
        if self.connections.len() > self.max
            && let Some((_, oldest)) = self.order.front()
        {
            self.remove(*oldest);
        }
    }

    /// Returns how many connections linger.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.connections.len()
    }

    /// Returns how many connections have data to write.
    #[cfg(test)]
    pub(super) fn unfinished(&self) -> usize {
        self.connections.values().filter(|left| left.connection.unwritten() > 0).count()
    }

    /// Returns when to call [`expire`](Self::expire) for the first one.
    pub(super) fn due(&self) -> Option<Instant> {
        self.order.front().map(|(due, _)| *due)
    }

    /// Closes connections whose peer has read nothing until the deadline.
    pub(super) fn expire(&mut self, now: Instant) {
        while let Some((due, id)) = self.order.front().copied()
            && due <= now
        {
            match self.connections.get(&id) {
                // `serve` has moved this deadline and left `order` alone, because it would have to
                // be searched.
                Some(left) if left.until > now => {
                    self.order.pop_front();
                    self.order.push_back((left.until, id));
                }
                // This takes the id out of `order`, too, so the loop ends.
                _ => self.remove(id),
            }
        }
    }

    /// Writes and discards as much as possible without waiting, once. Returns how many bytes it has
    /// discarded.
    pub(super) fn serve(&mut self, id: ConnectionId, scratch: &mut [u8], poller: &Poller) -> usize {
        let Some(Lingering { connection, until }) = self.connections.get_mut(&id) else { return 0 };
        let unwritten = connection.unwritten();
        connection.flush();
        connection.count(&mut self.unwritten);
        // A peer that keeps reading gets more time.
        if connection.unwritten() < unwritten {
            *until = Instant::now() + LINGER;
        }
        go_on(id, connection, poller);
        let discarded = connection.discard(scratch).filter(|_| !connection.has_failed_writing());
        // The peer has closed its side, or the write has failed: nothing more can arrive there.
        if discarded.is_none() {
            self.remove(id);
        }
        discarded.unwrap_or(0)
    }

    /// Returns the unwritten bytes of all connections.
    pub(super) fn unwritten(&self) -> usize {
        self.unwritten
    }

    /// Returns the connection with the most unwritten bytes, and their number. It takes linear time.
    pub(super) fn largest(&self) -> Option<(usize, ConnectionId)> {
        self.connections.iter().map(|(id, left)| (left.connection.unwritten(), *id)).max()
    }

    /// Closes a connection.
    pub(super) fn remove(&mut self, id: ConnectionId) {
        if let Some(mut left) = self.connections.remove(&id) {
            left.connection.discount(&mut self.unwritten);
        }
        // Other ids of removed connections stay until they are first. A search would take linear
        // time.
        while let Some((_, first)) = self.order.front()
            && !self.connections.contains_key(first)
        {
            self.order.pop_front();
        }
    }
}

/// Watches for room to write the rest, or shuts the write direction down.
fn go_on(id: ConnectionId, connection: &mut Connection, poller: &Poller) {
    let interest = Interest { is_reading: true, is_writing: connection.unwritten() > 0 };
    if !interest.is_writing {
        // It may be called again for the same connection: a second shutdown changes nothing.
        connection.end_writing();
    }
    connection.watch(id, interest, poller);
}
