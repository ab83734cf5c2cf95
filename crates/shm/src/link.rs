//! One end of a link to a process of the same host.

mod perform;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use farreach_memory::{Backing, Buffer, Buffers, Exposed, FileAccess, process_epoch};
use rustix::event::{Timespec, epoll};

use crate::copy::copy;
use crate::error::{GrantError, LinkError, OperationError, PostError};
use crate::event::Event;
use crate::grants::{Key, OwnGrants, RevokedGrant};
use crate::map::Access;
use crate::operation::{Change, Cursor, Direction, Operation, Request, STEP, Step, Target, View, Work};
use crate::process::Process;
use crate::remote::RemoteKeys;
use crate::ring::{Consumer, Nonsense, Producer};
use crate::segment::{GENERATIONS, Segment, Side};
use crate::sleep;
use crate::socket::{Receive, Socket};
use crate::wire::Packet;
use crate::words::Words;

/// The operations that a link may have in flight.
const OPERATIONS_MAX: usize = 256;
/// Ring entries that one poll takes.
const ENTRIES_PER_POLL: usize = 32;
/// Packets that one poll receives. Each is a system call, and may map memory.
const PACKETS_PER_POLL: usize = 8;
/// Polls between two looks at the socket and the process of the peer. Each is a system call.
const POLLS_PER_LOOK: u32 = 1024;

const IMMEDIATE: u8 = 1;
const MESSAGE: u8 = 2;

/// Packets that may wait for room. A peer that receives none for long still gets a grant, its end, and an
/// answer for each place of a grant.
const OUTGOING_MAX: usize = 3 * GENERATIONS;

const OF_SOCKET: u64 = 1;
const OF_PROCESS: u64 = 2;

/// One end of a link to another process of this host and user.
///
/// Operations on the peer's memory are done by the thread that posts or polls: a write is a copy to
/// memory that this process has mapped. The peer's processor takes no part.
///
/// No method blocks. [`poll`](Self::poll) reports events; to sleep, ask
/// [`may_sleep`](Self::may_sleep) first, and wait until the descriptor ([`AsFd`]) is readable.
///
/// Before a link is dropped, its grants should have ended: the memory of grants whose end is not
/// proven is leaked.
///
/// ```
/// use std::time::{Duration, Instant};
/// use farreach_memory::Memory;
/// use farreach_shm::{Access, Connecting, Event, Expected, Link, Listener, Request, Target};
///
/// // Both ends are in one process here. The names and nonces go over a channel of the caller.
/// let mut listener = Listener::bind(Duration::from_secs(10))?;
/// listener.expect(Expected { id: 1, theirs: [1; 32], ours: [2; 32] });
/// let mut connecting = Connecting::new(listener.name(), [1; 32], [2; 32])?;
/// let (mut client, mut server): (Option<Link>, Option<Link>) = (None, None);
/// while client.is_none() || server.is_none() {
///     client = client.or(connecting.poll()?);
///     server = server.or(listener.poll(Instant::now())?.map(|met| met.link));
/// }
/// let (mut client, mut server) = (client.unwrap(), server.unwrap());
///
/// let memory = Memory::allocate(4096)?.expose();
/// let key = server.grant(&memory, Access::ReadWrite)?;
/// let mut source = Memory::allocate(5)?;
/// source.copy_from_slice(b"hello");
/// let targets = [Target { key, offset: 10, len: 5 }];
/// client.post(7, Request::Write { targets: &targets, immediate: Some(42) }, source.into()).unwrap();
///
/// let (mut is_complete, mut counted) = (false, None);
/// while !is_complete || counted.is_none() {
///     client.poll(|event| is_complete |= matches!(event, Event::Completed { tag: 7, outcome: Ok(()), .. }));
///     server.poll(|event| if let Event::Immediate(bits) = event { counted = Some(bits) });
/// }
/// assert_eq!((counted, &memory.to_vec()[10..15]), (Some(42), &b"hello"[..]));
///
/// server.revoke(key);
/// while memory.keys() > 0 {
///     client.poll(|_| {});
///     server.poll(|_| {});
/// }
/// assert!(memory.try_into_slice().is_ok());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Link {
    side: Side,
    segment: Arc<Segment>,
    producer: Producer<Arc<Segment>>,
    consumer: Consumer<Arc<Segment>>,
    /// Wakes each side, too. After the end of the link, its end tells that the peer's link has ended.
    socket: Option<Socket>,
    epoll: OwnedFd,
    process: Process,
    grants: OwnGrants,
    keys: RemoteKeys,
    operations: VecDeque<Operation>,
    completions: VecDeque<Completion>,
    /// Packets that the socket had no room for.
    outgoing: VecDeque<(Packet, Option<Backing>)>,
    ended_grants: Vec<u64>,
    /// The packets that the peer has counted, as far as they were received.
    control_seen: u64,
    control_sent: u64,
    entry: Vec<u8>,
    polls: u32,
    is_asleep: bool,
    /// Whether every queued operation waits for a key that has not arrived.
    only_waits: bool,
    /// Whether the next poll looks at the socket.
    must_look: bool,
    /// Whether `epoll` reports that the socket has room.
    awaits_socket: bool,
    epoch: u64,
    state: State,
}

