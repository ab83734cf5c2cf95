//! Budgets of connections: at the limit all is well, and one beyond is told which budget it is.

use std::io::{ErrorKind, Read};
use std::net::TcpListener;

use farreach_proto::wire::{Decoder, PREAMBLE_LEN};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{AddressFamily, SocketType};

use super::*;
use crate::control::exceeded::Exceeded;
use crate::control::handshakes::GRACE;
use crate::control::{LINGERING_MAX, REFUSED_MAX};

fn budgets() -> ControlBudgets {
    ControlBudgets::default()
}

/// Connects from another address of loopback.
fn connect_from(source: [u8; 4], to: SocketAddr) -> TcpStream {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&socket, &SocketAddr::from((source, 0))).unwrap();
    rustix::net::connect(&socket, &to).unwrap();
    socket.into()
}

/// Polls the side until the peer's connection has ended in order. Returns the frames that the peer
/// has received after the preamble.
pub(super) fn frames_until_end(side: &mut Side, mut peer: &TcpStream) -> Vec<Frame> {
    peer.set_nonblocking(true).unwrap();
    let (mut bytes, deadline) = (Vec::new(), Instant::now() + PATIENCE);
    while let Err(error) = peer.read_to_end(&mut bytes) {
        assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
        assert!(Instant::now() < deadline, "the connection has not ended");
        side.poll();
    }
    assert_eq!(bytes[..PREAMBLE_LEN], preamble());
    let mut decoder = Decoder::new();
    decoder.feed(&bytes[PREAMBLE_LEN..]);
    let frames = std::iter::from_fn(|| decoder.next().unwrap()).collect();
    assert!(decoder.is_empty());
    frames
}

/// Returns whether the side has not ended the connection.
pub(super) fn is_open(peer: &TcpStream) -> bool {
    let mut polled = [PollFd::new(peer, PollFlags::RDHUP)];
    rustix::event::poll(&mut polled, Some(&Timespec::default())).unwrap() == 0
}

pub(super) fn refusal(exceeded: Exceeded) -> Frame {
    Frame::Refused { reason: exceeded.to_string() }
}

impl Side {
    /// Accepts connections until this many are in their handshake.
    fn until_handshakes(&mut self, count: usize) {
        self.until(|side| (side.control.handshakes.accepted() == count).then_some(()));
    }

    fn until_peers(&mut self, count: u32) {
        self.until(|side| (side.control.admission.count() == count).then_some(()));
    }

    /// Returns the budgets that were reported as exceeded, with the refused addresses.
    fn exceeded(&self) -> Vec<(SocketAddr, Exceeded)> {
        let reported = self.events.iter().filter_map(|event| match event {
            ControlEvent::Closed(_, CloseReason::OverBudget { peer, exceeded }) => Some((*peer, *exceeded)),
            _ => None,
        });
        reported.collect()
    }
}

/// A stranger costs nothing but its socket until its first frame is complete, and has a deadline
/// for all of it.
#[test]
fn a_preamble_alone_is_no_peer_and_slow_bytes_get_no_more_time() {
    let (mut side, address) = Side::listening();
    let timeout = Duration::from_secs(3600);
    side.control.set_handshake_timeout(timeout);
    let mut slow = TcpStream::connect(address).unwrap();
    slow.set_nodelay(true).unwrap();
    let said = introduction();
    // All but the last byte, one by one.
    for byte in &said[..said.len() - 1] {
        slow.write_all(&[*byte]).unwrap();
        side.poll();
    }
    side.until_handshakes(1);
    side.ahead = timeout - Duration::from_secs(60);
    side.poll();
    assert!(is_open(&slow) && side.events.is_empty(), "{:?}", side.events);
    slow.write_all(&said[said.len() - 1..]).unwrap();
    let from = side.until_accepted();
    assert_eq!(side.control.handshakes.accepted(), 0);
    // The same with the deadline in between: each byte would have been in time.
    let mut slow = TcpStream::connect(address).unwrap();
    slow.write_all(&said[..said.len() - 1]).unwrap();
    side.until_handshakes(1);
    side.ahead += timeout + Duration::from_secs(60);
    let reason = side.until(|side| side.any_closed());
    assert!(matches!(reason, CloseReason::HandshakeTimedOut { .. }), "{reason}");
    assert!(reason.to_string().ends_with("the handshake was not complete within 3600s"), "{reason}");
    assert!(!is_open(&slow));
    assert_eq!(side.closed(from), None, "a peer has no such deadline");
}

