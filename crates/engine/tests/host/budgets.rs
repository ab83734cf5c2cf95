//! Budgets of the peers of an engine, with simulated cards and real sockets: the errors of both
//! sides at a limit, and what makes room again.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use farreach::{Budgets, Engine, Error, ErrorKind, PageMap, Peer, Rights, Settings};
use farreach_proto::wire::{Frame, Hello, encode, preamble};
use farreach_sim::{SimCard, SimNetwork, SimRail, SimSettings};
use farreach_testkit::wait_for;

use crate::suite::SOON;

fn network() -> SimNetwork {
    SimNetwork::real_time(SimSettings::new(1))
}

fn engine(network: &SimNetwork, settings: Settings) -> Engine {
    let rail = SimRail::new(network, 0, SimCard::tcp());
    Engine::over(vec![Box::new(rail)], settings).unwrap()
}

/// An engine with these budgets, and its address.
fn listening(network: &SimNetwork, budgets: Budgets) -> (Engine, SocketAddr) {
    let engine = engine(network, Settings::new().budgets(budgets));
    let address = engine.listen("127.0.0.1:0").unwrap();
    (engine, address)
}

fn connect(engine: &Engine, address: SocketAddr) -> Result<Peer, Error> {
    engine.connect(address).unwrap().wait(SOON)
}

/// The bytes of a peer that is an engine without rails.
fn introduction() -> Vec<u8> {
    introduction_with(&[])
}

/// The bytes of a peer that is an engine with rails of these kinds.
fn introduction_with(rails: &[&str]) -> Vec<u8> {
    let mut bytes = preamble().to_vec();
    let rails = rails.iter().map(|kind| (*kind).to_owned()).collect();
    encode(&Frame::Hello(Hello { rails, ..Hello::new(1) }), &mut bytes).unwrap();
    bytes
}

/// A peer that is no engine, has introduced itself, and never offers a link.
fn impostor(hub: &Engine, address: SocketAddr) -> TcpStream {
    let kind = &hub.rail_properties()[0].kind;
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(&introduction_with(&[kind])).unwrap();
    stream
}

/// Bytes of pings.
fn pings(count: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    (0..count).for_each(|nonce| encode(&Frame::Ping { nonce }, &mut bytes).unwrap());
    bytes
}

#[track_caller]
fn says(error: &Error, kind: ErrorKind, cause: &str, fix: &str) {
    assert_eq!(error.kind(), kind, "{error:?}");
    assert!(error.cause().contains(cause) && error.fix().contains(fix), "{error:?}");
}

#[test]
fn one_peer_beyond_the_limit_gets_an_error_that_names_the_budget_and_so_does_the_listener() {
    let network = network();
    let limits = [
        (Budgets::new().peers(2), "2 peers are connected, as many as `Budgets::peers` allows"),
        (
            Budgets::new().peers_per_address(2),
            "2 peers with this address are connected, as many as `Budgets::peers_per_address` allows",
        ),
    ];
    for (budgets, cause) in limits {
        let (hub, address) = listening(&network, budgets);
        let other = engine(&network, Settings::new());
        let mut peers: Vec<Peer> = (0..2).map(|_| connect(&other, address).unwrap()).collect();
        let accepted: Vec<Peer> = (0..2).map(|_| hub.accept().wait(SOON).unwrap()).collect();
        for _ in 0..3 {
            let refused = connect(&other, address).unwrap_err();
            says(
                &refused,
                ErrorKind::Connect,
                &format!("the peer refused the connection: {cause}"),
                "budgets",
            );
        }
        let error = hub.accept().wait(Duration::from_millis(20)).unwrap_err();
        says(&error, ErrorKind::Accept, cause, "Budgets::peers");
        assert!(error.to_string().starts_with("accept from 127.0.0.1:"), "{error}");
        let nobody = hub.accept().wait(Duration::from_millis(20)).unwrap_err();
        assert_eq!(nobody.kind(), ErrorKind::TimedOut, "it is reported once: {nobody:?}");
        // Peers that this engine connects to do not count.
        let back = other.listen("127.0.0.1:0").unwrap();
        connect(&hub, back).unwrap();
        // A peer that leaves makes room.
        peers.pop().unwrap().close(SOON).unwrap();
        wait_for("loss of the peer", || accepted.iter().any(|peer| peer.lost().is_some()).then_some(()));
        peers.push(connect(&other, address).unwrap());
        assert_eq!(hub.accept().wait(SOON).unwrap().lost(), None);
    }
}

