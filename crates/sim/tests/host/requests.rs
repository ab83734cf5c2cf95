//! Each kind of card does each kind of work request, and what it leaves open happens both ways.

use farreach_rail::{Proof, Rail};
use farreach_sim::{SimCard, SimNetwork, SimRail, SimSettings};

use crate::contract;
use crate::pair::Pair;

contract::contract! { [] over_each_kind }

/// Calls a part of the contract with two cards of each kind, in several histories.
fn over_each_kind(part: fn(contract::pair::Pair<SimRail>)) {
    for card in SimCard::kinds() {
        for seed in 0..20 {
            let network = SimNetwork::new(SimSettings::new(seed));
            let rails = [0, 1].map(|host| SimRail::new(&network, host, card.clone()));
            let clock = network.clone();
            let pass = move || clock.advance_to(clock.next_event_at().unwrap_or(clock.now()));
            part(contract::pair::Pair::new(rails, pass));
            assert_eq!(network.violations(), []);
        }
    }
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
    let network = SimNetwork::new(SimSettings::new(0));
    let mut rc = SimRail::new(&network, 0, SimCard::rc());
    let mut efa = SimRail::new(&network, 1, SimCard::efa());
    let (link, _) = rc.open_link(farreach_rail::PeerKey(0)).unwrap();
    let (_, other_end) = efa.open_link(farreach_rail::PeerKey(0)).unwrap();
    let error = rc.connect(link, &other_end).unwrap_err();
    assert_eq!(error.cause, "this card is sim/rc, the peer's is sim/efa");
    rc.connect(link, b"?").unwrap_err();
    let (_, end) = SimRail::new(&network, 1, SimCard::rc()).open_link(farreach_rail::PeerKey(0)).unwrap();
    rc.connect(link, &end).unwrap();
    rc.connect(link, &end).unwrap_err();
}
