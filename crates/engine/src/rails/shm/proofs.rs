//! Exchanges of pages: the proof for peers that do not confirm that they have stopped.
//!
//! One exchange runs at a time, a step with each poll, so that others are served between. The machine
//! asks again for those that wait.
//!
//! Other peers may have keys to the same pages, and would go on in the old ones. So they pause: their links
//! are reported as lost, which revokes what they have, and no key to the memory is bound until the exchange
//! is over. The machine connects them again, and they get keys to the new pages.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use farreach_memory::Exposed;
use farreach_rail::{KeyId, LinkKey, RailError};
use farreach_shm::{Access, Exchange, ExchangeError, RevokedGrant};

use super::end::End;
use super::key::GrantKey;

const OPERATION: &str = "prove that a peer has stopped, by an exchange of pages";

/// How long others pause for an exchange that does not begin.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The exchange that runs, if there is one.
#[derive(Debug, Default)]
pub(super) struct Proofs {
    running: Option<Running>,
    paused: Option<Paused>,
}

#[derive(Debug)]
struct Running {
    key: KeyId,
    exchange: Exchange,
    /// The error of the last step. The next request continues.
    error: Option<ExchangeError>,
}

/// Memory to which no key is bound.
#[derive(Debug)]
struct Paused {
    memory: Weak<Exposed>,
    /// The ended key for which others pause.
    key: KeyId,
    until: Instant,
}

impl Proofs {
    /// Returns `true` if the next poll has something to do.
    pub(super) fn has_step(&self) -> bool {
        self.running.as_ref().is_some_and(|running| running.error.is_none())
    }

    /// Returns whether keys to this memory must not be bound now.
    pub(super) fn pauses(&self, memory: &Weak<Exposed>) -> bool {
        self.paused.as_ref().is_some_and(|paused| Weak::ptr_eq(&paused.memory, memory))
    }

    /// Begins an exchange for an ended key, or continues it. Returns the links that must be lost before:
    /// over them, other peers have keys to the same pages.
    pub(super) fn begin(
        &mut self,
        id: KeyId,
        keys: &mut HashMap<KeyId, GrantKey>,
        ends: &mut BTreeMap<LinkKey, End>,
    ) -> Result<Vec<LinkKey>, RailError> {
        match &mut self.running {
            Some(running) if running.key == id => {
                return match running.error.take() {
                    Some(error) => Err(refused(&error)),
                    None => Ok(Vec::new()),
                };
            }
            // One after the other. The machine asks again.
            Some(_) => return Ok(Vec::new()),
            None => {}
        }
        // It may have been reported meanwhile.
        let Some(key) = keys.get_mut(&id) else { return Ok(Vec::new()) };
        if !key.is_ended {
            return Err(RailError::new(OPERATION, "the key has not ended", "end the key first"));
        }
        if key.access == Access::ReadOnly {
            end_reading(key, ends);
            return Ok(Vec::new());
        }
        // Others pause for another exchange, which may be about to begin. The machine asks again.
        if self.paused.as_ref().is_some_and(|paused| paused.key != id) {
            return Ok(Vec::new());
        }
        let Some(memory) = key.memory.upgrade() else { return Ok(Vec::new()) };
        let all_have_ended = key.taken.is_empty()
            && key.bound.iter().all(|(of, _)| {
                let link = ends.get_mut(of).and_then(End::link);
                link.is_none_or(|link| link.process().has_ended())
            });
        // The end of a process is reported by its link.
        if all_have_ended {
            return Ok(Vec::new());
        }
        let (of_memory, may_pause) = (key.memory.clone(), !key.has_paused);
        let same = |key: &GrantKey| Weak::ptr_eq(&key.memory, &of_memory);
        let count = keys.values().filter(|key| same(key)).map(|key| key.bound.len() + key.taken.len()).sum();
        // A grant that was taken from its link cannot be confirmed any more, so it is taken only if
        // an exchange is possible.
        if memory.keys() != count {
            return Err(refused(&ExchangeError::OtherKeys));
        }
        drop(memory);
        let is_open = |of: &LinkKey| ends.get(of).is_some_and(|end| !end.is_closed);
        let others = keys.values().filter(|key| same(key) && !key.is_ended);
        let live: Vec<LinkKey> =
            others.flat_map(|key| &key.bound).map(|(of, _)| *of).filter(is_open).collect();
        if !live.is_empty() {
            return match self.paused {
                None if may_pause => {
                    keys.entry(id).and_modify(|key| key.has_paused = true);
                    let until = Instant::now() + PAUSE_MAX;
                    self.paused = Some(Paused { memory: of_memory, key: id, until });
                    Ok(live)
                }
                // They are being closed.
                Some(_) => Ok(Vec::new()),
                None => Err(refused(&ExchangeError::OtherKeys)),
            };
        }
        let mut taken: Vec<RevokedGrant> = Vec::new();
        for key in keys.values_mut().filter(|key| same(key)) {
            take_revoked(key, ends, &mut taken);
        }
        if taken.is_empty() {
            return Ok(Vec::new());
        }
        match Exchange::begin(taken) {
            Ok(exchange) => {
                self.running = Some(Running { key: id, exchange, error: None });
                // A key could not be bound either if nobody had to pause before.
                let until = Instant::now();
                self.paused.get_or_insert(Paused { memory: of_memory, key: id, until });
                Ok(Vec::new())
            }
            Err((error, grants)) => {
                keys.entry(id).and_modify(|key| key.taken = grants);
                Err(refused(&error))
            }
        }
    }

