//! Counts objects that could not be released.
//!
//! A provider may still use an object that it does not close. Nothing that such an object depends
//! on is freed: it stays until the process ends, and is counted here.

use std::sync::atomic::{AtomicU64, Ordering};

/// Returns the numbers of objects that could not be released so far in this process. Objects that a
/// leaked child keeps alive are not counted.
///
/// ```
/// assert_eq!(farreach_fabric::leaked().total(), 0);
/// ```
pub fn leaked() -> Leaked {
    let of = |kind: Kind| COUNTS[kind as usize].load(Ordering::Relaxed);
    Leaked {
        fabrics: of(Kind::Fabric),
        domains: of(Kind::Domain),
        endpoints: of(Kind::Endpoint),
        address_vectors: of(Kind::AddressVector),
        addresses: of(Kind::Address),
        completion_queues: of(Kind::CompletionQueue),
        memory_regions: of(Kind::MemoryRegion),
        exposed_slices: of(Kind::ExposedSlice),
        operations: of(Kind::Operation),
    }
}

/// The numbers of objects that could not be released, by kind: see [`leaked`].
///
/// ```
/// use farreach_fabric::Leaked;
///
/// let leaked = Leaked { endpoints: 1, operations: 2, ..Leaked::default() };
/// assert_eq!(leaked.total(), 3);
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "each field is named after what it counts")]
pub struct Leaked {
    pub fabrics: u64,
    pub domains: u64,
    pub endpoints: u64,
    pub address_vectors: u64,
    pub addresses: u64,
    pub completion_queues: u64,
    pub memory_regions: u64,
    /// Slices that a peer may still reach, because the provider does not enforce keys.
    pub exposed_slices: u64,
    /// Operations whose buffers a peer may still write to, because closing the endpoint does not
    /// stop it.
    pub operations: u64,
}

impl Leaked {
    /// Returns the sum of all kinds.
    pub fn total(&self) -> u64 {
        let objects = self.fabrics + self.domains + self.endpoints + self.completion_queues;
        let addresses = self.address_vectors + self.addresses;
        objects + addresses + self.memory_regions + self.exposed_slices + self.operations
    }
}

/// The kind of a leaked object.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    Fabric,
    Domain,
    Endpoint,
    AddressVector,
    Address,
    CompletionQueue,
    MemoryRegion,
    ExposedSlice,
    Operation,
}

const KINDS: usize = Kind::Operation as usize + 1;

static COUNTS: [AtomicU64; KINDS] = [const { AtomicU64::new(0) }; KINDS];

pub(crate) fn count(kind: Kind) {
    COUNTS[kind as usize].fetch_add(1, Ordering::Relaxed);
}

/// Keeps a parent until the process ends, because a child of it could not be released.
pub(crate) fn keep<T: Clone>(parent: &T) {
    std::mem::forget(parent.clone());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_counted_by_itself() {
        let before = leaked();
        count(Kind::Operation);
        let after = leaked();
        assert_eq!(after.operations, before.operations + 1);
        assert_eq!((after.total(), after.endpoints), (before.total() + 1, before.endpoints));
    }
}
