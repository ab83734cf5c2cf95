//! Bytes that may land when nobody expects them any more.

use farreach_core::wire::Frame;

use super::Pair;
use super::pair::{FIRST, PEER, SECOND};
use crate::machine::{RevokeAnswer, TransferFault};
use crate::provider::ProviderError;
use crate::provider::sim::SimCard;

const MS: u64 = 1_000_000;
const LEN: usize = 64;

fn is_revoked(frame: &Frame) -> bool {
    matches!(frame, Frame::Revoked { .. })
}

/// Found by seed 12934: the peer's word came when a new link had taken the old one's place, and was not understood.
#[test]
fn a_peer_whose_link_was_followed_by_another_may_still_have_bytes_under_way() {
    let mut pair = Pair::connected(&SimCard::tcp());
    let grant = pair.grant(FIRST, LEN);
    pair.run(MS);
    // The bytes leave, and land long after their sender has given them up.
    let link = pair.sides[SECOND].link().key.unwrap();
    pair.network.delay_next(link, 1000 * MS);
    let written = pair.write(SECOND, grant, LEN);
    pair.run(MS);
    let old = pair.sides[FIRST].link().id;
    let now = pair.now;
    pair.sides[SECOND].is_deaf = true;
    let reason = ProviderError::new("link", "it is to fail here first", "nothing");
    pair.sides[FIRST].machine.fail_link(PEER, 0, &reason);
    pair.run_until("another link takes its place", |pair| pair.sides[FIRST].link().id != old);
    assert!(pair.now < now + 5 * MS && pair.sides[FIRST].machine.resets() == 0);
    pair.sides[SECOND].is_deaf = false;
    let back = pair.revoke(FIRST, grant, 400 * MS);
    pair.run_until("the peer answers", |pair| pair.sides[SECOND].has_said(is_revoked));
    assert!(matches!(written.take(), Some(Ok(answer)) if answer.outcome == Err(TransferFault::Revoked)));
    let mut answer = None;
    pair.run_until("the memory is back", |_| {
        answer = back.take();
        answer.is_some()
    });
    assert!(matches!(answer, Some(Ok(RevokeAnswer::Back(_)))), "{answer:?}");
    assert_eq!(pair.sides[FIRST].machine.resets(), 1, "nothing else has stopped those bytes");
}

/// Found by seed 4074: what a dead card had was given up, and the peer heard that nothing was under way.
#[test]
fn a_peer_never_hears_that_nothing_is_under_way_while_a_dead_card_has_it() {
    let mut pair = Pair::connected(&SimCard::tcp());
    let grant = pair.grant(FIRST, LEN);
    pair.run(MS);
    let (link, card) = (pair.sides[SECOND].link().key.unwrap(), pair.sides[SECOND].card);
    pair.network.delay_next(link, 1000 * MS);
    pair.network.break_card(card);
    let written = pair.write(SECOND, grant, LEN);
    let mut answer = None;
    pair.run_until("the transfer has failed", |_| {
        answer = written.take();
        answer.is_some()
    });
    let answer = answer.unwrap().unwrap();
    assert!(matches!(answer.outcome, Err(TransferFault::Rail(_))) && answer.held.is_none(), "{answer:?}");
    let back = pair.revoke(FIRST, grant, 20 * MS);
    pair.run_until("the revocation is answered", |_| back.take().is_some());
    pair.sides[SECOND].machine.leave(PEER, pair.now);
    pair.run(20 * MS);
    let has_said = |frame: &Frame| is_revoked(frame) || matches!(frame, Frame::Goodbye);
    assert!(!pair.sides[SECOND].has_said(has_said), "{:?}", pair.sides[SECOND].said);
}

/// Found by seed 12223: of a peer that was lost before it had greeted nobody knew when its process ended.
#[test]
fn what_was_granted_to_a_peer_that_never_greeted_comes_back() {
    let mut pair = Pair::new(&SimCard::shm());
    let grant = pair.grant(FIRST, LEN);
    pair.sides[FIRST].machine.closed(PEER, "it has gone", pair.now);
    let back = pair.revoke(FIRST, grant, 100 * MS);
    assert!(matches!(back.take(), Some(Ok(RevokeAnswer::Back(_)))));
}

/// Its word is good for nothing: bytes of an end that it has lost may land, and the rail cannot be begun anew.
#[test]
fn memory_that_a_dead_rail_of_ours_may_still_change_is_leaked() {
    let mut pair = Pair::connected(&SimCard::tcp());
    let grant = pair.grant(FIRST, LEN);
    pair.run(MS);
    let (link, card) = (pair.sides[SECOND].link().key.unwrap(), pair.sides[FIRST].card);
    pair.network.delay_next(link, 1000 * MS);
    let _written = pair.write(SECOND, grant, LEN);
    pair.sides[SECOND].is_deaf = true;
    // Its key dies at the deadline, and the rail with the reset that is asked for then.
    pair.network.break_card(card);
    let back = pair.revoke(FIRST, grant, MS);
    pair.run_until("nothing is proven in time", |_| matches!(back.take(), Some(Ok(RevokeAnswer::NotYet(_)))));
    pair.run(20 * MS);
    pair.sides[SECOND].is_deaf = false;
    pair.run_until("the peer answers", |pair| pair.sides[SECOND].has_said(is_revoked));
    pair.run(MS);
    let lost = pair.sides[FIRST].machine.peer(PEER).and_then(|peer| peer.cell.lost().map(ToOwned::to_owned));
    assert!(
        lost.is_some_and(|why| why.contains("cannot be stopped")),
        "nothing can be promised of it any more"
    );
    let back = pair.revoke(FIRST, grant, MS);
    assert!(matches!(back.take(), Some(Ok(RevokeAnswer::Leaked(_)))));
}
