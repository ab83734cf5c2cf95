//! The sockets of the control channel: frames to and from many peers, by whichever thread drives.
//!
//! Nothing here waits but [`Control::sleep`], and no thread or timer is behind it. All sockets are in one epoll, together with what the
//! providers want to be woken by and with a [`Bell`], so that one sleep waits for everything.
//!
//! A connection begins with the preamble of both sides. Each side writes its own before it looks at the other's: so that both of two that
//! do not understand each other can say who is too old.

mod bell;
mod connection;
#[cfg(feature = "tls")]
mod distrust;
mod event;
mod greetings;
mod leaving;
mod listener;
#[cfg(all(loom, test))]
mod model;
mod poller;
mod reason;
#[cfg(feature = "tls")]
mod session;
mod speech;
mod stream;
#[cfg(all(test, not(loom)))]
mod tests;
mod turn;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use farreach_core::wire::{FRAME_MAX, Frame, WireError};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

pub(crate) use bell::Bell;
#[cfg(all(loom, test))]
pub(crate) use bell::Clapper;
pub(crate) use event::{ConnectionId, ControlEvent};
pub(crate) use reason::CloseReason;
#[cfg(feature = "tls")]
pub(crate) use session::Session;
pub(crate) use speech::Speech;
pub use stream::ControlStream;

use connection::Connection;
use greetings::Greetings;
use leaving::Leaving;
use listener::Listener;
use poller::{Poller, Ready, Token};
use turn::Turn;

/// How much may wait for a peer that does not read. It is many times what an engine says in a moment in which a peer is busy.
const QUEUED_MAX: usize = 16 << 20;

/// Frames that one poll tells at most, so that who drives also comes to its rails.
const FRAMES_MAX: usize = 256;

/// Who was called, or whose stream was adopted, is waited for so long: about as long as the kernel waits for an answer of another machine's. Who calls has
/// a deadline of his own.
const CALLED_PATIENCE: Duration = Duration::from_secs(120);

/// The same for those that have connected. Any stranger may.
const ACCEPTED_PATIENCE: Duration = Duration::from_secs(10);

/// Connections with more to tell that have a turn in one poll.
const TURNS_MAX: usize = 64;

/// Frames that one connection tells before it is another one's turn.
const FRAMES_OF_ONE_MAX: usize = 32;

const BELL: Token = Token(0);
const WATCHED: Token = Token(1);
const FIRST_FREE: u64 = 2;

/// All connections of one engine.
#[derive(Debug)]
pub(crate) struct Control {
    poller: Poller,
    bell: Bell,
    next_token: u64,
    listeners: Vec<Listener>,
    connections: HashMap<ConnectionId, Connection>,
    leaving: Leaving,
    greetings: Greetings,
    /// How long who has connected, and who was called, may take to greet.
    patience: (Duration, Duration),
    #[cfg(feature = "tls")]
    tls: Option<crate::Tls>,
    /// Happened outside of a poll, to be told by the next one.
    untold: VecDeque<ControlEvent>,
    /// Have more frames than their turn had room for, or an end that was seen by writing.
    backlog: VecDeque<ConnectionId>,
    scratch: Box<[u8]>,
}

impl Control {
    /// No connection yet.
    pub(crate) fn new() -> io::Result<Self> {
        let poller = Poller::new()?;
        let bell = Bell::new()?;
        poller.add_edge(BELL, &bell)?;
        Ok(Self {
            poller,
            bell,
            next_token: FIRST_FREE,
            listeners: Vec::new(),
            connections: HashMap::new(),
            leaving: Leaving::default(),
            greetings: Greetings::default(),
            patience: (ACCEPTED_PATIENCE, CALLED_PATIENCE),
            #[cfg(feature = "tls")]
            tls: None,
            untold: VecDeque::new(),
            backlog: VecDeque::new(),
            scratch: vec![0; FRAME_MAX].into_boxed_slice(),
        })
    }

