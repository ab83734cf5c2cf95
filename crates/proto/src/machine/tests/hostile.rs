//! Peers that lie: frames that are well-formed and false, and more of everything than is allowed.

use super::*;
use crate::counter::{ADD_MAX, CounterId};
use crate::ids::{GrantId, PublicationId, SharedCounterId};
use crate::machine::{Direction, GrantRange, MessageHeader, NAME_MAX, NewTransfer, TransferFault};
use crate::plan::{Pages, Plan};
use crate::time::Time;
use crate::wire::{BoundKey, GrantOffer};

fn lost(machine: &mut Machine) -> Option<LostReason> {
    events(machine).into_iter().find_map(|event| match event {
        Event::Peer(PEER, PeerChange::Lost(reason)) => Some(reason),
        _ => None,
    })
}

fn hello(rails: usize) -> Hello {
    let mut hello = Hello::new(2);
    hello.rails = (0..rails).map(|rail| format!("{} {rail}", properties().kind)).collect();
    hello.rails[0] = properties().kind;
    (hello.messages, hello.grants, hello.counters) = (4, 4, 4);
    hello
}

/// Asserts that a frame, sent once, is accepted, and that the next one ends the peer.
fn assert_limit(machine: &mut Machine, frames: impl IntoIterator<Item = Frame>, setting: &str) {
    let frames: Vec<Frame> = frames.into_iter().collect();
    let (last, allowed) = frames.split_last().expect("there is one past the limit");
    for frame in allowed {
        machine.handle_frame(PEER, frame.clone(), Time::ZERO);
    }
    assert_eq!(lost(machine), None, "{setting}: as many as are allowed");
    machine.handle_frame(PEER, last.clone(), Time::ZERO);
    let reason = lost(machine);
    let Some(LostReason::OverBudget { setting: of, .. }) = reason else { panic!("{setting}: {reason:?}") };
    assert_eq!(of, setting);
}

/// Asserts that a frame ends the peer as a violation.
fn assert_violation(frame: Frame) {
    let mut machine = ready();
    machine.handle_frame(PEER, frame.clone(), Time::ZERO);
    let reason = lost(&mut machine);
    assert!(matches!(reason, Some(LostReason::Violation(_))), "{frame:?}: {reason:?}");
}

pub(super) fn grant(id: GrantId) -> GrantOffer {
    GrantOffer { grant: id, len: 64, rights: 7, scope: Scope::Network, keys: vec![Some((4096, 1))] }
}

/// Begins a transfer of one page to a grant of the peer.
pub(super) fn submit_page(machine: &mut Machine, op: OpId, grant: GrantId, now: u64) {
    let pages = || (Pages { indices: [0].into(), stride: 64, offset: 0 }, 64);
    let plan = Plan::new(64, pages(), pages()).unwrap();
    let direction = Direction::Write;
    let new = NewTransfer {
        op,
        peer: PEER,
        direction,
        plan,
        regions: GrantRange { grant, base: 0, len: 64 }.into(),
        counter: None,
        priority: Priority::Normal,
        deadline: None,
    };
    machine.submit(new, Time(now)).unwrap();
}

#[test]
fn a_hello_has_a_budget_of_rails_and_names_of_a_bounded_length() {
    for (rails, name_len, is_fine) in
        [(3, 8, true), (4, 8, false), (1, NAME_MAX, true), (1, NAME_MAX + 1, false)]
    {
        let mut machine = machine();
        machine.add_peer(true, Time::ZERO);
        let hello = Hello { name: "x".repeat(name_len), ..hello(rails) };
        machine.handle_frame(PEER, Frame::Hello(hello), Time::ZERO);
        let reason = lost(&mut machine);
        assert_eq!(reason.is_none(), is_fine, "{rails} rails, a name of {name_len} bytes: {reason:?}");
    }
}