#[test]
fn one_handshake_beyond_the_limit_ends_the_oldest() {
    let (mut side, address) = Side::listening_with(ControlBudgets { handshakes: 4, ..budgets() });
    let silent: Vec<_> = (0..4).map(|_| TcpStream::connect(address).unwrap()).collect();
    side.until_handshakes(4);
    assert!(silent.iter().all(is_open) && side.events.is_empty(), "{:?}", side.events);
    let mut newcomer = TcpStream::connect(address).unwrap();
    let exceeded = Exceeded::Handshakes(4);
    assert_eq!(frames_until_end(&mut side, &silent[0]), [refusal(exceeded)]);
    assert!(silent[1..].iter().all(is_open) && is_open(&newcomer));
    assert_eq!(side.exceeded(), [(silent[0].local_addr().unwrap(), exceeded)]);
    newcomer.write_all(&introduction()).unwrap();
    side.until_accepted();
    side.until_handshakes(3);
    assert_eq!(side.control.connections.len(), 4);
}

/// Any process of this host may use any address of loopback.
#[test]
fn one_handshake_of_an_address_beyond_its_limit_ends_the_oldest_of_the_address() {
    let budgets = ControlBudgets { handshakes: 100, handshakes_per_address: 2, ..budgets() };
    let (mut side, address) = Side::listening_with(budgets);
    let [first, second] = [2, 3].map(|last| {
        let stranger = connect_from([127, 0, 0, last], address);
        side.until_handshakes(usize::from(last) - 1);
        stranger
    });
    side.ahead = GRACE;
    side.poll();
    assert!(is_open(&first) && is_open(&second) && side.events.is_empty());
    let newcomer = TcpStream::connect(address).unwrap();
    let exceeded = Exceeded::HandshakesPerAddress(2);
    assert_eq!(frames_until_end(&mut side, &first), [refusal(exceeded)]);
    assert!(is_open(&second) && is_open(&newcomer));
}

/// Idle strangers hold nobody up, however many there are, and are reported once.
#[test]
fn two_thousand_idle_strangers_keep_nobody_out() {
    const STRANGERS: usize = 2000;
    raise_file_limit(2 * STRANGERS as u64 + 200);
    let (mut side, address) = Side::listening();
    let mut strangers = Vec::new();
    let mut honest = Vec::new();
    for number in 0..STRANGERS {
        // Some send a byte of a preamble, and some all of it.
        let mut stranger = TcpStream::connect(address).unwrap();
        stranger.write_all(&preamble()[..[0, 1, PREAMBLE_LEN][number % 3]]).unwrap();
        strangers.push(stranger);
        if number % 200 == 0 {
            honest.push(raw_peer(address));
            side.until_peers(honest.len() as u32);
        }
        side.poll();
    }
    let most = budgets().handshakes as usize;
    assert!(side.control.handshakes.accepted() <= most);
    assert!(side.control.connections.len() <= most + honest.len());
    assert!(honest.iter().all(is_open));
    let reported = side.exceeded().len();
    assert!((1..=2).contains(&reported), "{reported} reports for {STRANGERS}");
}

