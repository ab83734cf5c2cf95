//! Tests of one machine alone. The test answers for its rails.

use super::Tuning;
use crate::counter::{IMMEDIATE_PAGES_MAX, Immediate, LinkId};
use crate::ids::GrantId;
use crate::lost::LostReason;
use crate::machine::{
    Budgets, Content, Control, Event, KeysEnded, LinkEnd, Machine, OpId, Opening, Output, PeerChange,
    PeerKey, RailInfo, RemoteKeys,
};
use crate::plan::Limits;
use crate::priority::Priority;
use crate::rail::{EndedKeys, LinkKey, Proof, Properties, RailError, Refusal, RequestError, Scope};
use crate::rights::Rights;
use crate::time::Time;
use crate::wire::{Frame, Hello, LinkOffer};

mod bound_keys;
mod confirmations;
mod deadlines;
mod hostile;
mod liveness;
mod priorities;
mod publish;
mod refused_keys;
mod reported_keys;
mod scopes;
mod share_counter;
mod short;

const MS: u64 = 1_000_000;

/// Short times and little room.
pub(super) fn tuning() -> Tuning {
    Tuning {
        heartbeat: 2 * MS,
        idle_heartbeat: 20 * MS,
        silence: 1000 * MS,
        stall: 20 * MS,
        drain: 2 * MS,
        cool_down: MS,
        messages: 4,
        message_max: 48,
        budgets: Budgets { rails: 3, grants: 4, counters: 4, resets: 2 },
    }
}

/// A rail like libfabric's tcp.
pub(super) fn properties() -> Properties {
    Properties {
        native: "tcp".to_owned(),
        name: "test-tcp".to_owned(),
        kind: "test/tcp".to_owned(),
        scope: Scope::Network,
        is_rdma: false,
        limits: Limits {
            bytes: 1 << 30,
            pieces: 4,
            targets: 1,
            pages: IMMEDIATE_PAGES_MAX,
            is_ordered: true,
        },
        window: 64,
        message_max: 8192,
        performs_max: 0,
        has_atomics: true,
        writes_prove: Proof::Delivered,
        immediates_name_link: false,
        links_end_alone: false,
        ended_keys: EndedKeys::StopNew,
        keys_are_bound: false,
        rate_bps: 1_000_000_000,
    }
}

/// The name of a rail that cannot wake a sleeping driver.
const POLLED: &str = "test-tcp-polled";

const PEER: PeerKey = PeerKey(0);
const LINK: LinkKey = LinkKey(7);

/// Returns keys by rail for a grant over the network.
fn over_network(by_rail: Vec<Option<(u64, u64)>>) -> RemoteKeys {
    RemoteKeys { scope: Scope::Network, by_rail }
}

fn machine() -> Machine {
    machine_over(properties())
}

fn machine_over(properties: Properties) -> Machine {
    let must_be_polled = properties.name == POLLED;
    let rail = RailInfo { properties, must_be_polled };
    Machine::new(vec![rail], Hello::new(1), tuning(), [1; 32])
}

/// Returns a machine that has connected to a peer with one rail, and requests its end of the link.
fn greeted() -> (Machine, Opening) {
    greeted_over(properties())
}

fn greeted_over(properties: Properties) -> (Machine, Opening) {
    let kind = properties.kind.clone();
    let mut machine = machine_over(properties);
    assert_eq!(machine.add_peer(true, Time::ZERO), PEER);
    let mut hello = Hello::new(2);
    (hello.rails, hello.messages) = (vec![kind], 4);
    (hello.grants, hello.counters) = (4, 4);
    machine.handle_frame(PEER, Frame::Hello(hello), Time::ZERO);
    let Some(Control::OpenLink(opening)) = machine.poll_control() else { panic!("no link is made") };
    assert!(machine.poll_control().is_none());
    (machine, opening)
}

/// Creates this side's end, answers for the peer, and returns the request to connect the ends.
fn answered() -> (Machine, LinkEnd, LinkId) {
    answered_over(properties())
}

