//! The sockets of the control connections: exchanges frames with many peers, on the thread that
//! leads.
//!
//! Only [`Control::sleep`] waits. There is no thread or timer behind it. All sockets are in one
//! epoll, together with the descriptors of the rails and a [`Wakeup`], so that one sleep waits for
//! everything.
//!
//! A connection begins with the preambles of both sides. Each side writes its own before it reads
//! the peer's, so that two incompatible sides can both report which one is too old.
//!
//! Every call has a limit: of frames per poll, of frames per connection, and of bytes queued for a
//! peer that does not read.

mod admission;
mod connection;
mod event;
mod exceeded;
mod frame_reader;
#[cfg(feature = "fuzz")]
pub(crate) mod fuzz;
mod handshakes;
mod lingering;
mod listener;
#[cfg(all(loom, test))]
mod model;
mod poller;
mod rates;
mod reason;
mod record_layer;
#[cfg(feature = "tls")]
mod session;
mod stream;
#[cfg(all(test, not(loom)))]
mod tests;
mod wakeup;

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use farreach_proto::machine::IdMap;
use farreach_proto::wire::{self, FRAME_MAX, Frame, WireError};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

pub(crate) use event::{ConnectionId, ControlEvent};
pub(crate) use reason::CloseReason;
use reason::QueueLimit;
pub(crate) use record_layer::RecordLayer;
#[cfg(feature = "tls")]
pub(crate) use session::Session;
pub use stream::ControlStream;
pub(crate) use wakeup::Wakeup;
#[cfg(all(loom, test))]
pub(crate) use wakeup::WakeupState;

use crate::budgets::ControlBudgets;
use admission::Admission;
use connection::Connection;
use exceeded::{Exceeded, Reports};
use frame_reader::FrameReader;
use handshakes::Handshakes;
use lingering::LingeringCloses;
use listener::{Listener, Spare};
use poller::{Interest, Poller, Ready, Token};
use rates::Rates;

/// Bytes that may be queued for a peer that does not read. This is many times what an engine sends
/// while a peer is busy for a moment.
const QUEUED_MAX: usize = 16 << 20;

/// Bytes of frames that are collected for one write at most.
const UNFLUSHED_MAX: usize = 64 << 10;

/// Frames that one poll delivers at most, so that the leader also serves the rails. A read counts as
/// one, and each TLS record in it: they are work, too, if no frame comes of them.
const FRAMES_MAX: usize = 256;

/// Handshake timeout of connections that this side has made or adopted: about as long as the kernel
/// waits for an answer of another machine. The caller has its own deadline.
const CONNECT_HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(120);

/// Handshake timeout of accepted connections. It is shorter, because any stranger may connect, and
/// it covers the first frame, too.
const ACCEPT_HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// The limit of lingering connections. Without it, peers that close could use up all descriptors.
const LINGERING_MAX: usize = 1024;

/// The limit of refused connections that linger. The oldest of more has had its time to read why.
const REFUSED_MAX: usize = 64;

/// Connections from the unread list that are served in one poll.
const UNREAD_PER_POLL_MAX: usize = 64;

/// Frames that one connection delivers before another one is served.
const FRAMES_OF_ONE_MAX: usize = 32;

/// Bytes that count as one frame of [`FRAMES_MAX`]: copying and decoding them takes about as long.
const BYTES_PER_FRAME: usize = 2048;

/// A read in a TLS handshake counts as this many frames of [`FRAMES_MAX`]: signatures take long.
const FRAMES_PER_TLS_HANDSHAKE: usize = 32;

/// Connections that one poll accepts at most. Other sockets are served too, those in their handshake
/// above all: otherwise strangers could hold up peers.
const ACCEPTED_MAX: usize = 16;

const WAKEUP: Token = Token(0);
const WATCHED: Token = Token(1);
const FIRST_FREE: u64 = 2;

