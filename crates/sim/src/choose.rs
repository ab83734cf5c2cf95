//! What happens next in the network, as a choice of the caller: every order in which a card may do what it has
//! begun.
//!
//! The time of such a network stands still. An action that is scheduled may happen at any moment; those that a
//! card keeps in order happen in order.

use std::fmt;

use farreach_proto::inflight::SlotId;
use farreach_rail::LinkKey;

use super::action::Action;
use super::card::CardId;
use super::end::{EndState, Ready};
use super::key::KeptMemory;
use super::network::SimNetwork;
use super::world::{Due, World};

/// An action that may happen now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pending {
    place: u64,
    action: Action,
    /// The number of ways in which it may happen.
    pub(crate) ways: u8,
}

impl Pending {
    /// Returns whether bytes land.
    pub(crate) fn lands(&self) -> bool {
        matches!(self.action, Action::Land { .. })
    }
}

impl SimNetwork {
    /// Returns the actions that may happen next, in the order in which they were begun.
    pub(crate) fn pending(&self) -> Vec<Pending> {
        self.lock().pending()
    }

    /// Has a pending action happen, in one of its ways.
    pub(crate) fn perform_pending(&self, pending: Pending, way: u8) {
        let mut world = self.lock();
        world.take_due(pending.place);
        // The only coin of a pending action: whether a card reports a link over which nothing is in flight.
        world.chance.set_coins([way == 0]);
        world.run(pending.action);
        world.chance.set_coins([]);
    }

    /// Has cards read the bytes that they are about to send. The request owns them, so nobody sees when they are
    /// read; and what a lost link does to a request is the same before and after, except where cards land late
    /// what has left them. `all`: these do it too.
    pub(crate) fn depart(&self, all: bool) {
        let mut world = self.lock();
        while let Some(Pending { place, action, .. }) = world.pending().into_iter().find(|it| {
            let sender = it.action.operation().and_then(|id| world.operations.get(id)).map(|it| it.card);
            let is_plain = sender.is_some_and(|card| !world.cards[card].kind.lands_late);
            (all || is_plain) && matches!(it.action, Action::Depart { .. })
        }) {
            world.take_due(place);
            world.run(action);
        }
    }

    /// Returns the number of ways in which a link may fail.
    pub(crate) fn ways_to_fail(&self, link: LinkKey) -> u8 {
        let world = self.lock();
        let card = &world.cards[world.ends[link.0 as usize].card];
        if card.kind.lands_late { 4 } else { 2 }
    }

    /// Has a link fail, in one of its ways: with the answers on their way or without, and with the bytes that
    /// have left, where the card lands late, or without.
    pub(crate) fn fail_link(&self, link: LinkKey, way: u8) {
        let ways = self.ways_to_fail(link);
        let mut world = self.lock();
        let (are_answers_lost, is_draining) = (way & 1 != 0, way & 2 != 0);
        let coins: &[bool] = if ways == 4 { &[is_draining, are_answers_lost] } else { &[are_answers_lost] };
        world.chance.set_coins(coins.iter().chain(coins).copied());
        world.kill_link(link.0 as usize);
        world.chance.set_coins([]);
    }

    /// Returns `true` if a poll of one of these cards would report or do something.
    pub(crate) fn has_for_poll(&self, cards: &[CardId]) -> bool {
        let world = self.lock();
        cards.iter().any(|card| world.has_for_poll(card.index()))
    }

    /// Writes the state as text: equal texts are equal states. Memory that is exposed is not part of it.
    pub(crate) fn write_state(&self, into: &mut dyn fmt::Write) -> fmt::Result {
        self.lock().write_state(into)
    }
}

impl World {
    fn pending(&self) -> Vec<Pending> {
        let mut dues: Vec<&Due> = self.agenda().collect();
        dues.sort_by_key(|due| due.place);
        let mut pending: Vec<Pending> = Vec::new();
        for Due { place, action, .. } in dues {
            let is_behind = |earlier: &Pending| self.is_behind(*action, earlier.action);
            let is_possible = match *action {
                Action::Wake => false,
                Action::ConfirmKey { key } => self.stopped_until_ns(key).is_none(),
                _ => true,
            };
            if is_possible && !pending.iter().any(is_behind) {
                pending.push(Pending { place: *place, action: *action, ways: self.ways(*action) });
            }
        }
        pending
    }