fn answered_over(properties: Properties) -> (Machine, LinkEnd, LinkId) {
    let (mut machine, opening) = greeted_over(properties);
    machine.handle_opened(opening, Ok((LINK, vec![1])));
    let offered = frames(&mut machine).into_iter().find_map(|frame| match frame {
        Frame::Link(offer) => Some(offer),
        _ => None,
    });
    let LinkOffer { link, from, to, .. } = offered.expect("the end is sent to the peer");
    machine.handle_frame(
        PEER,
        Frame::Link(LinkOffer { link, from: to, to: from, address: vec![2] }),
        Time::ZERO,
    );
    let Some(Control::Connect { end, peer_end }) = machine.poll_control() else { panic!("not connected") };
    assert_eq!((end.link, peer_end), (LINK, vec![2]));
    (machine, end, link)
}

fn ready() -> Machine {
    ready_over(properties()).0
}

fn ready_over(properties: Properties) -> (Machine, LinkId) {
    let (mut machine, end, link) = answered_over(properties);
    machine.handle_connected(end, Ok(()));
    machine.handle_frame(
        PEER,
        Frame::LinkReady { link, mark: 9, needs_names: true, binds_keys: false },
        Time::ZERO,
    );
    (machine, link)
}

fn frames(machine: &mut Machine) -> Vec<Frame> {
    let outputs = std::iter::from_fn(|| machine.poll_output());
    outputs
        .filter_map(|output| if let Output::Frame(_, frame) = output { Some(frame) } else { None })
        .collect()
}

fn events(machine: &mut Machine) -> Vec<Event> {
    std::iter::from_fn(|| machine.poll_event()).collect()
}

fn is_up(machine: &mut Machine) -> bool {
    let is_rails =
        |event: &Event| matches!(event, Event::Peer(PEER, PeerChange::Rails(rails)) if !rails.is_empty());
    events(machine).iter().any(is_rails)
}

#[test]
fn an_end_that_is_made_when_its_link_is_not_wanted_any_more_is_closed() {
    let (mut machine, opening) = greeted();
    machine.handle_disconnected(PEER, LostReason::Gone, Time::ZERO);
    frames(&mut machine);
    machine.handle_opened(opening, Ok((LINK, vec![1])));
    let control = machine.poll_control();
    assert!(matches!(control, Some(Control::CloseLink { rail: 0, link: LINK })), "{control:?}");
    assert!(frames(&mut machine).is_empty(), "nobody hears of it");
}

/// The peer's end fails for the same reason, and its frame may come first.
#[test]
fn why_a_link_was_not_connected_here_is_told_last() {
    let (mut machine, end, link) = answered();
    let reason = "connect a link: one GID is IPv4 and the other IPv6".to_owned();
    machine.handle_frame(PEER, Frame::LinkLost { link, is_quiet: true, reason }, Time::ZERO);
    let own = RailError::new("connect a link", "our GID is IPv6 and the peer's IPv4", "use another index");
    machine.handle_connected(end, Err(own.clone()));
    let notes: Vec<RailError> = std::iter::from_fn(|| machine.poll_event())
        .filter_map(|event| match event {
            Event::Peer(PEER, PeerChange::Note(note)) => Some(note),
            _ => None,
        })
        .collect();
    assert_eq!((notes.len(), notes.last()), (2, Some(&own)), "{notes:?}");
}

fn lost_links(machine: &mut Machine) -> Vec<(String, bool)> {
    let told = events(machine).into_iter().filter_map(|event| match event {
        Event::Peer(PEER, PeerChange::LinkLost { rail, reason }) => Some((rail, reason.is_some())),
        _ => None,
    });
    told.collect()
}

#[test]
fn a_link_that_was_ready_is_reported_once_when_it_is_lost_and_not_with_its_peer() {
    let mut machine = ready();
    let reason = RailError::new("poll", "the cable is out", "plug it in");
    machine.handle_link_down(0, LINK, &reason);
    machine.handle_link_down(0, LINK, &reason);
    assert_eq!(lost_links(&mut machine), [("test-tcp".to_owned(), true)]);
    let mut machine = ready();
    machine.handle_frame(PEER, Frame::Goodbye, Time::ZERO);
    assert!(lost_links(&mut machine).is_empty());
    // One that was never ready is none.
    let (mut machine, end, _) = answered();
    machine.handle_connected(end, Err(reason));
    assert!(lost_links(&mut machine).is_empty());
}

