//! Keys: memory that a peer may access over each of its links.

use std::sync::{Arc, Weak};

use farreach_memory::Exposed;
use farreach_rail::{LinkKey, PeerKey};
use farreach_shm::{Access, RevokedGrant};

use crate::Rights;

/// A key, and the links that it is bound to.
#[derive(Debug)]
pub(super) struct GrantKey {
    pub(super) peer: PeerKey,
    /// The carrier owns the memory. A handle here would keep it from giving the memory back.
    pub(super) memory: Weak<Exposed>,
    pub(super) access: Access,
    /// Each link and the number of the grant on it, until it is proven to have ended there.
    pub(super) bound: Vec<(LinkKey, u64)>,
    /// Grants that were taken from their links for an exchange that could not begin.
    pub(super) taken: Vec<RevokedGrant>,
    pub(super) is_ended: bool,
    /// Whether grants of it were taken for an exchange, perhaps that of another key, which has not ended. Until
    /// then nothing proves its end.
    pub(super) is_taken: bool,
    /// Whether others have paused for the exchange that proves its end.
    pub(super) has_paused: bool,
}

impl GrantKey {
    pub(super) fn new(peer: PeerKey, memory: &Arc<Exposed>, rights: Rights) -> Self {
        let access = match rights.intersects(Rights::WRITE | Rights::ATOMIC) {
            true => Access::ReadWrite,
            false => Access::ReadOnly,
        };
        let (bound, taken) = (Vec::new(), Vec::new());
        let (is_ended, is_taken, has_paused) = (false, false, false);
        Self { peer, memory: Arc::downgrade(memory), access, bound, taken, is_ended, is_taken, has_paused }
    }
}
