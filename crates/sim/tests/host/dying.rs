//! Links, cards and hosts that fail: operations in flight have landed wholly, in part, or not at
//! all, and every buffer comes back.

use farreach_rail::{Rail, WorkRequest};
use farreach_sim::SimCard;
use farreach_sim::request::post;

use crate::pair::{Pair, Side, Told, is_down};

const WRITES: u64 = 8;
const LEN: usize = 32;

/// Writes over one link, each to its own place, in progress.
fn under_way(seed: u64, card: SimCard) -> Pair {
    let mut pair = Pair::new(seed, card);
    for tag in 0..WRITES {
        let immediate = Some(tag as u32);
        pair.write(tag, tag as usize * LEN, &[tag as u8 + 1; LEN], immediate).unwrap();
    }
    for _ in 0..seed % 40 {
        pair.step();
    }
    pair
}

/// Returns how much of each write has landed.
fn landed(side: &Side) -> Vec<usize> {
    let pages = side.bytes(0, WRITES as usize * LEN);
    pages.chunks(LEN).map(|page| page.iter().filter(|byte| **byte > 0).count()).collect()
}

/// Checks that all work requests in flight come back after a failure: by themselves if the card
/// reports it, otherwise after a reset. Each comes back once, and successful ones have done what
/// their completion proves.
fn assert_all_come_back(pair: &mut Pair, card: &SimCard) -> usize {
    pair.settle();
    if !card.tells_of_dead_peers {
        let hanging = WRITES as usize - pair.here.completed().len();
        assert_eq!(pair.here.rail.in_flight(), hanging);
        pair.here.rail.reset().unwrap();
        pair.here.poll();
    }
    let mut tags: Vec<u64> = pair.here.completed().iter().map(|(tag, _)| *tag).collect();
    tags.sort_unstable();
    assert_eq!(tags, (0..WRITES).collect::<Vec<_>>());
    assert_eq!((pair.here.rail.in_flight(), pair.network.violations()), (0, vec![]));
    pair.here.completed().iter().filter(|(_, is_ok)| !is_ok).count()
}

#[test]
fn a_link_that_dies_fails_what_is_in_flight_or_leaves_it_hanging() {
    for card in SimCard::kinds() {
        let (mut wholly, mut partly, mut not_at_all, mut failed, mut late) = (0, 0, 0, 0, 0);
        for seed in 0..400 {
            let mut pair = under_way(seed, card.clone());
            pair.network.kill_link(pair.here.link);
            let (before, landed_before) = (pair.here.completed().len(), landed(&pair.there));
            failed += assert_all_come_back(&mut pair, &card);
            let landed = landed(&pair.there);
            late += usize::from(landed != landed_before);
            let later = landed.iter().skip(if card.properties.limits.is_ordered { before } else { 0 });
            for bytes in later {
                wholly += usize::from(*bytes == LEN);
                partly += usize::from((1..LEN).contains(bytes));
                not_at_all += usize::from(*bytes == 0);
            }
            if card.properties.limits.is_ordered {
                assert!(landed.is_sorted_by(|before, after| before >= after), "a gap: {landed:?}");
            }
            // Nothing is reported before its bytes have arrived, and nothing twice.
            let mut immediates = pair.there.immediates();
            assert!(immediates.iter().all(|immediate| landed[*immediate as usize] == LEN));
            immediates.sort_unstable();
            immediates.dedup();
            assert_eq!(immediates.len(), pair.there.immediates().len());
        }
        assert!(wholly > 0 && partly > 0 && not_at_all > 0 && failed > 0);
        assert_eq!(late > 0, card.lands_late);
    }
}