/// The engine knows a lost peer for as long as its memory is granted to it. That takes no place.
#[test]
fn a_peer_that_is_lost_and_not_forgotten_makes_room() {
    let network = network();
    let (hub, address) = listening(&network, Budgets::new().peers(1));
    let other = engine(&network, Settings::new());
    let peer = connect(&other, address).unwrap();
    let accepted = hub.accept().wait(SOON).unwrap();
    let memory = hub.allocate(4096).wait(SOON).unwrap();
    let grant = accepted.grant(memory, Rights::WRITE).wait(SOON).unwrap();
    assert!(connect(&other, address).is_err());
    drop((peer, other));
    wait_for("loss of the peer", || accepted.lost().map(|_| ()));
    let another = engine(&network, Settings::new());
    let _peer = connect(&another, address).unwrap();
    assert_eq!(hub.peer_count().unwrap(), 2, "the first one is still known");
    drop(grant);
}

/// A connection is not a peer of the engine before its hello, and must say it in time.
#[test]
fn strangers_that_do_not_introduce_themselves_are_no_peers_and_go() {
    let network = network();
    let settings = Settings::new().peer_timeout(Duration::from_secs(1));
    let hub = engine(&network, settings);
    let address = hub.listen("127.0.0.1:0").unwrap();
    let said = introduction();
    let begun = Instant::now();
    let mut strangers: Vec<TcpStream> = [0, 4, preamble().len(), said.len() - 1]
        .iter()
        .map(|len| {
            let mut stranger = TcpStream::connect(address).unwrap();
            stranger.write_all(&said[..*len]).unwrap();
            stranger
        })
        .collect();
    for stranger in &mut strangers {
        let mut bytes = Vec::new();
        stranger.set_read_timeout(Some(SOON)).unwrap();
        // Bytes that were not read make it a reset.
        let _ = stranger.read_to_end(&mut bytes);
        assert_eq!(bytes, preamble());
    }
    assert!(begun.elapsed() >= Duration::from_millis(900), "{:?}", begun.elapsed());
    assert_eq!(hub.peer_count().unwrap(), 0);
    let other = engine(&network, Settings::new());
    let _peer = connect(&other, address).unwrap();
    assert_eq!(hub.accept().wait(SOON).unwrap().lost(), None);
}

#[test]
fn too_many_handshakes_are_reported_with_the_budget() {
    let network = network();
    let (hub, address) = listening(&network, Budgets::new().handshakes(3));
    let mut strangers: Vec<_> = (0..4).map(|_| TcpStream::connect(address).unwrap()).collect();
    let error = wait_for("refusal", || {
        let error = hub.accept().wait(Duration::from_millis(20)).unwrap_err();
        (error.kind() == ErrorKind::Accept).then_some(error)
    });
    let cause = "its handshake was the oldest of more than 3, as many as `Budgets::handshakes` allows";
    says(&error, ErrorKind::Accept, cause, "Budgets::handshakes");
    assert!(error.to_string().contains(&strangers[0].local_addr().unwrap().to_string()), "{error}");
    let other = engine(&network, Settings::new());
    let _peer = connect(&other, address).unwrap();
    // The last one introduces itself: it is a peer, and has no rail in common.
    strangers[3].write_all(&introduction()).unwrap();
    let mut bytes = Vec::new();
    let _ = strangers[3].read_to_end(&mut bytes);
    assert!(bytes.len() > preamble().len(), "it got a hello");
}

/// Peers that come and go before the program accepts them do not take memory without a limit.
#[test]
fn peers_that_leave_before_they_are_accepted_are_kept_up_to_the_limit() {
    let network = network();
    let (hub, address) = listening(&network, Budgets::new().peers(3));
    let other = engine(&network, Settings::new());
    for number in 0..5_u8 {
        let peer = connect(&other, address).unwrap();
        peer.send([number]).wait(SOON).unwrap();
        peer.close(SOON).unwrap();
        wait_for("end of the peer", || (hub.peer_count().unwrap() == 0).then_some(()));
    }
    for number in 2..5_u8 {
        let peer = hub.accept().wait(SOON).unwrap();
        assert!(peer.lost().is_some());
        assert_eq!(peer.recv().wait(SOON).unwrap(), [number], "it was held");
    }
    let nobody = hub.accept().wait(Duration::from_millis(20)).unwrap_err();
    assert_eq!(nobody.kind(), ErrorKind::TimedOut, "{nobody:?}");
}

