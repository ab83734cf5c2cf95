//! Temporary faults: nothing is lost.

use farreach_memory::Buffers;
use farreach_rail::{Rail, RemoteSegment, WorkRequest};
use farreach_sim::request::post;
use farreach_sim::{Odds, SimCard, SimSettings};

use crate::pair::{Pair, is_full};

const LONG_NS: u64 = 10_000_000;

#[test]
fn what_is_delayed_is_overtaken_where_there_is_no_order() {
    for card in SimCard::kinds() {
        let is_ordered = card.properties.limits.is_ordered;
        let mut pair = Pair::new(3, card);
        pair.network.delay_next(pair.here.link, LONG_NS);
        for tag in 0..3 {
            pair.write(tag.into(), 0, b"x", Some(tag)).unwrap();
        }
        pair.settle();
        assert!(pair.network.now() >= LONG_NS);
        let immediates = pair.there.immediates();
        match is_ordered {
            true => assert_eq!(immediates, [0, 1, 2]),
            false => assert_eq!(immediates.last(), Some(&0)),
        }
        pair.assert_clean();
    }
}

#[test]
fn a_refused_post_hands_the_request_back() {
    let mut pair = Pair::new(0, SimCard::rc());
    pair.network.refuse_posts(pair.here.rail.id(), 1);
    let pieces = pair.here.slice(b"whole").into();
    let request = (WorkRequest::Write { target: pair.target(0, 5), immediate: Some(4) }, pieces);
    let refused = post(&mut pair.here.rail, pair.here.link, 1, request).unwrap_err();
    assert_eq!(pair.here.rail.in_flight(), 0);
    assert!(pair.network.next_event_at().is_some(), "somebody is woken who waits for room");
    post(&mut pair.here.rail, pair.here.link, 1, refused.request).unwrap();
    pair.settle();
    assert_eq!((pair.there.bytes(0, 5), pair.there.immediates()), (b"whole".to_vec(), vec![4]));
    pair.assert_clean();
}

#[test]
fn a_failed_poll_proves_nothing_and_loses_nothing() {
    let mut pair = Pair::new(0, SimCard::tcp());
    pair.write(1, 0, b"page", Some(1)).unwrap();
    while let Some(at_ns) = pair.network.next_event_at() {
        pair.network.advance_to(at_ns);
        pair.there.poll();
    }
    pair.network.fail_polls(pair.here.rail.id(), 2);
    for _ in 0..2 {
        let error = pair.here.rail.poll(&mut |event| panic!("{event:?}")).unwrap_err();
        assert_eq!(error.to_string(), "poll a simulated card: the poll failed");
        assert_eq!(pair.here.rail.in_flight(), 1);
        assert!(pair.network.next_event_at().is_some(), "somebody is to look again");
    }
    pair.settle();
    assert_eq!(pair.here.completed(), [(1, true)]);
    pair.assert_clean();
}

#[test]
fn a_queue_that_filled_has_room_again_and_somebody_is_woken() {
    let mut pair = Pair::new(0, SimCard::efa());
    pair.network.fill_queue(pair.here.rail.id(), LONG_NS);
    assert!(is_full(pair.write(1, 0, b"page", None)));
    assert_eq!(pair.network.next_event_at(), Some(LONG_NS));
    pair.network.advance_to(LONG_NS);
    pair.write(1, 0, b"page", None).unwrap();
    pair.settle();
    pair.assert_clean();
}

#[test]
fn a_card_that_has_all_it_can_keep_has_room_after_a_poll() {
    for mut card in SimCard::kinds() {
        card.queue_len = 3;
        let mut pair = Pair::new(0, card);
        for tag in 0..3 {
            pair.write(tag, 0, b"page", None).unwrap();
        }
        assert!(is_full(pair.write(3, 0, b"page", None)));
        while let Some(at_ns) = pair.network.next_event_at() {
            pair.network.advance_to(at_ns);
            pair.there.poll();
        }
        assert!(is_full(pair.write(3, 0, b"page", None)), "it is done, but nobody has heard of it");
        pair.settle();
        pair.write(3, 0, b"page", None).unwrap();
        pair.settle();
        pair.assert_clean();
    }
}

/// Immediates and messages wait at their sender until there is room for them. On an ordered card,
/// later ones wait, too.
#[test]
fn whoever_tells_more_than_a_peer_keeps_waits_and_loses_nothing() {
    for mut card in SimCard::kinds() {
        card.receives = 2;
        let is_ordered = card.properties.limits.is_ordered;
        for seed in 0..20 {
            let mut pair = Pair::new(seed, card.clone());
            for tag in 0..6_u32 {
                let (offset, immediate) = (tag as usize, (tag < 5).then_some(tag));
                pair.write(tag.into(), offset, &[tag as u8 + 1], immediate).unwrap();
            }
            pair.settle_here();
            assert!(pair.there.bytes(5, 1) == [0] || !is_ordered);
            pair.settle();
            let mut immediates = pair.there.immediates();
            assert!(immediates == [0, 1, 2, 3, 4] || !is_ordered);
            immediates.sort_unstable();
            assert_eq!(immediates, [0, 1, 2, 3, 4]);
            assert_eq!(pair.there.bytes(0, 6), [1, 2, 3, 4, 5, 6]);
            assert_eq!(pair.here.completed().len(), 6);
            pair.assert_clean();
        }
    }
}