#[derive(Debug)]
struct Completion {
    tag: u64,
    buffers: Buffers,
    outcome: Result<(), OperationError>,
}

#[derive(Debug)]
enum State {
    Up,
    /// It has ended. `is_told` after the event.
    Down {
        reason: LinkError,
        is_told: bool,
        is_proven: bool,
    },
}

/// What a meeting has established.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) side: Side,
    pub(crate) segment: Segment,
    pub(crate) socket: Socket,
    pub(crate) process: Process,
}

impl Link {
    pub(crate) fn new(parts: Parts) -> io::Result<Self> {
        let Parts { side, segment, socket, process } = parts;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for (fd, name) in [(socket.as_fd(), OF_SOCKET), (process.as_fd(), OF_PROCESS)] {
            epoll::add(&epoll, fd, epoll::EventData::new_u64(name), epoll::EventFlags::IN)?;
        }
        let segment = Arc::new(segment);
        Ok(Self {
            side,
            producer: Producer::new(Arc::clone(&segment), side.ring()),
            consumer: Consumer::new(Arc::clone(&segment), side.other().ring()),
            grants: OwnGrants::new(Arc::clone(&segment), side),
            // Of the process that has mapped the segment: a meeting may go on in a forked child.
            epoch: segment.epoch(),
            segment,
            socket: Some(socket),
            epoll,
            process,
            keys: RemoteKeys::default(),
            operations: VecDeque::new(),
            completions: VecDeque::new(),
            outgoing: VecDeque::new(),
            ended_grants: Vec::new(),
            control_seen: 0,
            control_sent: 0,
            entry: Vec::new(),
            polls: 0,
            is_asleep: false,
            only_waits: false,
            must_look: false,
            awaits_socket: false,
            state: State::Up,
        })
    }

    /// Returns the process of the peer.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Returns the maximum length of a message in bytes.
    pub fn message_max(&self) -> usize {
        self.side.ring().len_max()
    }

    /// Returns the number of operations that were posted and not reported as complete.
    pub fn in_flight(&self) -> usize {
        self.operations.len() + self.completions.len()
    }

    /// Returns the reason for which the link has ended, if it has.
    pub fn down(&self) -> Option<&LinkError> {
        match &self.state {
            State::Up => None,
            State::Down { reason, .. } => Some(reason),
        }
    }

    fn check(&self) -> Result<(), LinkError> {
        match &self.state {
            State::Up if self.epoch == process_epoch() => Ok(()),
            State::Up => Err(LinkError::Forked),
            State::Down { reason, .. } => Err(reason.clone()),
        }
    }

    /// Posts a work request. `tag` comes back with its completion. If it is refused, the buffers are
    /// returned.
    ///
    /// A short operation is done by this call, if none is queued before it.
    #[inline]
    pub fn post(
        &mut self,
        tag: u64,
        request: Request<'_>,
        buffers: Buffers,
    ) -> Result<(), (PostError, Buffers)> {
        if let Err(error) = self.check_post(&request, &buffers) {
            return Err((error, buffers));
        }
        let work = match request {
            Request::Write { targets, immediate } => (Direction::Write, targets, immediate),
            Request::Read { targets } => (Direction::Read, targets, None),
            Request::Send => return self.queue(tag, buffers, Work::Send),
            Request::FetchAdd { target, add } => {
                return self.queue(tag, buffers, Work::Change { target, change: Change::Add(add) });
            }
            Request::CompareSwap { target, expected, desired } => {
                let change = Change::Swap { expected, desired };
                return self.queue(tag, buffers, Work::Change { target, change });
            }
        };
        let (direction, targets, immediate) = work;
        let mut cursor = Cursor::default();
        let mut is_copied = false;
        if self.operations.is_empty() {
            let view = View { keys: &self.keys, segment: &self.segment, peer: self.side.other() };
            let step = view.copy(direction, targets, buffers.as_slice(), &mut cursor, STEP);
            is_copied = matches!(step, Ok(Step::Done));
            let outcome = match step {
                Ok(Step::Done) => self.count(targets, immediate),
                Ok(Step::More) => Ok(false),
                Err(error) => Err(error),
            };
            match outcome {
                Ok(false) => {}
                Err(OperationError::UnknownKey { .. }) => cursor = Cursor::default(),
                Err(OperationError::NotMapped(_)) if self.map_again(targets) => cursor = Cursor::default(),
                Ok(true) => {
                    self.completions.push_back(Completion { tag, buffers, outcome: Ok(()) });
                    return Ok(());
                }
                Err(error) => {
                    self.completions.push_back(Completion { tag, buffers, outcome: Err(error) });
                    return Ok(());
                }
            }
        }
        let targets = targets.to_vec();
        let work = Work::Copy { direction, targets, immediate, cursor, is_copied };
        self.operations.push_back(Operation { tag, buffers, work });
        self.only_waits = false;
        Ok(())
    }

