//! TLS over one connection: bytes in and bytes out, without a socket.

use std::io::{Read, Write};

use rustls::{Connection, Error};

/// One side of a session, whose handshake is done, under way or not begun.
#[derive(Debug)]
pub(crate) struct Session {
    connection: Connection,
    /// What the other side has said, and nobody has taken.
    heard: Vec<u8>,
    end: Option<SessionEnd>,
}

/// How a session has ended.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum SessionEnd {
    /// The other side says that nothing follows.
    Ended,
    Failed {
        error: Error,
        /// Whether it did not get as far as both sides knowing each other.
        is_early: bool,
    },
}

impl Session {
    /// One that may have heard something already.
    pub(crate) fn new(connection: impl Into<Connection>) -> Self {
        let mut connection = connection.into();
        // Who sends has its own bound on what waits.
        connection.set_buffer_limit(None);
        let mut session = Self { connection, heard: Vec::new(), end: None };
        session.understand();
        session
    }

    /// Says something once the other side is known, and appends what can be said now.
    pub(super) fn say(&mut self, bytes: &[u8], outgoing: &mut Vec<u8>) {
        // It takes all, as it has no limit, and nothing else fails in memory.
        let _ = self.connection.writer().write_all(bytes);
        self.drain(outgoing);
    }

    pub(super) fn say_the_end(&mut self, outgoing: &mut Vec<u8>) {
        self.connection.send_close_notify();
        self.drain(outgoing);
    }

    /// Appends what is to be written: of the handshake, what was said, and why it failed.
    pub(super) fn drain(&mut self, outgoing: &mut Vec<u8>) {
        while self.connection.wants_write() {
            if !matches!(self.connection.write_tls(outgoing), Ok(1..)) {
                break;
            }
        }
    }

    /// Takes what came over the socket.
    pub(super) fn hear(&mut self, mut bytes: &[u8]) {
        // Nothing at all would be the end of the socket to it.
        while self.end.is_none() && !bytes.is_empty() {
            if let Err(error) = self.connection.read_tls(&mut bytes) {
                self.fail(Error::General(error.to_string()));
            } else {
                self.understand();
            }
        }
    }

    /// Decrypts what it was given.
    fn understand(&mut self) {
        let is_early = self.connection.is_handshaking();
        let state = match self.connection.process_new_packets() {
            Ok(state) => state,
            Err(error) => return self.end = Some(SessionEnd::Failed { error, is_early }),
        };
        let (before, len) = (self.heard.len(), state.plaintext_bytes_to_read());
        self.heard.resize(before + len, 0);
        if let Err(error) = self.connection.reader().read_exact(&mut self.heard[before..]) {
            self.heard.truncate(before);
            self.fail(Error::General(error.to_string()));
        } else if state.peer_has_closed() {
            self.end = Some(SessionEnd::Ended);
        }
    }

    fn fail(&mut self, error: Error) {
        self.end = Some(SessionEnd::Failed { error, is_early: self.connection.is_handshaking() });
    }

    /// What the other side has said.
    pub(super) fn take_heard(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.heard)
    }

    /// Room for what it will hear: what [`take_heard`](Self::take_heard) gave, to be used again.
    pub(super) fn give_room(&mut self, mut room: Vec<u8>) {
        room.clear();
        self.heard = room;
    }

    /// How it has ended, if it has. What was heard before is to be taken first.
    pub(super) fn end(&self) -> Option<&SessionEnd> {
        self.end.as_ref()
    }

    pub(super) fn has_something_left(&self) -> bool {
        !self.heard.is_empty() || self.end.is_some()
    }

    /// Bytes that it holds, beside rustls' own buffers, which are empty between two frames.
    pub(super) fn memory(&self) -> usize {
        size_of::<Self>() + self.heard.capacity()
    }
}