#[test]
fn a_peer_has_a_budget_of_grants() {
    assert_limit(&mut ready(), (0..5).map(|id| Frame::Grant(grant(GrantId(id)))), "grants");
    // One that was revoked and confirmed makes room for another.
    let mut machine = ready();
    for id in (0..100).map(GrantId) {
        machine.handle_frame(PEER, Frame::Grant(grant(id)), Time::ZERO);
        machine.handle_frame(PEER, Frame::Revoke { grant: id }, Time::ZERO);
    }
    assert_eq!(lost(&mut machine), None);
}

#[test]
fn a_peer_has_a_budget_of_counters() {
    let counter = |number| Frame::Counter { counter: CounterId::from_raw(number), names: Vec::new() };
    assert_limit(&mut ready(), (0..5).map(counter), "counters");
    // The same counter again is no other one.
    let mut machine = ready();
    (0..100).for_each(|_| machine.handle_frame(PEER, counter(1), Time::ZERO));
    assert_eq!(lost(&mut machine), None);
}

#[test]
fn a_grant_that_cannot_be_is_a_violation() {
    assert_violation(Frame::Grant(GrantOffer { keys: vec![None, None], ..grant(GrantId(1)) }));
    assert_violation(Frame::Grant(GrantOffer { scope: Scope::Host, ..grant(GrantId(1)) }));
    assert_violation(Frame::Grant(GrantOffer { keys: vec![Some((u64::MAX - 62, 1))], ..grant(GrantId(1)) }));
    let mut machine = ready();
    let last = GrantOffer { keys: vec![Some((u64::MAX - 64, 1))], ..grant(GrantId(1)) };
    machine.handle_frame(PEER, Frame::Grant(last.clone()), Time::ZERO);
    assert_eq!(lost(&mut machine), None);
    machine.handle_frame(PEER, Frame::Grant(last), Time::ZERO);
    assert!(matches!(lost(&mut machine), Some(LostReason::Violation(_))), "it comes twice");
}

#[test]
fn names_of_a_counter_are_those_on_links() {
    let name = |link| (LinkId(link), CounterId::from_raw(9));
    assert_violation(Frame::Counter { counter: CounterId::from_raw(1), names: vec![name(0), name(1)] });
    let mut machine = ready();
    let memory = |machine: &mut Machine| machine.peer(PEER).unwrap().counters.memory();
    for link in 0..100 {
        let frame = Frame::Counter { counter: CounterId::from_raw(1), names: vec![name(link)] };
        machine.handle_frame(PEER, frame, Time::ZERO);
    }
    let before = memory(&mut machine);
    for _ in 0..10_000 {
        let frame = Frame::Counter { counter: CounterId::from_raw(1), names: vec![name(0)] };
        machine.handle_frame(PEER, frame, Time::ZERO);
    }
    assert_eq!(memory(&mut machine), before, "a name on a link is held once");
}

#[test]
fn pages_are_added_once_for_a_lost_link_and_not_more_than_can_have_been_in_flight() {
    let reached = |machine: &mut Machine| {
        events(machine).into_iter().rev().find_map(|event| match event {
            Event::Reached(_, reached) => Some(Ok(reached)),
            Event::Peer(PEER, PeerChange::Lost(reason)) => Some(Err(reason)),
            _ => None,
        })
    };
    let violation = |end: Option<Result<u64, LostReason>>| matches!(end, Some(Err(LostReason::Violation(_))));
    // While no link is lost, whatever the peer has asked about.
    for asks in [0, 1, 5] {
        for pages in [0, 1, u64::MAX] {
            let (mut machine, link) = ready_over(properties());
            let counter = machine.open_counter(PEER, Time::ZERO).unwrap();
            let asked = [link, LinkId(77), LinkId(78)].into_iter().cycle().take(asks);
            asked.for_each(|link| machine.handle_frame(PEER, Frame::Settle { link, counter }, Time::ZERO));
            machine.handle_frame(PEER, Frame::Add { counter, pages }, Time::ZERO);
            assert!(violation(reached(&mut machine)), "{asks} {pages}");
        }
    }
    // For one lost link, and two counters.
    for pages in [1, ADD_MAX, ADD_MAX + 1, u64::MAX] {
        let alone = Properties { links_end_alone: true, immediates_name_link: true, ..properties() };
        let (mut machine, link) = ready_over(alone);
        let counters = [(); 2].map(|()| machine.open_counter(PEER, Time::ZERO).unwrap());
        let lost = Frame::LinkLost { link, is_quiet: true, reason: "it is gone".to_owned() };
        machine.handle_frame(PEER, lost, Time::ZERO);
        while machine.poll_control().is_some() {}
        for counter in counters {
            // An answer more often gives no more.
            for _ in 0..3 {
                machine.handle_frame(PEER, Frame::Settle { link, counter }, Time::ZERO);
            }
            machine.handle_frame(PEER, Frame::Add { counter, pages }, Time::ZERO);
            if pages > ADD_MAX {
                assert!(violation(reached(&mut machine)), "{pages}");
                break;
            }
            assert_eq!(reached(&mut machine), Some(Ok(pages)));
        }
        machine.handle_frame(PEER, Frame::Add { counter: counters[0], pages: 1 }, Time::ZERO);
        assert!(pages > ADD_MAX || violation(reached(&mut machine)), "{pages}");
    }
}

