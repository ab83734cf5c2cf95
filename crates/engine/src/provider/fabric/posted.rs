//! What is in flight: whose it is, and by which tag. The buffers are with the endpoint.

use farreach_memory::{Buffer, Buffers};

use crate::provider::LinkKey;

/// Requests in flight, by the number that the library knows them by.
#[derive(Debug)]
pub(super) struct Posted {
    places: Vec<Option<Owner>>,
    free: Vec<u32>,
}

/// Whose request it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) link: LinkKey,
    pub(super) tag: u64,
    /// Whether the last of the buffers is the rail's own, because the request has no bytes.
    pub(super) is_bare: bool,
}

impl Owner {
    /// What the request takes along: its own buffers, and this one where those have no bytes. A list is used again, so that it keeps its
    /// room.
    #[inline]
    pub(super) fn take_along(self, buffers: Buffers, byte: impl FnOnce() -> Buffer) -> Buffers {
        if !self.is_bare {
            return buffers;
        }
        match buffers {
            Buffers::None => byte().into(),
            others => {
                let mut list = others.into_list();
                list.push(byte());
                list.into()
            }
        }
    }

    /// What it brings back.
    #[inline]
    pub(super) fn bring_back(self, buffers: Buffers) -> Buffers {
        match buffers {
            Buffers::List(mut list) if self.is_bare => {
                list.pop();
                list.into()
            }
            _ if self.is_bare => Buffers::None,
            buffers => buffers,
        }
    }
}

impl Posted {
    /// With room for so many, all of it at once: posting allocates nothing.
    pub(super) fn new(depth: usize) -> Self {
        Self { places: vec![None; depth], free: (0..depth as u32).rev().collect() }
    }

    /// Takes a place; none where all are taken.
    #[inline]
    pub(super) fn begin(&mut self, owner: Owner) -> Option<u64> {
        let number = self.free.pop()?;
        self.places[number as usize] = Some(owner);
        Some(number.into())
    }

    /// Frees a place, and tells whose it was.
    #[inline]
    pub(super) fn end(&mut self, number: u64) -> Option<Owner> {
        let owner = self.places.get_mut(usize::try_from(number).ok()?)?.take()?;
        self.free.push(number as u32);
        Some(owner)
    }

    /// Frees all, and tells whose they were.
    pub(super) fn end_all(&mut self) -> Vec<Owner> {
        (0..self.places.len() as u64).filter_map(|number| self.end(number)).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use farreach_memory::Memory;

    use super::*;

    #[test]
    fn a_request_without_bytes_brings_back_what_it_had() {
        let buffer = |len| Buffer::from(Memory::allocate(4096).unwrap().share().get(..len).unwrap());
        let owner = |is_bare| Owner { link: LinkKey(7), tag: 1, is_bare };
        for (buffers, count) in [
            (Buffers::None, 0),
            (Buffers::List(Vec::with_capacity(3)), 0),
            (Buffers::from(buffer(0)), 1),
            (Buffers::List(vec![buffer(0), buffer(0)]), 2),
        ] {
            let taken = owner(true).take_along(buffers, || buffer(1));
            assert_eq!((taken.count(), taken.len()), (count + 1, 1));
            let back = owner(true).bring_back(taken);
            assert_eq!((back.count(), back.len()), (count, 0));
        }
        let list = Buffers::List(Vec::with_capacity(3));
        let back = owner(true).bring_back(owner(true).take_along(list, || buffer(1))).into_list();
        assert_eq!(back.capacity(), 3, "it keeps its room");
        let taken = owner(false).take_along(buffer(5).into(), || buffer(1));
        assert_eq!(owner(false).bring_back(taken).len(), 5);
    }

    #[test]
    fn places_end_once_and_are_used_again() {
        let owner = |tag| Owner { link: LinkKey(7), tag, is_bare: false };
        let mut posted = Posted::new(2);
        let [first, second] = [posted.begin(owner(1)).unwrap(), posted.begin(owner(2)).unwrap()];
        assert_eq!((posted.begin(owner(3)), posted.len()), (None, 2));
        assert_eq!(posted.end(first), Some(owner(1)));
        assert_eq!((posted.end(first), posted.end(9), posted.end(u64::MAX)), (None, None, None));
        assert_eq!(posted.begin(owner(4)), Some(first));
        assert_ne!(first, second);
        let mut left = posted.end_all();
        left.sort_by_key(|owner| owner.tag);
        assert_eq!((left, posted.len()), (vec![owner(2), owner(4)], 0));
    }
}