    /// Returns whether an ordered card does one thing only after the other, which it has begun before: reading
    /// bytes, and landing them, over one end.
    fn is_behind(&self, later: Action, earlier: Action) -> bool {
        let stage = |action: Action| match action {
            Action::Depart { operation, .. } => Some((operation, 0)),
            Action::Land { operation, .. } => Some((operation, 1)),
            _ => None,
        };
        let place = |action: Action| {
            let (operation, stage) = stage(action)?;
            let operation = self.operations.get(operation)?;
            self.cards[operation.card].is_ordered().then_some((operation.end, stage))
        };
        place(later).is_some_and(|later| place(earlier) == Some(later))
    }

    fn ways(&self, action: Action) -> u8 {
        match action {
            Action::Break { end } => {
                let end = &self.ends[end];
                let is_quiet = end.requests.is_empty() && end.state == EndState::Connected;
                if is_quiet { 2 } else { 1 }
            }
            _ => 1,
        }
    }

    fn write_state(&self, into: &mut dyn fmt::Write) -> fmt::Result {
        let mut dues: Vec<&Due> = self.agenda().filter(|due| due.action != Action::Wake).collect();
        dues.sort_by_key(|due| due.place);
        dues.iter().try_for_each(|due| write!(into, "{:?};", due.action))?;
        for host in &self.hosts {
            write!(into, "host {};", host.is_killed)?;
        }
        for card in &self.cards {
            write!(into, "card {:?} {} {:?}", card.state, card.in_flight, card.ends)?;
            write!(into, "{:?} {:?};", card.inbox, card.blocked)?;
            card.ready.iter().try_for_each(|ready| write_ready(ready, into))?;
        }
        for end in &self.ends {
            write!(into, "end {:?} {:?} {:?} {:?}", end.peer, end.state, end.is_reset, end.way)?;
            write!(into, "{} {} {}", end.are_answers_lost, end.will_break, end.in_flight)?;
            write!(into, "{:?} {:?};", end.requests, end.held)?;
        }
        for key in &self.keys {
            let memory = match &key.memory {
                KeptMemory::Live(_) => "live",
                KeptMemory::Leaked(_) => "leaked",
                KeptMemory::Dead => "dead",
                KeptMemory::Gone => "gone",
            };
            write!(into, "key {memory} {} {:?} {:?}", key.card, key.peer, key.bound)?;
            write!(into, "{:?} {} {:?};", key.not_mapped, key.is_being_proven, key.ends)?;
            write!(into, "{} {} {};", key.address, key.is_of_old_pages, key.guards.len())?;
        }
        let operations: Vec<(SlotId, _)> = self.operations.iter().collect();
        for (id, it) in operations {
            write!(into, "{id:?} {} {} {:?} {:?}", it.end, it.tag, it.kind, it.target)?;
            write!(into, "{:?} {:?} {} {}", it.state, it.wire, it.departed, it.landed)?;
            write!(into, "{} {} {:?} {};", it.answered, it.is_answered, it.failure, it.grip.is_some())?;
        }
        self.exchanges.write_state(into)?;
        write!(into, "{} {}", self.bindings, self.leaked)
    }
}

/// Writes an event without its buffers, which are those of the request that its tag names.
fn write_ready(ready: &Ready, into: &mut dyn fmt::Write) -> fmt::Result {
    match ready {
        Ready::Completed { end, tag, outcome, .. } => write!(into, "completed {end} {tag} {outcome:?};"),
        Ready::Immediate { end, bits } => write!(into, "immediate {end} {bits};"),
        Ready::Message { end, bytes } => write!(into, "message {end} {bytes:?};"),
        Ready::KeyBound { end, tag, bound } => write!(into, "bound {end} {tag} {bound:?};"),
        Ready::KeyEnded { key } => write!(into, "ended {key};"),
        Ready::LinkDown { end, reason } => write!(into, "down {end} {reason:?};"),
    }
}
