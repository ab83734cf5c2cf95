//! A connection that was made elsewhere.

use std::io;
use std::net::{SocketAddr, TcpStream};

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
pub struct ControlStream(TcpStream);

impl ControlStream {
    /// Who is at its other end.
    pub(crate) fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.0.peer_addr()
    }

    /// As the poller wants it.
    pub(super) fn into_nonblocking(self) -> io::Result<TcpStream> {
        self.0.set_nonblocking(true)?;
        self.0.set_nodelay(true)?;
        Ok(self.0)
    }
}

impl From<TcpStream> for ControlStream {
    fn from(stream: TcpStream) -> Self {
        Self(stream)
    }
}
