//! Machines that are closed.

use farreach_proto::machine::{Event, OpId};

use super::Pair;
use super::pair::FIRST;
use crate::SimCard;
use farreach_proto::time::Time;

/// Several clones of an engine may be closed at once: each close is answered.
#[test]
fn everybody_who_closes_is_told() {
    let mut pair = Pair::connected(&SimCard::tcp());
    let now = pair.now;
    let machine = &mut pair.sides[FIRST].machine;
    machine.leave_all(OpId(u64::MAX), Time::from_nanos(now));
    machine.leave_all(OpId(u64::MAX - 1), Time::from_nanos(now));
    let mut closed = Vec::new();
    while let Some(event) = machine.poll_event() {
        if let Event::Closed(op) = event {
            closed.push(op);
        }
    }
    assert_eq!(closed, [OpId(u64::MAX), OpId(u64::MAX - 1)]);
}
