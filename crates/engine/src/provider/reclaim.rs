//! The end of a grant.

use std::sync::Arc;

use farreach_memory::{Exposed, Slice};

/// Makes granted memory the user's alone again.
///
/// To be called by the machine only, when every rail has [concealed](super::Provider::conceal) it and nothing that a peer has begun can land
/// any more: see `machine/grant.rs`. Where somebody else still has a handle on it, it is handed back.
pub(crate) fn reclaim(memory: Arc<Exposed>) -> Result<Slice, Arc<Exposed>> {
    let exposed = Arc::try_unwrap(memory)?;
    // SAFETY: every key to it was ended, no provider holds it any more, and the machine has the proof for each rail that nothing that is under
    // way lands: the key's own death, the peer's word, the end of its process, or the rail's reset.
    Ok(unsafe { exposed.conceal() })
}
