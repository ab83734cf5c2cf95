//! One buffer of a work request.

use std::ops::RangeBounds;
use std::ptr::NonNull;

use crate::{DomainId, ExposedPart, Lent, Memory, Shared, Slice};

/// The bytes of one buffer of a work request: an exclusive slice, a part of a slice that is lent to
/// several work requests, a shared slice, or a part of exposed memory.
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
    /// A slice that only this work request holds.
    Slice(Slice),
    /// A part of a slice that several work requests hold.
    Lent(Lent),
    /// A slice that others may read at the same time.
    Shared(Shared),
    /// Memory that the program and other work requests may access at the same time.
    Exposed(ExposedPart),
}

impl Buffer {
    /// Returns the length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Self::Slice(slice) => slice.len(),
            Self::Lent(lent) => lent.len(),
            Self::Shared(shared) => shared.len(),
            Self::Exposed(part) => part.len(),
        }
    }

    /// Returns `true` if the length is zero.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes, or `None` for a lent part or exposed memory, which a device may write to.
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Slice(slice) => Some(slice),
            Self::Lent(_) | Self::Exposed(_) => None,
            Self::Shared(shared) => Some(shared),
        }
    }

    /// Returns `true` if a device may write to it, that is, if no reader of the bytes can exist
    /// meanwhile.
    #[inline]
    pub fn is_writable(&self) -> bool {
        match self {
            Self::Slice(_) | Self::Lent(_) => true,
            Self::Shared(_) => false,
            Self::Exposed(part) => part.is_writable(),
        }
    }

    /// Returns a part of it for a work request, or `None` if the bounds exceed it, or if it is a slice:
    /// that is [lent](Slice::lend) before parts of it are taken.
    ///
    /// ```
    /// use farreach_memory::{Buffer, Memory};
    ///
    /// let lent = Buffer::from(Memory::allocate(64)?.lend());
    /// assert_eq!(lent.part(16..48).unwrap().len(), 32);
    /// assert!(lent.part(..65).is_none());
    /// # Ok::<(), farreach_memory::AllocateError>(())
    /// ```
    #[inline]
    pub fn part(&self, range: impl RangeBounds<usize>) -> Option<Self> {
        match self {
            Self::Slice(_) => None,
            Self::Lent(lent) => lent.get(range).map(Self::Lent),
            Self::Shared(shared) => shared.get(range).map(Self::Shared),
            Self::Exposed(part) => part.get(range).map(Self::Exposed),
        }
    }

    /// Returns the allocation that contains it.
    pub fn memory(&self) -> &Memory {
        match self {
            Self::Slice(slice) => slice.memory(),
            Self::Lent(lent) => lent.memory(),
            Self::Shared(shared) => shared.memory(),
            Self::Exposed(part) => part.exposed().memory(),
        }
    }

    /// Returns the slice, or `self` if it is not an exclusive slice.
    #[inline]
    pub fn into_slice(self) -> Result<Slice, Self> {
        match self {
            Self::Slice(slice) => Ok(slice),
            other => Err(other),
        }
    }

    /// Returns the address of the first byte, as a work request names it.
    #[inline]
    pub fn address(&self) -> NonNull<u8> {
        match self {
            Self::Slice(slice) => slice.address(),
            Self::Lent(lent) => lent.address(),
            Self::Shared(shared) => shared.address(),
            Self::Exposed(part) => part.address(),
        }
    }

    /// Returns the local key under which a domain has registered it, if any.
    #[inline]
    pub fn local_key(&self, domain: DomainId) -> Option<u64> {
        match self {
            Self::Slice(slice) => slice.local_key(domain),
            Self::Lent(lent) => lent.local_key(domain),
            Self::Shared(shared) => shared.local_key(domain),
            Self::Exposed(part) => part.local_key(domain),
        }
    }
}

impl From<Lent> for Buffer {
    #[inline]
    fn from(lent: Lent) -> Self {
        Self::Lent(lent)
    }
}

impl From<ExposedPart> for Buffer {
    #[inline]
    fn from(part: ExposedPart) -> Self {
        Self::Exposed(part)
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
