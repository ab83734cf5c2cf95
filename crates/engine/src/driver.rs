//! The machine with its sockets and its clock: what somebody drives.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use farreach_core::wire::Frame;

use crate::control::{Bell, CloseReason, ConnectionId, Control, ControlEvent, ControlStream, Speech};
use crate::error::{Error, SendError};
use crate::helm::{Drive, Promise};
use crate::machine::{Machine, Order, Output, PeerCell, PeerKey, WordOrder};
use crate::machine::{TransferFault, Watch};

/// How often sockets are looked at while cards are busy: a system call each time.
const LOOK_EVERY: Duration = Duration::from_micros(50);

/// Who has not looked for so long looks before it judges: a process that did not run for a while finds that nobody has spoken to it, and what
/// they said waits in the sockets.
const LONG_AGO: Duration = Duration::from_millis(5);

/// How long an engine sleeps that expects something over a rail which cannot wake it.
const BLIND_SLEEP: Duration = Duration::from_millis(1);

/// The same, where something has come or gone lately, and how long that is. It is many times [`BLIND_SLEEP`]: two sides that wait for each
/// other's answers would else both go on sleeping so long. And it is longer than the time between two words of a peer that has something under way.
const BLIND_NAP: Duration = Duration::from_micros(20);
const LATELY: Duration = Duration::from_millis(25);

/// Something to be done with the driver, at this time.
pub(crate) type Call = Box<dyn FnOnce(&mut Driver, u64) + Send>;

/// What callers ask for.
pub(crate) enum Command {
    Submit(Order),
    Send(PeerKey, Vec<u8>, Promise<Result<(), SendError>>),
    Taken(PeerKey, u32),
    Word(WordOrder),
    Abort(PeerKey, u64),
    /// Whatever is asked for seldom.
    Call(Call),
}

/// Peers that have connected, and that nobody has accepted yet.
#[derive(Debug, Default)]
pub(crate) struct Doorstep {
    peers: Mutex<VecDeque<(PeerKey, SocketAddr, Arc<PeerCell>)>>,
    /// Why others cannot be let in.
    trouble: Mutex<Option<(Instant, Error)>>,
    pub(crate) watch: Arc<Watch>,
}

impl Doorstep {
    /// Why others were not let in, if that was so lately and nobody was told.
    pub(crate) fn take_trouble(&self, lately: Duration) -> Option<Error> {
        let (at, error) = self.trouble.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        (at.elapsed() <= lately).then_some(error)
    }

    fn set_trouble(&self, trouble: Error) {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), trouble));
    }

    /// The first one that is up.
    pub(crate) fn take(&self) -> Option<(PeerKey, SocketAddr, Arc<PeerCell>)> {
        let mut peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        // Who did not get as far as a link is not let in.
        peers.retain(|(_, _, cell)| cell.is_up() || cell.lost().is_none());
        let place = peers.iter().position(|(_, _, cell)| cell.is_up())?;
        peers.remove(place)
    }

    pub(crate) fn has_one(&self) -> bool {
        let peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        peers.iter().any(|(_, _, cell)| cell.is_up())
    }

    fn put(&self, key: PeerKey, address: SocketAddr, cell: Arc<PeerCell>) {
        let mut peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        peers.push_back((key, address, cell));
    }
}

/// A connection that was made.
pub(crate) type Connected = Result<(PeerKey, Arc<PeerCell>), Error>;

/// A connection that is being made.
struct Connecting {
    address: SocketAddr,
    /// Whether this side offers the links.
    is_initiator: bool,
    promise: Promise<Connected>,
}

pub(crate) struct Driver {
    pub(crate) machine: Machine,
    control: Control,
    peers: HashMap<ConnectionId, PeerKey>,
    connections: HashMap<PeerKey, ConnectionId>,
    connecting: HashMap<ConnectionId, Connecting>,
    doorstep: Arc<Doorstep>,
    start: Instant,
    looked_at: Option<Instant>,
    /// What the rails are waited for by, and how often they were reset until then.
    watched: Vec<OwnedFd>,
    watched_resets: u64,
    /// Whether a rail's library had something to do when the last sleep ended, also if it has nothing to tell.
    was_woken_by_rail: bool,
    events: Vec<ControlEvent>,
}

