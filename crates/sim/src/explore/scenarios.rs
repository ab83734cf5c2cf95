//! The scenarios.

use super::scenario::{Call, Loss, MS, Scenario, Writing};
use crate::SimCard;

/// The time that a revocation may take, if time does not matter: everything ends long before.
const LONG: u64 = 1_000_000 * MS;

/// A moment at which timers that follow a lost link have run.
const TIMER: u64 = 2 * MS;

/// A deadline.
const SOON: u64 = 10 * MS;

/// Publications, which are opened and withdrawn.
pub(super) fn publications() -> Vec<Scenario> {
    let [rc, tcp, windows, _] = cards();
    let by_one = [&rc, &tcp, &windows].map(opened).into_iter();
    by_one.chain([&rc, &tcp, &windows].map(opened_by_two)).collect()
}

/// Grants, which are revoked with writes in flight.
pub(super) fn grants() -> Vec<Scenario> {
    let [rc, tcp, _, shared] = cards();
    vec![granted(&rc), granted(&tcp), granted(&shared), short_write(&shared), not_mapped(&shared)]
}

/// Transfers, which are aborted, late or done.
pub(super) fn transfers() -> Vec<Scenario> {
    let [rc, tcp, _, shared] = cards();
    [rc, tcp, shared].iter().map(aborted).collect()
}

/// Counters, which are closed with counts on their way.
pub(super) fn counters() -> Vec<Scenario> {
    let [rc, tcp, ..] = cards();
    vec![resent(&SimCard::efa()), counted(&rc), counted(&tcp), joined(&rc), joined(&tcp), lied(&rc)]
}

/// Exchanges of pages, beside other writers.
pub(super) fn exchanges() -> Vec<Scenario> {
    let [rc, _, _, shared] = cards();
    vec![exchanged(&shared, &rc), exchanged_under(&shared), exchanged_with_atomics(&shared)]
}

/// The scenarios whose orders take minutes.
pub(super) fn long() -> Vec<Scenario> {
    let [rc, tcp, windows, shared] = cards();
    let mut all = vec![opened(&shared), granted(&windows), counted(&windows), counted(&shared)];
    all.extend([&rc, &tcp, &windows].map(granted_until));
    all.extend([counted_twice(&rc), counted_twice(&tcp)]);
    all
}

fn cards() -> [SimCard; 4] {
    [SimCard::rc(), SimCard::tcp(), SimCard::windows(), SimCard::shared()]
}

/// Memory is opened, and withdrawn meanwhile; and the writer is lost at any point.
fn opened(card: &SimCard) -> Scenario {
    Scenario::new("open, write, withdraw, peer lost", card, 1)
        .before(&[(0, Call::Publish)])
        .user(1, &[Call::Open, Call::WRITE])
        .user(0, &[Call::WithdrawFrom(1, LONG)])
        .loss(Loss::Peer(1))
}

/// Two writers open memory, which is withdrawn from one and from all.
fn opened_by_two(card: &SimCard) -> Scenario {
    Scenario::new("two open, one writes, withdraw from one, from all", card, 2)
        .before(&[(0, Call::Publish), (2, Call::Open)])
        .user(1, &[Call::Open, Call::WRITE])
        .user(0, &[Call::WithdrawFrom(1, LONG), Call::Withdraw(LONG)])
}

/// Memory is revoked with a write in flight, until a deadline.
fn granted_until(card: &SimCard) -> Scenario {
    Scenario::new("write, revoke until a deadline, link lost", card, 1)
        .before(&[(0, Call::Grant(1))])
        .user(1, &[Call::WRITE])
        .user(0, &[Call::Revoke(1, SOON)])
        .loss(Loss::Link(1, 0))
        .moments(&[SOON])
}

/// Memory is revoked with a write in flight, and the link fails.
fn granted(card: &SimCard) -> Scenario {
    Scenario::new("write, revoke, link lost", card, 1)
        .before(&[(0, Call::Grant(1))])
        .user(1, &[Call::WRITE])
        .user(0, &[Call::Revoke(1, LONG)])
        .loss(Loss::Link(1, 0))
}

/// A counted write, and its link fails with the count on its way.
fn counted(card: &SimCard) -> Scenario {
    Scenario::new("counted write, close, link lost", card, 1)
        .before(&[(0, Call::Grant(1)), (0, Call::Count(1))])
        .user(1, &[Call::COUNTED])
        .user(0, &[Call::CloseCounter(1)])
        .loss(Loss::Link(1, 0))
}