/// All connections of one engine.
#[derive(Debug)]
pub(crate) struct Control {
    poller: Poller,
    wakeup: Wakeup,
    next_token: u64,
    listeners: Vec<Listener>,
    spare: Spare,
    /// The bytes for a newcomer for which no descriptor is left.
    refusal: Vec<u8>,
    connections: IdMap<ConnectionId, Connection>,
    lingering: LingeringCloses,
    /// Connections that are refused. Strangers have no part of the room for those that peers close.
    refused: LingeringCloses,
    handshakes: Handshakes,
    admission: Admission,
    reports: Reports,
    budgets: ControlBudgets,
    /// Connections that are not read before a time, because they have used up their tokens.
    paused: BTreeSet<(Instant, ConnectionId)>,
    /// The unwritten bytes of all connections, without closed ones.
    unwritten: usize,
    /// Handshake timeouts of accepted connections, and of those that this side has made or adopted.
    handshake_timeouts: (Duration, Duration),
    #[cfg(feature = "tls")]
    tls: Option<crate::Tls>,
    /// Events that happened outside of a poll. The next poll delivers them.
    pending_events: VecDeque<ControlEvent>,
    /// Connections with more frames than their turn had room for, or whose write has failed.
    unread: VecDeque<ConnectionId>,
    /// Connections with frames that were not written yet, and that do not wait for the poller.
    unflushed: Vec<ConnectionId>,
    scratch: Box<[u8]>,
}

impl Control {
    /// Creates a `Control` without connections.
    pub(crate) fn new(budgets: &ControlBudgets) -> io::Result<Self> {
        let poller = Poller::new()?;
        let wakeup = Wakeup::new()?;
        // Edge-triggered, because nobody reads the eventfd: one that is level-triggered would end
        // every sleep after the first wakeup.
        poller.add_edge(WAKEUP, &wakeup)?;
        Ok(Self {
            poller,
            wakeup,
            next_token: FIRST_FREE,
            listeners: Vec::new(),
            spare: Spare::new()?,
            refusal: refusal(),
            // Ids are numbers of this engine. No peer can choose them to collide, so the hash needs
            // no key.
            connections: IdMap::default(),
            lingering: LingeringCloses::new(LINGERING_MAX),
            refused: LingeringCloses::new(REFUSED_MAX),
            handshakes: Handshakes::new(budgets),
            admission: Admission::new(budgets),
            reports: Reports::default(),
            budgets: *budgets,
            paused: BTreeSet::new(),
            unwritten: 0,
            handshake_timeouts: (ACCEPT_HANDSHAKE_TIMEOUT, CONNECT_HANDSHAKE_TIMEOUT),
            #[cfg(feature = "tls")]
            tls: None,
            pending_events: VecDeque::new(),
            unread: VecDeque::new(),
            unflushed: Vec::new(),
            scratch: vec![0; FRAME_MAX].into_boxed_slice(),
        })
    }

    /// Returns a handle that ends a sleep from any thread.
    pub(crate) fn wakeup(&self) -> Wakeup {
        self.wakeup.clone()
    }

    /// Sets how long the handshake of an accepted connection may take, until its first frame.
    pub(crate) fn set_handshake_timeout(&mut self, patience: Duration) {
        self.handshake_timeouts.0 = patience;
    }

    /// Requires TLS of all accepted connections.
    #[cfg(feature = "tls")]
    pub(crate) fn accept_over_tls(&mut self, tls: crate::Tls) {
        self.tls = Some(tls);
        self.refusal = session::refusal();
    }

    /// Listens on this address. Returns the address with the assigned port, if the port was 0.
    pub(crate) fn listen(&mut self, address: SocketAddr) -> io::Result<SocketAddr> {
        let token = self.next_token();
        let listener = Listener::new(token, address)?;
        self.poller.add(token, listener.socket(), Interest::READING)?;
        let local = listener.local();
        self.listeners.push(listener);
        Ok(local)
    }

    /// Starts connecting. The outcome is reported by [`ControlEvent::Connected`] or
    /// [`ControlEvent::Closed`]. Frames sent in the meantime are queued and written first. It fails
    /// after about two minutes.
    pub(crate) fn connect(
        &mut self,
        peer: SocketAddr,
        record_layer: RecordLayer,
    ) -> io::Result<ConnectionId> {
        let id = ConnectionId(self.next_token());
        let family = if peer.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let stream = TcpStream::from(rustix::net::socket_with(family, SocketType::STREAM, flags, None)?);
        // Frames are short, and the peer may wait for each of them. Nagle's algorithm would hold
        // one back until the one before it is acknowledged.
        stream.set_nodelay(true)?;
        match rustix::net::connect(&stream, &peer) {
            // A signal does not end the connect: the kernel goes on with it.
            Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => {
                // The socket becomes writable when the connect has ended, with or without success.
                self.poller.add(id.token(), &stream, Interest::BOTH)?;
                let now = Instant::now();
                self.handshakes.begin(id, self.handshake_timeouts.1, now);
                let rates = Rates::new(&self.budgets, now);
                self.connections.insert(id, Connection::connecting(stream, peer, record_layer, rates));
            }
            Err(errno) => {
                // Reported as a failure that comes later is. An error that is returned means that
                // this side has no descriptor or memory, for which the fix is another one.
                let reason = CloseReason::Unreachable { peer, errno };
                self.pending_events.push_back(ControlEvent::Closed(id, reason));
            }
        }
        Ok(id)
    }

