//! Keys whose end is proven later, by a report of their rail.

use super::*;
use crate::access::Access;
use crate::ids::GrantId;
use crate::time::Time;

fn shared() -> Properties {
    Properties {
        ended_keys: EndedKeys::Reported,
        keys_are_bound: true,
        immediates_name_link: true,
        links_end_alone: true,
        ..properties()
    }
}

/// Returns a machine whose link is ready.
fn connected() -> Machine {
    let (mut machine, end, link) = answered_over(shared());
    machine.handle_connected(end, Ok(()));
    machine.handle_frame(
        PEER,
        Frame::LinkReady { link, mark: 9, needs_names: false, binds_keys: true },
        Time::ZERO,
    );
    machine
}

/// Grants memory, and binds its key.
fn bound(machine: &mut Machine) -> GrantId {
    let grant = machine.grant(PEER, 1 << 20, Rights::all(), over_network(vec![None]), Time::ZERO);
    assert!(matches!(machine.poll_control(), Some(Control::BindKey { .. })));
    machine.handle_key_bound(0, LINK, grant, Ok((0, 7)));
    grant
}

/// Returns a machine with a grant that is being revoked until 100 ms.
fn revoked() -> (Machine, GrantId) {
    let mut machine = connected();
    let grant = bound(&mut machine);
    machine.revoke(Some(OpId(1)), grant, Time(100 * MS), Time::ZERO);
    assert!(machine.poll_control().is_none());
    (machine, grant)
}

fn ended() -> KeysEnded {
    KeysEnded { awaited: vec![0], ..KeysEnded::default() }
}

fn run(machine: &mut Machine, at: u64) -> Vec<Control> {
    machine.begin_step(Time(at));
    machine.end_step();
    std::iter::from_fn(|| machine.poll_control()).collect()
}

#[test]
fn memory_of_a_peer_that_confirms_is_given_back_with_the_report() {
    let (mut machine, grant) = revoked();
    machine.handle_frame(PEER, Frame::Revoked { grant }, Time(MS));
    assert!(matches!(machine.poll_control(), Some(Control::EndKeys { .. })));
    machine.handle_keys_ended(grant, ended());
    assert!(machine.poll_control().is_none(), "the word of the peer is no proof");
    assert!(run(&mut machine, 20 * MS).is_empty());
    machine.handle_key_proven(0, grant, true);
    let given = machine.poll_control();
    assert!(matches!(given, Some(Control::GiveBack { op: Some(OpId(1)), .. })), "{given:?}");
}

#[test]
fn a_proof_is_asked_for_until_it_is_there_or_the_deadline_has_passed() {
    for is_proven in [true, false] {
        let (mut machine, grant) = revoked();
        assert!(run(&mut machine, 70 * MS).is_empty(), "the peer has time");
        // A proof of 1 MiB takes a millisecond, and a quarter of the time is left for it.
        let control = run(&mut machine, 75 * MS);
        assert!(matches!(control[..], [Control::EndKeys { .. }]), "{control:?}");
        machine.handle_keys_ended(grant, ended());
        let control = machine.poll_control();
        assert!(matches!(control, Some(Control::ProveKeys { grant: it }) if it == grant), "{control:?}");
        let why = || vec![RailError::new("exchange", "no memory", "none")];
        machine.handle_not_proven(grant, why());
        let control = run(&mut machine, 80 * MS);
        assert!(matches!(control[..], [Control::ProveKeys { .. }]), "{control:?}");
        machine.handle_not_proven(grant, why());
        let is_note = |event: &Event| matches!(event, Event::Peer(PEER, PeerChange::Note(_)));
        assert_eq!(events(&mut machine).iter().filter(|event| is_note(event)).count(), 1, "once");
        if is_proven {
            machine.handle_key_proven(0, grant, true);
        } else {
            assert!(!run(&mut machine, 99 * MS).iter().any(|it| matches!(it, Control::GiveBack { .. })));
            machine.begin_step(Time(100 * MS));
            machine.end_step();
        }
        let given = machine.poll_control();
        assert!(matches!(given, Some(Control::GiveBack { op: Some(OpId(1)), .. })), "{given:?}");
        machine.handle_given_back(grant, Some(OpId(1)), true);
        machine.handle_key_proven(0, grant, true);
        assert!(machine.poll_control().is_none(), "it is over");
    }
}

