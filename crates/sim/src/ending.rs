//! The end of work requests, links and cards.

use farreach_proto::inflight::SlotId;
use farreach_rail::EndedKeys;

use super::action::Action;
use super::end::{CardState, EndState, Failure, Ready, Way};
use super::operation::State;
use super::record::Rule;
use super::world::World;

impl World {
    /// Completes a work request. Its buffers come back with the next poll.
    pub(super) fn complete(&mut self, id: SlotId, outcome: Result<(), Failure>) {
        self.hand_back(id, State::Completed, outcome);
        let operation = self.operation(id);
        let (end, card) = (operation.end, operation.card);
        let ends_link = outcome.is_err_and(|failure| !failure.is_of_key(&self.cards[card].kind));
        if ends_link && self.ends[end].state == EndState::Connected {
            self.ends[end].state = EndState::Broken;
        }
        self.forget_if_over(id);
        let card_is_full = self.cards[card].completions > self.cards[card].kind.queue_len;
        if card_is_full && !self.cards[card].kind.refuses_overrun {
            self.overrun(card);
        }
    }

    /// Abandons a work request on this side: nothing more of it leaves.
    fn abandon(&mut self, id: SlotId, failure: Failure) {
        self.hand_back(id, State::Abandoned, Err(failure));
        self.forget_if_over(id);
    }

    fn hand_back(&mut self, id: SlotId, state: State, outcome: Result<(), Failure>) {
        let operation = self.operation(id);
        operation.state = state;
        let buffers = std::mem::take(&mut operation.buffers);
        let (serial, end, card, tag) = (operation.serial, operation.end, operation.card, operation.tag);
        self.ends[end].requests.retain(|request| *request != id);
        self.cards[card].push(Ready::Completed { end, tag, buffers, outcome });
        self.note("complete", serial, outcome.map_or_else(|failure| 1 + failure as u64, |()| 0));
    }

    /// Handles more completions than a queue has room for. All its links fail.
    fn overrun(&mut self, card: usize) {
        let what = format!(
            "{} completions for a queue of {}",
            self.cards[card].completions, self.cards[card].kind.queue_len
        );
        self.violate(card, Rule::Overrun, what);
        // Further completions follow; one violation is enough.
        self.cards[card].kind.queue_len = usize::MAX;
        for index in 0..self.cards[card].ends.len() {
            let end = self.cards[card].ends[index];
            self.ends[end].way = Way::Lost;
            self.fail_requests(end, Failure::Overrun);
        }
    }

    /// Loses the path from an end. Its card detects that by itself, or never.
    pub(super) fn lose_way(&mut self, end: usize) {
        // This includes a path that was draining: later bytes must not pass the gap.
        if std::mem::replace(&mut self.ends[end].way, Way::Lost) == Way::Open {
            self.expect_break(end);
        }
    }

    /// Schedules the failure of a link, if the card is of a kind that reports dead peers.
    pub(super) fn expect_break(&mut self, end: usize) {
        let tells = self.cards[self.ends[end].card].kind.tells_of_dead_peers;
        if tells && !std::mem::replace(&mut self.ends[end].will_break, true) {
            let at_ns = self.now_ns + self.chance.within(&self.settings.dead_after_ns);
            self.schedule(at_ns, Action::Break { end });
        }
    }

    /// Gives up a link: work requests in flight on it fail.
    pub(super) fn break_end(&mut self, end: usize) {
        self.ends[end].will_break = false;
        let is_open = matches!(self.ends[end].state, EndState::Connected | EndState::Broken);
        let is_there = self.cards[self.ends[end].card].state == CardState::Alive;
        if !is_open || !is_there {
            return;
        }
        self.note("break", end as u64, 0);
        if self.ends[end].way == Way::Open {
            self.ends[end].way = Way::Lost;
        }
        if self.ends[end].requests.is_empty() && self.ends[end].state == EndState::Connected {
            // No work request was in flight that could report it. Some cards report it otherwise,
            // and some do not.
            if self.chance.coin() {
                self.ends[end].state = EndState::Broken;
                let card = self.ends[end].card;
                self.cards[card].push(Ready::LinkDown { end, reason: Failure::Unreachable });
            }
            return;
        }
        self.fail_requests(end, Failure::Unreachable);
    }

