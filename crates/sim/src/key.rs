//! Keys of exposed memory, alive and ended.

use std::sync::{Arc, Weak};

use farreach_memory::{Exposed, KeyGuard};
use farreach_proto::rights::Rights;
use farreach_rail::PeerKey;

pub(super) struct KeyEntry {
    pub(super) card: usize,
    /// The peer that it was made for.
    pub(super) peer: PeerKey,
    pub(super) rights: Rights,
    pub(super) address: u64,
    pub(super) len: u64,
    pub(super) memory: KeptMemory,
    /// The ends that it is bound to, and the number that work requests over each carry.
    pub(super) bound: Vec<(usize, u64)>,
    /// The numbers with which the peer cannot use it.
    pub(super) not_mapped: Vec<u64>,
    /// The memory, also when the key has ended.
    pub(super) of: Weak<Exposed>,
    /// Present until it is proven that nothing is in flight with the key: one for the key, or one for each
    /// link that it is or was bound to, where the end of keys is reported.
    pub(super) guards: Vec<KeyGuard>,
    /// Whether it was made while the pages of the memory were being exchanged: it leads to the old ones.
    pub(super) is_of_old_pages: bool,
    /// Whether a proof that the card was asked for is under way.
    pub(super) is_being_proven: bool,
    /// The ends of links over which operations with the ended key may be in flight.
    pub(super) ends: Vec<usize>,
}

pub(super) enum KeptMemory {
    Live(Arc<Exposed>),
    /// The key could not be ended, and its guard is leaked.
    Leaked(Weak<Exposed>),
    /// The key was ended.
    Dead,
    /// The host was killed.
    Gone,
}

impl KeyEntry {
    /// Ends the guards: nothing is in flight with the key, and nothing can begin.
    #[expect(unsafe_code, reason = "a card proves when nothing reaches memory by a key")]
    pub(super) fn end_guards(&mut self) {
        for guard in self.guards.drain(..) {
            // SAFETY: the guard must end only when nothing reaches the memory with the key. A
            // simulated card reaches memory only through handles on `Exposed`, and none exists
            // beside the slice that the owner may make of it.
            unsafe { guard.end() };
        }
    }
}
