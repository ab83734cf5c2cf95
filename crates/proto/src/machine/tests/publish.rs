//! Publications: memory that many peers may open.

use super::*;
use crate::access::Access;
use crate::error::OpenError;
use crate::ids::{GrantId, PublicationId};
use crate::machine::OpenedMemory;
use crate::time::Time;
use crate::wire::GrantOffer;

/// Returns the grants that the machine asks its driver for.
fn asked(machine: &mut Machine) -> Vec<(PublicationId, PeerKey)> {
    let controls: Vec<Control> = std::iter::from_fn(|| machine.poll_control()).collect();
    let grants = controls.into_iter().filter_map(|control| match control {
        Control::GrantPublished { publication, peer, rights: Rights::READ } => Some((publication, peer)),
        _ => None,
    });
    grants.collect()
}

/// Makes the grant that a peer has asked for.
fn make(machine: &mut Machine, publication: PublicationId) -> GrantId {
    assert_eq!(asked(machine), [(publication, PEER)]);
    let grant = machine.grant(PEER, 64, Rights::READ, over_network(vec![Some((0, 1))]), Time::ZERO);
    machine.handle_published(publication, PEER, Ok(grant));
    grant
}

/// Ends the keys of a grant that is being revoked, and gives it back.
fn end(machine: &mut Machine, grant: GrantId) {
    machine.handle_frame(PEER, Frame::Revoked { grant }, Time::ZERO);
    assert!(matches!(machine.poll_control(), Some(Control::EndKeys { grant: of }) if of == grant));
    machine.handle_keys_ended(grant, KeysEnded { is_proven: true, ..KeysEnded::default() });
    let Some(Control::GiveBack { op, .. }) = machine.poll_control() else { panic!("it is not given back") };
    machine.handle_given_back(grant, op, true);
}

fn opened(machine: &mut Machine) -> Vec<Frame> {
    let is_answer = |frame: &Frame| matches!(frame, Frame::Opened { .. } | Frame::NotOpened { .. });
    frames(machine).into_iter().filter(is_answer).collect()
}

fn is_refused(machine: &mut Machine, publication: PublicationId) -> bool {
    opened(machine);
    machine.handle_frame(PEER, Frame::Open { publication }, Time::ZERO);
    let answers = opened(machine);
    asked(machine).is_empty() && matches!(answers[..], [Frame::NotOpened { .. }])
}

#[test]
fn a_peer_that_asks_often_gets_one_grant() {
    let mut machine = ready();
    let publication = machine.publish(Rights::READ, Access::Anyone);
    machine.handle_frame(PEER, Frame::Open { publication }, Time::ZERO);
    machine.handle_frame(PEER, Frame::Open { publication }, Time::ZERO);
    let grant = make(&mut machine, publication);
    assert_eq!(opened(&mut machine), [Frame::Opened { publication, grant }]);
    machine.handle_frame(PEER, Frame::Open { publication }, Time::ZERO);
    assert_eq!(
        (asked(&mut machine), opened(&mut machine)),
        (vec![], vec![Frame::Opened { publication, grant }])
    );
    assert!(is_refused(&mut machine, PublicationId(!publication.to_raw())), "there is no such publication");
}

#[test]
fn a_peer_from_which_it_was_withdrawn_gets_it_no_more() {
    let mut machine = ready();
    let publication = machine.publish(Rights::READ, Access::Anyone);
    machine.handle_frame(PEER, Frame::Open { publication }, Time::ZERO);
    let grant = make(&mut machine, publication);
    machine.withdraw_from(OpId(1), publication, (PEER, &[]), Time(10 * MS), Time::ZERO);
    end(&mut machine, grant);
    let told = events(&mut machine);
    assert!(told.iter().any(|event| matches!(event, Event::Revoked(OpId(1), Ok(())))), "{told:?}");
    assert!(is_refused(&mut machine, publication));
    let other = machine.publish(Rights::READ, Access::Anyone);
    assert!(!is_refused(&mut machine, other), "another one is for it");
}