#[test]
fn after_a_failure_a_link_is_refused_and_another_one_works() {
    for card in [SimCard::rc(), SimCard::efa()] {
        let mut pair = under_way(0, card);
        pair.network.kill_link(pair.here.link);
        pair.settle();
        assert!(is_down(pair.write(100, 0, b"page", None)));
        assert_eq!(pair.network.violations(), [], "whoever posts cannot know");
        pair.here.rail.close_link(pair.here.link);
        pair.there.rail.close_link(pair.there.link);
        pair.connect();
        pair.write(101, 0, b"again", Some(77)).unwrap();
        pair.settle();
        assert_eq!((pair.there.bytes(0, 5), pair.there.immediates().last()), (b"again".to_vec(), Some(&77)));
        pair.assert_clean();
    }
}

#[test]
fn a_dead_link_may_be_told_of_though_nothing_was_in_flight() {
    let mut told = 0;
    for seed in 0..50 {
        let mut pair = Pair::new(seed, SimCard::rc());
        pair.network.kill_link(pair.here.link);
        pair.settle();
        let is_down = |told: &&Told| matches!(told, Told::LinkDown { link } if *link == pair.here.link);
        told += pair.here.told.iter().filter(is_down).count();
        // Reported or not, anything posted now is lost.
        if pair.write(1, 0, b"page", None).is_ok() {
            pair.settle();
            assert_eq!(pair.here.completed(), [(1, false)]);
        }
    }
    assert!(told > 0 && told < 50, "{told} of 50");
}

#[test]
fn a_card_without_a_cable_loses_all_links_and_works_again_with_new_ones() {
    for card in SimCard::kinds() {
        let mut pair = under_way(10, card.clone());
        let first = pair.here.link;
        pair.connect();
        pair.write(WRITES, 2048, b"second", None).unwrap();
        pair.network.fail_card(pair.there.rail.id());
        // A link that is made meanwhile leads nowhere.
        pair.connect();
        pair.write(WRITES + 1, 2048, b"second", None).unwrap();
        pair.settle();
        assert_eq!(pair.there.bytes(2048, 6), [0; 6]);
        pair.network.mend_card(pair.there.rail.id());
        assert!(!card.tells_of_dead_peers || is_down(pair.write(100, 0, b"page", None)));
        assert_ne!(first, pair.here.link);

        pair.here.rail.reset().unwrap();
        pair.here.poll();
        assert_eq!(pair.here.completed().len(), WRITES as usize + 2);
        pair.connect();
        pair.write(101, 2048, b"fourth", Some(99)).unwrap();
        pair.settle();
        assert_eq!(pair.there.bytes(2048, 6), b"fourth");
        pair.assert_clean();
    }
}

/// A cable that is out for a moment: nothing later may pass the gap of the bytes that were lost
/// meanwhile.
#[test]
fn what_comes_behind_a_loss_is_lost_too_where_there_is_an_order() {
    for card in [SimCard::rc(), SimCard::tcp()] {
        let mut partly = 0;
        for seed in 0..400 {
            let mut pair = under_way(seed, card.clone());
            pair.network.fail_card(pair.there.rail.id());
            for _ in 0..seed % 7 {
                pair.step();
            }
            pair.network.mend_card(pair.there.rail.id());
            pair.settle();
            let landed = landed(&pair.there);
            assert!(landed.is_sorted_by(|before, after| before >= after), "seed {seed}: a gap: {landed:?}");
            partly += usize::from(landed.contains(&0) && landed.contains(&LEN));
        }
        assert!(partly > 0);
    }
}