    /// Takes over a stream that was connected elsewhere. The outcome is reported as for
    /// [`connect`](Self::connect), whichever side has initiated the stream.
    pub(crate) fn adopt(&mut self, stream: ControlStream, peer: SocketAddr) -> io::Result<ConnectionId> {
        let id = ConnectionId(self.next_token());
        let (stream, record_layer) = stream.into_nonblocking()?;
        self.poller.add(id.token(), &stream, Interest::READING)?;
        let now = Instant::now();
        self.handshakes.begin(id, self.handshake_timeouts.1, now);
        self.begin(id, Connection::adopted(stream, peer, record_layer, Rates::new(&self.budgets, now)));
        Ok(id)
    }

    /// Sends a frame. It is written with the next [`flush`](Self::flush) or poll, as far as the socket
    /// takes it, and the rest later. Does nothing for a connection that has ended, because its end is
    /// reported.
    ///
    /// A connection whose peer reads nothing until more than 16 MiB are queued is closed, which the
    /// next poll reports. So is the connection with the most bytes if too many are queued for all.
    pub(crate) fn send(&mut self, id: ConnectionId, frame: &Frame) -> Result<(), WireError> {
        let Some(connection) = self.connections.get_mut(&id) else { return Ok(()) };
        // If data waits already, the poller reports when there is room.
        let is_waiting = connection.unwritten() > 0 && !connection.is_unflushed;
        connection.push(frame)?;
        if is_waiting {
            // Checked here only: the other branch flushes at `UNFLUSHED_MAX`, which is far below.
            if connection.unwritten() > QUEUED_MAX {
                self.end_unread(id, QueueLimit::OfOne);
            }
            self.settle(id);
            self.end_excess();
        } else {
            let is_much = connection.unwritten() > UNFLUSHED_MAX;
            if !std::mem::replace(&mut connection.is_unflushed, true) {
                self.unflushed.push(id);
            }
            if is_much {
                self.flush_one(id);
            }
        }
        Ok(())
    }

    /// Writes the frames that were sent since the last call: one call to the kernel for each
    /// connection, however many frames a peer has caused.
    pub(crate) fn flush(&mut self) {
        // An id may be here twice, because `flush_one` leaves it in the list, and connections that
        // have ended stay in it, too. `flush_one` skips both.
        while let Some(id) = self.unflushed.pop() {
            self.flush_one(id);
        }
    }

    fn flush_one(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connections.get_mut(&id)
            && std::mem::take(&mut connection.is_unflushed)
        {
            connection.flush();
            self.settle(id);
            self.end_excess();
        }
    }

    /// Closes the connections with the most unwritten bytes while there are too many in all. Finding
    /// one takes linear time, which each connection causes once at most.
    fn end_excess(&mut self) {
        let max = self.budgets.queued_bytes;
        while (self.unwritten + self.lingering.unwritten() + self.refused.unwritten()) as u64 > max {
            // Closed connections count as well: a peer that does not read keeps their bytes in
            // memory, too. A refusal may end a connection that has much to read.
            let open = self.connections.iter().map(|(id, it)| (it.unwritten(), *id)).max();
            let (closed, refused) = (self.lingering.largest(), self.refused.largest());
            match open.max(closed).max(refused) {
                Some((_, id)) if open.is_some_and(|it| it.1 == id) => {
                    self.end_unread(id, QueueLimit::OfAll(max));
                }
                Some((_, id)) if closed.is_some_and(|it| it.1 == id) => self.lingering.remove(id),
                Some((_, id)) => self.refused.remove(id),
                None => break,
            }
        }
    }

