//! Exposes memory by keys, ends the keys, and follows them to the memory.

use std::sync::{Arc, Weak};

use farreach_memory::{Exposed, KeyAccess, KeyError};
use farreach_proto::inflight::SlotId;
use farreach_proto::rights::Rights;
use farreach_rail::{EndedKeys, Key, KeyId, LinkKey, PeerKey, Scope};

use super::action::Action;
use super::end::{CardState, End, EndState, Failure, Ready};
use super::key::{KeptMemory, KeyEntry};
use super::record::Rule;
use super::world::World;

/// The number of the first key of a queue pair, so that no key can be confused with another small
/// number. Their keys are consecutive.
const FIRST_KEY: u64 = 0x1000;

/// The number of the first key that is bound to a link.
const FIRST_BOUND_KEY: u64 = 0x8000_0000;

/// The distance between the addresses of exposed memory, and the maximum length of each. Real
/// addresses are not used, because they differ between runs.
const ADDRESS_STRIDE: u64 = 1 << 40;

/// The result of ending a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EndedKey {
    Ended,
    Leaked,
    Unknown,
}

/// The memory that a work request finds at its target.
pub(super) enum Reach {
    /// This memory, from this offset on.
    Memory(Arc<Exposed>, usize),
    /// Memory without any handle on what was exposed. A real card would still write to it.
    Nowhere,
    Refused,
}

impl World {
    pub(super) fn make_key(
        &mut self,
        card: usize,
        peer: PeerKey,
        memory: &Arc<Exposed>,
        rights: Rights,
    ) -> Result<Key, KeyError> {
        let index = self.keys.len() as u64;
        // Keys of libraries have 64 bits, and cannot be guessed.
        let value = match self.cards[card].kind.has_queue_pairs {
            true => FIRST_KEY + index,
            false => scramble(self.settings.seed, index),
        };
        let is_from_zero = self.cards[card].kind.addresses_from_zero;
        let address = if is_from_zero { 0 } else { (index + 1) * ADDRESS_STRIDE };
        let is_reported = self.cards[card].kind.properties.ended_keys == EndedKeys::Reported;
        // Where the end of keys is reported, each link that the key is bound to has a guard.
        let guards = if is_reported { Vec::new() } else { vec![memory.guard_key(needed(rights))?] };
        let entry = KeyEntry {
            card,
            peer,
            rights,
            address,
            len: memory.len() as u64,
            is_of_old_pages: memory.is_exchanging(),
            of: Arc::downgrade(memory),
            memory: KeptMemory::Live(Arc::clone(memory)),
            bound: Vec::new(),
            not_mapped: Vec::new(),
            guards,
            is_being_proven: false,
            ends: Vec::new(),
        };
        let len = entry.len;
        self.keys.push(entry);
        self.keys_by_value.insert(value, index as usize);
        self.note("expose", index, len);
        Ok(Key { id: KeyId(index), address, key: value })
    }

    /// Begins to bind a key to a link of its peer. Returns `false` if that is not possible.
    pub(super) fn begin_binding(&mut self, card: usize, link: LinkKey, id: KeyId, tag: u64) -> bool {
        let Some(end) = self.end_of(card, link) else { return false };
        let key = usize::try_from(id.0).ok().filter(|key| *key < self.keys.len());
        let Some(key) = key.filter(|key| self.keys[*key].card == card) else { return false };
        let End { state, owner, .. } = &self.ends[end];
        let is_possible = self.cards[card].kind.properties.keys_are_bound
            && matches!(state, EndState::Connected | EndState::Broken)
            && *owner == self.keys[key].peer
            && self.guard_binding(key);
        if is_possible {
            let at_ns = self.after_step();
            self.schedule(at_ns, Action::Bind { end, key, tag });
        }
        is_possible
    }

