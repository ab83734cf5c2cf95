//! A listening socket.
//!
//! When descriptors have run out, newcomers are refused with the help of a spare descriptor. When
//! memory has run out, it stops accepting for a while. Either is reported once.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::EventfdFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType};

use super::ControlEvent;
use super::exceeded::MORE_FILES;
use super::poller::{Interest, Poller, Token};
use super::reason::words;

/// Connections that wait to be accepted: all peers of a large job may connect at the same moment.
/// The kernel may limit it further.
const BACKLOG: i32 = 4096;

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

/// A descriptor that is kept for the moment at which no other is left.
#[derive(Debug)]
pub(super) struct Spare(Option<OwnedFd>);

impl Spare {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self(Some(Self::open()?)))
    }

    /// Any descriptor will do.
    fn open() -> io::Result<OwnedFd> {
        Ok(rustix::event::eventfd(0, EventfdFlags::CLOEXEC)?)
    }

    /// Makes its place free. Returns whether it had one: another thread may have taken it.
    pub(super) fn give_up(&mut self) -> bool {
        self.0.take().is_some()
    }

    /// Takes a place again, if it has none.
    pub(super) fn restore(&mut self) {
        if self.0.is_none() {
            // If there is no descriptor for it, the next accept tries again.
            self.0 = Self::open().ok();
        }
    }
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
        // The kernel has chosen the port if it was 0.
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
        if self.paused_until.is_some_and(|until| until <= now) {
            let is_added = poller.add(self.token, &self.socket, Interest::READING).is_ok();
            // A time that has passed would keep the leader from sleeping.
            self.paused_until = (!is_added).then(|| now + PAUSE);
        }
    }

    /// Accepts a connection, if one waits.
    pub(super) fn accept(&self) -> Result<Option<(TcpStream, SocketAddr)>, Errno> {
        let mut failed = 0;
        loop {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            match rustix::net::acceptfrom_with(&self.socket, flags) {
                Ok((stream, peer)) => {
                    let stream = TcpStream::from(stream);
                    // An accepted connection without an address is closed already.
                    let Some(peer) = peer.and_then(|peer| SocketAddr::try_from(peer).ok()) else { continue };
                    // If this fails, frames are delayed, with no other effect.
                    let _ = stream.set_nodelay(true);
                    return Ok(Some((stream, peer)));
                }
                Err(Errno::AGAIN) => return Ok(None),
                // These last: the same call would fail again at once. A newcomer stays in the queue
                // of the kernel.
                Err(errno @ (Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)) => {
                    return Err(errno);
                }
                // Something that forbids the call, such as a filter of system calls, forbids it every time.
                Err(errno) if failed == BACKLOG => return Err(errno),
                // The peer has closed the connection, or a firewall has refused it.
                Err(_) => failed += 1,
            }
        }
    }

    /// Notes that connections are accepted again.
    pub(super) fn is_fine(&mut self) {
        self.is_trouble_told = false;
    }

    /// Stops accepting for a while.
    pub(super) fn pause(&mut self, now: Instant, poller: &Poller) {
        // If it stays registered, the poller reports it, and no timer is needed.
        if poller.remove(&self.socket).is_ok() {
            self.paused_until = Some(now + PAUSE);
        }
    }

    /// Returns an event about connections that are not accepted, once.
    pub(super) fn trouble(&mut self, errno: Errno) -> Option<ControlEvent> {
        let fix = match errno {
            Errno::MFILE | Errno::NFILE => MORE_FILES,
            _ => "free memory on this host",
        };
        let event = ControlEvent::CannotAccept { local: self.local, cause: words(errno), fix };
        // Newcomers may come thousands of times a second while the trouble lasts.
        (!std::mem::replace(&mut self.is_trouble_told, true)).then_some(event)
    }
}

/// Sends a refusal to a newcomer, and closes the connection. All of this is tried once: the buffer of
/// a new socket has room.
pub(super) fn refuse(stream: TcpStream, refusal: &[u8]) {
    let _ = rustix::net::send(&stream, refusal, SendFlags::NOSIGNAL);
    let _ = rustix::net::shutdown(&stream, Shutdown::Write);
    // Unread bytes would make the close a reset, which may overtake the refusal.
    let _ = rustix::net::recv(&stream, &mut [0; 1024], RecvFlags::empty());
    drop(stream);
}
