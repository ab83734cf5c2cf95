//! Each kind of card does each kind of work request.

use farreach_memory::{Buffer, Buffers};
use farreach_rail::{Proof, Rail, RemoteSegment, WorkRequest};
use farreach_sim::SimCard;
use farreach_sim::request::post;

use crate::pair::{Pair, Told, is_never};

#[test]
fn a_write_lands_and_brings_its_buffer_back() {
    for card in SimCard::kinds() {
        let mut pair = Pair::new(1, card);
        pair.write(7, 100, b"without a word", None).unwrap();
        assert_eq!(pair.here.rail.in_flight(), 1);
        pair.settle();
        assert_eq!(pair.there.bytes(100, 14), b"without a word");
        assert!(pair.there.told.is_empty());
        let [Told::Completed { tag: 7, buffers, outcome: Ok(()) }] = &pair.here.told[..] else {
            panic!("{:?}", pair.here.told);
        };
        assert_eq!(buffers.as_slice()[0].bytes(), Some(&b"without a word"[..]));
        pair.assert_clean();
    }
}

#[test]
fn an_immediate_comes_when_the_bytes_are_there_and_names_its_link_where_the_card_can() {
    for card in SimCard::kinds() {
        let is_named = card.properties.immediates_name_link;
        for seed in 0..50 {
            let mut pair = Pair::new(seed, card.clone());
            pair.write(1, 0, b"told of", Some(9)).unwrap();
            while pair.there.told.is_empty() {
                assert!(pair.step());
            }
            assert_eq!(pair.there.bytes(0, 7), b"told of");
            let [Told::Immediate { link, bits: 9 }] = pair.there.told[..] else {
                panic!("{:?}", pair.there.told);
            };
            assert_eq!(link, is_named.then_some(pair.there.link));
            pair.settle();
            pair.assert_clean();
        }
    }
}

#[test]
fn a_write_without_bytes_is_a_notification() {
    for card in SimCard::kinds() {
        let mut pair = Pair::new(1, card);
        let key = pair.there.key;
        let target = RemoteSegment { address: key.address, key: key.key, len: 0 };
        let empty = (WorkRequest::Write { target, immediate: Some(3) }, Buffers::None);
        post(&mut pair.here.rail, pair.here.link, 1, empty).unwrap();
        pair.settle();
        assert_eq!((pair.there.immediates(), pair.here.completed()), (vec![3], vec![(1, true)]));
        pair.assert_clean();
    }
}

#[test]
fn several_pieces_are_written_one_after_the_other_up_to_the_limit() {
    for card in SimCard::kinds() {
        let pieces_max = card.properties.limits.pieces;
        let mut pair = Pair::new(1, card);
        let pieces = |pair: &mut Pair, count: usize| -> Vec<Buffer> {
            (0..count).map(|index| pair.here.slice(&[index as u8; 3]).into()).collect()
        };
        let list = pieces(&mut pair, pieces_max);
        let target = pair.target(8, 3 * pieces_max);
        let write = (WorkRequest::Write { target, immediate: None }, list.into());
        post(&mut pair.here.rail, pair.here.link, 1, write).unwrap();
        pair.settle();
        let expected: Vec<u8> = (0..pieces_max).flat_map(|index| [index as u8; 3]).collect();
        assert_eq!(pair.there.bytes(8, 3 * pieces_max), expected);

        let list = pieces(&mut pair, pieces_max + 1);
        let target = pair.target(8, 3 * pieces_max + 3);
        let write = (WorkRequest::Write { target, immediate: None }, list.into());
        assert!(is_never(post(&mut pair.here.rail, pair.here.link, 2, write)));
        pair.assert_clean();
    }
}

#[test]
fn a_read_fills_lent_parts() {
    for card in SimCard::kinds() {
        let pieces_max = card.properties.limits.pieces;
        let mut pair = Pair::new(1, card);
        pair.there.granted.write_at(0, b"0123456789");
        let lent = pair.here.slice(&[0; 20]).lend();
        let parts = match pieces_max {
            1 => vec![lent.get(5..15).unwrap()],
            _ => vec![lent.get(10..14).unwrap(), lent.get(0..6).unwrap()],
        };
        let read = (WorkRequest::Read { target: pair.target(0, 10) }, Buffers::of_lent(parts));
        post(&mut pair.here.rail, pair.here.link, 1, read).unwrap();
        pair.settle();
        assert_eq!(pair.here.completed(), [(1, true)]);
        pair.here.told.clear();
        let slice = lent.try_reclaim().unwrap();
        match pieces_max {
            1 => assert_eq!(&slice[5..15], b"0123456789"),
            _ => assert_eq!((&slice[10..14], &slice[0..6]), (&b"0123"[..], &b"456789"[..])),
        }
        pair.assert_clean();
    }
}

#[test]
fn messages_go_both_ways_and_not_beyond_their_longest() {
    for card in SimCard::kinds() {
        let (len_max, is_named) = (card.properties.message_max, card.properties.immediates_name_link);
        let mut pair = Pair::new(1, card);
        let pieces = pair.here.slice(b"ping").into();
        post(&mut pair.here.rail, pair.here.link, 1, (WorkRequest::Send, pieces)).unwrap();
        let pieces = pair.there.slice(b"pong").into();
        post(&mut pair.there.rail, pair.there.link, 2, (WorkRequest::Send, pieces)).unwrap();
        pair.settle();
        for (side, expected) in [(&pair.here, b"pong"), (&pair.there, b"ping")] {
            let is_message = |told: &&Told| matches!(told, Told::Message { .. });
            let Some(Told::Message { link, bytes }) = side.told.iter().find(is_message) else {
                panic!("{:?}", side.told);
            };
            assert_eq!((bytes, *link), (&expected.to_vec(), is_named.then_some(side.link)));
        }
        let pieces = pair.here.slice(&vec![0; len_max + 1]).into();
        assert!(is_never(post(&mut pair.here.rail, pair.here.link, 3, (WorkRequest::Send, pieces))));
        pair.assert_clean();
    }
}

