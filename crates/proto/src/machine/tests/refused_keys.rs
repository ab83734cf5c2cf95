//! Requests that fail alone or with their key, while their link goes on.

use super::*;
use crate::counter::CounterId;
use crate::error::AtomicError;
use crate::ids::GrantId;
use crate::inflight::SlotId;
use crate::machine::{
    AtomicOperation, Direction, GrantRange, NewAtomic, NewTransfer, ShortTransfer, TransferFault,
};
use crate::plan::{Extent, Pages, Plan};
use crate::time::Time;
use crate::wire::{BoundKey, GrantOffer};

const BAD: GrantId = GrantId(5);
const GOOD: GrantId = GrantId(6);
const COUNTER: u32 = 3 << 8;

fn counter() -> CounterId {
    CounterId::from_raw(COUNTER)
}

/// A rail whose operations are copies of this process, in no order.
fn unordered() -> Properties {
    let limits = Limits { is_ordered: false, pages: 1, ..properties().limits };
    Properties {
        limits,
        performs_max: 64,
        immediates_name_link: true,
        links_end_alone: true,
        writes_prove: Proof::Delivered,
        ..properties()
    }
}

/// Returns a machine with two grants of a peer, and a counter.
fn granted(properties: Properties) -> Machine {
    let (mut machine, end, link) = answered_over(properties);
    machine.handle_connected(end, Ok(()));
    machine.handle_frame(
        PEER,
        Frame::LinkReady { link, mark: 9, needs_names: false, binds_keys: false },
        Time::ZERO,
    );
    for grant in [BAD, GOOD] {
        let keys = vec![Some((4096, grant.0))];
        let rights = Rights::all().bits();
        let offer = GrantOffer { grant, len: 4096, rights, scope: Scope::Network, keys };
        machine.handle_frame(PEER, Frame::Grant(offer), Time::ZERO);
    }
    machine.handle_frame(PEER, Frame::Counter { counter: counter(), names: Vec::new() }, Time::ZERO);
    assert!(post(&mut machine).is_empty());
    frames(&mut machine);
    events(&mut machine);
    machine
}

/// Begins a transfer of some pages that are counted.
fn submit(machine: &mut Machine, op: u64, grant: GrantId, pages: u32, now: u64) {
    let len = u64::from(pages) * 64;
    let some = || (Pages { indices: (0..pages).collect(), stride: 64, offset: 0 }, len);
    let new = NewTransfer {
        op: OpId(op),
        peer: PEER,
        direction: Direction::Write,
        plan: Plan::new(64, some(), some()).unwrap(),
        regions: GrantRange { grant, base: 0, len }.into(),
        counter: Some(counter()),
        priority: Priority::Normal,
        deadline: None,
    };
    machine.submit(new, Time(now));
}

/// Posts everything. Returns the work requests with the grant of each: its key has the same number.
fn post(machine: &mut Machine) -> Vec<(SlotId, GrantId)> {
    machine.begin_round(4);
    let mut posted = Vec::new();
    while let Some(post) = machine.poll_post() {
        let key = match &post.content {
            Content::Pages { request: Some(request), .. } | Content::Atomic { request } => match request {
                crate::rail::WorkRequest::Write { target, .. }
                | crate::rail::WorkRequest::FetchAdd { target, .. } => GrantId(target.key),
                other => panic!("{other:?}"),
            },
            _ => GrantId(0),
        };
        posted.push((post.slot, key));
        machine.handle_posted(posted[posted.len() - 1].0, Ok(()));
    }
    posted
}

fn not_mapped() -> RailError {
    RailError::new("write", "the memory cannot be mapped", "raise the limit")
}

fn fail(machine: &mut Machine, slot: SlotId) {
    machine.handle_completed(0, slot, None, Err(RequestError::Key(not_mapped())));
}

/// Returns the transfers that have ended, and whether their rail has failed them.
fn ended(machine: &mut Machine) -> Vec<(u64, bool)> {
    let ended = events(machine).into_iter().filter_map(|event| match event {
        Event::Transfer(op, end) => {
            assert!(end.is_back, "no card has a part of its memory");
            match end.outcome {
                Ok(()) => Some((op.0, false)),
                Err(TransferFault::Rail(error)) if *error == not_mapped() => Some((op.0, true)),
                other => panic!("{other:?}"),
            }
        }
        Event::Peer(_, PeerChange::LinkLost { .. }) => panic!("the link goes on"),
        _ => None,
    });
    ended.collect()
}