    /// Ends a connection whose peer does not read.
    fn end_unread(&mut self, id: ConnectionId, limit: QueueLimit) {
        if let Some(connection) = self.remove(id) {
            let reason = CloseReason::Unread { peer: connection.peer, limit };
            self.pending_events.push_back(ControlEvent::Closed(id, reason));
        }
    }

    /// Ends a connection. Data sent before is still written in the background, for as long as the
    /// peer keeps reading. No further event of the connection is reported.
    pub(crate) fn close(&mut self, id: ConnectionId) {
        // Only ends of connections wait outside of a poll, so nothing else of this one can be
        // pending.
        self.pending_events
            .retain(|event| !matches!(event, ControlEvent::Closed(closed, _) if *closed == id));
        if let Some(connection) = self.remove(id) {
            self.lingering.add(id, connection, &self.poller);
        }
    }

    /// Removes a connection, and everything that is known about it elsewhere.
    fn remove(&mut self, id: ConnectionId) -> Option<Connection> {
        // The id stays in `unread` and `unflushed`, which would have to be searched. Both skip an
        // id without a connection, and ids are never used again.
        let mut connection = self.connections.remove(&id)?;
        connection.discount(&mut self.unwritten);
        if connection.is_in_handshake() {
            self.handshakes.end(id);
        }
        // The state tells which budget the connection has used: that of handshakes, or that of
        // peers.
        if connection.is_admitted() {
            self.admission.release(connection.address());
        }
        if let Some(until) = connection.paused_until {
            self.paused.remove(&(until, id));
        }
        Some(connection)
    }

    /// Returns how many closed connections still have data to write.
    #[cfg(test)]
    pub(crate) fn unfinished(&self) -> usize {
        self.lingering.unfinished()
    }

    /// Returns the DNS names of the certificate that the peer of a connection has shown.
    pub(crate) fn certificate_names(&self, id: ConnectionId) -> Vec<String> {
        self.connections.get(&id).map_or_else(Vec::new, Connection::certificate_names)
    }

    /// Returns the bytes that a connection holds.
    pub(crate) fn memory(&self, id: ConnectionId) -> Option<usize> {
        Some(self.connections.get(&id)?.memory())
    }

    /// Returns the local address of a connection; `None` once it has ended.
    #[cfg(test)]
    pub(crate) fn local_addr(&self, id: ConnectionId) -> Option<SocketAddr> {
        self.connections.get(&id)?.stream.local_addr().ok()
    }

    /// Returns the peer's address of a connection; `None` once it has ended.
    #[cfg(test)]
    pub(crate) fn peer_addr(&self, id: ConnectionId) -> Option<SocketAddr> {
        Some(self.connections.get(&id)?.peer)
    }

    /// Lets a sleep also end while this descriptor is readable. It must be unwatched before it is
    /// closed.
    pub(crate) fn watch(&mut self, source: BorrowedFd<'_>) -> io::Result<()> {
        // One token for all: it is enough to know that one of them has ended the sleep.
        self.poller.add(WATCHED, source, Interest::READING)
    }

    /// Removes a watched descriptor.
    pub(crate) fn unwatch(&mut self, source: BorrowedFd<'_>) -> io::Result<()> {
        self.poller.remove(source)
    }

    /// Delivers events, a few hundred at most. Returns how many. It calls the kernel at most once
    /// to ask which sockets are ready.
    pub(crate) fn poll(&mut self, now: Instant, sink: &mut dyn FnMut(ControlEvent)) -> io::Result<usize> {
        let mut told = 0;
        let mut sink = |event| {
            told += 1;
            sink(event);
        };
        self.flush();
        self.do_what_is_due(now);
        // After the deadlines, because handshakes that have timed out are among these events.
        while let Some(event) = self.pending_events.pop_front() {
            sink(event);
        }
        let mut room = FRAMES_MAX;
        // A connection with more frames comes back at the end of the list, so the loop needs a
        // bound.
        for _ in 0..UNREAD_PER_POLL_MAX {
            // The other half is for connections that were not read from yet.
            if room <= FRAMES_MAX / 2 {
                break;
            }
            let Some(id) = self.unread.pop_front() else { break };
            if let Some(connection) = self.connections.get_mut(&id) {
                // Before the read, which may put it into the list again.
                connection.is_in_unread = false;
                self.read_frames(id, now, &mut room, &mut sink);
            }
        }
        // Sockets for which the last poll had no room come first, in the order of the kernel.
        if !self.poller.has_next() {
            self.poller.ask(Some(Duration::ZERO))?;
        }
        // What finds no room stays in the poller, for the next poll.
        while room > 0
            && let Some(ready) = self.poller.next()
        {
            self.serve(ready, now, &mut room, &mut sink);
        }
        Ok(told)
    }

