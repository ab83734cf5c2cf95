//! The stages of a work request: its bytes leave, land and are reported; the answer comes back.

use std::sync::atomic::Ordering;

use farreach_proto::inflight::SlotId;
use farreach_rail::{EndedKeys, Proof, Scope};

use super::action::Action;
use super::end::{CardState, EndState, Failure, Ready, Way};
use super::expose::Reach;
use super::memory;
use super::operation::{Kind, State};
use super::world::World;

/// Whether a work request reaches the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Passage {
    Open,
    /// It does not, and its card knows that already.
    Shut,
    /// It does not, and its card has yet to detect that.
    Lost,
}

impl World {
    /// Reads a part of the bytes. A card does this now, not at the time of posting.
    pub(super) fn depart(&mut self, id: SlotId, part: u8) {
        let is_not_mapped = self.is_not_mapped(id);
        let operation = self.operations.get_mut(id).expect("an action refers to the operation");
        if operation.state != State::InFlight {
            return;
        }
        if self.ends[operation.end].way != Way::Open {
            let end = operation.end;
            self.expect_break(end);
            return;
        }
        if operation.failure.is_some() {
            return;
        }
        if is_not_mapped {
            operation.failure = Some(Failure::NotMapped);
            let at_ns = self.after_step();
            return self.schedule(at_ns, Action::Finish { operation: id });
        }
        let range = operation.range(part);
        if operation.carries_bytes() {
            memory::gather(operation.buffers.as_slice(), range.start, &mut operation.wire[range]);
        }
        operation.departed += 1;
        let (serial, end) = (operation.serial, operation.end);
        let is_sent = operation.departed == operation.parts && operation.carries_bytes();
        let card = &self.cards[operation.card];
        let (is_ordered, proves) = (card.is_ordered(), card.kind.properties.writes_prove);

        let mut landing_ns = self.after_step();
        if is_ordered {
            landing_ns = landing_ns.max(self.ends[end].last_landing_ns);
            self.ends[end].last_landing_ns = landing_ns;
        }
        self.note("depart", serial, part.into());
        self.schedule(landing_ns, Action::Land { operation: id, part });
        if is_sent && proves == Proof::Sent {
            let at_ns = self.after_step();
            self.schedule(at_ns, Action::Finish { operation: id });
        }
    }

    /// Lands a part. On an ordered card it waits behind parts that wait already, unless it is the
    /// next one.
    pub(super) fn land(&mut self, id: SlotId, part: u8, is_next: bool) {
        if self.is_within_reach(id) {
            // Bytes only: the peer is told nothing over a link that is closed.
            self.note("land late", self.operations.get(id).map_or(0, |it| it.serial), part.into());
            self.land_write(id, part);
            return;
        }
        if !self.gets_through(id) {
            return;
        }
        let operation = self.operation(id);
        let (serial, peer, card) = (operation.serial, operation.peer, operation.card);
        if self.cards[card].is_ordered() && !self.ends[peer].held.is_empty() && !is_next {
            self.hold_back(peer, Action::Land { operation: id, part });
            return;
        }
        self.note("land", serial, part.into());
        let has_arrived = match self.operation(id).kind {
            Kind::Write { .. } => self.land_write(id, part),
            Kind::Send => true,
            Kind::Read => self.land_read(id, part),
            Kind::FetchAdd { .. } | Kind::CompareSwap { .. } => self.land_atomic(id),
        };
        if !has_arrived {
            self.refuse(id);
            return;
        }
        let operation = self.operation(id);
        operation.landed += 1;
        if operation.landed == operation.parts {
            operation.grip = None;
            if operation.carries_bytes() {
                self.deliver(id);
            }
        }
    }

    /// Returns `true` if a work request that is performed now reaches the peer.
    pub(super) fn is_open(&mut self, id: SlotId) -> bool {
        self.passage(id) == Passage::Open
    }

    pub(super) fn land_write(&mut self, id: SlotId, part: u8) -> bool {
        let operation = self.operation(id);
        let (range, peer) = (operation.range(part), operation.peer);
        // A queue pair does not check the key of a write without bytes; a library does.
        let card = self.ends[peer].card;
        if range.is_empty() && self.cards[card].kind.has_queue_pairs {
            return true;
        }
        match self.reach(id, range.start, range.len()) {
            Reach::Memory(exposed, offset) => {
                exposed.write_at(offset, &self.operation(id).wire[range]);
                true
            }
            Reach::Nowhere => true,
            Reach::Refused => false,
        }
    }

