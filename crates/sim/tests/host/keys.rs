//! Keys that are ended, and the operations that this stops.

use std::sync::Arc;

use farreach_memory::Exposed;
use farreach_memory::Slice;
use farreach_proto::rights::Rights;
use farreach_rail::{EndedKeys, PeerKey, Proof, Rail, RemoteSegment, WorkRequest};
use farreach_sim::{Odds, SimCard, SimSettings};

use crate::pair::{GRANTED_LEN, Pair, Side, Told};

/// Returns the slice that was exposed, as an engine takes it back.
fn take_back(granted: Arc<Exposed>) -> Slice {
    let exposed = Arc::into_inner(granted).expect("no rail has a handle");
    exposed.try_into_slice().expect("it is proven that nothing is in flight to it")
}

/// Exposes other memory in its place, and returns the old one.
fn end_key(side: &mut Side) -> Arc<Exposed> {
    side.rail.end_key(side.key.id).unwrap();
    let other = Arc::new(farreach_memory::Memory::allocate(GRANTED_LEN).unwrap().expose());
    std::mem::replace(&mut side.granted, other)
}

fn sum(granted: &Exposed) -> usize {
    let mut bytes = vec![0; GRANTED_LEN];
    granted.read_at(0, &mut bytes);
    bytes.iter().filter(|byte| **byte > 0).count()
}

#[test]
fn a_dead_key_stops_what_begins_later() {
    for card in SimCard::kinds() {
        let properties = card.properties.clone();
        let mut pair = Pair::new(0, card.clone());
        let granted = end_key(&mut pair.there);
        pair.write(1, 0, b"late", None).unwrap();
        pair.write(2, 8, b"behind it", None).unwrap();
        pair.settle();
        assert_eq!(sum(&granted), 0);
        let completed = pair.here.completed();
        match properties.writes_prove {
            // It still completes. Later ones never complete, or complete before the failure is
            // known.
            Proof::Sent => assert!(completed.contains(&(1, true))),
            Proof::Delivered => assert!(completed.iter().all(|(_, is_ok)| !is_ok)),
        }
        assert_eq!(pair.network.violations(), [], "whoever writes cannot know that the key is dead");
        pair.here.rail.reset().unwrap();
        pair.here.poll();
        pair.there.rail.reset().unwrap();
        drop(take_back(granted));
        pair.assert_clean();
    }
}

/// Operations in flight when their key is ended: a card that checks each packet stops them, others
/// continue.
#[test]
fn a_dead_key_stops_what_is_under_way_where_the_card_says_so() {
    for card in SimCard::kinds() {
        let stops_all = card.properties.ended_keys == EndedKeys::StopAll;
        let (mut late, mut finished) = (0, 0);
        for seed in 0..100 {
            let mut pair = Pair::new(seed, card.clone());
            pair.write(1, 0, &[7; 64], None).unwrap();
            while sum(&pair.there.granted) == 0 {
                assert!(pair.step());
            }
            let before = sum(&pair.there.granted);
            let granted = end_key(&mut pair.there);
            pair.settle();
            late += sum(&granted) - before;
            finished += usize::from(sum(&granted) == 64 && before < 64);
            assert_eq!(pair.network.violations(), []);
        }
        assert_eq!((late > 0, finished > 0), (!stops_all, !stops_all));
    }
}

#[test]
fn memory_may_be_given_up_when_that_is_proven() {
    for card in SimCard::kinds() {
        for seed in 0..100 {
            let mut pair = Pair::new(seed, card.clone());
            for tag in 0..4 {
                pair.write(tag, tag as usize * 64, &[7; 64], Some(1)).unwrap();
            }
            for _ in 0..seed % 20 {
                pair.step();
            }
            let granted = end_key(&mut pair.there);
            if card.properties.ended_keys == EndedKeys::StopNew {
                assert_eq!(granted.keys(), 1, "something may be under way");
                pair.there.rail.reset().unwrap();
            }
            let mut slice = take_back(granted);
            slice.fill(0x55);
            pair.settle();
            assert!(slice.iter().all(|byte| *byte == 0x55));
            assert_eq!(pair.network.violations(), []);
        }
    }
}

#[test]
fn a_key_that_cannot_be_ended_keeps_its_memory_for_good() {
    for card in SimCard::kinds() {
        let odds = Odds { end_key_fails: 1, ..Odds::default() };
        let mut pair = Pair::with(SimSettings { odds, ..SimSettings::new(0) }, card);
        let error = pair.there.rail.end_key(pair.there.key.id).unwrap_err();
        assert_eq!((error.cause.as_str(), pair.network.leaked()), ("the key cannot be ended", 1));
        pair.write(1, 0, b"page", None).unwrap();
        pair.settle();
        assert_eq!(pair.there.bytes(0, 4), b"page");
        pair.there.rail.reset().unwrap();
        assert_eq!(pair.there.granted.keys(), 1, "nothing proves that it is dead");
        assert_eq!(pair.network.violations(), []);
    }
}

