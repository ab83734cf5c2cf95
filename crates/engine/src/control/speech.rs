//! How a connection says its bytes: as they are, or over TLS.

use farreach_core::wire::{self, Frame, WireError};

#[cfg(feature = "tls")]
use super::session::Session;

/// How a connection says its bytes.
#[derive(Debug)]
pub(crate) enum Speech {
    /// As they are.
    Plain,
    /// Encrypted, to somebody who has shown who it is.
    #[cfg(feature = "tls")]
    Tls(Box<Session>),
}

impl Speech {
    pub(crate) fn is_plain(&self) -> bool {
        matches!(self, Self::Plain)
    }

    /// Appends a frame to what is to be written.
    #[inline]
    pub(super) fn say(&mut self, frame: &Frame, outgoing: &mut Vec<u8>) -> Result<(), WireError> {
        match self {
            Self::Plain => wire::encode(frame, outgoing),
            #[cfg(feature = "tls")]
            Self::Tls(session) => {
                let mut bytes = Vec::new();
                wire::encode(frame, &mut bytes)?;
                session.say(&bytes, outgoing);
                Ok(())
            }
        }
    }

    /// Appends the preamble to what is to be written, behind what there is to say before it.
    pub(super) fn say_preamble(&mut self, outgoing: &mut Vec<u8>) {
        match self {
            Self::Plain => outgoing.extend(wire::preamble()),
            #[cfg(feature = "tls")]
            Self::Tls(session) => session.say(&wire::preamble(), outgoing),
        }
    }

    /// Appends that nothing follows, where that is said.
    pub(super) fn say_the_end(&mut self, _outgoing: &mut Vec<u8>) {
        match self {
            Self::Plain => {}
            #[cfg(feature = "tls")]
            Self::Tls(session) => session.say_the_end(_outgoing),
        }
    }

    /// Whether there is something to be heard without reading, or its end to be told.
    #[inline]
    pub(super) fn has_something_left(&self) -> bool {
        match self {
            Self::Plain => false,
            #[cfg(feature = "tls")]
            Self::Tls(session) => session.has_something_left(),
        }
    }

    /// Bytes that it holds.
    pub(super) fn memory(&self) -> usize {
        match self {
            Self::Plain => 0,
            #[cfg(feature = "tls")]
            Self::Tls(session) => session.memory(),
        }
    }
}