    fn land_read(&mut self, id: SlotId, part: u8) -> bool {
        if !self.read_part(id, part) {
            return false;
        }
        let at_ns = self.after_step();
        self.schedule(at_ns, Action::Answer { operation: id, part });
        true
    }

    /// Reads bytes of the peer's memory.
    pub(super) fn read_part(&mut self, id: SlotId, part: u8) -> bool {
        let range = self.operation(id).range(part);
        match self.reach(id, range.start, range.len()) {
            Reach::Memory(exposed, offset) => {
                exposed.read_at(offset, &mut self.operation(id).wire[range]);
                true
            }
            // The value that it would have found is unknown.
            Reach::Nowhere | Reach::Refused => false,
        }
    }

    fn land_atomic(&mut self, id: SlotId) -> bool {
        match self.reach(id, 0, size_of::<u64>()) {
            Reach::Memory(exposed, offset) => {
                let word = exposed.atomic_at(offset);
                let before = match self.operation(id).kind {
                    Kind::FetchAdd { add } => word.fetch_add(add, Ordering::AcqRel),
                    Kind::CompareSwap { expected, desired } => word
                        .compare_exchange(expected, desired, Ordering::AcqRel, Ordering::Acquire)
                        .unwrap_or_else(|other| other),
                    _ => return false,
                };
                self.operation(id).wire.copy_from_slice(&before.to_ne_bytes());
            }
            // The value that it would have found is unknown.
            Reach::Nowhere | Reach::Refused => return false,
        }
        let at_ns = self.after_step();
        self.schedule(at_ns, Action::Answer { operation: id, part: 0 });
        true
    }

    /// Reports to the peer that all bytes have arrived, if it expects a report and has room for it.
    pub(super) fn deliver(&mut self, id: SlotId) {
        if !self.gets_through(id) {
            return;
        }
        let operation = self.operation(id);
        let (serial, peer, kind) = (operation.serial, operation.peer, operation.kind);
        let card = self.ends[peer].card;
        if !matches!(kind, Kind::Write { immediate: None }) {
            if !self.cards[card].can_receive() {
                self.hold_back_first(peer, Action::Deliver { operation: id });
                return;
            }
            let ready = match kind {
                Kind::Write { immediate } => {
                    Ready::Immediate { end: peer, bits: immediate.unwrap_or_default() }
                }
                _ => Ready::Message { end: peer, bytes: std::mem::take(&mut self.operation(id).wire) },
            };
            self.cards[card].push(ready);
            self.note("deliver", serial, 0);
        }
        let operation = self.operation(id);
        let (is_waited_for, card) = (operation.state == State::InFlight, operation.card);
        if is_waited_for && self.cards[card].kind.properties.writes_prove == Proof::Delivered {
            let at_ns = self.after_step();
            self.schedule(at_ns, Action::Finish { operation: id });
        }
    }

    /// Lands a part of an answer.
    pub(super) fn answer(&mut self, id: SlotId, part: u8) {
        let operation = self.operations.get_mut(id).expect("an action refers to the operation");
        if operation.state != State::InFlight || self.ends[operation.end].are_answers_lost {
            return;
        }
        let range = operation.range(part);
        memory::scatter(operation.buffers.as_slice(), range.start, &operation.wire[range]);
        operation.answered += 1;
        let (serial, is_whole) = (operation.serial, operation.answered == operation.parts);
        self.note("answer", serial, part.into());
        if is_whole {
            self.finish(id);
        }
    }

    /// Finishes a work request. On an ordered card, earlier ones complete first.
    pub(super) fn finish(&mut self, id: SlotId) {
        let operation = self.operation(id);
        let (end, card) = (operation.end, operation.card);
        if operation.state != State::InFlight || self.ends[end].are_answers_lost {
            return;
        }
        self.operation(id).is_answered = true;
        if !self.cards[card].is_ordered() {
            let outcome = self.operation(id).failure.map_or(Ok(()), Err);
            self.complete(id, outcome);
            return;
        }
        while let Some(first) = self.ends[end].requests.front().copied() {
            let operation = self.operation(first);
            if !operation.is_answered {
                break;
            }
            let outcome = operation.failure.map_or(Ok(()), Err);
            self.complete(first, outcome);
        }
    }