    #[inline]
    fn check_post(&self, request: &Request<'_>, buffers: &Buffers) -> Result<(), PostError> {
        self.check().map_err(PostError::Link)?;
        if self.in_flight() >= OPERATIONS_MAX {
            return Err(PostError::Full { max: OPERATIONS_MAX });
        }
        let len = buffers.len();
        let must_be_writable = match request {
            Request::Write { targets, .. } | Request::Read { targets } => {
                let sum = targets.iter().try_fold(0_u64, |sum, target| sum.checked_add(target.len));
                if sum != Some(len as u64) || targets.is_empty() {
                    let targets = sum.unwrap_or(u64::MAX);
                    return Err(PostError::LengthsDiffer { buffers: len as u64, targets });
                }
                matches!(request, Request::Read { .. })
            }
            Request::Send if len > self.message_max() => {
                return Err(PostError::MessageTooLong { len, max: self.message_max() });
            }
            Request::Send => false,
            Request::FetchAdd { target, .. } | Request::CompareSwap { target, .. } => {
                if len != 8 || target.len != 8 || buffers.count() != 1 {
                    return Err(PostError::LengthsDiffer { buffers: len as u64, targets: target.len });
                }
                true
            }
        };
        if must_be_writable && !buffers.are_writable() {
            return Err(PostError::NotWritable);
        }
        Ok(())
    }

    fn queue(&mut self, tag: u64, buffers: Buffers, work: Work) -> Result<(), (PostError, Buffers)> {
        let is_first = self.operations.is_empty();
        self.operations.push_back(Operation { tag, buffers, work });
        if is_first {
            self.work(STEP);
        }
        Ok(())
    }

    /// Passes the immediate of a copy that is complete. Returns `false` if the ring has no room.
    #[inline]
    fn count(&mut self, targets: &[Target], immediate: Option<u32>) -> Result<bool, OperationError> {
        let Some(bits) = immediate else { return Ok(true) };
        let view = View { keys: &self.keys, segment: &self.segment, peer: self.side.other() };
        view.check_generations(targets)?;
        self.push(IMMEDIATE, &bits.to_le_bytes())
    }

    /// Appends an entry to the ring, and wakes the peer if it sleeps.
    #[inline]
    fn push(&mut self, kind: u8, bytes: &[u8]) -> Result<bool, OperationError> {
        match self.producer.push(kind, bytes) {
            Ok(true) => {
                self.wake(sleep::FOR_ENTRIES);
                Ok(true)
            }
            Ok(false) => Ok(false),
            Err(nonsense) => {
                self.go_down(nonsense.into());
                Err(OperationError::Link(nonsense.into()))
            }
        }
    }

    #[inline]
    fn wake(&mut self, reasons: u64) {
        if sleep::must_wake(&*self.segment, self.side.other().sleep_at(), reasons) {
            self.signal_peer();
        }
    }

    /// Wakes the peer by a packet, not by an eventfd: the peer could let a write to that block, because
    /// both sides have the same file open.
    #[cold]
    fn signal_peer(&mut self) {
        let Some(socket) = &self.socket else { return };
        if socket.wake(&Packet::Wake.to_bytes()).is_err() {
            // The next poll looks at what the peer has sent, tries again, and ends the link otherwise.
            self.outgoing.push_back((Packet::Wake, None));
            self.must_look = true;
        }
    }