/// Published memory stays with its owner, so that only the answer can tell that the proof is missing.
#[test]
fn published_memory_is_not_said_to_be_revoked_before_that_is_proven() {
    for has_word in [false, true] {
        let mut machine = connected();
        let publication = machine.publish(Rights::all(), Access::Anyone);
        machine.handle_frame(PEER, Frame::Open { publication }, Time::ZERO);
        assert!(matches!(machine.poll_control(), Some(Control::GrantPublished { .. })));
        let grant = bound(&mut machine);
        machine.handle_published(publication, PEER, Ok(grant));
        machine.withdraw_from(OpId(1), publication, (PEER, &[]), Time(100 * MS), Time::ZERO);
        run(&mut machine, 75 * MS);
        machine.handle_keys_ended(grant, ended());
        if has_word {
            machine.handle_frame(PEER, Frame::Revoked { grant }, Time(80 * MS));
        }
        let control = run(&mut machine, 100 * MS);
        assert!(!control.iter().any(|it| matches!(it, Control::GiveBack { .. })), "{control:?}");
        let told = events(&mut machine);
        assert!(told.iter().any(|event| matches!(event, Event::Revoked(OpId(1), Err(_)))), "{told:?}");

        // It goes on, and the owner can wait again.
        machine.withdraw_from(OpId(2), publication, (PEER, &[]), Time(300 * MS), Time(101 * MS));
        machine.handle_key_proven(0, grant, true);
        let given = std::iter::from_fn(|| machine.poll_control()).last();
        assert!(matches!(given, Some(Control::GiveBack { op: None, .. })), "{given:?}");
        machine.handle_given_back(grant, None, true);
        let told = events(&mut machine);
        assert!(told.iter().any(|event| matches!(event, Event::Revoked(OpId(2), Ok(())))), "{told:?}");
    }
}

#[test]
fn a_rail_that_has_died_proves_nothing() {
    let mut machine = connected();
    let publication = machine.publish(Rights::all(), Access::Anyone);
    machine.handle_frame(PEER, Frame::Open { publication }, Time::ZERO);
    assert!(matches!(machine.poll_control(), Some(Control::GrantPublished { .. })));
    let grant = bound(&mut machine);
    machine.handle_published(publication, PEER, Ok(grant));
    machine.withdraw_from(OpId(1), publication, (PEER, &[]), Time::from_nanos(100 * MS), Time::ZERO);
    machine.handle_frame(PEER, Frame::Revoked { grant }, Time::from_nanos(MS));
    assert!(matches!(machine.poll_control(), Some(Control::EndKeys { .. })));
    machine.handle_keys_ended(grant, ended());
    assert!(machine.ask_reset(0));
    let control = run(&mut machine, 2 * MS);
    assert!(matches!(control[..], [Control::Reset { rail: 0 }]), "{control:?}");
    machine.handle_reset(0, Err(RailError::new("reset", "no answer", "none")));
    run(&mut machine, 4 * MS);
    let told = events(&mut machine);
    let is_told =
        |is_ok| told.iter().any(|it| matches!(it, Event::Revoked(OpId(1), told) if told.is_ok() == is_ok));
    assert!(is_told(false) && !is_told(true), "{told:?}");
}

#[test]
fn a_lost_peer_is_proven_to_have_stopped_soon() {
    let (mut machine, grant) = revoked();
    machine.handle_disconnected(PEER, LostReason::Gone, Time(MS));
    let control = run(&mut machine, 10 * MS);
    assert!(control.iter().any(|it| matches!(it, Control::EndKeys { .. })), "{control:?}");
    machine.handle_keys_ended(grant, ended());
    assert!(run(&mut machine, 20 * MS).is_empty(), "the end of its process would be a proof");
    let control = run(&mut machine, 40 * MS);
    assert!(control.iter().any(|it| matches!(it, Control::ProveKeys { .. })), "{control:?}");
}

/// A lying peer says that it has stopped, and its library does not: a grant that was dropped must
/// not stay for ever.
#[test]
fn a_peer_that_says_that_it_has_stopped_must_confirm_it() {
    let (mut machine, grant) = revoked();
    machine.revoke(None, grant, Time::NEVER, Time(MS));
    machine.handle_frame(PEER, Frame::Revoked { grant }, Time(2 * MS));
    machine.poll_control();
    machine.handle_keys_ended(grant, ended());
    assert!(run(&mut machine, 900 * MS).is_empty());
    let control = run(&mut machine, 1002 * MS);
    assert!(control.iter().any(|it| matches!(it, Control::ProveKeys { .. })), "{control:?}");
}
