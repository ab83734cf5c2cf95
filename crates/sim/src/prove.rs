//! Exchanges of pages: the proof of a card within the host for peers that do not confirm that they have stopped.
//!
//! As the engine's rail does it: other peers that have keys to the memory pause, which ends their links; then the
//! pages are exchanged, in steps, while no key to the memory can be made. Memory that shares its pages with other
//! memory cannot be exchanged; a proof of it is an event without further effects.

use std::sync::{Arc, Weak};

use farreach_memory::{Exchange, ExchangeError, Exposed};
use farreach_rail::KeyId;

use super::action::Action;
use super::end::{EndState, Failure, Ready};
use super::exchange::Running;
use super::key::KeptMemory;
use super::world::World;

impl World {
    /// Begins to prove that an ended key has ended, without its peers, or goes on to. Returns the reason for
    /// which that is not possible.
    pub(super) fn begin_proof(&mut self, card: usize, id: KeyId) -> Result<(), &'static str> {
        let key = usize::try_from(id.0).ok().filter(|key| *key < self.keys.len());
        let key = key.filter(|key| self.keys[*key].card == card).ok_or("there is no such key")?;
        match self.keys[key].memory {
            KeptMemory::Dead => {}
            KeptMemory::Gone => return Ok(()),
            _ => return Err("the key has not ended"),
        }
        let of = self.keys[key].of.clone();
        if self.keys[key].is_being_proven || self.exchanges.is_running(&of) {
            return Ok(());
        }
        // Memory that was given back without a proof is in the hand of its owner.
        let Some(memory) = of.upgrade() else { return self.prove_without_exchange(key) };
        let same: Vec<usize> = (0..self.keys.len())
            .filter(|other| self.keys[*other].card == card && Weak::ptr_eq(&self.keys[*other].of, &of))
            .collect();
        let guards: usize = same.iter().map(|key| self.keys[*key].guards.len()).sum();
        let owner_has_handle = Arc::strong_count(&memory) > 2;
        self.exchanges.end_pause(key);
        if memory.keys() != guards {
            return Err("other cards have keys to the memory");
        }
        if memory.has_atomics() && owner_has_handle {
            return Err("the owner may change the memory by a reference to an atomic");
        }
        drop(memory);
        if self.pause_others(&same) {
            self.exchanges.pausing.push((of, key));
            return Ok(());
        }
        self.begin_exchange(key, of, &same)
    }

    /// Ends the links over which others have live keys. Returns `false` if there are none.
    fn pause_others(&mut self, same: &[usize]) -> bool {
        let mut has_paused = false;
        for key in same {
            if !matches!(self.keys[*key].memory, KeptMemory::Live(_)) {
                continue;
            }
            for (end, _) in self.keys[*key].bound.clone() {
                let state = self.ends[end].state;
                has_paused |= state != EndState::Closed;
                if state == EndState::Connected {
                    self.ends[end].state = EndState::Broken;
                    let card = self.ends[end].card;
                    self.cards[card].push(Ready::LinkDown { end, reason: Failure::Closed });
                }
            }
        }
        has_paused
    }

    #[expect(unsafe_code, reason = "a card knows what leads to memory")]
    fn begin_exchange(
        &mut self,
        key: usize,
        memory: Weak<Exposed>,
        same: &[usize],
    ) -> Result<(), &'static str> {
        let (mut keys, mut guards) = (Vec::new(), Vec::new());
        for same in same {
            let of_key = std::mem::take(&mut self.keys[*same].guards);
            keys.extend(of_key.iter().map(|_| *same));
            guards.extend(of_key);
        }
        // SAFETY: a simulated card has no other way to the memory than handles on `Exposed`, and lets go of those
        // that operations with these keys have before the exchange ends the guards.
        match unsafe { Exchange::begin(guards) } {
            Ok(exchange) => {
                self.exchanges.running.push(Running { memory, keys, exchange });
                let at_ns = self.after_step();
                self.schedule(at_ns, Action::ProveKey { key });
                Ok(())
            }
            Err((error, guards)) => {
                keys.iter().zip(guards).for_each(|(key, guard)| self.keys[*key].guards.push(guard));
                match error {
                    ExchangeError::OtherKeys => Err("the memory has other keys"),
                    _ => self.prove_without_exchange(key),
                }
            }
        }
    }

    fn prove_without_exchange(&mut self, key: usize) -> Result<(), &'static str> {
        self.keys[key].is_being_proven = true;
        let at_ns = self.after_step();
        self.schedule(at_ns, Action::ProveKey { key });
        Ok(())
    }

    /// Takes the next step of a proof.
    pub(super) fn prove_key(&mut self, key: usize) {
        if self.keys[key].is_being_proven {
            return self.key_has_ended(key);
        }
        let Some(index) = self.exchanges.running.iter().position(|it| it.keys.contains(&key)) else { return };
        let running = &mut self.exchanges.running[index];
        let owner_has_handle = running.memory.upgrade().is_none_or(|memory| Arc::strong_count(&memory) > 2);
        match running.exchange.step(owner_has_handle) {
            Ok(()) if running.exchange.left() > 0 => {
                let at_ns = self.after_step();
                self.schedule(at_ns, Action::ProveKey { key });
            }
            Ok(()) => self.end_exchange(index),
            Err(_) => self.give_up_exchange(index),
        }
    }

    /// Ends an exchange of all pages: whoever has reached the old ones has no way to the memory any more.
    fn end_exchange(&mut self, index: usize) {
        let Running { mut keys, exchange, .. } = self.exchanges.running.swap_remove(index);
        keys.dedup();
        keys.iter().for_each(|key| self.let_go_of_key(*key));
        exchange.finish().expect("all its steps are done");
        for key in keys {
            // One that has not ended was bound to closed links only. A stopped peer may go on with one that
            // has: its link refuses that, or it finds the old pages.
            if matches!(self.keys[key].memory, KeptMemory::Live(_)) {
                self.keys[key].bound.clear();
            }
            self.key_has_ended(key);
        }
    }

    /// Gives an exchange up that cannot go on. Its grants end with their peers, and others go on.
    fn give_up_exchange(&mut self, index: usize) {
        let Running { keys, exchange, .. } = self.exchanges.running.swap_remove(index);
        let guards = exchange.give_up();
        for (key, guard) in keys.into_iter().zip(guards) {
            self.keys[key].guards.push(guard);
            // A peer may have confirmed its end meanwhile.
            let at_ns = self.after_step();
            self.schedule(at_ns, Action::ConfirmKey { key });
        }
    }

    /// Gives up all exchanges of a card that is gone.
    pub(super) fn give_up_exchanges(&mut self, card: usize) {
        let keys = &self.keys;
        let of_card = |it: &Running| it.keys.iter().any(|key| keys[*key].card == card);
        if let Some(index) = self.exchanges.running.iter().position(of_card) {
            self.give_up_exchange(index);
            self.give_up_exchanges(card);
        }
    }
}
