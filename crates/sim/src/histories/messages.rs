//! Messages and atomics.

use farreach_proto::error::{AtomicError, SendError};
use farreach_proto::machine::{AtomicOperation, NewAtomic};
use farreach_proto::rights::Rights;

use super::chance::mix;
use super::thing::{Change, Grant, Word};
use super::world::{World, broken, tell};
use crate::answers::{Answer, Awaited};
use crate::end::NOT_MAPPED;
use farreach_proto::time::Time;

/// Builds a message: its length and its bytes identify it.
fn message(connection: usize, end: usize, number: u64) -> Vec<u8> {
    let name = mix((connection as u64) << 33 | (end as u64) << 32 | number);
    let len = 8 + (name % 40) as usize;
    name.to_le_bytes().into_iter().chain((number..).map(|byte| byte as u8)).take(len).collect()
}

/// A request to report when the peer's engine holds all messages.
#[derive(Debug)]
pub(super) struct Flush {
    host: usize,
    connection: usize,
    end: usize,
    /// The number of messages until then.
    asked: u64,
    answer: Answer<Result<(), SendError>>,
}

impl World {
    pub(super) fn wish_flush(&mut self, host: usize) {
        let Some((connection, end)) = self.some_connection(host) else { return };
        let (now, there) = (self.now, &self.connections[connection].ends[end]);
        let (key, asked) = (there.key(), there.messages.asked);
        let (op, answer) = self.hosts[host].answers.expect(Awaited::Sent);
        tell!(self, "flush: connection, end, messages", connection, end, asked);
        self.flushes.push(Flush { host, connection, end, asked, answer });
        self.hosts[host].machine().flush(op, key, Time::from_nanos(now));
    }

    /// Checks that the peer's engine holds all messages of before a flush that has ended.
    pub(super) fn collect_flushes(&mut self, host: usize) {
        let (mut ended, mut place) = (0, 0);
        while place < self.flushes.len() {
            let it = &self.flushes[place];
            let Some(answer) = (if it.host == host { it.answer.take() } else { None }) else {
                place += 1;
                continue;
            };
            let Flush { connection, end, asked, .. } = self.flushes.swap_remove(place);
            let ends = &self.connections[connection].ends;
            let (there, other) = (&ends[end], &ends[1 - end]);
            let held = other.peer.as_ref().map_or(0, |(_, view)| view.untaken() as u64);
            let is_all = other.messages.received + held >= asked || other.killed_at.is_some();
            match answer {
                _ if !self.is_honest(connection) => {}
                Ok(()) if !is_all => {
                    broken!(self, "the {asked} messages over connection {connection} are not all there")
                }
                Err(error) if there.lost_at.is_none() => {
                    broken!(self, "connection {connection} cannot be flushed: {error}")
                }
                _ => ended += 1,
            }
        }
        if ended > 0 {
            self.count("flushes", ended);
        }
    }

    /// Forgets the flushes of a host that was killed.
    pub(super) fn kill_flushes(&mut self, host: usize) {
        self.flushes.retain(|flush| flush.host != host);
    }

    /// Returns the connections of flushes that have not ended.
    pub(super) fn unflushed(&self) -> impl Iterator<Item = usize> {
        self.flushes.iter().map(|it| it.connection)
    }

    pub(super) fn say(&mut self, connection: usize, end: usize) {
        let now = self.now;
        let there = &mut self.connections[connection].ends[end];
        let (host, key, number) = (there.host, there.key(), there.messages.asked);
        there.messages.asked += 1;
        let (op, answer) = self.hosts[host].answers.expect(Awaited::Sent);
        there.messages.waiting.push_back(answer);
        tell!(self, "say: connection, end, number", connection, end, number);
        self.hosts[host].machine().send_message(
            op,
            key,
            message(connection, end, number),
            Time::from_nanos(now),
        );
    }

    /// Collects which of an end's messages the engine has taken.
    pub(super) fn collect_said(&mut self, connection: usize, end: usize) {
        let is_honest = self.is_honest(connection);
        let there = &mut self.connections[connection].ends[end];
        let is_lost = there.lost_at.is_some();
        let mut accepted = 0;
        while let Some(answer) = there.messages.waiting.front().and_then(Answer::take) {
            there.messages.waiting.pop_front();
            match answer {
                Ok(()) => accepted += 1,
                Err(SendError::PeerLost { .. }) if is_lost => {}
                Err(_) if !is_honest => {}
                Err(error) => broken!(self, "a message over connection {connection} failed: {error:?}"),
            }
        }
        self.connections[connection].ends[end].messages.accepted += accepted;
        if accepted > 0 {
            self.count("messages sent", accepted);
        }
    }

    /// Lets an end's user take the messages that have arrived.
    pub(super) fn hear(&mut self, connection: usize, end: usize) {
        let now = self.now;
        let there = &mut self.connections[connection].ends[end];
        let Some((key, view)) = there.peer.clone() else { return };
        let mut taken = 0;
        while let Some(bytes) = view.take_message() {
            let number = self.connections[connection].ends[end].messages.received;
            let is_honest = self.connections[connection].is_honest;
            if !is_honest && bytes.len() > self.scenario.tuning.message_max {
                broken!(self, "a message of {} bytes has come from the liar", bytes.len());
            }
            if is_honest && bytes != message(connection, 1 - end, number) {
                broken!(
                    self,
                    "message {number} over connection {connection} to end {end} is another one: {bytes:?}"
                );
            }
            self.connections[connection].ends[end].messages.received += 1;
            taken += 1;
        }
        if taken > 0 {
            self.count("messages taken", taken);
            let host = self.connections[connection].ends[end].host;
            self.hosts[host].machine().taken(key, taken as u32, Time::from_nanos(now));
            self.flush(host);
        }
    }

