//! A TLS session together with what is needed to explain its failure.

use std::io::Read;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, OnceLock};

use rustls::{ClientConnection, Connection, ServerConnection};

use super::certificate::Certificate;
use super::failure::{self, Refusal, ThisSide};
use super::records::Records;
use crate::Error;

/// One side of a TLS session, created by [`Tls::connecting`](crate::Tls::connecting) or
/// [`Tls::accepting`](crate::Tls::accepting), for
/// [`ControlStream::tls`](crate::ControlStream::tls).
///
/// It dereferences to the session of rustls, and knows which certificates are shown and refused in
/// it. [`explain`](Self::explain) turns an error of rustls into one that names them.
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use farreach::{Tls, TlsParts, rustls};
///
/// let tls = Tls::from_files(TlsParts { certificate: "here.pem", key: "here.key", roots: "roots.pem" })?;
/// let mut stream = std::net::TcpStream::connect("storage-7:18520")?;
/// let mut session = tls.connecting("storage-7")?;
/// if let Err(error) = session.complete_io(&mut stream) {
///     if let Some(error) = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>()) {
///         let explained = session.explain(error);
///         eprintln!("{explained}; {}", explained.fix());
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct TlsSession<C = Connection> {
    session: C,
    context: SessionContext,
    records: Records,
    /// Decrypted bytes that were not taken yet.
    plaintext: Vec<u8>,
}

/// What is known of a session besides rustls' own state.
#[derive(Debug, Clone, Default)]
pub(super) struct SessionContext {
    this_side: Arc<ThisSide>,
    /// The application protocol that the peer has to name; `None` if the session was created
    /// elsewhere.
    protocol: Option<&'static [u8]>,
    /// The other side's certificate, if this side has refused it.
    pub(super) refused: Arc<OnceLock<Certificate>>,
}

/// What came of bytes from the peer.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Received {
    /// The number of records that are complete.
    pub records: usize,
    /// Whether the peer has ended the session. It sends nothing more.
    pub has_ended: bool,
}

impl SessionContext {
    pub(super) fn new(this_side: Arc<ThisSide>, protocol: &'static [u8]) -> Self {
        Self { this_side, protocol: Some(protocol), refused: Arc::default() }
    }

    /// Returns cause and fix of an error.
    fn explain(&self, error: &rustls::Error) -> (String, String) {
        failure::explain(error, &self.this_side, self.refused.get())
    }
}

impl<C> TlsSession<C> {
    /// Wraps a session that has received nothing.
    pub(super) fn new(session: C, context: SessionContext) -> Self {
        Self { session, context, records: Records::new(), plaintext: Vec::new() }
    }

    /// Returns the cause of an error of this session, with the certificate that was refused, and
    /// the fix. The error has the kind [`ErrorKind::Tls`](crate::ErrorKind::Tls).
    pub fn explain(&self, error: &rustls::Error) -> Error {
        let (cause, fix) = self.cause_and_fix(error);
        Error::tls("TLS handshake", &cause, &fix)
    }

    pub(crate) fn cause_and_fix(&self, error: &rustls::Error) -> (String, String) {
        self.context.explain(error)
    }
}

/// The one way in which this crate and the command read from a session.
impl TlsSession {
    /// The number of bytes to read from the socket at once: they are decrypted without a pause, and a
    /// record may have as few as 22.
    #[doc(hidden)]
    pub const RECEIVE_MAX: usize = 4096;

    /// Takes bytes that were read from the socket, and keeps their plaintext for
    /// [`take`](Self::take). Nothing of what follows the end of the session is kept.
    ///
    /// It is an error if the peer sends many records without content, which cost work and are no
    /// progress, or if its handshake does not name the protocol of this crate.
    #[doc(hidden)]
    pub fn receive(&mut self, mut bytes: &[u8]) -> Result<Received, rustls::Error> {
        // A session that was driven elsewhere may have read bytes that are not decrypted yet.
        let mut received = Received { records: 0, has_ended: self.decrypt()? };
        while !bytes.is_empty() && !received.has_ended {
            let before = self.plaintext.len();
            // One record at a time: otherwise nothing tells which of several records had the
            // content.
            let step = self.records.step(bytes);
            let (mut part, rest) = bytes.split_at(step.len);
            // rustls may take less than it is given.
            while !part.is_empty() && !received.has_ended {
                let read = self.session.read_tls(&mut part);
                read.map_err(|error| rustls::Error::General(error.to_string()))?;
                received.has_ended = self.decrypt()?;
            }
            received.records += self.records.count(step, self.plaintext.len() > before)?;
            bytes = rest;
        }
        Ok(received)
    }

    /// Decrypts what rustls has read. Returns whether the peer has ended the session.
    fn decrypt(&mut self) -> Result<bool, rustls::Error> {
        let state = self.session.process_new_packets()?;
        let is_known = |expected| self.session.alpn_protocol() == Some(expected);
        // rustls refuses a peer with another protocol, but accepts one that names none: with a
        // certificate of the same CA, that may be another service. Checked before any plaintext is
        // taken.
        if !self.session.is_handshaking() && !self.context.protocol.is_none_or(is_known) {
            return Err(Refusal::NoProtocol.into());
        }
        let before = self.plaintext.len();
        self.plaintext.resize(before + state.plaintext_bytes_to_read(), 0);
        let read = self.session.reader().read_exact(&mut self.plaintext[before..]);
        read.map_err(|error| {
            // The zeroes were not sent by the peer.
            self.plaintext.truncate(before);
            rustls::Error::General(error.to_string())
        })?;
        Ok(state.peer_has_closed())
    }

    /// Takes as much plaintext as fits. Returns how much.
    #[doc(hidden)]
    pub fn take(&mut self, into: &mut [u8]) -> usize {
        let len = into.len().min(self.plaintext.len());
        into[..len].copy_from_slice(&self.plaintext[..len]);
        self.plaintext.drain(..len);
        len
    }

    /// The plaintext that was not taken.
    #[doc(hidden)]
    pub fn plaintext(&self) -> &Vec<u8> {
        &self.plaintext
    }

    pub(crate) fn plaintext_mut(&mut self) -> &mut Vec<u8> {
        &mut self.plaintext
    }

    /// The session, to write to it. What is read from it here is not counted: that is what
    /// [`receive`](Self::receive) is for.
    #[doc(hidden)]
    pub fn writing(&mut self) -> &mut Connection {
        &mut self.session
    }
}

impl<C> Deref for TlsSession<C> {
    type Target = C;

    fn deref(&self) -> &C {
        &self.session
    }
}

impl<C> DerefMut for TlsSession<C> {
    fn deref_mut(&mut self) -> &mut C {
        // The caller may read from the peer.
        self.records.forget_place();
        &mut self.session
    }
}

/// Sessions that were created by rustls itself, and those of one side, are sessions of either side.
macro_rules! of_either_side {
    ($($side:ty),*) => {$(
        impl From<$side> for TlsSession {
            fn from(session: $side) -> Self {
                Connection::from(session).into()
            }
        }

        impl From<TlsSession<$side>> for TlsSession {
            fn from(TlsSession { session, context, records, plaintext }: TlsSession<$side>) -> Self {
                Self { session: session.into(), context, records, plaintext }
            }
        }
    )*};
}

of_either_side!(ClientConnection, ServerConnection);

impl From<Connection> for TlsSession {
    fn from(session: Connection) -> Self {
        // Whoever has created the session has chosen its protocol, too. It may have read any bytes.
        let context = SessionContext::default();
        Self { session, context, records: Records::unknown(), plaintext: Vec::new() }
    }
}
