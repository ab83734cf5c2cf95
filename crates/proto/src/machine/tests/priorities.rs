//! The order of transfers of different priorities, and how much of each is in flight.

use std::collections::VecDeque;

use super::*;
use crate::ids::GrantId;
use crate::inflight::SlotId;
use crate::machine::{Direction, GrantRange, NewTransfer};
use crate::plan::{Pages, Plan};
use crate::time::Time;
use crate::wire::GrantOffer;

const URGENT: Priority = Priority::Urgent;
const NORMAL: Priority = Priority::Normal;
const BULK: Priority = Priority::Bulk;

pub(super) const GRANT: GrantId = GrantId(5);
/// The operations with pages that the link may have in flight: the rest is for messages.
const DEPTH: usize = 56;
const KIB: u64 = 1 << 10;
/// The length of the grant.
pub(super) const ALL: u64 = 1 << 30;

/// Returns a machine with a ready link that keeps the order, and a grant of the peer.
pub(super) fn granted() -> (Machine, LinkId) {
    granted_over(properties())
}

fn granted_over(properties: Properties) -> (Machine, LinkId) {
    let (mut machine, link) = ready_over(properties);
    let keys = vec![Some((1 << 12, 7))];
    let offer = GrantOffer { grant: GRANT, len: ALL, rights: 7, scope: Scope::Network, keys };
    machine.handle_frame(PEER, Frame::Grant(offer), Time::ZERO);
    frames(&mut machine);
    events(&mut machine);
    (machine, link)
}

/// A read of pages that are no neighbours.
pub(super) fn new(op: u64, pages: (u32, u64), priority: Priority, deadline: Option<u64>) -> NewTransfer {
    let (count, len) = pages;
    let all = || (Pages { indices: (0..count).collect(), stride: len + 64, offset: 0 }, ALL);
    NewTransfer {
        op: OpId(op),
        peer: PEER,
        direction: Direction::Read,
        plan: Plan::reading(len, all(), all()).unwrap(),
        regions: GrantRange { grant: GRANT, base: 0, len: ALL }.into(),
        counter: None,
        priority,
        deadline: deadline.map(Time),
    }
}

fn submit(machine: &mut Machine, op: u64, pages: (u32, u64), priority: Priority, now: u64) {
    machine.submit(new(op, pages, priority, None), Time(now)).expect("it is begun");
}

/// Posts a round, and returns the transfers and lengths of the operations, and their slots.
pub(super) fn post(machine: &mut Machine) -> (Vec<(u64, u64)>, Vec<SlotId>) {
    machine.begin_round(0);
    let (mut posted, mut slots) = (Vec::new(), Vec::new());
    while let Some(post) = machine.poll_post() {
        let Content::Pages { op, extents, .. } = post.content else { panic!("{post:?}") };
        posted.push((op.0, extents.iter().map(|extent| extent.len).sum()));
        let slot = post.slot;
        slots.push(slot);
        machine.handle_posted(slot, Ok(()));
    }
    (posted, slots)
}

fn bytes(posted: &[(u64, u64)], op: u64) -> u64 {
    posted.iter().filter(|(of, _)| *of == op).map(|(_, bytes)| bytes).sum()
}

fn complete(machine: &mut Machine, slots: impl IntoIterator<Item = SlotId>) {
    slots.into_iter().for_each(|slot| machine.handle_completed(0, slot, None, Ok(())));
}

#[test]
fn they_are_posted_in_the_order_of_their_priorities() {
    let (mut machine, _) = granted();
    submit(&mut machine, 1, (2, 64), BULK, 1);
    submit(&mut machine, 2, (2, 64), NORMAL, 1);
    submit(&mut machine, 3, (2, 64), URGENT, 1);
    submit(&mut machine, 4, (1, 64), NORMAL, 1);
    let (posted, _) = post(&mut machine);
    let order: Vec<u64> = posted.iter().map(|(op, _)| *op).collect();
    assert_eq!(order, [3, 3, 2, 2, 4, 1, 1]);
}