    /// Refuses a work request at the peer's card, because its key was ended.
    fn refuse(&mut self, id: SlotId) {
        let operation = self.operation(id);
        let (serial, end, peer, card) = (operation.serial, operation.end, operation.peer, operation.card);
        let is_write = matches!(operation.kind, Kind::Write { .. });
        self.note("refuse", serial, 0);
        let kind = &self.cards[card].kind;
        if kind.has_queue_pairs {
            // Both queue pairs are in the error state now.
            self.operation(id).failure = Some(Failure::Refused);
            self.ends[end].way = Way::Lost;
            let at_ns = self.after_step();
            self.schedule(at_ns, Action::Break { end });
            let at_ns = self.after_step();
            self.schedule(at_ns, Action::Break { end: peer });
        } else if is_write && kind.properties.writes_prove == Proof::Sent {
            // It still completes, and later ones never do.
            self.ends[end].way = Way::Lost;
        } else if self.operation(id).failure.is_none() {
            self.operation(id).failure = Some(Failure::Refused);
            if self.cards[card].is_ordered() {
                // Later ones would reveal the failure, so they do not arrive.
                self.ends[end].way = Way::Lost;
            }
            let at_ns = self.after_step();
            self.schedule(at_ns, Action::Finish { operation: id });
        }
    }

    /// Returns `true` if a work request reaches the peer. Otherwise its card detects that, if it is
    /// of a kind that does.
    fn gets_through(&mut self, id: SlotId) -> bool {
        let passage = self.passage(id);
        if passage == Passage::Open {
            return true;
        }
        self.operation(id).grip = None;
        if passage == Passage::Lost {
            let end = self.operation(id).end;
            self.lose_way(end);
        }
        false
    }

    /// Returns `true` if a write is in the middle of a copy to memory that stays within its reach
    /// although the peer has closed the link.
    fn is_within_reach(&self, id: SlotId) -> bool {
        let operation = self.operations.get(id).expect("an action refers to the operation");
        let to = &self.ends[operation.peer];
        let receiver = &self.cards[to.card];
        receiver.kind.properties.ended_keys == EndedKeys::Reported
            && to.state == EndState::Closed
            && operation.grip.is_some()
            && operation.state == State::InFlight
            && matches!(operation.kind, Kind::Write { .. })
            && receiver.state == CardState::Alive
    }

    fn passage(&mut self, id: SlotId) -> Passage {
        let operation = self.operations.get(id).expect("an action refers to the operation");
        let (from, to) = (&self.ends[operation.end], &self.ends[operation.peer]);
        let (sender, receiver) = (&self.cards[from.card], &self.cards[to.card]);
        if from.way == Way::Lost || (operation.state == State::Abandoned && !sender.kind.lands_late) {
            return Passage::Shut;
        }
        let is_cut = sender.has_no_cable || receiver.has_no_cable || receiver.state == CardState::Killed;
        // The memory of a link within a host is mapped by its two ends only.
        let is_paired = receiver.kind.has_queue_pairs || receiver.kind.properties.scope == Scope::Host;
        let is_open = match is_paired {
            true => to.state == EndState::Connected && to.peer == Some(operation.end),
            // The endpoint of a closed link is closed with it, or is that of all links.
            false => {
                let stays = !receiver.kind.properties.links_end_alone;
                !to.is_reset && (to.state != EndState::Closed || stays)
            }
        };
        if is_open && !is_cut { Passage::Open } else { Passage::Lost }
    }

    fn hold_back(&mut self, end: usize, action: Action) {
        self.keep_for_later(end, action);
        self.ends[end].held.push_back(action);
    }

    /// Holds an action back in front of all others, because they wait for it.
    fn hold_back_first(&mut self, end: usize, action: Action) {
        self.keep_for_later(end, action);
        self.ends[end].held.push_front(action);
    }

    fn keep_for_later(&mut self, end: usize, action: Action) {
        if let Action::Land { operation, .. } | Action::Deliver { operation } = action {
            self.operation(operation).actions += 1;
        }
        let blocked = &mut self.cards[self.ends[end].card].blocked;
        if !blocked.contains(&end) {
            blocked.push(end);
        }
    }
}
