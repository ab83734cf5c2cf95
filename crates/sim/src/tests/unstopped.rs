//! Bytes that may land when they are not expected any more.

use farreach_memory::{Exposed, Memory};
use farreach_proto::lost::LostReason;
use farreach_proto::machine::TransferFault;
use farreach_proto::rights::Rights;
use farreach_proto::wire::{Frame, Hello};
use farreach_rail::{RailError, RevokeAnswer};

use super::pair::{FIRST, PEER, SECOND};
use super::{MS, Pair};
use crate::SimCard;
use crate::answers::Answer;
use farreach_proto::time::Time;

const LEN: usize = 64;

fn is_revoked(frame: &Frame) -> bool {
    matches!(frame, Frame::Revoked { .. })
}

/// Found by seed 12934: the peer's answer came when a new link had replaced the old one, and was
/// not understood.
#[test]
fn a_peer_whose_link_was_followed_by_another_may_still_have_bytes_under_way() {
    let mut pair = Pair::connected(&SimCard::tcp());
    let grant = pair.grant(FIRST, LEN);
    pair.run(MS);
    // The bytes leave, and land long after their sender has given them up.
    let link = pair.end(SECOND);
    pair.network.delay_next(link, 1000 * MS);
    let written = pair.write(SECOND, grant, LEN);
    pair.run(MS);
    let old = pair.sides[FIRST].link();
    let now = pair.now;
    pair.sides[SECOND].is_deaf = true;
    let reason = RailError::new("link", "it is to fail here first", "nothing");
    let end = pair.end(FIRST);
    pair.sides[FIRST].machine.handle_link_down(0, end, &reason);
    pair.run_until("another link takes its place", |pair| pair.sides[FIRST].link() != old);
    assert!(pair.now < now + 5 * MS && pair.sides[FIRST].machine.resets() == 0);
    pair.sides[SECOND].is_deaf = false;
    let back = pair.revoke(FIRST, grant, 400 * MS);
    pair.run_until("the peer answers", |pair| pair.sides[SECOND].has_said(is_revoked));
    assert_eq!(pair.sides[FIRST].machine.resets(), 1, "it says nothing before those bytes are stopped");
    assert!(matches!(written.take(), Some(answer) if answer.outcome == Err(TransferFault::Revoked)));
    let mut answer = None;
    pair.run_until("the memory is back", |_| {
        answer = back.take();
        answer.is_some()
    });
    let Some(RevokeAnswer::Back(memory)) = answer else { panic!("{answer:?}") };
    assert_eq!(memory.keys(), 1, "what it says is no proof");
}

/// Found by seed 4074: operations of a dead card were given up, and the peer was told that nothing
/// was in flight.
#[test]
fn a_peer_never_hears_that_nothing_is_under_way_while_a_dead_card_has_it() {
    let mut pair = Pair::connected(&SimCard::tcp());
    let grant = pair.grant(FIRST, LEN);
    pair.run(MS);
    let (link, card) = (pair.end(SECOND), pair.sides[SECOND].card);
    pair.network.delay_next(link, 1000 * MS);
    pair.network.break_card(card);
    let written = pair.write(SECOND, grant, LEN);
    let mut answer = None;
    pair.run_until("the transfer has failed", |_| {
        answer = written.take();
        answer.is_some()
    });
    let answer = answer.unwrap();
    assert!(matches!(answer.outcome, Err(TransferFault::Rail(_))) && answer.held.is_none(), "{answer:?}");
    let back = pair.revoke(FIRST, grant, 20 * MS);
    pair.run_until("the revocation is answered", |_| back.take().is_some());
    pair.sides[SECOND].machine.leave(PEER, Time::from_nanos(pair.now));
    pair.run(20 * MS);
    let has_said = |frame: &Frame| is_revoked(frame) || matches!(frame, Frame::Goodbye);
    assert!(!pair.sides[SECOND].has_said(has_said), "{:?}", pair.sides[SECOND].said);
}

