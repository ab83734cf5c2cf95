//! A listening socket.
//!
//! When descriptors or memory have run out, it stops accepting for a while, and reports this once.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::ControlEvent;
use super::poller::{Interest, Poller, Token};
use super::reason::{MORE_FILES, words};

/// Connections that wait to be accepted: all peers of a large job may connect at the same moment.
/// The kernel may limit it further.
const BACKLOG: i32 = 4096;

/// Connections that one call accepts at most. Other sockets are served too, those in their handshake
/// above all: otherwise strangers could hold up peers.
const ACCEPTED_MAX: usize = 16;

/// Pause before accepting is tried again. Trying continuously would occupy a core for nothing.
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(super) struct Listener {
    token: Token,
    socket: TcpListener,
    local: SocketAddr,
    /// The end of a pause in accepting.
    paused_until: Option<Instant>,
    is_trouble_told: bool,
}

/// The result of [`Listener::accept`].
#[derive(Default)]
pub(super) struct Accepted {
    pub(super) streams: Vec<(TcpStream, SocketAddr)>,
    /// The reason why further connections were not accepted, if it was not reported yet.
    pub(super) trouble: Option<ControlEvent>,
}

impl Listener {
    pub(super) fn new(token: Token, address: SocketAddr) -> io::Result<Self> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
        // A restarted engine gets its port at once, although connections of the previous one are
        // still in TIME_WAIT.
        rustix::net::sockopt::set_socket_reuseaddr(&socket, true)?;
        rustix::net::bind(&socket, &address)?;
        rustix::net::listen(&socket, BACKLOG)?;
        let socket = TcpListener::from(socket);
        let local = socket.local_addr()?;
        Ok(Self { token, socket, local, paused_until: None, is_trouble_told: false })
    }

    pub(super) fn token(&self) -> Token {
        self.token
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub(super) fn local(&self) -> SocketAddr {
        self.local
    }

    /// Returns when accepting is tried again after a pause.
    pub(super) fn due(&self) -> Option<Instant> {
        self.paused_until
    }

    /// Ends a pause that is over.
    pub(super) fn try_again(&mut self, now: Instant, poller: &Poller) {
        if self.paused_until.is_some_and(|until| until <= now)
            && poller.add(self.token, &self.socket, Interest::READING).is_ok()
        {
            self.paused_until = None;
        }
    }

    /// Accepts waiting connections, at most [`ACCEPTED_MAX`].
    pub(super) fn accept(&mut self, poller: &Poller) -> Accepted {
        let mut accepted = Accepted::default();
        while accepted.streams.len() < ACCEPTED_MAX {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            match rustix::net::acceptfrom_with(&self.socket, flags) {
                Ok((stream, peer)) => {
                    let stream = TcpStream::from(stream);
                    // An accepted connection without an address is closed already.
                    let Some(peer) = peer.and_then(|peer| SocketAddr::try_from(peer).ok()) else { continue };
                    // If this fails, frames are delayed, with no other effect.
                    let _ = stream.set_nodelay(true);
                    accepted.streams.push((stream, peer));
                }
                Err(Errno::AGAIN) => break,
                Err(errno @ (Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)) => {
                    accepted.trouble = self.pause(errno, poller);
                    return accepted;
                }
                // The peer has closed the connection, or a firewall has refused it.
                Err(_) => {}
            }
        }
        self.is_trouble_told &= accepted.streams.is_empty();
        accepted
    }

    fn pause(&mut self, errno: Errno, poller: &Poller) -> Option<ControlEvent> {
        if poller.remove(&self.socket).is_ok() {
            self.paused_until = Some(Instant::now() + PAUSE);
        }
        let fix = match errno {
            Errno::MFILE | Errno::NFILE => MORE_FILES,
            _ => "free memory on this host",
        };
        let event = ControlEvent::CannotAccept { local: self.local, cause: words(errno), fix };
        (!std::mem::replace(&mut self.is_trouble_told, true)).then_some(event)
    }
}
