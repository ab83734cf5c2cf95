//! A connection that was made elsewhere.

use std::io;
use std::net::{SocketAddr, TcpStream};

use super::RecordLayer;
#[cfg(feature = "tls")]
use super::Session;

/// A connection that the caller has made himself, for [`Engine::connect_over`](crate::Engine::connect_over) and
/// [`Engine::accept_over`](crate::Engine::accept_over).
///
/// Both sides may have talked over it before, and are done: the next byte that each of them sends is the engine's, and so is the next that comes.
/// What was read ahead and kept elsewhere, as a `BufReader` does, is lost to the engine.
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
    /// One over which TLS is spoken already, or from here on: the handshake is done, under way, or not begun. What the session holds goes along, also
    /// what it has decrypted and nobody has read, which is the engine's then.
    ///
    /// The engine trusts whom the session trusts, whatever [`Settings::tls`](crate::Settings::tls) says. [`Tls`](crate::Tls) makes sessions that both
    /// sides show a certificate in.
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
    /// let mut talk = farreach::rustls::Stream::new(&mut session, &mut stream);
    /// talk.write_all(b"two rails, please\n")?;
    /// talk.read_exact(&mut [0; b"yes\n".len()])?;
    /// let engine = Engine::new()?;
    /// let peer = engine.connect_over(ControlStream::tls(stream, session))?.wait(Duration::from_secs(5))?;
    /// println!("{}", peer.name());
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "tls")]
    pub fn tls(stream: TcpStream, session: impl Into<rustls::Connection>) -> Self {
        let session = Session::new(session);
        Self { stream, record_layer: RecordLayer::Tls(Box::new(session)) }
    }

    /// Whether nobody has begun to speak TLS over it.
    #[cfg(feature = "tls")]
    pub(crate) fn is_plain(&self) -> bool {
        self.record_layer.is_plain()
    }

    /// The same, over TLS from here on.
    #[cfg(feature = "tls")]
    pub(crate) fn over(self, session: impl Into<rustls::Connection>) -> Self {
        Self::tls(self.stream, session)
    }

    /// Who is at its other end, as people write it: also where a socket for both families has taken the call.
    pub(crate) fn peer_addr(&self) -> io::Result<SocketAddr> {
        let peer = self.stream.peer_addr()?;
        Ok(SocketAddr::new(peer.ip().to_canonical(), peer.port()))
    }

    /// As the poller wants it.
    pub(super) fn into_nonblocking(self) -> io::Result<(TcpStream, RecordLayer)> {
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