#[test]
fn a_link_that_cannot_be_made_is_tried_again_after_a_while() {
    let (mut machine, opening) = greeted();
    machine.handle_opened(opening, Err(RailError::new("open", "there is no room", "wait")));
    let mut tried_at = None;
    for now in (0..3 * MS).step_by(MS as usize / 10) {
        machine.begin_step(Time(now));
        machine.end_step();
        if machine.poll_control().is_some() {
            tried_at.get_or_insert(now);
        }
    }
    assert!(tried_at.is_some_and(|at| (MS..2 * MS + MS / 2).contains(&at)), "{tried_at:?}");
}

#[test]
fn a_peer_that_is_ready_before_our_end_is_connected_is_not_forgotten() {
    let (mut machine, end, link) = answered();
    machine.handle_frame(
        PEER,
        Frame::LinkReady { link, mark: 9, needs_names: true, binds_keys: false },
        Time::ZERO,
    );
    assert!(!is_up(&mut machine), "nothing is posted to an end that is not connected");
    machine.handle_connected(end, Ok(()));
    assert!(is_up(&mut machine));
}

#[test]
fn an_answer_that_comes_twice_connects_once() {
    let (mut machine, opening) = greeted();
    machine.handle_opened(opening, Ok((LINK, vec![1])));
    let answer = Frame::Link(LinkOffer { link: LinkId(0), from: 0, to: 0, address: vec![2] });
    machine.handle_frame(PEER, answer.clone(), Time::ZERO);
    machine.handle_frame(PEER, answer, Time::ZERO);
    assert!(matches!(machine.poll_control(), Some(Control::Connect { .. })));
    assert!(machine.poll_control().is_none());
}

/// A peer that connected to this side offers one link after another, to ends that cannot be
/// connected, and never reports the loss of its own ends.
#[test]
fn a_peer_that_never_says_what_became_of_its_links_is_lost() {
    let mut machine = machine();
    machine.add_peer(false, Time::ZERO);
    let mut hello = Hello::new(2);
    hello.rails = vec![properties().kind];
    machine.handle_frame(PEER, Frame::Hello(hello), Time::ZERO);
    for number in 0..400 {
        let now = number * 2 * MS;
        let offer = LinkOffer { link: LinkId(number), from: 0, to: 0, address: vec![0] };
        machine.handle_frame(PEER, Frame::Link(offer), Time(now));
        while let Some(control) = machine.poll_control() {
            match control {
                Control::OpenLink(opening) => machine.handle_opened(opening, Ok((LinkKey(number), vec![1]))),
                Control::Connect { end, .. } => {
                    machine.handle_connected(end, Err(RailError::new("connect", "no such end", "nothing")));
                }
                _ => {}
            }
        }
        // As many steps as there are between two ends.
        for _ in 0..8 {
            machine.begin_step(Time(now + MS));
            machine.end_step();
        }
    }
    let lost = events(&mut machine).into_iter().find_map(|event| match event {
        Event::Peer(PEER, PeerChange::Lost(reason)) => Some(reason),
        _ => None,
    });
    assert!(matches!(lost, Some(LostReason::Violation(_))), "{lost:?}");
}

/// Bytes of the lost link may land until this side has closed its end.
#[test]
fn a_peer_hears_how_much_has_arrived_when_nothing_more_can_arrive() {
    let alone = Properties { links_end_alone: true, immediates_name_link: true, ..properties() };
    let (mut machine, link) = ready_over(alone);
    let counter = machine.open_counter(PEER, Time::ZERO).unwrap();
    machine.handle_immediate(0, Some(LINK), Immediate::new(counter, 3).unwrap().to_bits());
    let reason = "it is gone".to_owned();
    machine.handle_frame(PEER, Frame::LinkLost { link, is_quiet: false, reason }, Time::ZERO);
    machine.handle_frame(PEER, Frame::Settle { link, counter }, Time::ZERO);
    let settled = |machine: &mut Machine| {
        frames(machine).into_iter().find_map(|frame| match frame {
            Frame::Settled { pages, .. } => Some(pages),
            _ => None,
        })
    };
    assert_eq!(settled(&mut machine), None, "its end is not closed");
    assert!(matches!(machine.poll_control(), Some(Control::CloseLink { link: LINK, .. })));
    assert_eq!(settled(&mut machine), None, "the driver is about to close it");
    machine.handle_immediate(0, Some(LINK), Immediate::new(counter, 2).unwrap().to_bits());
    assert!(machine.poll_control().is_none());
    assert_eq!(settled(&mut machine), Some(5));
}

