//! Frames that are sent arrive.

use std::io::{Read, Write};
use std::time::Duration;

use farreach_proto::wire::{Frame, PREAMBLE_LEN, encode};

use super::*;

fn message(sequence: u64, len: usize) -> Frame {
    Frame::Message { sequence, bytes: vec![sequence as u8; len] }
}

#[test]
fn frames_go_both_ways_and_in_order() {
    let ((mut caller, to), (mut called, from)) = pair();
    let frames: Vec<_> = (0..1000).map(|number| message(number, number as usize * 7 % 3000)).collect();
    for frame in &frames {
        caller.control.send(to, frame).unwrap();
        called.control.send(from, frame).unwrap();
    }
    let all = frames.iter().collect::<Vec<_>>();
    run(&mut caller, &mut called, |caller, called| {
        (caller.frames(to).len() == all.len() && called.frames(from).len() == all.len()).then_some(())
    });
    assert_eq!(caller.frames(to), all);
    assert_eq!(called.frames(from), all);
}

/// One call to the kernel writes many frames, so that a peer that causes many answers causes few
/// calls.
#[test]
fn frames_are_collected_and_written_together() {
    let (mut side, address) = Side::listening();
    let mut peer = raw_peer(address);
    let id = side.until_accepted();
    peer.read_exact(&mut [0; PREAMBLE_LEN]).unwrap();
    peer.set_nonblocking(true).unwrap();
    let mut expected = Vec::new();
    for nonce in 0..100 {
        side.control.send(id, &Frame::Ping { nonce }).unwrap();
        encode(&Frame::Ping { nonce }, &mut expected).unwrap();
    }
    let mut bytes = vec![0; 2 * expected.len()];
    assert!(peer.read(&mut bytes).is_err(), "nothing is written yet");
    side.control.flush();
    let len = side.until(|_| peer.read(&mut bytes).ok());
    assert_eq!(bytes[..len], expected);
    // Much is not collected.
    side.control.send(id, &message(1, 60_000)).unwrap();
    side.control.send(id, &message(2, 60_000)).unwrap();
    side.until(|_| peer.read(&mut bytes).ok());
}

#[test]
fn what_is_said_before_the_connection_stands_goes_out_first() {
    let ((mut called, address), mut caller) = (Side::listening(), Side::new());
    let id = caller.control.connect(address, RecordLayer::Plain).unwrap();
    caller.control.send(id, &Frame::Ping { nonce: 1 }).unwrap();
    let from = run(&mut caller, &mut called, |_, called| match &called.events[..] {
        [ControlEvent::Accepted(from, _), ControlEvent::Frame(..)] => Some(*from),
        _ => None,
    });
    assert_eq!(called.frames(from), [&Frame::Ping { nonce: 1 }]);
    assert_eq!(called.control.peer_addr(from), caller.control.local_addr(id));
    assert_eq!(caller.control.peer_addr(id), Some(address));
}

#[test]
fn a_frame_in_pieces_is_one_frame() {
    let (mut called, address) = Side::listening();
    let mut peer = TcpStream::connect(address).unwrap();
    peer.set_nodelay(true).unwrap();
    let mut bytes = preamble().to_vec();
    encode(&message(1, 40), &mut bytes).unwrap();
    encode(&Frame::Goodbye, &mut bytes).unwrap();
    for byte in bytes {
        peer.write_all(&[byte]).unwrap();
        called.poll();
    }
    let from = called.until_accepted();
    called.until(|side| (side.frames(from).len() == 2).then_some(()));
    assert_eq!(called.frames(from), [&message(1, 40), &Frame::Goodbye]);
}

#[test]
fn the_longest_frame_passes_and_a_longer_one_is_handed_back() {
    let ((mut caller, to), (mut called, from)) = pair();
    let longest = message(1, farreach_proto::wire::FRAME_MAX - 16);
    caller.control.send(to, &longest).unwrap();
    assert!(caller.control.send(to, &message(2, farreach_proto::wire::FRAME_MAX)).is_err());
    caller.control.send(to, &Frame::Goodbye).unwrap();
    run(&mut caller, &mut called, |_, called| (called.frames(from).len() == 2).then_some(()));
    assert_eq!(called.frames(from), [&longest, &Frame::Goodbye]);
}

