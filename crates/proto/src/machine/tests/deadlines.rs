//! Deadlines of transfers that pass at each stage.

use super::priorities::{ALL, GRANT, granted, new, post};
use super::*;
use crate::inflight::SlotId;
use crate::machine::{Direction, NewTransfer, TransferFault};
use crate::plan::{Pages, Plan};
use crate::time::Time;

const AT: u64 = 10 * MS;
const OP: u64 = 1;
const LATE: Result<(), TransferFault> = Err(TransferFault::DeadlinePassed);

/// Begins a read of so many pages of 64 bytes with the deadline, and another one without.
fn begun(pages: u32) -> (Machine, LinkId) {
    let (mut machine, link) = granted();
    machine.submit(new(OP, (pages, 64), Priority::Normal, Some(AT)), Time(MS)).expect("it is begun");
    (machine, link)
}

/// Makes a step without completions.
fn step(machine: &mut Machine, now: u64) {
    machine.begin_step(Time(now));
    machine.end_polls();
    machine.end_step();
}

/// Returns the outcome of the transfer, whether its memory is back, and the bytes known to have arrived.
fn end(machine: &mut Machine) -> Option<(Result<(), TransferFault>, bool, u64)> {
    events(machine).into_iter().find_map(|event| match event {
        Event::Transfer(OpId(OP), end) => Some((end.outcome, end.is_back, end.stats.delivered)),
        _ => None,
    })
}

fn complete(machine: &mut Machine, slots: impl IntoIterator<Item = SlotId>) {
    slots.into_iter().for_each(|slot| machine.handle_completed(0, slot, None, Ok(())));
}

#[test]
fn one_that_is_queued_ends_at_its_deadline_and_not_before() {
    let (mut machine, _) = begun(1);
    step(&mut machine, AT - 1);
    assert_eq!(end(&mut machine), None);
    assert_eq!(machine.poll_timeout(), Time(AT), "the driver wakes up for it");
    step(&mut machine, AT);
    assert_eq!(end(&mut machine), Some((LATE, true, 0)));
    assert_eq!(post(&mut machine).0, []);
    assert!(machine.is_idle() && machine.poll_timeout() > Time(AT));
}

#[test]
fn one_that_is_partly_posted_ends_when_nothing_of_it_is_in_flight() {
    let (mut machine, _) = begun(80);
    let mut slots = post(&mut machine).1;
    assert!(slots.len() < 80);
    let all = slots.len() as u64;
    let rest = slots.split_off(3);
    complete(&mut machine, slots);
    step(&mut machine, AT);
    assert_eq!(end(&mut machine), None, "a card has a part of its memory");
    assert_eq!(post(&mut machine).0, [], "nothing more of it");
    let (last, others) = rest.split_last().unwrap();
    complete(&mut machine, others.iter().copied());
    assert_eq!(end(&mut machine), None, "a card still has a part of its memory");
    complete(&mut machine, [*last]);
    assert_eq!(end(&mut machine), Some((LATE, true, all * 64)));
}

#[test]
fn one_that_is_all_in_flight_is_done() {
    let (mut machine, _) = begun(2);
    let slots = post(&mut machine).1;
    step(&mut machine, AT + MS);
    assert_eq!(end(&mut machine), None);
    complete(&mut machine, slots);
    assert_eq!(end(&mut machine), Some((Ok(()), true, 128)));
}

#[test]
fn one_that_is_done_at_the_instant_of_its_deadline_is_done() {
    let (mut machine, _) = begun(2);
    let mut slots = post(&mut machine).1;
    machine.begin_step(Time(AT));
    complete(&mut machine, slots.drain(..1));
    complete(&mut machine, slots);
    machine.end_polls();
    machine.end_step();
    assert_eq!(end(&mut machine), Some((Ok(()), true, 128)));
    step(&mut machine, AT + 1);
    assert_eq!(end(&mut machine), None, "once");
}

#[test]
fn one_whose_deadline_has_passed_is_refused_with_its_memory() {
    let (mut machine, _) = granted();
    for (deadline, now) in [(AT, AT), (AT, AT + 1), (0, 0)] {
        let late = new(OP, (1, 64), Priority::Urgent, Some(deadline));
        assert_eq!(machine.submit(late, Time(now)), None);
        assert_eq!(end(&mut machine), Some((LATE, true, 0)));
    }
    assert_eq!(post(&mut machine).0, []);
    // The receiver is told, as of one whose deadline passes later.
    let counter = crate::counter::CounterId::from_raw(3 << 8);
    machine.handle_frame(PEER, Frame::Counter { counter, names: Vec::new() }, Time::ZERO);
    let late = new(OP, (1, 64), Priority::Urgent, Some(0));
    machine.submit(NewTransfer { counter: Some(counter), ..late }, Time(1));
    assert_eq!(end(&mut machine), Some((LATE, true, 0)));
    let told = frames(&mut machine);
    assert!(matches!(told[..], [Frame::Abort { counter: it, .. }] if it == counter), "{told:?}");
    // What is not possible at all is told first.
    let grant = |range: &mut NewTransfer| {
        range.regions = crate::machine::GrantRange { grant: GRANT, base: 1, len: ALL }.into()
    };
    let mut wrong = new(OP, (1, 64), Priority::Normal, Some(0));
    grant(&mut wrong);
    machine.submit(wrong, Time(1));
    assert_eq!(end(&mut machine), Some((Err(TransferFault::OutOfBounds), true, 0)));
}

