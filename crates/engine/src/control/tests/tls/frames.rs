//! Frames that are sent arrive, over TLS.

use std::io::Read;

use farreach_proto::wire::{FRAME_MAX, PREAMBLE_LEN, encode};

use super::*;

fn message(sequence: u64, len: usize) -> Frame {
    Frame::Message { sequence, bytes: vec![sequence as u8; len] }
}

#[test]
fn frames_of_all_sizes_go_both_ways_and_in_order() {
    let ((mut caller, to), (mut called, from)) = secure_pair();
    let mut frames: Vec<_> = (0..300).map(|number| message(number, number as usize * 211)).collect();
    frames.push(message(300, FRAME_MAX - 16));
    for frame in &frames {
        caller.control.send(to, frame).unwrap();
        called.control.send(from, frame).unwrap();
    }
    assert!(caller.control.send(to, &message(2, FRAME_MAX)).is_err(), "a longer one is handed back");
    let all = frames.iter().collect::<Vec<_>>();
    run(&mut caller, &mut called, |caller, called| {
        (caller.frames(to).len() == all.len() && called.frames(from).len() == all.len()).then_some(())
    });
    assert!(caller.frames(to) == all && called.frames(from) == all);
    assert_eq!((caller.any_closed(), called.any_closed()), (None, None));
}

#[test]
fn what_is_said_before_the_handshake_goes_out_after_it() {
    let (here, there) = friends();
    let ((mut called, address), mut caller) = (listening_over(there), Side::new());
    let id = caller.control.connect(address, record_layer(here.connecting("127.0.0.1").unwrap())).unwrap();
    caller.control.send(id, &Frame::Ping { nonce: 1 }).unwrap();
    let from = run(&mut caller, &mut called, |_, called| match &called.events[..] {
        [ControlEvent::Accepted(from, _), ControlEvent::Frame(..)] => Some(*from),
        _ => None,
    });
    assert_eq!(called.frames(from), [&Frame::Ping { nonce: 1 }]);
}

/// A peer made of a plain socket and a session, whose bytes arrive one at a time.
#[test]
fn a_session_in_pieces_is_one_session() {
    let (here, there) = friends();
    let (mut called, address) = listening_over(there);
    let mut peer = TcpStream::connect(address).unwrap();
    peer.set_nodelay(true).unwrap();
    peer.set_nonblocking(true).unwrap();
    let mut session = here.connecting("127.0.0.1").unwrap();
    let mut said = preamble().to_vec();
    encode(&message(1, 40), &mut said).unwrap();
    session.writer().write_all(&said).unwrap();
    let deadline = Instant::now() + PATIENCE;
    while called.accepted().first().is_none_or(|from| called.frames(*from).is_empty()) {
        assert!(Instant::now() < deadline);
        let mut bytes = Vec::new();
        session.write_tls(&mut bytes).unwrap();
        for byte in bytes {
            peer.write_all(&[byte]).unwrap();
            called.poll();
        }
        if session.read_tls(&mut peer).is_ok() {
            session.process_new_packets().unwrap();
        }
        called.poll();
    }
    let from = called.accepted()[0];
    assert_eq!(called.frames(from), [&message(1, 40)]);
}

/// An observer between both sides reads nothing in plaintext.
#[test]
fn nothing_goes_in_the_clear() {
    let (here, there) = friends();
    let (mut called, address) = listening_over(there);
    let between = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut caller = Side::new();
    let session = record_layer(here.connecting("127.0.0.1").unwrap());
    let id = caller.control.connect(between.local_addr().unwrap(), session).unwrap();
    let secret = b"the key of granted memory is 4711".repeat(10);
    caller.control.send(id, &Frame::Message { sequence: 1, bytes: secret.clone() }).unwrap();
    let ends = [between.accept().unwrap().0, TcpStream::connect(address).unwrap()];
    ends.iter().for_each(|end| end.set_nonblocking(true).unwrap());
    let mut seen = [Vec::new(), Vec::new()];
    run(&mut caller, &mut called, |_, called| {
        for (way, seen) in seen.iter_mut().enumerate() {
            let mut bytes = [0; 4096];
            if let Ok(len) = (&ends[way]).read(&mut bytes) {
                seen.extend(&bytes[..len]);
                (&ends[1 - way]).write_all(&bytes[..len]).unwrap();
            }
        }
        called.accepted().pop().filter(|from| !called.frames(*from).is_empty())
    });
    assert!(seen.iter().all(|seen| seen.len() > 500), "it went this way");
    for word in [&secret[..], &preamble()[..PREAMBLE_LEN - 2]] {
        let is_there = |seen: &Vec<u8>| seen.windows(word.len()).any(|part| part == word);
        assert!(!seen.iter().any(is_there));
    }
}
