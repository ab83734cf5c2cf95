//! Exchanges of pages: the proof for peers that do not confirm that they have stopped.
//!
//! Each memory has its own exchange. Those that run take turns, a step with each poll, so that others are
//! served between, and none waits for the end of a long one.
//!
//! Other peers may have keys to the same pages, and would go on in the old ones. So they pause: their links
//! are reported as lost, which revokes what they have, and no key to the memory is bound until the exchange
//! is over. The machine connects them again, and they get keys to the new pages. Nobody pauses for an
//! exchange that is known to be impossible.
//!
//! An exchange that cannot begin is given up: its grants go back to their links, where the end of the peer's
//! process proves them as before, and others go on. The machine asks again. One that has exchanged some pages
//! is continued later, because memory in two files cannot be granted.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use farreach_memory::Exposed;
use farreach_rail::{KeyId, LinkKey, RailError};
use farreach_shm::{Exchange, ExchangeError, Link, RevokedGrant};

use super::end::End;
use super::key::GrantKey;

const OPERATION: &str = "prove that a peer has stopped, by an exchange of pages";

/// How long others pause for an exchange that does not begin.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The time after which an exchange is tried again that has proven nothing. Until then, others that have
/// paused for it work.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// The time after which a step is tried again that has failed.
const STEP_AGAIN_AFTER: Duration = Duration::from_millis(250);

/// The proofs that are under way, one for each memory at most.
#[derive(Debug, Default)]
pub(super) struct Proofs {
    all: Vec<Proof>,
    /// Whose turn it is.
    turn: usize,
    /// Whether one has ended since [`has_resumed`](Self::has_resumed) was asked.
    has_ended: bool,
}

#[derive(Debug)]
struct Proof {
    memory: Weak<Exposed>,
    /// The ended key for which it was begun.
    key: KeyId,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// The links of others are being closed.
    Pausing { until: Instant },
    Exchanging {
        exchange: Exchange,
        taken: Vec<Taken>,
        /// The number of bytes to exchange.
        len: usize,
        /// The time of the next step, if the last one has failed.
        retry_at: Option<Instant>,
    },
}

/// A grant that was taken from its link for an exchange.
#[derive(Debug, Clone, Copy)]
struct Taken {
    key: KeyId,
    link: LinkKey,
    value: u64,
}

/// What a step has changed.
#[derive(Debug, Default)]
pub(super) struct Changed {
    /// Keys that have ended on a link.
    pub(super) keys: Vec<KeyId>,
    /// Links that must be polled.
    pub(super) links: Vec<LinkKey>,
}

impl Proofs {
    /// Returns `true` if the next poll has something to do.
    pub(super) fn has_step(&self) -> bool {
        self.all.iter().any(Proof::has_step)
    }

    /// Returns whether keys to this memory must not be bound now.
    pub(super) fn pauses(&self, memory: &Weak<Exposed>) -> bool {
        // The memory may have been given back and granted anew since its exchange began.
        self.find(memory).is_some() || memory.upgrade().is_some_and(|memory| memory.is_exchanging())
    }

    fn find(&self, memory: &Weak<Exposed>) -> Option<&Proof> {
        self.all.iter().find(|proof| Weak::ptr_eq(&proof.memory, memory))
    }

    fn remove(&mut self, memory: &Weak<Exposed>) {
        let before = self.all.len();
        self.all.retain(|proof| !Weak::ptr_eq(&proof.memory, memory));
        self.has_ended |= self.all.len() < before;
    }

