//! What a card tells when it is asked.

use super::end::{CardState, Ready};
use super::world::{Action, World};

/// Why a poll tells nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PollFailure {
    Once,
    ForGood,
}

impl World {
    /// Puts what has happened into `told`, as much as one poll tells.
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
            // Somebody is to look again, though nothing else happens.
            self.wake_soon(card);
            return Err(PollFailure::Once);
        }
        // What these bring about is due later, so that this ends.
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

    /// There may be room for what was held back.
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