#[test]
fn a_stopped_host_hears_of_nothing_until_it_goes_on() {
    for card in SimCard::kinds() {
        let serves_unpolled = card.serves_unpolled;
        let mut pair = Pair::new(0, card);
        pair.network.stop_host(1, LONG_NS);
        pair.write(1, 0, b"page", Some(1)).unwrap();
        while pair.network.next_event_at().is_some_and(|at_ns| at_ns < LONG_NS) {
            pair.step();
        }
        assert!(pair.network.is_stopped(1) && !pair.network.is_stopped(0));
        assert_eq!((pair.there.bytes(0, 4) == b"page", pair.there.told.len()), (serves_unpolled, 0));
        pair.settle();
        assert!(!pair.network.is_stopped(1));
        assert_eq!((pair.there.bytes(0, 4), pair.there.immediates()), (b"page".to_vec(), vec![1]));
        pair.assert_clean();
    }
}

#[test]
fn what_cannot_be_made_is_told_and_may_be_tried_again() {
    let mut pair = Pair::new(0, SimCard::rc());
    let odds = Odds { setup_fails: 2, ..Odds::default() };
    let failing = SimSettings { odds, ..SimSettings::new(5) };
    let network = farreach_sim::SimNetwork::new(failing);
    let mut rail = farreach_sim::SimRail::new(&network, 0, SimCard::rc());
    let opened: Vec<bool> = (0..100).map(|_| rail.open_link(farreach_rail::PeerKey(0)).is_ok()).collect();
    assert!(opened.contains(&true) && opened.contains(&false));
    network.calm();
    assert!((0..100).all(|_| rail.open_link(farreach_rail::PeerKey(0)).is_ok()));

    // Calls that were not asked to fail do not fail.
    let pieces = Buffers::None;
    post(&mut pair.here.rail, pair.here.link, 1, (WorkRequest::Send, pieces)).unwrap();
    pair.settle();
    pair.assert_clean();
}

/// Every kind of fault that can be drawn occurs, and no other does.
#[test]
fn each_fault_is_drawn_at_its_odds() {
    type Choose = fn(&mut Odds) -> &mut u32;
    let faults: [(&str, Choose); 8] = [
        ("refused", |odds| &mut odds.post_refused),
        ("poll fails", |odds| &mut odds.poll_fails),
        ("fill", |odds| &mut odds.queue_fills),
        ("kill link", |odds| &mut odds.link_dies),
        ("cut", |odds| &mut odds.card_fails),
        ("stop", |odds| &mut odds.host_stops),
        ("kill", |odds| &mut odds.host_killed),
        ("lost", |odds| &mut odds.reset_fails),
    ];
    for (chosen, (name, choose)) in faults.iter().enumerate() {
        let mut seen = vec![0; faults.len()];
        for seed in 0..60 {
            let mut odds = Odds::default();
            *choose(&mut odds) = 10;
            let settings = SimSettings { odds, notes_max: 10_000, ..SimSettings::new(seed) };
            let network = busy_network(settings);
            for note in network.notes() {
                let what = note[13..23].trim();
                seen.iter_mut().zip(&faults).for_each(|(seen, fault)| *seen += usize::from(fault.0 == what));
            }
            assert_eq!(network.violations(), []);
        }
        assert!(seen[chosen] > 0, "{name}: {seen:?}");
        let others = seen.iter().enumerate().filter(|(index, _)| *index != chosen).map(|(_, seen)| *seen);
        // A failed link refuses posts afterwards, and a failed card or host fails its links.
        let follow: usize = match *name {
            "kill link" | "cut" | "kill" | "fill" | "lost" => {
                others.skip(if chosen == 0 { 0 } else { 1 }).sum()
            }
            _ => others.sum(),
        };
        let expected = if *name == "cut" { seen[3] } else { 0 };
        assert_eq!(follow, expected, "{name}: {seen:?}");
    }
}

/// Posts some work requests over a link, with any faults that occur.
fn busy_network(settings: SimSettings) -> farreach_sim::SimNetwork {
    let mut pair = Pair::with(settings, SimCard::rc());
    for tag in 0..20 {
        let empty = (
            WorkRequest::Write { target: RemoteSegment { address: 0, key: 0, len: 0 }, immediate: Some(tag) },
            Buffers::None,
        );
        let _ = post(&mut pair.here.rail, pair.here.link, tag.into(), empty);
        if let Some(at_ns) = pair.network.next_event_at() {
            pair.network.advance_to(at_ns);
        }
        for side in [&mut pair.here, &mut pair.there] {
            let _ = side.rail.poll(&mut |_| {});
        }
    }
    let _ = pair.here.rail.reset();
    pair.network.clone()
}