/// A peer that sends much gets its share of a poll, and no more.
#[test]
fn a_talkative_peer_does_not_silence_another() {
    let (mut called, address) = Side::listening();
    let (mut talkative, mut quiet) = (raw_peer(address), raw_peer(address));
    let mut bytes = Vec::new();
    for nonce in 0..5000 {
        encode(&Frame::Ping { nonce }, &mut bytes).unwrap();
    }
    talkative.write_all(&bytes).unwrap();
    called.until(|side| (side.events.len() > 2).then_some(()));
    let told_before = called.events.len();
    bytes.clear();
    encode(&Frame::Goodbye, &mut bytes).unwrap();
    quiet.write_all(&bytes).unwrap();
    let is_goodbye = |event: &ControlEvent| matches!(event, ControlEvent::Frame(_, Frame::Goodbye));
    called.until(|side| side.events.iter().any(is_goodbye).then_some(()));
    assert!(told_before < 500 && called.events.len() < 1000, "{told_before} and {}", called.events.len());
    let is_ping = |event: &&ControlEvent| matches!(event, ControlEvent::Frame(_, Frame::Ping { .. }));
    called.until(|side| (side.events.iter().filter(is_ping).count() == 5000).then_some(()));
}

/// A poll is bounded, so that the leader also serves the rails.
#[test]
fn one_poll_tells_a_bounded_number() {
    let (mut called, address) = Side::listening();
    let mut bytes = Vec::new();
    for nonce in 0..1000 {
        encode(&Frame::Ping { nonce }, &mut bytes).unwrap();
    }
    let mut peers: Vec<_> = (0..20).map(|_| raw_peer(address)).collect();
    for peer in &mut peers {
        peer.write_all(&bytes).unwrap();
    }
    std::thread::sleep(Duration::from_millis(50));
    let mut most = 0;
    while called.events.len() < 20 * 1002 {
        most = most.max(called.poll());
    }
    assert!(most <= crate::control::FRAMES_MAX + peers.len(), "{most}");
}

#[test]
fn a_thousand_connections_in_one_process() {
    const COUNT: usize = 1000;
    raise_file_limit(2 * COUNT as u64 + 200);
    let ((mut called, address), mut caller) = (Side::listening(), Side::new());
    let ids: Vec<_> =
        (0..COUNT).map(|_| caller.control.connect(address, RecordLayer::Plain).unwrap()).collect();
    for (number, id) in ids.iter().enumerate() {
        caller.control.send(*id, &Frame::Ping { nonce: number as u64 }).unwrap();
    }
    let mut answered = 0;
    run(&mut caller, &mut called, |caller, called| {
        for event in called.events.drain(..) {
            if let ControlEvent::Frame(id, Frame::Ping { nonce }) = event {
                called.control.send(id, &Frame::Ping { nonce }).unwrap();
                answered += 1;
            }
        }
        let is_ping = |event: &&ControlEvent| matches!(event, ControlEvent::Frame(_, Frame::Ping { .. }));
        (caller.events.iter().filter(is_ping).count() == COUNT).then_some(())
    });
    assert_eq!(answered, COUNT);
    for (number, id) in ids.iter().enumerate() {
        assert_eq!(caller.frames(*id), [&Frame::Ping { nonce: number as u64 }]);
    }
}

/// A peer that connects can read the preamble before it sends anything.
#[test]
fn the_preamble_comes_unasked() {
    let (mut called, address) = Side::listening();
    let mut peer = TcpStream::connect(address).unwrap();
    called.until(|side| (side.control.handshakes.accepted() == 1).then_some(()));
    let mut bytes = [0; PREAMBLE_LEN];
    peer.read_exact(&mut bytes).unwrap();
    assert_eq!(bytes, preamble());
}

#[test]
fn it_listens_on_several_addresses() {
    let (mut called, first) = Side::listening();
    let second = called.control.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let _peers = [raw_peer(first), raw_peer(second)];
    let is_accepted = |event: &&ControlEvent| matches!(event, ControlEvent::Accepted(..));
    called.until(|side| (side.events.iter().filter(is_accepted).count() == 2).then_some(()));
}
