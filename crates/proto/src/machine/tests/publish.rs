//! Publications: memory that many peers may open.

use super::*;
use crate::access::Access;
use crate::error::OpenError;
use crate::machine::OpenedMemory;
use crate::wire::GrantOffer;

/// Returns the grants that the machine asks its driver for.
fn asked(machine: &mut Machine) -> Vec<(u64, PeerKey)> {
    let controls: Vec<Control> = std::iter::from_fn(|| machine.poll_control()).collect();
    let grants = controls.into_iter().filter_map(|control| match control {
        Control::GrantPublished { publication, peer, rights: Rights::READ } => Some((publication, peer)),
        _ => None,
    });
    grants.collect()
}

/// Makes the grant that a peer has asked for.
fn make(machine: &mut Machine, publication: u64) -> u64 {
    assert_eq!(asked(machine), [(publication, PEER)]);
    let grant = machine.grant(PEER, 64, Rights::READ, over_network(vec![Some((0, 1))]), 0);
    machine.handle_published(publication, PEER, Ok(grant));
    grant
}

/// Ends the keys of a grant that is being revoked, and gives it back.
fn end(machine: &mut Machine, grant: u64) {
    machine.handle_frame(PEER, Frame::Revoked { grant }, 0);
    assert!(matches!(machine.poll_control(), Some(Control::EndKeys { grant: of }) if of == grant));
    machine.handle_keys_ended(grant, KeysEnded { is_proven: true, ..KeysEnded::default() });
    let Some(Control::GiveBack { op, .. }) = machine.poll_control() else { panic!("it is not given back") };
    machine.handle_given_back(grant, op, true);
}

fn opened(machine: &mut Machine) -> Vec<Frame> {
    let is_answer = |frame: &Frame| matches!(frame, Frame::Opened { .. } | Frame::NotOpened { .. });
    frames(machine).into_iter().filter(is_answer).collect()
}

fn is_refused(machine: &mut Machine, publication: u64) -> bool {
    opened(machine);
    machine.handle_frame(PEER, Frame::Open { publication }, 0);
    let answers = opened(machine);
    asked(machine).is_empty() && matches!(answers[..], [Frame::NotOpened { .. }])
}

#[test]
fn a_peer_that_asks_often_gets_one_grant() {
    let mut machine = ready();
    let publication = machine.publish(Rights::READ, Access::Anyone);
    machine.handle_frame(PEER, Frame::Open { publication }, 0);
    machine.handle_frame(PEER, Frame::Open { publication }, 0);
    let grant = make(&mut machine, publication);
    assert_eq!(opened(&mut machine), [Frame::Opened { publication, grant }]);
    machine.handle_frame(PEER, Frame::Open { publication }, 0);
    assert_eq!(
        (asked(&mut machine), opened(&mut machine)),
        (vec![], vec![Frame::Opened { publication, grant }])
    );
    assert!(is_refused(&mut machine, !publication), "there is no such publication");
}

#[test]
fn a_peer_from_which_it_was_withdrawn_gets_it_no_more() {
    let mut machine = ready();
    let publication = machine.publish(Rights::READ, Access::Anyone);
    machine.handle_frame(PEER, Frame::Open { publication }, 0);
    let grant = make(&mut machine, publication);
    machine.withdraw_from(OpId(1), publication, PEER, 10 * MS, 0);
    end(&mut machine, grant);
    let told = events(&mut machine);
    assert!(told.iter().any(|event| matches!(event, Event::Revoked(OpId(1), Ok(())))), "{told:?}");
    assert!(is_refused(&mut machine, publication));
    let other = machine.publish(Rights::READ, Access::Anyone);
    assert!(!is_refused(&mut machine, other), "another one is for it");
}

#[test]
fn it_is_given_back_when_all_grants_have_ended_even_one_that_was_being_made() {
    let mut machine = ready();
    let publication = machine.publish(Rights::READ, Access::Anyone);
    machine.handle_frame(PEER, Frame::Open { publication }, 0);
    machine.withdraw(Some(OpId(1)), publication, 10 * MS, 0);
    let grant = make(&mut machine, publication);
    assert!(matches!(opened(&mut machine)[..], [Frame::NotOpened { .. }]));
    end(&mut machine, grant);
    let given = machine.poll_control();
    let Some(Control::GiveBackPublished { op: Some(OpId(1)), .. }) = given else { panic!("{given:?}") };
    machine.handle_published_back(Some(OpId(1)));
    assert!(matches!(events(&mut machine).last(), Some(Event::Revoked(OpId(1), Ok(())))));
    machine.withdraw(Some(OpId(2)), publication, 10 * MS, 0);
    assert!(matches!(events(&mut machine)[..], [Event::Revoked(OpId(2), Err(_))]), "once");
}

#[test]
fn a_peer_that_is_lost_loses_its_grant_alone() {
    let mut machine = ready();
    let publication = machine.publish(Rights::READ, Access::Anyone);
    machine.handle_frame(PEER, Frame::Open { publication }, 0);
    let grant = make(&mut machine, publication);
    machine.handle_frame(PEER, Frame::Goodbye, 0);
    let ends = std::iter::from_fn(|| machine.poll_control())
        .any(|control| matches!(control, Control::EndKeys { grant: of } if of == grant));
    assert!(ends, "nobody else revokes it");
    machine.handle_keys_ended(grant, KeysEnded { is_proven: true, ..KeysEnded::default() });
    assert!(matches!(machine.poll_control(), Some(Control::GiveBack { op: None, .. })));
    machine.handle_given_back(grant, None, true);
    assert!(machine.poll_control().is_none(), "it stays published");
    machine.withdraw(Some(OpId(1)), publication, 10 * MS, 0);
    assert!(matches!(machine.poll_control(), Some(Control::GiveBackPublished { .. })));
}

#[test]
fn every_request_to_open_is_answered() {
    let mut machine = ready();
    machine.open(OpId(1), PEER, 7, 0);
    machine.open(OpId(2), PEER, 7, 0);
    machine.open(OpId(3), PEER, 8, 0);
    machine.open(OpId(4), PEER, 9, 0);
    let sent = frames(&mut machine);
    let count = sent.iter().filter(|frame| matches!(frame, Frame::Open { .. })).count();
    assert_eq!(count, 3, "once for each publication");
    let (len, rights, scope) = (64, Rights::READ.bits(), Scope::Network);
    let offer = GrantOffer { grant: 5, len, rights, scope, keys: vec![Some((0, 1))] };
    machine.handle_frame(PEER, Frame::Grant(offer), 0);
    machine.handle_frame(PEER, Frame::Opened { publication: 7, grant: 5 }, 0);
    machine.handle_frame(PEER, Frame::Opened { publication: 8, grant: 6 }, 0);
    machine.handle_frame(PEER, Frame::Opened { publication: 8, grant: 5 }, 0);
    machine.handle_disconnected(PEER, LostReason::Gone, 0);
    let told: Vec<_> = events(&mut machine)
        .into_iter()
        .filter_map(|event| if let Event::Opened(op, answer) = event { Some((op.0, answer)) } else { None })
        .collect();
    let memory = OpenedMemory { grant: 5, len: 64, rights: Rights::READ };
    let [
        (1, Ok(one)),
        (2, Ok(two)),
        (3, Err(OpenError::Refused { .. })),
        (4, Err(OpenError::PeerLost { .. })),
    ] = &told[..]
    else {
        panic!("{told:?}")
    };
    assert_eq!((*one, *two), (memory, memory));
}