    /// Sleeps until there is something to poll for, a watched descriptor is readable, a wakeup has
    /// arrived since the last sleep, or the timeout is over. Returns whether a watched descriptor
    /// was readable. The kernel may round the timeout to whole milliseconds.
    pub(crate) fn sleep(&mut self, timeout: Option<Duration>) -> io::Result<bool> {
        // Nothing else would write the collected frames while this thread sleeps.
        self.flush();
        // The kernel does not know of this work: the bytes have left the sockets already.
        if !self.pending_events.is_empty() || !self.unread.is_empty() || self.poller.has_next() {
            return Ok(false);
        }
        let closing = self.lingering.due().into_iter().chain(self.refused.due());
        let due = closing.chain(self.listeners.iter().filter_map(Listener::due));
        let due = due.chain(self.handshakes.due()).chain(self.paused.first().map(|(due, _)| *due)).min();
        let due = due.map(|due| due.saturating_duration_since(Instant::now()));
        // From here on, `wake_up` has to follow before any return: a state that stays asleep would
        // make the next wakeup call the kernel, and the next sleep end at once.
        if !self.wakeup.fall_asleep() {
            return Ok(false);
        }
        let slept = self.poller.ask(timeout.into_iter().chain(due).min());
        self.wakeup.wake_up();
        slept.map(|()| self.poller.has_told_of(WATCHED))
    }

    fn next_token(&mut self) -> Token {
        let token = Token(self.next_token);
        self.next_token += 1;
        token
    }

    /// Serves one socket that is ready.
    fn serve(&mut self, ready: Ready, now: Instant, room: &mut usize, sink: &mut dyn FnMut(ControlEvent)) {
        // Both only end a sleep. There is nothing to read from them here.
        if [WAKEUP, WATCHED].contains(&ready.token) {
            return;
        }
        let id = ConnectionId(ready.token);
        if let Some(connection) = self.connections.get_mut(&id) {
            if ready.is_writable
                && let Err(reason) = connection.go_on_writing()
            {
                self.remove(id);
                // Only a connect fails here, so there is nobody to be told why.
                return sink(ControlEvent::Closed(id, reason));
            }
            // Its turn comes with the unread connections, in order, or when it has tokens again.
            if connection.is_in_unread || connection.paused_until.is_some() {
                return self.settle(id);
            }
            self.read_frames(id, now, room, sink);
        } else if let Some(listener) = self.listeners.iter().position(|it| it.token() == ready.token) {
            self.accept(listener, now, sink);
        } else {
            // An id is in one of the two lists at most. Discarded bytes count, because a peer may
            // go on sending to a connection that is closed here.
            let bytes = self.lingering.serve(id, &mut self.scratch, &self.poller)
                + self.refused.serve(id, &mut self.scratch, &self.poller);
            *room = room.saturating_sub(1 + bytes / BYTES_PER_FRAME);
        }
    }

