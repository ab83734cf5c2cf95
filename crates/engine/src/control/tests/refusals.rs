//! Peers with another protocol or version are refused, and both sides can say why.

use std::io::{ErrorKind, Read};
use std::net::TcpListener;

use farreach_proto::wire::VERSION;

use super::*;

/// The preamble of another version.
fn preamble_of(version: u16) -> Vec<u8> {
    let mut bytes = preamble().to_vec();
    let at = bytes.len() - 2;
    bytes[at..].copy_from_slice(&version.to_be_bytes());
    bytes
}

/// Returns all bytes that the peer receives until an orderly end.
fn read_to_end(side: &mut Side, peer: &mut TcpStream) -> Vec<u8> {
    peer.set_nonblocking(true).unwrap();
    let mut bytes = Vec::new();
    let deadline = Instant::now() + PATIENCE;
    loop {
        side.poll();
        match peer.read_to_end(&mut bytes) {
            Ok(_) => return bytes,
            Err(error) if error.kind() == ErrorKind::WouldBlock => assert!(Instant::now() < deadline),
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn an_older_caller_is_told_apart_and_learns_our_version() {
    for (theirs, to_upgrade) in [(VERSION - 1, "upgrade the peer"), (VERSION + 1, "upgrade this side")] {
        let (mut called, address) = Side::listening();
        let mut peer = TcpStream::connect(address).unwrap();
        // The peer sends much more at once, as one that does not wait for an answer does.
        let mut said = preamble_of(theirs);
        said.resize(200_000, 7);
        peer.write_all(&said).unwrap();
        let reason = called.until(|side| side.any_closed());
        let sentence = format!("version {theirs}, this side has {VERSION}: {to_upgrade}");
        assert!(reason.to_string().contains(&sentence), "{reason}");
        assert_eq!(called.events.len(), 1, "nothing else is reported: {:?}", called.events);
        assert_eq!(
            read_to_end(&mut called, &mut peer),
            preamble(),
            "so that it names the side to upgrade, too"
        );
    }
}

#[test]
fn an_engine_of_another_version_is_told_apart_by_its_caller() {
    for (theirs, to_upgrade) in [(VERSION - 1, "upgrade the peer"), (VERSION + 1, "upgrade this side")] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut caller = Side::new();
        let id = caller.control.connect(listener.local_addr().unwrap(), RecordLayer::Plain).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        peer.write_all(&preamble_of(theirs)).unwrap();
        let reason = caller.until_closed(id);
        assert!(reason.to_string().ends_with(to_upgrade), "{reason}");
        assert!(!caller.is_connected(id));
        assert_eq!(read_to_end(&mut caller, &mut peer), preamble());
    }
}

#[test]
fn a_stranger_is_refused_at_its_first_byte() {
    for said in ["GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "S"] {
        let (mut called, address) = Side::listening();
        let mut peer = TcpStream::connect(address).unwrap();
        peer.write_all(said.as_bytes()).unwrap();
        let reason = called.until(|side| side.any_closed());
        assert!(reason.to_string().ends_with("the other side is not a farreach engine"), "{reason}");
        assert!(reason.to_string().contains(&peer.local_addr().unwrap().to_string()), "{reason}");
        read_to_end(&mut called, &mut peer);
    }
}

#[test]
fn a_frame_that_means_nothing_ends_the_connection() {
    let (mut called, address) = Side::listening();
    let mut peer = raw_peer(address);
    peer.write_all(&[0, 0, 0, 2, 255, 255]).unwrap();
    let id = called.until_accepted();
    let reason = called.until_closed(id);
    assert!(reason.to_string().ends_with("a frame of 2 bytes cannot be decoded"), "{reason}");
    // The same as the first frame: it is not a peer.
    let (mut called, address) = Side::listening();
    let mut peer = TcpStream::connect(address).unwrap();
    peer.write_all(&preamble()).unwrap();
    peer.write_all(&[0, 0, 0, 2, 255, 255]).unwrap();
    let reason = called.until(|side| side.any_closed());
    assert!(reason.to_string().ends_with("a frame of 2 bytes cannot be decoded"), "{reason}");
    assert_eq!(called.events.len(), 1, "{:?}", called.events);
}

#[test]
fn nobody_there_is_told_with_what_to_do() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut caller = Side::new();
    let id = caller.control.connect(free, RecordLayer::Plain).unwrap();
    let reason = caller.until_closed(id);
    assert_eq!(reason.to_string(), format!("connect to {free}: connection refused"));
    assert!(reason.fix().contains(&free.port().to_string()), "{}", reason.fix());
}

#[test]
fn no_way_there_is_told_at_once() {
    let mut caller = Side::new();
    // A broadcast address, to which TCP has no route on any host.
    let nowhere = "255.255.255.255:18520".parse().unwrap();
    let id = caller.control.connect(nowhere, RecordLayer::Plain).unwrap();
    let reason = caller.until_closed(id);
    assert!(
        reason.to_string().starts_with("connect to 255.255.255.255:18520: network is unreachable"),
        "{reason}"
    );
    assert!(reason.fix().contains("ip route"), "{}", reason.fix());
}