    /// What ends a sleep from any thread.
    pub(crate) fn bell(&self) -> Bell {
        self.bell.clone()
    }

    /// How long who has connected may take to greet.
    pub(crate) fn set_patience(&mut self, patience: Duration) {
        self.patience.0 = patience;
    }

    /// Who connects has to speak TLS.
    #[cfg(feature = "tls")]
    pub(crate) fn accept_over_tls(&mut self, tls: crate::Tls) {
        self.tls = Some(tls);
    }

    /// Lets others connect to this address. It tells the port where 0 was asked for.
    pub(crate) fn listen(&mut self, address: SocketAddr) -> io::Result<SocketAddr> {
        let token = self.next_token();
        let listener = Listener::new(token, address)?;
        self.poller.add(token, listener.socket(), false)?;
        let local = listener.local();
        self.listeners.push(listener);
        Ok(local)
    }

    /// Begins to connect. How it ends is told by [`ControlEvent::Connected`] or [`ControlEvent::Closed`]; what is sent meanwhile goes
    /// out first thing. It is given up after about two minutes.
    pub(crate) fn connect(&mut self, peer: SocketAddr, speech: Speech) -> io::Result<ConnectionId> {
        let id = ConnectionId(self.next_token());
        let family = if peer.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let stream = TcpStream::from(rustix::net::socket_with(family, SocketType::STREAM, flags, None)?);
        stream.set_nodelay(true)?;
        match rustix::net::connect(&stream, &peer) {
            Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => {
                self.poller.add(id.token(), &stream, true)?;
                self.greetings.expect(id, self.patience.1);
                self.connections.insert(id, Connection::dialed(stream, peer, speech));
            }
            Err(errno) => {
                let reason = CloseReason::Unreachable { peer, errno };
                self.untold.push_back(ControlEvent::Closed(id, reason));
            }
        }
        Ok(id)
    }

    /// Goes on with a stream that was made elsewhere. How it ends is told as for [`connect`](Self::connect), whoever began it.
    pub(crate) fn adopt(&mut self, stream: ControlStream, peer: SocketAddr) -> io::Result<ConnectionId> {
        let id = ConnectionId(self.next_token());
        let (stream, speech) = stream.into_nonblocking()?;
        self.poller.add(id.token(), &stream, false)?;
        self.greetings.expect(id, self.patience.1);
        self.begin(id, Connection::adopted(stream, peer, speech));
        Ok(id)
    }

    /// Sends a frame: at once as far as the peer's side takes it, and the rest as it does. To a connection that has ended it does
    /// nothing, since its end is told.
    ///
    /// A peer that reads nothing until more than 16 MiB wait for it is given up, which the next poll tells.
    pub(crate) fn send(&mut self, id: ConnectionId, frame: &Frame) -> Result<(), WireError> {
        let Some(connection) = self.connections.get_mut(&id) else { return Ok(()) };
        let had_waiting = connection.unwritten() > 0;
        connection.push(frame)?;
        // What waits for room goes when the poller tells of room.
        if !had_waiting {
            connection.flush();
        }
        if connection.unwritten() > QUEUED_MAX {
            let reason = CloseReason::Unread { peer: connection.peer };
            self.connections.remove(&id);
            self.untold.push_back(ControlEvent::Closed(id, reason));
        }
        self.settle(id);
        Ok(())
    }

    /// Ends a connection. What was sent before still goes out, for as long as a peer that reads needs; it is not waited for, and
    /// nothing more of the connection is told.
    pub(crate) fn close(&mut self, id: ConnectionId) {
        self.untold.retain(|event| !matches!(event, ControlEvent::Closed(closed, _) if *closed == id));
        if let Some(connection) = self.connections.remove(&id) {
            self.leaving.add(id, connection, &self.poller);
        }
    }

    /// How many connections that were closed still have something to write.
    #[cfg(test)]
    pub(crate) fn unfinished(&self) -> usize {
        self.leaving.unfinished()
    }

