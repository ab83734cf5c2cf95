//! TLS over one connection: bytes in and bytes out, without a socket.

use std::io::{Read, Write};

use rustls::{Connection, Error};

/// One side of a session, whose handshake is done, under way or not begun.
#[derive(Debug)]
pub(crate) struct Session {
    connection: Connection,
    /// Decrypted, and not taken yet.
    plaintext: Vec<u8>,
    end: Option<SessionEnd>,
}

/// How a session has ended.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum SessionEnd {
    /// The peer sent `close_notify`.
    Ended,
    Failed {
        error: Error,
        /// Whether the handshake was not done.
        is_early: bool,
    },
}

impl Session {
    /// Wraps a connection, which may have received something already.
    pub(crate) fn new(connection: impl Into<Connection>) -> Self {
        let mut connection = connection.into();
        // Who sends has its own bound on what waits.
        connection.set_buffer_limit(None);
        let mut session = Self { connection, plaintext: Vec::new(), end: None };
        session.decrypt();
        session
    }

    /// Writes plaintext, which is encrypted once the handshake is done, and appends the records that can be sent now.
    pub(super) fn write(&mut self, bytes: &[u8], outgoing: &mut Vec<u8>) {
        // It takes all, as it has no limit, and nothing else fails in memory.
        let _ = self.connection.writer().write_all(bytes);
        self.drain(outgoing);
    }

    pub(super) fn write_close(&mut self, outgoing: &mut Vec<u8>) {
        self.connection.send_close_notify();
        self.drain(outgoing);
    }

    /// Appends the records to be sent: of the handshake, data, and alerts.
    pub(super) fn drain(&mut self, outgoing: &mut Vec<u8>) {
        while self.connection.wants_write() {
            if !matches!(self.connection.write_tls(outgoing), Ok(1..)) {
                break;
            }
        }
    }

    /// Takes bytes of the socket.
    pub(super) fn read_record(&mut self, mut bytes: &[u8]) {
        // Nothing at all would be the end of the socket to it.
        while self.end.is_none() && !bytes.is_empty() {
            if let Err(error) = self.connection.read_tls(&mut bytes) {
                self.fail(Error::General(error.to_string()));
            } else {
                self.decrypt();
            }
        }
    }

    /// Decrypts what it was given.
    fn decrypt(&mut self) {
        let is_early = self.connection.is_handshaking();
        let state = match self.connection.process_new_packets() {
            Ok(state) => state,
            Err(error) => return self.end = Some(SessionEnd::Failed { error, is_early }),
        };
        let (before, len) = (self.plaintext.len(), state.plaintext_bytes_to_read());
        self.plaintext.resize(before + len, 0);
        if let Err(error) = self.connection.reader().read_exact(&mut self.plaintext[before..]) {
            self.plaintext.truncate(before);
            self.fail(Error::General(error.to_string()));
        } else if state.peer_has_closed() {
            self.end = Some(SessionEnd::Ended);
        }
    }

    fn fail(&mut self, error: Error) {
        self.end = Some(SessionEnd::Failed { error, is_early: self.connection.is_handshaking() });
    }

    /// Takes what was decrypted.
    pub(super) fn take_plaintext(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.plaintext)
    }

    /// Gives back the vector that [`take_plaintext`](Self::take_plaintext) returned, to be used again.
    pub(super) fn give_room(&mut self, mut room: Vec<u8>) {
        room.clear();
        self.plaintext = room;
    }

    /// How it has ended, if it has. What was decrypted before is to be taken first.
    pub(super) fn end(&self) -> Option<&SessionEnd> {
        self.end.as_ref()
    }

    pub(super) fn has_something_left(&self) -> bool {
        !self.plaintext.is_empty() || self.end.is_some()
    }

    /// Bytes that it holds, beside rustls' own buffers, which are empty between two frames.
    pub(super) fn memory(&self) -> usize {
        size_of::<Self>() + self.plaintext.capacity()
    }
}
