//! Atomic operations: which there are, and where their operands lie.

use std::ffi::c_void;
use std::ptr::NonNull;

use farreach_fabric_sys as sys;
use farreach_memory::Lent;

use crate::handle::Handle;
use crate::{Domain, Error};

/// The bytes of an operand.
pub(super) const WORD: usize = size_of::<u64>();

/// An operation has two at most.
const OPERANDS_SIZE: usize = 2 * WORD;

/// Which atomic operations an endpoint has, on eight bytes: `fi_atomicvalid(3)`.
///
/// The capability is not enough: one provider offers it and then has no operation.
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
    /// Fetch and add.
    pub fetch_add: bool,
    /// Compare and swap.
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

/// Where the operands of atomic operations lie while these are in flight: two words for each place of the table, which has one more than its depth.
#[derive(Debug)]
pub(super) struct Operands {
    /// Which nobody can have a reference into.
    memory: Lent,
    /// As operations name it, where the provider asks for that.
    pub(super) descriptor: u64,
}

impl Operands {
    pub(super) fn new(domain: &Domain, depth: usize) -> Result<Self, Error> {
        let memory = domain.allocate((depth + 1) * OPERANDS_SIZE)?.lend();
        let descriptor = memory.local_key(domain.id()).unwrap_or(0);
        Ok(Self { memory, descriptor })
    }

    /// Writes the operands of an operation that is about to be posted, and gives their addresses.
    pub(super) fn set(&self, index: usize, operands: [u64; 2]) -> [*const c_void; 2] {
        let offset = index * OPERANDS_SIZE;
        assert!(offset + OPERANDS_SIZE <= self.memory.len(), "a place has its operands");
        let place: NonNull<[u64; 2]> = self.memory.address().cast();
        // SAFETY: the assertion has seen that both words lie within the memory, which begins a page of its own, so that they are aligned. Nobody else touches
        // them: they are those of one place of the table, whose operation the caller has put there and not handed to the provider yet. `Lent` forms no references.
        unsafe {
            let place = place.byte_add(offset);
            place.write(operands);
            let first: NonNull<u64> = place.cast();
            [first.as_ptr().cast_const().cast(), first.add(1).as_ptr().cast_const().cast()]
        }
    }
}