impl Driver {
    pub(crate) fn new(
        machine: Machine,
        mut control: Control,
        doorstep: Arc<Doorstep>,
    ) -> std::io::Result<Self> {
        let mut machine = machine;
        let watched = watch(&mut machine, &mut control)?;
        Ok(Self {
            machine,
            control,
            watched,
            peers: HashMap::new(),
            connections: HashMap::new(),
            connecting: HashMap::new(),
            doorstep,
            start: Instant::now(),
            looked_at: None,
            watched_resets: 0,
            was_woken_by_rail: false,
            events: Vec::new(),
        })
    }

    /// Rails that were reset may have other descriptors.
    fn watch_again(&mut self) {
        let resets = self.machine.resets();
        if resets == self.watched_resets {
            return;
        }
        for fd in self.watched.drain(..) {
            // It fails for one that is not there.
            let _ = self.control.unwatch(fd.as_fd());
        }
        // Where descriptors have run out it is tried again before the next sleep.
        if let Ok(watched) = watch(&mut self.machine, &mut self.control) {
            (self.watched, self.watched_resets) = (watched, resets);
        }
    }

    /// Bytes that are held for a peer, with those that wait for its connection.
    pub(crate) fn peer_memory(&self, key: PeerKey) -> Option<usize> {
        let connection = self.connections.get(&key).and_then(|id| self.control.memory(*id));
        Some(self.machine.peer_memory(key)? + connection.unwrap_or(0))
    }

    pub(crate) fn listen(&mut self, address: SocketAddr) -> std::io::Result<SocketAddr> {
        self.control.listen(address)
    }

    pub(crate) fn connect(&mut self, address: SocketAddr, speech: Speech, promise: Promise<Connected>) {
        let begun = self.control.connect(address, speech);
        self.await_peer(begun, Connecting { address, is_initiator: true, promise });
    }

    /// Has a stream that was made elsewhere, and one side of it offer the links.
    pub(crate) fn adopt(
        &mut self,
        stream: ControlStream,
        address: SocketAddr,
        is_initiator: bool,
        promise: Promise<Connected>,
    ) {
        let begun = self.control.adopt(stream, address);
        self.await_peer(begun, Connecting { address, is_initiator, promise });
    }

    fn await_peer(&mut self, begun: std::io::Result<ConnectionId>, connecting: Connecting) {
        match begun {
            Ok(id) => drop(self.connecting.insert(id, connecting)),
            Err(error) => {
                connecting.promise.keep(Err(Error::Connect {
                    address: connecting.address.to_string(),
                    cause: error.to_string(),
                    fix: "see the limits of this process: ulimit -n".to_owned(),
                }));
            }
        }
    }

    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// What came over the sockets; whether it is more than that peers are there.
    fn look(&mut self, now: u64) -> bool {
        let mut events = std::mem::take(&mut self.events);
        // What a socket says for itself comes as an event; the poll of all of them does not fail.
        let _ = self.control.poll(&mut |event| events.push(event));
        let happened =
            events.iter().any(|event| !matches!(event, ControlEvent::Frame(_, Frame::Ping { .. })));
        for event in events.drain(..) {
            self.on_control(event, now);
        }
        self.events = events;
        happened
    }

    fn on_control(&mut self, event: ControlEvent, now: u64) {
        match event {
            ControlEvent::Accepted(id, address) => {
                let (key, cell) = self.machine.add_peer(false, now);
                cell.also_notify(&self.doorstep.watch);
                self.doorstep.put(key, address, cell);
                self.introduce(id, key);
            }
            ControlEvent::Connected(id) => {
                let Some(connecting) = self.connecting.remove(&id) else { return };
                let (key, cell) = self.machine.add_peer(connecting.is_initiator, now);
                self.introduce(id, key);
                connecting.promise.keep(Ok((key, cell)));
            }
            ControlEvent::Frame(id, frame) => {
                if let Some(key) = self.peers.get(&id) {
                    self.machine.frame(*key, frame, now);
                }
            }
            ControlEvent::Closed(id, reason) => self.on_closed(id, &reason, now),
            ControlEvent::CannotAccept { local, cause, fix } => {
                let (whom, fix) = (format!("at {local}"), fix.to_owned());
                self.doorstep.set_trouble(Error::Accept { whom, cause, fix });
            }
        }
    }

