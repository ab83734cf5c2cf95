//! Memory that the peer has granted, mapped here.
//!
//! Invariant: a key leads only to the range that was announced with it, and the range lies within
//! its mapping.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::{Arc, Weak};

use crate::error::OperationError;
use crate::grants::Key;
use crate::map::{Access, DescriptorError, FileId, Mapping};
use crate::ring::Nonsense;
use crate::segment::GENERATIONS;
use crate::wire::Announced;

/// The mappings that one link may have. Each costs the kernel a few hundred bytes, and a process may
/// have 65,530 by default.
const MAPPINGS_MAX: usize = 4096;

/// The descriptors that one link keeps of memories that could not be mapped, to try again. A process may
/// have 1,024 by default.
const KEPT_MAX: usize = 16;

/// Keys of the peer.
#[derive(Debug, Default)]
pub(crate) struct RemoteKeys {
    /// By the place of their generation.
    slots: Vec<Option<Remote>>,
    mappings: HashMap<(FileId, bool), Weak<Mapping>>,
    /// The number of mappings that a key leads to.
    mapped: usize,
    /// The number of descriptors that are kept.
    kept: usize,
}

#[derive(Debug)]
struct Remote {
    generation: u64,
    place: Result<Place, NotMapped>,
}

/// Granted memory that is not mapped.
#[derive(Debug)]
struct NotMapped {
    error: Arc<DescriptorError>,
    /// To try again with.
    kept: Option<(Announced, OwnedFd)>,
}

/// A granted range.
#[derive(Debug)]
pub(crate) struct Place {
    mapping: Arc<Mapping>,
    start: usize,
    len: u64,
    access: Access,
}

impl Place {
    /// Returns the address of a part of the range.
    #[inline]
    pub(crate) fn address(&self, offset: u64, len: u64) -> Result<NonNull<u8>, OperationError> {
        if offset.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(OperationError::OutOfBounds { offset, len, granted: self.len });
        }
        // SAFETY: `offset` is at most the length of the range, and the range is within the mapping
        // (`RemoteKeys::place`).
        Ok(unsafe { self.mapping.start().add(self.start + offset as usize) })
    }

    pub(crate) fn check_writable(&self) -> Result<(), OperationError> {
        if self.access.permits_writes() { Ok(()) } else { Err(OperationError::ReadOnly) }
    }
}

impl RemoteKeys {
    /// Returns the range of a key, or `None` if it was not announced or has ended.
    #[inline]
    pub(crate) fn get(&self, key: Key) -> Option<Result<&Place, OperationError>> {
        let remote = self.slots.get(usize::from(key.slot()))?.as_ref()?;
        if remote.generation != key.generation() {
            return None;
        }
        Some(remote.place.as_ref().map_err(|it| OperationError::NotMapped(Arc::clone(&it.error))))
    }

    /// Adds a key. A descriptor that cannot be mapped makes the key useless, and nothing else.
    pub(crate) fn add(&mut self, announced: Announced, memory: Option<OwnedFd>) -> Result<(), Nonsense> {
        let key = Key(announced.key);
        let slot = usize::from(key.slot());
        debug_assert!(slot < GENERATIONS);
        if slot >= self.slots.len() {
            self.slots.resize_with(slot + 1, || None);
        }
        // The owner uses a place again only after this side has said that the key has ended.
        if self.slots[slot].is_some() {
            return Err(Nonsense { what: "a key in the place of another" });
        }
        let place = match memory {
            Some(fd) => self.place_or_keep(announced, fd),
            None => Err(NotMapped { error: Arc::new(DescriptorError::Missing), kept: None }),
        };
        self.slots[slot] = Some(Remote { generation: key.generation(), place });
        Ok(())
    }

    /// Tries again to map the memory of a key. Returns `true` if it is mapped now.
    #[cold]
    pub(crate) fn map_again(&mut self, key: Key) -> bool {
        let slot = usize::from(key.slot());
        let remote = self.slots.get_mut(slot).and_then(Option::as_mut);
        let remote = remote.filter(|remote| remote.generation == key.generation());
        let Some(Remote { place: Err(NotMapped { kept, .. }), .. }) = remote else { return false };
        let Some((announced, fd)) = kept.take() else { return false };
        self.kept -= 1;
        let place = self.place_or_keep(announced, fd);
        let is_mapped = place.is_ok();
        self.slots[slot] = Some(Remote { generation: key.generation(), place });
        is_mapped
    }

    /// Maps the memory of a key, or keeps its descriptor if it may be possible later.
    fn place_or_keep(&mut self, announced: Announced, fd: OwnedFd) -> Result<Place, NotMapped> {
        self.place(announced, &fd).map_err(|error| {
            let is_kept = error.may_pass() && self.kept < KEPT_MAX;
            self.kept += usize::from(is_kept);
            NotMapped { error: Arc::new(error), kept: is_kept.then_some((announced, fd)) }
        })
    }