#[test]
fn atomics_change_a_word_and_give_what_was_there() {
    for card in SimCard::kinds() {
        let has_atomics = card.properties.has_atomics;
        let mut pair = Pair::new(1, card);
        pair.there.granted.write_at(16, &10_u64.to_ne_bytes());
        let target = pair.target(16, 8);
        let into = pair.here.slice(&[0; 8]).into();
        let add = (WorkRequest::FetchAdd { target, add: 5 }, into);
        let posted = post(&mut pair.here.rail, pair.here.link, 1, add);
        if !has_atomics {
            assert!(is_never(posted));
            continue;
        }
        posted.unwrap();
        pair.settle();
        for (tag, expected, desired) in [(2, 15, 20), (3, 15, 99)] {
            let into = pair.here.slice(&[0; 8]).into();
            let swap = (WorkRequest::CompareSwap { target, expected, desired }, into);
            post(&mut pair.here.rail, pair.here.link, tag, swap).unwrap();
            pair.settle();
        }
        assert_eq!(pair.there.word(16), 20);
        let before: Vec<u64> = pair.here.told.iter().map(word_of).collect();
        assert_eq!(before, [10, 15, 20]);
        pair.assert_clean();
    }
}

fn word_of(told: &Told) -> u64 {
    let Told::Completed { buffers, outcome: Ok(()), .. } = told else { panic!("{told:?}") };
    u64::from_ne_bytes(buffers.as_slice()[0].bytes().unwrap().try_into().unwrap())
}

/// A completion that proves delivery never comes before the bytes; one that does not sometimes
/// does.
#[test]
fn a_completion_proves_what_the_card_says() {
    for (mut card, proof) in SimCard::kinds()
        .into_iter()
        .flat_map(|card| [Proof::Sent, Proof::Delivered].map(|proof| (card.clone(), proof)))
    {
        card.properties.writes_prove = proof;
        let mut early = 0;
        for seed in 0..200 {
            let mut pair = Pair::new(seed, card.clone());
            pair.write(1, 0, &[7; 64], None).unwrap();
            while pair.here.completed().is_empty() {
                assert!(pair.step());
            }
            early += usize::from(pair.there.bytes(0, 64) != [7; 64]);
            pair.settle();
            assert_eq!(pair.there.bytes(0, 64), [7; 64]);
            pair.assert_clean();
        }
        assert_eq!(early > 0, proof == Proof::Sent, "{early} of 200");
    }
}

#[test]
fn bytes_land_in_parts_and_in_the_order_that_the_card_keeps() {
    for card in SimCard::kinds() {
        let is_ordered = card.properties.limits.is_ordered;
        let (mut partly, mut overtaken) = (0, 0);
        for seed in 0..200 {
            let mut pair = Pair::new(seed, card.clone());
            for tag in 0..4_u8 {
                let offset = usize::from(tag) * 64;
                pair.write(tag.into(), offset, &[tag + 1; 64], Some(tag.into())).unwrap();
            }
            while pair.step() {
                let landed: Vec<u8> = pair.there.bytes(0, 256);
                let is_there: Vec<bool> = landed.iter().map(|byte| *byte > 0).collect();
                let pages: Vec<_> = is_there.chunks(64).collect();
                partly += usize::from(pages.iter().any(|page| page.contains(&true) && page.contains(&false)));
                // On an ordered card, the bytes that have landed are the first ones.
                overtaken += usize::from(!is_there.is_sorted_by(|before, after| before >= after));
            }
            let mut immediates = pair.there.immediates();
            overtaken += usize::from(immediates != [0, 1, 2, 3]);
            immediates.sort_unstable();
            assert_eq!(immediates, [0, 1, 2, 3]);
            pair.assert_clean();
        }
        assert!(partly > 0, "a card moves pages in more than one piece");
        assert_eq!(overtaken == 0, is_ordered, "{overtaken} of 200");
    }
}

#[test]
fn whether_a_peer_is_served_that_nobody_polls_for_depends_on_the_card() {
    for card in SimCard::kinds() {
        let serves_unpolled = card.serves_unpolled;
        let mut pair = Pair::new(1, card);
        pair.write(1, 0, b"page", None).unwrap();
        pair.settle_here();
        assert_eq!(pair.there.bytes(0, 4) == b"page", serves_unpolled);
        pair.settle();
        assert_eq!(pair.there.bytes(0, 4), b"page");
        pair.assert_clean();
    }
}

#[test]
fn links_connect_cards_of_one_kind_and_once() {
    use farreach_sim::{SimNetwork, SimRail, SimSettings};

    let network = SimNetwork::new(SimSettings::new(0));
    let mut rc = SimRail::new(&network, 0, SimCard::rc());
    let mut efa = SimRail::new(&network, 1, SimCard::efa());
    let (link, _) = rc.open_link().unwrap();
    let (_, other_end) = efa.open_link().unwrap();
    let error = rc.connect(link, &other_end).unwrap_err();
    assert_eq!(error.cause, "this card is sim/rc, the peer's is sim/efa");
    rc.connect(link, b"?").unwrap_err();
    let (_, end) = SimRail::new(&network, 1, SimCard::rc()).open_link().unwrap();
    rc.connect(link, &end).unwrap();
    rc.connect(link, &end).unwrap_err();
}