    pub(super) fn wish_atomic(&mut self, host: usize) {
        let Some((connection, end)) = self.some_connection(host) else { return };
        let Some(grant) = self.some_grant(connection, end, Rights::ATOMIC) else { return };
        let word = self.chance.index(self.grants[grant].words.len());
        let it = &mut self.grants[grant].words[word];
        // One swap at a time, or the possible values of a word would be unknown.
        if word % 2 == 1 && it.asked > 0 {
            return;
        }
        it.asked += 1;
        let swap = (word % 2 == 1).then(|| {
            let expected = it.candidates[self.chance.index(it.candidates.len())];
            self.next_number += 1;
            (expected, self.next_number)
        });
        let request = match swap {
            None => AtomicOperation::FetchAdd { add: 1 },
            Some((expected, desired)) => AtomicOperation::CompareSwap { expected, desired },
        };
        let (id, peer) = (self.grants[grant].id, self.connections[connection].ends[end].key());
        let (op, answer) = self.hosts[host].answers.expect(Awaited::Atomic);
        let new = NewAtomic { op, peer, grant: id, offset: 8 * word as u64, request };
        tell!(self, "word: grant, word, host", grant, word, host);
        let now = self.now;
        self.hosts[host].machine().change_atomic(new, Time::from_nanos(now));
        self.changes.push(Change { host, connection, end, grant, word, swap, answer });
    }

    /// Collects the results of atomics.
    pub(super) fn collect_atomics(&mut self, host: usize) {
        let mut place = 0;
        while place < self.changes.len() {
            let change = &self.changes[place];
            let answer = if change.host == host { change.answer.take() } else { None };
            match answer {
                None => place += 1,
                Some(answer) => {
                    let change = self.changes.swap_remove(place);
                    self.atomic_answered(&change, answer);
                }
            }
        }
    }

    fn atomic_answered(&mut self, change: &Change, answer: Result<u64, AtomicError>) {
        let (word, swap) = (change.word, change.swap);
        tell!(self, "word answered: grant, word, ok", change.grant, word, answer.is_ok());
        let is_lost = self.connections[change.connection].ends[change.end].lost_at.is_some();
        if !self.is_honest(change.connection) {
            self.grants[change.grant].words[word].asked -= 1;
            return;
        }
        let is_revoked = self.grants[change.grant].is_revoked;
        let it = &mut self.grants[change.grant].words[word];
        it.asked -= 1;
        let what = match (answer, swap) {
            (Ok(found), None) => {
                if it.found.contains(&found) {
                    broken!(self, "two additions to word {word} found the same {found}");
                }
                it.found.push(found);
                it.added += 1;
                "words changed"
            }
            (Ok(found), Some(swap)) => {
                if !it.may_hold(found) {
                    broken!(self, "word {word} held {found}, and may have held {:?} only", it.candidates);
                }
                it.candidates = vec![if found == swap.0 { swap.1 } else { found }];
                "words changed"
            }
            (Err(AtomicError::Unknown | AtomicError::PeerLost { .. }), None) => {
                it.unknown += 1;
                "words unknown"
            }
            (Err(AtomicError::Unknown | AtomicError::PeerLost { .. }), Some(swap)) => {
                it.late.push(swap);
                "words unknown"
            }
            (Err(AtomicError::NotGranted), _) if !is_revoked => {
                broken!(self, "a word of grant {} is refused, which is granted", change.grant)
            }
            (Err(AtomicError::Rail(error)), _) if error.cause == NOT_MAPPED => "words refused",
            (
                Err(
                    AtomicError::NotGranted
                    | AtomicError::Unsupported
                    | AtomicError::NoLink
                    | AtomicError::Full,
                ),
                _,
            ) => "words refused",
            (Err(error), _) => broken!(self, "a word was answered by {error}, lost {is_lost}"),
        };
        it.close_candidates();
        self.count(what, 1);
    }

    /// Checks that words of a grant hold what was asked for, when no request is open any more.
    pub(super) fn check_atomics(&self, grant: &Grant) {
        let Some(memory) = grant.look().filter(|_| self.is_honest(grant.connection)) else { return };
        for (index, word) in grant.words.iter().enumerate().filter(|(_, word)| word.asked == 0) {
            let value = memory.atomic_at(8 * index).load(std::sync::atomic::Ordering::Relaxed);
            let is_right = match index % 2 {
                0 => (word.added..=word.added + word.unknown).contains(&value),
                _ => word.may_hold(value),
            };
            if !is_right {
                broken!(self, "word {index} of grant {} holds {value}, after {word:?}", grant.id);
            }
        }
    }
}

impl Word {
    fn may_hold(&self, value: u64) -> bool {
        self.candidates.contains(&value)
    }

    /// Adds the values that the word may have once any of the late swaps is done.
    fn close_candidates(&mut self) {
        while let Some(next) = self.late.iter().find_map(|(from, to)| {
            (self.candidates.contains(from) && !self.candidates.contains(to)).then_some(*to)
        }) {
            self.candidates.push(next);
        }
    }
}