/// Returns the answers to revocations.
fn revoked(machine: &mut Machine) -> Vec<(u64, bool)> {
    let told = events(machine).into_iter().filter_map(|event| match event {
        Event::Revoked(op, answer) => Some((op.0, answer.is_ok())),
        _ => None,
    });
    told.collect()
}

/// Lets time pass.
fn pass(machine: &mut Machine, until: u64) {
    for now in (machine.time().to_nanos()..=until).step_by(MS as usize / 2) {
        machine.begin_step(Time(now));
        machine.end_step();
    }
}

/// Returns a machine with a grant that the driver is making.
fn making() -> (Machine, PublicationId) {
    let mut machine = ready();
    let publication = machine.publish(Rights::READ, Access::Anyone);
    machine.handle_frame(PEER, Frame::Open { publication }, Time::ZERO);
    (machine, publication)
}

#[test]
fn a_grant_that_is_being_made_is_revoked_before_that_is_answered() {
    let (mut machine, publication) = making();
    machine.withdraw_from(OpId(1), publication, (PEER, &[]), Time(10 * MS), Time::ZERO);
    machine.withdraw_from(OpId(2), publication, (PEER, &[]), Time(5 * MS), Time::ZERO);
    assert!(revoked(&mut machine).is_empty(), "the peer is about to have it");
    let grant = make(&mut machine, publication);
    assert!(matches!(opened(&mut machine)[..], [Frame::NotOpened { .. }]));
    assert!(revoked(&mut machine).is_empty(), "the peer has it");
    pass(&mut machine, 4 * MS);
    assert!(machine.poll_control().is_none(), "the peer has time");
    pass(&mut machine, 6 * MS);
    assert_eq!(revoked(&mut machine), [(2, false)], "at its deadline");
    assert!(matches!(machine.poll_control(), Some(Control::EndKeys { grant: of }) if of == grant));
    machine.handle_keys_ended(grant, KeysEnded { is_proven: true, ..KeysEnded::default() });
    assert!(matches!(machine.poll_control(), Some(Control::GiveBack { op: None, .. })));
    // It has ended, and the memory is about to be put back.
    machine.withdraw_from(OpId(3), publication, (PEER, &[]), Time(10 * MS), Time(6 * MS));
    machine.handle_given_back(grant, None, true);
    assert_eq!(revoked(&mut machine), [(1, true), (3, true)]);
    assert!(is_refused(&mut machine, publication));
}

/// Returns a machine over this rail that withdraws a publication from its peer, which says that it has stopped.
/// The rail answers so when the keys end.
fn withdrawn(properties: Properties, ended: KeysEnded) -> (Machine, PublicationId) {
    let (mut machine, _) = ready_over(properties);
    let publication = machine.publish(Rights::READ, Access::Anyone);
    machine.handle_frame(PEER, Frame::Open { publication }, Time::ZERO);
    let grant = make(&mut machine, publication);
    machine.withdraw_from(OpId(1), publication, (PEER, &[]), Time(100 * MS), Time::ZERO);
    machine.handle_frame(PEER, Frame::Revoked { grant }, Time::ZERO);
    assert!(matches!(machine.poll_control(), Some(Control::EndKeys { grant: of }) if of == grant));
    machine.handle_keys_ended(grant, ended);
    (machine, publication)
}

/// Gives the memory of a grant back, which must be due. Returns the work before that.
fn give_back(machine: &mut Machine) -> Vec<Control> {
    let mut before: Vec<Control> = std::iter::from_fn(|| machine.poll_control()).collect();
    let Some(Control::GiveBack { grant, op }) = before.pop() else { panic!("{before:?}") };
    machine.handle_given_back(grant, op, true);
    before
}

#[test]
fn the_word_of_a_peer_is_no_proof_that_a_withdrawal_is_complete() {
    // Where a link ends alone, it ends; otherwise its rail is reset.
    let alone = Properties { links_end_alone: true, immediates_name_link: true, ..properties() };
    let (mut machine, _) = withdrawn(alone, KeysEnded::default());
    let before = give_back(&mut machine);
    assert!(matches!(before[..], [Control::CloseLink { link: LINK, .. }]), "{before:?}");
    assert_eq!(revoked(&mut machine), [(1, true)]);

    let (mut machine, _) = withdrawn(properties(), KeysEnded::default());
    machine.begin_step(Time(MS));
    machine.end_step();
    let control = machine.poll_control();
    assert!(matches!(control, Some(Control::Reset { rail: 0 })), "{control:?}");
    assert!(machine.poll_control().is_none() && revoked(&mut machine).is_empty(), "bytes may still land");
    machine.handle_reset(0, Ok(()));
    machine.begin_step(Time(2 * MS));
    machine.end_step();
    give_back(&mut machine);
    assert_eq!(revoked(&mut machine), [(1, true)]);
}