#[test]
fn a_refused_message_is_posted_in_the_next_round_and_not_before() {
    let mut machine = ready();
    machine.send_message(OpId(1), PEER, b"one".to_vec(), Time::ZERO);
    machine.send_message(OpId(2), PEER, b"two".to_vec(), Time::ZERO);
    machine.begin_round(4);
    let post = machine.poll_post().expect("a message is posted");
    assert_eq!((post.rail, post.link), (0, LINK));
    let slot = post.slot;
    machine.handle_posted(slot, Err(Refusal::Full));
    assert!(machine.poll_post().is_none(), "there is no room");
    let mut posted = Vec::new();
    machine.end_polls();
    machine.begin_round(4);
    while let Some(post) = machine.poll_post() {
        let Content::Message { header, bytes } = post.content else { panic!("{post:?}") };
        assert_eq!((header.mark, header.held), (9, 0));
        posted.push((header.sequence, bytes.to_vec()));
        let slot = post.slot;
        machine.handle_posted(slot, Ok(()));
    }
    assert_eq!(posted, [(0, b"one".to_vec()), (1, b"two".to_vec())]);
}

/// A provider that connects at the first request refuses it meanwhile, and goes on only while both sides
/// poll. Nothing is in flight then, and the peer sleeps.
#[test]
fn both_sides_poll_while_a_rail_that_cannot_wake_them_has_no_room() {
    let (mut machine, _) = ready_over(Properties { name: POLLED.to_owned(), ..properties() });
    let has_told = |machine: &mut Machine| frames(machine).contains(&Frame::Look);
    assert!(!has_told(&mut machine) && machine.quiet_for(Time::ZERO).is_none());
    machine.send_message(OpId(1), PEER, b"one".to_vec(), Time::ZERO);
    for told in [true, false] {
        machine.begin_round(4);
        let slot = machine.poll_post().expect("a message is posted").slot;
        machine.handle_posted(slot, Err(Refusal::Full));
        assert!(machine.quiet_for(Time(MS)).is_some(), "this side polls");
        assert_eq!(has_told(&mut machine), told, "and the peer does, which is told now and then");
        machine.end_polls();
    }
}

#[test]
fn memory_is_given_back_once_to_whoever_asked_first() {
    let mut machine = ready();
    let grant = machine.grant(PEER, 64, Rights::WRITE, over_network(vec![Some((0, 1))]), Time::ZERO);
    machine.revoke(Some(OpId(1)), grant, Time(10 * MS), Time::ZERO);
    assert!(machine.poll_control().is_none(), "the peer is given time");
    machine.handle_frame(PEER, Frame::Revoked { grant }, Time::ZERO);
    assert!(matches!(machine.poll_control(), Some(Control::EndKeys { grant: of }) if of == grant));
    assert!(machine.poll_control().is_none(), "its keys are ended first");
    machine.handle_keys_ended(grant, KeysEnded { is_proven: true, ..KeysEnded::default() });
    let given = machine.poll_control();
    assert!(matches!(given, Some(Control::GiveBack { op: Some(OpId(1)), .. })), "{given:?}");
    machine.revoke(Some(OpId(2)), grant, Time(10 * MS), Time::ZERO);
    assert!(machine.poll_control().is_none());
    events(&mut machine);
    machine.handle_given_back(grant, Some(OpId(1)), true);
    let told = events(&mut machine);
    let [Event::Revoked(OpId(1), Ok(())), Event::Revoked(OpId(2), Err(_))] = told[..] else {
        panic!("{told:?}")
    };
}