#[test]
fn one_peer_beyond_the_limit_is_refused_until_another_one_has_gone() {
    let (mut side, address) = Side::listening_with(ControlBudgets { peers: 2, ..budgets() });
    let peers = [raw_peer(address), raw_peer(address)];
    side.until_peers(2);
    let exceeded = Exceeded::Peers(2);
    for _ in 0..3 {
        let third = raw_peer(address);
        assert_eq!(frames_until_end(&mut side, &third), [refusal(exceeded)]);
    }
    assert_eq!(side.exceeded().len(), 1, "once for all");
    let accepted: Vec<_> = side.accepted();
    assert_eq!(accepted.len(), 2, "{:?}", side.events);
    assert_eq!(side.control.admission.count(), 2);
    // The end of a connection makes room, whichever side ends it.
    let [first, second] = peers;
    drop(first);
    side.until_peers(1);
    let third = raw_peer(address);
    side.until_peers(2);
    side.control.close(*side.accepted().last().unwrap());
    assert_eq!(side.control.admission.count(), 1);
    let fourth = raw_peer(address);
    side.until_peers(2);
    assert!(is_open(&second) && is_open(&fourth));
    assert!(!is_open(&third), "it was closed here");
    // A later refusal is reported again.
    side.ahead = Duration::from_secs(10);
    assert_eq!(frames_until_end(&mut side, &raw_peer(address)), [refusal(exceeded)]);
    assert_eq!(side.exceeded().len(), 2);
}

#[test]
fn one_peer_of_an_address_beyond_its_limit_is_refused() {
    let (mut side, address) = Side::listening_with(ControlBudgets { peers_per_address: 1, ..budgets() });
    let _first = raw_peer(address);
    side.until_peers(1);
    let exceeded = Exceeded::PeersPerAddress(1);
    assert_eq!(frames_until_end(&mut side, &raw_peer(address)), [refusal(exceeded)]);
    // Another address of loopback is the same host.
    let mut other = connect_from([127, 0, 0, 2], address);
    other.write_all(&introduction()).unwrap();
    assert_eq!(frames_until_end(&mut side, &other), [refusal(exceeded)]);
    side.until_peers(1);
}

/// Only accepted peers count.
#[test]
fn peers_that_this_side_connects_to_do_not_count() {
    let budgets = ControlBudgets { peers: 1, handshakes: 1, ..budgets() };
    let (mut side, address) = Side::listening_with(budgets);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut ends = Vec::new();
    for number in 0..4 {
        let to = listener.local_addr().unwrap();
        let id = match number % 2 {
            0 => side.control.connect(to, RecordLayer::Plain).unwrap(),
            _ => side.control.adopt(TcpStream::connect(to).unwrap().into(), to).unwrap(),
        };
        ends.push((listener.accept().unwrap().0, id));
    }
    let _accepted = raw_peer(address);
    side.until_peers(1);
    for (end, id) in &mut ends {
        end.write_all(&introduction()).unwrap();
        side.until(|side| side.is_connected(*id).then_some(()));
    }
    assert_eq!(side.control.admission.count(), 1);
    ends.clear();
    side.until(|side| (side.control.connections.len() == 1).then_some(()));
    assert_eq!(side.control.admission.count(), 1);
}

/// Refused strangers that never close their ends hold few descriptors.
#[test]
fn refused_strangers_linger_in_a_room_of_their_own() {
    let (mut side, address) = Side::listening_with(ControlBudgets { peers: 1, ..budgets() });
    let peer = raw_peer(address);
    side.until_peers(1);
    let mut strangers = Vec::new();
    for number in 0..REFUSED_MAX + 20 {
        let mut stranger = TcpStream::connect(address).unwrap();
        // Some would be peers, and some are something else.
        let said = if number % 2 == 0 { introduction() } else { b"GET /".to_vec() };
        stranger.write_all(&said).unwrap();
        strangers.push(stranger);
        side.until(|side| {
            let is_done = side.control.refused.count() == REFUSED_MAX.min(number + 1);
            (is_done && side.control.connections.len() == 1).then_some(())
        });
    }
    assert!(is_open(&peer));
    assert_eq!(side.control.lingering.count(), 0, "its {LINGERING_MAX} places are for peers");
}

/// Bytes of this many pings.
fn pings(count: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    (0..count).for_each(|nonce| encode(&Frame::Ping { nonce }, &mut bytes).unwrap());
    bytes
}