    /// Makes the guard of a binding, where bindings have guards. Returns `false` if others wait for an exchange
    /// of the pages.
    fn guard_binding(&mut self, key: usize) -> bool {
        let properties = &self.cards[self.keys[key].card].kind.properties;
        let KeptMemory::Live(memory) = &self.keys[key].memory else { return true };
        if properties.ended_keys != EndedKeys::Reported {
            return true;
        }
        // A guard that is made must be ended, and here nothing would end it.
        if self.exchanges.pauses(memory) {
            return false;
        }
        let guard = memory.guard_key(needed(self.keys[key].rights)).ok();
        let is_possible = guard.is_some();
        self.keys[key].guards.extend(guard);
        is_possible
    }

    /// Binds a key to a link. A binding of an ended key fails the link.
    pub(super) fn bind(&mut self, end: usize, key: usize, tag: u64) {
        let card = self.ends[end].card;
        if self.cards[card].state != CardState::Alive {
            return;
        }
        let is_live = matches!(self.keys[key].memory, KeptMemory::Live(_));
        let bound = match self.ends[end].state {
            EndState::Connected if is_live => {
                let value = FIRST_BOUND_KEY + self.bindings;
                self.bindings += 1;
                self.keys[key].bound.push((end, value));
                let is_within_host = self.cards[card].kind.properties.scope == Scope::Host;
                if is_within_host && self.draw(|odds| odds.key_not_mapped) {
                    self.keys[key].not_mapped.push(value);
                    self.note("not mapped", key as u64, end as u64);
                }
                self.keys_by_value.insert(value, key);
                Ok((self.keys[key].address, value))
            }
            EndState::Connected => {
                let at_ns = self.after_step();
                self.schedule(at_ns, Action::Break { end });
                Err(Failure::Refused)
            }
            EndState::Closed => Err(Failure::Closed),
            EndState::Unconnected | EndState::Broken => Err(Failure::Flushed),
        };
        self.note("bind", key as u64, end as u64);
        self.cards[card].push(Ready::KeyBound { end, tag, bound });
    }

    /// Ends a key, or fails at random.
    pub(super) fn end_key(&mut self, card: usize, id: KeyId) -> EndedKey {
        let is_leaked = self.draw(|odds| odds.end_key_fails);
        let key = usize::try_from(id.0).ok().and_then(|index| self.keys.get_mut(index));
        let Some(key) = key.filter(|key| key.card == card) else { return EndedKey::Unknown };
        let KeptMemory::Live(memory) = &key.memory else { return EndedKey::Unknown };
        if is_leaked {
            key.memory = KeptMemory::Leaked(Arc::downgrade(memory));
            key.guards.clear();
            self.leaked += 1;
            self.note("leak", id.0, 0);
            return EndedKey::Leaked;
        }
        key.memory = KeptMemory::Dead;
        let properties = &self.cards[card].kind.properties;
        // A key that stops only new operations is proven dead by the end of its peer's links, or,
        // where links do not end alone, by a reset.
        key.ends =
            self.cards[card].ends.iter().copied().filter(|end| self.ends[*end].owner == key.peer).collect();
        key.ends.retain(|end| self.ends[*end].state != EndState::Closed);
        let is_proven = match properties.ended_keys {
            EndedKeys::StopAll => true,
            EndedKeys::StopNew => properties.links_end_alone && key.ends.is_empty(),
            // No peer has got a key that was bound to no link.
            EndedKeys::Reported => key.guards.is_empty(),
        };
        if is_proven {
            key.end_guards();
        }
        let is_reported = properties.ended_keys == EndedKeys::Reported;
        self.note("end_key", id.0, 0);
        if is_reported {
            self.keys[id.0 as usize].ends.clear();
            let at_ns = self.after_step();
            self.schedule(at_ns, Action::ConfirmKey { key: id.0 as usize });
        }
        EndedKey::Ended
    }

    /// Lets the peers confirm that they do not use an ended key any more. One that is stopped cannot;
    /// the end of one that was killed is a proof.
    pub(super) fn confirm_key(&mut self, key: usize) {
        // An exchange that has its guards reports it.
        if self.exchanges.has_taken(key) {
            return;
        }
        match self.stopped_until_ns(key) {
            Some(until_ns) => self.schedule(until_ns, Action::ConfirmKey { key }),
            None => self.key_has_ended(key),
        }
    }