    /// Delivers the frames of one connection, and reads once. The frames beyond its budget are left
    /// for the next poll.
    fn read_frames(
        &mut self,
        id: ConnectionId,
        now: Instant,
        room: &mut usize,
        sink: &mut dyn FnMut(ControlEvent),
    ) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let was_in_handshake = connection.is_in_handshake();
        // Asked before the read, which may end the handshake: the signatures are part of this read.
        let mut cost = if connection.is_in_tls_handshake() { FRAMES_PER_TLS_HANDSHAKE } else { 0 };
        let mut reader = FrameReader::new(id, now, FRAMES_OF_ONE_MAX.min(*room), &mut self.admission);
        let end = reader.read(connection, &mut self.scratch, sink);
        cost += reader.frames + reader.cost.reads + reader.cost.bytes / BYTES_PER_FRAME;
        *room = room.saturating_sub(cost);
        // At once: from here on the timeout and the budget of handshakes do not hold for it.
        if was_in_handshake && !connection.is_in_handshake() {
            self.handshakes.end(id);
        }
        match end {
            Ok(has_more) => {
                // A paused connection is not in `unread`, which would have it read without tokens.
                // `end_pauses` puts it there.
                if let Some(until) = connection.rates.pause(now, has_more) {
                    connection.paused_until = Some(until);
                    self.paused.insert((until, id));
                } else if has_more {
                    self.read_soon(id);
                }
                self.settle(id);
            }
            Err(reason) => self.end(id, reason, now, sink),
        }
    }

    /// Ends a connection, and reports it.
    fn end(
        &mut self,
        id: ConnectionId,
        reason: CloseReason,
        now: Instant,
        sink: &mut dyn FnMut(ControlEvent),
    ) {
        let Some(mut connection) = self.remove(id) else { return };
        // Each newcomer is told, the user only from time to time: strangers can do this thousands
        // of times a second.
        if let CloseReason::OverBudget { exceeded, .. } = reason {
            connection.refuse(&exceeded);
            self.refused.add(id, connection, &self.poller);
            if !self.reports.is_due(exceeded, now) {
                return;
            }
        } else if reason.is_refusal() {
            // A refused peer has to receive the preamble or the alert, which an immediate close
            // could discard.
            self.refused.add(id, connection, &self.poller);
        }
        sink(ControlEvent::Closed(id, reason));
    }

    /// Ends a handshake to make room for another one.
    fn evict(
        &mut self,
        id: ConnectionId,
        exceeded: Exceeded,
        now: Instant,
        sink: &mut dyn FnMut(ControlEvent),
    ) {
        // An entry without a connection must go, too: `begin_accepted` asks for the oldest until
        // there is no excess, and would not end.
        let Some(mut connection) = self.remove(id) else { return self.handshakes.end(id) };
        let reason = CloseReason::OverBudget { peer: connection.peer, exceeded };
        // It keeps no descriptor while it is told: a stranger that says nothing gets all of it.
        connection.refuse(&exceeded);
        connection.flush();
        drop(connection);
        if self.reports.is_due(exceeded, now) {
            sink(ControlEvent::Closed(id, reason));
        }
    }

    /// Accepts new connections of a listener.
    fn accept(&mut self, listener: usize, now: Instant, sink: &mut dyn FnMut(ControlEvent)) {
        self.spare.restore();
        // Others wait in the queue of the kernel, for which the poller reports the listener again.
        for _ in 0..ACCEPTED_MAX {
            match self.listeners[listener].accept() {
                Ok(Some((stream, peer))) => {
                    self.listeners[listener].is_fine();
                    self.begin_accepted(stream, peer, now, sink);
                }
                Ok(None) => return,
                // It is returned even if no connection waits.
                Err(errno @ (Errno::MFILE | Errno::NFILE)) if self.spare.give_up() => {
                    // This takes the place that the spare descriptor has left. Another thread may
                    // be faster.
                    let accepted = self.listeners[listener].accept();
                    let is_one = matches!(accepted, Ok(Some(_)));
                    if let Ok(Some((stream, peer))) = accepted {
                        self.accept_without_descriptors(listener, errno, (stream, peer), now, sink);
                    }
                    self.spare.restore();
                    if !is_one {
                        return;
                    }
                }
                Err(errno) => {
                    // The listener is level-triggered: without a pause it would end every sleep.
                    let listener = &mut self.listeners[listener];
                    listener.pause(now, &self.poller);
                    return listener.trouble(errno).into_iter().for_each(sink);
                }
            }
        }
    }

    /// Lets a newcomer have the descriptor of the oldest stranger, or else refuses it.
    fn accept_without_descriptors(
        &mut self,
        listener: usize,
        errno: Errno,
        (stream, peer): (TcpStream, SocketAddr),
        now: Instant,
        sink: &mut dyn FnMut(ControlEvent),
    ) {
        // Not before the newcomer is accepted: the error alone does not tell that anybody waits,
        // and a stranger would end for nobody.
        if let Some(oldest) = self.handshakes.oldest(now) {
            self.evict(oldest, Exceeded::Descriptors, now, sink);
            return self.begin_accepted(stream, peer, now, sink);
        }
        listener::refuse(stream, &self.refusal);
        self.listeners[listener].trouble(errno).into_iter().for_each(sink);
    }

    /// Starts serving a connection that the peer has initiated.
    fn begin_accepted(
        &mut self,
        stream: TcpStream,
        peer: SocketAddr,
        now: Instant,
        sink: &mut dyn FnMut(ControlEvent),
    ) {
        // rustls could not create a session. Dropping the stream closes the connection.
        let Some(record_layer) = self.record_layer_of_accepted() else { return };
        let id = ConnectionId(self.next_token());
        if self.poller.add(id.token(), &stream, Interest::READING).is_err() {
            // The kernel has no memory for it. Dropping the stream closes the connection.
            return;
        }
        let rates = Rates::new(&self.budgets, now);
        let connection = Connection::accepted(stream, peer, record_layer, rates);
        let (address, timeout) = (connection.address(), self.handshake_timeouts.0);
        self.begin(id, connection);
        self.handshakes.begin_accepted(id, address, timeout, now);
        // There may be several: all of an address that have had their time end at once.
        while let Some((oldest, exceeded)) = self.handshakes.excess(address, now) {
            self.evict(oldest, exceeded, now, sink);
        }
    }

    /// Returns the record layer of an accepted connection; `None` if no TLS session can be created.
    fn record_layer_of_accepted(&self) -> Option<RecordLayer> {
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            return tls
                .accepting()
                .ok()
                .map(|connection| RecordLayer::Tls(Box::new(Session::new(connection))));
        }
        Some(RecordLayer::Plain)
    }

    /// Starts serving an established connection.
    fn begin(&mut self, id: ConnectionId, mut connection: Connection) {
        // The preamble goes out unasked: if each side waited for that of the other, neither would
        // begin.
        connection.flush();
        // A TLS session that was driven elsewhere may hold bytes, of which the poller knows
        // nothing.
        let has_more = connection.has_something_left();
        self.connections.insert(id, connection);
        if has_more {
            self.read_soon(id);
        }
        self.settle(id);
    }

    /// Registers with the poller what this connection waits for, and queues it for reading if a
    /// write has failed.
    fn settle(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let is_reading = connection.paused_until.is_none();
        // Only then: a socket with nothing to write is writable all the time, and would end every
        // sleep.
        let is_writing = connection.is_connecting() || connection.unwritten() > 0;
        connection.watch(id, Interest { is_reading, is_writing }, &self.poller);
        connection.count(&mut self.unwritten);
        // What the peer has sent before is still delivered. The read that finds no more reports the
        // error.
        if connection.has_failed_writing() && is_reading {
            self.read_soon(id);
        }
    }

    /// Queues a connection for reading without the poller.
    fn read_soon(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connections.get_mut(&id)
            && !std::mem::replace(&mut connection.is_in_unread, true)
        {
            self.unread.push_back(id);
        }
    }

    /// Reads the connections again that have tokens again.
    fn end_pauses(&mut self, now: Instant) {
        while let Some((until, id)) = self.paused.first().copied()
            && until <= now
        {
            self.paused.pop_first();
            if let Some(connection) = self.connections.get_mut(&id) {
                connection.paused_until = None;
                // Frames may be left in its decoder, which the poller does not report.
                self.read_soon(id);
                self.settle(id);
            }
        }
    }

    /// Handles deadlines that have passed: lingering closes, pauses, and handshakes.
    fn do_what_is_due(&mut self, now: Instant) {
        self.lingering.expire(now);
        self.refused.expire(now);
        self.end_pauses(now);
        for listener in self.listeners.iter_mut().filter(|listener| listener.due().is_some()) {
            listener.try_again(now, &self.poller);
        }
        while let Some((id, after)) = self.handshakes.expired(now) {
            // Either arm removes the entry of `handshakes`. Otherwise the loop would not end.
            match self.remove(id) {
                Some(connection) => self
                    .pending_events
                    .push_back(ControlEvent::Closed(id, connection.handshake_timed_out(after))),
                None => self.handshakes.end(id),
            }
        }
    }
}

/// Returns the bytes for a newcomer for which no descriptor is left.
fn refusal() -> Vec<u8> {
    let mut bytes = wire::preamble().to_vec();
    // A frame with a short text is never too long.
    let _ = wire::encode(&Frame::Refused { reason: Exceeded::Descriptors.to_string() }, &mut bytes);
    bytes
}
