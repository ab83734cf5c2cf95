//! The state of the network, and its schedule of events.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};
use std::time::Instant;

use farreach_proto::inflight::{SlotId, Slots};
use farreach_rail::LinkKey;

use super::action::Action;
use super::chance::Chance;
use super::end::{Card, CardState, End, Host};
use super::exchange::Exchanges;
use super::key::KeyEntry;
use super::operation::{Operation, State};
use super::record::{Record, Rule};
use super::{Odds, SimSettings};

/// Far more operations than any test has in flight at once.
const OPERATIONS_MAX: u32 = 1 << 20;

/// The maximum number of byte buffers kept for reuse: not all that a stormy run had in flight.
const SPARE_MAX: usize = 256;

pub(super) struct World {
    pub(super) settings: SimSettings,
    pub(super) chance: Chance,
    pub(super) record: Record,
    pub(super) now_ns: u64,
    /// The start, if time is the real clock's.
    pub(super) started: Option<Instant>,
    agenda: BinaryHeap<Due>,
    scheduled: u64,
    pub(super) hosts: Vec<Host>,
    pub(super) cards: Vec<Card>,
    pub(super) ends: Vec<End>,
    pub(super) keys: Vec<KeyEntry>,
    pub(super) exchanges: Exchanges,
    /// The number of bindings of keys to links.
    pub(super) bindings: u64,
    /// The index of each key, by the number that work requests carry.
    pub(super) keys_by_value: HashMap<u64, usize>,
    pub(super) operations: Slots<Operation>,
    pub(super) posted: u64,
    pub(super) spare: Vec<Vec<u8>>,
    /// The number of things that could not be proven to have stopped, and are kept for good.
    pub(super) leaked: usize,
    pub(super) registrations: u64,
    /// Whether faults by chance are switched off.
    pub(super) is_calm: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Due {
    at_ns: u64,
    /// Breaks ties: actions scheduled first run first.
    pub(super) place: u64,
    pub(super) action: Action,
}

impl Ord for Due {
    /// The earliest action is the greatest, because a heap returns the greatest first.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at_ns, other.place).cmp(&(self.at_ns, self.place))
    }
}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl World {
    pub(super) fn new(settings: SimSettings, started: Option<Instant>) -> Self {
        Self {
            chance: Chance::new(settings.seed),
            record: Record::new(settings.seed, settings.notes_max),
            settings,
            now_ns: 0,
            started,
            agenda: BinaryHeap::new(),
            scheduled: 0,
            hosts: Vec::new(),
            cards: Vec::new(),
            ends: Vec::new(),
            keys: Vec::new(),
            exchanges: Exchanges::default(),
            bindings: 0,
            keys_by_value: HashMap::new(),
            operations: Slots::new(OPERATIONS_MAX),
            posted: 0,
            spare: Vec::new(),
            leaked: 0,
            registrations: 0,
            is_calm: false,
        }
    }

    /// Runs all actions due until a time, each at its own time.
    pub(super) fn advance_to(&mut self, at_ns: u64) {
        while let Some(due) = self.agenda.peek().filter(|due| due.at_ns <= at_ns) {
            let action = due.action;
            self.now_ns = due.at_ns;
            self.agenda.pop();
            self.run(action);
        }
        self.now_ns = self.now_ns.max(at_ns);
    }

    /// Advances to the real clock, if the network runs in real time.
    pub(super) fn catch_up(&mut self) {
        if let Some(started) = self.started {
            self.advance_to(started.elapsed().as_nanos() as u64);
        }
    }

    pub(super) fn next_event_at(&self) -> Option<u64> {
        self.agenda.peek().map(|due| due.at_ns)
    }

    /// Returns everything that is scheduled, in no order.
    #[cfg(test)]
    pub(super) fn agenda(&self) -> impl Iterator<Item = &Due> {
        self.agenda.iter()
    }

    /// Removes something that is scheduled, because it happens now.
    #[cfg(test)]
    pub(super) fn take_due(&mut self, place: u64) {
        self.agenda.retain(|due| due.place != place);
    }

    /// Schedules an action, never at the current time, so that time always advances.
    pub(super) fn schedule(&mut self, at_ns: u64, action: Action) {
        if let Some(id) = action.operation() {
            self.operation(id).actions += 1;
        }
        let (at_ns, place) = (at_ns.max(self.now_ns + 1), self.scheduled);
        self.agenda.push(Due { at_ns, place, action });
        self.scheduled += 1;
    }

    /// Returns the time at which a step that begins now is over.
    pub(super) fn after_step(&mut self) -> u64 {
        let mut delay_ns = self.chance.within(&self.settings.delay_ns);
        if self.draw(|odds| odds.long_delay) {
            delay_ns += self.chance.within(&self.settings.long_delay_ns);
        }
        self.now_ns + delay_ns
    }

    pub(super) fn draw(&mut self, once_in: impl FnOnce(&Odds) -> u32) -> bool {
        !self.is_calm && self.chance.once_in(once_in(&self.settings.odds))
    }

    pub(super) fn note(&mut self, what: &'static str, who: u64, detail: u64) {
        self.record.note(self.now_ns, what, who, detail);
    }

    pub(super) fn violate(&mut self, card: usize, rule: Rule, what: String) {
        self.record.violate(self.now_ns, card, None, rule, what);
    }

    /// As [`violate`](Self::violate), for a work request that came over this end of a link.
    pub(super) fn violate_over(&mut self, end: usize, rule: Rule, what: String) {
        let card = self.ends[end].card;
        self.record.violate(self.now_ns, card, Some(LinkKey(end as u64)), rule, what);
    }

    pub(super) fn operation(&mut self, id: SlotId) -> &mut Operation {
        self.operations.get_mut(id).expect("an operation is kept while an action or its end refers to it")
    }

    /// Runs an action, unless its card works only when it is polled.
    pub(super) fn run(&mut self, action: Action) {
        if let Some(card) = self.actor(action).map(|card| &mut self.cards[card]) {
            let is_there = matches!(card.state, CardState::Alive | CardState::Lost);
            if is_there && !card.kind.serves_unpolled {
                card.inbox.push_back(action);
                return;
            }
        }
        self.act(action);
    }

    fn actor(&mut self, action: Action) -> Option<usize> {
        let operation = self.operations.get(action.operation()?)?;
        match action {
            Action::Land { .. } | Action::Deliver { .. } => Some(self.ends[operation.peer].card),
            _ => Some(operation.card),
        }
    }

    pub(super) fn act(&mut self, action: Action) {
        match action {
            Action::Depart { operation, part } => self.depart(operation, part),
            Action::Land { operation, part } => self.land(operation, part, false),
            Action::Deliver { operation } => self.deliver(operation),
            Action::Answer { operation, part } => self.answer(operation, part),
            Action::Finish { operation } => self.finish(operation),
            Action::Bind { end, key, tag } => self.bind(end, key, tag),
            Action::ConfirmKey { key } => self.confirm_key(key),
            Action::ProveKey { key } => self.prove_key(key),
            Action::Break { end } => self.break_end(end),
            Action::KillLink { end } => self.if_stormy(|world| world.kill_link(end)),
            Action::CutCable { card } => self.if_stormy(|world| world.cut_cable_for_a_while(card)),
            Action::MendCable { card } => self.mend_cable(card),
            Action::StopHost { host } => self.if_stormy(|world| world.stop_host(host, None)),
            Action::KillHost { host } => self.if_stormy(|world| world.kill_host(host)),
            Action::Wake => {}
        }
        if let Some(id) = action.operation() {
            self.let_go(id);
        }
    }

    /// As [`act`](Self::act), for an action that was held back and is now the next one.
    pub(super) fn act_next(&mut self, action: Action) {
        match action {
            Action::Land { operation, part } => {
                self.land(operation, part, true);
                self.let_go(operation);
            }
            _ => self.act(action),
        }
    }

    fn if_stormy(&mut self, fault: impl FnOnce(&mut Self)) {
        if !self.is_calm {
            fault(self);
        }
    }

    /// Ends an action's reference to its operation.
    fn let_go(&mut self, id: SlotId) {
        self.operation(id).actions -= 1;
        self.forget_if_over(id);
    }

    pub(super) fn forget_if_over(&mut self, id: SlotId) {
        let operation = self.operation(id);
        if operation.actions > 0 || operation.state == State::InFlight {
            return;
        }
        if let Some(operation) = self.operations.take(id) {
            self.recycle(operation.wire);
        }
    }

    pub(super) fn recycle(&mut self, mut bytes: Vec<u8>) {
        // Buffers of messages are with their receivers, and come back later.
        if bytes.capacity() > 0 && self.spare.len() < SPARE_MAX {
            bytes.clear();
            self.spare.push(bytes);
        }
    }
}