    /// Bytes that a connection holds.
    pub(crate) fn memory(&self, id: ConnectionId) -> Option<usize> {
        Some(self.connections.get(&id)?.memory())
    }

    /// This side's address of a connection; none once it has ended.
    #[cfg(test)]
    pub(crate) fn local_addr(&self, id: ConnectionId) -> Option<SocketAddr> {
        self.connections.get(&id)?.stream.local_addr().ok()
    }

    /// The other side's address of a connection; none once it has ended.
    #[cfg(test)]
    pub(crate) fn peer_addr(&self, id: ConnectionId) -> Option<SocketAddr> {
        Some(self.connections.get(&id)?.peer)
    }

    /// Lets a sleep end also while this one is readable. It is to be unwatched before it is closed.
    pub(crate) fn watch(&mut self, source: BorrowedFd<'_>) -> io::Result<()> {
        self.poller.add(WATCHED, source, false)
    }

    /// Sleeps do not end by this one any more.
    pub(crate) fn unwatch(&mut self, source: BorrowedFd<'_>) -> io::Result<()> {
        self.poller.remove(source)
    }

    /// Tells what has happened, some hundreds of events at most, and how many. It asks the kernel once.
    pub(crate) fn poll(&mut self, sink: &mut dyn FnMut(ControlEvent)) -> io::Result<usize> {
        let mut told = 0;
        let mut sink = |event| {
            told += 1;
            sink(event);
        };
        self.do_what_is_due();
        while let Some(event) = self.untold.pop_front() {
            sink(event);
        }
        let mut room = FRAMES_MAX;
        for _ in 0..TURNS_MAX {
            // The other half is for those that were not read from yet.
            if room <= FRAMES_MAX / 2 {
                break;
            }
            let Some(id) = self.backlog.pop_front() else { break };
            if let Some(connection) = self.connections.get_mut(&id) {
                connection.is_in_backlog = false;
                self.turn(id, &mut room, &mut sink);
            }
        }
        if !self.poller.has_next() {
            self.poller.ask(Some(Duration::ZERO))?;
        }
        while room > 0
            && let Some(ready) = self.poller.next()
        {
            self.serve(ready, &mut room, &mut sink);
        }
        Ok(told)
    }

    /// Sleeps until there is something to poll for, something watched is readable, the bell is rung or was since the last sleep, or the
    /// time is over. The kernel counts whole milliseconds. Whether it was something watched.
    pub(crate) fn sleep(&mut self, timeout: Option<Duration>) -> io::Result<bool> {
        if !self.untold.is_empty() || !self.backlog.is_empty() || self.poller.has_next() {
            return Ok(false);
        }
        let due = self.leaving.due().into_iter().chain(self.listeners.iter().filter_map(Listener::due));
        let due = due.chain(self.greetings.due(&self.connections)).min();
        let due = due.map(|due| due.saturating_duration_since(Instant::now()));
        if !self.bell.fall_asleep() {
            return Ok(false);
        }
        let slept = self.poller.ask(timeout.into_iter().chain(due).min());
        self.bell.wake_up();
        slept.map(|()| self.poller.has_told_of(WATCHED))
    }

    fn next_token(&mut self) -> Token {
        let token = Token(self.next_token);
        self.next_token += 1;
        token
    }

    /// Does for one what it is ready for.
    fn serve(&mut self, ready: Ready, room: &mut usize, sink: &mut dyn FnMut(ControlEvent)) {
        if [BELL, WATCHED].contains(&ready.token) {
            return;
        }
        let id = ConnectionId(ready.token);
        if let Some(connection) = self.connections.get_mut(&id) {
            if ready.is_writable
                && let Err(reason) = connection.go_on_writing()
            {
                self.connections.remove(&id);
                return sink(ControlEvent::Closed(id, reason));
            }
            if connection.is_in_backlog {
                return self.settle(id);
            }
            self.turn(id, room, sink);
        } else if let Some(listener) = self.listeners.iter().position(|it| it.token() == ready.token) {
            self.accept(listener, sink);
        } else {
            self.leaving.serve(id, &mut self.scratch, &self.poller);
        }
    }