#[test]
fn an_honest_user_hears_of_the_budgets_of_the_peer() {
    let mut machine = ready();
    let keys = || vec![Some((4096, 1))];
    for _ in 0..4 {
        machine.may_grant(PEER).unwrap();
        machine.grant(PEER, 64, Rights::WRITE, over_network(keys()), Time::ZERO);
        assert!(machine.open_counter(PEER, Time::ZERO).is_some());
    }
    let refused = machine.may_grant(PEER).unwrap_err();
    assert!(
        refused.cause.contains("at most 4 grants") && refused.fix.contains("Budgets::grants"),
        "{refused:?}"
    );
    assert_eq!(machine.open_counter(PEER, Time::ZERO), None);
}

/// The peer claims again and again that operations of its lost link may still land, so that the
/// rail of all peers would be reset.
#[test]
fn a_peer_has_a_budget_of_rail_resets() {
    let mut machine = machine();
    machine.add_peer(false, Time::ZERO);
    machine.handle_frame(PEER, Frame::Hello(hello(1)), Time::ZERO);
    let (mut now, mut resets) = (0, 0);
    for number in 0..10 {
        let offer = LinkOffer { link: LinkId(number), from: 0, to: 0, address: vec![0] };
        machine.handle_frame(PEER, Frame::Link(offer), Time(now));
        let reason = "it is gone".to_owned();
        let mut frames = vec![Frame::LinkLost { link: LinkId(number), is_quiet: false, reason }];
        for _ in 0..20 {
            while let Some(control) = machine.poll_control() {
                match control {
                    Control::OpenLink(opening) => {
                        machine.handle_opened(opening, Ok((LinkKey(number), vec![1])));
                    }
                    Control::Connect { end, .. } => machine.handle_connected(end, Ok(())),
                    Control::Reset { rail } => {
                        resets += 1;
                        machine.handle_reset(rail, Ok(()));
                    }
                    _ => {}
                }
            }
            frames.drain(..).for_each(|frame| machine.handle_frame(PEER, frame, Time(now)));
            now += MS;
            machine.begin_step(Time(now));
            machine.end_step();
        }
    }
    let reason = lost(&mut machine);
    assert!(matches!(reason, Some(LostReason::OverBudget { setting: "resets", .. })), "{reason:?}");
    assert_eq!(resets, 3, "two within the budget, and the one that exceeds it");
}

#[test]
fn an_id_of_a_link_never_recurs() {
    for (ids, is_fine) in
        [([0, 1], true), ([3, 9], true), ([1, 1], false), ([2, 0], false), ([0, u64::MAX], false)]
    {
        let mut machine = machine();
        machine.add_peer(false, Time::ZERO);
        machine.handle_frame(PEER, Frame::Hello(hello(1)), Time::ZERO);
        for id in ids {
            let offer = LinkOffer { link: LinkId(id), from: 0, to: 0, address: vec![0] };
            machine.handle_frame(PEER, Frame::Link(offer), Time::ZERO);
        }
        let reason = lost(&mut machine);
        assert_eq!(reason.is_none(), is_fine, "{ids:?}: {reason:?}");
    }
}

