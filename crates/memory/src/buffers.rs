//! The buffers of a request.

use crate::{Buffer, Lent, Shared, Slice};

/// What a request takes along and its completion brings back: nothing, one buffer, or a list of them.
///
/// A list is a `Vec` of the caller's, so that it can be used again: posting allocates nothing.
///
/// ```
/// use farreach_memory::{Buffers, Memory};
///
/// let mut head = Memory::allocate(100)?;
/// let tail = head.split_off(30);
/// let buffers = Buffers::from(vec![head.into(), tail.into()]);
/// assert_eq!((buffers.count(), buffers.len()), (2, 100));
/// # Ok::<(), farreach_memory::AllocateError>(())
/// ```
#[derive(Debug, Default)]
pub enum Buffers {
    /// No bytes.
    #[default]
    None,
    /// One buffer.
    One(Buffer),
    /// Several, one after the other.
    List(Vec<Buffer>),
}

impl Buffers {
    /// For what a device writes to: exclusive slices only.
    pub fn of_slices(slices: Vec<Slice>) -> Self {
        Self::List(slices.into_iter().map(Buffer::Slice).collect())
    }

    /// For what a device writes to, in parts that several requests have.
    pub fn of_lent(parts: Vec<Lent>) -> Self {
        Self::List(parts.into_iter().map(Buffer::Lent).collect())
    }

    /// Whether a device may write to all of them.
    #[inline(always)]
    pub fn are_writable(&self) -> bool {
        self.as_slice().iter().all(Buffer::is_writable)
    }

    /// The buffers, in order.
    #[inline(always)]
    pub fn as_slice(&self) -> &[Buffer] {
        match self {
            Self::None => &[],
            Self::One(buffer) => std::slice::from_ref(buffer),
            Self::List(buffers) => buffers,
        }
    }

    /// How many buffers.
    pub fn count(&self) -> usize {
        self.as_slice().len()
    }

    /// How many bytes, all together.
    #[inline]
    pub fn len(&self) -> usize {
        self.as_slice().iter().map(Buffer::len).sum()
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.as_slice().iter().all(|buffer| buffer.len() == 0)
    }

    /// The one exclusive slice that it is, or itself where it is anything else.
    #[inline]
    pub fn into_slice(self) -> Result<Slice, Self> {
        match self {
            Self::One(Buffer::Slice(slice)) => Ok(slice),
            other => Err(other),
        }
    }

    /// The buffers as a list of the caller's.
    pub fn into_list(self) -> Vec<Buffer> {
        match self {
            Self::None => Vec::new(),
            Self::One(buffer) => vec![buffer],
            Self::List(buffers) => buffers,
        }
    }
}

impl From<Slice> for Buffers {
    #[inline]
    fn from(slice: Slice) -> Self {
        Self::One(slice.into())
    }
}

impl From<Lent> for Buffers {
    #[inline]
    fn from(lent: Lent) -> Self {
        Self::One(lent.into())
    }
}

impl From<Shared> for Buffers {
    #[inline]
    fn from(shared: Shared) -> Self {
        Self::One(shared.into())
    }
}

impl From<Buffer> for Buffers {
    #[inline]
    fn from(buffer: Buffer) -> Self {
        Self::One(buffer)
    }
}

impl From<Vec<Buffer>> for Buffers {
    #[inline]
    fn from(buffers: Vec<Buffer>) -> Self {
        Self::List(buffers)
    }
}
