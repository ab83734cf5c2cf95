//! What a write without bytes becomes: one of a byte, to a place that nobody reads.
//!
//! Not every library does a write without bytes: one never completes it when it is asked for delivery, and those that do it look its key up
//! all the same. So there is a place for them on each side, and a byte to write to it.

use std::sync::{Arc, OnceLock};

use farreach_fabric::{Domain, Error, ExposedKey, RemoteAccess, RemoteRegion};
use farreach_memory::{Exposed, Memory, Shared};

/// How many bytes there are to write to.
pub(super) const LEN: u64 = 1;

/// The place where peers write, and the byte that is written to theirs.
#[derive(Debug)]
pub(super) struct Landing {
    /// Taken out at the end.
    key: Option<ExposedKey>,
    remote: RemoteRegion,
    byte: Shared,
}

impl Landing {
    pub(super) fn new(domain: &Domain) -> Result<Self, Error> {
        let byte = domain.allocate(LEN as usize)?.share();
        let key = domain.expose_also(memory()?, RemoteAccess::WRITE)?;
        Ok(Self { remote: key.remote(), key: Some(key), byte })
    }

    /// What peers are told.
    pub(super) fn remote(&self) -> RemoteRegion {
        self.remote
    }

    /// What is written to a peer's.
    #[inline]
    pub(super) fn byte(&self) -> Shared {
        self.byte.clone()
    }
}

/// One for all rails of the process. It stays until the end, whatever a peer may still write to it.
fn memory() -> Result<&'static Arc<Exposed>, Error> {
    static MEMORY: OnceLock<Arc<Exposed>> = OnceLock::new();
    match MEMORY.get() {
        Some(memory) => Ok(memory),
        None => {
            let memory = Arc::new(Memory::allocate(LEN as usize)?.expose());
            Ok(MEMORY.get_or_init(|| memory))
        }
    }
}

impl Drop for Landing {
    fn drop(&mut self) {
        let Some(key) = self.key.take() else { return };
        // What fails is counted, and kept.
        // SAFETY: the memory is held for good, and nobody ever conceals it.
        let _ = unsafe { key.end_trusting_peers() };
    }
}
