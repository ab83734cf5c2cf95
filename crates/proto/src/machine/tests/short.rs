//! Short transfers that are performed at once.

use super::*;
use crate::counter::CounterId;
use crate::ids::GrantId;
use crate::machine::{Direction, ShortRequest, ShortTransfer};
use crate::plan::Extent;
use crate::rail::{RemoteSegment, WorkRequest};
use crate::time::Time;
use crate::wire::GrantOffer;

const GRANT: GrantId = GrantId(5);
const COUNTER: u32 = 3 << 8;
const ADDRESS: u64 = 1 << 12;
const KEY: u64 = 77;

fn counter() -> CounterId {
    CounterId::from_raw(COUNTER)
}

/// Returns a machine with a rail that performs up to 64 bytes, a grant of 4 KiB and a counter.
fn performing() -> (Machine, LinkId) {
    let performing = Properties {
        performs_max: 64,
        immediates_name_link: true,
        links_end_alone: true,
        writes_prove: Proof::Delivered,
        ..properties()
    };
    let (mut machine, end, link) = answered_over(performing);
    machine.handle_connected(end, Ok(()));
    machine.handle_frame(
        PEER,
        Frame::LinkReady { link, mark: 9, needs_names: false, binds_keys: false },
        Time::ZERO,
    );
    let rights = (Rights::READ | Rights::WRITE).bits();
    let keys = vec![Some((ADDRESS, KEY))];
    let offer = GrantOffer { grant: GRANT, len: 4096, rights, scope: Scope::Network, keys };
    machine.handle_frame(PEER, Frame::Grant(offer), Time::ZERO);
    machine.handle_frame(PEER, Frame::Counter { counter: counter(), names: Vec::new() }, Time::ZERO);
    post_all(&mut machine);
    frames(&mut machine);
    events(&mut machine);
    (machine, link)
}

/// Runs a round of posts, in which there is nothing to post.
fn post_all(machine: &mut Machine) {
    machine.begin_round(0);
    assert!(machine.poll_post().is_none());
}

fn short() -> ShortTransfer {
    ShortTransfer {
        peer: PEER,
        direction: Direction::Write,
        own: Extent { offset: 8, len: 64 },
        remote: Extent { offset: 16, len: 64 },
        grant: GRANT,
        base: 1024,
        len: 128,
        counter: Some(counter()),
        priority: Priority::Normal,
        deadline: None,
    }
}

fn perform(machine: &mut Machine) -> ShortRequest {
    machine.short_request(&short(), Time(3)).expect("nothing is before it")
}

#[test]
fn one_is_performed_in_its_place_and_counted() {
    let (mut machine, link) = performing();
    let request = perform(&mut machine);
    let target = RemoteSegment { address: ADDRESS + 1024 + 16, key: KEY, len: 64 };
    let bits = Immediate::new(counter(), 1).unwrap().to_bits();
    assert_eq!((request.rail, request.link), (0, LINK));
    assert_eq!(request.request, WorkRequest::Write { target, immediate: Some(bits) });
    let stats = machine.handle_performed(&short(), &request, Time(10));
    assert_eq!((stats.pages, stats.operations(), stats.bytes()), (1, 1, 64));
    assert_eq!((stats.links[0].link, stats.links[0].immediates), (link.0, 1));
    assert_eq!(stats.elapsed().as_nanos(), 7);
    assert!(machine.is_idle() && events(&mut machine).is_empty() && frames(&mut machine).is_empty());
    let read = ShortTransfer { direction: Direction::Read, counter: None, ..short() };
    let request = machine.short_request(&read, Time(11)).expect("nothing is before it");
    assert_eq!(request.request, WorkRequest::Read { target });
}

#[test]
fn what_the_peer_did_not_get_is_added_after_its_link_is_lost() {
    let (mut machine, link) = performing();
    for _ in 0..3 {
        let request = perform(&mut machine);
        machine.handle_performed(&short(), &request, Time(4));
    }
    machine.handle_link_down(0, LINK, &RailError::new("poll", "it was cut", "none"));
    assert!(machine.short_request(&short(), Time(5)).is_none(), "no link is left");
    while machine.poll_control().is_some() {}
    machine.begin_step(Time(2 * MS));
    machine.end_step();
    while machine.poll_control().is_some() {}
    let asked = frames(&mut machine);
    assert!(asked.contains(&Frame::Settle { link, counter: counter() }), "{asked:?}");
    machine.handle_frame(PEER, Frame::Settled { link, counter: counter(), pages: 1 }, Time(6));
    assert_eq!(frames(&mut machine), [Frame::Add { counter: counter(), pages: 2 }]);
}

#[test]
fn what_is_not_possible_is_not_performed() {
    let (mut machine, _) = performing();
    let extent = |offset, len| Extent { offset, len };
    let other = ShortTransfer { grant: GrantId(6), ..short() };
    let gone = ShortTransfer { peer: PeerKey(1), ..short() };
    let uncounted = ShortTransfer { counter: Some(CounterId::from_raw(1)), ..short() };
    let beyond = ShortTransfer { base: 4096 - 127, ..short() };
    let wrapped = ShortTransfer { base: u64::MAX, ..short() };
    let outside = ShortTransfer { remote: extent(65, 64), ..short() };
    let far_outside = ShortTransfer { remote: extent(u64::MAX, 64), ..short() };
    let long = ShortTransfer { own: extent(0, 65), remote: extent(0, 65), ..short() };
    for new in [other, gone, uncounted, beyond, wrapped, outside, far_outside, long] {
        assert!(machine.short_request(&new, Time(1)).is_none(), "{new:?}");
    }
    let last = ShortTransfer { base: 4096 - 128, remote: extent(64, 64), ..short() };
    assert!(machine.short_request(&last, Time(1)).is_some());
    machine.handle_frame(PEER, Frame::Revoke { grant: GRANT }, Time(2));
    assert!(machine.short_request(&short(), Time(2)).is_none());
}

#[test]
fn rights_are_those_of_the_grant() {
    let (mut machine, _) = performing();
    let keys = vec![Some((ADDRESS, KEY))];
    let rights = Rights::READ.bits();
    let offer = GrantOffer { grant: GrantId(6), len: 4096, rights, scope: Scope::Network, keys };
    machine.handle_frame(PEER, Frame::Grant(offer), Time::ZERO);
    let write = ShortTransfer { grant: GrantId(6), ..short() };
    assert!(machine.short_request(&write, Time(1)).is_none());
    assert!(machine.short_request(&ShortTransfer { direction: Direction::Read, ..write }, Time(1)).is_some());
}

#[test]
fn nothing_overtakes_what_is_queued() {
    let (mut machine, _) = performing();
    hostile::submit_page(&mut machine, OpId(9), GRANT, 1);
    assert!(machine.short_request(&short(), Time(1)).is_none(), "a transfer is queued");
    machine.begin_round(0);
    let slot = machine.poll_post().expect("it is posted").slot;
    machine.handle_posted(slot, Ok(()));
    assert!(machine.poll_post().is_none());
    assert!(machine.short_request(&short(), Time(2)).is_none(), "a transfer is in flight");
    machine.handle_completed(0, slot, None, Ok(()));
    post_all(&mut machine);
    assert!(machine.short_request(&short(), Time(3)).is_some(), "it is done");
    machine.send_message(OpId(10), PEER, vec![1], Time(4));
    assert!(machine.short_request(&short(), Time(4)).is_none(), "a message is queued");
}