#[test]
fn a_peer_that_says_so_does_not_pay_for_the_reset() {
    let (mut machine, _) = withdrawn(properties(), KeysEnded::default());
    let mut now = 0;
    // One more than its budget.
    for op in 2..=4 {
        now += MS;
        machine.begin_step(Time(now));
        machine.end_step();
        machine.handle_reset(0, Ok(()));
        now += MS;
        machine.begin_step(Time(now));
        machine.end_step();
        while machine.poll_control().is_some() {}
        let publication = machine.publish(Rights::READ, Access::Anyone);
        machine.handle_frame(PEER, Frame::Open { publication }, Time(now));
        let grant = make(&mut machine, publication);
        machine.withdraw_from(OpId(op), publication, (PEER, &[]), Time(now + 100 * MS), Time(now));
        machine.handle_frame(PEER, Frame::Revoked { grant }, Time(now));
        while machine.poll_control().is_some() {}
        machine.handle_keys_ended(grant, KeysEnded::default());
    }
    let told = events(&mut machine);
    assert!(!told.iter().any(|event| matches!(event, Event::Peer(_, PeerChange::Lost(_)))), "{told:?}");
}

#[test]
fn a_key_that_cannot_be_ended_proves_nothing_then_and_later() {
    let ended = || KeysEnded {
        errors: vec![RailError::new("end a key", "the card is busy", "try again")],
        ..KeysEnded::default()
    };
    let alone = Properties { links_end_alone: true, immediates_name_link: true, ..properties() };
    for properties in [alone, Properties { ended_keys: EndedKeys::StopAll, ..properties() }] {
        let (mut machine, publication) = withdrawn(properties, ended());
        give_back(&mut machine);
        assert_eq!(revoked(&mut machine), [(1, false)]);
        machine.withdraw_from(OpId(2), publication, (PEER, &[]), Time(100 * MS), Time(MS));
        assert_eq!(revoked(&mut machine), [(2, false)], "the key is alive");
        machine.expel(OpId(3), publication, "another.example", Time(100 * MS), Time(MS));
        assert_eq!(revoked(&mut machine), [(3, true)], "it is not that of another one");
    }
}

#[test]
fn a_grant_that_cannot_be_made_needs_no_revocation() {
    let (mut machine, publication) = making();
    machine.withdraw_from(OpId(1), publication, (PEER, &[]), Time(10 * MS), Time::ZERO);
    machine.withdraw(Some(OpId(2)), publication, Time(10 * MS), Time::ZERO);
    assert_eq!(asked(&mut machine).len(), 1);
    assert!(revoked(&mut machine).is_empty());
    let error = RailError::new("grant", "there is no room", "make room");
    machine.handle_published(publication, PEER, Err(error));
    assert_eq!(revoked(&mut machine), [(1, true)]);
    assert!(matches!(machine.poll_control(), Some(Control::GiveBackPublished { op: Some(OpId(2)), .. })));
}

#[test]
fn a_withdrawal_from_all_ends_a_grant_that_is_being_made_by_its_deadline() {
    let (mut machine, publication) = making();
    machine.withdraw_from(OpId(1), publication, (PEER, &[]), Time(90 * MS), Time::ZERO);
    machine.withdraw(Some(OpId(2)), publication, Time(10 * MS), Time::ZERO);
    let grant = make(&mut machine, publication);
    pass(&mut machine, 11 * MS);
    assert!(matches!(machine.poll_control(), Some(Control::EndKeys { grant: of }) if of == grant));
    machine.handle_keys_ended(grant, KeysEnded::default());
    let controls: Vec<Control> = std::iter::from_fn(|| machine.poll_control()).collect();
    assert!(controls.iter().any(|it| matches!(it, Control::GiveBack { .. })), "unproven: {controls:?}");
    machine.handle_given_back(grant, None, true);
    assert_eq!(revoked(&mut machine), [(1, false)], "nothing is proven");
    assert!(matches!(machine.poll_control(), Some(Control::GiveBackPublished { op: Some(OpId(2)), .. })));
}