    /// Exchanges the next pages. Returns the key whose exchange is finished.
    pub(super) fn step(&mut self, keys: &HashMap<KeyId, GrantKey>) -> Option<KeyId> {
        let Running { key: id, exchange, error } = self.running.as_mut()?;
        let memory = keys.get(id).and_then(|key| key.memory.upgrade());
        // Until the end of the step. What the owner writes meanwhile is written again.
        let pages = memory.as_ref().map(|memory| memory.lock_pages());
        // What it changes by a reference to an atomic would be lost. The carrier has a handle, and so has
        // this function.
        let has_atomics = pages.as_ref().is_some_and(|pages| pages.has_atomics());
        let may_change = has_atomics && memory.as_ref().is_some_and(|memory| Arc::strong_count(memory) > 2);
        if error.is_some() || may_change {
            return None;
        }
        *error = exchange.step().err();
        if error.is_some() || exchange.left() > 0 {
            return None;
        }
        let Running { key, exchange, .. } = self.running.take()?;
        exchange.finish().ok()?;
        Some(key)
    }

    /// Returns whether keys that were not bound because of a pause can be bound now. It is over if its
    /// exchange has ended, or has not begun in time.
    pub(super) fn has_resumed(&mut self) -> bool {
        let is_over = |paused: &mut Paused| match &self.running {
            Some(running) => running.key != paused.key,
            None => paused.until <= Instant::now(),
        };
        self.paused.take_if(is_over).is_some()
    }

    /// Ends the pause for the exchange of a key, which has ended.
    pub(super) fn end_pause(&mut self, id: KeyId) {
        if let Some(paused) = self.paused.as_mut().filter(|paused| paused.key == id) {
            paused.until = Instant::now();
        }
    }

    /// Stops the exchange of a key. Its memory is leaked, because a part of it is still within reach
    /// of the peer, and nothing will prove that it is not.
    pub(super) fn stop(&mut self, id: KeyId) {
        self.running.take_if(|running| running.key == id);
        self.end_pause(id);
    }
}

/// Takes the grants of a key from their links. A key that has not ended is bound to closed links only.
fn take_revoked(key: &mut GrantKey, ends: &mut BTreeMap<LinkKey, End>, taken: &mut Vec<RevokedGrant>) {
    taken.append(&mut key.taken);
    key.bound.retain(|(of, value)| {
        let Some(end) = ends.get_mut(of) else { return true };
        match end.link().and_then(|link| link.take_revoked(*value)) {
            Some(grant) => {
                end.grants.remove(value);
                taken.push(grant);
                key.is_taken = true;
                false
            }
            // It has ended meanwhile, which the next poll of the link reports.
            None => true,
        }
    });
}

/// Ends a key by which its peer could only read. That needs no exchange: the peer's library reports that
/// the key was revoked, whatever it still reads.
fn end_reading(key: &mut GrantKey, ends: &mut BTreeMap<LinkKey, End>) {
    key.bound.retain(|(of, value)| {
        let Some(end) = ends.get_mut(of) else { return true };
        let Some(grant) = end.link().and_then(|link| link.take_revoked(*value)) else { return true };
        end.grants.remove(value);
        // It is a grant for reading, so it ends.
        drop(grant.end_reading());
        false
    });
}

fn refused(error: &ExchangeError) -> RailError {
    RailError::new(OPERATION, error.to_string(), error.fix())
}