#[test]
fn a_killed_host_takes_all_with_it_and_comes_back_as_another() {
    for card in SimCard::kinds() {
        for seed in 0..60 {
            let mut pair = under_way(seed, card.clone());
            pair.network.kill_host(1);
            assert!(pair.network.is_killed(1) && !pair.network.is_usable(pair.there.rail.id()));
            let error = pair.there.rail.poll(&mut |event| panic!("{event:?}")).unwrap_err();
            assert_eq!(error.cause, "the host of this card was killed");
            pair.there.rail.open_link(farreach_rail::PeerKey(0)).unwrap_err();

            // The memory of a dead host has no owner: dropping it is no violation.
            let id = pair.there.rail.id();
            pair.there = Side::new(&pair.network, 1, card.clone());
            assert!(pair.network.is_usable(pair.there.rail.id()) && !pair.network.is_killed(1));
            assert_ne!(pair.there.rail.id(), id);
            assert_all_come_back(&mut pair, &card);
            assert_eq!(landed(&pair.there), [0; WRITES as usize]);

            pair.connect();
            pair.write(100, 0, b"page", Some(1)).unwrap();
            pair.settle();
            assert_eq!((pair.there.bytes(0, 4), pair.there.immediates()), (b"page".to_vec(), vec![1]));
            pair.assert_clean();
        }
    }
}

/// Bytes in flight when their sender is killed land if the card allows that, and nothing is
/// reported twice.
#[test]
fn bytes_of_a_killed_sender_land_late_only_where_the_card_lets_them() {
    for card in SimCard::kinds() {
        let mut late = 0;
        for seed in 0..100 {
            let mut pair = under_way(seed, card.clone());
            let before: usize = landed(&pair.there).iter().sum();
            pair.network.kill_host(0);
            while let Some(at_ns) = pair.network.next_event_at() {
                pair.network.advance_to(at_ns);
                pair.there.poll();
            }
            late += landed(&pair.there).iter().sum::<usize>() - before;
            assert_eq!(pair.network.violations(), []);
        }
        assert_eq!(late > 0, card.lands_late, "{late} bytes");
    }
}

#[test]
fn closing_a_link_gives_all_back_at_once_where_links_end_alone() {
    for seed in 0..60 {
        let mut pair = under_way(seed, SimCard::rc());
        let before = landed(&pair.there);
        pair.here.rail.close_link(pair.here.link);
        pair.here.poll();
        assert_eq!((pair.here.rail.in_flight(), pair.here.completed().len()), (0, WRITES as usize));
        pair.settle();
        assert_eq!(landed(&pair.there), before, "nothing lands any more");
        pair.connect();
        pair.write(100, 0, b"page", Some(200)).unwrap();
        pair.settle();
        assert_eq!((pair.there.bytes(0, 4), pair.there.immediates().last()), (b"page".to_vec(), Some(&200)));
        pair.assert_clean();
    }
}

#[test]
fn closing_the_other_side_stops_what_was_begun_from_here_and_its_card_finds_out() {
    for seed in 0..60 {
        let mut pair = under_way(seed, SimCard::rc());
        let before = landed(&pair.there);
        let (completed, closed) = (pair.here.completed().len(), pair.there.link);
        pair.there.rail.close_link(closed);
        pair.settle();
        assert_eq!(landed(&pair.there), before);
        assert_eq!(pair.here.completed().len(), WRITES as usize);
        let has_failed = pair.here.completed().iter().any(|(_, is_ok)| !is_ok);
        assert!(has_failed || completed == WRITES as usize || before == [LEN; WRITES as usize]);
        pair.assert_clean();
    }
}

/// On a card with one endpoint for all links, a closed link only accepts nothing more.
#[test]
fn closing_a_link_among_many_waits_for_what_is_in_flight() {
    for card in [SimCard::tcp(), SimCard::efa()] {
        let mut pair = under_way(0, card);
        pair.here.rail.close_link(pair.here.link);
        pair.there.rail.close_link(pair.there.link);
        pair.here.poll();
        assert_eq!(pair.here.completed(), []);
        pair.settle();
        assert_eq!(pair.here.completed().len(), WRITES as usize);
        assert_eq!((landed(&pair.there), pair.there.immediates().len()), (vec![LEN; WRITES as usize], 8));
        pair.assert_clean();
    }
}