#[test]
fn a_grant_that_is_made_for_a_peer_that_is_gone_is_revoked() {
    for is_left in [false, true] {
        let (mut machine, publication) = making();
        // Its message keeps the connection open for a while.
        machine.send_message(OpId(9), PEER, b"one".to_vec(), Time::ZERO);
        match is_left {
            true => machine.leave(PEER, Time::ZERO),
            false => machine.handle_disconnected(PEER, LostReason::Gone, Time::ZERO),
        }
        machine.withdraw_from(OpId(1), publication, (PEER, &[]), Time(10 * MS), Time::ZERO);
        assert_eq!(asked(&mut machine), [(publication, PEER)]);
        assert!(revoked(&mut machine).is_empty());
        if let Err(error) = machine.may_grant(PEER) {
            assert!(!is_left, "{error}");
            machine.handle_published(publication, PEER, Err(error));
            assert_eq!(revoked(&mut machine), [(1, true)]);
            continue;
        }
        let grant = machine.grant(PEER, 64, Rights::READ, over_network(vec![Some((0, 1))]), Time::ZERO);
        machine.handle_published(publication, PEER, Ok(grant));
        machine.handle_frame(PEER, Frame::Revoked { grant }, Time::ZERO);
        let control = machine.poll_control();
        assert!(matches!(control, Some(Control::EndKeys { grant: of }) if of == grant), "{control:?}");
        machine.handle_keys_ended(grant, KeysEnded { is_proven: true, ..KeysEnded::default() });
        assert!(matches!(machine.poll_control(), Some(Control::GiveBack { op: None, .. })));
        machine.handle_given_back(grant, None, true);
        assert_eq!(revoked(&mut machine), [(1, true)]);
    }
}

/// Connects another peer, whose certificate has these names.
fn another(machine: &mut Machine, names: &[String]) -> PeerKey {
    let key = machine.add_peer(false, Time::ZERO);
    machine.set_certificate_names(key, names.to_vec());
    let hello = Hello { rails: vec![properties().kind], grants: 4, ..Hello::new(3) };
    machine.handle_frame(key, Frame::Hello(hello), Time::ZERO);
    frames(machine);
    key
}

/// Lets a peer open a publication. Returns its grant, unless it is refused.
fn open(machine: &mut Machine, key: PeerKey, publication: PublicationId) -> Option<GrantId> {
    machine.handle_frame(key, Frame::Open { publication }, Time::ZERO);
    if asked(machine) != [(publication, key)] {
        return None;
    }
    let grant = machine.grant(key, 64, Rights::READ, over_network(vec![Some((0, 1))]), Time::ZERO);
    machine.handle_published(publication, key, Ok(grant));
    Some(grant)
}

#[test]
fn a_withdrawal_holds_for_all_connections_with_a_name() {
    let names = ["a.example".to_owned(), "localhost".to_owned()];
    let permitted = Access::only(["a.example", "b.example"]);
    for access in [permitted, Access::Anyone] {
        let mut machine = ready();
        let publication = machine.publish(Rights::READ, access);
        machine.set_certificate_names(PEER, names.to_vec());
        let [second, other] = [&names[..1], &["b.example".to_owned()]].map(|it| another(&mut machine, it));
        let grants = [PEER, second, other].map(|key| open(&mut machine, key, publication).unwrap());
        machine.withdraw_from(OpId(1), publication, (PEER, &names), Time(10 * MS), Time::ZERO);
        let sent = frames(&mut machine);
        let ended = grants.map(|grant| sent.contains(&Frame::Revoke { grant }));
        assert_eq!(ended, [true, true, false], "those with the name");
        for (key, grant) in [(PEER, grants[0]), (second, grants[1])] {
            assert!(revoked(&mut machine).is_empty());
            assert_eq!(open(&mut machine, key, publication), None);
            machine.handle_frame(key, Frame::Revoked { grant }, Time::ZERO);
            assert!(matches!(machine.poll_control(), Some(Control::EndKeys { grant: of }) if of == grant));
            machine.handle_keys_ended(grant, KeysEnded { is_proven: true, ..KeysEnded::default() });
            assert!(matches!(machine.poll_control(), Some(Control::GiveBack { .. })));
            machine.handle_given_back(grant, None, true);
        }
        assert_eq!(revoked(&mut machine), [(1, true)]);
        // It connects again.
        machine.handle_disconnected(second, LostReason::Gone, Time::ZERO);
        let again = another(&mut machine, &names[..1]);
        assert_eq!(open(&mut machine, again, publication), None);
        assert!(machine.admit(publication, "a.example"));
        assert!(open(&mut machine, again, publication).is_some());
    }
}

