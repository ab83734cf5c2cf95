//! Keys that are bound to links.

use super::*;
use crate::ids::GrantId;
use crate::machine::{Content, Direction, GrantRange, NewTransfer, OpId};
use crate::plan::{Pages, Plan};
use crate::rail::WorkRequest;
use crate::time::Time;
use crate::wire::{BoundKey, GrantOffer};

fn windows() -> Properties {
    Properties { keys_are_bound: true, immediates_name_link: true, links_end_alone: true, ..properties() }
}

/// Returns a machine with a link over a rail that binds keys, to a peer whose rail does so, too.
fn bound() -> (Machine, LinkEnd, LinkId) {
    let (mut machine, end, link) = answered_over(windows());
    machine.handle_connected(end, Ok(()));
    machine.handle_frame(
        PEER,
        Frame::LinkReady { link, mark: 9, needs_names: false, binds_keys: true },
        Time::ZERO,
    );
    frames(&mut machine);
    (machine, end, link)
}

fn step(machine: &mut Machine) -> Vec<Frame> {
    machine.begin_step(Time::ZERO);
    machine.end_polls();
    frames(machine)
}

fn binds(machine: &mut Machine) -> Vec<GrantId> {
    std::iter::from_fn(|| machine.poll_control())
        .filter_map(|control| match control {
            Control::BindKey { rail: 0, link: LINK, grant } => Some(grant),
            _ => None,
        })
        .collect()
}

#[test]
fn a_key_is_told_when_it_is_bound() {
    let (mut machine, _, link) = bound();
    let grant = machine.grant(PEER, 64, Rights::all(), over_network(vec![None]), Time::ZERO);
    assert_eq!(binds(&mut machine), [grant]);
    assert!(matches!(&step(&mut machine)[..], [Frame::Grant(_)]), "its key follows");
    machine.handle_key_bound(0, LINK, grant, Ok((4096, 7)));
    let keys = vec![BoundKey { grant, address: 4096, key: 7 }];
    assert_eq!(step(&mut machine), [Frame::Keys { link, keys }]);
    assert!(step(&mut machine).is_empty(), "once");
}

#[test]
fn a_link_that_comes_later_gets_the_keys_of_all_grants() {
    let (mut machine, end, _) = answered_over(windows());
    let mut grants: Vec<GrantId> = (0..3)
        .map(|_| machine.grant(PEER, 64, Rights::all(), over_network(vec![None]), Time::ZERO))
        .collect();
    machine.revoke(None, grants.pop().unwrap(), Time::NEVER, Time::ZERO);
    assert!(binds(&mut machine).is_empty(), "there is no link");
    machine.handle_connected(end, Ok(()));
    grants.sort_unstable();
    assert_eq!(binds(&mut machine), grants, "not of the one that is being revoked");
}

#[test]
fn a_link_whose_keys_cannot_be_bound_fails() {
    let (mut machine, ..) = bound();
    let grant = machine.grant(PEER, 64, Rights::all(), over_network(vec![None]), Time::ZERO);
    binds(&mut machine);
    machine.handle_key_bound(0, LINK, grant, Err(RailError::new("bind", "no room", "none")));
    let control = machine.poll_control();
    assert!(matches!(control, Some(Control::CloseLink { rail: 0, link: LINK })), "{control:?}");
}

/// A side without descriptors, for instance, cannot bind a key. Its peer's other operations go on.
#[test]
fn a_key_that_cannot_be_bound_now_is_bound_later_and_ends_no_link() {
    let (mut machine, ..) = bound();
    let grant = machine.grant(PEER, 64, Rights::all(), over_network(vec![None]), Time::ZERO);
    binds(&mut machine);
    let mut notes = 0;
    let mut attempts = 0;
    for now in (0..20 * MS).step_by(MS as usize / 4) {
        if attempts == 0
            || matches!(machine.poll_control(), Some(Control::BindKey { grant: of, .. }) if of == grant)
        {
            attempts += 1;
            let error = RailError::new("bind", "too many open files", "raise `ulimit -n`");
            machine.handle_key_not_bound(0, LINK, grant, error);
        }
        machine.handle_frame(PEER, Frame::Ping { nonce: now }, Time(now));
        machine.begin_step(Time(now));
        machine.end_step();
        for event in events(&mut machine) {
            match event {
                Event::Peer(_, PeerChange::Note(_)) => notes += 1,
                Event::Peer(_, PeerChange::LinkLost { .. }) => panic!("the link goes on"),
                _ => {}
            }
        }
    }
    assert!((5..=21).contains(&attempts) && notes == 1, "{attempts} {notes}");
    // One that is revoked meanwhile is not tried again.
    machine.revoke(Some(OpId(1)), grant, Time(30 * MS), Time(20 * MS));
    while machine.poll_control().is_some() {}
    machine.begin_step(Time(25 * MS));
    machine.end_step();
    let control = machine.poll_control();
    assert!(!matches!(control, Some(Control::BindKey { .. })), "{control:?}");
}

