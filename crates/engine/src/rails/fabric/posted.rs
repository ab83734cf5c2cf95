//! What is in flight: whose it is, and by which tag. The buffers are with the endpoint.

use crate::rail::LinkKey;

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
    use super::*;

    #[test]
    fn places_end_once_and_are_used_again() {
        let owner = |tag| Owner { link: LinkKey(7), tag };
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