#[test]
fn questions_about_lost_links_that_cannot_be_answered_yet_are_bounded() {
    let mut machine = ready();
    machine.ask_reset(0);
    let mut asked = 0;
    while lost(&mut machine).is_none() {
        machine.handle_frame(PEER, Frame::Settle { link: LinkId(0), counter: CounterId::NONE }, Time::ZERO);
        asked += 1;
        assert!(asked < 10_000, "there is no end to them");
    }
    assert!(asked > 1000, "an honest peer may ask {asked} times");
}

#[test]
fn questions_about_links_that_never_were_are_answered_and_not_remembered() {
    let mut machine = ready();
    let counter = machine.open_counter(PEER, Time::ZERO).unwrap();
    frames(&mut machine);
    for link in (1..100).map(LinkId) {
        machine.handle_frame(PEER, Frame::Settle { link, counter }, Time::ZERO);
        assert_eq!(frames(&mut machine), [Frame::Settled { link, counter, pages: 0 }]);
        assert!(!machine.counters.has_heard_of(link, counter), "{link:?}");
    }
    let link = LinkId(0);
    machine.handle_frame(PEER, Frame::Settle { link, counter }, Time::ZERO);
    assert!(machine.counters.has_heard_of(link, counter), "nothing more is counted from its own link");
}

/// Ids of links are those of one connection, so two peers have links with the same id.
#[test]
fn a_peer_cannot_settle_a_link_for_a_counter_of_another_one() {
    let mut machine = ready();
    let other = machine.add_peer(false, Time::ZERO);
    let counter = machine.open_counter(other, Time::ZERO).unwrap();
    frames(&mut machine);
    let link = LinkId(0);
    machine.handle_frame(PEER, Frame::Settle { link, counter }, Time::ZERO);
    assert_eq!(frames(&mut machine), [Frame::Settled { link, counter, pages: 0 }]);
    assert!(!machine.counters.has_heard_of(link, counter), "the other peer's link counts on");
}

#[test]
fn a_mark_is_good_for_its_own_link_only() {
    let mut machine = ready();
    let mark = machine.peer(PEER).unwrap().links[0].own_mark();
    let message = |mark: u64, number: u64| {
        let header = MessageHeader { mark, sequence: number, held: 0 };
        [&header.encode()[..], b"hello"].concat()
    };
    let is_delivered = |machine: &mut Machine| {
        events(machine).iter().any(|event| matches!(event, Event::Message(PEER, bytes) if bytes == b"hello"))
    };
    for (rail, link, mark) in [
        (0, Some(LinkKey(8)), mark),
        (1, None, mark),
        (1, Some(LINK), mark),
        (0, Some(LINK), mark.wrapping_add(1)),
        (0, None, mark.wrapping_sub(1)),
    ] {
        machine.handle_message(rail, link, &message(mark, 0));
        assert!(!is_delivered(&mut machine), "{rail} {link:?}");
    }
    machine.handle_message(0, Some(LINK), &message(mark, 0));
    assert!(is_delivered(&mut machine));
    machine.handle_message(0, None, &message(mark, 1));
    assert!(is_delivered(&mut machine), "where the rail does not report the link, the mark does");
}

#[test]
fn ids_and_marks_cannot_be_guessed_from_others() {
    let mut machine = ready();
    let ids: Vec<u64> = (0..64)
        .map(|_| machine.grant(PEER, 64, Rights::WRITE, over_network(vec![Some((0, 1))]), Time::ZERO).0)
        .collect();
    let distance = |pair: &[u64]| pair[0].abs_diff(pair[1]);
    assert!(ids.windows(2).all(|pair| distance(pair) > 1 << 32), "{ids:?}");
    assert!(ids.iter().any(|id| *id > u64::MAX / 2) && ids.iter().any(|id| *id < u64::MAX / 2));
}

