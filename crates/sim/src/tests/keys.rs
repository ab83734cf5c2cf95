//! Keys, and who can use them.

use std::sync::Arc;

use farreach_memory::Memory;
use farreach_proto::rights::Rights;
use farreach_rail::{LinkKey, PeerKey, Rail, RemoteSegment, WorkRequest};

use crate::{Rule, SimCard, SimNetwork, SimRail, SimSettings};

/// Connects a card to the owner's. Returns its end of the link.
fn connect(owner: &mut SimRail, peer: PeerKey, other: &mut SimRail) -> LinkKey {
    let (own, own_end) = owner.open_link(peer).unwrap();
    let (link, end) = other.open_link(PeerKey(0)).unwrap();
    owner.connect(own, &end).unwrap();
    other.connect(link, &own_end).unwrap();
    link
}

#[test]
fn a_key_is_good_only_over_links_to_its_peer() {
    for card in [SimCard::rc(), SimCard::isolated()] {
        for (writer, is_own) in [(0, true), (1, false)] {
            let network = SimNetwork::new(SimSettings::new(7));
            let mut owner = SimRail::new(&network, 0, card.clone());
            let mut writers = [1, 2].map(|host| SimRail::new(&network, host, card.clone()));
            let links = [0, 1].map(|peer| connect(&mut owner, PeerKey(peer), &mut writers[peer as usize]));
            let memory = Arc::new(Memory::allocate(8).unwrap().expose());
            let key = owner.make_key(PeerKey(0), &memory, Rights::WRITE).unwrap();
            let mut page = Memory::allocate(8).unwrap();
            page.fill(1);
            writers[writer].register(page.memory()).unwrap();
            let target = RemoteSegment { address: key.address, key: key.key, len: 8 };
            let write = WorkRequest::Write { target, immediate: None };
            writers[writer].post(links[writer], 1, write, page.into()).unwrap();
            while let Some(at_ns) = network.next_event_at() {
                network.advance_to(at_ns);
                writers.iter_mut().chain([&mut owner]).for_each(|rail| drop(rail.poll(&mut |_| {})));
            }
            assert_eq!(memory.to_vec() == [1; 8], is_own, "{card:?}");
            let violations = network.violations();
            assert_eq!(violations.is_empty(), is_own, "{violations:?}");
            assert!(violations.iter().all(|it| it.rule == Rule::RemoteSegment));
        }
    }
}