    /// Begins an exchange for an ended key, or continues to. Returns the links that must be lost before:
    /// over them, other peers have keys to the same pages.
    pub(super) fn begin(
        &mut self,
        id: KeyId,
        keys: &mut HashMap<KeyId, GrantKey>,
        ends: &mut BTreeMap<LinkKey, End>,
        now: Instant,
    ) -> Result<Vec<LinkKey>, RailError> {
        let Some(key) = keys.get_mut(&id) else { return Ok(Vec::new()) };
        if let Some(error) = key.failed.take() {
            return Err(refused(&error));
        }
        // The memory was given back without a proof.
        let Some(memory) = key.memory.upgrade() else { return Ok(Vec::new()) };
        let of_memory = key.memory.clone();
        let has_paused = match self.find(&of_memory) {
            Some(Proof { stage: Stage::Pausing { .. }, key, .. }) if *key == id => true,
            // It proves this one too, or is about to.
            Some(_) => return Ok(Vec::new()),
            None if key.retry_at.is_some_and(|at| now < at) => return Ok(Vec::new()),
            None => false,
        };
        // The end of a process is reported by its link.
        if key.bound.iter().all(|(of, _)| has_ended(ends, *of)) {
            self.remove(&of_memory);
            return Ok(Vec::new());
        }
        let same = |key: &GrantKey| Weak::ptr_eq(&key.memory, &of_memory);
        // Each binding is one key of the memory. More keys belong to other rails, whose peers an
        // exchange does not stop.
        let count = keys.values().filter(|key| same(key)).map(|key| key.bound.len()).sum();
        let error = match () {
            () if memory.keys() != count => Some(ExchangeError::OtherKeys),
            () if memory.has_atomics() && owner_has_handle(&memory) => Some(ExchangeError::OwnerMayWrite),
            () => None,
        };
        drop(memory);
        if let Some(error) = error {
            self.remove(&of_memory);
            return Err(refused(&error));
        }
        // A closed link has revoked its grants already, so only open ones must be lost.
        let is_open = |of: &LinkKey| ends.get(of).is_some_and(|end| !end.is_closed);
        let others = keys.values().filter(|key| same(key) && !key.is_ended);
        let live: Vec<LinkKey> =
            others.flat_map(|key| &key.bound).map(|(of, _)| *of).filter(is_open).collect();
        if !live.is_empty() {
            if has_paused {
                // They are being closed.
                return Ok(Vec::new());
            }
            keys.entry(id).and_modify(|key| key.retry_at = Some(now + RETRY_AFTER));
            // The links are lost by the caller. They meet again, but their keys wait until the
            // pause is over.
            let stage = Stage::Pausing { until: now + PAUSE_MAX };
            self.all.push(Proof { memory: of_memory, key: id, stage });
            return Ok(live);
        }
        self.remove(&of_memory);
        let (grants, taken) = take_revoked(keys, ends, same);
        // All have ended meanwhile. Polls of their links report it.
        if grants.is_empty() {
            return Ok(Vec::new());
        }
        match Exchange::begin(grants) {
            Ok(exchange) => {
                let len = exchange.left();
                let stage = Stage::Exchanging { exchange, taken, len, retry_at: None };
                self.all.push(Proof { memory: of_memory, key: id, stage });
                Ok(Vec::new())
            }
            Err((error, grants)) => {
                // Only a link reports that a grant has ended, so no grant may stay here.
                put_back(grants, &taken, ends);
                keys.entry(id).and_modify(|key| key.retry_at = Some(now + RETRY_AFTER));
                Err(refused(&error))
            }
        }
    }

    /// Exchanges the next pages of one memory.
    pub(super) fn step(
        &mut self,
        keys: &mut HashMap<KeyId, GrantKey>,
        ends: &mut BTreeMap<LinkKey, End>,
    ) -> Changed {
        let count = self.all.len();
        // From the one after the last: a long exchange must not keep another one waiting.
        let next = (0..count).map(|offset| (self.turn + offset) % count).find(|at| self.all[*at].has_step());
        let Some(index) = next else { return Changed::default() };
        self.turn = index + 1;
        let Proof { memory, key, stage } = &mut self.all[index];
        let Stage::Exchanging { exchange, taken, len, retry_at } = stage else {
            unreachable!("it was chosen because it has a step");
        };
        // A memory that was given back is in the hand of its owner.
        let owner_has_handle = memory.upgrade().is_none_or(|memory| owner_has_handle(&memory));
        match exchange.step(owner_has_handle) {
            Ok(()) if exchange.left() > 0 => {
                *retry_at = None;
                Changed::default()
            }
            Ok(()) => self.end(index, None, keys, ends),
            // The end of all peers is the proof.
            Err(error)
                if exchange.left() == *len || taken.iter().all(|taken| has_ended(ends, taken.link)) =>
            {
                self.end(index, Some(error), keys, ends)
            }
            Err(error) => {
                // Some pages are in the new file already, and memory in two files cannot be
                // granted, so this one has to go on.
                *retry_at = Some(Instant::now() + STEP_AGAIN_AFTER);
                keys.entry(*key).and_modify(|key| key.failed = Some(error));
                Changed::default()
            }
        }
    }

