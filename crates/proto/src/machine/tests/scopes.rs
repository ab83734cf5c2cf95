//! Rails of both scopes: those within the host are used, and the others when they are needed.

use super::hostile::{grant as offer, submit_page};
use super::*;
use crate::ids::GrantId;
use crate::machine::{Direction, GrantRange, Regions, TransferFault};
use crate::time::Time;
use crate::wire::GrantOffer;

/// The rails of the machine, and of the peer.
const NETWORK: usize = 0;
const HOST: usize = 1;

/// Returns a machine that has connected to a peer, with rails of both scopes.
fn greeted_over_both() -> Machine {
    let within_host = Properties {
        kind: "test/shm".to_owned(),
        name: "test-shm".to_owned(),
        scope: Scope::Host,
        links_end_alone: true,
        ended_keys: EndedKeys::Reported,
        ..properties()
    };
    let rails = [properties(), within_host];
    let mut hello = Hello::new(2);
    (hello.rails, hello.messages) = (rails.iter().map(|rail| rail.kind.clone()).collect(), 4);
    (hello.grants, hello.counters) = (4, 4);
    let rails = rails.map(|properties| RailInfo { properties, must_be_polled: false });
    let mut machine = Machine::new(rails.into(), Hello::new(1), tuning(), [1; 32]);
    assert_eq!(machine.add_peer(true, Time::ZERO), PEER);
    machine.handle_frame(PEER, Frame::Hello(hello), Time::ZERO);
    machine
}

/// Runs the machine from one time to another. Returns the ends of links that it wants to create.
fn openings(machine: &mut Machine, times: std::ops::Range<u64>) -> Vec<Opening> {
    let mut openings = Vec::new();
    for now in times.step_by(MS as usize / 10) {
        machine.begin_step(Time(now));
        while let Some(control) = machine.poll_control() {
            if let Control::OpenLink(opening) = control {
                openings.push(opening);
            }
        }
        machine.end_step();
    }
    openings
}

/// Connects a link whose end the machine wants to create.
fn connect(machine: &mut Machine, opening: Opening, now: u64) {
    let rail = opening.rail;
    machine.handle_opened(opening, Ok((LinkKey(rail as u64), vec![1])));
    let offered = frames(machine).into_iter().find_map(|frame| match frame {
        Frame::Link(offer) => Some(offer),
        _ => None,
    });
    let LinkOffer { link, from, to, .. } = offered.expect("the end is sent to the peer");
    machine.handle_frame(
        PEER,
        Frame::Link(LinkOffer { link, from: to, to: from, address: vec![2] }),
        Time(now),
    );
    let Some(Control::Connect { end, .. }) = machine.poll_control() else { panic!("not connected") };
    machine.handle_connected(end, Ok(()));
    let ready = Frame::LinkReady { link, mark: 9, needs_names: false, binds_keys: false };
    machine.handle_frame(PEER, ready, Time(now));
}

/// Returns a machine with a link within the host, at the time of 10 ms.
fn within_host() -> Machine {
    let mut machine = greeted_over_both();
    let [opening] = openings(&mut machine, 0..MS).try_into().expect("one link");
    assert_eq!(opening.rail, HOST);
    connect(&mut machine, opening, MS);
    assert!(openings(&mut machine, MS..10 * MS).is_empty(), "the others are not needed");
    let rails =
        |event: &Event| matches!(event, Event::Peer(PEER, PeerChange::Rails(it)) if it == &["test-shm"]);
    assert!(events(&mut machine).iter().any(rails));
    machine
}

/// Connects the link over the network, which must be wanted, at the time of 20 ms.
fn connect_network(machine: &mut Machine) {
    let [opening] = openings(machine, 10 * MS..20 * MS).try_into().expect("one link");
    assert_eq!(opening.rail, NETWORK);
    connect(machine, opening, 20 * MS);
}

fn offer_over(scope: Scope, grant: GrantId) -> Frame {
    let key = |rail| (rail == scope).then_some((4096, grant.0));
    let keys = [Scope::Network, Scope::Host].map(key).to_vec();
    Frame::Grant(GrantOffer { scope, keys, ..offer(grant) })
}

/// Returns the rail of the next work request.
fn posted_over(machine: &mut Machine) -> Option<usize> {
    machine.begin_round(4);
    let post = machine.poll_post()?;
    let (slot, rail) = (post.slot, post.rail);
    machine.handle_posted(slot, Ok(()));
    Some(rail)
}

#[test]
fn a_grant_over_the_network_connects_those_rails() {
    let mut machine = within_host();
    assert_eq!(machine.grant_scopes(PEER), [Scope::Host, Scope::Network]);
    let keys = RemoteKeys { scope: Scope::Host, by_rail: vec![None, Some((0, 1))] };
    machine.grant(PEER, 64, Rights::WRITE, keys, Time(10 * MS));
    assert!(openings(&mut machine, 10 * MS..20 * MS).is_empty());
    machine.grant(PEER, 64, Rights::WRITE, over_network(vec![Some((0, 1)), None]), Time(10 * MS));
    connect_network(&mut machine);
    assert_eq!(machine.grant_scopes(PEER), [Scope::Host, Scope::Network]);
}