#[test]
fn a_stranger_that_is_refused_hears_why() {
    let mut machine = machine();
    machine.add_peer(true, Time::ZERO);
    machine.handle_frame(PEER, Frame::Refused { reason: "it has 4 peers".repeat(1000) }, Time::ZERO);
    let reason = lost(&mut machine);
    let Some(LostReason::Refused { reason }) = reason else { panic!("{reason:?}") };
    assert!(reason.as_sent().starts_with("it has 4 peers") && reason.as_sent().len() <= 400);
}

#[test]
fn only_a_peer_with_a_link_that_must_be_polled_has_this_side_poll() {
    let mut machine = ready();
    machine.handle_frame(PEER, Frame::Look, Time(5));
    assert_eq!(machine.quiet_for(Time(6)), None, "the rail wakes this side");
}

#[test]
fn any_number_in_any_frame_does_no_harm() {
    for number in [0, 1, 7, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
        let counter = CounterId::from_raw(number as u32);
        let link = LinkId(number);
        for frame in [
            Frame::LinkReady { link, mark: number, needs_names: true, binds_keys: true },
            Frame::Keys {
                link,
                keys: vec![BoundKey { grant: GrantId(number), address: number, key: number }; 2],
            },
            Frame::LinkLost { link, is_quiet: false, reason: String::new() },
            Frame::Revoke { grant: GrantId(number) },
            Frame::Revoked { grant: GrantId(number) },
            Frame::Settle { link, counter },
            Frame::Settled { link, counter, pages: number },
            Frame::CounterClosed { counter },
            Frame::Add { counter, pages: number },
            Frame::Abort { counter, reason: String::new() },
            Frame::Message { sequence: number, bytes: vec![1] },
            Frame::Taken { count: number as u32 },
            Frame::Held { next: number },
            Frame::Ping { nonce: number },
        ] {
            let mut machine = ready();
            for op in 0..8 {
                machine.send_message(OpId(op), PEER, vec![0; 16], Time::ZERO);
            }
            machine.open_counter(PEER, Time::ZERO);
            for now in 0..40 {
                machine.handle_frame(PEER, frame.clone(), Time(now * MS));
                machine.begin_step(Time(now * MS));
                machine.begin_round(4);
                while let Some(post) = machine.poll_post() {
                    let slot = post.slot;
                    machine.handle_posted(slot, Ok(()));
                    machine.handle_completed(0, slot, None, Ok(()));
                }
                machine.end_step();
            }
        }
    }
}

#[test]
fn a_message_over_the_control_connection_is_no_longer_than_one_over_a_link() {
    let link_max = properties().message_max - MessageHeader::LEN;
    for (len, is_fine) in [(0, true), (link_max, true), (link_max + 1, false)] {
        let mut machine = ready();
        machine.handle_frame(PEER, Frame::Message { sequence: 0, bytes: vec![0; len] }, Time::ZERO);
        let reason = lost(&mut machine);
        assert_eq!(reason.is_none(), is_fine, "{len} bytes: {reason:?}");
    }
}

/// A transfer waits until the peer has told how many of its pages have arrived over a lost link,
/// even if its user has aborted it.
#[test]
fn a_peer_that_does_not_account_for_a_lost_link_is_lost_and_its_transfers_end() {
    let mut machine = ready();
    machine.handle_frame(PEER, Frame::Grant(grant(GrantId(5))), Time::ZERO);
    let op = OpId(9);
    submit_page(&mut machine, op, GrantId(5), 0);
    machine.begin_round(0);
    let slot = machine.poll_post().expect("the page is posted").slot;
    machine.handle_posted(slot, Ok(()));
    let failed = RequestError::Link(RailError::new("write", "it failed", "nothing"));
    machine.handle_completed(0, slot, None, Err(failed));
    machine.begin_step(Time(MS));
    machine.end_step();
    let asked = frames(&mut machine).into_iter().any(|frame| matches!(frame, Frame::Settle { .. }));
    assert!(asked, "the peer is asked");
    machine.abort_op(PEER, op, &TransferFault::Aborted, Time(MS));
    let within = 2 * tuning().stall + tuning().drain;
    let mut ended_at = None;
    for now in (MS..3 * within).step_by(MS as usize) {
        machine.handle_frame(PEER, Frame::Ping { nonce: now }, Time(now));
        // An answer to another question is none to this one.
        let (link, counter) = (LinkId(77), CounterId::NONE);
        machine.handle_frame(PEER, Frame::Settled { link, counter, pages: 1 }, Time(now));
        machine.begin_step(Time(now));
        machine.end_step();
        let has_ended = |event: &Event| matches!(event, Event::Transfer(of, _) if *of == op);
        if events(&mut machine).iter().any(has_ended) {
            ended_at.get_or_insert(now);
        }
    }
    assert!(ended_at.is_some_and(|at| (within..within + 5 * MS).contains(&at)), "{ended_at:?}");
}