    /// Returns the time until which a peer that has to confirm the end of a key is stopped, if one is.
    pub(super) fn stopped_until_ns(&self, key: usize) -> Option<u64> {
        let stopped_until_ns = self.keys[key].bound.iter().filter_map(|(end, _)| {
            let peer = &self.ends[self.ends[*end].peer?];
            Some(self.hosts[self.cards[peer.card].host].stopped_until_ns)
        });
        stopped_until_ns.max().filter(|until_ns| *until_ns > self.now_ns)
    }

    /// Stops all that reaches memory by an ended key, and reports it, once.
    pub(super) fn key_has_ended(&mut self, key: usize) {
        let KeyEntry { card, memory, .. } = &self.keys[key];
        let card = *card;
        if !matches!(memory, KeptMemory::Dead) || self.cards[card].state != CardState::Alive {
            return;
        }
        self.let_go_of_key(key);
        self.keys[key].memory = KeptMemory::Gone;
        self.keys[key].end_guards();
        self.exchanges.end_pause(key);
        self.note("key ended", key as u64, 0);
        self.cards[card].push(Ready::KeyEnded { key });
    }

    /// Stops the operations that have begun to access memory by a key.
    pub(super) fn let_go_of_key(&mut self, key: usize) {
        let values: Vec<u64> = self.keys[key].bound.iter().map(|(_, value)| *value).collect();
        let is_of_it = |(id, operation): (SlotId, &super::operation::Operation)| {
            let target = operation.target.filter(|_| operation.grip.is_some())?;
            values.contains(&target.key).then_some(id)
        };
        let gripping: Vec<SlotId> = self.operations.iter().filter_map(is_of_it).collect();
        for id in gripping {
            self.operation(id).grip = None;
        }
    }

    /// Ends the guards of keys for which this was the last link that could have operations in
    /// flight. It ends alone.
    pub(super) fn prove_keys_of_link(&mut self, end: usize) {
        let card = self.ends[end].card;
        for key in self.keys.iter_mut().filter(|key| key.card == card && key.ends.contains(&end)) {
            key.ends.retain(|other| *other != end);
            if key.ends.is_empty() {
                key.end_guards();
            }
        }
    }

    /// Ends the keys of a card that is gone.
    pub(super) fn forget_keys(&mut self, card: usize) {
        let is_killed = self.cards[card].state == CardState::Killed;
        self.give_up_exchanges(card);
        // Their memory is gone with its owner.
        for key in (0..self.keys.len()).filter(|key| self.keys[*key].card == card).collect::<Vec<_>>() {
            self.let_go_of_key(key);
        }
        for key in self.keys.iter_mut().filter(|key| key.card == card) {
            if is_killed || !matches!(key.memory, KeptMemory::Leaked(_)) {
                key.memory = KeptMemory::Gone;
                key.end_guards();
            }
        }
    }

    /// Ends the guards of keys that ended before a reset of the card: nothing is in flight with
    /// them any more.
    pub(super) fn prove_dead_keys(&mut self, card: usize) {
        if self.cards[card].kind.properties.ended_keys == EndedKeys::Reported {
            return;
        }
        let is_dead = |key: &&mut KeyEntry| key.card == card && matches!(key.memory, KeptMemory::Dead);
        self.keys.iter_mut().filter(is_dead).for_each(KeyEntry::end_guards);
    }

    /// Returns the number of live keys of a card.
    pub(super) fn live_keys(&self, card: usize) -> usize {
        self.keys.iter().filter(|key| key.card == card && matches!(key.memory, KeptMemory::Live(_))).count()
    }

    /// Returns `true` if the poster of a work request has not mapped the memory of its key.
    pub(super) fn is_not_mapped(&self, id: SlotId) -> bool {
        let target = self.operations.get(id).and_then(|operation| operation.target);
        target.is_some_and(|target| {
            let key = self.keys_by_value.get(&target.key).map(|key| &self.keys[*key]);
            key.is_some_and(|key| key.not_mapped.contains(&target.key))
        })
    }

