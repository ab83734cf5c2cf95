//! Confirmations that are due: of messages that this side's engine holds.
//!
//! A confirmation is a frame over the control connection, unless a message to the peer carries it
//! first. Where each message is answered by one, it therefore waits for the answer.

use std::collections::VecDeque;

use super::PeerKey;
use crate::time::Time;

/// How long a confirmation waits for a message that carries it, in nanoseconds.
pub(super) const WAIT: u64 = 1_000_000;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Confirmations {
    /// Peers that get theirs in this step.
    now: Vec<PeerKey>,
    /// Peers that get theirs at this time. All wait equally long, so these are in order.
    later: VecDeque<(Time, PeerKey)>,
}

impl Confirmations {
    pub(super) fn add_now(&mut self, key: PeerKey) {
        self.now.push(key);
    }

    pub(super) fn add_at(&mut self, at: Time, key: PeerKey) {
        self.later.push_back((at, key));
    }

    /// Removes a peer that gets its confirmation in this step.
    #[inline]
    pub(super) fn take_now(&mut self) -> Option<PeerKey> {
        self.now.pop()
    }

    /// Removes a peer whose time has come, and returns it with that time.
    #[inline]
    pub(super) fn take_due(&mut self, now: Time) -> Option<(Time, PeerKey)> {
        self.take_first_if(|(at, _)| at <= now)
    }

    /// Removes the first entry if it is of this peer, to which a message has been posted.
    #[inline]
    pub(super) fn was_carried(&mut self, key: PeerKey) {
        // A later entry of it stays, and is found out of date when its time comes.
        self.take_first_if(|(_, first)| first == key);
    }

    #[inline]
    fn take_first_if(&mut self, is_wanted: impl FnOnce((Time, PeerKey)) -> bool) -> Option<(Time, PeerKey)> {
        let is_wanted = self.later.front().is_some_and(|first| is_wanted(*first));
        if is_wanted { self.later.pop_front() } else { None }
    }

    /// Checks that those that wait are in the order of their times.
    pub(super) fn check(&self) {
        assert!(self.later.iter().is_sorted_by_key(|(at, _)| at), "confirmations: {:?}", self.later);
    }

    /// Returns the first time at which one may be due.
    #[inline]
    pub(super) fn next_at(&self) -> Option<Time> {
        self.later.front().map(|(at, _)| *at)
    }
}