/// An end of a link may cost milliseconds. Peers that come at the same moment get theirs one after the
/// other, with steps for other peers between, and one that has left gets none.
#[test]
fn ends_of_links_are_created_with_steps_between() {
    let mut machine = machine();
    let peers: Vec<PeerKey> = (0..4).map(|_| machine.add_peer(false, Time::ZERO)).collect();
    for key in &peers {
        machine.handle_frame(*key, Frame::Hello(hello(1)), Time::ZERO);
        let offer = LinkOffer { link: LinkId(1), from: 0, to: 0, address: vec![0] };
        machine.handle_frame(*key, Frame::Link(offer), Time::ZERO);
    }
    machine.handle_frame(peers[1], Frame::Goodbye, Time::ZERO);
    let mut opened = Vec::new();
    for step in 0..40 {
        machine.begin_step(Time(step));
        while let Some(control) = machine.poll_control() {
            if let Control::OpenLink(opening) = control {
                opened.push((step, opening.peer));
                machine.handle_opened(opening, Ok((LinkKey(step), vec![1])));
            }
        }
        machine.end_step();
        assert_eq!(machine.poll_timeout() == Time(step), opened.len() < 3, "step {step}");
    }
    assert_eq!(opened, [(0, peers[0]), (8, peers[2]), (16, peers[3])]);
}

/// However often a peer connects anew, five sixths of the time are left for others if they need it,
/// and two thirds otherwise.
#[test]
fn ends_of_links_that_take_long_are_created_with_time_between() {
    assert_openings_are_apart(false, 30 * MS);
    assert_openings_are_apart(true, 15 * MS);
}

/// Time during which the process did not run is not the cost of an end.
#[test]
fn a_process_that_was_stopped_while_it_created_an_end_creates_the_next_one_soon() {
    let mut machine = machine();
    for _ in 0..2 {
        let key = machine.add_peer(false, Time::ZERO);
        machine.handle_frame(key, Frame::Hello(hello(1)), Time::ZERO);
        let offer = LinkOffer { link: LinkId(1), from: 0, to: 0, address: vec![0] };
        machine.handle_frame(key, Frame::Link(offer), Time::ZERO);
    }
    machine.begin_step(Time::ZERO);
    while let Some(control) = machine.poll_control() {
        if let Control::OpenLink(opening) = control {
            machine.handle_opened(opening, Ok((LinkKey(1), vec![1])));
        }
    }
    machine.end_step();
    let now = 10_000 * MS;
    machine.end_opening(Time(now));
    let opens = |machine: &mut Machine, at: u64| {
        (0..16).any(|_| {
            machine.begin_step(Time(at));
            let opened = std::iter::from_fn(|| machine.poll_control())
                .any(|control| matches!(control, Control::OpenLink(_)));
            machine.end_step();
            opened
        })
    };
    assert!(!opens(&mut machine, now + MS) && opens(&mut machine, now + 500 * MS));
}

