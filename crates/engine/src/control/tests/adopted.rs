//! Tests of adopted streams, which were connected elsewhere.

use std::io::Read;
use std::net::TcpListener;

use farreach_proto::wire::PREAMBLE_LEN;

use super::*;

/// Two ends of one connection, in blocking mode as std creates them.
fn streams() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (one, listener.accept().unwrap().0)
}

fn adopt(side: &mut Side, stream: TcpStream) -> ConnectionId {
    let peer = stream.peer_addr().unwrap();
    side.control.adopt(stream.into(), peer).unwrap()
}

#[test]
fn both_sides_go_on_where_they_have_stopped_talking() {
    let (mut one, mut other) = streams();
    one.write_all(b"how many?").unwrap();
    other.read_exact(&mut [0; 9]).unwrap();
    other.write_all(b"two").unwrap();
    one.read_exact(&mut [0; 3]).unwrap();
    let (mut a, mut b) = (Side::new(), Side::new());
    let (to_b, to_a) = (adopt(&mut a, one), adopt(&mut b, other));
    let message = Frame::Message { sequence: 1, bytes: vec![7; 60_000] };
    a.control.send(to_b, &message).unwrap();
    b.control.send(to_a, &message).unwrap();
    run(&mut a, &mut b, |a, b| (a.frames(to_b).len() + b.frames(to_a).len() == 2).then_some(()));
    assert!(a.is_connected(to_b) && b.is_connected(to_a));
    assert_eq!((a.frames(to_b), b.frames(to_a)), (vec![&message], vec![&message]));
}

/// `Connected` is reported before any frame, and only once.
#[test]
fn it_is_told_when_the_handshake_is_done() {
    let (one, mut other) = streams();
    let mut side = Side::new();
    let id = adopt(&mut side, one);
    other.read_exact(&mut [0; PREAMBLE_LEN]).unwrap();
    side.poll();
    assert!(side.events.is_empty(), "{:?}", side.events);
    let mut said = preamble().to_vec();
    encode(&Frame::Goodbye, &mut said).unwrap();
    other.write_all(&said).unwrap();
    side.until(|side| (side.events.len() == 2).then_some(()));
    assert!(matches!(side.events[0], ControlEvent::Connected(connected) if connected == id));
    assert_eq!(side.frames(id), [&Frame::Goodbye]);
}

#[test]
fn an_adopted_stream_waits_for_nobody() {
    let (one, _other) = streams();
    let mut side = Side::new();
    adopt(&mut side, one);
    let begun = Instant::now();
    side.poll();
    assert!(begun.elapsed() < Duration::from_secs(5), "the stream blocks");
}

#[test]
fn its_end_and_a_stranger_are_told() {
    let (one, other) = streams();
    let mut side = Side::new();
    let id = adopt(&mut side, one);
    drop(other);
    let reason = side.until_closed(id);
    assert!(matches!(reason, CloseReason::Ended { .. } | CloseReason::Closed { .. }), "{reason}");
    let (one, mut other) = streams();
    let id = adopt(&mut side, one);
    other.write_all(b"still talking").unwrap();
    let reason = side.until_closed(id);
    assert!(reason.to_string().ends_with("the other side is not a farreach engine"), "{reason}");
    assert!(!side.is_connected(id));
}
