//! Shared counters: those that many peers may raise.

use super::*;
use crate::access::Access;
use crate::counter::{CounterId, Outcome};
use crate::error::OpenError;
use crate::ids::SharedCounterId;
use crate::time::Time;

fn answers(machine: &mut Machine) -> Vec<Frame> {
    let is_answer =
        |frame: &Frame| matches!(frame, Frame::CounterOpened { .. } | Frame::CounterNotOpened { .. });
    frames(machine).into_iter().filter(is_answer).collect()
}

/// Lets the peer open a shared counter, and returns the counter that it gets.
fn open(machine: &mut Machine, shared: SharedCounterId) -> Option<CounterId> {
    frames(machine);
    machine.handle_frame(PEER, Frame::OpenCounter { shared }, Time::ZERO);
    let sent = frames(machine);
    let opened = sent.iter().find_map(|frame| match frame {
        Frame::CounterOpened { shared: of, counter } if *of == shared => Some(*counter),
        _ => None,
    });
    let is_refused = sent.iter().any(|frame| matches!(frame, Frame::CounterNotOpened { .. }));
    assert_eq!(opened.is_none(), is_refused, "one answer: {sent:?}");
    opened
}

fn joined(machine: &mut Machine) -> Vec<CounterId> {
    let told = events(machine).into_iter().filter_map(|event| match event {
        Event::CounterJoined { peer: PEER, counter, .. } => Some(counter),
        _ => None,
    });
    told.collect()
}

#[test]
fn a_peer_that_asks_often_gets_one_counter() {
    let mut machine = ready();
    let shared = machine.share_counter(Access::Anyone);
    machine.handle_frame(PEER, Frame::OpenCounter { shared }, Time::ZERO);
    let sent = frames(&mut machine);
    let place = |wanted: fn(&Frame) -> bool| sent.iter().position(wanted).unwrap();
    let announced = place(|frame| matches!(frame, Frame::Counter { .. }));
    assert!(announced < place(|frame| matches!(frame, Frame::CounterOpened { .. })));
    let counter = joined(&mut machine)[0];
    assert_eq!(open(&mut machine, shared), Some(counter));
    assert!(joined(&mut machine).is_empty(), "once");
    assert_eq!(open(&mut machine, SharedCounterId(!shared.to_raw())), None);
    machine.close_shared_counter(shared, Time::ZERO);
    assert!(frames(&mut machine).contains(&Frame::CounterClosed { counter }));
    assert_eq!(open(&mut machine, shared), None);
    assert_eq!(machine.census().counters, 0);
}

#[test]
fn a_peer_without_a_permitted_name_gets_none() {
    let mut machine = ready();
    let shared = machine.share_counter(Access::only(["a.example"]));
    assert_eq!(open(&mut machine, shared), None);
    machine.set_certificate_names(PEER, vec!["b.example".to_owned()]);
    assert_eq!(open(&mut machine, shared), None);
    assert!(machine.admit_to_counter(shared, "b.example"));
    assert!(open(&mut machine, shared).is_some());
}

#[test]
fn a_peer_gets_no_more_counters_than_it_accepts() {
    let mut machine = ready();
    let shared: Vec<SharedCounterId> = (0..5).map(|_| machine.share_counter(Access::Anyone)).collect();
    // The hello of the peer accepts four.
    let opened: Vec<bool> = shared.iter().map(|it| open(&mut machine, *it).is_some()).collect();
    assert_eq!(opened, [true, true, true, true, false]);
    machine.close_shared_counter(shared[0], Time::ZERO);
    assert!(open(&mut machine, shared[4]).is_some());
}

#[test]
fn a_lost_peer_takes_no_counter_with_it() {
    let mut machine = ready();
    let shared = machine.share_counter(Access::Anyone);
    let counter = open(&mut machine, shared).unwrap();
    events(&mut machine);
    machine.handle_frame(PEER, Frame::Goodbye, Time::ZERO);
    let told = events(&mut machine);
    let is_end =
        |event: &Event| matches!(event, Event::CounterEnded(of, Outcome::PeerLost) if *of == counter);
    assert!(told.iter().any(is_end), "{told:?}");
    assert_eq!(machine.census().counters, 0, "its place is free");
    machine.close_shared_counter(shared, Time::ZERO);
}

#[test]
fn a_refusal_is_no_answer_to_a_later_request_either() {
    let mut machine = ready();
    machine.open_shared_counter(OpId(1), PEER, SharedCounterId(7), Time::ZERO);
    machine.open_shared_counter(OpId(2), PEER, SharedCounterId(7), Time::ZERO);
    frames(&mut machine);
    machine.handle_frame(
        PEER,
        Frame::CounterNotOpened { shared: SharedCounterId(7), reason: "not yet".to_owned() },
        Time::ZERO,
    );
    let told = events(&mut machine);
    assert!(matches!(told[..], [.., Event::CounterOpened(OpId(1), Err(_))]), "{told:?}");
    assert_eq!(frames(&mut machine), [Frame::OpenCounter { shared: SharedCounterId(7) }]);
}

#[test]
fn every_request_to_open_a_counter_is_answered() {
    let mut machine = ready();
    for (op, shared) in [(1, 7), (2, 7), (3, 8), (4, 9), (5, 10)] {
        machine.open_shared_counter(OpId(op), PEER, SharedCounterId(shared), Time::ZERO);
    }
    let sent = frames(&mut machine);
    let count = sent.iter().filter(|frame| matches!(frame, Frame::OpenCounter { .. })).count();
    assert_eq!(count, 4, "once for each counter");
    let [known, unknown] = [5, 6].map(CounterId::from_raw);
    machine.handle_frame(PEER, Frame::Counter { counter: known, names: Vec::new() }, Time::ZERO);
    machine.handle_frame(
        PEER,
        Frame::CounterOpened { shared: SharedCounterId(7), counter: known },
        Time::ZERO,
    );
    machine.handle_frame(
        PEER,
        Frame::CounterOpened { shared: SharedCounterId(8), counter: unknown },
        Time::ZERO,
    );
    machine.handle_frame(
        PEER,
        Frame::CounterOpened { shared: SharedCounterId(8), counter: known },
        Time::ZERO,
    );
    let reason = "no".repeat(10_000);
    machine.handle_frame(PEER, Frame::CounterNotOpened { shared: SharedCounterId(9), reason }, Time::ZERO);
    machine.handle_disconnected(PEER, LostReason::Gone, Time::ZERO);
    machine.open_shared_counter(OpId(6), PEER, SharedCounterId(7), Time::ZERO);
    let told: Vec<_> = events(&mut machine)
        .into_iter()
        .filter_map(
            |event| if let Event::CounterOpened(op, answer) = event { Some((op.0, answer)) } else { None },
        )
        .collect();
    let [
        (1, Ok(one)),
        (2, Ok(two)),
        (3, Err(OpenError::Refused { .. })),
        (4, Err(OpenError::Refused { reason })),
        (5, Err(OpenError::PeerLost { .. })),
        (6, Err(OpenError::PeerLost { .. })),
    ] = &told[..]
    else {
        panic!("{told:?}")
    };
    assert_eq!((*one, *two), (known, known));
    assert!(reason.as_sent().len() < 1000);
    assert!(answers(&mut machine).is_empty());
}