    /// Tells the frames of one connection, and reads once. What does not fit into its turn is left for the next poll.
    fn turn(&mut self, id: ConnectionId, room: &mut usize, sink: &mut dyn FnMut(ControlEvent)) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let mut turn = Turn { id, room: FRAMES_OF_ONE_MAX.min(*room) };
        let share = turn.room;
        let end = turn.run(connection, &mut self.scratch, sink);
        *room -= share - turn.room;
        match end {
            Ok(has_more) => {
                if has_more && !std::mem::replace(&mut connection.is_in_backlog, true) {
                    self.backlog.push_back(id);
                }
                self.settle(id);
            }
            Err(reason) => {
                if let Some(connection) = self.connections.remove(&id)
                    && reason.is_refusal()
                {
                    // Who is refused gets our preamble, or our alert, which a plain close could take away again.
                    self.leaving.add(id, connection, &self.poller);
                }
                sink(ControlEvent::Closed(id, reason));
            }
        }
    }

    /// Lets in who has connected.
    fn accept(&mut self, listener: usize, sink: &mut dyn FnMut(ControlEvent)) {
        let accepted = self.listeners[listener].accept(&self.poller);
        for (stream, peer) in accepted.streams {
            let Some(speech) = self.speech_of_accepted() else { continue };
            let id = ConnectionId(self.next_token());
            if self.poller.add(id.token(), &stream, false).is_err() {
                // The kernel has no memory for it, and whoever connected sees that it ends.
                continue;
            }
            let connection = Connection::accepted(stream, peer, speech);
            if connection.is_announced() {
                sink(ControlEvent::Accepted(id, peer));
            }
            self.greetings.expect(id, self.patience.0);
            self.begin(id, connection);
        }
        if let Some(event) = accepted.trouble {
            sink(event);
        }
    }

    /// How it is spoken with who connects; none where that cannot be begun.
    fn speech_of_accepted(&self) -> Option<Speech> {
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            return tls.accepting().ok().map(|connection| Speech::Tls(Box::new(Session::new(connection))));
        }
        Some(Speech::Plain)
    }

    /// Goes on with one that stands.
    fn begin(&mut self, id: ConnectionId, mut connection: Connection) {
        connection.flush();
        if connection.has_something_left() {
            connection.is_in_backlog = true;
            self.backlog.push_back(id);
        }
        self.connections.insert(id, connection);
        self.settle(id);
    }

    /// Asks the poller for what this connection waits for, and sees to an end that was found by writing.
    fn settle(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let for_writing = connection.is_connecting() || connection.unwritten() > 0;
        if for_writing != connection.is_watched_for_writing {
            connection.is_watched_for_writing = for_writing;
            // It fails only for a descriptor that is not there.
            let _ = self.poller.change(id.token(), &connection.stream, for_writing);
        }
        if connection.has_failed_writing() && !std::mem::replace(&mut connection.is_in_backlog, true) {
            self.backlog.push_back(id);
        }
    }

    fn do_what_is_due(&mut self) {
        if self.leaving.due().is_some() {
            self.leaving.look_after(Instant::now());
        }
        for listener in self.listeners.iter_mut().filter(|listener| listener.due().is_some()) {
            listener.try_again(Instant::now(), &self.poller);
        }
        if self.greetings.due(&self.connections).is_some() {
            while let Some((id, after)) = self.greetings.take_late(Instant::now(), &self.connections) {
                if let Some(connection) = self.connections.remove(&id) {
                    self.untold.push_back(ControlEvent::Closed(id, connection.never_greeted(after)));
                }
            }
        }
    }
}
