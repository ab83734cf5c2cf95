//! Tests with real sockets, on loopback.

mod adopted;
mod ends;
mod frames;
mod refusals;
#[cfg(feature = "tls")]
mod tls;
mod wakeup;

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use farreach_proto::wire::{Frame, preamble};

use super::{CloseReason, ConnectionId, Control, ControlEvent, RecordLayer};

/// Time limit of each wait.
const PATIENCE: Duration = Duration::from_secs(20);

/// A `Control`, and the events that it has delivered.
struct Side {
    control: Control,
    events: Vec<ControlEvent>,
}

impl Side {
    fn new() -> Self {
        Self { control: Control::new().unwrap(), events: Vec::new() }
    }

    /// Creates a side that listens on loopback. Returns its address too.
    fn listening() -> (Self, SocketAddr) {
        let mut side = Self::new();
        let address = side.control.listen("127.0.0.1:0".parse().unwrap()).unwrap();
        (side, address)
    }

    fn poll(&mut self) -> usize {
        self.control.poll(&mut |event| self.events.push(event)).unwrap()
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
        self.until(|side| {
            side.events.iter().find_map(|event| match event {
                ControlEvent::Accepted(id, _) => Some(*id),
                _ => None,
            })
        })
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

    fn is_connected(&self, id: ConnectionId) -> bool {
        self.events
            .iter()
            .any(|event| matches!(event, ControlEvent::Connected(connected) if *connected == id))
    }

    /// Returns the frames of one connection.
    fn frames(&self, id: ConnectionId) -> Vec<&Frame> {
        let frames = self.events.iter().filter_map(|event| match event {
            ControlEvent::Frame(from, frame) if *from == id => Some(frame),
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
    let called_id = run(&mut caller, &mut called, |caller, called| {
        called.poll();
        called.events.iter().find_map(|event| match event {
            ControlEvent::Accepted(accepted, _) if caller.is_connected(id) => Some(*accepted),
            _ => None,
        })
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

/// A plain socket as the peer, which has sent its preamble.
fn raw_peer(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(&preamble()).unwrap();
    stream
}
