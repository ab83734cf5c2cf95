//! Each connection ends, and its end is reported.

use std::io::Read;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};

use farreach_proto::wire::{Decoder, PREAMBLE_LEN};

use super::*;

#[test]
fn the_last_words_arrive_before_the_end() {
    let ((mut caller, to), _) = assert_last_words_arrive(pair());
    assert_eq!(caller.control.unfinished(), 0);
    assert!(caller.closed(to).is_none() && caller.frames(to).is_empty(), "it was closed here");
    assert_eq!(caller.control.peer_addr(to), None);
    caller.control.send(to, &Frame::Goodbye).unwrap();
}

#[test]
fn an_end_in_the_middle_of_a_frame_is_told_as_such() {
    let (mut called, address) = Side::listening();
    let mut peer = raw_peer(address);
    peer.write_all(&[0, 0, 0, 100, 1, 2]).unwrap();
    let id = called.until_accepted();
    peer.read_exact(&mut [0; PREAMBLE_LEN]).unwrap();
    drop(peer);
    let reason = called.until_closed(id);
    assert!(reason.to_string().ends_with("the peer closed it in the middle of a frame"), "{reason}");
}

#[test]
fn a_killed_process_is_told_at_once() {
    let (mut called, address) = Side::listening();
    // From here on only that process owns the socket.
    let socket = OwnedFd::from(raw_peer(address));
    let mut peer = Command::new("sleep").arg("1000").stdin(Stdio::from(socket)).spawn().unwrap();
    let id = called.until_accepted();
    called.control.sleep(Some(Duration::from_millis(50))).unwrap();
    called.poll();
    assert_eq!(called.closed(id), None, "it lives");
    peer.kill().unwrap();
    let killed = Instant::now();
    let reason = called.until_closed(id);
    assert!(killed.elapsed() < Duration::from_secs(1), "{:?}", killed.elapsed());
    peer.wait().unwrap();
    assert!(matches!(reason, CloseReason::Ended { .. } | CloseReason::Closed { .. }), "{reason}");
}

/// The peer's last frame and its reset arrive together: the frame is delivered, although a write
/// fails first.
#[test]
fn a_word_before_a_reset_is_not_lost() {
    let (mut called, address) = Side::listening();
    let mut peer = raw_peer(address);
    let id = called.until_accepted();
    let mut bytes = Vec::new();
    encode(&Frame::Goodbye, &mut bytes).unwrap();
    peer.write_all(&bytes).unwrap();
    // The peer has not read the preamble, so its close is a reset.
    drop(peer);
    std::thread::sleep(Duration::from_millis(20));
    called.control.send(id, &Frame::Ping { nonce: 1 }).unwrap();
    called.until_closed(id);
    assert_eq!(called.frames(id), [&Frame::Goodbye]);
}

#[test]
fn a_peer_that_does_not_read_is_given_up() {
    let (mut called, address) = Side::listening();
    let mut peer = raw_peer(address);
    let id = called.until_accepted();
    let message = Frame::Message { sequence: 1, bytes: vec![0; 60_000] };
    let mut sent = 0_usize;
    let reason = loop {
        called.control.send(id, &message).unwrap();
        sent += 60_000;
        called.poll();
        if let Some(reason) = called.closed(id) {
            break reason;
        }
        assert!(sent < 100 << 20, "nothing bounds what waits");
    };
    assert!(sent > 16 << 20, "{sent}");
    assert!(
        reason.to_string().ends_with("the peer does not read, and more than 16 MiB are queued for it"),
        "{reason}"
    );
    assert_eq!(called.control.peer_addr(id), None);
    // The peer receives whole frames as far as it can read.
    let mut bytes = Vec::new();
    let _ = peer.read_to_end(&mut bytes);
    let mut decoder = Decoder::new();
    decoder.feed(&bytes[PREAMBLE_LEN..]);
    while let Some(frame) = decoder.next().unwrap() {
        assert_eq!(frame, message);
    }
}

#[test]
fn a_peer_that_reads_late_gets_all() {
    /// More than fits into the buffers of both sockets.
    const MESSAGES: u64 = 150;
    let ((mut caller, to), (mut called, from)) = pair();
    for sequence in 0..MESSAGES {
        caller.control.send(to, &Frame::Message { sequence, bytes: vec![sequence as u8; 60_000] }).unwrap();
    }
    run(&mut caller, &mut called, |_, called| (called.frames(from).len() == MESSAGES as usize).then_some(()));
    for (sequence, frame) in called.frames(from).into_iter().enumerate() {
        assert_eq!(frame, &Frame::Message { sequence: sequence as u64, bytes: vec![sequence as u8; 60_000] });
    }
    assert_eq!(caller.closed(to), None);
}

/// The peer of a connection that was closed here never ends it.
#[test]
fn who_does_not_leave_is_left() {
    let (mut called, address) = Side::listening();
    let peer = raw_peer(address);
    let id = called.until_accepted();
    called.control.close(id);
    let closed = Instant::now();
    called.until(|side| side.control.lingering.due().is_none().then_some(()));
    assert!(closed.elapsed() > Duration::from_secs(1), "it was given time");
    drop(peer);
}

/// A peer has connected, or was connected to, and sends no preamble.
#[test]
fn a_handshake_that_takes_too_long_times_out() {
    let (mut side, address) = Side::listening();
    side.control.set_handshake_timeout(Duration::from_millis(200));
    side.control.handshake_timeouts.1 = Duration::from_millis(300);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut slow = raw_peer(address);
    let from = side.until_accepted();
    let silent = TcpStream::connect(address).unwrap();
    let called = side.control.connect(listener.local_addr().unwrap(), RecordLayer::Plain).unwrap();
    let both = side.until(|side| {
        let closed = side.events.iter().filter(|event| matches!(event, ControlEvent::Closed(..)));
        (closed.count() == 2).then(|| side.closed(called).unwrap())
    });
    assert!(both.to_string().ends_with("the handshake was not complete within 300ms"), "{both}");
    assert!(both.fix().contains("neither stopped nor busy"), "{}", both.fix());
    assert_eq!(side.closed(from), None, "this one has");
    let mut bytes = Vec::new();
    encode(&Frame::Goodbye, &mut bytes).unwrap();
    slow.write_all(&bytes).unwrap();
    side.until(|side| (side.frames(from).len() == 1).then_some(()));
    drop(silent);
}