#[test]
fn a_peer_that_is_forgotten_is_expelled_all_the_same() {
    let mut machine = ready();
    let publication = machine.publish(Rights::READ, Access::Anyone);
    let names = ["a.example".to_owned()];
    let gone = another(&mut machine, &names);
    machine.handle_disconnected(gone, LostReason::Gone, Time::ZERO);
    machine.withdraw_from(OpId(1), publication, (gone, &names), Time(10 * MS), Time::ZERO);
    assert_eq!(revoked(&mut machine), [(1, true)]);
    let again = another(&mut machine, &names);
    assert_eq!(open(&mut machine, again, publication), None);
}

#[test]
fn a_name_is_expelled_whoever_has_it() {
    let mut machine = ready();
    let publication = machine.publish(Rights::READ, Access::Anyone);
    let names = ["a.example".to_owned()];
    machine.set_certificate_names(PEER, names.to_vec());
    let grant = open(&mut machine, PEER, publication).unwrap();
    machine.expel(OpId(1), publication, "b.example", Time(10 * MS), Time::ZERO);
    assert_eq!(revoked(&mut machine), [(1, true)], "nobody has it");
    machine.expel(OpId(2), publication, "A.example.", Time(10 * MS), Time::ZERO);
    assert!(revoked(&mut machine).is_empty());
    end(&mut machine, grant);
    assert_eq!(revoked(&mut machine), [(2, true)]);
    assert!(is_refused(&mut machine, publication));
}

#[test]
fn a_publication_that_has_ended_costs_a_peer_nothing() {
    let mut machine = ready();
    let before = machine.peer_memory(PEER);
    for number in 0..100 {
        let publication = machine.publish(Rights::READ, Access::Anyone);
        machine.withdraw_from(OpId(number), publication, (PEER, &[]), Time(10 * MS), Time::ZERO);
        machine.withdraw(None, publication, Time(10 * MS), Time::ZERO);
        assert!(matches!(machine.poll_control(), Some(Control::GiveBackPublished { .. })));
    }
    assert_eq!(machine.peer_memory(PEER), before);
}

#[test]
fn it_is_given_back_when_all_grants_have_ended_even_one_that_was_being_made() {
    let mut machine = ready();
    let publication = machine.publish(Rights::READ, Access::Anyone);
    machine.handle_frame(PEER, Frame::Open { publication }, Time::ZERO);
    machine.withdraw(Some(OpId(1)), publication, Time(10 * MS), Time::ZERO);
    let grant = make(&mut machine, publication);
    assert!(matches!(opened(&mut machine)[..], [Frame::NotOpened { .. }]));
    end(&mut machine, grant);
    let given = machine.poll_control();
    let Some(Control::GiveBackPublished { op: Some(OpId(1)), .. }) = given else { panic!("{given:?}") };
    machine.handle_published_back(Some(OpId(1)));
    assert!(matches!(events(&mut machine).last(), Some(Event::Revoked(OpId(1), Ok(())))));
    machine.withdraw(Some(OpId(2)), publication, Time(10 * MS), Time::ZERO);
    assert!(matches!(events(&mut machine)[..], [Event::Revoked(OpId(2), Err(_))]), "once");
}