impl Side {
    /// Polls until nothing more comes: a connection that is not paused has delivered everything.
    fn drain(&mut self) {
        std::thread::sleep(Duration::from_millis(20));
        while self.poll() > 0 || !self.control.unread.is_empty() {}
    }

    /// Polls, and lets a second pass each time, until `holds` returns a value.
    fn in_seconds<T>(&mut self, mut holds: impl FnMut(&mut Self) -> Option<T>) -> T {
        for _ in 0..1000 {
            self.drain();
            if let Some(value) = holds(self) {
                return value;
            }
            self.ahead += Duration::from_secs(1);
        }
        panic!("told so far: {:?}", self.events);
    }

    /// Polls without long sleeps, until `holds` returns a value: peers in the test read in between.
    fn while_peers_read<T>(&mut self, mut holds: impl FnMut(&mut Self) -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            self.poll();
            if let Some(value) = holds(self) {
                return value;
            }
            assert!(Instant::now() < deadline, "told so far: {:?}", self.events);
            self.sleep(Duration::from_millis(1));
        }
    }

    /// Returns how long a sleep of this length lasts.
    fn sleep(&mut self, timeout: Duration) -> Duration {
        let begun = Instant::now();
        self.control.sleep(Some(timeout)).unwrap();
        begun.elapsed()
    }
}

#[test]
fn frames_beyond_the_rate_wait_and_those_of_others_do_not() {
    let (mut side, address) = Side::listening_with(ControlBudgets { frames_per_second: 100, ..budgets() });
    side.stopped = Some(Instant::now());
    let mut fast = raw_peer(address);
    let id = side.until_accepted();
    fast.write_all(&pings(250)).unwrap();
    side.drain();
    assert_eq!(side.frames(id).len(), 99, "and a hello");
    let mut other = raw_peer(address);
    other.write_all(&pings(99)).unwrap();
    side.until(|side| (side.accepted().len() == 2).then_some(()));
    let other_id = side.accepted()[1];
    side.until(|side| (side.frames(other_id).len() == 99).then_some(()));
    assert_eq!(side.closed(id), None);
    // In another second come another hundred, and then the rest.
    side.ahead += Duration::from_secs(1);
    side.drain();
    assert_eq!(side.frames(id).len(), 199);
    side.in_seconds(|side| (side.frames(id).len() == 250).then_some(()));
    let nonces = side.frames(id).into_iter().enumerate();
    nonces.for_each(|(nonce, frame)| assert_eq!(*frame, Frame::Ping { nonce: nonce as u64 }));
}

#[test]
fn bytes_beyond_the_rate_wait() {
    const RATE: u64 = 128 << 10;
    let (mut side, address) = Side::listening_with(ControlBudgets { bytes_per_second: RATE, ..budgets() });
    side.stopped = Some(Instant::now());
    let mut fast = raw_peer(address);
    let id = side.until_accepted();
    let message = Frame::Message { sequence: 0, bytes: vec![7; 1000] };
    let mut bytes = Vec::new();
    (0..300).for_each(|_| encode(&message, &mut bytes).unwrap());
    fast.write_all(&bytes).unwrap();
    side.drain();
    let each = (bytes.len() / 300) as u64;
    let whole = (RATE - introduction().len() as u64) / each;
    assert_eq!(side.frames(id).len() as u64, whole);
    side.in_seconds(|side| (side.frames(id).len() == 300).then_some(()));
    assert!(side.frames(id).iter().all(|frame| **frame == message));
}

/// A connection with one frame a second, which it has used, and more to read. By the clock of the
/// kernel it waits for an hour.
fn paused() -> (Side, TcpStream, ConnectionId) {
    let (mut side, address) = Side::listening_with(ControlBudgets { frames_per_second: 1, ..budgets() });
    side.control.set_handshake_timeout(Duration::MAX);
    (side.stopped, side.ahead) = (Some(Instant::now()), Duration::from_secs(3600));
    let mut peer = raw_peer(address);
    peer.write_all(&pings(1)).unwrap();
    let id = side.until_accepted();
    side.drain();
    assert!(side.frames(id).is_empty() && !side.control.paused.is_empty());
    (side, peer, id)
}