#[test]
fn a_card_that_is_dropped_lets_go_of_memory() {
    for card in SimCard::kinds() {
        let mut pair = Pair::new(0, card);
        let granted = Arc::downgrade(&pair.there.granted);
        pair.write(1, 0, b"page", None).unwrap();
        let (network, there) = (pair.network.clone(), pair.there);
        drop(there);
        assert_eq!((granted.upgrade().is_none(), network.leaked()), (true, 0));
        while let Some(at_ns) = network.next_event_at() {
            network.advance_to(at_ns);
            pair.here.poll();
        }
        assert_eq!(network.violations(), []);
    }
}

#[test]
fn keys_are_ended_once_and_by_their_own_card() {
    let mut pair = Pair::new(0, SimCard::rc());
    let id = pair.there.key.id;
    pair.here.rail.end_key(id).unwrap_err();
    let other = pair.there.rail.make_key(PeerKey(0), &pair.there.granted, Rights::READ).unwrap();
    assert_ne!((other.id, other.key), (id, pair.there.key.key));
    pair.there.rail.end_key(id).unwrap();
    pair.there.rail.end_key(id).unwrap_err();
    pair.there.rail.end_key(other.id).unwrap();
}

/// A key that was made for one peer is used over the link of another.
#[test]
fn a_key_is_of_use_to_its_own_peer_only_where_the_card_separates_them() {
    for card in SimCard::kinds() {
        let mut pair = Pair::new(0, card.clone());
        let memory = Arc::new(farreach_memory::Memory::allocate(GRANTED_LEN).unwrap().expose());
        let key = pair.there.rail.make_key(PeerKey(1), &memory, Rights::all()).unwrap();
        let target = RemoteSegment { address: key.address, key: key.key, len: 4 };
        let request = WorkRequest::Write { target, immediate: None };
        let page = pair.here.slice(b"page").into();
        pair.here.rail.post(pair.here.link, 1, request, page).unwrap();
        pair.settle();
        let is_refused = pair.here.completed() != [(1, true)];
        assert_eq!(is_refused, card.separates_peers, "{}", card.properties.name);
        assert_eq!(sum(&memory) == 0, card.separates_peers);
        let violations = pair.network.violations();
        assert_eq!(!violations.is_empty(), card.separates_peers);
        assert!(violations.iter().all(|it| it.card == pair.here.rail.id() && it.link.is_some()));
    }
}

/// Writes to the memory of a bound key. Returns whether it was written.
fn write_bound(pair: &mut Pair, (address, key): (u64, u64)) -> bool {
    let target = RemoteSegment { address, key, len: 4 };
    let page = pair.here.slice(b"page").into();
    let request = WorkRequest::Write { target, immediate: None };
    pair.here.rail.post(pair.here.link, 1, request, page).unwrap();
    pair.settle();
    sum(&pair.there.granted) != 0
}