    /// Does queued operations, at most `budget` bytes, and each at most once.
    fn work(&mut self, mut budget: usize) {
        self.only_waits = false;
        let mut waiting = 0;
        for _ in 0..self.operations.len() {
            if budget == 0 || !matches!(self.state, State::Up) {
                return;
            }
            let Some(mut operation) = self.operations.pop_front() else { return };
            match self.advance(&mut operation, &mut budget) {
                Advance::Done(outcome) => {
                    let Operation { tag, buffers, .. } = operation;
                    self.completions.push_back(Completion { tag, buffers, outcome });
                }
                Advance::More => self.operations.push_back(operation),
                Advance::Waits => {
                    waiting += 1;
                    self.operations.push_back(operation);
                }
                // Entries stay in order.
                Advance::NoRoom => {
                    self.operations.push_front(operation);
                    return;
                }
            }
        }
        self.only_waits = waiting > 0 && waiting == self.operations.len();
    }

    fn advance(&mut self, operation: &mut Operation, budget: &mut usize) -> Advance {
        let Operation { buffers, work, .. } = operation;
        let peer = self.side.other();
        let entry = match work {
            Work::Copy { direction, targets, immediate, cursor, is_copied } => {
                let view = View { keys: &self.keys, segment: &self.segment, peer };
                if !*is_copied {
                    let step = (*budget).min(STEP);
                    *budget -= step;
                    match view.copy(*direction, targets, buffers.as_slice(), cursor, step) {
                        Ok(Step::Done) => *is_copied = true,
                        Ok(Step::More) => return Advance::More,
                        Err(OperationError::NotMapped(_)) if self.map_again(targets) => return Advance::More,
                        Err(error) => return self.failed(error),
                    }
                }
                self.count(targets, *immediate)
            }
            Work::Send => {
                *budget = budget.saturating_sub(buffers.len());
                match self.producer.has_room(buffers.len()) {
                    Ok(true) => {
                        let bytes = gather(buffers);
                        self.push(MESSAGE, &bytes)
                    }
                    Ok(false) => Ok(false),
                    Err(nonsense) => {
                        self.go_down(nonsense.into());
                        Err(OperationError::Link(nonsense.into()))
                    }
                }
            }
            Work::Change { target, change } => {
                let view = View { keys: &self.keys, segment: &self.segment, peer };
                match view.change(*target, *change) {
                    Ok(before) => {
                        store_word(buffers, before);
                        Ok(true)
                    }
                    Err(OperationError::NotMapped(_)) if self.map_again(&[*target]) => return Advance::More,
                    Err(error) => return self.failed(error),
                }
            }
        };
        match entry {
            Ok(true) => Advance::Done(Ok(())),
            Ok(false) => Advance::NoRoom,
            Err(error) => Advance::Done(Err(error)),
        }
    }

    /// Tries again to map the memory of these targets. Returns `true` if some is mapped now.
    #[cold]
    fn map_again(&mut self, targets: &[Target]) -> bool {
        targets.iter().any(|target| self.keys.map_again(Key(target.key)))
    }

    /// An unknown key may be on its way: packets are counted before they are sent.
    fn failed(&self, error: OperationError) -> Advance {
        let is_awaited =
            self.segment.load(self.side.other().control_at(), Ordering::Acquire) != self.control_seen;
        match error {
            OperationError::UnknownKey { .. } if is_awaited => Advance::Waits,
            error => Advance::Done(Err(error)),
        }
    }

    /// Reports events to `sink`, and continues operations: at most 256 KiB and some dozens of events
    /// at a time. Returns the number of events.
    pub fn poll(&mut self, mut sink: impl FnMut(Event<'_>)) -> usize {
        let mut told = 0;
        let mut tell = |event: Event<'_>| {
            told += 1;
            sink(event);
        };
        if self.epoch != process_epoch() {
            // The segment is not mapped here. Buffers come back: the parent has its own.
            self.abandon();
        } else {
            if let Err(error) = self.progress(&mut tell) {
                // What the peer has sent before its end was reported as sent there.
                if matches!(error, LinkError::PeerEnded | LinkError::PeerClosed) {
                    let _ = self.take_entries(&mut tell, self.side.ring().slots);
                }
                self.go_down(error);
            }
            self.look_for_proofs();
        }
        // All of them: a link that has ended has returned its operations now.
        for Completion { tag, buffers, outcome } in self.completions.drain(..) {
            tell(Event::Completed { tag, buffers, outcome });
        }
        for key in self.ended_grants.drain(..) {
            tell(Event::GrantEnded { key });
        }
        if let State::Down { reason, is_told: is_told @ false, .. } = &mut self.state {
            *is_told = true;
            tell(Event::Down(reason.clone()));
        }
        told
    }