#[test]
fn a_connection_that_waits_for_tokens_ends_no_sleep() {
    let (mut side, mut peer, id) = paused();
    peer.write_all(&pings(10)).unwrap();
    let short = Duration::from_millis(50);
    assert!(side.sleep(short) >= short, "unread bytes end the sleep");
    // A reset is reported to the poller without end, but ends one sleep only.
    drop(peer);
    side.drain();
    side.sleep(short);
    side.poll();
    assert!(side.sleep(short) >= short, "a reset ends the sleep");
    assert_eq!(side.closed(id), None);
    side.in_seconds(|side| side.closed(id));
    assert!(side.control.paused.is_empty());
    assert_eq!(side.control.admission.count(), 0);
}

#[test]
fn a_sleep_ends_when_there_are_tokens() {
    let (mut side, address) = Side::listening_with(ControlBudgets { frames_per_second: 2, ..budgets() });
    let mut peer = raw_peer(address);
    peer.write_all(&pings(4)).unwrap();
    let id = side.until_accepted();
    side.until(|side| (side.frames(id).len() == 4).then_some(()));
}

#[test]
fn a_connection_that_waits_for_tokens_is_written_to_and_closed_in_order() {
    let (mut side, mut peer, id) = paused();
    // More than the socket takes at once.
    let message = Frame::Message { sequence: 0, bytes: vec![7; 60_000] };
    (0..200).for_each(|_| side.control.send(id, &message).unwrap());
    side.control.send(id, &Frame::Goodbye).unwrap();
    peer.set_nonblocking(true).unwrap();
    let (mut decoder, mut buffer, mut received) = (Decoder::new(), vec![0; 1 << 16], Vec::new());
    let mut skipped = 0;
    side.while_peers_read(|side| {
        while let Ok(len @ 1..) = peer.read(&mut buffer) {
            let preamble = len.min(PREAMBLE_LEN - skipped);
            skipped += preamble;
            decoder.feed(&buffer[preamble..len]);
            received.extend(std::iter::from_fn(|| decoder.next().unwrap()));
        }
        assert_eq!(side.closed(id), None);
        (received.len() == 201).then_some(())
    });
    assert_eq!(received.pop(), Some(Frame::Goodbye));
    side.control.send(id, &Frame::Goodbye).unwrap();
    side.control.close(id);
    assert!(side.control.paused.is_empty());
    side.until(|_| (!is_open(&peer)).then_some(()));
}

/// Peers that do not read, with about this many bytes queued for each.
fn with_queued(side: &mut Side, address: SocketAddr, queued: &[usize]) -> Vec<(TcpStream, ConnectionId)> {
    let message = Frame::Message { sequence: 0, bytes: vec![7; 10_000] };
    let peers = queued.iter().enumerate().map(|(number, queued)| {
        let peer = raw_peer(address);
        side.until(|side| (side.accepted().len() == number + 1).then_some(()));
        let id = side.accepted()[number];
        // The kernel must not take more later.
        let stream = &side.control.connections[&id].stream;
        rustix::net::sockopt::set_socket_send_buffer_size(stream, 64 << 10).unwrap();
        while side.control.connections[&id].unwritten() < *queued {
            side.control.send(id, &message).unwrap();
        }
        (peer, id)
    });
    peers.collect()
}

