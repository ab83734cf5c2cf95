//! Tests of adopted streams whose TLS session was begun elsewhere.

use std::io::Read;
use std::net::TcpListener;
use std::thread;

use farreach_proto::wire::encode;

use super::*;
use crate::ControlStream;

fn streams() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (one, listener.accept().unwrap().0)
}

fn adopt(side: &mut Side, stream: TcpStream, session: impl Into<TlsSession>) -> ConnectionId {
    let peer = stream.peer_addr().unwrap();
    side.control.adopt(ControlStream::tls(stream, session), peer).unwrap()
}

#[test]
fn a_session_that_is_not_begun_is_begun() {
    let ((here, there), (one, other)) = (friends(), streams());
    let (mut a, mut b) = (Side::new(), Side::new());
    let to_b = adopt(&mut a, one, here.connecting("127.0.0.1").unwrap());
    let to_a = adopt(&mut b, other, there.accepting().unwrap());
    run(&mut a, &mut b, |a, b| (a.is_connected(to_b) && b.is_connected(to_a)).then_some(()));
}

/// Both sides have exchanged data over the session. One side has sent its preamble and a frame
/// before the other side has given the stream to its engine, so they are decrypted in the session
/// already.
#[test]
fn what_a_session_has_decrypted_is_not_lost() {
    let ((here, there), (mut one, mut other)) = (friends(), streams());
    let mut said = b"how many?".to_vec();
    said.extend(preamble());
    let message = Frame::Message { sequence: 1, bytes: vec![7; 3000] };
    encode(&message, &mut said).unwrap();
    let exchanger = thread::spawn(move || {
        let mut session = here.connecting("127.0.0.1").unwrap();
        let mut exchange = rustls::Stream::new(&mut *session, &mut one);
        exchange.write_all(&said).unwrap();
        let mut answer = [0; 3];
        exchange.read_exact(&mut answer).unwrap();
        (one, session)
    });
    let mut session = there.accepting().unwrap();
    let mut exchange = rustls::Stream::new(&mut *session, &mut other);
    exchange.read_exact(&mut [0; 9]).unwrap();
    exchange.write_all(b"two").unwrap();
    let (_one, _session) = exchanger.join().unwrap();
    let mut side = Side::new();
    let id = adopt(&mut side, other, session);
    let begun = Instant::now();
    side.until(|side| (side.events.len() == 2).then_some(()));
    assert!(begun.elapsed() < Duration::from_secs(5), "it waits for the socket");
    assert!(side.is_connected(id));
    assert_eq!(side.frames(id), [&message]);
}

/// Data that the session has read and not decrypted is kept too, and so is an incomplete record.
#[test]
fn what_a_session_has_read_is_not_lost() {
    let ((here, there), (mut one, mut other)) = (friends(), streams());
    let exchanger = thread::spawn(move || {
        let mut session = here.connecting("127.0.0.1").unwrap();
        session.complete_io(&mut one).unwrap();
        (one, session)
    });
    let mut session = there.accepting().unwrap();
    session.complete_io(&mut other).unwrap();
    let (mut one, mut talking) = exchanger.join().unwrap();
    let mut said = preamble().to_vec();
    encode(&Frame::Ping { nonce: 1 }, &mut said).unwrap();
    let mut bytes = Vec::new();
    for half in said.chunks(said.len().div_ceil(2)) {
        talking.writer().write_all(half).unwrap();
        talking.write_tls(&mut bytes).unwrap();
    }
    // One record and a part of the next.
    let cut = bytes.len() - 10;
    assert_eq!(session.read_tls(&mut &bytes[..cut]).unwrap(), cut);
    let mut side = Side::new();
    let id = adopt(&mut side, other, session);
    side.poll();
    assert!(side.events.is_empty(), "{:?}", side.events);
    one.write_all(&bytes[cut..]).unwrap();
    side.until(|side| (side.events.len() == 2).then_some(()));
    assert!(side.is_connected(id));
    assert_eq!(side.frames(id), [&Frame::Ping { nonce: 1 }]);
}

/// Data that the caller has written to the session and that was not sent yet is sent.
#[test]
fn what_a_session_has_not_written_is_not_lost() {
    let ((here, there), (mut one, mut other)) = (friends(), streams());
    let listener = thread::spawn(move || {
        let mut session = there.accepting().unwrap();
        let mut exchange = rustls::Stream::new(&mut *session, &mut other);
        let mut heard = [0; 5];
        exchange.read_exact(&mut heard).unwrap();
        (other, session, heard)
    });
    let mut session = here.connecting("127.0.0.1").unwrap();
    session.complete_io(&mut one).unwrap();
    session.writer().write_all(b"hello").unwrap();
    let (mut a, mut b) = (Side::new(), Side::new());
    let to_b = adopt(&mut a, one, session);
    let (other, session, heard) = listener.join().unwrap();
    assert_eq!(&heard, b"hello");
    let to_a = adopt(&mut b, other, session);
    run(&mut a, &mut b, |a, b| (a.is_connected(to_b) && b.is_connected(to_a)).then_some(()));
}

#[test]
fn a_plain_peer_of_a_begun_session_is_told() {
    let ((here, there), (one, other)) = (friends(), streams());
    let (mut a, mut b) = (Side::new(), Side::new());
    let to_b = adopt(&mut a, one, here.connecting("127.0.0.1").unwrap());
    let peer = other.peer_addr().unwrap();
    let to_a = b.control.adopt(other.into(), peer).unwrap();
    let (secure, plain) = run(&mut a, &mut b, |a, b| a.closed(to_b).zip(b.closed(to_a)));
    assert!(matches!(secure, CloseReason::TlsNotThere { .. }), "{secure}");
    assert!(matches!(plain, CloseReason::TlsNotHere { .. }), "{plain}");
    drop(there);
}
