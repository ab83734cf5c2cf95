//! Connections that this side has ended, until the other side has what was sent before.
//!
//! A socket that is closed while bytes for it come in resets the connection, and what the other side has not read by then is lost to it.
//! So writing is ended, and reading goes on until the other side has ended it too, for a while.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use super::ConnectionId;
use super::connection::Connection;
use super::poller::Poller;

/// A peer that has taken nothing for so long does not run.
const LINGER: Duration = Duration::from_secs(2);

/// More at a time are not waited for: strangers could use up all descriptors.
const LEAVING_MAX: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct Leaving {
    connections: HashMap<ConnectionId, Left>,
    /// When to look after whom, the first one first. Some of them are gone already, but not the first.
    order: VecDeque<(Instant, ConnectionId)>,
}

#[derive(Debug)]
struct Left {
    connection: Connection,
    /// So long it is waited for.
    until: Instant,
}

impl Leaving {
    pub(super) fn add(&mut self, id: ConnectionId, mut connection: Connection, poller: &Poller) {
        connection.say_the_end();
        connection.flush();
        if connection.is_connecting() || connection.has_failed_writing() {
            return;
        }
        go_on(id, &mut connection, poller);
        let until = Instant::now() + LINGER;
        self.connections.insert(id, Left { connection, until });
        self.order.push_back((until, id));
        if self.connections.len() > LEAVING_MAX
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

    /// When to [look after](Self::look_after) the first one.
    pub(super) fn due(&self) -> Option<Instant> {
        self.order.front().map(|(due, _)| *due)
    }

    /// Gives up who has taken nothing for too long.
    pub(super) fn look_after(&mut self, now: Instant) {
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
        let Some(Left { connection, until }) = self.connections.get_mut(&id) else { return };
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