    /// Ends the exchange at this index: finishes it, or gives it up because of an error.
    fn end(
        &mut self,
        index: usize,
        error: Option<ExchangeError>,
        keys: &mut HashMap<KeyId, GrantKey>,
        ends: &mut BTreeMap<LinkKey, End>,
    ) -> Changed {
        self.has_ended = true;
        let Proof { key: asked, stage, .. } = self.all.swap_remove(index);
        let Stage::Exchanging { exchange, taken, .. } = stage else { return Changed::default() };
        let links = taken.iter().map(|taken| taken.link).collect();
        // An exchange ends its grants only if no page is left. Otherwise they have to go back.
        let unfinished = match &error {
            None => exchange.finish().err(),
            Some(_) => Some(exchange),
        };
        if let Some(exchange) = unfinished {
            put_back(exchange.give_up(), &taken, ends);
            if let Some(key) = keys.get_mut(&asked) {
                (key.failed, key.retry_at) = (error, Some(Instant::now() + RETRY_AFTER));
            }
            return Changed { keys: Vec::new(), links };
        }
        for Taken { key, link, value } in &taken {
            if let Some(end) = ends.get_mut(link) {
                // The link forgets the grant, too. It would otherwise wait for the peer to confirm
                // it.
                end.grants.remove(value);
                if let Some(met) = end.link() {
                    met.exchanged(*value);
                }
            }
            if let Some(key) = keys.get_mut(key) {
                key.bound.retain(|bound| *bound != (*link, *value));
            }
        }
        Changed { keys: taken.iter().map(|taken| taken.key).collect(), links }
    }

    /// Gives up all exchanges, so that their grants end with the peers.
    pub(super) fn give_up(&mut self, keys: &mut HashMap<KeyId, GrantKey>, ends: &mut BTreeMap<LinkKey, End>) {
        while !self.all.is_empty() {
            // Nobody reads this error: the rail is about to be dropped.
            self.end(0, Some(ExchangeError::OtherKeys), keys, ends);
        }
    }

    /// Returns whether keys that were not bound because of a pause can be bound now: a proof has ended, or
    /// has not begun in time.
    pub(super) fn has_resumed(&mut self) -> bool {
        // Without proofs the clock is not read: every poll asks.
        if self.all.is_empty() && !self.has_ended {
            return false;
        }
        let (before, now) = (self.all.len(), Instant::now());
        self.all.retain(|proof| !matches!(proof.stage, Stage::Pausing { until } if until <= now));
        std::mem::take(&mut self.has_ended) || self.all.len() < before
    }

    /// Ends the pause for a key that needs no exchange any more.
    pub(super) fn end_pause(&mut self, id: KeyId) {
        let before = self.all.len();
        // An exchange that runs goes on: some pages may be in the new file already.
        self.all.retain(|proof| proof.key != id || matches!(proof.stage, Stage::Exchanging { .. }));
        self.has_ended |= self.all.len() < before;
    }
}

impl Proof {
    fn has_step(&self) -> bool {
        match &self.stage {
            Stage::Pausing { .. } => false,
            Stage::Exchanging { retry_at, .. } => retry_at.is_none_or(|at| at <= Instant::now()),
        }
    }
}

/// Returns whether the process at the other side of a link has ended.
fn has_ended(ends: &mut BTreeMap<LinkKey, End>, link: LinkKey) -> bool {
    let link = ends.get_mut(&link).and_then(End::link);
    link.is_none_or(|link| link.process().has_ended())
}

/// Returns whether anybody but the carrier and the caller has a handle.
fn owner_has_handle(memory: &Arc<Exposed>) -> bool {
    Arc::strong_count(memory) > 2
}

/// Takes the grants of a memory from their links. A key that has not ended is bound to closed links only.
/// What has ended meanwhile is not taken: the next poll of its link reports it.
fn take_revoked(
    keys: &HashMap<KeyId, GrantKey>,
    ends: &mut BTreeMap<LinkKey, End>,
    same: impl Fn(&GrantKey) -> bool,
) -> (Vec<RevokedGrant>, Vec<Taken>) {
    let mut grants = (Vec::new(), Vec::new());
    for (id, key) in keys.iter().filter(|(_, key)| same(key)) {
        for (link, value) in &key.bound {
            let met = ends.get_mut(link).and_then(End::link);
            if let Some(grant) = met.and_then(|met| met.take_revoked(*value)) {
                grants.0.push(grant);
                grants.1.push(Taken { key: *id, link: *link, value: *value });
            }
        }
    }
    grants
}

/// Puts grants back to the links from which they were taken, in the same order.
fn put_back(grants: Vec<RevokedGrant>, taken: &[Taken], ends: &mut BTreeMap<LinkKey, End>) {
    for (grant, taken) in grants.into_iter().zip(taken) {
        let link: Option<&mut Link> = ends.get_mut(&taken.link).and_then(End::link);
        link.expect("a link stays as long as it has grants").put_back(grant);
    }
}

fn refused(error: &ExchangeError) -> RailError {
    RailError::new(OPERATION, error.to_string(), error.fix())
}
