//! Violations are detected.

use farreach_memory::{Buffers, Memory};
use farreach_proto::rights::Rights;
use farreach_rail::{Rail, RemoteSegment, WorkRequest};
use farreach_sim::request::post;
use farreach_sim::{Rule, SimCard, SimNetwork};

use crate::pair::{Pair, is_down, is_full, is_never};

fn rules(network: &SimNetwork) -> Vec<Rule> {
    network.violations().iter().map(|violation| violation.rule).collect()
}

#[test]
fn more_requests_than_a_window_has_room_for() {
    for mut card in SimCard::kinds() {
        card.properties.window = 2;
        let mut pair = Pair::new(0, card);
        for tag in 0..2 {
            pair.write(tag, 0, b"page", None).unwrap();
        }
        assert_eq!(rules(&pair.network), []);
        assert!(is_full(pair.write(2, 0, b"page", None)));
        assert_eq!(rules(&pair.network), [Rule::Window]);
        pair.settle();
        pair.write(2, 0, b"page", None).unwrap();
        assert_eq!(rules(&pair.network), [Rule::Window], "there is room again");
    }
}

#[test]
fn more_completions_than_a_queue_has_room_for() {
    for mut card in SimCard::kinds() {
        (card.queue_len, card.refuses_overrun) = (2, false);
        let mut pair = Pair::new(0, card);
        for tag in 0..5 {
            pair.write(tag, 0, b"page", None).unwrap();
        }
        while let Some(at_ns) = pair.network.next_event_at() {
            pair.network.advance_to(at_ns);
            pair.there.poll();
            // A card that does nothing without polls is polled one completion too late.
            if pair.network.next_event_at().is_none() {
                pair.here.poll();
            }
        }
        assert_eq!(rules(&pair.network), [Rule::Overrun]);
        assert_eq!((pair.here.completed().len(), pair.here.rail.in_flight()), (5, 0));
        assert!(pair.here.completed().iter().any(|(_, is_ok)| !is_ok));
        assert!(is_down(pair.write(9, 0, b"page", None)), "its links are dead");
    }
}

#[test]
fn a_request_over_a_link_that_leads_nowhere() {
    for card in SimCard::kinds() {
        let mut pair = Pair::new(0, card);
        let immediate = || {
            (
                WorkRequest::Write {
                    target: RemoteSegment { address: 0, key: 0, len: 0 },
                    immediate: Some(1),
                },
                Buffers::None,
            )
        };
        let (unconnected, _) = pair.here.rail.open_link(farreach_rail::PeerKey(0)).unwrap();
        assert!(is_down(post(&mut pair.here.rail, unconnected, 1, immediate())));
        // A link of another card.
        assert!(is_down(post(&mut pair.here.rail, pair.there.link, 1, immediate())));
        pair.here.rail.close_link(pair.here.link);
        assert!(is_down(post(&mut pair.here.rail, pair.here.link, 1, immediate())));
        pair.connect();
        pair.here.rail.reset().unwrap();
        assert!(is_down(post(&mut pair.here.rail, pair.here.link, 1, immediate())));
        assert_eq!(rules(&pair.network), [Rule::NoPeer; 4]);
    }
}

#[test]
fn buffers_that_a_card_may_not_touch() {
    for card in SimCard::kinds() {
        let mut pair = Pair::new(0, card);
        let unregistered = Memory::allocate(4).unwrap();
        let write = (WorkRequest::Write { target: pair.target(0, 4), immediate: None }, unregistered.into());
        assert!(is_never(post(&mut pair.here.rail, pair.here.link, 1, write)));
        let shared = pair.here.slice(b"read").share();
        let read = (WorkRequest::Read { target: pair.target(0, 4) }, shared.into());
        assert!(is_never(post(&mut pair.here.rail, pair.here.link, 1, read)));
        assert_eq!(rules(&pair.network), [Rule::Buffers; 2]);
        assert_eq!(pair.here.rail.in_flight(), 0);
    }
}

#[test]
fn targets_that_were_not_granted() {
    for card in SimCard::kinds() {
        let mut pair = Pair::new(0, card.clone());
        let granted = pair.target(0, 4);
        let read_only =
            pair.there.rail.make_key(farreach_rail::PeerKey(0), &pair.there.granted, Rights::READ).unwrap();
        let targets = [
            RemoteSegment { address: granted.address + 4093, ..granted },
            RemoteSegment { address: granted.address.wrapping_sub(1), ..granted },
            RemoteSegment { key: granted.key + 1000, ..granted },
            RemoteSegment { key: pair.here.key.key, ..granted },
            RemoteSegment { address: read_only.address, key: read_only.key, ..granted },
        ];
        for (done, target) in targets.into_iter().enumerate() {
            let pieces = pair.here.slice(b"page").into();
            let write = (WorkRequest::Write { target, immediate: None }, pieces);
            post(&mut pair.here.rail, pair.here.link, 1, write).unwrap();
            pair.settle();
            let found = rules(&pair.network);
            assert!(
                found.len() > done && found.iter().all(|rule| *rule == Rule::RemoteSegment),
                "{target:?}"
            );
            // The refused work request has ended the link on most cards.
            pair.here.rail.reset().unwrap();
            pair.here.poll();
            pair.connect();
        }
        assert_eq!(pair.there.bytes(0, 4096), [0; 4096]);

        let before = rules(&pair.network).len();
        let pieces = pair.here.slice(b"page").into();
        let longer = (WorkRequest::Write { target: pair.target(0, 5), immediate: None }, pieces);
        assert!(is_never(post(&mut pair.here.rail, pair.here.link, 1, longer)));
        assert_eq!(rules(&pair.network).len(), before + 1);
    }
}