    /// Looks up the memory that a work request may access, as the peer's card does when a part
    /// arrives.
    pub(super) fn reach(&mut self, id: SlotId, offset: usize, len: usize) -> Reach {
        let operation = self.operations.get(id).expect("an action refers to the operation");
        let (serial, rights, from) = (operation.serial, operation.rights(), operation.end);
        let to = &self.ends[operation.peer];
        let (card, owner, at) = (to.card, to.owner, operation.peer);
        let is_separating = self.cards[card].kind.separates_peers;
        let is_binding = self.cards[card].kind.properties.keys_are_bound;
        let Some(target) = operation.target else { return Reach::Refused };
        let index = self.keys_by_value.get(&target.key).copied().unwrap_or(usize::MAX);
        let Some(key) = self.keys.get(index).filter(|key| key.card == card) else {
            let what =
                format!("request {serial} names the key {:#x}, which card {card} never had", target.key);
            self.violate_over(from, Rule::RemoteSegment, what);
            return Reach::Refused;
        };
        if is_separating && key.peer != owner {
            let what = format!("request {serial} names the key {:#x}, which is another peer's", target.key);
            self.violate_over(from, Rule::RemoteSegment, what);
            return Reach::Refused;
        }
        if is_binding && !key.bound.contains(&(at, target.key)) {
            let what = format!("request {serial} names the key {:#x}, which is another link's", target.key);
            self.violate_over(from, Rule::RemoteSegment, what);
            return Reach::Refused;
        }
        let begin =
            target.address.checked_sub(key.address).and_then(|start| start.checked_add(offset as u64));
        let end = begin.and_then(|begin| begin.checked_add(len as u64));
        let (Some(begin), true) = (begin, end.is_some_and(|end| end <= key.len)) else {
            let what = format!("request {serial} ends beyond the {} bytes that were exposed", key.len);
            self.violate_over(from, Rule::RemoteSegment, what);
            return Reach::Refused;
        };
        if !key.rights.contains(rights) {
            let what = format!("request {serial} needs {rights:?}but its key gives {:?}", key.rights);
            self.violate_over(from, Rule::RemoteSegment, what);
            return Reach::Refused;
        }
        self.reach_memory(id, index, begin as usize)
    }

    fn reach_memory(&mut self, id: SlotId, key: usize, offset: usize) -> Reach {
        let key = &self.keys[key];
        let ended_keys = self.cards[key.card].kind.properties.ended_keys;
        let operation = self.operations.get_mut(id).expect("an action refers to the operation");
        if key.is_of_old_pages {
            let what = "a request has a key that was made while the pages were exchanged: its bytes are lost";
            let end = operation.end;
            self.violate_over(end, Rule::OldPages, what.to_owned());
            return Reach::Nowhere;
        }
        let still_reached = match &key.memory {
            KeptMemory::Live(memory) => {
                if ended_keys != EndedKeys::StopAll && operation.grip.is_none() {
                    operation.grip = Some(Arc::downgrade(memory));
                }
                return Reach::Memory(Arc::clone(memory), offset);
            }
            KeptMemory::Leaked(memory) => Some(memory),
            KeptMemory::Dead if ended_keys != EndedKeys::StopAll => operation.grip.as_ref(),
            KeptMemory::Dead | KeptMemory::Gone => None,
        };
        match still_reached.map(Weak::upgrade) {
            None => Reach::Refused,
            Some(Some(memory)) => Reach::Memory(memory, offset),
            // The owner has the memory as exposed memory that may change at any time, or has
            // dropped it, and the key keeps its pages.
            Some(None) => Reach::Nowhere,
        }
    }
}

/// Returns the access that a key with these rights gives.
fn needed(rights: Rights) -> KeyAccess {
    if rights == Rights::READ { KeyAccess::Read } else { KeyAccess::Write }
}

/// Returns a number that looks random, and differs for each seed and index.
fn scramble(seed: u64, index: u64) -> u64 {
    let mut number = seed.rotate_left(32) ^ index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    // The finaliser of splitmix64.
    number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}
