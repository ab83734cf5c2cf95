//! The exchanges of pages that are under way.

#[cfg(test)]
use std::fmt;
use std::sync::{Arc, Weak};

use farreach_memory::{Exchange, Exposed};

/// The exchanges that are under way, and those that others pause for.
#[derive(Default)]
pub(super) struct Exchanges {
    pub(super) running: Vec<Running>,
    /// The memory, and the ended key for which it is to be exchanged.
    pub(super) pausing: Vec<(Weak<Exposed>, usize)>,
}

pub(super) struct Running {
    pub(super) memory: Weak<Exposed>,
    /// The keys whose guards it has, as often as it has guards of them.
    pub(super) keys: Vec<usize>,
    pub(super) exchange: Exchange,
}

impl Exchanges {
    /// Returns whether keys to this memory must not be bound now.
    pub(super) fn pauses(&self, memory: &Arc<Exposed>) -> bool {
        let is_it = |(of, _): &(Weak<Exposed>, usize)| of.as_ptr() == Arc::as_ptr(memory);
        self.pausing.iter().any(is_it)
    }

    /// Ends the pause for a key that needs no exchange any more.
    pub(super) fn end_pause(&mut self, key: usize) {
        self.pausing.retain(|(_, asked)| *asked != key);
    }

    pub(super) fn is_running(&self, memory: &Weak<Exposed>) -> bool {
        self.running.iter().any(|it| Weak::ptr_eq(&it.memory, memory))
    }

    /// Returns whether an exchange has the guards of a key.
    pub(super) fn has_taken(&self, key: usize) -> bool {
        self.running.iter().any(|it| it.keys.contains(&key))
    }

    #[cfg(test)]
    pub(super) fn write_state(&self, into: &mut dyn fmt::Write) -> fmt::Result {
        let running = self.running.iter().map(|it| (&it.keys, it.exchange.left()));
        running.into_iter().try_for_each(|it| write!(into, "exchange {it:?};"))?;
        self.pausing.iter().try_for_each(|(_, key)| write!(into, "pause {key};"))
    }
}
