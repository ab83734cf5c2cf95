//! Control connections that were established outside of the engine.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use farreach::{ErrorKind, PageMap, Rights};

use super::pair::{Pair, RailUnderTest, SOON, copy_of};

fn streams() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (one, listener.accept().unwrap().0)
}

pub(crate) fn a_connection_that_was_made_elsewhere_becomes_a_peer(provider: &RailUnderTest) {
    let (mut one, mut other) = streams();
    one.write_all(b"hello").unwrap();
    other.read_exact(&mut [0; 5]).unwrap();
    let (a, b) = (provider.engine("a"), provider.engine("b"));
    let (mut accepting, mut connecting) = (b.accept_over(other).unwrap(), a.connect_over(one).unwrap());
    let a_to_b = connecting.wait(SOON).unwrap();
    let b_to_a = accepting.wait(SOON).unwrap();
    assert_eq!((a_to_b.name(), b_to_a.name()), ("b", "a"));
    let nobody = b.accept().wait(Duration::from_millis(50));
    assert_eq!(nobody.unwrap_err().kind(), ErrorKind::TimedOut, "it was given to whom its stream came from");
    let pair = Pair { a, b, a_to_b, b_to_a };
    let (granted, remote) = pair.granted(64 * 4096, Rights::WRITE);
    let (arrived, raises) = pair.counter();
    let source = pair.source(64 * 4096, 3).share();
    let map = PageMap::of(4096).first(64);
    let mut transfer = pair.a_to_b.write_pages(source.clone(), &map, &remote, Some(&raises));
    arrived.reach(64).wait(SOON).unwrap();
    transfer.wait(SOON).unwrap();
    assert!(copy_of(&granted) == *source);
    let Pair { a, b: _b, a_to_b, b_to_a } = pair;
    drop((a_to_b, a));
    let lost = b_to_a.recv().wait(SOON);
    assert_eq!(lost.unwrap_err().kind(), ErrorKind::PeerLost);
}

pub(crate) fn what_becomes_of_a_stream_is_told_to_its_own_side(provider: &RailUnderTest) {
    let engine = provider.engine("a");
    for is_connecting in [true, false] {
        let (one, mut other) = streams();
        let address = one.peer_addr().unwrap().to_string();
        let begun = Instant::now();
        let mut pending =
            if is_connecting { engine.connect_over(one) } else { engine.accept_over(one) }.unwrap();
        other.write_all(b"the caller was not done yet").unwrap();
        let error = pending.wait(SOON).unwrap_err();
        assert!(begun.elapsed() < Duration::from_secs(2));
        assert!(error.to_string().contains(&address), "{error}");
        let is_told = ["not a farreach engine", "this side uses TLS, the peer does not"];
        assert!(is_told.iter().any(|told| error.cause().contains(told)), "{error}");
        assert!(!error.fix().is_empty());
    }
}