#[test]
fn a_grant_of_the_peer_over_the_network_connects_those_rails() {
    let mut machine = within_host();
    machine.handle_frame(PEER, offer_over(Scope::Host, GrantId(1)), Time(10 * MS));
    assert!(openings(&mut machine, 10 * MS..20 * MS).is_empty());
    machine.handle_frame(PEER, offer_over(Scope::Network, GrantId(2)), Time(10 * MS));
    connect_network(&mut machine);
}

#[test]
fn a_link_within_the_host_that_fails_is_replaced_by_the_others() {
    let mut machine = greeted_over_both();
    assert_eq!(machine.grant_scopes(PEER), [Scope::Network, Scope::Host], "none is connected");
    let [opening] = openings(&mut machine, 0..MS).try_into().expect("one link");
    machine.handle_opened(opening, Err(RailError::new("open", "there is no descriptor", "raise the limit")));
    let rails = openings(&mut machine, MS..10 * MS).into_iter().map(|opening| opening.rail);
    assert_eq!(rails.collect::<Vec<_>>(), [NETWORK, HOST], "it is tried again after a while");

    let mut machine = within_host();
    let (link, reason) = (LinkId(0), "the socket is closed".to_owned());
    machine.handle_frame(PEER, Frame::LinkLost { link, is_quiet: true, reason }, Time(10 * MS));
    assert_eq!(machine.grant_scopes(PEER), [Scope::Network, Scope::Host]);
    let rails = openings(&mut machine, 10 * MS..20 * MS).into_iter().map(|opening| opening.rail);
    assert_eq!(rails.collect::<Vec<_>>(), [NETWORK, HOST]);
}

#[test]
fn pages_go_over_rails_of_the_scope_of_their_grant() {
    let mut machine = within_host();
    for (grant, scope) in
        [(GrantId(1), Scope::Network), (GrantId(2), Scope::Host), (GrantId(3), Scope::Network)]
    {
        machine.handle_frame(PEER, offer_over(scope, grant), Time(10 * MS));
        submit_page(&mut machine, OpId(grant.0), grant, 10 * MS);
    }
    assert_eq!(posted_over(&mut machine), Some(HOST), "the others wait for their link");
    assert_eq!(posted_over(&mut machine), None);
    connect_network(&mut machine);
    assert_eq!(posted_over(&mut machine), Some(NETWORK));
    // Those of both scopes take turns.
    submit_page(&mut machine, OpId(4), GrantId(2), 20 * MS);
    let mut rails = [(); 2].map(|()| posted_over(&mut machine).unwrap());
    rails.sort_unstable();
    assert_eq!((rails, posted_over(&mut machine)), ([NETWORK, HOST], None));
}

#[test]
fn a_revoke_within_the_host_resets_no_card() {
    for (scope, resets) in [(Scope::Host, 0), (Scope::Network, 1)] {
        let mut machine = within_host();
        let key = |rail| (rail == scope).then_some((0, 1));
        let by_rail = [Scope::Network, Scope::Host].map(key).to_vec();
        let grant = machine.grant(PEER, 64, Rights::WRITE, RemoteKeys { scope, by_rail }, Time(10 * MS));
        machine.revoke(Some(OpId(1)), grant, Time(100 * MS), Time(10 * MS));
        machine.handle_disconnected(PEER, LostReason::Gone, Time(10 * MS));
        let mut seen = (0, 0);
        for now in (10 * MS..30 * MS).step_by(MS as usize) {
            machine.begin_step(Time(now));
            while let Some(control) = machine.poll_control() {
                match control {
                    Control::EndKeys { .. } => {
                        seen.0 += 1;
                        machine.handle_keys_ended(grant, KeysEnded::default());
                    }
                    Control::Reset { rail } => {
                        assert_eq!(rail, NETWORK);
                        seen.1 += 1;
                        machine.handle_reset(rail, Ok(()));
                    }
                    _ => {}
                }
            }
            machine.end_step();
        }
        assert_eq!(seen, (1, resets), "{scope:?}");
    }
}

/// A transfer uses the links of one scope, which is that of its regions.
#[test]
fn regions_of_different_scopes_are_refused() {
    let mut machine = within_host();
    for (grant, scope) in [(GrantId(1), Scope::Network), (GrantId(2), Scope::Host), (GrantId(3), Scope::Host)]
    {
        machine.handle_frame(PEER, offer_over(scope, grant), Time(10 * MS));
    }
    let mut outcome = |grants: &[GrantId]| {
        let regions = grants.iter().map(|grant| GrantRange { grant: *grant, base: 0, len: 64 });
        let regions = Regions::List(regions.collect());
        machine.may_transfer(PEER, Direction::Write, &regions, None)
    };
    assert_eq!(outcome(&[GrantId(2), GrantId(3), GrantId(2)]), Ok(()));
    assert_eq!(outcome(&[GrantId(1), GrantId(1)]), Ok(()));
    assert_eq!(outcome(&[GrantId(2), GrantId(1)]), Err(TransferFault::Scopes));
    // Each region is checked, and a transfer without any is refused.
    assert_eq!(outcome(&[GrantId(2), GrantId(9)]), Err(TransferFault::NoSuchGrant));
    assert_eq!(outcome(&[]), Err(TransferFault::NoSuchGrant));
}
