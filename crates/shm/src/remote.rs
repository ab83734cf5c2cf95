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

/// Keys of the peer.
#[derive(Debug, Default)]
pub(crate) struct RemoteKeys {
    /// By the place of their generation.
    slots: Vec<Option<Remote>>,
    mappings: HashMap<(FileId, bool), Weak<Mapping>>,
}

#[derive(Debug)]
struct Remote {
    generation: u64,
    place: Result<Place, Arc<DescriptorError>>,
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
        Some(remote.place.as_ref().map_err(|error| OperationError::NotMapped(Arc::clone(error))))
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
        let place = self.place(announced, memory).map_err(Arc::new);
        self.slots[slot] = Some(Remote { generation: key.generation(), place });
        Ok(())
    }

    /// Pages get their entries in page tables by page faults. To make them ready here would allocate those that
    /// the peer has not allocated.
    fn place(&mut self, announced: Announced, memory: Option<OwnedFd>) -> Result<Place, DescriptorError> {
        let Announced { file_len, offset, len, access, .. } = announced;
        let fd = memory.ok_or(DescriptorError::Missing)?;
        let too_short = DescriptorError::TooShort { len: file_len, expected: usize::MAX };
        let end = offset.checked_add(len).filter(|end| *end <= file_len && len > 0);
        let (Some(_), Ok(file_len), Ok(start)) = (end, usize::try_from(file_len), usize::try_from(offset))
        else {
            return Err(too_short);
        };
        let mapping = self.mapping(&fd, file_len, access)?;
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
        if self.mappings.len() >= MAPPINGS_MAX {
            self.mappings.retain(|_, mapping| mapping.strong_count() > 0);
            if self.mappings.len() >= MAPPINGS_MAX {
                return Err(DescriptorError::TooMany { max: MAPPINGS_MAX });
            }
        }
        let mapping = Arc::new(Mapping::new(fd.as_fd(), file_len, access)?);
        self.mappings.insert(id, Arc::downgrade(&mapping));
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
        *slot = None;
        true
    }

    /// Ends all keys, and unmaps everything.
    pub(crate) fn clear(&mut self) {
        self.slots.clear();
        self.mappings.clear();
    }
}