/// Binds the key of the other side to its link.
fn bound(pair: &mut Pair) -> (u64, u64) {
    pair.there.rail.bind_key(pair.there.link, pair.there.key.id, 17).unwrap();
    pair.settle();
    match pair.there.told.pop() {
        Some(Told::KeyBound { tag: 17, bound: Ok(bound) }) => bound,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_bound_key_is_good_over_its_link_only() {
    let mut pair = Pair::new(0, SimCard::windows());
    let key = bound(&mut pair);
    assert!(write_bound(&mut pair, key));
    assert_eq!(pair.network.violations(), []);
    let mut pair = Pair::new(0, SimCard::windows());
    let key = bound(&mut pair);
    pair.connect();
    assert!(!write_bound(&mut pair, key), "another link");
    let mut pair = Pair::new(0, SimCard::windows());
    bound(&mut pair);
    let unbound = (pair.there.key.address, pair.there.key.key);
    assert!(!write_bound(&mut pair, unbound), "not bound");
}

#[test]
fn a_binding_is_answered_even_if_its_link_or_key_has_ended() {
    for ends_link in [true, false] {
        let mut pair = Pair::new(0, SimCard::windows());
        let Side { rail, link, key, .. } = &mut pair.there;
        rail.bind_key(*link, key.id, 17).unwrap();
        match ends_link {
            true => rail.close_link(*link),
            false => rail.end_key(key.id).unwrap(),
        }
        pair.settle();
        let told = &pair.there.told;
        assert!(told.iter().any(|it| matches!(it, Told::KeyBound { tag: 17, bound: Err(_) })), "{told:?}");
    }
    // Not to a link of another peer, and not on a card without windows.
    let mut pair = Pair::new(0, SimCard::windows());
    let (other, _) = pair.there.rail.open_link(PeerKey(1)).unwrap();
    pair.there.rail.bind_key(other, pair.there.key.id, 17).unwrap_err();
    let mut pair = Pair::new(0, SimCard::rc());
    pair.there.rail.bind_key(pair.there.link, pair.there.key.id, 17).unwrap_err();
}

/// Keys of a library have 64 bits: the neighbour of a key is none.
#[test]
fn keys_of_libraries_cannot_be_guessed_from_others() {
    for card in SimCard::kinds().into_iter().filter(|card| !card.has_queue_pairs) {
        let mut pair = Pair::new(0, card);
        let keys: Vec<u64> = (0..32)
            .map(|_| pair.there.rail.make_key(PeerKey(0), &pair.there.granted, Rights::all()).unwrap().key)
            .collect();
        assert!(keys.windows(2).all(|pair| pair[0].abs_diff(pair[1]) > 1 << 32), "{keys:?}");
    }
}

#[test]
fn the_end_of_its_peers_links_proves_that_a_key_is_dead_where_links_end_alone() {
    let mut pair = Pair::new(0, SimCard::isolated());
    let first = pair.there.link;
    pair.connect();
    let (other, _) = pair.there.rail.open_link(PeerKey(1)).unwrap();
    pair.write(1, 0, &[7; 64], None).unwrap();
    let granted = end_key(&mut pair.there);
    for (link, keys) in [(other, 1), (first, 1), (pair.there.link, 0)] {
        pair.there.rail.close_link(link);
        assert_eq!(granted.keys(), keys, "link {link:?}");
    }
    let mut slice = take_back(granted);
    slice.fill(0x55);
    pair.settle();
    assert!(slice.iter().all(|byte| *byte == 0x55));
    // Without a link nothing can be in flight.
    let key = pair.there.rail.make_key(PeerKey(2), &pair.there.granted, Rights::all()).unwrap();
    pair.there.rail.end_key(key.id).unwrap();
    assert_eq!(pair.there.granted.keys(), 0);
}

/// Writes 64 bytes over memory that both sides map, and stops when some have landed.
fn half_written(seed: u64) -> (Pair, usize) {
    let mut pair = Pair::new(seed, SimCard::shared());
    let (address, key) = bound(&mut pair);
    let target = RemoteSegment { address, key, len: 64 };
    let page = pair.here.slice(&[7; 64]).into();
    let request = WorkRequest::Write { target, immediate: Some(1) };
    pair.here.rail.post(pair.here.link, 1, request, page).unwrap();
    while sum(&pair.there.granted) == 0 {
        assert!(pair.step());
    }
    let before = sum(&pair.there.granted);
    (pair, before)
}

fn reports(pair: &Pair) -> usize {
    pair.there
        .told
        .iter()
        .filter(|told| matches!(told, Told::KeyEnded(key) if *key == pair.there.key.id))
        .count()
}

#[test]
fn memory_that_both_map_is_within_reach_until_the_end_of_its_key_is_reported() {
    let mut late = 0;
    for seed in 0..100 {
        let (mut pair, before) = half_written(seed);
        let granted = end_key(&mut pair.there);
        assert_eq!((granted.keys(), reports(&pair)), (1, 0), "nothing is proven yet");
        // The end of the link proves nothing either.
        if seed % 2 == 0 {
            pair.there.rail.close_link(pair.there.link);
        }
        while granted.keys() > 0 {
            assert!(pair.step());
        }
        late += usize::from(sum(&granted) > before && seed % 2 == 0);
        let mut slice = take_back(granted);
        slice.fill(0x55);
        pair.settle();
        assert!(slice.iter().all(|byte| *byte == 0x55));
        assert_eq!((reports(&pair), pair.network.violations()), (1, vec![]));
    }
    assert!(late > 0, "no write went on after the end of its link");
}

#[test]
fn the_end_of_a_key_of_a_stopped_peer_is_proven_when_it_is_asked_for() {
    for asks in [false, true] {
        let (mut pair, _) = half_written(3);
        pair.network.stop_host(0, 1_000_000_000_000);
        let granted = end_key(&mut pair.there);
        let id = pair.there.key.id;
        if asks {
            pair.there.rail.prove_key(id).unwrap();
            pair.there.rail.prove_key(id).unwrap();
        }
        for _ in 0..1000 {
            if pair.network.next_event_at().is_none_or(|at| at > 900_000_000_000) {
                break;
            }
            pair.step();
        }
        assert_eq!((granted.keys(), reports(&pair)), if asks { (0, 1) } else { (1, 0) });
        if asks {
            drop(take_back(granted));
        }
    }
    let mut pair = Pair::new(0, SimCard::shared());
    let id = pair.there.key.id;
    pair.there.rail.prove_key(id).unwrap_err();
}