#[test]
fn a_grant_that_is_revoked_meanwhile_costs_no_link() {
    for bound_at_last in [true, false] {
        let (mut machine, ..) = bound();
        let grant = machine.grant(PEER, 64, Rights::all(), over_network(vec![None]), Time::ZERO);
        binds(&mut machine);
        machine.revoke(Some(OpId(1)), grant, Time(100), Time::ZERO);
        machine.handle_frame(PEER, Frame::Revoked { grant }, Time::ZERO);
        assert!(machine.poll_control().is_none(), "its key is not ended under its binding");
        frames(&mut machine);
        let ended = || RailError::new("bind", "it was ended", "none");
        machine.handle_key_bound(0, LINK, grant, if bound_at_last { Ok((0, 7)) } else { Err(ended()) });
        let control = machine.poll_control();
        assert!(matches!(control, Some(Control::EndKeys { grant: it }) if it == grant), "{control:?}");
        assert!(step(&mut machine).is_empty(), "the peer does not need the key");
    }
}

fn transfer() -> NewTransfer {
    let pages = || (Pages { indices: [0].into(), stride: 64, offset: 0 }, 64);
    let plan = Plan::new(64, pages(), pages()).unwrap();
    let direction = Direction::Write;
    NewTransfer {
        op: OpId(5),
        peer: PEER,
        direction,
        plan,
        regions: GrantRange { grant: GrantId(3), base: 0, len: 64 }.into(),
        counter: None,
        priority: Priority::Normal,
        deadline: None,
    }
}

/// Returns the key of the next post.
fn posted_key(machine: &mut Machine) -> Option<u64> {
    machine.begin_round(4);
    let post = machine.poll_post()?;
    let Content::Pages { request: Some(WorkRequest::Write { target, .. }), .. } = post.content else {
        panic!("{post:?}")
    };
    let (slot, key) = (post.slot, target.key);
    machine.handle_posted(slot, Ok(()));
    Some(key)
}

#[test]
fn nothing_is_posted_before_the_key_of_its_link_is_known() {
    let (mut machine, _, link) = bound();
    let keys = vec![Some((0, 77))];
    machine.handle_frame(
        PEER,
        Frame::Grant(GrantOffer { grant: GrantId(3), len: 64, rights: 7, scope: Scope::Network, keys }),
        Time::ZERO,
    );
    machine.submit(transfer(), Time::ZERO).expect("it is begun");
    assert_eq!(posted_key(&mut machine), None, "the key of the rail is good for nothing");
    let key = BoundKey { grant: GrantId(3), address: 4096, key: 7 };
    let other = LinkId(link.0 + 1);
    machine.handle_frame(PEER, Frame::Keys { link: other, keys: vec![key] }, Time::ZERO);
    assert_eq!(posted_key(&mut machine), None, "there is no such link");
    machine.handle_frame(PEER, Frame::Keys { link, keys: vec![key] }, Time::ZERO);
    assert_eq!(posted_key(&mut machine), Some(7));
}

#[test]
fn a_key_that_ends_beyond_the_last_address_is_a_violation() {
    let (mut machine, _, link) = bound();
    let offer = GrantOffer { grant: GrantId(3), len: 64, rights: 7, scope: Scope::Network, keys: vec![None] };
    machine.handle_frame(PEER, Frame::Grant(offer), Time::ZERO);
    let keys = vec![BoundKey { grant: GrantId(3), address: u64::MAX - 63, key: 7 }];
    machine.handle_frame(PEER, Frame::Keys { link, keys }, Time::ZERO);
    let is_lost =
        |event: &Event| matches!(event, Event::Peer(PEER, PeerChange::Lost(LostReason::Violation(_))));
    assert!(events(&mut machine).iter().any(is_lost));
}
