//! Budgets of the peers of an engine, with simulated cards and real sockets: the errors of both
//! sides at a limit, and what makes room again.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use farreach::{Budgets, Engine, Error, ErrorKind, Peer, Rights, Settings};
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
    let mut bytes = preamble().to_vec();
    encode(&Frame::Hello(Hello::new(1)), &mut bytes).unwrap();
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
            "2 peers with this IP address are connected, as many as `Budgets::peers_per_address` allows",
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
