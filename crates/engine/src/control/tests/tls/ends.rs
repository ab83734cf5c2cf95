//! Each connection ends, also in the middle of a handshake, and its end is reported.

use std::io::Read;
use std::net::TcpListener;

use super::*;

#[test]
fn the_last_words_arrive_before_the_end() {
    assert_last_words_arrive(secure_pair());
}

#[test]
fn a_peer_that_does_not_read_is_given_up() {
    let ((mut caller, to), (_called, _)) = secure_pair();
    let message = Frame::Message { sequence: 1, bytes: vec![0; 60_000] };
    let mut sent = 0_usize;
    let reason = loop {
        caller.control.send(to, &message).unwrap();
        sent += 60_000;
        caller.poll();
        if let Some(reason) = caller.closed(to) {
            break reason;
        }
        assert!(sent < 100 << 20, "nothing bounds what waits");
    };
    assert!(sent > 16 << 20, "{sent}");
    assert!(matches!(reason, CloseReason::Unread { .. }), "{reason}");
}

/// A peer that stops at some byte of the handshake, or sends nothing at all, is closed.
#[test]
fn who_stops_in_the_middle_of_the_handshake_is_given_up() {
    let (here, there) = friends();
    let mut hello = Vec::new();
    here.connecting("127.0.0.1").unwrap().write_tls(&mut hello).unwrap();
    let (mut called, address) = listening_over(there);
    called.control.set_handshake_timeout(Duration::from_millis(300));
    for said in [0, 1, hello.len() / 2, hello.len()] {
        called.events.clear();
        let mut peer = TcpStream::connect(address).unwrap();
        peer.write_all(&hello[..said]).unwrap();
        let begun = Instant::now();
        let reason = called.until(|side| side.any_closed());
        assert!(begun.elapsed() < Duration::from_secs(5) && begun.elapsed() > Duration::from_millis(200));
        assert!(reason.to_string().ends_with("the handshake was not complete within 300ms"), "{reason}");
        assert!(called.accepted().is_empty(), "it is nobody");
        assert!(called.control.connections.is_empty());
        // The peer sees the end of its connection.
        peer.set_read_timeout(Some(PATIENCE)).unwrap();
        let _ = peer.read_to_end(&mut Vec::new()).map_err(|error| {
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        });
    }
}

#[test]
fn a_caller_gives_up_who_stops_in_the_middle_of_the_handshake() {
    let (here, there) = friends();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut caller = Side::new();
    caller.control.handshake_timeouts.1 = Duration::from_millis(300);
    // One peer sends nothing, and one sends half of its first flight and then stops.
    for answers in [false, true] {
        let session = record_layer(here.connecting("127.0.0.1").unwrap());
        let id = caller.control.connect(listener.local_addr().unwrap(), session).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        if answers {
            caller.poll();
            let mut session = there.accepting().unwrap();
            while !session.wants_write() {
                session.read_tls(&mut peer).unwrap();
                session.process_new_packets().unwrap();
            }
            let mut flight = Vec::new();
            session.write_tls(&mut flight).unwrap();
            peer.write_all(&flight[..flight.len() / 2]).unwrap();
        }
        let reason = caller.until_closed(id);
        assert!(reason.to_string().ends_with("the handshake was not complete within 300ms"), "{reason}");
        assert!(!reason.fix().is_empty());
    }
}

/// The handshake is done, and the peer's connection ends in the middle of a record, or a byte of it
/// is changed.
#[test]
fn a_cut_connection_is_told_and_so_is_a_changed_byte() {
    for is_changed in [false, true] {
        let (here, there) = friends();
        let (mut called, address) = listening_over(there);
        let hand = std::thread::spawn(move || {
            let mut peer = TcpStream::connect(address).unwrap();
            let mut session = here.connecting("127.0.0.1").unwrap();
            rustls::Stream::new(&mut *session, &mut peer).write_all(&introduction()).unwrap();
            (peer, session)
        });
        let from = called.until_accepted();
        let (mut peer, mut session) = hand.join().unwrap();
        let mut bytes = Vec::new();
        session.writer().write_all(&[0; 100]).unwrap();
        session.write_tls(&mut bytes).unwrap();
        if is_changed {
            *bytes.last_mut().unwrap() ^= 1;
        } else {
            bytes.truncate(50);
        }
        peer.write_all(&bytes).unwrap();
        if !is_changed {
            drop(peer);
        }
        let reason = called.until_closed(from);
        match reason {
            CloseReason::Tls { ref cause, .. } if is_changed => {
                assert!(cause.starts_with("TLS with the peer failed"), "{reason}");
            }
            CloseReason::Ended { .. } | CloseReason::Closed { .. } if !is_changed => {}
            other => panic!("{other}"),
        }
    }
}
