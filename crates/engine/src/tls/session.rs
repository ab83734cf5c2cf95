//! A TLS session together with what is needed to explain its failure.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, OnceLock};

use rustls::{ClientConnection, Connection, ServerConnection};

use super::certificate::Certificate;
use super::failure::{self, ThisSide};
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
    pub(crate) context: SessionContext,
}

/// What is known of a session besides rustls' own state.
#[derive(Debug, Clone, Default)]
pub(crate) struct SessionContext {
    this_side: Arc<ThisSide>,
    /// The other side's certificate, if this side has refused it.
    pub(super) refused: Arc<OnceLock<Certificate>>,
}

impl SessionContext {
    pub(super) fn new(this_side: Arc<ThisSide>) -> Self {
        Self { this_side, refused: Arc::default() }
    }

    /// Returns cause and fix of an error.
    pub(crate) fn explain(&self, error: &rustls::Error) -> (String, String) {
        failure::explain(error, &self.this_side, self.refused.get())
    }
}

impl<C> TlsSession<C> {
    pub(super) fn new(session: C, context: SessionContext) -> Self {
        Self { session, context }
    }

    /// Returns the cause of an error of this session, with the certificate that was refused, and
    /// the fix. The error has the kind [`ErrorKind::Tls`](crate::ErrorKind::Tls).
    pub fn explain(&self, error: &rustls::Error) -> Error {
        let (cause, fix) = self.context.explain(error);
        Error::tls("TLS handshake", &cause, &fix)
    }

    pub(crate) fn into_parts(self) -> (C, SessionContext) {
        (self.session, self.context)
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
        &mut self.session
    }
}

/// Sessions that were created by rustls itself, and those of one side, are sessions of either side.
macro_rules! of_either_side {
    ($($side:ty),*) => {$(
        impl From<$side> for TlsSession {
            fn from(session: $side) -> Self {
                Self { session: session.into(), context: SessionContext::default() }
            }
        }

        impl From<TlsSession<$side>> for TlsSession {
            fn from(TlsSession { session, context }: TlsSession<$side>) -> Self {
                Self { session: session.into(), context }
            }
        }
    )*};
}

of_either_side!(ClientConnection, ServerConnection);

impl From<Connection> for TlsSession {
    fn from(session: Connection) -> Self {
        Self { session, context: SessionContext::default() }
    }
}