    /// Fails all work requests of an end. The first one gets the reason, unless it has a better
    /// one; the others are flushed.
    fn fail_requests(&mut self, end: usize, why: Failure) {
        let mut failure = why;
        while let Some(id) = self.ends[end].requests.front().copied() {
            let failure =
                self.operation(id).failure.unwrap_or(std::mem::replace(&mut failure, Failure::Flushed));
            self.complete(id, Err(failure));
        }
    }

    pub(super) fn close_link(&mut self, end: usize) {
        self.note("close", end as u64, 0);
        self.ends[end].state = EndState::Closed;
        let card = self.ends[end].card;
        if self.cards[card].kind.properties.links_end_alone {
            self.end_link(end, Failure::Closed);
            self.cards[card].forget_received(|other| other == end);
        }
    }

    /// Ends a link: nothing leaves over it any more, and actions that were held back here are
    /// dropped.
    fn end_link(&mut self, end: usize, failure: Failure) {
        self.ends[end].state = EndState::Closed;
        while let Some(id) = self.ends[end].requests.front().copied() {
            self.abandon(id, failure);
        }
        self.drop_held(end);
        self.prove_keys_of_link(end);
    }

    fn drop_held(&mut self, end: usize) {
        // They no longer pass, and are not held back again.
        while let Some(action) = self.ends[end].held.pop_front() {
            self.act_next(action);
        }
        let blocked = &mut self.cards[self.ends[end].card].blocked;
        blocked.retain(|other| *other != end);
    }

    /// Ends all links of a card.
    pub(super) fn reset(&mut self, card: usize) {
        self.note("reset", card as u64, 0);
        self.stop_peers(card);
        self.prove_dead_keys(card);
        for index in 0..self.cards[card].ends.len() {
            let end = self.cards[card].ends[index];
            self.ends[end].is_reset = true;
            self.end_link(end, Failure::Reset);
        }
        self.cards[card].forget_received(|_| true);
        self.cards[card].ends.clear();
    }

    /// Stops operations that peers have begun on this card. Until now they could continue.
    fn stop_peers(&mut self, card: usize) {
        // Only the report of a key says that its peers have stopped.
        if self.cards[card].kind.properties.ended_keys == EndedKeys::Reported {
            return;
        }
        let ends = &self.ends;
        let at_card = |(id, operation): (SlotId, &super::operation::Operation)| {
            (operation.grip.is_some() && ends[operation.peer].card == card).then_some(id)
        };
        let gripping: Vec<SlotId> = self.operations.iter().filter_map(at_card).collect();
        for id in gripping {
            self.operation(id).grip = None;
        }
    }

    /// Handles a dropped rail. Everything that is not proven to have stopped is kept.
    pub(super) fn drop_card(&mut self, card: usize) {
        match self.cards[card].state {
            CardState::Dropped | CardState::Killed => return,
            CardState::Lost => self.leaked += self.cards[card].in_flight + self.live_keys(card),
            CardState::Alive => {
                self.reset(card);
                self.forget_keys(card);
                self.forget_ready(card);
            }
        }
        self.cards[card].state = CardState::Dropped;
        self.empty_inbox(card);
    }

    /// Removes a card with everything that it has, at once.
    pub(super) fn kill_card(&mut self, card: usize) {
        if matches!(self.cards[card].state, CardState::Dropped | CardState::Killed) {
            return;
        }
        self.cards[card].state = CardState::Killed;
        // The owner of this memory is gone as well, so it is no violation that it was freed.
        self.forget_keys(card);
        let ends = &self.ends;
        let at_card = |(id, operation): (SlotId, &super::operation::Operation)| {
            (ends[operation.peer].card == card).then_some(id)
        };
        let under_way: Vec<SlotId> = self.operations.iter().filter_map(at_card).collect();
        for id in under_way {
            self.operation(id).grip = None;
        }
        self.reset(card);
        self.forget_ready(card);
        self.empty_inbox(card);
    }

    fn forget_ready(&mut self, card: usize) {
        while self.cards[card].pop().is_some() {}
    }

    fn empty_inbox(&mut self, card: usize) {
        while let Some(action) = self.cards[card].inbox.pop_front() {
            self.act(action);
        }
    }
}