    fn on_closed(&mut self, id: ConnectionId, reason: &CloseReason, now: u64) {
        let (cause, fix) = (reason.cause(), reason.fix());
        if let Some(Connecting { address, promise, .. }) = self.connecting.remove(&id) {
            return promise.keep(Err(Error::Connect { address: address.to_string(), cause, fix }));
        }
        if reason.is_refusal() {
            self.doorstep.set_trouble(Error::Accept { whom: format!("from {}", reason.peer()), cause, fix });
        }
        if let Some(key) = self.peers.remove(&id) {
            self.connections.remove(&key);
            self.machine.closed(key, &reason.to_string(), now);
        }
    }

    fn introduce(&mut self, id: ConnectionId, key: PeerKey) {
        self.peers.insert(id, key);
        self.connections.insert(key, id);
    }

    /// What the machine wants done outside.
    fn flush(&mut self) {
        while let Some(output) = self.machine.output() {
            match output {
                Output::Frame(key, frame) => {
                    if let Some(id) = self.connections.get(&key) {
                        // What cannot be sent closes the connection, which comes as an event.
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
    }
}

/// Has sleeps end by the rails' descriptors: by handles of our own, which can be let go of whatever became of the rails'.
fn watch(machine: &mut Machine, control: &mut Control) -> std::io::Result<Vec<OwnedFd>> {
    let mut watched = Vec::new();
    for provider in machine.providers() {
        if let Some(fd) = provider.wait_fd() {
            let fd = fd.try_clone_to_owned()?;
            control.watch(fd.as_fd())?;
            watched.push(fd);
        }
    }
    Ok(watched)
}

impl Drive for Driver {
    type Command = Command;
    type Bell = Bell;

    fn bell(&self) -> Bell {
        self.control.bell()
    }

    fn apply(&mut self, command: Command) {
        let now = self.now();
        match command {
            Command::Submit(order) => drop(self.machine.submit(order, now)),
            Command::Send(key, bytes, promise) => self.machine.send_message(key, bytes, promise, now),
            Command::Taken(key, count) => self.machine.taken(key, count, now),
            Command::Word(order) => self.machine.change_word(order, now),
            Command::Abort(key, number) => {
                self.machine.abort_numbered(key, number, &TransferFault::Aborted, now);
            }
            Command::Call(call) => call(self, now),
        }
        self.flush();
    }

    fn step(&mut self) -> bool {
        let now = self.now();
        let instant = self.start + Duration::from_nanos(now);
        let mut happened = false;
        if self.looked_at.is_none_or(|looked| instant - looked >= LONG_AGO) {
            self.looked_at = Some(instant);
            happened |= self.look(now);
        }
        happened |= self.machine.step(now) | std::mem::take(&mut self.was_woken_by_rail);
        if !happened || self.looked_at.is_none_or(|looked| instant - looked >= LOOK_EVERY) {
            // While cards are busy a look now and then; while nothing happens, not at every turn of a spin either.
            if self.looked_at.is_none_or(|looked| instant - looked >= LOOK_EVERY / 4) {
                self.looked_at = Some(instant);
                happened |= self.look(now);
            }
        }
        self.flush();
        happened
    }

    fn sleep(&mut self, until: Instant) {
        self.watch_again();
        let mut until = until.min(self.start + Duration::from_nanos(self.machine.next_deadline()));
        match self.machine.quiet_for(self.now()) {
            // The kernel's timers are too coarse for a sleep that can be ended, and it is over as soon.
            Some(quiet) if quiet < LATELY => return std::thread::sleep(BLIND_NAP),
            Some(_) => until = until.min(Instant::now() + BLIND_SLEEP),
            None => {}
        }
        for provider in self.machine.providers() {
            if provider.wait_fd().is_none() {
                continue;
            }
            match provider.may_sleep() {
                Ok(true) => {}
                Ok(false) => return,
                Err(_) => until = until.min(Instant::now() + BLIND_SLEEP),
            }
        }
        // A sleep that fails is a short one.
        let slept = self.control.sleep(Some(until.saturating_duration_since(Instant::now())));
        self.was_woken_by_rail = slept.unwrap_or(false);
        self.looked_at = None;
    }
}