#[test]
fn memory_that_its_user_has_in_his_hand_is_asked_for_again() {
    let mut machine = ready();
    let grant = machine.grant(PEER, 64, Rights::WRITE, over_network(vec![Some((0, 1))]), Time::ZERO);
    for op in [OpId(1), OpId(2)] {
        machine.revoke(Some(op), grant, Time::ZERO, Time::ZERO);
        if op == OpId(1) {
            assert!(matches!(machine.poll_control(), Some(Control::EndKeys { .. })));
            machine.handle_keys_ended(grant, KeysEnded { is_proven: true, ..KeysEnded::default() });
        }
        let given = machine.poll_control();
        assert!(matches!(given, Some(Control::GiveBack { op: Some(of), .. }) if of == op), "{given:?}");
        machine.handle_given_back(grant, Some(op), op == OpId(2));
    }
    let told: Vec<_> = events(&mut machine)
        .into_iter()
        .filter_map(
            |event| if let Event::Revoked(op, answer) = event { Some((op, answer.is_ok())) } else { None },
        )
        .collect();
    assert_eq!(told, [(OpId(1), false), (OpId(2), true)]);
}

/// Its user may keep it for as long as the program runs.
#[test]
fn a_grant_that_is_with_its_user_again_keeps_no_connection_open() {
    let mut machine = ready();
    let grant = machine.grant(PEER, 64, Rights::WRITE, over_network(vec![Some((0, 1))]), Time::ZERO);
    machine.revoke(Some(OpId(1)), grant, Time::ZERO, Time::ZERO);
    assert!(matches!(machine.poll_control(), Some(Control::EndKeys { .. })));
    machine.handle_keys_ended(grant, KeysEnded { is_proven: true, ..KeysEnded::default() });
    assert!(matches!(machine.poll_control(), Some(Control::GiveBack { .. })));
    machine.leave(PEER, Time::ZERO);
    let is_left = |machine: &mut Machine| frames(machine).contains(&Frame::Goodbye);
    assert!(!is_left(&mut machine), "its memory is about to come back");
    machine.handle_given_back(grant, Some(OpId(1)), false);
    machine.begin_step(Time(2 * MS));
    machine.end_step();
    assert!(is_left(&mut machine));
    machine.revoke(Some(OpId(2)), grant, Time(3 * MS), Time(2 * MS));
    let given = std::iter::from_fn(|| machine.poll_control()).last();
    assert!(matches!(given, Some(Control::GiveBack { op: Some(OpId(2)), .. })), "{given:?}");
    machine.handle_given_back(grant, Some(OpId(2)), true);
    assert_eq!(machine.census().grants, 0);
}

/// The reset ends the link again, and would wait for what is in flight.
#[test]
fn no_pages_are_posted_to_a_link_that_gets_ready_before_the_reset_of_its_rail() {
    let (mut machine, end, link) = answered();
    machine.handle_connected(end, Ok(()));
    machine.ask_reset(0);
    machine.handle_frame(
        PEER,
        Frame::LinkReady { link, mark: 9, needs_names: false, binds_keys: false },
        Time::ZERO,
    );
    machine.handle_frame(PEER, Frame::Grant(hostile::grant(GrantId(7))), Time::ZERO);
    hostile::submit_page(&mut machine, OpId(1), GrantId(7), 0);
    machine.begin_round(4);
    assert!(machine.poll_post().is_none());
    machine.check();
}

#[test]
fn a_rail_is_reset_once_however_long_it_takes() {
    let mut machine = ready();
    machine.ask_reset(0);
    let resets = |machine: &mut Machine| {
        std::iter::from_fn(|| machine.poll_control())
            .filter(|control| matches!(control, Control::Reset { rail: 0 }))
            .count()
    };
    let mut asked = 0;
    for now in (0..30 * MS).step_by(MS as usize) {
        machine.begin_step(Time(now));
        machine.end_step();
        asked += resets(&mut machine);
    }
    assert_eq!((asked, machine.resets()), (1, 0));
    machine.handle_reset(0, Ok(()));
    assert_eq!(machine.resets(), 1);
    assert!(
        std::iter::from_fn(|| machine.poll_control())
            .any(|control| matches!(control, Control::CloseLink { link: LINK, .. }))
    );
}
