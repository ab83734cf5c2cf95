//! Keys: memory that a peer may access over each of its links.

use std::sync::{Arc, Weak};
use std::time::Instant;

use farreach_memory::Exposed;
use farreach_rail::{LinkKey, PeerKey};
use farreach_shm::{Access, ExchangeError};

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
    pub(super) is_ended: bool,
    /// Whether its end was reported. It is reported before it is proven for [shared](Exposed::is_read_only)
    /// memory, which stays shared until then.
    pub(super) is_told: bool,
    /// The error of the exchange that was to prove its end. The next request for a proof returns it.
    pub(super) failed: Option<ExchangeError>,
    /// The time from which another exchange may begin, after a pause or an exchange that proved nothing.
    pub(super) retry_at: Option<Instant>,
}

impl GrantKey {
    pub(super) fn new(peer: PeerKey, memory: &Arc<Exposed>, rights: Rights) -> Self {
        // An atomic changes the memory, too.
        let access = match rights.intersects(Rights::WRITE | Rights::ATOMIC) {
            true => Access::ReadWrite,
            false => Access::ReadOnly,
        };
        let (memory, bound) = (Arc::downgrade(memory), Vec::new());
        let (is_ended, is_told, failed, retry_at) = (false, false, None, None);
        Self { peer, memory, access, bound, is_ended, is_told, failed, retry_at }
    }
}
