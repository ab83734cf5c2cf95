//! Keys to memory, and what is left of them when they are dead.

use std::sync::{Arc, Weak};

use farreach_core::inflight::SlotId;
use farreach_memory::Exposed;

use super::end::CardState;
use super::record::Rule;
use super::world::World;
use crate::Rights;
use crate::provider::{DeadKeys, Exposure, ExposureId};

/// Keys are numbered from here, so that none is taken for a small number of something else.
const FIRST_KEY: u64 = 0x1000;

/// Addresses of exposed memory are this far apart, and no more than that is exposed at once. They are not the real ones, because those differ from run to
/// run.
const ADDRESS_STRIDE: u64 = 1 << 40;

pub(super) struct Key {
    card: usize,
    rights: Rights,
    address: u64,
    len: u64,
    memory: KeptMemory,
}

enum KeptMemory {
    Live(Arc<Exposed>),
    /// The key could not be ended, and the memory stays for good.
    Leaked(Arc<Exposed>),
    /// The key was ended. Whether somebody still has the memory can be seen.
    Dead(Weak<Exposed>),
    /// With its host.
    Gone,
}

/// What became of a key that was to be ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Concealed {
    Ended,
    Leaked,
    Unknown,
}

/// What a request finds at its target.
pub(super) enum Reach {
    /// This memory, from this offset on.
    Memory(Arc<Exposed>, usize),
    /// Memory that was given up. A real card would write to it all the same.
    Nowhere,
    Refused,
}

impl World {
    pub(super) fn expose(&mut self, card: usize, memory: &Arc<Exposed>, rights: Rights) -> Exposure {
        let index = self.keys.len() as u64;
        let is_from_zero = self.cards[card].kind.addresses_from_zero;
        let address = if is_from_zero { 0 } else { (index + 1) * ADDRESS_STRIDE };
        let (memory, len) = (KeptMemory::Live(Arc::clone(memory)), memory.len() as u64);
        self.keys.push(Key { card, rights, address, len, memory });
        self.note("expose", index, len);
        Exposure { id: ExposureId(index), address, key: FIRST_KEY + index }
    }

    /// Ends a key, or fails to.
    pub(super) fn conceal(&mut self, card: usize, id: ExposureId) -> Concealed {
        let is_leaked = self.draw(|odds| odds.conceal_fails);
        let key = usize::try_from(id.0).ok().and_then(|index| self.keys.get_mut(index));
        let Some(key) = key.filter(|key| key.card == card) else { return Concealed::Unknown };
        let KeptMemory::Live(memory) = &key.memory else { return Concealed::Unknown };
        if is_leaked {
            key.memory = KeptMemory::Leaked(Arc::clone(memory));
            self.leaked += 1;
            self.note("leak", id.0, 0);
            return Concealed::Leaked;
        }
        key.memory = KeptMemory::Dead(Arc::downgrade(memory));
        self.note("conceal", id.0, 0);
        Concealed::Ended
    }

    /// A card is gone, and its keys with it.
    pub(super) fn forget_keys(&mut self, card: usize) {
        let is_killed = self.cards[card].state == CardState::Killed;
        for key in self.keys.iter_mut().filter(|key| key.card == card) {
            if is_killed || !matches!(key.memory, KeptMemory::Leaked(_)) {
                key.memory = KeptMemory::Gone;
            }
        }
    }

    /// How many keys of a card live.
    pub(super) fn live_keys(&self, card: usize) -> usize {
        self.keys.iter().filter(|key| key.card == card && matches!(key.memory, KeptMemory::Live(_))).count()
    }

    /// Looks up what a request may touch, as the peer's card does when a part arrives.
    pub(super) fn reach(&mut self, id: SlotId, offset: usize, len: usize) -> Reach {
        let operation = self.operations.get(id).expect("it has an action");
        let (serial, rights) = (operation.serial, operation.rights());
        let card = self.ends[operation.peer].card;
        let Some(target) = operation.target else { return Reach::Refused };
        let index = target.key.checked_sub(FIRST_KEY).and_then(|index| usize::try_from(index).ok());
        let key = index.and_then(|index| self.keys.get(index)).filter(|key| key.card == card);
        let Some(key) = key else {
            let what =
                format!("request {serial} names the key {:#x}, which card {card} never had", target.key);
            self.violate(card, Rule::Target, what);
            return Reach::Refused;
        };
        let begin =
            target.address.checked_sub(key.address).and_then(|start| start.checked_add(offset as u64));
        let end = begin.and_then(|begin| begin.checked_add(len as u64));
        let (Some(begin), true) = (begin, end.is_some_and(|end| end <= key.len)) else {
            let what = format!("request {serial} reaches beyond the {} bytes that were exposed", key.len);
            self.violate(card, Rule::Target, what);
            return Reach::Refused;
        };
        if !key.rights.contains(rights) {
            let what = format!("request {serial} needs {rights:?}, and its key gives {:?}", key.rights);
            self.violate(card, Rule::Target, what);
            return Reach::Refused;
        }
        self.reach_memory(id, index.unwrap_or_default(), begin as usize)
    }

    fn reach_memory(&mut self, id: SlotId, key: usize, offset: usize) -> Reach {
        let key = &self.keys[key];
        let dead_keys = self.cards[key.card].kind.properties.dead_keys;
        let operation = self.operations.get_mut(id).expect("it has an action");
        let still_reached = match &key.memory {
            KeptMemory::Live(memory) | KeptMemory::Leaked(memory) => {
                if dead_keys == DeadKeys::StopNew && operation.grip.is_none() {
                    operation.grip = Some(Arc::downgrade(memory));
                }
                return Reach::Memory(Arc::clone(memory), offset);
            }
            KeptMemory::Dead(memory) => match dead_keys {
                DeadKeys::StopAll => None,
                DeadKeys::StopNew => operation.grip.as_ref(),
                DeadKeys::StopNothing => Some(memory),
            },
            KeptMemory::Gone => None,
        };
        let Some(memory) = still_reached else { return Reach::Refused };
        if let Some(memory) = memory.upgrade() {
            return Reach::Memory(memory, offset);
        }
        let (serial, card) = (operation.serial, key.card);
        operation.grip = None;
        let what = format!("memory was given up, and then touched by request {serial}");
        self.violate(card, Rule::Released, what);
        Reach::Nowhere
    }

    /// A request will not touch the memory any more that it has begun to work on. It could have, up to now.
    pub(super) fn loosen_grip(&mut self, id: SlotId) {
        let operation = self.operation(id);
        let (serial, peer) = (operation.serial, operation.peer);
        if operation.grip.take().is_some_and(|memory| memory.strong_count() == 0) {
            let card = self.ends[peer].card;
            let what = format!("memory was given up while request {serial} could still touch it");
            self.violate(card, Rule::Released, what);
        }
    }
}
