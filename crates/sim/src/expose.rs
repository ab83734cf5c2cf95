//! Exposes memory by keys, ends the keys, and follows them to the memory.

use std::sync::{Arc, Weak};

use farreach_memory::Exposed;
use farreach_proto::inflight::SlotId;
use farreach_proto::rights::Rights;
use farreach_rail::{EndedKeys, Key, KeyId};

use super::end::CardState;
use super::key::{KeptMemory, KeyEntry};
use super::record::Rule;
use super::world::World;

/// The number of the first key, so that no key can be confused with another small number.
const FIRST_KEY: u64 = 0x1000;

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
    pub(super) fn make_key(&mut self, card: usize, memory: &Arc<Exposed>, rights: Rights) -> Key {
        let index = self.keys.len() as u64;
        let is_from_zero = self.cards[card].kind.addresses_from_zero;
        let address = if is_from_zero { 0 } else { (index + 1) * ADDRESS_STRIDE };
        let (guard, len) = (Some(memory.guard_key()), memory.len() as u64);
        let memory = KeptMemory::Live(Arc::clone(memory));
        self.keys.push(KeyEntry { card, rights, address, len, memory, guard });
        self.note("expose", index, len);
        Key { id: KeyId(index), address, key: FIRST_KEY + index }
    }

    /// Ends a key, or fails at random.
    pub(super) fn end_key(&mut self, card: usize, id: KeyId) -> EndedKey {
        let is_leaked = self.draw(|odds| odds.end_key_fails);
        let key = usize::try_from(id.0).ok().and_then(|index| self.keys.get_mut(index));
        let Some(key) = key.filter(|key| key.card == card) else { return EndedKey::Unknown };
        let KeptMemory::Live(memory) = &key.memory else { return EndedKey::Unknown };
        if is_leaked {
            key.memory = KeptMemory::Leaked(Arc::downgrade(memory));
            key.guard = None;
            self.leaked += 1;
            self.note("leak", id.0, 0);
            return EndedKey::Leaked;
        }
        key.memory = KeptMemory::Dead;
        if self.cards[card].kind.properties.ended_keys == EndedKeys::StopAll {
            key.end_guard();
        }
        self.note("end_key", id.0, 0);
        EndedKey::Ended
    }

    /// Ends the keys of a card that is gone.
    pub(super) fn forget_keys(&mut self, card: usize) {
        let is_killed = self.cards[card].state == CardState::Killed;
        for key in self.keys.iter_mut().filter(|key| key.card == card) {
            if is_killed || !matches!(key.memory, KeptMemory::Leaked(_)) {
                key.memory = KeptMemory::Gone;
                key.end_guard();
            }
        }
    }

    /// Ends the guards of keys that ended before a reset of the card: nothing is in flight with
    /// them any more.
    pub(super) fn prove_dead_keys(&mut self, card: usize) {
        let is_dead = |key: &&mut KeyEntry| key.card == card && matches!(key.memory, KeptMemory::Dead);
        self.keys.iter_mut().filter(is_dead).for_each(KeyEntry::end_guard);
    }

    /// Returns the number of live keys of a card.
    pub(super) fn live_keys(&self, card: usize) -> usize {
        self.keys.iter().filter(|key| key.card == card && matches!(key.memory, KeptMemory::Live(_))).count()
    }

    /// Looks up the memory that a work request may access, as the peer's card does when a part
    /// arrives.
    pub(super) fn reach(&mut self, id: SlotId, offset: usize, len: usize) -> Reach {
        let operation = self.operations.get(id).expect("an action refers to the operation");
        let (serial, rights) = (operation.serial, operation.rights());
        let card = self.ends[operation.peer].card;
        let Some(target) = operation.target else { return Reach::Refused };
        let index = target.key.checked_sub(FIRST_KEY).and_then(|index| usize::try_from(index).ok());
        let key = index.and_then(|index| self.keys.get(index)).filter(|key| key.card == card);
        let Some(key) = key else {
            let what =
                format!("request {serial} names the key {:#x}, which card {card} never had", target.key);
            self.violate(card, Rule::RemoteSegment, what);
            return Reach::Refused;
        };
        let begin =
            target.address.checked_sub(key.address).and_then(|start| start.checked_add(offset as u64));
        let end = begin.and_then(|begin| begin.checked_add(len as u64));
        let (Some(begin), true) = (begin, end.is_some_and(|end| end <= key.len)) else {
            let what = format!("request {serial} ends beyond the {} bytes that were exposed", key.len);
            self.violate(card, Rule::RemoteSegment, what);
            return Reach::Refused;
        };
        if !key.rights.contains(rights) {
            let what = format!("request {serial} needs {rights:?}but its key gives {:?}", key.rights);
            self.violate(card, Rule::RemoteSegment, what);
            return Reach::Refused;
        }
        self.reach_memory(id, index.unwrap_or_default(), begin as usize)
    }

    fn reach_memory(&mut self, id: SlotId, key: usize, offset: usize) -> Reach {
        let key = &self.keys[key];
        let ended_keys = self.cards[key.card].kind.properties.ended_keys;
        let operation = self.operations.get_mut(id).expect("an action refers to the operation");
        let still_reached = match &key.memory {
            KeptMemory::Live(memory) => {
                if ended_keys == EndedKeys::StopNew && operation.grip.is_none() {
                    operation.grip = Some(Arc::downgrade(memory));
                }
                return Reach::Memory(Arc::clone(memory), offset);
            }
            KeptMemory::Leaked(memory) => Some(memory),
            KeptMemory::Dead if ended_keys == EndedKeys::StopNew => operation.grip.as_ref(),
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