fn assert_openings_are_apart(is_idle: bool, apart: u64) {
    let mut machine = machine();
    for _ in 0..8 {
        let key = machine.add_peer(false, Time::ZERO);
        machine.handle_frame(key, Frame::Hello(hello(1)), Time::ZERO);
        let offer = LinkOffer { link: LinkId(1), from: 0, to: 0, address: vec![0] };
        machine.handle_frame(key, Frame::Link(offer), Time::ZERO);
    }
    let (mut now, mut opened) = (0, Vec::new());
    while opened.len() < 8 {
        machine.begin_step(Time(now));
        let begun = now;
        while let Some(control) = machine.poll_control() {
            if let Control::OpenLink(opening) = control {
                opened.push(now);
                now += 5 * MS;
                machine.handle_opened(opening, Ok((LinkKey(now), vec![1])));
            }
        }
        machine.end_step();
        assert_eq!(machine.is_opening(), now > begun);
        machine.end_opening(Time(now));
        if now > begun && opened.len() < 8 {
            assert!(machine.poll_timeout() <= Time(now + 10 * MS), "it is due then");
        }
        if is_idle {
            machine.note_idle();
        }
        now += MS / 100;
    }
    let gaps: Vec<u64> = opened.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps.iter().all(|gap| (apart..apart + MS / 10).contains(gap)), "{gaps:?}");
}

/// What a program prints of a peer has neither escape sequences of terminals nor lines of its own.
#[test]
fn no_text_of_a_peer_reaches_a_terminal_as_it_was_sent() {
    const TEXT: &str = "\u{1b}[2J\u{9b}1A\u{1b}]52;c;eA==\u{7}\n  fix: curl \u{202e}\u{200b}\u{2028}";
    let assert_harmless = |what: &str, shown: &str| {
        let is_bad = |it: char| it.is_control() || ['\u{202e}', '\u{200b}', '\u{2028}'].contains(&it);
        assert!(shown.contains("curl") && !shown.chars().any(is_bad), "{what}: {shown:?}");
    };
    let reason = || TEXT.to_owned();
    let mut stranger = machine();
    stranger.add_peer(true, Time::ZERO);
    stranger.handle_frame(PEER, Frame::Refused { reason: reason() }, Time::ZERO);
    let refused = lost(&mut stranger).unwrap();
    assert_harmless("a refusal", &refused.to_string());
    assert_harmless("a refusal, for debugging", &format!("{refused:?}"));

    let mut unlike = machine();
    unlike.add_peer(true, Time::ZERO);
    let hello = Hello { name: reason(), rails: vec![reason()], ..Hello::new(2) };
    unlike.handle_frame(PEER, Frame::Hello(hello), Time::ZERO);
    let mut told = events(&mut unlike).into_iter();
    let Some(Event::Peer(PEER, PeerChange::Named(name))) = told.next() else { panic!("it has a name") };
    assert_harmless("a name", &name);
    let Some(Event::Peer(PEER, PeerChange::Lost(apart))) = told.next() else { panic!("it is lost") };
    assert_harmless("the kind of a rail", &apart.to_string());
    assert_harmless("the kind of a rail, for debugging", &format!("{apart:?}"));

    let (mut machine, link) = ready_over(properties());
    events(&mut machine);
    machine.open(OpId(1), PEER, PublicationId(7), Time::ZERO);
    machine.open_shared_counter(OpId(2), PEER, SharedCounterId(8), Time::ZERO);
    machine.handle_frame(
        PEER,
        Frame::NotOpened { publication: PublicationId(7), reason: reason() },
        Time::ZERO,
    );
    machine.handle_frame(
        PEER,
        Frame::CounterNotOpened { shared: SharedCounterId(8), reason: reason() },
        Time::ZERO,
    );
    machine.handle_frame(PEER, Frame::LinkLost { link, is_quiet: true, reason: reason() }, Time::ZERO);
    let mut count = 0;
    for event in events(&mut machine) {
        let shown = match event {
            Event::Opened(_, Err(error)) | Event::CounterOpened(_, Err(error)) => error.to_string(),
            Event::Peer(PEER, PeerChange::Note(note)) => format!("{note} {}", note.cause),
            Event::Peer(PEER, PeerChange::LinkLost { reason: Some(error), .. }) => error.to_string(),
            _ => continue,
        };
        assert_harmless("an answer", &shown);
        count += 1;
    }
    assert_eq!(count, 4);
}
