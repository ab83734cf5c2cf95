//! The driver: the machine with its sockets, its rails and its clock, driven by the leader.
//!
//! It connects the machine, which has no clock and no I/O, with the outside: control events and
//! completions go in; frames, work requests and results come out. Only [`Drive::sleep`]
//! waits for events.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

use farreach_dylib::{Attached, InCall};
use farreach_memory::Buffer;
use farreach_proto::error::{AtomicError, SendError};
use farreach_proto::machine::{
    Event, IdMap, Machine, NewAtomic, NewTransfer, OpId, Output, PeerChange, PeerKey, ShortTransfer,
    TransferFault,
};
use farreach_proto::stats::TransferStats;
use farreach_proto::time::Time;
use farreach_proto::wire::Frame;
use farreach_rail::{Carrier, Held, HeldList, TransferAnswer};

use crate::LostReason;
use crate::control::{CloseReason, ConnectionId, Control, ControlEvent, ControlStream, RecordLayer, Wakeup};
use crate::delivery::{Delivery, Waiter};
use crate::error::Error;
use crate::news::News;
use crate::progress::{Drive, oneshot, wake_all};
use crate::starts::Starts;
use crate::watch::{PeerCell, Watch};

/// How often sockets are polled while cards are busy. Each poll is a system call.
const LOOK_EVERY: Duration = Duration::from_micros(50);

/// While cards are busy, polls of sockets begin at an interval of this many times what the last one
/// took, with everything that came in: strangers that connect without a pause get a part of the time
/// at most. The interval is [`LONG_AGO`] at most.
const LOOK_SHARE: u32 = 8;

/// As [`LOOK_SHARE`], in a step that has found nothing on the cards, if others have within [`BUSY_FOR`].
/// Peers that send frames without a pause would otherwise get all of the time between two operations
/// of others, which then wait for a poll of the sockets at each of their steps.
const QUIET_LOOK_SHARE: u32 = 3;

/// How long cards count as busy after something has happened on them.
const BUSY_FOR: Duration = Duration::from_millis(1);

/// If sockets were not polled for this long, they are polled before timers are checked. A process
/// that did not run for a while has heard from no peer, but their frames wait in the sockets.
const LONG_AGO: Duration = Duration::from_millis(5);

/// The longest sleep while something is expected over a rail that cannot wake the engine.
const POLLED_SLEEP: Duration = Duration::from_millis(1);

/// The sleep while something is expected over such a rail and something has happened there within
/// [`LATELY`].
const POLLED_NAP: Duration = Duration::from_micros(20);
/// How recent the last event has to be for a [`POLLED_NAP`]. It is many times [`POLLED_SLEEP`]:
/// otherwise two sides that wait for each other's answers would both keep sleeping that long. It is
/// also longer than the time between two messages of a peer that has operations in flight.
const LATELY: Duration = Duration::from_millis(25);

/// Transfers that are performed one after the other between two steps.
const PERFORMED_MAX: u32 = 16;

/// The time in nanoseconds for which transfers are performed between two steps.
const PERFORM_FOR: u64 = 50_000;

/// A call with the driver and the current time in nanoseconds.
pub(crate) type Call = Box<dyn FnOnce(&mut Driver, Time) + Send>;

/// A request of a caller.
pub(crate) enum Command {
    Submit(NewTransfer, Held, oneshot::Sender<TransferAnswer>),
    /// Begins a prepared transfer, whose memory is registered.
    Start(NewTransfer, Arc<HeldList>, oneshot::Sender<TransferAnswer>, Arc<Starts>),
    Send(PeerKey, Vec<u8>, oneshot::Sender<Result<(), SendError>>),
    Taken(PeerKey, u32),
    Atomic(NewAtomic, oneshot::Sender<Result<u64, AtomicError>>),
    Abort(PeerKey, OpId),
    /// A caller waits for something that the peer does.
    Watch(PeerKey),
    /// Any rarely used request.
    Call(Call),
}

/// Peers that have been up and that the user has not accepted yet.
#[derive(Debug)]
pub(crate) struct AcceptBacklog {
    peers: Mutex<Waiting>,
    /// The limit of lost peers.
    lost_max: usize,
    /// The latest reason why a peer could not be accepted.
    trouble: Mutex<Option<(Instant, Error)>>,
    pub(crate) watch: Arc<Watch>,
}

