//! What a request takes along.

use std::ptr::NonNull;

use crate::{DomainId, Lent, Shared, Slice};

/// Bytes that a request takes along: a slice of one's own, a part of one that is lent to several requests, or a shared one.
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
    /// A part of one that several requests have.
    Lent(Lent),
    /// One that others may read at the same time.
    Shared(Shared),
}

impl Buffer {
    /// Its bytes.
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Self::Slice(slice) => slice.len(),
            Self::Lent(lent) => lent.len(),
            Self::Shared(shared) => shared.len(),
        }
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes, where nobody writes to them: not those of a part that is lent.
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Slice(slice) => Some(slice),
            Self::Lent(_) => None,
            Self::Shared(shared) => Some(shared),
        }
    }

    /// Whether a card may write to it: nobody else reads the bytes meanwhile.
    #[inline]
    pub fn is_writable(&self) -> bool {
        !matches!(self, Self::Shared(_))
    }

    /// The slice, or itself where it is not a whole one.
    #[inline]
    pub fn into_slice(self) -> Result<Slice, Self> {
        match self {
            Self::Slice(slice) => Ok(slice),
            other => Err(other),
        }
    }

    /// The address of the first byte, as a request names it.
    #[inline]
    pub fn address(&self) -> NonNull<u8> {
        match self {
            Self::Slice(slice) => slice.address(),
            Self::Lent(lent) => lent.address(),
            Self::Shared(shared) => shared.address(),
        }
    }

    /// The local key under which a domain has it registered, if it has.
    #[inline]
    pub fn local_key(&self, domain: DomainId) -> Option<u64> {
        match self {
            Self::Slice(slice) => slice.local_key(domain),
            Self::Lent(lent) => lent.local_key(domain),
            Self::Shared(shared) => shared.local_key(domain),
        }
    }
}

impl From<Lent> for Buffer {
    #[inline]
    fn from(lent: Lent) -> Self {
        Self::Lent(lent)
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