#[test]
fn a_key_that_fails_ends_its_transfers_and_no_link() {
    let mut machine = granted(unordered());
    submit(&mut machine, 1, BAD, 3, 0);
    submit(&mut machine, 2, GOOD, 2, 0);
    let posted = post(&mut machine);
    assert_eq!(posted.len(), 5);
    // Not all of it is in flight.
    submit(&mut machine, 3, BAD, 60, 0);
    let (bad, good): (Vec<_>, Vec<_>) = posted.into_iter().partition(|(_, key)| *key == BAD);
    fail(&mut machine, bad[0].0);
    assert_eq!(ended(&mut machine), [(3, true)], "none of it was in flight");
    let told = frames(&mut machine);
    let is_abort = |frame: &&Frame| matches!(frame, Frame::Abort { .. });
    assert_eq!(told.iter().filter(is_abort).count(), 2, "{told:?}");
    assert!(post(&mut machine).is_empty(), "nothing more of it is posted");
    // Others are refused at once, also those that would be performed.
    submit(&mut machine, 4, BAD, 1, 0);
    assert_eq!(ended(&mut machine), [(4, true)]);
    good.iter().for_each(|(slot, _)| machine.handle_completed(0, *slot, None, Ok(())));
    assert_eq!(ended(&mut machine), [(2, false)]);
    bad[1..].iter().for_each(|(slot, _)| fail(&mut machine, *slot));
    assert_eq!(ended(&mut machine), [(1, true)]);
    assert!(machine.poll_control().is_none() && post(&mut machine).is_empty() && machine.is_idle());
    let short = |grant| ShortTransfer {
        peer: PEER,
        direction: Direction::Write,
        own: Extent { offset: 0, len: 64 },
        remote: Extent { offset: 0, len: 64 },
        grant,
        base: 0,
        len: 64,
        counter: Some(counter()),
        priority: Priority::Normal,
        deadline: None,
    };
    assert!(machine.short_request(&short(BAD), Time::ZERO).is_none());
    assert!(machine.short_request(&short(GOOD), Time::ZERO).is_some());
}

#[test]
fn a_key_that_failed_is_tried_again_after_a_while() {
    let mut machine = granted(unordered());
    for (op, now) in [(1, 0), (2, MS), (3, 2 * MS)] {
        submit(&mut machine, op, BAD, 1, now);
        let posted = post(&mut machine);
        assert_eq!(posted.len(), 1, "{now}");
        machine.begin_step(Time(now));
        if op == 3 {
            machine.handle_completed(0, posted[0].0, None, Ok(()));
            assert_eq!(ended(&mut machine), [(3, false)]);
        } else {
            fail(&mut machine, posted[0].0);
            submit(&mut machine, 100 + op, BAD, 1, now + MS - 1);
            assert_eq!(ended(&mut machine), [(op, true), (100 + op, true)]);
        }
    }
}

/// No immediate has counted the pages of a request that fails alone: what is added after the loss of the
/// link does not include them.
#[test]
fn pages_that_fail_alone_are_not_counted() {
    let mut machine = granted(unordered());
    submit(&mut machine, 1, BAD, 1, 0);
    submit(&mut machine, 2, GOOD, 2, 0);
    let posted = post(&mut machine);
    for (slot, key) in posted {
        match key {
            BAD => fail(&mut machine, slot),
            _ => machine.handle_completed(0, slot, None, Ok(())),
        }
    }
    assert_eq!(ended(&mut machine), [(1, true), (2, false)]);
    machine.handle_link_down(0, LINK, &RailError::new("poll", "it was cut", "none"));
    while machine.poll_control().is_some() {}
    machine.begin_step(Time(2 * MS));
    machine.end_step();
    while machine.poll_control().is_some() {}
    let asked = frames(&mut machine).into_iter().find_map(|frame| match frame {
        Frame::Settle { link, counter } => Some((link, counter)),
        _ => None,
    });
    let (link, counter) = asked.expect("the peer is asked");
    machine.handle_frame(PEER, Frame::Settled { link, counter, pages: 0 }, Time(2 * MS));
    assert_eq!(frames(&mut machine), [Frame::Add { counter, pages: 2 }]);
}

