//! A TLS session of one connection: bytes in and bytes out, without a socket.

use std::io::Write;
use std::net::SocketAddr;

use rustls::{Error, InvalidMessage};

use super::reason::CloseReason;
use crate::tls::TlsSession;

/// One side of a TLS session. Its handshake is done, in progress or not begun.
#[derive(Debug)]
pub(crate) struct Session {
    session: TlsSession,
    end: Option<SessionEnd>,
}

/// How a session has ended.
#[derive(Debug, Clone, PartialEq)]
enum SessionEnd {
    /// The peer sent `close_notify`.
    Ended,
    Failed {
        error: Error,
        /// Whether the handshake was not done yet.
        is_early: bool,
    },
}

impl Session {
    /// Wraps a session, which may have received data already.
    pub(crate) fn new(session: impl Into<TlsSession>) -> Self {
        let mut session = Self { session: session.into(), end: None };
        // The sender limits what is queued (`QUEUED_MAX`), so rustls need not.
        session.session.writing().set_buffer_limit(None);
        // It may have read data already.
        session.read_records(&[]);
        session
    }

    /// Returns the DNS names of the peer's certificate, which was verified; none before the end of the
    /// handshake, and none of a peer with a shared secret.
    pub(super) fn certificate_names(&self) -> Vec<String> {
        if self.session.is_handshaking() {
            return Vec::new();
        }
        // With a secret this is a raw public key, which does not parse as a certificate.
        let certificate = self.session.peer_certificates().and_then(<[_]>::first);
        let names = certificate.and_then(|certificate| {
            let certificate = webpki::EndEntityCert::try_from(certificate).ok()?;
            Some(certificate.valid_dns_names().map(str::to_owned).collect())
        });
        names.unwrap_or_default()
    }

    /// Writes plaintext, and appends the records that can be sent now. Before the handshake is
    /// done, rustls keeps the plaintext.
    pub(super) fn write(&mut self, bytes: &[u8], outgoing: &mut Vec<u8>) {
        // The buffer has no limit, and a write to memory does not fail otherwise.
        let _ = self.session.writing().writer().write_all(bytes);
        self.drain(outgoing);
    }

    pub(super) fn write_close(&mut self, outgoing: &mut Vec<u8>) {
        self.session.writing().send_close_notify();
        self.drain(outgoing);
    }

    /// Appends the records to be sent: handshake, data, and alerts.
    pub(super) fn drain(&mut self, outgoing: &mut Vec<u8>) {
        while self.session.wants_write() {
            // A write to a vector does not fail. Without progress the loop would not end.
            if !matches!(self.session.writing().write_tls(outgoing), Ok(1..)) {
                break;
            }
        }
    }

    /// Takes bytes that were read from the socket: at most [`TlsSession::RECEIVE_MAX`] at once, because
    /// all of them are decrypted. Returns the number of records.
    pub(super) fn read_records(&mut self, bytes: &[u8]) -> usize {
        // The first end is the reason that is reported.
        if self.end.is_some() {
            return 0;
        }
        // The same error means plaintext in the handshake, and a damaged stream after it.
        let is_early = self.session.is_handshaking();
        match self.session.receive(bytes) {
            Ok(received) => {
                self.end = received.has_ended.then_some(SessionEnd::Ended);
                received.records
            }
            Err(error) => {
                self.end = Some(SessionEnd::Failed { error, is_early });
                0
            }
        }
    }

    /// Takes the decrypted bytes.
    pub(super) fn take_plaintext(&mut self) -> Vec<u8> {
        std::mem::take(self.session.plaintext_mut())
    }

    /// Returns the vector of [`take_plaintext`](Self::take_plaintext), so that its capacity is
    /// reused.
    pub(super) fn give_room(&mut self, mut room: Vec<u8>) {
        room.clear();
        *self.session.plaintext_mut() = room;
    }

    /// Returns whether the session has ended. Bytes decrypted before must be taken first.
    pub(super) fn has_ended(&self) -> bool {
        self.end.is_some()
    }

    /// Returns why the session has failed, with this peer. `None` if it has ended in order.
    pub(super) fn failure(&self, peer: SocketAddr) -> Option<CloseReason> {
        let Some(SessionEnd::Failed { error, is_early }) = &self.end else { return None };
        // The first byte is of no TLS record type, so the peer sends plaintext.
        if *is_early && matches!(error, Error::InvalidMessage(InvalidMessage::InvalidContentType)) {
            return Some(CloseReason::TlsNotThere { peer });
        }
        let (cause, fix) = self.session.cause_and_fix(error);
        Some(CloseReason::Tls { peer, cause, fix })
    }

    pub(super) fn has_something_left(&self) -> bool {
        !self.session.plaintext().is_empty() || self.end.is_some()
    }

    /// Returns the bytes that the session holds, without the buffers of rustls, which are empty
    /// between two frames.
    pub(super) fn memory(&self) -> usize {
        size_of::<Self>() + self.session.plaintext().capacity()
    }
}

/// Returns the bytes for a newcomer that is refused before its handshake: the fatal alert
/// `internal_error`, in a record without encryption.
pub(super) fn refusal() -> Vec<u8> {
    // The type, the version of all records, the length, the level, and the description.
    vec![21, 3, 3, 0, 2, 2, 80]
}