    fn progress(&mut self, tell: &mut impl FnMut(Event<'_>)) -> Result<(), LinkError> {
        if !matches!(self.state, State::Up) {
            return Ok(());
        }
        self.polls = self.polls.wrapping_add(1);
        if std::mem::take(&mut self.is_asleep) {
            sleep::retract(&*self.segment, self.side.sleep_at());
            self.look()?;
        } else if std::mem::take(&mut self.must_look)
            || self.polls.is_multiple_of(POLLS_PER_LOOK)
            || self.has_peer_stopped()
        {
            self.look()?;
        } else if self.segment.load(self.side.other().control_at(), Ordering::Acquire) != self.control_seen {
            self.receive()?;
        }
        if !self.outgoing.is_empty() {
            self.flush()?;
        }
        if !self.operations.is_empty() {
            self.work(STEP);
        }
        if matches!(self.state, State::Up) { self.take_entries(tell, ENTRIES_PER_POLL) } else { Ok(()) }
    }

    /// Returns whether the peer's end of the link has ended. Its socket is closed, or is about to be.
    fn has_peer_stopped(&self) -> bool {
        // Acquire pairs with the Release in `go_down`.
        self.segment.load(self.side.other().stopped_at(), Ordering::Acquire) != 0
    }

    fn take_entries(
        &mut self,
        tell: &mut impl FnMut(Event<'_>),
        entries_max: usize,
    ) -> Result<(), LinkError> {
        let mut taken = 0;
        while taken < entries_max {
            self.entry.clear();
            let Some(kind) = self.consumer.pop(&mut self.entry)? else { break };
            taken += 1;
            match (kind, &self.entry[..]) {
                (IMMEDIATE, &[a, b, c, d]) => tell(Event::Immediate(u32::from_le_bytes([a, b, c, d]))),
                (MESSAGE, bytes) => tell(Event::Message(bytes)),
                _ => return Err(Nonsense { what: "an entry of no kind" }.into()),
            }
        }
        if taken > 0 {
            self.wake(sleep::FOR_ROOM);
        }
        Ok(())
    }

    /// Looks at the socket and at the process of the peer.
    fn look(&mut self) -> Result<(), LinkError> {
        let mut events = [const { std::mem::MaybeUninit::uninit() }; 4];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let (events, _) = match epoll::wait(&self.epoll, &mut events, Some(&now)) {
            Ok(events) => events,
            Err(rustix::io::Errno::INTR) => return Ok(()),
            Err(error) => return Err(LinkError::call("epoll_wait", error)),
        };
        let (mut has_ended, mut is_readable) = (false, false);
        for event in events {
            match event.data.u64() {
                OF_PROCESS => has_ended = true,
                OF_SOCKET => is_readable = true,
                _ => {}
            }
        }
        // What it has sent before comes first, as far as there is room for it.
        let received = if is_readable { self.receive() } else { Ok(()) };
        if has_ended { Err(LinkError::PeerEnded) } else { received }
    }

    fn receive(&mut self) -> Result<(), LinkError> {
        for _ in 0..PACKETS_PER_POLL {
            let Some(socket) = &self.socket else { return Ok(()) };
            let received = match socket.receive().map_err(|error| LinkError::call("recvmsg", error))? {
                Receive::Packet(received) => received,
                Receive::Nothing => return Ok(()),
                Receive::Closed => return Err(LinkError::PeerClosed),
                Receive::Wrong(what) => return Err(Nonsense { what }.into()),
            };
            let packet = Packet::from_bytes(&received.bytes);
            if packet == Some(Packet::Wake) {
                // It has done what it is for. If nothing else was announced, nothing else is there.
                if self.segment.load(self.side.other().control_at(), Ordering::Acquire) == self.control_seen {
                    return Ok(());
                }
                continue;
            }
            self.control_seen = self.control_seen.wrapping_add(1);
            match packet {
                Some(Packet::Grant(announced)) => self.keys.add(announced, received.memory)?,
                Some(Packet::Revoke { key }) => {
                    // Operations in flight that use it find no key, and end as revoked: none is
                    // within a step.
                    if self.keys.end(Key(key)) {
                        self.send(Packet::Ended { key }, None)?;
                    }
                }
                Some(Packet::Ended { key }) => {
                    if self.grants.stopped_by_peer(key) {
                        self.ended_grants.push(key);
                    }
                }
                _ => return Err(Nonsense { what: "a packet of no kind" }.into()),
            }
        }
        Ok(())
    }

    /// Sends a packet, or queues it.
    fn send(&mut self, packet: Packet, backing: Option<Backing>) -> Result<(), LinkError> {
        if self.outgoing.len() >= OUTGOING_MAX {
            return Err(LinkError::Unread { packets: OUTGOING_MAX });
        }
        // Counted before it is sent: the peer waits for a key that it does not know yet.
        self.control_sent = self.control_sent.wrapping_add(1);
        self.segment.store(self.side.control_at(), self.control_sent, Ordering::Release);
        self.outgoing.push_back((packet, backing));
        self.flush()
    }

    fn flush(&mut self) -> Result<(), LinkError> {
        let Some(socket) = &self.socket else { return Ok(()) };
        while let Some((packet, backing)) = self.outgoing.front() {
            let fd = backing.as_ref().map(AsFd::as_fd);
            match socket.send(&packet.to_bytes(), fd) {
                Ok(true) => self.outgoing.pop_front(),
                Ok(false) => break,
                Err(rustix::io::Errno::PIPE | rustix::io::Errno::CONNRESET) => {
                    return Err(LinkError::PeerClosed);
                }
                Err(error) => return Err(LinkError::call("sendmsg", error)),
            };
        }
        // A sleeper must notice that the socket has room.
        if self.awaits_socket == self.outgoing.is_empty() {
            self.awaits_socket = !self.outgoing.is_empty();
            let mut interest = epoll::EventFlags::IN;
            interest.set(epoll::EventFlags::OUT, self.awaits_socket);
            let data = epoll::EventData::new_u64(OF_SOCKET);
            epoll::modify(&self.epoll, socket, data, interest)
                .map_err(|error| LinkError::call("epoll_ctl", error))?;
        }
        Ok(())
    }

    /// Prepares for sleeping until the descriptor is readable. Returns `false` if there is something
    /// to poll first.
    pub fn may_sleep(&mut self) -> bool {
        if self.epoch != process_epoch() {
            return false;
        }
        let is_told = self.completions.is_empty() && self.ended_grants.is_empty();
        match self.state {
            State::Down { is_told: has_told, .. } => return is_told && has_told,
            State::Up if !is_told || self.must_look => return false,
            State::Up => {}
        }
        // A first operation that is left may wait for room. Keys come by the socket, which wakes.
        let waits_for_room = match self.operations.front() {
            None => false,
            Some(_) if self.only_waits => false,
            Some(Operation { work: Work::Copy { is_copied: true, .. } | Work::Send, .. }) => true,
            Some(_) => return false,
        };
        let reasons = sleep::FOR_ENTRIES | if waits_for_room { sleep::FOR_ROOM } else { 0 };
        sleep::announce(&*self.segment, self.side.sleep_at(), reasons);
        let has_room = match self.operations.front().filter(|_| waits_for_room) {
            Some(Operation { work: Work::Send, buffers, .. }) => self.producer.has_room(buffers.len()),
            Some(_) => self.producer.has_room(4),
            None => Ok(false),
        };
        // A wrong index is reported by the next poll.
        if !self.consumer.is_empty() || has_room != Ok(false) {
            sleep::retract(&*self.segment, self.side.sleep_at());
            return false;
        }
        self.is_asleep = true;
        true
    }

    /// Grants memory to the peer: it may access it by the returned key.
    ///
    /// The memory counts the key until it is proven that the peer does not use it any more.
    ///
    /// The first grant of an allocation decides: if it is for reading only, the allocation is sealed
    /// against writing by other processes for good.
    pub fn grant(&mut self, memory: &Exposed, access: Access) -> Result<u64, GrantError> {
        let file_access = match access {
            Access::ReadOnly => FileAccess::ReadOnly,
            Access::ReadWrite => FileAccess::ReadWrite,
        };
        self.grant_for(memory, access, file_access)
    }

    /// As [`grant`](Self::grant), without a seal against writing: the allocation can be granted for
    /// writing later. That a peer only reads then depends on its library.
    pub fn grant_unsealed(&mut self, memory: &Exposed, access: Access) -> Result<u64, GrantError> {
        self.grant_for(memory, access, FileAccess::ReadWrite)
    }

    /// Returns the reason for which [`grant_unsealed`](Self::grant_unsealed) would refuse memory over
    /// any link, if there is one.
    pub fn check_memory(memory: &Exposed) -> Result<(), GrantError> {
        Ok(memory.check_backing(FileAccess::ReadWrite)?)
    }

    fn grant_for(
        &mut self,
        memory: &Exposed,
        access: Access,
        file_access: FileAccess,
    ) -> Result<u64, GrantError> {
        self.check().map_err(GrantError::Link)?;
        let (announced, backing) = self.grants.make(memory, access, file_access)?;
        if let Err(error) = self.send(Packet::Grant(announced), Some(backing)) {
            self.not_sent(error);
        }
        Ok(announced.key)
    }

    /// Revokes a grant. [`Event::GrantEnded`] follows when it is proven that the peer does not use it
    /// any more: its library has said so, or its process has ended. If neither comes in time, an
    /// [`Exchange`](crate::Exchange) is a proof.
    ///
    /// Operations of the peer that have not ended report that the grant was revoked.
    pub fn revoke(&mut self, key: u64) {
        if self.epoch != process_epoch() || !self.grants.revoke(key) || self.down().is_some() {
            return;
        }
        if let Err(error) = self.send(Packet::Revoke { key }, None) {
            self.not_sent(error);
        }
    }

    /// A peer that has closed the link may have sent messages before: the next poll takes them, and
    /// then ends the link.
    fn not_sent(&mut self, error: LinkError) {
        match error {
            LinkError::PeerClosed => self.must_look = true,
            error => self.go_down(error),
        }
    }

    /// Takes a revoked grant whose end is not proven, for an [`Exchange`](crate::Exchange). Returns
    /// `None` if there is no such grant, for instance because it has ended meanwhile.
    ///
    /// It stays among the [`grants`](Self::grants) until it is [put back](Self::put_back), or until
    /// [`exchanged`](Self::exchanged).
    pub fn take_revoked(&mut self, key: u64) -> Option<RevokedGrant> {
        self.grants.take_revoked(key)
    }

    /// Puts a grant back that was taken, because its exchange has been given up.
    /// [`Event::GrantEnded`] follows when another proof comes, or has come meanwhile.
    pub fn put_back(&mut self, grant: RevokedGrant) {
        let key = grant.key();
        if self.epoch == process_epoch() && self.grants.put_back(grant) {
            self.ended_grants.push(key);
        }
    }

    /// Forgets a grant that was taken, when its exchange is [finished](crate::Exchange::finish).
    pub fn exchanged(&mut self, key: u64) {
        self.grants.exchanged(key);
    }

    /// Returns the keys of the grants that have not ended.
    pub fn grants(&self) -> Vec<u64> {
        self.grants.keys()
    }

    /// Closes the link. Operations in flight come back with the next poll. Grants are revoked; they
    /// end when the peer has noticed, so poll until [`grants`](Self::grants) is empty.
    pub fn close(&mut self) {
        if self.epoch == process_epoch() {
            self.go_down(LinkError::Closed);
        }
    }

    /// Ends the link. Nothing of the peer is accessed afterwards.
    fn go_down(&mut self, reason: LinkError) {
        if matches!(self.state, State::Down { .. }) {
            return;
        }
        self.keys.clear();
        for Operation { tag, buffers, .. } in self.operations.drain(..) {
            let outcome = Err(OperationError::Link(reason.clone()));
            self.completions.push_back(Completion { tag, buffers, outcome });
        }
        for key in self.grants.keys() {
            self.grants.revoke(key);
        }
        self.outgoing.clear();
        self.state = State::Down { reason, is_told: false, is_proven: false };
        // Release: the peer that sees it sees all that was written before.
        self.segment.store(self.side.stopped_at(), 1, Ordering::Release);
        // The peer notices that no packet follows, also if it sleeps. The same tells this side about the end
        // of the peer's link; what it sends meanwhile does not wake this side.
        let Some(socket) = &self.socket else { return };
        socket.end();
        let (data, none) = (epoll::EventData::new_u64(OF_SOCKET), epoll::EventFlags::empty());
        if epoll::modify(&self.epoll, socket, data, none).is_err() {
            self.close_socket();
        }
    }

    fn close_socket(&mut self) {
        if let Some(socket) = self.socket.take() {
            let _ = epoll::delete(&self.epoll, &socket);
        }
    }

    /// In a forked child: returns the buffers, and touches no shared memory.
    fn abandon(&mut self) {
        if matches!(self.state, State::Up) {
            self.state = State::Down { reason: LinkError::Forked, is_told: false, is_proven: true };
        }
        for Operation { tag, buffers, .. } in self.operations.drain(..) {
            let outcome = Err(OperationError::Link(LinkError::Forked));
            self.completions.push_back(Completion { tag, buffers, outcome });
        }
    }

    /// After the end of the link: ends the grants when the peer has stopped.
    fn look_for_proofs(&mut self) {
        let State::Down { is_proven, .. } = self.state else { return };
        if is_proven {
            return;
        }
        let mut events = [const { std::mem::MaybeUninit::uninit() }; 4];
        let events = epoll::wait(&self.epoll, &mut events, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
        // The peer has ended its link: it says so in the segment, or only the end of its process is a proof.
        if events.is_ok_and(|(events, _)| events.iter().any(|event| event.data.u64() == OF_SOCKET)) {
            self.close_socket();
        }
        self.polls = self.polls.wrapping_add(1);
        if self.has_peer_stopped() || self.polls.is_multiple_of(16) && self.process.has_ended() {
            if let State::Down { is_proven, .. } = &mut self.state {
                *is_proven = true;
            }
            self.ended_grants.extend(self.grants.all_stopped());
            let _ = epoll::delete(&self.epoll, &self.process);
            self.close_socket();
        }
    }
}

enum Advance {
    Done(Result<(), OperationError>),
    /// It has to go on later.
    More,
    /// Its key has not arrived.
    Waits,
    /// The ring has no room.
    NoRoom,
}

/// Copies the bytes of a message together.
fn gather(buffers: &Buffers) -> Vec<u8> {
    let mut bytes = vec![0; buffers.len()];
    let mut at = 0;
    for buffer in buffers.as_slice() {
        // SAFETY: the link owns the buffer, whose bytes are initialised and mapped, and `bytes` has
        // room for the sum of all lengths. They are different allocations. A lent part may be part
        // of another operation that writes to it, in this thread or by a device: no reference is
        // formed.
        unsafe { copy(buffer.address().as_ptr(), bytes.as_mut_ptr().add(at), buffer.len()) };
        at += buffer.len();
    }
    bytes
}

/// Stores the result of an atomic in its buffer.
fn store_word(buffers: &Buffers, value: u64) {
    let Some(buffer) = buffers.as_slice().first().filter(|it| it.len() == 8 && Buffer::is_writable(it))
    else {
        return;
    };
    let bytes = value.to_ne_bytes();
    // SAFETY: the link owns the buffer, which has eight bytes that it may write to (checked above),
    // and no reference to them exists.
    unsafe { copy(bytes.as_ptr(), buffer.address().as_ptr(), 8) };
}

impl AsFd for Link {
    /// Returns a descriptor that becomes readable when there is something to poll, after
    /// [`may_sleep`](Self::may_sleep).
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if self.epoch != process_epoch() {
            return;
        }
        self.go_down(LinkError::Closed);
        if self.process.has_ended() {
            self.grants.all_stopped();
        }
    }
}

#[cfg(all(test, not(miri), not(loom)))]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::meet::{Connecting, Expected, Listener};
    use crate::wire::Announced;

    #[test]
    fn a_peer_that_receives_no_answers_gets_a_number_of_them() {
        let [ours, theirs] = [[1; 32], [2; 32]];
        let mut listener = Listener::bind(Duration::from_secs(60)).unwrap();
        listener.expect(Expected { id: 5, theirs, ours });
        let mut connecting = Connecting::new(listener.name(), theirs, ours).unwrap();
        let (mut peer, mut link) = (None, None);
        while peer.is_none() || link.is_none() {
            peer = peer.or_else(|| connecting.poll().unwrap());
            link = link.or_else(|| listener.poll(Instant::now()).unwrap().map(|met| met.link));
        }
        let (mut peer, mut link) = (peer.unwrap(), link.unwrap());
        // As if it had not received the answers to so many grants and revocations.
        link.outgoing.extend((0..OUTGOING_MAX).map(|_| (Packet::Wake, None)));
        let key = 1 << 16;
        let grant = Announced { key, file_len: 4096, offset: 0, len: 4096, access: Access::ReadOnly };
        peer.send(Packet::Grant(grant), None).unwrap();
        peer.send(Packet::Revoke { key }, None).unwrap();
        let mut down = None;
        for _ in 0..2 {
            link.poll(|event| {
                if let Event::Down(error) = event {
                    down = Some(error);
                }
            });
        }
        assert!(matches!(down, Some(LinkError::Unread { .. })), "{down:?}");
        assert!(link.outgoing.is_empty());
    }
}