/// Loses the link with what is in flight on it. The operations come back as failed.
fn lose_link(machine: &mut Machine, slots: Vec<SlotId>, now: u64) {
    machine.begin_step(Time(now));
    let cut = RailError::new("poll", "it was cut", "none");
    machine.handle_link_down(0, LINK, &cut);
    slots
        .into_iter()
        .for_each(|slot| machine.handle_completed(0, slot, None, Err(RequestError::Link(cut.clone()))));
    machine.end_polls();
    machine.end_step();
    while machine.poll_control().is_some() {}
}

/// Steps until the peer is asked what has arrived over the lost link.
fn asked(machine: &mut Machine, now: u64) -> Vec<Frame> {
    step(machine, now);
    while machine.poll_control().is_some() {}
    let frames = frames(machine);
    frames.into_iter().filter(|frame| matches!(frame, Frame::Settle { .. })).collect()
}

/// A read needs no answer, but a write does: late bytes of it must not overwrite later ones.
fn write(pages: u32, now: u64) -> (Machine, Vec<SlotId>) {
    let (mut machine, _) = granted();
    let all = || (Pages { indices: (0..pages).collect(), stride: 64, offset: 0 }, ALL);
    let plan = Plan::new(64, all(), all()).unwrap();
    let read = new(OP, (1, 64), Priority::Normal, Some(AT));
    machine
        .submit(NewTransfer { direction: Direction::Write, plan, ..read }, Time(now))
        .expect("it is begun");
    let slots = post(&mut machine).1;
    (machine, slots)
}

#[test]
fn one_whose_link_is_lost_after_its_deadline_ends_with_its_operations() {
    let (mut machine, slots) = write(1, MS);
    step(&mut machine, AT);
    assert_eq!(end(&mut machine), None, "it is in flight");
    lose_link(&mut machine, slots, AT + MS);
    asked(&mut machine, AT + 4 * MS);
    assert_eq!(end(&mut machine), Some((LATE, true, 0)), "it is not sent again");
    assert_eq!(post(&mut machine).0, []);
}

/// The peer would take its memory back, and bytes of the aborted write would land in it.
#[test]
fn a_revoked_grant_is_confirmed_when_the_peer_has_stopped_the_link_that_was_lost() {
    let (mut machine, slots) = write(1, MS);
    machine.handle_frame(PEER, Frame::Revoke { grant: GRANT }, Time(2 * MS));
    lose_link(&mut machine, slots, 3 * MS);
    step(&mut machine, 6 * MS);
    while machine.poll_control().is_some() {}
    let said = frames(&mut machine);
    let question = said.iter().find(|frame| matches!(frame, Frame::Settle { .. }));
    let Some(Frame::Settle { link, counter }) = question.cloned() else { panic!("{said:?}") };
    let is_word = |frame: &Frame| matches!(frame, Frame::Revoked { grant: GRANT });
    assert!(!said.iter().any(is_word), "{said:?}");
    assert_eq!(end(&mut machine), Some((Err(TransferFault::Revoked), true, 0)), "its user need not wait");
    machine.handle_frame(PEER, Frame::Settled { link, counter, pages: 0 }, Time(7 * MS));
    assert!(frames(&mut machine).iter().any(is_word));
}

#[test]
fn one_that_is_reconciled_at_its_deadline_ends_when_the_peer_has_stopped_the_link() {
    let (mut machine, slots) = write(1, MS);
    lose_link(&mut machine, slots, AT - 4 * MS);
    let questions = asked(&mut machine, AT - MS);
    let [Frame::Settle { link, counter }] = questions[..] else { panic!("{questions:?}") };
    step(&mut machine, AT);
    assert_eq!(end(&mut machine), None, "bytes of it may still land");
    machine.handle_frame(PEER, Frame::Settled { link, counter, pages: 0 }, Time(AT + 10 * MS));
    assert_eq!(end(&mut machine), Some((LATE, true, 0)));
    assert!(machine.is_idle());
}

#[test]
fn one_whose_peer_is_lost_ends_with_that() {
    let (mut machine, slots) = write(1, MS);
    machine.handle_disconnected(PEER, LostReason::Gone, Time(2 * MS));
    step(&mut machine, AT);
    complete(&mut machine, slots);
    while machine.poll_control().is_some() {}
    step(&mut machine, AT + 30 * MS);
    let (outcome, ..) = end(&mut machine).expect("every wait ends");
    assert!(matches!(outcome, Err(TransferFault::PeerLost(_))), "{outcome:?}");
    step(&mut machine, AT + 40 * MS);
    assert_eq!(end(&mut machine), None, "once");
}

#[test]
fn an_abort_before_the_deadline_is_told_as_such() {
    let (mut machine, _) = begun(80);
    let slots = post(&mut machine).1;
    let all = slots.len() as u64;
    machine.abort_op(PEER, OpId(OP), &TransferFault::Aborted, Time(AT - 1));
    step(&mut machine, AT);
    complete(&mut machine, slots);
    assert_eq!(end(&mut machine), Some((Err(TransferFault::Aborted), true, all * 64)));
}

#[test]
fn only_the_transfers_whose_deadline_has_passed_end() {
    let (mut machine, _) = granted();
    for op in 0..100 {
        // Others have later ones, or none.
        let deadline = if op % 3 == 0 { None } else { Some(AT + op % 10 * MS) };
        machine.submit(new(op, (1, 64), Priority::Bulk, deadline), Time(MS)).expect("it is begun");
    }
    let mut ended = Vec::new();
    for now in 0..20 {
        step(&mut machine, AT + now * MS);
        for event in events(&mut machine) {
            let Event::Transfer(OpId(op), end) = event else { continue };
            assert_eq!((end.outcome, AT + op % 10 * MS), (LATE, AT + now * MS));
            ended.push(op);
        }
    }
    ended.sort_unstable();
    assert!(ended.into_iter().eq((0..100).filter(|op| op % 3 != 0)));
}
