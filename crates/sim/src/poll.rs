//! Polls of simulated cards.

use super::action::Action;
use super::end::{CardState, Ready};
use super::world::World;

/// Reasons for which a poll fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PollFailure {
    Once,
    ForGood,
}

impl World {
    /// Returns `true` if a poll of a card would report or do something now.
    pub(super) fn has_for_poll(&self, card: usize) -> bool {
        let card = &self.cards[card];
        let is_running = self.hosts[card.host].stopped_until_ns <= self.now_ns;
        let has_something = !card.ready.is_empty() || !card.inbox.is_empty();
        card.state == CardState::Alive && is_running && has_something
    }

    /// Moves events into `told`, as many as one poll reports.
    pub(super) fn poll(&mut self, card: usize, told: &mut Vec<Ready>) -> Result<(), PollFailure> {
        if self.cards[card].state != CardState::Alive {
            return Err(PollFailure::ForGood);
        }
        if self.hosts[self.cards[card].host].stopped_until_ns > self.now_ns {
            return Ok(());
        }
        let is_failing = self.cards[card].failing_polls_left > 0;
        if is_failing || self.draw(|odds| odds.poll_fails) {
            self.cards[card].failing_polls_left -= u32::from(is_failing);
            self.note("poll fails", card as u64, 0);
            // The driver must poll again, even if nothing else happens.
            self.wake_soon(card);
            return Err(PollFailure::Once);
        }
        // Actions scheduled by these are due later, so the loop ends.
        for _ in 0..self.cards[card].inbox.len() {
            if let Some(action) = self.cards[card].inbox.pop_front() {
                self.act(action);
            }
        }
        while told.len() < self.settings.poll_max {
            let Some(ready) = self.cards[card].pop() else { break };
            if let Ready::Completed { end, .. } = &ready {
                self.ends[*end].in_flight -= 1;
            }
            told.push(ready);
        }
        if !told.is_empty() {
            self.note("poll", card as u64, told.len() as u64);
            self.release_held(card);
        }
        Ok(())
    }

    /// Lets actions that were held back proceed, if there is room now.
    fn release_held(&mut self, card: usize) {
        let mut blocked = std::mem::take(&mut self.cards[card].blocked);
        for end in blocked.drain(..) {
            while let Some(action) = self.ends[end].held.front().copied() {
                if matches!(action, Action::Deliver { .. }) && !self.cards[card].can_receive() {
                    break;
                }
                self.ends[end].held.pop_front();
                self.act_next(action);
                if self.cards[card].blocked.contains(&end) {
                    break;
                }
            }
            if !self.ends[end].held.is_empty() && !self.cards[card].blocked.contains(&end) {
                self.cards[card].blocked.push(end);
            }
        }
    }
}
