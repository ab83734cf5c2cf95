//! Tests with real sockets, on loopback.

mod adopted;
mod budgets;
mod descriptors;
mod ends;
mod frames;
mod refusals;
#[cfg(feature = "tls")]
mod tls;
mod wakeup;

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use farreach_proto::wire::{Frame, Hello, encode, preamble};
use rustix::process::{Resource, getrlimit, setrlimit};

use super::{CloseReason, ConnectionId, Control, ControlEvent, RecordLayer};
use crate::budgets::ControlBudgets;

/// Time limit of each wait.
const PATIENCE: Duration = Duration::from_secs(20);

/// A `Control`, and the events that it has delivered.
struct Side {
    control: Control,
    events: Vec<ControlEvent>,
    /// How far its clock is ahead, so that a test need not wait for a deadline.
    ahead: Duration,
    /// The time at which its clock was stopped.
    stopped: Option<Instant>,
}

impl Side {
    fn new() -> Self {
        Self::with(ControlBudgets::default())
    }

    fn with(budgets: ControlBudgets) -> Self {
        Self {
            control: Control::new(&budgets).unwrap(),
            events: Vec::new(),
            ahead: Duration::ZERO,
            stopped: None,
        }
    }

    /// Creates a side that listens on loopback. Returns its address too.
    fn listening() -> (Self, SocketAddr) {
        Self::listening_with(ControlBudgets::default())
    }

    fn listening_with(budgets: ControlBudgets) -> (Self, SocketAddr) {
        let mut side = Self::with(budgets);
        let address = side.control.listen("127.0.0.1:0".parse().unwrap()).unwrap();
        (side, address)
    }

    fn poll(&mut self) -> usize {
        let now = self.stopped.unwrap_or_else(Instant::now) + self.ahead;
        self.control.poll(now, &mut |event| self.events.push(event)).unwrap()
    }

    /// Polls and sleeps until `holds` returns a value.
    fn until<T>(&mut self, mut holds: impl FnMut(&mut Self) -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            self.poll();
            if let Some(value) = holds(self) {
                return value;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "told so far: {:?}", self.events);
            self.control.sleep(Some(left)).unwrap();
        }
    }

    /// Waits for a connection, and returns it.
    fn until_accepted(&mut self) -> ConnectionId {
        self.until(|side| side.accepted().first().copied())
    }

    /// Returns the connections that were accepted.
    fn accepted(&self) -> Vec<ConnectionId> {
        let accepted = self.events.iter().filter_map(|event| match event {
            ControlEvent::Accepted(id, _) => Some(*id),
            _ => None,
        });
        accepted.collect()
    }

    fn until_closed(&mut self, id: ConnectionId) -> CloseReason {
        self.until(|side| side.closed(id))
    }

    fn closed(&self, id: ConnectionId) -> Option<CloseReason> {
        self.events.iter().find_map(|event| match event {
            ControlEvent::Closed(closed, reason) if *closed == id => Some(reason.clone()),
            _ => None,
        })
    }

    /// Returns the reason of the first connection that has ended.
    fn any_closed(&self) -> Option<CloseReason> {
        self.events.iter().find_map(|event| match event {
            ControlEvent::Closed(_, reason) => Some(reason.clone()),
            _ => None,
        })
    }

    fn is_connected(&self, id: ConnectionId) -> bool {
        self.events
            .iter()
            .any(|event| matches!(event, ControlEvent::Connected(connected) if *connected == id))
    }

    /// Returns the frames of one connection, without its hello.
    fn frames(&self, id: ConnectionId) -> Vec<&Frame> {
        let frames = self.events.iter().filter_map(|event| match event {
            ControlEvent::Frame(from, frame) if *from == id && *frame != hello() => Some(frame),
            _ => None,
        });
        frames.collect()
    }
}

/// Two connected sides: the one that connects and its connection, the one that accepts and its
/// connection.
type Connected = ((Side, ConnectionId), (Side, ConnectionId));

fn pair() -> Connected {
    let ((mut called, address), mut caller) = (Side::listening(), Side::new());
    let id = caller.control.connect(address, RecordLayer::Plain).unwrap();
    caller.control.send(id, &hello()).unwrap();
    let called_id = run(&mut caller, &mut called, |caller, called| {
        called.accepted().pop().filter(|_| caller.is_connected(id))
    });
    ((caller, id), (called, called_id))
}

/// Closes a connection with much unsent. All of it arrives before the end.
fn assert_last_words_arrive(pair: Connected) -> Connected {
    let ((mut caller, to), (mut called, from)) = pair;
    // Unread data on this side must not discard the peer's last frames.
    called.control.send(from, &Frame::Ping { nonce: 1 }).unwrap();
    for sequence in 0..200 {
        caller.control.send(to, &Frame::Message { sequence, bytes: vec![0; 50_000] }).unwrap();
    }
    caller.control.send(to, &Frame::Goodbye).unwrap();
    caller.control.close(to);
    assert!(caller.control.unfinished() > 0, "10 MB do not fit into a socket");
    let reason = run(&mut caller, &mut called, |_, called| called.closed(from));
    assert_eq!(called.frames(from).len(), 201);
    assert_eq!(called.frames(from).last(), Some(&&Frame::Goodbye));
    assert!(matches!(reason, CloseReason::Ended { is_torn: false, .. }), "{reason}");
    ((caller, to), (called, from))
}

/// Polls both sides without sleeping, until `holds` returns a value.
fn run<T>(one: &mut Side, other: &mut Side, mut holds: impl FnMut(&mut Side, &mut Side) -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let moved = one.poll() + other.poll();
        if let Some(value) = holds(one, other) {
            return value;
        }
        assert!(Instant::now() < deadline, "told so far: {:?} and {:?}", one.events, other.events);
        if moved == 0 {
            std::thread::yield_now();
        }
    }
}

/// The first frame of a peer.
fn hello() -> Frame {
    Frame::Hello(Hello::new(1))
}

/// A plain socket as the peer, which has sent its preamble and its hello.
fn raw_peer(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(&introduction()).unwrap();
    stream
}

/// The preamble and the hello of a peer.
fn introduction() -> Vec<u8> {
    let mut bytes = preamble().to_vec();
    encode(&hello(), &mut bytes).unwrap();
    bytes
}

fn raise_file_limit(files: u64) {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < files) {
        let raised = rustix::process::Rlimit { current: Some(files), maximum: limit.maximum };
        setrlimit(Resource::Nofile, raised)
            .expect("this test needs more open files than `ulimit -Hn` allows");
    }
}
