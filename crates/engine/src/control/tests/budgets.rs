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
fn frames_until_end(side: &mut Side, mut peer: &TcpStream) -> Vec<Frame> {
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
fn is_open(peer: &TcpStream) -> bool {
    let mut polled = [PollFd::new(peer, PollFlags::RDHUP)];
    rustix::event::poll(&mut polled, Some(&Timespec::default())).unwrap() == 0
}

fn refusal(exceeded: Exceeded) -> Frame {
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

#[test]
fn one_handshake_of_an_address_beyond_its_limit_ends_the_oldest_of_the_address() {
    let budgets = ControlBudgets { handshakes: 100, handshakes_per_address: 2, ..budgets() };
    let (mut side, address) = Side::listening_with(budgets);
    let other = connect_from([127, 0, 0, 2], address);
    side.until_handshakes(1);
    let same: Vec<_> = (0..2).map(|_| TcpStream::connect(address).unwrap()).collect();
    side.until_handshakes(3);
    side.ahead = GRACE;
    side.poll();
    assert!(same.iter().all(is_open) && is_open(&other) && side.events.is_empty());
    let newcomer = TcpStream::connect(address).unwrap();
    let exceeded = Exceeded::HandshakesPerAddress(2);
    assert_eq!(frames_until_end(&mut side, &same[0]), [refusal(exceeded)]);
    assert!(is_open(&same[1]) && is_open(&newcomer) && is_open(&other), "the oldest has another address");
    assert_eq!(side.exceeded(), [(same[0].local_addr().unwrap(), exceeded)]);
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
fn one_peer_of_an_address_beyond_its_limit_is_refused_and_others_are_not() {
    let (mut side, address) = Side::listening_with(ControlBudgets { peers_per_address: 1, ..budgets() });
    let _first = raw_peer(address);
    side.until_peers(1);
    let exceeded = Exceeded::PeersPerAddress(1);
    assert_eq!(frames_until_end(&mut side, &raw_peer(address)), [refusal(exceeded)]);
    let mut other = connect_from([127, 0, 0, 2], address);
    other.write_all(&introduction()).unwrap();
    side.until_peers(2);
    assert_eq!(side.exceeded().len(), 1);
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