/// A peer that grants memory and does not bind its key delays nothing but transfers to that memory.
#[test]
fn a_transfer_that_waits_for_its_key_delays_no_other_and_ends_no_link() {
    let (mut machine, end, link) = answered_over(unordered());
    machine.handle_connected(end, Ok(()));
    machine.handle_frame(
        PEER,
        Frame::LinkReady { link, mark: 9, needs_names: false, binds_keys: true },
        Time::ZERO,
    );
    for grant in [BAD, GOOD] {
        let rights = Rights::all().bits();
        let offer = GrantOffer { grant, len: 4096, rights, scope: Scope::Network, keys: vec![None] };
        machine.handle_frame(PEER, Frame::Grant(offer), Time::ZERO);
    }
    let bind = |machine: &mut Machine, grant, now| {
        let keys = vec![BoundKey { grant, address: 4096, key: grant.0 }];
        machine.handle_frame(PEER, Frame::Keys { link, keys }, now);
    };
    machine.handle_frame(PEER, Frame::Counter { counter: counter(), names: Vec::new() }, Time::ZERO);
    bind(&mut machine, GOOD, Time::ZERO);
    submit(&mut machine, 1, BAD, 2, 0);
    events(&mut machine);
    let long = 10 * (tuning().stall + tuning().drain);
    for now in (MS..long).step_by(MS as usize) {
        submit(&mut machine, 1 + now, GOOD, 1, now);
        for (slot, key) in post(&mut machine) {
            assert_eq!(key, GOOD);
            machine.handle_completed(0, slot, None, Ok(()));
        }
        assert_eq!(ended(&mut machine), [(1 + now, false)]);
        machine.handle_frame(PEER, Frame::Ping { nonce: now }, Time(now));
        machine.begin_step(Time(now));
        machine.end_step();
        assert!(machine.poll_control().is_none(), "the link goes on");
    }
    bind(&mut machine, BAD, Time(long));
    let posted = post(&mut machine);
    assert_eq!(posted.iter().map(|(_, key)| *key).collect::<Vec<_>>(), [BAD; 2]);
    posted.iter().for_each(|(slot, _)| machine.handle_completed(0, *slot, None, Ok(())));
    assert_eq!(ended(&mut machine), [(1, false)]);
    let short = ShortTransfer {
        peer: PEER,
        direction: Direction::Write,
        own: Extent { offset: 0, len: 64 },
        remote: Extent { offset: 0, len: 64 },
        grant: GOOD,
        base: 0,
        len: 64,
        counter: None,
        priority: Priority::Normal,
        deadline: None,
    };
    // One that is aborted while it waits. Others are performed meanwhile.
    let offer =
        GrantOffer { grant: GrantId(9), len: 4096, rights: 7, scope: Scope::Network, keys: vec![None] };
    machine.handle_frame(PEER, Frame::Grant(offer), Time(long));
    submit(&mut machine, 2, GrantId(9), 1, long);
    assert!(post(&mut machine).is_empty() && machine.short_request(&short, Time(long)).is_some());
    machine.abort_op(PEER, OpId(2), &TransferFault::Rail(Box::new(not_mapped())), Time(long));
    assert_eq!(ended(&mut machine), [(2, true)]);
    submit(&mut machine, 3, GOOD, 1, long);
    assert!(machine.short_request(&short, Time(long)).is_none(), "one is queued");
    let (slot, _) = post(&mut machine)[0];
    machine.handle_completed(0, slot, None, Ok(()));
    assert!(post(&mut machine).is_empty() && machine.is_idle());
    assert!(machine.short_request(&short, Time(long)).is_some());
}

#[test]
fn an_atomic_fails_with_its_key_and_had_no_effect() {
    let mut machine = granted(unordered());
    let new = |op, grant| {
        let request = AtomicOperation::FetchAdd { add: 1 };
        NewAtomic { op: OpId(op), peer: PEER, grant, offset: 0, request }
    };
    machine.change_atomic(new(1, BAD), Time::ZERO);
    machine.change_atomic(new(2, BAD), Time::ZERO);
    let posted = post(&mut machine);
    assert_eq!(posted.len(), 2);
    fail(&mut machine, posted[0].0);
    machine.change_atomic(new(3, BAD), Time::ZERO);
    machine.change_atomic(new(4, GOOD), Time::ZERO);
    fail(&mut machine, posted[1].0);
    let (slot, key) = post(&mut machine)[0];
    assert_eq!(key, GOOD);
    machine.handle_completed(0, slot, Some(7), Ok(()));
    let answers: Vec<_> = events(&mut machine)
        .into_iter()
        .filter_map(|event| match event {
            Event::Atomic(op, answer) => Some((op.0, answer)),
            _ => None,
        })
        .collect();
    let refused = || Err(AtomicError::Rail(not_mapped()));
    assert_eq!(answers, [(1, refused()), (3, refused()), (2, refused()), (4, Ok(7))]);
    assert!(machine.is_idle() && machine.poll_control().is_none());
}