/// The rails that two sides have in common are known with the hello.
#[test]
fn nothing_is_granted_to_a_peer_that_has_not_greeted() {
    let mut pair = Pair::new(&SimCard::tcp());
    let it = &mut pair.sides[FIRST];
    let memory = Memory::allocate(LEN).unwrap().expose();
    let granted = it.carrier.grant(&mut it.machine, PEER, memory, Rights::WRITE, Time::from_nanos(pair.now));
    let (error, memory) = granted.unwrap_err();
    assert!(error.to_string().contains("not connected yet"), "{error}");
    assert!(memory.is_some_and(|memory| memory.try_into_slice().is_ok()));
}

/// A peer that does not answer has its key ended at the deadline, and the rail is reset: its
/// operations in flight do not land any more.
#[test]
fn memory_of_a_peer_that_does_not_answer_comes_back_and_is_proven_later() {
    let mut pair = Pair::connected(&SimCard::tcp());
    let grant = pair.grant(FIRST, LEN);
    pair.run(MS);
    let link = pair.end(SECOND);
    pair.network.delay_next(link, 1000 * MS);
    let _written = pair.write(SECOND, grant, LEN);
    pair.sides[SECOND].is_deaf = true;
    let mut back = pair.revoke(FIRST, grant, MS);
    let memory = back_of(&mut pair, &mut back);
    assert_eq!(memory.keys(), 1, "a write of the peer's may be under way");
    // At once, and not when the peer is found to be lost.
    pair.run(2 * MS);
    assert_eq!((memory.keys(), pair.sides[FIRST].machine.resets()), (0, 1));
}

/// A rail that cannot be reset never proves anything.
#[test]
fn memory_that_a_dead_rail_of_ours_may_still_change_is_never_a_slice() {
    let mut pair = Pair::connected(&SimCard::tcp());
    let grant = pair.grant(FIRST, LEN);
    pair.run(MS);
    let (link, card) = (pair.end(SECOND), pair.sides[FIRST].card);
    pair.network.delay_next(link, 1000 * MS);
    let _written = pair.write(SECOND, grant, LEN);
    pair.sides[SECOND].is_deaf = true;
    // Its key ends at the deadline, and the rail dies with the reset that is asked for then.
    pair.network.break_card(card);
    let mut back = pair.revoke(FIRST, grant, MS);
    let memory = back_of(&mut pair, &mut back);
    pair.run(20 * MS);
    assert_eq!(memory.keys(), 1);
    pair.sides[SECOND].is_deaf = false;
    pair.run_until("the peer is lost", |pair| pair.sides[FIRST].peer.lost().is_some());
    let lost = pair.sides[FIRST].peer.lost();
    assert!(
        matches!(lost, Some(LostReason::Unstoppable { .. })),
        "nothing can be promised of it any more: {lost:?}"
    );
    assert!(!pair.sides[SECOND].has_said(is_revoked), "nobody has told it that the bytes are stopped");
    assert_eq!(memory.keys(), 1);
    assert!(memory.try_into_slice().is_err());
}

/// A peer can confirm only its own grants.
#[test]
fn a_peer_cannot_say_that_another_has_stopped() {
    let mut pair = Pair::connected(&SimCard::tcp());
    let grant = pair.grant(FIRST, LEN);
    pair.sides[SECOND].is_deaf = true;
    let back = pair.revoke(FIRST, grant, 10 * MS);
    let (now, machine) = (pair.now, &mut pair.sides[FIRST].machine);
    let other = machine.add_peer(false, Time::from_nanos(now));
    let mut hello = Hello::new(7);
    hello.rails = vec![SimCard::tcp().properties.kind];
    machine.handle_frame(other, Frame::Hello(hello), Time::from_nanos(now));
    machine.handle_frame(other, Frame::Revoked { grant }, Time::from_nanos(now));
    pair.sides[FIRST].deliver();
    assert!(back.take().is_none());
    pair.sides[FIRST].machine.handle_frame(PEER, Frame::Revoked { grant }, Time::from_nanos(now));
    pair.sides[FIRST].deliver();
    assert!(matches!(back.take(), Some(RevokeAnswer::Back(_))));
}

fn back_of(pair: &mut Pair, back: &mut Answer<RevokeAnswer>) -> Exposed {
    let mut memory = None;
    pair.run_until("the memory is back", |_| {
        if let Some(RevokeAnswer::Back(exposed)) = back.take() {
            memory = Some(exposed);
        }
        memory.is_some()
    });
    memory.expect("the memory is back")
}