/// A reset brings everything back. Bytes that have left land late if the card allows that, unless
/// the other side resets, too.
#[test]
fn a_reset_gives_all_back_and_stops_peers() {
    for card in SimCard::kinds() {
        let (mut late_after_sender, mut late_after_receiver) = (0, 0);
        for seed in 0..100 {
            let mut pair = under_way(seed, card.clone());
            let before: usize = landed(&pair.there).iter().sum();
            pair.here.rail.reset().unwrap();
            pair.here.poll();
            assert_eq!((pair.here.rail.in_flight(), pair.here.completed().len()), (0, 8));
            pair.settle();
            late_after_sender += landed(&pair.there).iter().sum::<usize>() - before;
            pair.assert_clean();

            let mut pair = under_way(seed, card.clone());
            pair.there.rail.reset().unwrap();
            let before: usize = landed(&pair.there).iter().sum();
            pair.there.told.clear();
            pair.settle();
            late_after_receiver += landed(&pair.there).iter().sum::<usize>() - before;
            assert_eq!(pair.there.immediates(), [], "whoever is reset hears nothing of old links");
            pair.here.rail.reset().unwrap();
            pair.here.poll();
            pair.connect();
            pair.write(100, 0, b"page", Some(1)).unwrap();
            pair.settle();
            assert_eq!(pair.there.immediates(), [1]);
            pair.assert_clean();
        }
        assert_eq!(late_after_sender > 0, card.lands_late);
        assert_eq!(late_after_receiver, 0);
    }
}

/// Immediates that were not polled when their link ends are not reported any more.
#[test]
fn what_was_not_heard_of_before_the_end_of_its_link_never_is() {
    for card in SimCard::kinds() {
        let links_end_alone = card.properties.links_end_alone;
        for is_closed in [true, false] {
            let mut pair = under_way(0, card.clone());
            while let Some(at_ns) = pair.network.next_event_at() {
                pair.network.advance_to(at_ns);
            }
            assert!(pair.network.waits_for_poll());
            let link = pair.there.link;
            match is_closed {
                true => pair.there.rail.close_link(link),
                false => pair.there.rail.reset().unwrap(),
            }
            pair.settle();
            assert!(!pair.network.waits_for_poll());
            assert_eq!(pair.there.immediates().is_empty(), !is_closed || links_end_alone);
            assert_eq!(pair.network.violations(), []);
        }
    }
}

/// A test drops the remains of a killed host. Nothing can still access its memory.
#[test]
fn a_killed_card_has_ended_whatever_is_asked_to_end() {
    for card in SimCard::kinds() {
        let mut pair = under_way(5, card);
        pair.network.kill_host(1);
        pair.there.rail.end_key(pair.there.key.id).unwrap();
        pair.there.rail.reset().unwrap();
        pair.there.rail.close_link(pair.there.link);
        assert_eq!(pair.there.rail.in_flight(), 0);
        assert_eq!(std::sync::Arc::strong_count(&pair.there.granted), 1, "nobody else has it");
        pair.there.rail.open_link(farreach_rail::PeerKey(0)).unwrap_err();
        pair.network.kill_host(0);
        pair.here.rail.reset().unwrap();
        assert_eq!((pair.here.rail.in_flight(), pair.network.leaked()), (0, 0));
    }
}

#[test]
fn a_reset_that_fails_proves_nothing() {
    for card in SimCard::kinds() {
        let mut pair = under_way(5, card);
        let in_flight = pair.here.rail.in_flight();
        pair.network.break_card(pair.here.rail.id());
        pair.here.rail.reset().unwrap_err();
        pair.here.rail.poll(&mut |event| panic!("{event:?}")).unwrap_err();
        pair.here.rail.reset().unwrap_err();
        let pieces = farreach_memory::Buffers::None;
        assert!(is_down(post(&mut pair.here.rail, pair.here.link, 1, (WorkRequest::Send, pieces))));
        assert_eq!(pair.here.rail.in_flight(), in_flight);
        let network = pair.network.clone();
        drop(pair.here);
        assert_eq!((network.leaked(), network.violations()), (in_flight + 1, vec![]));
    }
}