/// The owner may have its effect after the end of the link, until it has stopped that.
#[test]
fn an_atomic_over_a_lost_link_keeps_its_grant_from_being_confirmed() {
    let mut machine = granted(properties());
    let request = AtomicOperation::FetchAdd { add: 1 };
    machine.change_atomic(NewAtomic { op: OpId(1), peer: PEER, grant: GOOD, offset: 0, request }, Time::ZERO);
    let (slot, _) = post(&mut machine)[0];
    machine.handle_frame(PEER, Frame::Revoke { grant: GOOD }, Time(MS));
    frames(&mut machine);
    let error = RailError::new("atomic", "no answer", "try again");
    machine.handle_completed(0, slot, None, Err(RequestError::Link(error)));
    let is_answer = |event: &Event| matches!(event, Event::Atomic(OpId(1), Err(AtomicError::Unknown)));
    assert!(events(&mut machine).iter().any(is_answer), "its user need not wait");
    let is_word = |frame: &Frame| matches!(frame, Frame::Revoked { grant: GOOD });
    let said = frames(&mut machine);
    assert!(!said.iter().any(is_word), "the link is not drained: {said:?}");
    machine.begin_step(Time(3 * MS));
    machine.end_polls();
    machine.end_step();
    let said = frames(&mut machine);
    let question = said.iter().find(|frame| matches!(frame, Frame::Settle { .. }));
    let Some(Frame::Settle { link, counter }) = question.cloned() else { panic!("{said:?}") };
    assert!(!said.iter().any(is_word), "{said:?}");
    machine.handle_frame(PEER, Frame::Settled { link, counter, pages: 0 }, Time(4 * MS));
    assert!(frames(&mut machine).iter().any(is_word));
}

/// Its rail may be dead for good: a close would never end.
#[test]
fn what_waits_for_a_link_does_not_keep_a_peer_from_being_closed_for_ever() {
    let mut machine = granted(properties());
    let error = RailError::new("poll", "the card is gone", "none");
    machine.handle_link_down(0, LINK, &error);
    for now in 1..5 {
        machine.begin_step(Time(now * MS));
        machine.end_polls();
        machine.end_step();
    }
    let request = AtomicOperation::FetchAdd { add: 1 };
    machine
        .change_atomic(NewAtomic { op: OpId(1), peer: PEER, grant: GOOD, offset: 0, request }, Time(5 * MS));
    machine.leave(PEER, Time(5 * MS));
    let answered = |machine: &mut Machine, now: u64| {
        machine.handle_frame(PEER, Frame::Pong { nonce: 0 }, Time(now));
        while machine.poll_control().is_some() {}
        machine.begin_step(Time(now));
        machine.end_step();
        let is_lost =
            |event: &Event| matches!(event, Event::Atomic(OpId(1), Err(AtomicError::PeerLost { .. })));
        events(machine).iter().any(is_lost)
    };
    let silence = tuning().silence;
    assert!(!answered(&mut machine, 4 * MS + silence));
    assert!(answered(&mut machine, 6 * MS + silence));
    assert!(frames(&mut machine).contains(&Frame::Goodbye), "nothing is in flight");
}

/// Where operations are ordered, one after it may have counted its pages. Messages go on in their order
/// only without gaps.
#[test]
fn a_link_ends_with_what_cannot_fail_alone() {
    for sends in [false, true] {
        let mut machine = granted(if sends { unordered() } else { naming() });
        match sends {
            true => machine.send_message(OpId(1), PEER, vec![1], Time::ZERO),
            false => submit(&mut machine, 1, BAD, 1, 0),
        }
        let posted = post(&mut machine);
        fail(&mut machine, posted[0].0);
        let is_lost = |event: &Event| matches!(event, Event::Peer(_, PeerChange::LinkLost { .. }));
        assert!(events(&mut machine).iter().any(is_lost), "{sends}");
    }
}

/// A peer may tell that it takes shorter messages over a link than this side sends.
#[test]
fn a_message_that_a_link_never_takes_ends_no_link() {
    let mut machine = granted(unordered());
    machine.send_message(OpId(1), PEER, vec![7; 40], Time::ZERO);
    machine.begin_round(4);
    let slot = machine.poll_post().expect("it is posted").slot;
    let error = RailError::new("post", "40 bytes exceed the maximum of 8", "send less");
    machine.handle_posted(slot, Err(Refusal::Never(error)));
    assert!(machine.poll_post().is_none());
    assert_eq!(frames(&mut machine), [Frame::Message { sequence: 0, bytes: vec![7; 40] }]);
    machine.handle_frame(PEER, Frame::Held { next: 1 }, Time::ZERO);
    let told = events(&mut machine);
    assert!(told.iter().any(|event| matches!(event, Event::Sent(OpId(1), Ok(())))), "{told:?}");
    assert!(!told.iter().any(|event| matches!(event, Event::Peer(_, PeerChange::LinkLost { .. }))));
    assert!(post(&mut machine).is_empty() && machine.poll_control().is_none());
}

fn naming() -> Properties {
    Properties { immediates_name_link: true, ..properties() }
}