#[test]
fn urgent_pages_are_posted_before_those_of_other_peers() {
    let (mut machine, _) = granted();
    submit(&mut machine, 1, (200, 64), NORMAL, 1);
    let (posted, slots) = post(&mut machine);
    assert_eq!(posted.len(), DEPTH, "the window is full");
    submit(&mut machine, 2, (1, 64), URGENT, 2);
    assert_eq!(post(&mut machine).0, []);
    complete(&mut machine, slots.into_iter().take(2));
    assert_eq!(post(&mut machine).0[0], (2, 64), "the first room is for it");
}

#[test]
fn a_normal_transfer_alone_has_its_depth() {
    let (mut machine, _) = granted();
    submit(&mut machine, 1, (100, 256 * KIB), NORMAL, 1);
    let (posted, _) = post(&mut machine);
    assert_eq!(posted, [(1, 256 * KIB); DEPTH]);
}

#[test]
fn what_one_that_is_urgent_may_wait_for_is_bounded() {
    // One page of a GiB would be one operation.
    for (priority, most, longest) in [(NORMAL, 32 << 20, 4 << 20), (BULK, 2 << 20, 256 * KIB)] {
        let (mut machine, _) = granted();
        submit(&mut machine, 1, (1, ALL), priority, 1);
        let (posted, _) = post(&mut machine);
        assert_eq!(bytes(&posted, 1), most);
        assert!(posted.iter().all(|(_, len)| *len == longest), "{posted:?}");
    }
}

#[test]
fn others_have_little_in_flight_while_there_are_urgent_ones_and_a_while_after() {
    for priority in [NORMAL, BULK] {
        let (mut machine, _) = granted();
        submit(&mut machine, 1, (1, 64), URGENT, MS);
        submit(&mut machine, 2, (1, ALL / 2), priority, MS);
        let (posted, slots) = post(&mut machine);
        assert_eq!((posted[0], bytes(&posted, 2)), ((1, 64), 64 * KIB), "{posted:?}");
        complete(&mut machine, slots);
        machine.begin_step(Time(100 * MS));
        assert_eq!(bytes(&post(&mut machine).0, 2), 64 * KIB);
        machine.begin_step(Time(102 * MS));
        machine.end_step();
        assert_eq!(bytes(&post(&mut machine).0, 2), 0, "only a completion makes room for this peer");
    }
}

#[test]
fn normal_and_bulk_ones_share_what_they_have_beside_urgent_ones() {
    let (mut machine, _) = granted();
    submit(&mut machine, 1, (1, ALL / 4), BULK, 1);
    submit(&mut machine, 2, (1, ALL / 4), NORMAL, 1);
    submit(&mut machine, 3, (1, 64), URGENT, 1);
    let (mut total, mut waiting) = ([0; 4], VecDeque::new());
    for _ in 0..2000 {
        machine.begin_step(Time(2));
        let (posted, slots) = post(&mut machine);
        posted.iter().for_each(|(op, bytes)| total[*op as usize] += bytes);
        waiting.extend(slots);
        // The urgent page is one of them at first.
        assert!(waiting.len() as u64 * 32 * KIB <= 96 * KIB, "{waiting:?}");
        complete(&mut machine, waiting.pop_front());
        machine.end_polls();
    }
    let [_, bulk, normal, _] = total;
    assert!(bulk * 10 > normal && bulk * 6 < normal, "bulk {bulk}, normal {normal}");
}

#[test]
fn bulk_leaves_operations_of_the_window_to_others() {
    let (mut machine, _) = granted();
    submit(&mut machine, 1, (200, 64), BULK, 1);
    assert_eq!(post(&mut machine).0.len(), DEPTH - DEPTH / 4);
    submit(&mut machine, 2, (200, 64), NORMAL, 1);
    assert_eq!(post(&mut machine).0.len(), DEPTH / 4);
}

#[test]
fn over_a_link_without_order_a_page_is_not_split() {
    let limits = Limits { is_ordered: false, ..properties().limits };
    let (mut machine, _) = granted_over(Properties { limits, ..properties() });
    submit(&mut machine, 1, (3, 1 << 20), BULK, 1);
    assert_eq!(post(&mut machine).0, [(1, 1 << 20); 2]);
}
