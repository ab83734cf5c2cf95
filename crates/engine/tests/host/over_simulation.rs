//! The suite over simulated cards, in real time, with each kind of card.

use farreach::{Budgets, Engine, ErrorKind, Memory, PageMap, Rights, Settings};
use farreach_rail::Rail;
use farreach_sim::{SimCard, SimNetwork, SimRail, SimSettings};

use crate::suite::{Pair, RailUnderTest, SOON, suite};

thread_local! {
    /// Each test has its own network, and creates its engines in one thread.
    static NETWORK: SimNetwork = SimNetwork::real_time(SimSettings::new(1));
}

pub(crate) fn over(cards: Vec<SimCard>, settings: Settings) -> Engine {
    // All engines are on one host, because they are in one process.
    let network = NETWORK.with(SimNetwork::clone);
    let rails = cards.into_iter().map(|card| Box::new(SimRail::new(&network, 0, card)) as Box<dyn Rail>);
    Engine::over(rails.collect(), settings).unwrap()
}

const RC: RailUnderTest = RailUnderTest {
    open: |settings| over(vec![SimCard::rc(), SimCard::rc()], settings),
    has_atomics: Some(true),
    rails: 2,
};
const TCP: RailUnderTest = RailUnderTest {
    open: |settings| over(vec![SimCard::tcp()], settings),
    has_atomics: Some(true),
    rails: 1,
};
const EFA: RailUnderTest = RailUnderTest {
    open: |settings| over(vec![SimCard::efa()], settings),
    has_atomics: Some(false),
    rails: 1,
};

suite! {
    crate::over_simulation::here;
    rc = crate::over_simulation::RC;
    tcp = crate::over_simulation::TCP;
    efa = crate::over_simulation::EFA;
}

#[cfg(feature = "tls")]
mod over_tls {
    use crate::over_simulation::{TCP, over};
    use crate::secure::over_tls;
    use crate::suite::{RailUnderTest, suite};
    use farreach_sim::SimCard;

    const TLS: RailUnderTest =
        RailUnderTest { open: |settings| over(vec![SimCard::tcp()], over_tls(settings)), ..TCP };

    suite! {
        crate::over_simulation::here;
        tcp = crate::over_simulation::over_tls::TLS;
    }
}

/// A card has the registration as long as the memory: of a slice that is used again and again, once; of
/// vectors, each time.
#[test]
fn memory_is_registered_once_with_each_card_however_often_it_is_used() {
    let pair = Pair::new(&RC);
    let registered = || NETWORK.with(SimNetwork::registrations);
    let (_granted, remote) = pair.granted(64 << 10, Rights::READ | Rights::WRITE);
    let before = registered();
    let mut slice = Memory::from_vec(vec![7; 64 << 10]);
    for _ in 0..500 {
        slice = pair.a_to_b.write(slice, &remote).wait(SOON).unwrap().buffer;
        slice = pair.a_to_b.read(&remote, slice).wait(SOON).unwrap().buffer;
    }
    assert_eq!(registered() - before, 2, "each engine has two cards");
    let mut vec = slice.into_vec().unwrap();
    for _ in 0..3 {
        let start = vec.as_ptr();
        vec = pair.a_to_b.write(vec, &remote).wait(SOON).unwrap().buffer;
        assert_eq!(vec.as_ptr(), start);
    }
    assert_eq!(registered() - before, 2 + 3 * 2, "at the same address, but other memory");
}

/// A peer announces how many grants and counters it accepts.
#[test]
fn what_the_peer_would_not_accept_is_an_error_of_this_side() {
    let little = Settings::new().budgets(Budgets::new().counters(2).grants(3));
    let pair = Pair::of(over(vec![SimCard::tcp()], little), over(vec![SimCard::tcp()], Settings::new()));
    let counters: Vec<_> = (0..2).map(|_| pair.b_to_a.open_counter().wait(SOON).unwrap()).collect();
    assert_eq!(pair.b_to_a.open_counter().wait(SOON).unwrap_err().kind(), ErrorKind::Limit);
    let grant = || {
        let memory = pair.b.allocate(4096).wait(SOON).unwrap();
        pair.b_to_a.grant(memory, Rights::WRITE).wait(SOON)
    };
    let grants: Vec<_> = (0..3).map(|_| grant().unwrap()).collect();
    let refused = grant().unwrap_err();
    assert!(refused.error.to_string().contains("at most 3 grants"), "{}", refused.error);
    drop(counters);
    assert!(pair.b_to_a.open_counter().wait(SOON).is_ok(), "a closed one makes room");
    drop(grants);
}

/// Each counter takes two of 65,536 slots over one rail of this kind, and three over two rails.
#[test]
fn a_counter_that_could_not_count_is_not_opened() {
    let more = Settings::new().budgets(Budgets::new().counters(1 << 20));
    let pair = Pair::of(
        over(vec![SimCard::tcp(), SimCard::tcp()], more.clone()),
        over(vec![SimCard::tcp(), SimCard::tcp()], more),
    );
    let mut counters: Vec<_> = std::iter::from_fn(|| pair.b_to_a.open_counter().wait(SOON).ok()).collect();
    assert_eq!(counters.len(), 65_536 / 3);
    let refused = pair.b_to_a.open_counter().wait(SOON).unwrap_err();
    assert_eq!((refused.kind(), refused.cause()), (ErrorKind::Limit, "too many counters"));
    let (_granted, remote) = pair.granted(64 * 1024, Rights::WRITE);
    let arrived = counters.pop().unwrap();
    let raises = pair.a_to_b.remote_counter(arrived.token()).wait(SOON).unwrap();
    let map = PageMap::of(4096).first(16);
    pair.a_to_b.write_pages(pair.source(64 * 1024, 1), &map, &remote, Some(&raises)).wait(SOON).unwrap();
    arrived.reach(16).wait(SOON).unwrap();
    drop(arrived);
    // There is room for one. A counter that is dropped before it is taken leaves its slots free.
    for _ in 0..10 {
        drop(pair.b_to_a.open_counter());
    }
    pair.b_to_a.open_counter().wait(SOON).expect("there is room for one");
}

#[test]
fn a_grant_that_is_dropped_before_it_is_taken_is_revoked() {
    let pair =
        Pair::of(over(vec![SimCard::tcp()], Settings::new()), over(vec![SimCard::tcp()], Settings::new()));
    let grant = || pair.b_to_a.grant(pair.b.allocate(4096).wait(SOON).unwrap(), Rights::WRITE);
    let known = || pair.a_to_b.memory().unwrap();
    let kept: Vec<_> = (0..100).map(|_| grant().wait(SOON).unwrap()).collect();
    let token = kept[99].token();
    pair.a_to_b.remote(token).wait(SOON).expect("it is the last of 100");
    let most = known();
    drop(kept);
    for _ in 0..100 {
        (0..10).for_each(|_| drop(grant()));
        // The peer knows this grant, so it also knows the earlier ones and their end.
        let last = grant().wait(SOON).unwrap();
        pair.a_to_b.remote(last.token()).wait(SOON).unwrap();
    }
    assert!(known() <= most, "{} bytes for grants, where 100 take {most}", known());
}

fn here(test: impl FnOnce()) {
    test();
}