/// Peers in the order in which they have connected.
#[derive(Debug, Default)]
struct Waiting {
    peers: BTreeMap<PeerKey, (SocketAddr, Arc<PeerCell>)>,
    /// Those that are lost. Some of them the user has accepted.
    lost: VecDeque<PeerKey>,
}

impl AcceptBacklog {
    /// Creates an empty backlog. The user can accept a peer that is lost, for the messages that it
    /// has sent, as long as there are not more than `lost_max` such peers.
    pub(crate) fn new(lost_max: usize) -> Self {
        Self { peers: Mutex::default(), lost_max, trouble: Mutex::default(), watch: Arc::default() }
    }

    /// Takes the reason why a peer could not be accepted, if it is at most this old and was not
    /// taken before.
    pub(crate) fn take_error(&self, lately: Duration) -> Option<Error> {
        let (at, error) = self.trouble.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        // An older one is dropped: it does not explain why this wait has found no peer.
        (at.elapsed() <= lately).then_some(error)
    }

    fn set_error(&self, trouble: Error) {
        // One is kept, and not a list: strangers that are refused again and again must take no
        // memory.
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), trouble));
    }

    /// Takes the first peer.
    pub(crate) fn take(&self) -> Option<(PeerKey, SocketAddr, Arc<PeerCell>)> {
        // Keys rise, so the first one is that of the peer that has connected first.
        let (key, (address, cell)) = self.lock().peers.pop_first()?;
        Some((key, address, cell))
    }

    pub(crate) fn has_one(&self) -> bool {
        !self.lock().peers.is_empty()
    }

    fn put(&self, key: PeerKey, address: SocketAddr, cell: Arc<PeerCell>) {
        self.lock().peers.insert(key, (address, cell));
    }

    /// Notes that a peer is lost. Without a limit, peers that come and go would take memory for as
    /// long as the user accepts none.
    fn lose(&self, key: PeerKey) {
        let mut waiting = self.lock();
        // A peer that was accepted, or that this side has connected to, takes no place here.
        if !waiting.peers.contains_key(&key) {
            return;
        }
        // The key stays when the user accepts the peer, because finding it would need a search. It
        // then counts for the limit until it is the oldest one.
        waiting.lost.push_back(key);
        if waiting.lost.len() > self.lost_max
            && let Some(oldest) = waiting.lost.pop_front()
        {
            waiting.peers.remove(&oldest);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The result of connecting.
pub(crate) type Connected = Result<(PeerKey, Arc<PeerCell>), Error>;

/// A connection in its handshake, made or adopted by this side.
struct Connecting {
    address: SocketAddr,
    /// Whether this side offers the links.
    is_initiator: bool,
    sender: oneshot::Sender<Connected>,
}

/// The machine, and everything that connects it with the outside.
pub(crate) struct Driver {
    pub(crate) machine: Machine,
    pub(crate) carrier: Carrier,
    pub(crate) delivery: Delivery,
    /// The C function that the leader is in, for other threads.
    pub(crate) in_call: Arc<InCall>,
    /// Wakers to run after the leader has stepped down.
    wakers: Vec<Waker>,
    control: Control,
    peers: IdMap<ConnectionId, PeerKey>,
    connections: IdMap<PeerKey, ConnectionId>,
    connecting: IdMap<ConnectionId, Connecting>,
    /// Peers that have connected and have not been up yet.
    arriving: IdMap<PeerKey, (SocketAddr, Arc<PeerCell>)>,
    backlog: Arc<AcceptBacklog>,
    start: Instant,
    /// When sockets were last polled, in nanoseconds since `start`.
    looked_at: Option<Time>,
    /// How long the last poll of the sockets took.
    look_took: Duration,
    /// When something has last happened on a rail, in nanoseconds since `start`.
    carried_at: Option<Time>,
    /// The watched descriptors of the rails, and the count of resets when they were registered.
    watched: Vec<OwnedFd>,
    watched_resets: u64,
    /// Whether a rail's descriptor has ended the last sleep. The library may have had work to do
    /// even if no event results.
    was_woken_by_rail: bool,
    events: Vec<ControlEvent>,
    /// The time of the last step, in nanoseconds since `start`, and the number of transfers performed
    /// since then.
    stepped_at: Time,
    performed: u32,
}

impl Driver {
    pub(crate) fn new(
        machine: Machine,
        mut carrier: Carrier,
        mut control: Control,
        backlog: Arc<AcceptBacklog>,
        news: Arc<News>,
    ) -> std::io::Result<Self> {
        let watched = watch(&mut carrier, &mut control)?;
        Ok(Self {
            machine,
            carrier,
            delivery: Delivery::new(news),
            in_call: Arc::default(),
            wakers: Vec::new(),
            control,
            watched,
            peers: IdMap::default(),
            connections: IdMap::default(),
            connecting: IdMap::default(),
            arriving: IdMap::default(),
            backlog,
            start: Instant::now(),
            looked_at: None,
            look_took: Duration::ZERO,
            carried_at: None,
            watched_resets: 0,
            was_woken_by_rail: false,
            events: Vec::new(),
            stepped_at: Time::ZERO,
            performed: 0,
        })
    }

    /// Registers the rails' descriptors again after a reset, which may have replaced them.
    fn watch_again(&mut self) {
        let resets = self.machine.resets();
        // Only a reset replaces descriptors. Registering them again takes system calls before each
        // sleep.
        if resets == self.watched_resets {
            return;
        }
        for fd in self.watched.drain(..) {
            // It fails for a descriptor that is not registered.
            let _ = self.control.unwatch(fd.as_fd());
        }
        // If descriptors have run out, this is tried again before the next sleep.
        if let Ok(watched) = watch(&mut self.carrier, &mut self.control) {
            (self.watched, self.watched_resets) = (watched, resets);
        }
    }

    /// Returns the bytes that are held for a peer, including those queued on its connection.
    pub(crate) fn peer_memory(&self, key: PeerKey) -> Option<usize> {
        let connection = self.connections.get(&key).and_then(|id| self.control.memory(*id));
        Some(self.machine.peer_memory(key)? + self.delivery.peer_memory(key) + connection.unwrap_or(0))
    }

    pub(crate) fn listen(&mut self, address: SocketAddr) -> std::io::Result<SocketAddr> {
        self.control.listen(address)
    }

    pub(crate) fn connect(
        &mut self,
        address: SocketAddr,
        record_layer: RecordLayer,
        sender: oneshot::Sender<Connected>,
    ) {
        // The wait was dropped while its name was being resolved. `abandon` has found no
        // connection, so nothing would end one that begins now.
        if sender.is_abandoned() {
            return;
        }
        let begun = self.control.connect(address, record_layer);
        self.await_peer(begun, Connecting { address, is_initiator: true, sender });
    }

    /// Takes over a stream that was connected elsewhere. `is_initiator` says whether this side
    /// offers the links.
    pub(crate) fn adopt(
        &mut self,
        stream: ControlStream,
        address: SocketAddr,
        is_initiator: bool,
        sender: oneshot::Sender<Connected>,
    ) {
        let begun = self.control.adopt(stream, address);
        self.await_peer(begun, Connecting { address, is_initiator, sender });
    }

    /// Ends a connection that nobody waits for any more, and leaves its peer.
    pub(crate) fn abandon(&mut self, receiver: &oneshot::Receiver<Connected>, now: Time) {
        if let Some(connected) = receiver.take() {
            // The peer exists, and nobody has taken a handle of it whose drop would end it.
            if let Ok(Ok((key, _))) = connected {
                self.machine.leave(key, now);
            }
            return;
        }
        // The caller does not know the id, which was chosen when its command was applied.
        let id = self.connecting.iter().find(|(_, it)| it.sender.is_for(receiver)).map(|(id, _)| *id);
        if let Some(id) = id {
            self.connecting.remove(&id);
            self.control.close(id);
        }
    }

    /// Ends all connections in their handshake that this side has made or adopted.
    pub(crate) fn abandon_all(&mut self) {
        let ids: Vec<_> = self.connecting.keys().copied().collect();
        for id in ids {
            if let Some(Connecting { sender, .. }) = self.connecting.remove(&id) {
                // A connection that is closed here reports no event, so the caller is answered now.
                self.control.close(id);
                self.answer(sender, Err(Error::ended()));
            }
        }
    }

    fn await_peer(&mut self, begun: std::io::Result<ConnectionId>, connecting: Connecting) {
        match begun {
            Ok(id) => drop(self.connecting.insert(id, connecting)),
            Err(error) => {
                // A peer that refuses is reported as an event. This is an error of this host: it
                // can make no socket, or cannot watch it.
                let (address, cause) = (connecting.address.to_string(), error.to_string());
                let fix = "raise the limit of open files (`ulimit -n`)".to_owned();
                self.answer(connecting.sender, Err(Error::connect(address, &cause, &fix)));
            }
        }
    }

    /// Returns the time from which the machine's time is counted.
    pub(crate) fn start(&self) -> Instant {
        self.start
    }

    fn now(&self) -> Time {
        since(self.start)
    }

    /// Performs a transfer of one page at once, if its rail can and nothing is queued before it.
    pub(crate) fn perform(&mut self, new: &ShortTransfer, buffer: &mut Buffer) -> Option<TransferStats> {
        let (start, mut now) = (self.start, Time::ZERO);
        // The carrier reads the clock before and after the operation. The last reading is kept, so
        // that the check below needs none.
        let clock = || {
            now = since(start);
            now
        };
        let stats = self.carrier.perform(&mut self.machine, new, buffer, clock)?;
        self.performed += 1;
        // Everything else has its turn as well.
        if self.performed >= PERFORMED_MAX || now >= self.stepped_at + PERFORM_FOR {
            self.step();
        }
        Some(stats)
    }

    /// Tells the machine how long the creation of an end of a link has taken.
    #[inline]
    fn note_opening(&mut self) {
        if self.machine.is_opening() {
            self.machine.end_opening(self.now());
        }
    }

    /// Handles events of the sockets. Returns whether there was anything besides pings.
    fn look(&mut self, now: Time) -> bool {
        let begin = Instant::now();
        // Events are handled after the poll, because a handler sends and closes, which needs
        // `control`. The vector is put back, so that a poll allocates nothing.
        let mut events = std::mem::take(&mut self.events);
        // Errors of a socket are reported as events; polling the epoll itself does not fail.
        let _ = self
            .control
            .poll(self.start + Duration::from_nanos(now.to_nanos()), &mut |event| events.push(event));
        // A ping alone must not make a leader spin that would sleep otherwise.
        let happened = !events.iter().all(is_ping);
        if events.iter().any(|event| self.ends_peer(event)) {
            // What such peers have sent over rails before is there, and must be counted first.
            self.carrier.catch_up(&mut self.machine, now);
        }
        for event in events.drain(..) {
            self.on_control(event, now);
        }
        self.events = events;
        self.look_took = begin.elapsed();
        happened
    }

    /// Returns `true` if a peer is lost with this event.
    fn ends_peer(&self, event: &ControlEvent) -> bool {
        match event {
            ControlEvent::Frame(_, frame) => matches!(frame, Frame::Goodbye),
            ControlEvent::Closed(id, _) => self.peers.contains_key(id),
            _ => false,
        }
    }

    fn on_control(&mut self, event: ControlEvent, now: Time) {
        match event {
            ControlEvent::Accepted(id, address) => {
                let (key, cell) = self.add_peer(false, now);
                self.introduce(id, key, &cell);
                // The user gets the peer when a link to it is ready. It may never be.
                self.arriving.insert(key, (address, cell));
            }
            ControlEvent::Connected(id) => {
                let Some(connecting) = self.connecting.remove(&id) else { return };
                let (key, cell) = self.add_peer(connecting.is_initiator, now);
                self.introduce(id, key, &cell);
                self.answer(connecting.sender, Ok((key, cell)));
            }
            ControlEvent::Frame(id, frame) => {
                if let Some(key) = self.peers.get(&id) {
                    self.machine.handle_frame(*key, frame, now);
                }
            }
            ControlEvent::Closed(id, reason) => self.on_closed(id, &reason, now),
            ControlEvent::CannotAccept { local, cause, fix } => {
                let (whom, fix) = (format!("at {local}"), fix.to_owned());
                self.backlog.set_error(Error::accept(whom, &cause, &fix));
            }
        }
    }

    fn on_closed(&mut self, id: ConnectionId, reason: &CloseReason, now: Time) {
        let (cause, fix) = (reason.cause(), reason.fix());
        if let Some(Connecting { address, sender, .. }) = self.connecting.remove(&id) {
            // There is no peer yet, so the machine need not be told.
            let failed = Error::connect(address, &cause, &fix);
            return self.answer(sender, Err(failed));
        }
        // The engine goes on to listen. A wait for a peer that times out reports the refusal.
        if reason.is_refusal() {
            self.backlog.set_error(Error::accept(format_args!("from {}", reason.peer()), &cause, &fix));
        }
        if let Some(key) = self.peers.remove(&id) {
            self.connections.remove(&key);
            let (cause, fix) = (reason.to_string(), reason.fix());
            self.machine.handle_disconnected(key, LostReason::Disconnected { cause, fix }, now);
        }
    }

    /// Sends a caller its result.
    pub(crate) fn answer<T>(&mut self, sender: oneshot::Sender<T>, answer: T) {
        sender.send(answer, &mut self.wakers);
    }

    fn add_peer(&mut self, is_initiator: bool, now: Time) -> (PeerKey, Arc<PeerCell>) {
        let key = self.machine.add_peer(is_initiator, now);
        (key, self.delivery.add_peer(key))
    }

    fn introduce(&mut self, id: ConnectionId, key: PeerKey, cell: &PeerCell) {
        let names = self.control.certificate_names(id);
        cell.set_certificate_names(names.clone());
        // Before the first frame of the peer is handled: it may ask to open memory that is
        // published for names.
        self.machine.set_certificate_names(key, names);
        self.peers.insert(id, key);
        self.connections.insert(key, id);
    }

    /// Sends the machine's frames, and closes connections.
    fn send_outputs(&mut self) {
        while let Some(output) = self.machine.poll_output() {
            match output {
                Output::Frame(key, frame) => {
                    // The connection may have ended after the machine has queued the frame, in the
                    // same poll.
                    if let Some(id) = self.connections.get(&key) {
                        // A failed write is reported as an event. `send` itself fails only for a
                        // frame that is too long, which is dropped.
                        let _ = self.control.send(*id, &frame);
                    }
                }
                Output::Close(key) => {
                    if let Some(id) = self.connections.remove(&key) {
                        self.peers.remove(&id);
                        self.control.close(id);
                    }
                }
            }
        }
        // Frames are written together. Otherwise a peer could cause a system call with each of its
        // own.
        self.control.flush();
    }

    /// Sends the machine's frames, closes connections, and delivers its events.
    fn flush(&mut self) {
        self.send_outputs();
        while let Some(event) = self.machine.poll_event() {
            // A watch lasts for one heartbeat interval, and is renewed as long as a caller waits
            // for the peer.
            if let Event::Peer(key, PeerChange::Unwatched) = event
                && self.delivery.end_watch(key)
            {
                self.machine.watch(key, self.now());
            }
            // A caller that waits for the counter already waits for this peer, too, from now on.
            if let Event::CounterJoined { shared, peer, counter } = event
                && self.delivery.join_counter(shared, peer, counter, &mut self.wakers)
            {
                self.machine.watch(peer, self.now());
            }
            let arrival = Arrival::of(&event);
            // Before the backlog has the peer: one that is accepted must be up by its cell.
            self.delivery.deliver(event, &mut self.carrier, &mut self.wakers);
            if let Some(arrival) = arrival {
                self.on_arrival(arrival);
            }
        }
    }

    /// Moves a peer that has come up to the backlog, or forgets one that is lost.
    fn on_arrival(&mut self, arrival: Arrival) {
        match arrival {
            Arrival::Up(key) => {
                // Nothing is found for a peer that this side has connected to, and for later
                // changes of links.
                if let Some((address, cell)) = self.arriving.remove(&key) {
                    self.backlog.put(key, address, cell);
                    self.backlog.watch.notify(&mut self.wakers);
                }
            }
            Arrival::Lost(key) => {
                // A peer that was never up is not in the backlog.
                if self.arriving.remove(&key).is_none() {
                    self.backlog.lose(key);
                }
            }
        }
    }
}

/// Returns the time of a clock that began at `start`.
#[inline]
fn since(start: Instant) -> Time {
    // 64 bits are enough for 584 years.
    Time::from_nanos(start.elapsed().as_nanos() as u64)
}

/// Returns the interval at which sockets are polled. `took`: how long the last poll has taken.
/// `is_busy`: something has happened in this step. `is_busy_lately`: cards were busy within
/// [`BUSY_FOR`].
fn look_every(took: Duration, is_busy: bool, is_busy_lately: bool) -> Duration {
    match (is_busy, is_busy_lately) {
        (true, _) => LOOK_EVERY.max(took * LOOK_SHARE),
        (false, true) => (LOOK_EVERY / 4).max(took * QUIET_LOOK_SHARE),
        // Not at each turn of a spin either.
        (false, false) => LOOK_EVERY / 4,
    }
}

fn is_ping(event: &ControlEvent) -> bool {
    matches!(event, ControlEvent::Frame(_, Frame::Ping { .. } | Frame::Pong { .. }))
}

/// An event that changes whether a peer can be accepted.
enum Arrival {
    Up(PeerKey),
    Lost(PeerKey),
}

impl Arrival {
    fn of(event: &Event) -> Option<Self> {
        match event {
            Event::Peer(key, PeerChange::Rails(rails)) if !rails.is_empty() => Some(Self::Up(*key)),
            Event::Peer(key, PeerChange::Lost(_)) => Some(Self::Lost(*key)),
            _ => None,
        }
    }
}

/// Lets the rails' descriptors end sleeps. It registers duplicates, which can be unregistered even
/// after a rail has closed its own.
fn watch(carrier: &mut Carrier, control: &mut Control) -> std::io::Result<Vec<OwnedFd>> {
    let mut watched = Vec::new();
    for rail in carrier.rails_mut() {
        if let Some(fd) = rail.wait_fd() {
            let fd = fd.try_clone_to_owned()?;
            control.watch(fd.as_fd())?;
            watched.push(fd);
        }
    }
    Ok(watched)
}

impl Drop for Driver {
    fn drop(&mut self) {
        // After a panic, tasks wait for newcomers, and find that the engine has ended.
        let mut wakers = Vec::new();
        self.backlog.watch.notify(&mut wakers);
        wake_all(wakers);
        // A confirmation may wait for an answer that carries it, and there will be none. Its peer has
        // sent a message that has arrived, and would be told that it is lost.
        if !std::thread::panicking() {
            self.machine.confirm_all();
            self.send_outputs();
        }
    }
}

impl Drive for Driver {
    type Command = Command;
    type Wakeup = Wakeup;
    type Leading = Attached;

    fn wakeup(&self) -> Wakeup {
        self.control.wakeup()
    }

    fn apply(&mut self, command: Command) {
        let now = self.now();
        // Otherwise the calls of rails below would be stamped with the time of the last step, and
        // would look hung after a long sleep.
        self.carrier.set_time(now);
        match command {
            Command::Submit(new, held, sender) => {
                self.delivery.wait_by_name(new.op, Waiter::Transfer(sender));
                self.carrier.hold(new.op, held);
                self.machine.submit(new, now);
            }
            Command::Start(new, held, sender, starts) => {
                self.delivery.wait_by_name(new.op, Waiter::Started(sender, starts));
                self.carrier.hold(new.op, Held::List(held));
                self.machine.submit(new, now);
            }
            Command::Send(key, bytes, sender) => {
                let op = self.delivery.wait_for(Waiter::Sent(sender));
                self.machine.send_message(op, key, bytes, now);
            }
            Command::Taken(key, count) => self.machine.taken(key, count, now),
            Command::Atomic(new, sender) => {
                self.delivery.wait_by_name(new.op, Waiter::Atomic(sender));
                self.machine.change_atomic(new, now);
            }
            Command::Abort(key, op) => self.machine.abort_op(key, op, &TransferFault::Aborted, now),
            Command::Watch(key) => self.machine.watch(key, now),
            Command::Call(call) => call(self, now),
        }
        // Frames and answers follow at the end of the next step, which comes at once.
        self.carrier.carry(&mut self.machine);
        self.note_opening();
    }

    fn step(&mut self) -> bool {
        let now = self.now();
        (self.stepped_at, self.performed) = (now, 0);
        let is_due = |at: Option<Time>, every: Duration| {
            at.is_none_or(|at| now.saturating_since(at) >= every.as_nanos() as u64)
        };
        let mut happened = false;
        // Before the step of the rails, which runs the timers: a peer whose frames wait in a socket
        // is not silent.
        if is_due(self.looked_at, LONG_AGO) {
            self.looked_at = Some(now);
            happened |= self.look(now);
        }
        // `|` and not `||`: the flag must be taken in any case, or it would count for a later step.
        let has_carried =
            self.carrier.step(&mut self.machine, now) | std::mem::take(&mut self.was_woken_by_rail);
        if has_carried {
            self.carried_at = Some(now);
        }
        happened |= has_carried;
        self.note_opening();
        let is_busy_lately = !is_due(self.carried_at, BUSY_FOR);
        let look_every = look_every(self.look_took, happened, is_busy_lately);
        let mut answering = None;
        if is_due(self.looked_at, look_every) {
            self.looked_at = Some(now);
            // If rails have moved, frames below may be theirs, and cannot be billed to the poll.
            let is_of_rails = happened;
            let looked = self.look(now);
            // The answers to frames are written below. They are a part of what the poll has cost.
            answering = (looked && !is_of_rails).then(Instant::now);
            happened |= looked;
        }
        self.flush();
        if let Some(begin) = answering {
            self.look_took += begin.elapsed();
        }
        // Ends of links that rest for the sake of other peers may be created earlier now.
        if !happened {
            self.machine.note_idle();
        }
        happened
    }

    fn is_busy(&self) -> bool {
        self.machine.has_in_flight()
    }

    fn sleep(&mut self, until: Instant) {
        // A rail that was reset may be silent on the descriptor that it had before.
        self.watch_again();
        // What rails hold back would wait for all of the sleep, because no poll posts it meanwhile.
        self.carrier.flush();
        // The sum does not overflow: the largest number stands for 584 years.
        let mut until = until.min(self.start + Duration::from_nanos(self.machine.poll_timeout().to_nanos()));
        match self.machine.quiet_for(self.now()) {
            // The kernel's timers are too coarse for a sleep this short that can be ended, and it
            // is over soon in any case.
            Some(quiet) if quiet < LATELY => return std::thread::sleep(POLLED_NAP),
            Some(_) => until = until.min(Instant::now() + POLLED_SLEEP),
            None => {}
        }
        for rail in 0..self.carrier.rail_count() {
            match self.carrier.may_sleep(rail) {
                Ok(true) => {}
                // Something came after the last poll. The next step finds it.
                Ok(false) => return,
                // Its descriptor may stay silent, so the rail is polled instead.
                Err(_) => until = until.min(Instant::now() + POLLED_SLEEP),
            }
        }
        // A failed sleep counts as a short one.
        let slept = self.control.sleep(Some(until.saturating_duration_since(Instant::now())));
        self.was_woken_by_rail = slept.unwrap_or(false);
        // A socket may have ended the sleep, so the next step polls them first.
        self.looked_at = None;
    }

    fn wakers(&mut self) -> &mut Vec<Waker> {
        &mut self.wakers
    }

    fn lead(&self) -> Attached {
        self.in_call.attach()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn sockets_get_a_part_of_the_time_while_cards_are_busy() {
        let us = Duration::from_micros;
        let short = us(1);
        assert_eq!(look_every(short, true, true), LOOK_EVERY);
        assert_eq!(look_every(short, false, true), LOOK_EVERY / 4, "a short poll costs nothing");
        assert_eq!(look_every(us(100), true, true), us(800));
        assert_eq!(look_every(us(100), true, false), us(800), "frames that have just come in");
        assert_eq!(look_every(us(100), false, true), us(300), "between two operations");
        assert_eq!(look_every(us(100), false, false), LOOK_EVERY / 4, "nobody else waits");
    }
}
