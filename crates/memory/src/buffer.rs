//! What a request takes along.

use std::ptr::NonNull;

use crate::{DomainId, Shared, Slice};

/// Bytes that a request reads from: a slice of one's own, or a shared one.
///
/// ```
/// use farreach_memory::{Buffer, Memory};
///
/// let buffer = Buffer::from(Memory::allocate(64)?.share());
/// assert_eq!(buffer.len(), 64);
/// assert!(buffer.into_slice().is_err(), "it was shared");
/// # Ok::<(), farreach_memory::AllocateError>(())
/// ```
#[derive(Debug)]
pub enum Buffer {
    /// A slice that only this request has.
    Slice(Slice),
    /// One that others may read at the same time.
    Shared(Shared),
}

impl Buffer {
    /// Its bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.as_ref().len()
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The slice, or itself where it is a shared one.
    #[inline]
    pub fn into_slice(self) -> Result<Slice, Self> {
        match self {
            Self::Slice(slice) => Ok(slice),
            shared @ Self::Shared(_) => Err(shared),
        }
    }

    /// The address of the first byte, as a request names it.
    #[inline]
    pub fn address(&self) -> NonNull<u8> {
        match self {
            Self::Slice(slice) => slice.address(),
            Self::Shared(shared) => shared.address(),
        }
    }

    /// The local key under which a domain has it registered, if it has.
    #[inline]
    pub fn local_key(&self, domain: DomainId) -> Option<u64> {
        match self {
            Self::Slice(slice) => slice.local_key(domain),
            Self::Shared(shared) => shared.local_key(domain),
        }
    }
}

impl AsRef<[u8]> for Buffer {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Slice(slice) => slice,
            Self::Shared(shared) => shared,
        }
    }
}

impl From<Slice> for Buffer {
    #[inline]
    fn from(slice: Slice) -> Self {
        Self::Slice(slice)
    }
}

impl From<Shared> for Buffer {
    #[inline]
    fn from(shared: Shared) -> Self {
        Self::Shared(shared)
    }
}