/// A counted write whose link has failed goes over another card, and its bytes land late.
fn resent(card: &SimCard) -> Scenario {
    let scenario = Scenario::new("counted write over two cards, link lost", card, 1)
        .before(&[(0, Call::Grant(1)), (0, Call::Count(1))])
        .sent(&[(1, Call::COUNTED)])
        .loss(Loss::Link(1, 0))
        .moments(&[TIMER]);
    Scenario {
        hosts: vec![vec![card.clone(), card.clone()]; 2],
        is_lost_first: true,
        is_late: true,
        ..scenario
    }
}

/// Two counted writes, and the link fails with any part of them on its way.
fn counted_twice(card: &SimCard) -> Scenario {
    Scenario::new("two counted writes, link lost", card, 1)
        .before(&[(0, Call::Grant(1)), (0, Call::Count(1))])
        .user(1, &[Call::COUNTED, Call::COUNTED])
        .loss(Loss::Link(1, 0))
}

/// A write is aborted, or its deadline passes, or it is done.
fn aborted(card: &SimCard) -> Scenario {
    let write = Writing { is_counted: true, deadline: Some(SOON), is_short: false };
    Scenario::new("counted write, abort, deadline", card, 1)
        .before(&[(0, Call::Grant(1)), (0, Call::Count(1))])
        .user(1, &[Call::Write(write)])
        .user(1, &[Call::Abort])
        .moments(&[SOON])
}

/// A write within the call, and its memory is revoked meanwhile.
fn short_write(card: &SimCard) -> Scenario {
    Scenario::new("short write, revoke, link lost", card, 1)
        .before(&[(0, Call::Grant(1)), (0, Call::Count(1))])
        .user(1, &[Call::SHORT])
        .user(0, &[Call::Revoke(1, LONG)])
        .loss(Loss::Link(1, 0))
}

/// The pages of memory are exchanged because a writer is lost, and another one opens it over a card of another
/// kind.
fn exchanged(card: &SimCard, other: &SimCard) -> Scenario {
    let scenario = Scenario::new("exchange, another opens over rc and writes", card, 2)
        .before(&[(0, Call::Publish), (1, Call::Open)])
        .user(2, &[Call::Open, Call::WRITE])
        .loss(Loss::Stopped(1))
        .moments(&[LOST]);
    let hosts = vec![vec![card.clone(), other.clone()], vec![card.clone()], vec![other.clone()]];
    Scenario { hosts, is_lost_first: true, ..scenario }
}

/// The pages are exchanged while another writer within the host writes.
fn exchanged_under(card: &SimCard) -> Scenario {
    let scenario = Scenario::new("exchange, another writes", card, 2)
        .before(&[(0, Call::Publish), (1, Call::Open), (2, Call::Open)])
        .user(2, &[Call::WRITE])
        .loss(Loss::Stopped(1))
        .moments(&[LOST]);
    Scenario { is_lost_first: true, ..scenario }
}

/// As before, and the owner gets a reference to an atomic, which makes an exchange impossible.
fn exchanged_with_atomics(card: &SimCard) -> Scenario {
    let scenario = exchanged_under(card);
    Scenario { name: format!("{}, owner has atomics", scenario.name), ..scenario.user(0, &[Call::Atomic]) }
}

/// A writer cannot map the memory that was granted to it, and it is revoked.
fn not_mapped(card: &SimCard) -> Scenario {
    let scenario = Scenario::new("memory that cannot be mapped, write, revoke", card, 1)
        .before(&[(0, Call::Grant(1))])
        .user(1, &[Call::WRITE])
        .user(0, &[Call::Revoke(1, LONG)]);
    Scenario { maps_nothing: true, ..scenario }
}

/// A writer adds more pages to its counter than it can have had in flight on the link that was lost.
fn lied(card: &SimCard) -> Scenario {
    let scenario = Scenario::new("counted write, link lost, lie about the count", card, 1)
        .before(&[(0, Call::Grant(1)), (0, Call::Count(1))])
        .sent(&[(1, Call::COUNTED)])
        .user(1, &[Call::Lie])
        .loss(Loss::Link(1, 0))
        .moments(&[TIMER]);
    Scenario { is_lost_first: true, ..scenario }
}

/// A shared counter is opened and raised, and closed meanwhile.
fn joined(card: &SimCard) -> Scenario {
    Scenario::new("shared counter, write, close", card, 1)
        .before(&[(0, Call::Grant(1)), (0, Call::Share)])
        .user(1, &[Call::Join, Call::COUNTED])
        .user(0, &[Call::CloseShared])
}

/// A moment at which the end of a key is proven by an exchange, if its peer was lost at the start.
const LOST: u64 = 30 * MS;
