//! The regions to which windows are bound: one for each memory, however many peers have a key to it.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use farreach_memory::Exposed;
use farreach_verbs::mr::AccessFlags;
use farreach_verbs::pd::ProtectionDomain;
use farreach_verbs::region::ExposedKey;

/// Names granted memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Place(usize);

/// The regions that exist. They give peers no access by themselves.
#[derive(Debug, Default)]
pub(super) struct Regions {
    /// A weak handle keeps its address from naming other memory.
    all: HashMap<Place, (Weak<Exposed>, Weak<ExposedKey>)>,
    made: u64,
}

impl Regions {
    /// Returns the region of this memory, and registers it if there is none.
    pub(super) fn get(
        &mut self,
        pd: &ProtectionDomain,
        memory: &Arc<Exposed>,
    ) -> Result<(Place, Arc<ExposedKey>), farreach_verbs::Error> {
        let place = Place(Arc::as_ptr(memory).addr());
        if let Some(region) = self.all.get(&place).and_then(|(_, region)| region.upgrade()) {
            return Ok((place, region));
        }
        // Without remote access: each peer has it by a window only.
        let access = AccessFlags::RELAXED_ORDERING | AccessFlags::MW_BIND;
        let region = Arc::new(pd.expose_also(memory, access)?);
        self.made += 1;
        self.all.insert(place, (Arc::downgrade(memory), Arc::downgrade(&region)));
        Ok((place, region))
    }

    /// Forgets a region if its last key has ended.
    pub(super) fn forget_ended(&mut self, place: Place) {
        if self.all.get(&place).is_some_and(|(_, region)| region.strong_count() == 0) {
            self.all.remove(&place);
        }
    }

    /// Returns the number of regions that were ever registered.
    pub(super) fn made(&self) -> u64 {
        self.made
    }
}