/// A peer that sends more than its rate is slowed down. Its pings wait with its other frames,
/// and it is not taken for a silent one.
#[test]
fn a_peer_that_is_slowed_down_is_not_lost() {
    let network = network();
    let timeout = Duration::from_millis(1500);
    let settings = Settings::new().peer_timeout(timeout).budgets(Budgets::new().frames_per_second(50));
    let hub = engine(&network, settings);
    let address = hub.listen("127.0.0.1:0").unwrap();
    let mut flooding = impostor(&hub, address);
    // These take four seconds, and nothing follows.
    flooding.write_all(&pings(250)).unwrap();
    let begun = Instant::now();
    wait_for("peer", || (hub.peer_count().unwrap() == 1).then_some(()));
    let mut bytes = Vec::new();
    flooding.set_read_timeout(Some(SOON)).unwrap();
    flooding.read_to_end(&mut bytes).unwrap();
    assert_eq!(hub.peer_count().unwrap(), 0);
    let lasted = begun.elapsed();
    assert!(lasted > Duration::from_secs(4), "{lasted:?}: it was read too fast, or lost too early");
}

/// The frames with which a receiver of messages answers count, too.
#[test]
fn messages_to_a_peer_that_is_slowed_down_arrive() {
    const MESSAGES: u32 = 120;
    let network = network();
    let settings = Settings::new().budgets(Budgets::new().frames_per_second(40));
    let (a, b) = (engine(&network, settings), engine(&network, Settings::new()));
    let address = b.listen("127.0.0.1:0").unwrap();
    let a_to_b = connect(&a, address).unwrap();
    let b_to_a = b.accept().wait(SOON).unwrap();
    let begun = Instant::now();
    for number in 0..MESSAGES {
        a_to_b.send(number.to_le_bytes()).wait(SOON).unwrap();
        assert_eq!(b_to_a.recv().wait(SOON).unwrap(), number.to_le_bytes());
    }
    a_to_b.flush().wait(SOON).unwrap();
    assert!(begun.elapsed() > Duration::from_secs(1), "{:?}", begun.elapsed());
    assert_eq!((a_to_b.lost(), b_to_a.lost()), (None, None));
}

/// Everything at once, in small numbers: an honest peer is served meanwhile, and another one can
/// connect.
#[test]
fn hostile_strangers_do_not_keep_honest_peers_from_their_work() {
    let network = network();
    let (hub, address) = listening(&network, Budgets::new().handshakes(64).frames_per_second(20_000));
    let other = engine(&network, Settings::new());
    let peer = connect(&other, address).unwrap();
    let accepted = hub.accept().wait(SOON).unwrap();
    let memory = hub.allocate(64 * 1024).wait(SOON).unwrap();
    let grant = accepted.grant(memory, Rights::WRITE).wait(SOON).unwrap();
    let remote = peer.remote(grant.token()).wait(SOON).unwrap();
    let source = other.allocate(64 * 1024).wait(SOON).unwrap().share();
    let is_over = AtomicBool::new(false);
    let until_over = |attack: &mut dyn FnMut()| {
        while !is_over.load(Ordering::SeqCst) {
            attack();
        }
    };
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let (mut flooding, bytes) = (impostor(&hub, address), pings(1000));
                flooding.set_nonblocking(true).unwrap();
                until_over(&mut || drop(flooding.write(&bytes)));
            });
        }
        scope.spawn(|| {
            let mut idle = VecDeque::new();
            until_over(&mut || {
                // Some of them send a byte.
                let mut stranger = TcpStream::connect(address).unwrap();
                let _ = stranger.write(&preamble()[..idle.len() % 2]);
                idle.push_back(stranger);
                idle.truncate(300);
            });
        });
        scope.spawn(|| until_over(&mut || drop(impostor(&hub, address))));
        scope.spawn(|| {
            until_over(&mut || {
                let mut stranger = TcpStream::connect(address).unwrap();
                let _ = stranger.write_all(b"GET / HTTP/1.1\r\n\r\n");
                let _ = stranger.read_to_end(&mut Vec::new());
            });
        });
        let work = std::panic::catch_unwind(AssertUnwindSafe(|| {
            let map = PageMap::of(4096).first(16);
            for _ in 0..50 {
                peer.write_pages(source.clone(), &map, &remote, None).wait(SOON).unwrap();
                peer.send("still here").wait(SOON).unwrap();
                assert_eq!(accepted.recv().wait(SOON).unwrap(), b"still here");
            }
            for _ in 0..10 {
                connect(&other, address).unwrap().close(SOON).unwrap();
            }
        }));
        is_over.store(true, Ordering::SeqCst);
        work.unwrap();
    });
    assert_eq!((peer.lost(), accepted.lost()), (None, None));
    // The strangers leave nothing behind.
    wait_for("end of the others", || (hub.peer_count().unwrap() == 1).then_some(()));
}
