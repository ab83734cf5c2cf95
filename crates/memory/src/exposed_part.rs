//! A part of exposed memory, as a buffer of a work request.

use std::fmt;
use std::ops::RangeBounds;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::{DomainId, Exposed, bounds};

/// A part of [`Exposed`] memory that a work request of this side reads or writes.
///
/// Several work requests may hold parts that overlap, while the program copies bytes in and out: of
/// bytes that a device writes at the same time, each is the old or the new one. The memory becomes no
/// slice as long as a part exists.
///
/// ```
/// use std::sync::Arc;
/// use farreach_memory::{Buffer, ExposedPart, Memory};
///
/// let memory = Arc::new(Memory::allocate(8192)?.expose());
/// let part = ExposedPart::new(Arc::clone(&memory)).get(4096..).unwrap();
/// let request_takes = Buffer::from(part);
/// memory.write_at(4096, b"meanwhile");
/// let memory = Arc::try_unwrap(memory).expect_err("a work request holds a part");
/// drop(request_takes);
/// assert!(Arc::into_inner(memory).unwrap().try_into_slice().is_ok());
/// # Ok::<(), farreach_memory::AllocateError>(())
/// ```
#[derive(Clone)]
pub struct ExposedPart {
    memory: Arc<Exposed>,
    // Relative to the exposed memory.
    offset: usize,
    len: usize,
}

impl ExposedPart {
    /// Returns all of the memory as a part.
    pub fn new(memory: Arc<Exposed>) -> Self {
        let len = memory.len();
        Self { memory, offset: 0, len }
    }

    /// Returns a part of it, or `None` if the bounds exceed it.
    #[inline]
    pub fn get(&self, range: impl RangeBounds<usize>) -> Option<Self> {
        let part = bounds::within(&range, self.len)?;
        Some(Self { memory: Arc::clone(&self.memory), offset: self.offset + part.start, len: part.len() })
    }

    /// Returns the exposed memory that it is a part of.
    pub fn exposed(&self) -> &Arc<Exposed> {
        &self.memory
    }

    /// Returns the length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns `true` if the length is zero.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns `true` if a device may write to it: it was not made of [`Shared`](crate::Shared) memory,
    /// to which references may exist.
    #[inline]
    pub fn is_writable(&self) -> bool {
        !self.memory.is_read_only()
    }

    /// Returns the address of the first byte, as a work request names it.
    #[inline]
    pub fn address(&self) -> NonNull<u8> {
        // SAFETY: `get` returns no part that exceeds the one it is taken from, so the offset is
        // within the memory, or at its end if the part is empty.
        unsafe { self.memory.address().add(self.offset) }
    }

    /// Returns the local key under which a domain has registered it, if any.
    #[inline]
    pub fn local_key(&self, domain: DomainId) -> Option<u64> {
        self.memory.memory().local_key(domain)
    }
}

impl fmt::Debug for ExposedPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ExposedPart({}..{} of {:?})", self.offset, self.offset + self.len, self.memory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Buffer, Memory};

    #[test]
    fn parts_of_parts_keep_their_place_and_their_memory() {
        let memory = Arc::new(Memory::allocate(100).unwrap().expose());
        let part = ExposedPart::new(Arc::clone(&memory)).get(10..50).unwrap().get(5..=14).unwrap();
        assert_eq!((part.len(), part.is_empty(), part.is_writable()), (10, false, true));
        assert_eq!(part.address().as_ptr().addr() - memory.address().as_ptr().addr(), 15);
        assert!(part.get(..11).is_none());
        let memory = Arc::try_unwrap(memory).expect_err("a part exists");
        drop(part);
        assert_eq!(Arc::into_inner(memory).unwrap().try_into_slice().unwrap().len(), 100);
    }

    #[test]
    fn nothing_writes_to_memory_that_is_shared() {
        let exposed = Exposed::from(Memory::allocate(100).unwrap().share());
        let buffer = Buffer::from(ExposedPart::new(Arc::new(exposed)));
        assert!(!buffer.is_writable() && buffer.bytes().is_none());
    }
}
