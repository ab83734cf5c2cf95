//! The buffers of a work request.

use crate::{Buffer, Lent, Shared, Slice};

/// The buffers that a work request takes and its completion returns: none, one, or a list.
///
/// A list is the caller's `Vec`, which the caller can use again, so posting allocates nothing.
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
    /// Several buffers, in order.
    List(Vec<Buffer>),
}

impl Buffers {
    /// Makes a list of exclusive slices, which a device may write to.
    pub fn of_slices(slices: Vec<Slice>) -> Self {
        Self::List(slices.into_iter().map(Buffer::Slice).collect())
    }

    /// Makes a list of lent parts, which a device may write to.
    pub fn of_lent(parts: Vec<Lent>) -> Self {
        Self::List(parts.into_iter().map(Buffer::Lent).collect())
    }

    /// Returns `true` if a device may write to every buffer.
    #[inline(always)]
    pub fn are_writable(&self) -> bool {
        self.as_slice().iter().all(Buffer::is_writable)
    }

    /// Returns the buffers in order.
    #[inline(always)]
    pub fn as_slice(&self) -> &[Buffer] {
        match self {
            Self::None => &[],
            Self::One(buffer) => std::slice::from_ref(buffer),
            Self::List(buffers) => buffers,
        }
    }

    /// Returns the number of buffers.
    pub fn count(&self) -> usize {
        self.as_slice().len()
    }

    /// Returns the total length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.as_slice().iter().map(Buffer::len).sum()
    }

    /// Returns `true` if the total length is zero.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.as_slice().iter().all(|buffer| buffer.len() == 0)
    }

    /// Returns the slice if this is exactly one exclusive slice, and `self` otherwise.
    #[inline]
    pub fn into_slice(self) -> Result<Slice, Self> {
        match self {
            Self::One(Buffer::Slice(slice)) => Ok(slice),
            other => Err(other),
        }
    }

    /// Returns the buffers as a list.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DomainId, Memory};

    fn slice(bytes: &[u8]) -> Slice {
        let mut slice = Memory::allocate(bytes.len()).unwrap();
        slice.copy_from_slice(bytes);
        slice
    }

    fn lent() -> Lent {
        slice(&[3; 8]).lend().get(4..).unwrap()
    }

    #[test]
    fn buffers_tell_of_what_they_hold() {
        let all = [Buffer::from(slice(&[1; 5])), lent().into(), slice(&[2; 6]).share().into()];
        assert_eq!(all.each_ref().map(Buffer::len), [5, 4, 6]);
        assert_eq!(all.each_ref().map(Buffer::is_writable), [true, true, false]);
        assert_eq!(all.each_ref().map(Buffer::bytes), [Some(&[1; 5][..]), None, Some(&[2; 6][..])]);
        assert!(
            all.iter().all(|buffer| !buffer.is_empty() && buffer.local_key(DomainId::unique()).is_none())
        );
        assert!(Buffer::from(slice(&[1]).split_off(1)).is_empty());
    }

    #[test]
    fn what_was_put_in_comes_out_in_order() {
        let addresses =
            |buffers: Buffers| -> Vec<_> { buffers.into_list().iter().map(Buffer::address).collect() };
        let (one, two) = (slice(&[1; 5]), slice(&[2; 6]));
        let places = vec![one.address(), two.address()];
        let list = Buffers::of_slices(vec![one, two]);
        assert_eq!((list.count(), list.len(), list.as_slice().len()), (2, 11, 2));
        assert!(list.are_writable() && !list.is_empty());
        assert_eq!(addresses(list), places);

        let parts = [lent(), lent()];
        let places = parts.each_ref().map(Lent::address);
        let list = Buffers::of_lent(parts.into());
        assert_eq!((list.count(), list.len()), (2, 8));
        assert_eq!(addresses(list), places);

        let shared = Buffers::from(slice(&[1]).share());
        assert!(!shared.are_writable() && shared.count() == 1);
        let list = Buffers::from(vec![slice(&[1]).into(), slice(&[1]).share().into()]);
        assert!(list.count() == 2 && !list.are_writable() && list.into_slice().is_err());
        assert_eq!(Buffers::from(lent()).len(), 4);
        assert_eq!(Buffers::from(Buffer::from(slice(&[7]))).into_slice().unwrap()[..], [7]);
        assert_eq!(Buffers::from(slice(&[8])).into_slice().unwrap()[..], [8]);

        let none = Buffers::None;
        assert!(none.is_empty() && none.count() == 0 && none.into_list().is_empty());
        assert!(Buffers::from(slice(&[1]).split_off(1)).is_empty(), "a buffer without bytes");
    }
}
