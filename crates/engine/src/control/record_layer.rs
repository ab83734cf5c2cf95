//! The record layer of a connection: plaintext, or TLS.

use farreach_proto::wire::{self, Frame, WireError};

#[cfg(feature = "tls")]
use super::session::Session;
#[cfg(feature = "tls")]
use crate::tls::TlsSession;

/// The record layer of one connection.
#[derive(Debug)]
pub(crate) enum RecordLayer {
    /// Bytes as they are.
    Plain,
    /// Encrypted, to a peer that has shown its certificate.
    #[cfg(feature = "tls")]
    Tls(Box<Session>),
}

impl RecordLayer {
    pub(crate) fn is_plain(&self) -> bool {
        matches!(self, Self::Plain)
    }

    /// Returns the DNS names of the peer's certificate; none without TLS.
    pub(super) fn certificate_names(&self) -> Vec<String> {
        match self {
            Self::Plain => Vec::new(),
            #[cfg(feature = "tls")]
            Self::Tls(session) => session.certificate_names(),
        }
    }

    /// Returns how many bytes to read from the socket at once.
    #[inline]
    pub(super) fn receive_max(&self) -> usize {
        match self {
            // The buffer of the caller is the limit. Over TLS all that is read is decrypted at
            // once.
            Self::Plain => usize::MAX,
            #[cfg(feature = "tls")]
            Self::Tls(_) => TlsSession::RECEIVE_MAX,
        }
    }

    /// Appends a frame to the output buffer.
    #[inline]
    pub(super) fn write(&mut self, frame: &Frame, outgoing: &mut Vec<u8>) -> Result<(), WireError> {
        match self {
            Self::Plain => wire::encode(frame, outgoing),
            #[cfg(feature = "tls")]
            Self::Tls(session) => {
                let mut bytes = Vec::new();
                // Apart from the session: nothing of a frame that is too long may be in it.
                wire::encode(frame, &mut bytes)?;
                session.write(&bytes, outgoing);
                Ok(())
            }
        }
    }

    /// Appends the preamble to the output buffer. Over TLS it follows the records of the TLS
    /// handshake.
    pub(super) fn write_preamble(&mut self, outgoing: &mut Vec<u8>) {
        match self {
            Self::Plain => outgoing.extend(wire::preamble()),
            #[cfg(feature = "tls")]
            Self::Tls(session) => session.write(&wire::preamble(), outgoing),
        }
    }

    /// Appends `close_notify`, if this is TLS.
    pub(super) fn write_close(&mut self, _outgoing: &mut Vec<u8>) {
        match self {
            Self::Plain => {}
            #[cfg(feature = "tls")]
            Self::Tls(session) => session.write_close(_outgoing),
        }
    }

    /// Returns whether something can be taken without reading the socket: plaintext, or the end of
    /// the session.
    #[inline]
    pub(super) fn has_something_left(&self) -> bool {
        match self {
            Self::Plain => false,
            #[cfg(feature = "tls")]
            Self::Tls(session) => session.has_something_left(),
        }
    }

    /// Returns the bytes that the record layer holds.
    pub(super) fn memory(&self) -> usize {
        match self {
            Self::Plain => 0,
            #[cfg(feature = "tls")]
            Self::Tls(session) => session.memory(),
        }
    }
}
