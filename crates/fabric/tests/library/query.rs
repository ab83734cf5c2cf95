//! Queries of the real library, of the generation that the dynamic linker finds.

use std::net::SocketAddr;
use std::thread;

use farreach_fabric::{
    AddressFormat, Capabilities, EndpointType, Error, Hints, Info, Library, Mode, MrMode, Order,
    TrafficClass, Version,
};

/// Matches every offer of reliable datagrams with messages and one-sided access.
fn rdm() -> Hints {
    Hints::new()
        .endpoint_type(EndpointType::ReliableDatagram)
        .capabilities(Capabilities::MSG | Capabilities::RMA)
}

fn of_provider<'a>(offers: &'a [Info], name: &str) -> Vec<&'a Info> {
    offers.iter().filter(|info| info.provider().split(';').any(|part| part == name)).collect()
}

#[test]
#[ignore = "needs libfabric: cargo xtask test runs it"]
fn the_library_tells_its_version() {
    let library = Library::open().expect("libfabric is installed");
    assert!(library.version() >= Version::OLDEST, "{library:?}");
    assert!(library.path().is_absolute(), "{library:?}");
}

#[test]
#[ignore = "needs libfabric: cargo xtask test runs it"]
fn tcp_and_shm_are_offered() {
    let offers = Info::query(&rdm()).expect("libfabric has tcp and shm");

    for provider in ["tcp", "shm"] {
        let found = of_provider(&offers, provider);
        // Only the best offer: shm makes a second one, for memory of devices, which cannot inject.
        let best = found.first().unwrap_or_else(|| panic!("no {provider} in {offers:#?}"));
        assert!(best.inject_size() > 0, "{best:?}");
        for info in found {
            assert_eq!(info.endpoint_type(), EndpointType::ReliableDatagram);
            assert!(info.capabilities().contains(Capabilities::MSG | Capabilities::RMA), "{info:?}");
            assert_eq!(info.immediate_size(), 8, "{info:?}");
            assert_eq!(info.key_size(), 8, "{info:?}");
            assert!(info.transmit_buffers_max() >= 4, "{info:?}");
            assert!(info.transmit_queue_size() >= 256 && info.receive_queue_size() >= 256, "{info:?}");
            assert!(info.message_size_max() > 1 << 20, "{info:?}");
            assert!(!info.fabric().is_empty() && !info.domain().is_empty(), "{info:?}");
        }
    }

    for info in of_provider(&offers, "tcp") {
        assert!(info.writes_ordered(), "{info:?}: {:?}", info.transmit_order());
        let address = info.source().expect("tcp has an address for each interface");
        assert!(address.socket_addr().is_some(), "{address:?}");
        assert!(matches!(info.address_format(), AddressFormat::Ipv4 | AddressFormat::Ipv6), "{info:?}");
    }
    for info in of_provider(&offers, "shm") {
        assert_eq!(info.address_format(), AddressFormat::Text);
        let address = info.source().expect("shm has an address");
        assert!(address.to_string().starts_with("fi_"), "{address}");
    }
}

#[test]
#[ignore = "needs libfabric: cargo xtask test runs it"]
fn what_is_asked_for_is_what_comes() {
    let asked = rdm().provider("shm").message_order(Order::WAW);
    let offers = Info::query(&asked).expect("shm orders writes when asked");
    assert!(offers.iter().all(|info| info.provider() == "shm" && info.writes_ordered()), "{offers:#?}");

    // Without conditions on memory, a provider may require any mode; with none allowed, it requires
    // nothing.
    let offers =
        Info::query(&rdm().mr_mode(MrMode::empty()).mode(Mode::empty())).expect("tcp requires nothing");
    assert!(!of_provider(&offers, "tcp").is_empty());
    for info in offers {
        assert_eq!((info.mr_mode(), info.mode()), (MrMode::empty(), Mode::empty()), "{info:?}");
    }
}

#[test]
#[ignore = "needs libfabric: cargo xtask test runs it"]
fn addresses_are_those_asked_for() {
    let place = rdm().provider("tcp").node("127.0.0.1").service("18520");
    let expected: SocketAddr = "127.0.0.1:18520".parse().expect("the text is an address");

    let offers = Info::query(&place.clone().source()).expect("the loopback device exists");
    assert!(
        offers.iter().any(|info| info.source().and_then(|it| it.socket_addr()) == Some(expected)),
        "{offers:#?}"
    );
    let offers = Info::query(&place).expect("the loopback device exists");
    assert!(
        offers.iter().any(|info| info.destination().and_then(|it| it.socket_addr()) == Some(expected)),
        "{offers:#?}"
    );
}

#[test]
#[ignore = "needs libfabric: cargo xtask test runs it"]
fn a_traffic_class_is_a_wish() {
    for class in [TrafficClass::LowLatency, TrafficClass::dscp(46).expect("the code point has six bits")] {
        let offers = Info::query(&rdm().provider("tcp").traffic_class(class))
            .expect("the class does not restrict the offers");
        let answers = [class, TrafficClass::Unspecified];
        assert!(offers.iter().all(|info| answers.contains(&info.traffic_class())), "{offers:#?}");
    }
    assert_eq!(TrafficClass::dscp(64), None);
}

#[test]
#[ignore = "needs libfabric: cargo xtask test runs it"]
fn a_provider_that_is_not_there_is_told_with_those_that_are() {
    let error = Info::query(&rdm().provider("no_such_provider")).expect_err("nobody is called that");
    let Error::NoProvider { wanted, offered } = &error else { panic!("{error:?}") };
    assert_eq!(wanted, "provider no_such_provider, rdm endpoints, MSG | RMA");
    assert!(offered.iter().any(|name| name == "shm"), "{offered:?}");
    assert!(error.cause().contains("shm"), "{}", error.cause());
}

#[test]
#[ignore = "needs libfabric: cargo xtask test runs it"]
fn offers_live_by_themselves_on_any_thread() {
    let threads: Vec<_> =
        (0..4).map(|_| thread::spawn(|| Info::query(&Hints::new()).expect("something is offered"))).collect();
    for thread in threads {
        let mut offers = thread.join().expect("the query does not panic");
        let kept = offers.swap_remove(offers.len() / 2);
        drop(offers);
        assert!(!kept.provider().is_empty());
        thread::spawn(move || drop(kept)).join().expect("dropping does not panic");
    }
}