#[test]
fn a_peer_that_is_lost_loses_its_grant_alone() {
    let mut machine = ready();
    let publication = machine.publish(Rights::READ, Access::Anyone);
    machine.handle_frame(PEER, Frame::Open { publication }, Time::ZERO);
    let grant = make(&mut machine, publication);
    machine.handle_frame(PEER, Frame::Goodbye, Time::ZERO);
    let ends = std::iter::from_fn(|| machine.poll_control())
        .any(|control| matches!(control, Control::EndKeys { grant: of } if of == grant));
    assert!(ends, "nobody else revokes it");
    machine.handle_keys_ended(grant, KeysEnded { is_proven: true, ..KeysEnded::default() });
    assert!(matches!(machine.poll_control(), Some(Control::GiveBack { op: None, .. })));
    machine.handle_given_back(grant, None, true);
    assert!(machine.poll_control().is_none(), "it stays published");
    machine.withdraw(Some(OpId(1)), publication, Time(10 * MS), Time::ZERO);
    assert!(matches!(machine.poll_control(), Some(Control::GiveBackPublished { .. })));
}

/// The owner may have admitted this side between the two.
#[test]
fn a_refusal_is_no_answer_to_a_later_request() {
    let mut machine = ready();
    machine.open(OpId(1), PEER, PublicationId(7), Time::ZERO);
    machine.open(OpId(2), PEER, PublicationId(7), Time::ZERO);
    frames(&mut machine);
    let refused = |publication| Frame::NotOpened { publication, reason: "not yet".to_owned() };
    machine.handle_frame(PEER, refused(PublicationId(7)), Time::ZERO);
    let told = events(&mut machine);
    assert!(matches!(told[..], [.., Event::Opened(OpId(1), Err(OpenError::Refused { .. }))]), "{told:?}");
    assert_eq!(frames(&mut machine), [Frame::Open { publication: PublicationId(7) }]);
    machine.handle_frame(PEER, Frame::Grant(hostile::grant(GrantId(5))), Time::ZERO);
    machine.handle_frame(
        PEER,
        Frame::Opened { publication: PublicationId(7), grant: GrantId(5) },
        Time::ZERO,
    );
    machine.handle_frame(PEER, refused(PublicationId(7)), Time::ZERO);
    let told = events(&mut machine);
    assert!(matches!(told[..], [.., Event::Opened(OpId(2), Ok(_))]), "{told:?}");
    assert!(frames(&mut machine).is_empty());
}

#[test]
fn every_request_to_open_is_answered() {
    let mut machine = ready();
    machine.open(OpId(1), PEER, PublicationId(7), Time::ZERO);
    machine.open(OpId(2), PEER, PublicationId(7), Time::ZERO);
    machine.open(OpId(3), PEER, PublicationId(8), Time::ZERO);
    machine.open(OpId(4), PEER, PublicationId(9), Time::ZERO);
    let sent = frames(&mut machine);
    let count = sent.iter().filter(|frame| matches!(frame, Frame::Open { .. })).count();
    assert_eq!(count, 3, "once for each publication");
    let (len, rights, scope) = (64, Rights::READ.bits(), Scope::Network);
    let offer = GrantOffer { grant: GrantId(5), len, rights, scope, keys: vec![Some((0, 1))] };
    machine.handle_frame(PEER, Frame::Grant(offer), Time::ZERO);
    machine.handle_frame(
        PEER,
        Frame::Opened { publication: PublicationId(7), grant: GrantId(5) },
        Time::ZERO,
    );
    machine.handle_frame(
        PEER,
        Frame::Opened { publication: PublicationId(8), grant: GrantId(6) },
        Time::ZERO,
    );
    machine.handle_frame(
        PEER,
        Frame::Opened { publication: PublicationId(8), grant: GrantId(5) },
        Time::ZERO,
    );
    machine.handle_disconnected(PEER, LostReason::Gone, Time::ZERO);
    let told: Vec<_> = events(&mut machine)
        .into_iter()
        .filter_map(|event| if let Event::Opened(op, answer) = event { Some((op.0, answer)) } else { None })
        .collect();
    let memory = OpenedMemory { grant: GrantId(5), len: 64, rights: Rights::READ };
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