    /// Pages get their entries in page tables by page faults. To make them ready here would allocate those that
    /// the peer has not allocated.
    fn place(&mut self, announced: Announced, fd: &OwnedFd) -> Result<Place, DescriptorError> {
        let Announced { file_len, offset, len, access, .. } = announced;
        let too_short = DescriptorError::TooShort { len: file_len, expected: usize::MAX };
        let end = offset.checked_add(len).filter(|end| *end <= file_len && len > 0);
        let (Some(_), Ok(file_len), Ok(start)) = (end, usize::try_from(file_len), usize::try_from(offset))
        else {
            return Err(too_short);
        };
        let mapping = self.mapping(fd, file_len, access)?;
        Ok(Place { mapping, start, len, access })
    }

    /// Maps a file, or finds the mapping of another key.
    fn mapping(
        &mut self,
        fd: &OwnedFd,
        file_len: usize,
        access: Access,
    ) -> Result<Arc<Mapping>, DescriptorError> {
        let id = (FileId::of(fd.as_fd())?, access.permits_writes());
        let known = self.mappings.get(&id).and_then(Weak::upgrade);
        // While it is mapped, no other file has its number.
        if let Some(mapping) = known.filter(|it| it.len() >= file_len && it.access() == access) {
            return Ok(mapping);
        }
        if self.mapped >= MAPPINGS_MAX {
            return Err(DescriptorError::TooMany { max: MAPPINGS_MAX });
        }
        let mapping = Arc::new(Mapping::new(fd.as_fd(), file_len, access)?);
        // Those that are unmapped leave their entries behind.
        if self.mappings.len() >= 2 * MAPPINGS_MAX {
            self.mappings.retain(|_, mapping| mapping.strong_count() > 0);
        }
        self.mappings.insert(id, Arc::downgrade(&mapping));
        self.mapped += 1;
        Ok(mapping)
    }

    /// Ends a key, and unmaps its memory if no other key leads to it. Returns `false` if there is no
    /// such key.
    pub(crate) fn end(&mut self, key: Key) -> bool {
        let slot = self.slots.get_mut(usize::from(key.slot()));
        let Some(slot) = slot.filter(|it| it.as_ref().is_some_and(|it| it.generation == key.generation()))
        else {
            return false;
        };
        match slot.take().map(|remote| remote.place) {
            Some(Ok(place)) if Arc::strong_count(&place.mapping) == 1 => self.mapped -= 1,
            Some(Err(NotMapped { kept: Some(_), .. })) => self.kept -= 1,
            _ => {}
        }
        true
    }

    /// Ends all keys, and unmaps everything.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(all(test, not(miri), not(loom)))]
mod tests {
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

    use super::*;

    /// Announces a memory of its own with this key.
    fn add(keys: &mut RemoteKeys, key: Key, file_len: u64) {
        let fd = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&fd, file_len).unwrap();
        fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL).unwrap();
        announce(keys, key, file_len, fd);
    }

    fn announce(keys: &mut RemoteKeys, key: Key, file_len: u64, fd: OwnedFd) {
        let announced = Announced { key: key.0, file_len, offset: 0, len: 4096, access: Access::ReadWrite };
        keys.add(announced, Some(fd)).unwrap();
    }

    fn is_mapped(keys: &RemoteKeys, key: Key) -> bool {
        match keys.get(key).unwrap() {
            Ok(_) => true,
            Err(OperationError::NotMapped(error)) => {
                assert!(matches!(*error, DescriptorError::TooMany { .. }), "{error}");
                false
            }
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn memories_beyond_the_maximum_are_mapped_when_others_have_ended() {
        let (mut keys, key) = (RemoteKeys::default(), |slot: usize| Key::new(slot as u16, 1));
        let (first, last) = (MAPPINGS_MAX, MAPPINGS_MAX + KEPT_MAX);
        (0..=last).for_each(|slot| add(&mut keys, key(slot), 4096));
        assert!((0..=last).all(|slot| is_mapped(&keys, key(slot)) == (slot < first)));
        assert!(!keys.map_again(key(first)), "there is no room");
        for slot in 0..=KEPT_MAX {
            assert!(keys.end(key(slot)));
            let is_kept = first + slot < last;
            assert_eq!(keys.map_again(key(first + slot)), is_kept, "{slot}");
            assert_eq!(is_mapped(&keys, key(first + slot)), is_kept, "{slot}");
        }
        assert!(!keys.map_again(key(first)) && !keys.map_again(Key::new(first as u16, 2)));
        assert_eq!((keys.mapped, keys.kept), (MAPPINGS_MAX - 1, 0));
        keys.clear();
        assert_eq!((keys.mapped, keys.kept), (0, 0));
    }

    #[test]
    fn one_file_is_not_mapped_more_often_than_many() {
        let mut keys = RemoteKeys::default();
        let fd = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&fd, 1 << 20).unwrap();
        fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL).unwrap();
        for slot in 0..=MAPPINGS_MAX {
            // Longer than before, so that no mapping is found.
            announce(&mut keys, Key::new(slot as u16, 1), 4096 + slot as u64, fd.try_clone().unwrap());
        }
        assert!(
            (0..=MAPPINGS_MAX)
                .all(|slot| is_mapped(&keys, Key::new(slot as u16, 1)) == (slot < MAPPINGS_MAX))
        );
    }
}
