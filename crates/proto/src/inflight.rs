//! A table of operations in flight: slots, each with an epoch.
//!
//! Invariant: a [`SlotId`] is never given out twice, so a late completion never matches a newer
//! operation.

/// Names the content of a slot. The epoch of a slot changes when its content is taken, so a late
/// name finds nothing.
///
/// ```
/// use farreach_proto::inflight::SlotId;
///
/// let id = SlotId::from_raw(7 << 32 | 3);
/// assert_eq!((id.index(), id.epoch(), id.to_raw()), (3, 7, 7 << 32 | 3));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SlotId {
    index: u32,
    epoch: u32,
}

impl SlotId {
    /// Returns the number that a card or a library carries.
    pub fn to_raw(self) -> u64 {
        u64::from(self.epoch) << 32 | u64::from(self.index)
    }

    /// Restores an id from such a number.
    pub fn from_raw(raw: u64) -> Self {
        Self { index: raw as u32, epoch: (raw >> 32) as u32 }
    }

    /// Returns the index of the slot.
    pub fn index(self) -> u32 {
        self.index
    }

    /// Returns how often the slot was used before.
    pub fn epoch(self) -> u32 {
        self.epoch
    }
}

/// A table with a maximum number of slots. Once its memory has grown, putting and taking allocate
/// nothing.
///
/// ```
/// use farreach_proto::inflight::Slots;
///
/// let mut slots = Slots::new(1);
/// let id = slots.put("a page").unwrap();
/// assert_eq!(slots.put("another"), Err("another"), "it is full");
/// assert_eq!(slots.take(id), Some("a page"));
/// assert_eq!(slots.take(id), None, "once");
/// ```
#[derive(Debug)]
pub struct Slots<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    capacity: usize,
    filled: usize,
}

#[derive(Debug)]
struct Slot<T> {
    epoch: u32,
    content: Option<T>,
}

impl<T> Slots<T> {
    /// Creates an empty table. Its memory grows to the largest number of filled slots, and never
    /// shrinks.
    pub fn new(capacity: u32) -> Self {
        Self { slots: Vec::new(), free: Vec::new(), capacity: capacity as usize, filled: 0 }
    }

    /// Fills a slot. Returns the value if the table is full.
    pub fn put(&mut self, value: T) -> Result<SlotId, T> {
        if let Some(index) = self.free.pop() {
            let slot = &mut self.slots[index as usize];
            slot.content = Some(value);
            self.filled += 1;
            return Ok(SlotId { index, epoch: slot.epoch });
        }
        // Retired slots count as well: they are never free again.
        if self.slots.len() == self.capacity {
            return Err(value);
        }
        let index = self.slots.len() as u32;
        self.slots.push(Slot { epoch: 0, content: Some(value) });
        self.filled += 1;
        Ok(SlotId { index, epoch: 0 })
    }

    /// Empties a slot. Returns `None` if it no longer holds the value that this id names.
    pub fn take(&mut self, id: SlotId) -> Option<T> {
        // A late name, or a number that a card has made up.
        let slot = self.slots.get_mut(id.index as usize).filter(|slot| slot.epoch == id.epoch)?;
        let value = slot.content.take()?;
        self.filled -= 1;
        // A slot without unused epochs is retired: no id is ever given out twice.
        if let Some(next) = slot.epoch.checked_add(1) {
            slot.epoch = next;
            self.free.push(id.index);
        }
        Some(value)
    }

    /// Returns the content of a slot, if it still holds the value that this id names.
    pub fn get(&self, id: SlotId) -> Option<&T> {
        self.slots.get(id.index as usize).filter(|slot| slot.epoch == id.epoch)?.content.as_ref()
    }

    /// As [`get`](Self::get), mutably.
    pub fn get_mut(&mut self, id: SlotId) -> Option<&mut T> {
        self.slots.get_mut(id.index as usize).filter(|slot| slot.epoch == id.epoch)?.content.as_mut()
    }

    /// Iterates over all filled slots.
    pub fn iter(&self) -> impl Iterator<Item = (SlotId, &T)> {
        self.slots.iter().enumerate().filter_map(|(index, slot)| {
            Some((SlotId { index: index as u32, epoch: slot.epoch }, slot.content.as_ref()?))
        })
    }

    /// Returns the number of filled slots.
    pub fn len(&self) -> usize {
        self.filled
    }

    /// Returns `true` if no slot is filled.
    pub fn is_empty(&self) -> bool {
        self.filled == 0
    }

    /// Returns the number of slots that memory is allocated for.
    ///
    /// ```
    /// let mut slots = farreach_proto::inflight::Slots::new(1000);
    /// assert_eq!(slots.capacity(), 0);
    /// slots.put("a page").unwrap();
    /// assert!((1..1000).contains(&slots.capacity()));
    /// ```
    pub fn capacity(&self) -> usize {
        self.slots.capacity()
    }

    /// Returns `true` if one more value can be put in.
    pub fn has_room(&self) -> bool {
        !self.free.is_empty() || self.slots.len() < self.capacity
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_comes_late_finds_nothing() {
        let mut slots = Slots::new(4);
        let first = slots.put(1).unwrap();
        assert_eq!(slots.take(first), Some(1));
        let second = slots.put(2).unwrap();
        assert_eq!(second.index(), first.index(), "the slot is used again");
        assert!(slots.get(first).is_none() && slots.get_mut(first).is_none());
        assert_eq!(slots.take(first), None);
        assert_eq!(slots.get(second), Some(&2));
        assert_eq!(slots.take(SlotId { index: 99, epoch: 0 }), None);
    }

    #[test]
    fn a_slot_whose_epochs_are_used_up_is_retired() {
        let mut slots = Slots::new(1);
        let id = slots.put('a').unwrap();
        slots.slots[0].epoch = u32::MAX;
        assert_eq!(slots.take(id), None);
        assert_eq!(slots.take(SlotId { index: 0, epoch: u32::MAX }), Some('a'));
        assert!(!slots.has_room());
        assert_eq!(slots.put('b'), Err('b'));
    }

    #[test]
    fn what_is_in_it_is_listed() {
        let mut slots = Slots::new(3);
        let ids = ['a', 'b', 'c'].map(|value| slots.put(value).unwrap());
        slots.take(ids[1]);
        assert_eq!(slots.iter().collect::<Vec<_>>(), [(ids[0], &'a'), (ids[2], &'c')]);
        assert_eq!((slots.len(), slots.is_empty(), slots.has_room()), (2, false, true));
    }
}
