//! Limits on operations in flight, and the fair order of senders.

use std::collections::VecDeque;

/// A limited number of credits.
///
/// Invariant: no more credits are taken than there are.
///
/// ```
/// use farreach_proto::credit::Credits;
///
/// let mut credits = Credits::new(3);
/// assert!(credits.take(2) && !credits.take(2));
/// credits.give(1);
/// assert!(credits.take(2));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credits {
    total: u32,
    used: u32,
}

impl Credits {
    /// Creates credits that are all free.
    pub fn new(total: u32) -> Self {
        Self { total, used: 0 }
    }

    /// Takes `count` credits, or none. Returns `true` if it took them.
    #[must_use]
    pub fn take(&mut self, count: u32) -> bool {
        let fits = count <= self.free();
        if fits {
            self.used += count;
        }
        fits
    }

    /// Gives `count` credits back.
    ///
    /// # Panics
    ///
    /// Panics if they were not taken, because the accounting is wrong then.
    pub fn give(&mut self, count: u32) {
        assert!(count <= self.used, "{count} credits given back, and {} were taken", self.used);
        self.used -= count;
    }

    /// Returns the number of free credits.
    pub fn free(&self) -> u32 {
        self.total - self.used
    }

    /// Returns the number of credits taken.
    pub fn used(&self) -> u32 {
        self.used
    }
}

/// Shares bandwidth among senders: each gets an equal number of bytes, whatever the size of its
/// operations.
///
/// This is deficit round robin. A turn adds a quantum to a sender's allowance. The unused part is
/// kept for the next turn, as long as the sender has something to send.
///
/// ```
/// use farreach_proto::credit::RoundRobin;
///
/// let mut round_robin = RoundRobin::new(4096);
/// round_robin.wake(7);
/// round_robin.wake(9);
/// assert_eq!(round_robin.current(), Some(7));
/// round_robin.spend(8192); // more than its allowance: the next one has its turn
/// assert_eq!(round_robin.current(), Some(9));
/// round_robin.rest(); // nothing left to send
/// assert_eq!(round_robin.current(), Some(7));
/// ```
#[derive(Debug, Clone)]
pub struct RoundRobin {
    quantum: i64,
    round: VecDeque<Turn>,
    /// Whether each sender is in the round.
    waiting: Vec<bool>,
}

#[derive(Debug, Clone, Copy)]
struct Turn {
    who: u32,
    /// The bytes that it may still send in this turn; negative if it sent more.
    allowance: i64,
}

impl RoundRobin {
    /// Creates an empty round with a quantum of so many bytes.
    ///
    /// # Panics
    ///
    /// Panics if the quantum is 0.
    pub fn new(quantum: u32) -> Self {
        assert!(quantum > 0, "a quantum of 0 bytes would never let a sender send");
        Self { quantum: quantum.into(), round: VecDeque::new(), waiting: Vec::new() }
    }

    /// Adds a sender at the end of the round, unless it is in the round already.
    #[inline]
    pub fn wake(&mut self, who: u32) {
        // Most senders that are woken are in the round.
        if !self.has(who) {
            self.add(who);
        }
    }

    fn add(&mut self, who: u32) {
        let place = who as usize;
        if place >= self.waiting.len() {
            self.waiting.resize(place + 1, false);
        }
        self.waiting[place] = true;
        // At the end: who rests and wakes again gains nothing by it.
        self.round.push_back(Turn { who, allowance: self.quantum });
    }

    /// Returns `true` if a sender is in the round.
    #[inline]
    pub(crate) fn has(&self, who: u32) -> bool {
        self.waiting.get(who as usize).is_some_and(|is_waiting| *is_waiting)
    }

    /// Returns the sender that has its turn.
    pub fn current(&self) -> Option<u32> {
        self.round.front().map(|turn| turn.who)
    }

    /// Accounts bytes to the current sender. Passes the turn on if its allowance is used up.
    pub fn spend(&mut self, bytes: u64) {
        let Some(turn) = self.round.front_mut() else { return };
        // No operation is cut at the allowance, so it may become negative.
        turn.allowance = turn.allowance.saturating_sub_unsigned(bytes);
        self.pass_on();
    }

    /// Moves the current sender to the end of the round with its allowance: it has no room to send
    /// at the moment.
    pub fn yield_turn(&mut self) {
        if let Some(turn) = self.round.pop_front() {
            self.round.push_back(turn);
        }
    }

    /// Removes the current sender from the round: it has nothing left to send.
    pub fn rest(&mut self) {
        if let Some(turn) = self.round.pop_front() {
            self.waiting[turn.who as usize] = false;
        }
        // The next one may still owe bytes of a long operation.
        self.pass_on();
    }

    /// Removes a sender.
    pub fn remove(&mut self, who: u32) {
        if self.waiting.get_mut(who as usize).is_some_and(std::mem::take) {
            self.round.retain(|turn| turn.who != who);
            self.pass_on();
        }
    }

    /// Moves senders without allowance to the end of the round, with a new quantum.
    fn pass_on(&mut self) {
        while let Some(turn) = self.round.front_mut().filter(|turn| turn.allowance <= 0) {
            // An operation of several quanta costs its sender several turns.
            turn.allowance += self.quantum;
            self.yield_turn();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_and_small_operations_get_the_same_bytes() {
        let mut round_robin = RoundRobin::new(10_000);
        let sizes = [100_u64, 3_000, 64_000];
        for who in 0..3 {
            round_robin.wake(who);
        }
        let mut sent = [0_u64; 3];
        for _ in 0..100_000 {
            let who = round_robin.current().expect("all have more to send") as usize;
            sent[who] += sizes[who];
            round_robin.spend(sizes[who]);
        }
        let (least, most) = (*sent.iter().min().unwrap(), *sent.iter().max().unwrap());
        assert!(most - least <= 2 * 64_000, "{sent:?}");
    }

    #[test]
    fn one_who_waits_already_is_not_there_twice_and_one_who_is_gone_not_at_all() {
        let mut round_robin = RoundRobin::new(1);
        for who in [1, 2, 1, 3, 2] {
            round_robin.wake(who);
        }
        let mut round = Vec::new();
        for _ in 0..3 {
            round.extend(round_robin.current());
            round_robin.yield_turn();
        }
        assert_eq!(round, [1, 2, 3]);
        round_robin.remove(1);
        assert_eq!(round_robin.current(), Some(2));
        round_robin.rest();
        round_robin.rest();
        assert_eq!(round_robin.current(), None);
    }

    #[test]
    #[should_panic(expected = "2 credits given back, and 1 were taken")]
    fn credits_that_were_not_taken_cannot_be_given() {
        let mut credits = Credits::new(5);
        assert!(credits.take(1));
        credits.give(2);
    }
}
