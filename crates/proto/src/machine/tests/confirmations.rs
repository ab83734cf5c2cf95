//! Confirmations of messages: in the header of an answer, or by a frame.

use super::*;
use crate::machine::MessageHeader;
use crate::machine::confirmations::WAIT;
use crate::time::Time;

/// The peer sends its message of this number over the link.
fn receive(machine: &mut Machine, sequence: u64, held: u64, now: u64) {
    machine.begin_step(Time(now));
    let mark = machine.peer(PEER).unwrap().links[0].own_mark();
    let header = MessageHeader { mark, sequence, held };
    machine.handle_message(0, None, &header.encode());
    machine.end_polls();
}

/// Sends a message over the link. Returns its header.
fn answer(machine: &mut Machine, now: u64) -> MessageHeader {
    machine.send_message(OpId(now), PEER, Vec::new(), Time(now));
    machine.begin_round(4);
    let post = machine.poll_post().expect("a message is posted");
    let Content::Message { header, .. } = post.content else { panic!("{post:?}") };
    let slot = post.slot;
    machine.handle_posted(slot, Ok(()));
    machine.handle_completed(0, slot, None, Ok(()));
    header
}

/// Takes the frames. Returns the confirmations among them.
fn confirmed(machine: &mut Machine) -> Vec<u64> {
    let held = |frame| if let Frame::Held { next } = frame { Some(next) } else { None };
    frames(machine).into_iter().filter_map(held).collect()
}

/// Returns a machine whose application answers each message, after two of them.
fn answering() -> Machine {
    let mut machine = ready();
    for number in 0..2 {
        receive(&mut machine, number, number, number * 10);
        assert_eq!(confirmed(&mut machine), [number + 1], "no answer is expected yet");
        assert_eq!(answer(&mut machine, number * 10 + 5).held, number + 1);
        machine.taken(PEER, 1, Time(number * 10 + 5));
    }
    events(&mut machine);
    confirmed(&mut machine);
    machine
}

#[test]
fn an_answer_carries_the_confirmation() {
    let mut machine = answering();
    for number in 2..10 {
        let now = number * 10;
        receive(&mut machine, number, number, now);
        assert!(machine.poll_timeout() <= Time(now + WAIT));
        assert_eq!(answer(&mut machine, now + 5).held, number + 1);
        machine.taken(PEER, 1, Time(now + 5));
        machine.handle_frame(PEER, Frame::Taken { count: 1 }, Time(now + 5));
        assert_eq!(confirmed(&mut machine), []);
        let told = events(&mut machine);
        assert!(told.iter().any(|event| matches!(event, Event::Sent(_, Ok(())))), "{told:?}");
    }
    assert_eq!(machine.confirmations.next_at(), None, "nothing is left over");
}

#[test]
fn without_an_answer_a_frame_carries_it_in_time() {
    let mut machine = answering();
    receive(&mut machine, 2, 0, 100);
    machine.begin_step(Time(100 + WAIT - 1));
    machine.end_polls();
    assert_eq!(confirmed(&mut machine), []);
    assert_eq!(machine.poll_timeout(), Time(100 + WAIT), "a driver that sleeps wakes up for it");
    machine.begin_step(Time(100 + WAIT));
    machine.end_polls();
    assert_eq!(confirmed(&mut machine), [3]);
    receive(&mut machine, 3, 0, 200 + WAIT);
    assert_eq!(confirmed(&mut machine), [4], "no answer is expected any more");
}

#[test]
fn several_messages_at_once_are_confirmed_by_a_frame() {
    let mut machine = answering();
    receive(&mut machine, 2, 0, 100);
    receive(&mut machine, 3, 0, 110);
    assert_eq!(confirmed(&mut machine), [4]);
    machine.begin_step(Time(200 + WAIT));
    machine.end_polls();
    assert_eq!(confirmed(&mut machine), [], "once");
}

#[test]
fn a_confirmation_is_made_again_after_the_loss_of_a_link_that_may_have_carried_it() {
    let mut machine = answering();
    let reason = RailError::new("link", "it is cut", "none");
    machine.handle_link_down(0, LINK, &reason);
    machine.begin_step(Time(2 * MS));
    while machine.poll_control().is_some() {}
    machine.end_step();
    assert_eq!(confirmed(&mut machine), [2]);
}

#[test]
fn a_goodbye_follows_the_confirmation() {
    let mut machine = answering();
    receive(&mut machine, 2, 2, 100);
    machine.leave(PEER, Time(110));
    let told: Vec<Frame> = frames(&mut machine);
    let [Frame::Held { next: 3 }, Frame::Goodbye] = told[..] else { panic!("{told:?}") };
}