#[test]
fn bytes_beyond_the_limit_of_all_end_the_connection_with_the_most() {
    const MAX: u64 = 2_000_000;
    let (mut side, address) = Side::listening_with(ControlBudgets { queued_bytes: MAX, ..budgets() });
    let peers = with_queued(&mut side, address, &[500_000, 800_000, 600_000]);
    let unwritten = |side: &Side| side.control.connections.values().map(|it| it.unwritten()).sum::<usize>();
    assert_eq!(side.control.unwritten, unwritten(&side));
    assert!(unwritten(&side) <= MAX as usize);
    side.poll();
    assert!(peers.iter().all(|(_, id)| side.closed(*id).is_none()));
    // The one that has the least gets more.
    while side.control.connections.len() == 3 {
        side.control.send(peers[0].1, &Frame::Message { sequence: 0, bytes: vec![7; 10_000] }).unwrap();
    }
    let reason = side.until_closed(peers[1].1);
    let told =
        "the peer does not read, and more than 2000000 bytes are queued for all peers, most of them for it";
    assert!(
        reason.to_string().contains(told) && reason.to_string().contains("`Budgets::queued_bytes`"),
        "{reason}"
    );
    assert!(side.closed(peers[0].1).is_none() && side.closed(peers[2].1).is_none());
    assert_eq!(side.control.unwritten, unwritten(&side));
    // A peer that reads gets everything, and leaves nothing counted.
    let mut rest = [&peers[0].0, &peers[2].0];
    rest.iter().for_each(|peer| peer.set_nonblocking(true).unwrap());
    side.while_peers_read(|side| {
        rest.iter_mut().for_each(|peer| drop(peer.read(&mut vec![0; 1 << 20])));
        (side.control.unwritten == 0).then_some(())
    });
    assert_eq!(unwritten(&side), 0);
}

/// Closed connections that still have something to write count, too.
#[test]
fn bytes_of_closed_connections_count() {
    const MAX: u64 = 2_000_000;
    for is_refused in [false, true] {
        let (mut side, address) = Side::listening_with(ControlBudgets { queued_bytes: MAX, ..budgets() });
        let peers = with_queued(&mut side, address, &[500_000, 1_200_000]);
        if is_refused {
            // As a peer does that sends a bad record while it does not read.
            let control = &mut side.control;
            let connection = control.remove(peers[1].1).unwrap();
            control.refused.add(peers[1].1, connection, &control.poller);
        } else {
            side.control.close(peers[1].1);
        }
        let left = |side: &Side| match is_refused {
            true => (side.control.refused.count(), side.control.refused.unwritten()),
            false => (side.control.lingering.count(), side.control.lingering.unwritten()),
        };
        let (count, closed) = left(&side);
        assert_eq!(count, 1);
        assert!(
            closed > side.control.unwritten && closed + side.control.unwritten <= MAX as usize,
            "{closed}"
        );
        while left(&side).0 == 1 {
            assert!(side.control.unwritten < MAX as usize);
            side.control.send(peers[0].1, &Frame::Message { sequence: 0, bytes: vec![7; 10_000] }).unwrap();
        }
        assert!(side.control.unwritten + closed > MAX as usize, "it was closed too early");
        assert_eq!(left(&side).1, 0);
        side.poll();
        assert_eq!(side.closed(peers[0].1), None);
    }
}

/// A frame in reads of a byte each costs a call to the kernel for each byte.
#[test]
fn reads_of_a_byte_are_billed() {
    let (mut side, address) = Side::listening_with(ControlBudgets { frames_per_second: 100, ..budgets() });
    let mut peer = raw_peer(address);
    let from = side.until_accepted();
    side.stopped = Some(Instant::now());
    let mut frame = Vec::new();
    encode(&Frame::Message { sequence: 1, bytes: vec![7; 150] }, &mut frame).unwrap();
    let read = |side: &Side| side.control.connections[&from].rates.reads(side.stopped.unwrap());
    peer.set_nodelay(true).unwrap();
    for byte in &frame {
        let before = read(&side);
        peer.write_all(&[*byte]).unwrap();
        side.until(|side| (read(side) < before || before == 0).then_some(()));
    }
    assert!(!side.control.paused.is_empty() && side.frames(from).is_empty());
    side.stopped = None;
    side.ahead = Duration::from_secs(1);
    side.until(|side| (side.frames(from).len() == 1).then_some(()));
    assert_eq!(side.any_closed(), None);
}
