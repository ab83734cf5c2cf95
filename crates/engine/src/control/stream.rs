//! A connection that was established outside of the engine.

use std::io;
use std::net::{SocketAddr, TcpStream};

use super::RecordLayer;
#[cfg(feature = "tls")]
use super::Session;
#[cfg(feature = "tls")]
use crate::tls::TlsSession;

/// A connection that the caller has established, for
/// [`Engine::connect_over`](crate::Engine::connect_over) and
/// [`Engine::accept_over`](crate::Engine::accept_over).
///
/// Both sides may have exchanged data over it before, and must have finished: the next byte in each
/// direction belongs to the engine. Bytes that were read ahead and kept elsewhere, for example in a
/// `BufReader`, are lost.
///
/// ```no_run
/// use std::net::TcpStream;
/// use farreach::ControlStream;
///
/// # fn main() -> std::io::Result<()> {
/// let stream = ControlStream::from(TcpStream::connect("10.0.0.7:18520")?);
/// # drop(stream);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ControlStream {
    stream: TcpStream,
    record_layer: RecordLayer,
}

impl ControlStream {
    /// Wraps a stream with a TLS session. The handshake is done, in progress, or not begun. Data in
    /// the session is kept; plaintext that it has decrypted and that was not read belongs to the
    /// engine.
    ///
    /// The session alone decides which certificates are trusted;
    /// [`Settings::tls`](crate::Settings::tls) has no effect on it. [`Tls`](crate::Tls) creates
    /// sessions in which both sides show a certificate, or that they have the same secret.
    ///
    /// ```no_run
    /// use std::io::{Read, Write};
    /// use std::net::TcpStream;
    /// use std::time::Duration;
    /// use farreach::{ControlStream, Engine, Tls, TlsParts};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let tls = Tls::from_files(TlsParts { certificate: "here.pem", key: "here.key", roots: "roots.pem" })?;
    /// let mut stream = TcpStream::connect("storage-7:18520")?;
    /// let mut session = tls.connecting("storage-7")?;
    /// let mut talk = farreach::rustls::Stream::new(&mut *session, &mut stream);
    /// talk.write_all(b"two rails, please\n")?;
    /// talk.read_exact(&mut [0; b"yes\n".len()])?;
    /// let engine = Engine::new()?;
    /// let peer = engine.connect_over(ControlStream::tls(stream, session))?.wait(Duration::from_secs(5))?;
    /// println!("{}", peer.name());
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "tls")]
    pub fn tls(stream: TcpStream, session: impl Into<TlsSession>) -> Self {
        let session = Session::new(session);
        Self { stream, record_layer: RecordLayer::Tls(Box::new(session)) }
    }

    /// Returns whether the stream has no TLS session.
    pub(crate) fn is_plain(&self) -> bool {
        self.record_layer.is_plain()
    }

    /// Puts a TLS session on the stream.
    #[cfg(feature = "tls")]
    pub(crate) fn over(self, session: impl Into<TlsSession>) -> Self {
        Self::tls(self.stream, session)
    }

    /// Returns the peer's address. An IPv4 address mapped to IPv6, as a dual-stack socket reports
    /// it, is returned as IPv4.
    pub(crate) fn peer_addr(&self) -> io::Result<SocketAddr> {
        let peer = self.stream.peer_addr()?;
        Ok(SocketAddr::new(peer.ip().to_canonical(), peer.port()))
    }

    /// Makes the socket non-blocking, as the poller needs it, and sets `TCP_NODELAY`.
    pub(super) fn into_nonblocking(self) -> io::Result<(TcpStream, RecordLayer)> {
        // Streams of std block, and a call that blocks would hold the leader and with it all peers.
        self.stream.set_nonblocking(true)?;
        self.stream.set_nodelay(true)?;
        Ok((self.stream, self.record_layer))
    }
}

impl From<TcpStream> for ControlStream {
    fn from(stream: TcpStream) -> Self {
        Self { stream, record_layer: RecordLayer::Plain }
    }
}
