//! Atomic operations: their availability, and the memory of their operands.

use std::ffi::c_void;
use std::ptr::NonNull;

use farreach_fabric_sys as sys;
use farreach_memory::Lent;

use crate::handle::Handle;
use crate::{Domain, Error};

/// The length of an operand in bytes.
pub(super) const WORD: usize = size_of::<u64>();

/// An operation has at most two operands.
const OPERANDS_SIZE: usize = 2 * WORD;

/// The atomic operations on eight bytes that an endpoint supports: `fi_atomicvalid(3)`.
///
/// The capability is not sufficient: one provider offers it and then has no operation.
///
/// ```
/// use farreach_fabric::Atomics;
///
/// assert!(!Atomics::default().fetch_add);
/// ```
#[doc(alias = "fi_fetch_atomicvalid")]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Atomics {
    /// Fetch-and-add.
    pub fetch_add: bool,
    /// Compare-and-swap.
    pub compare_swap: bool,
}

impl Atomics {
    pub(super) fn of(ep: &Handle<sys::fid_ep>) -> Self {
        let [fetch_add, compare_swap] = ep.has_atomics();
        Self { fetch_add, compare_swap }
    }

    pub(super) fn any(self) -> bool {
        self.fetch_add || self.compare_swap
    }
}

/// The operands of atomic operations in flight: two words for each place of the table, which has
/// one more than its depth.
#[derive(Debug)]
pub(super) struct Operands {
    /// Nobody can have a reference into it.
    memory: Lent,
    /// The descriptor of the memory, if the provider requires one.
    pub(super) descriptor: u64,
}

impl Operands {
    pub(super) fn new(domain: &Domain, depth: usize) -> Result<Self, Error> {
        let memory = domain.allocate((depth + 1) * OPERANDS_SIZE)?.lend();
        let descriptor = memory.local_key(domain.id()).unwrap_or(0);
        Ok(Self { memory, descriptor })
    }

    /// Writes the operands of an operation that is about to be posted. Returns their addresses.
    pub(super) fn set(&self, index: usize, operands: [u64; 2]) -> [*const c_void; 2] {
        let offset = index * OPERANDS_SIZE;
        assert!(offset + OPERANDS_SIZE <= self.memory.len(), "each place has its operands");
        let place: NonNull<[u64; 2]> = self.memory.address().cast();
        // SAFETY: the assertion has verified that both words lie within the memory, which begins at
        // a page, so they are aligned. No other thread accesses them: they belong to one place of
        // the table, whose operation the caller has put there and not handed to the provider yet.
        // `Lent` forms no references.
        unsafe {
            let place = place.byte_add(offset);
            place.write(operands);
            let first: NonNull<u64> = place.cast();
            [first.as_ptr().cast_const().cast(), first.add(1).as_ptr().cast_const().cast()]
        }
    }
}
