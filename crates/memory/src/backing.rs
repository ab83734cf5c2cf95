//! The file behind exposed memory, for another process to map. It is meant for `farreach-shm`, not
//! for its users.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use crate::extents::Extent;
use crate::mem_file::{FileAccess, MemFile};
use crate::{Exposed, KeyGuard, Memory};

/// The part of a file that holds exposed memory.
///
/// The file also holds other ranges of the same allocation. A process that maps it must keep to the
/// part.
#[derive(Debug, Clone)]
pub struct Backing {
    file: Arc<MemFile>,
    offset: u64,
    len: usize,
}

impl Backing {
    /// Returns a number that identifies the file within this process.
    pub fn file_id(&self) -> u64 {
        self.file.id()
    }

    /// Returns the length of the file in bytes.
    pub fn file_len(&self) -> usize {
        self.file.len()
    }

    /// Returns the offset of the memory in the file.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the length of the memory in bytes.
    #[expect(clippy::len_without_is_empty, reason = "`KeyGuard::backing` refuses empty memory")]
    pub fn len(&self) -> usize {
        self.len
    }
}

impl AsFd for Backing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl KeyGuard {
    /// Seals the file behind the memory and returns it.
    ///
    /// The first call for an allocation decides whether other processes can map it for writing
    /// (`F_SEAL_FUTURE_WRITE`). After a first call for writing, access for reading only depends on
    /// the process that gets the descriptor.
    ///
    /// # Safety
    ///
    /// The descriptor is passed only to a process that accesses no bytes but those of this guard,
    /// only in the way that `access` names, and not after this guard is ended. In this process, it
    /// is used for nothing but passing it.
    pub unsafe fn backing(&self, access: FileAccess) -> Result<Backing, BackingError> {
        let (memory, start, len) = self.place();
        with_extent(memory, start, len, |extent| {
            if !extent.file.seal(access).map_err(BackingError::Seal)? {
                return Err(BackingError::SealedReadOnly);
            }
            Ok(Backing { file: Arc::clone(&extent.file), offset: extent.file_offset, len })
        })
    }
}

impl Exposed {
    /// Returns the reason for which [`KeyGuard::backing`] would refuse this memory, if there is one.
    /// Seals nothing.
    pub fn check_backing(&self, access: FileAccess) -> Result<(), BackingError> {
        let (memory, start, len) = self.place_in_memory();
        with_extent(memory, start, len, |extent| match extent.file.may_be_sealed(access) {
            true => Ok(()),
            false => Err(BackingError::SealedReadOnly),
        })
    }
}

/// Calls a function with the extent that holds a range, if another process can map it. No exchange
/// begins meanwhile.
fn with_extent<T>(
    memory: &Memory,
    start: usize,
    len: usize,
    call: impl FnOnce(&Extent) -> Result<T, BackingError>,
) -> Result<T, BackingError> {
    let mapped = memory.allocation().mapped().ok_or(BackingError::Foreign)?;
    let files = mapped.files.as_ref().ok_or(BackingError::Anonymous)?;
    if len == 0 {
        return Err(BackingError::Empty);
    }
    if !is_whole_pages(start, len, memory.len(), mapped.page) {
        return Err(BackingError::SharesPage { page: mapped.page });
    }
    let state = files.lock();
    if state.is_exchanging(start, len) {
        return Err(BackingError::Exchanging);
    }
    let extents = state.of(start, len);
    let [extent] = &extents[..] else {
        return Err(BackingError::Fragmented { files: extents.len() });
    };
    if extent.file.is_huge() {
        return Err(BackingError::HugePages);
    }
    call(extent)
}

/// Returns whether a range shares no page with another range of its allocation.
pub(crate) fn is_whole_pages(start: usize, len: usize, allocation: usize, page: usize) -> bool {
    let end = start + len;
    start.is_multiple_of(page) && (end.is_multiple_of(page) || end == allocation)
}

/// Memory that no other process can map.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackingError {
    /// The memory was not allocated by this crate.
    #[error("the memory was not allocated by Farreach")]
    Foreign,
    /// The pages are anonymous. The notes of the memory contain the reason.
    #[error("the memory has anonymous pages")]
    Anonymous,
    /// The memory has no bytes.
    #[error("the memory has no bytes")]
    Empty,
    /// The memory begins or ends within a page that contains other bytes of the allocation.
    #[error("the memory shares a page of {page} bytes with other memory")]
    SharesPage {
        /// The size of a page.
        page: usize,
    },
    /// The pages of the memory are being exchanged.
    #[error("the pages of the memory are being exchanged")]
    Exchanging,
    /// Earlier exchanges of parts of the memory left it in several files.
    #[error("the memory is in {files} files, since parts of it were revoked")]
    Fragmented {
        /// The number of files.
        files: usize,
    },
    /// A process that punches a hole into a file of huge pages takes pages away from all processes
    /// that map it. If no huge page is free, their next access raises SIGBUS.
    #[error("the memory has huge pages of the kernel's pool, which another process could take away")]
    HugePages,
    /// The allocation was shared for reading only before.
    #[error("the memory is sealed against writing, because it was first granted for reading only")]
    SealedReadOnly,
    /// The kernel refused to seal the file.
    #[error("cannot seal the memory: {0}")]
    Seal(io::Error),
}

impl BackingError {
    /// Returns an instruction that resolves the error.
    pub fn fix(&self) -> &'static str {
        match self {
            Self::Foreign => "allocate the memory with `Memory::allocate`",
            Self::Anonymous => "raise `ulimit -n` and `ulimit -f`, and permit memfd_create",
            Self::Empty => "grant at least one byte",
            Self::SharesPage { .. } => "split memory at multiples of the page size before it is granted",
            Self::Exchanging => "wait until the revocation has ended",
            Self::Fragmented { .. } => "grant each part that was granted before by itself, or allocate anew",
            Self::HugePages => "allocate without huge pages, or use another rail",
            Self::SealedReadOnly => {
                "allocate memory that peers write apart from memory that they only read, or grant it for \
                 writing first"
            }
            Self::Seal(_) => "permit fcntl(F_ADD_SEALS), and Linux 5.1 or newer for read-only memory",
        }
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    fn backing(exposed: &Exposed, access: FileAccess) -> Result<Backing, BackingError> {
        let guard = exposed.guard_key(crate::KeyAccess::Write).unwrap();
        // SAFETY: the descriptor is passed to no process.
        let backing = unsafe { guard.backing(access) };
        // SAFETY: the same.
        unsafe { guard.end() };
        backing
    }

    #[test]
    fn whole_pages_have_their_place_in_the_file() {
        let mut slice = Memory::allocate(3 * 4096 + 5).unwrap();
        let tail = slice.split_off(2 * 4096).expose();
        let middle = slice.split_off(4096).expose();
        let (middle, tail) = [&middle, &tail].map(|it| backing(it, FileAccess::ReadWrite).unwrap()).into();
        assert_eq!((middle.offset(), middle.len(), middle.file_len()), (4096, 4096, 4 * 4096));
        assert_eq!((tail.offset(), tail.len()), (2 * 4096, 4096 + 5));
        assert_eq!(middle.file_id(), tail.file_id());
    }

    #[test]
    fn memory_that_cannot_be_mapped_elsewhere_says_why() {
        let mut slice = Memory::allocate(2 * 4096).unwrap();
        let rest = slice.split_off(4000);
        let foreign = {
            let page = Memory::allocate(4096).unwrap();
            // SAFETY: the owner is the slice itself, which never derefs.
            unsafe { Memory::from_raw(page.address(), 4096, Box::new(page)) }
        };
        let empty = Memory::allocate(1).unwrap().split_off(1);
        let refused =
            [slice, rest, foreign, empty].map(|it| backing(&it.expose(), FileAccess::ReadOnly).unwrap_err());
        assert!(matches!(
            refused,
            [
                BackingError::SharesPage { page: 4096 },
                BackingError::SharesPage { .. },
                BackingError::Foreign,
                BackingError::Empty
            ]
        ));
        assert!(refused.iter().all(|error| !error.fix().is_empty()));
    }

    #[test]
    fn a_check_refuses_what_a_grant_would_and_seals_nothing() {
        let mut slice = Memory::allocate(2 * 4096).unwrap();
        let part = slice.split_off(4000).expose();
        assert!(matches!(part.check_backing(FileAccess::ReadWrite), Err(BackingError::SharesPage { .. })));
        let reader = Memory::allocate(4096).unwrap().expose();
        reader.check_backing(FileAccess::ReadOnly).unwrap();
        reader.check_backing(FileAccess::ReadWrite).unwrap();
        backing(&reader, FileAccess::ReadOnly).unwrap();
        let refused = reader.check_backing(FileAccess::ReadWrite).unwrap_err();
        assert!(matches!(refused, BackingError::SealedReadOnly), "{refused}");
        reader.check_backing(FileAccess::ReadOnly).unwrap();
    }

    #[test]
    fn the_first_grant_decides_whether_a_seal_forbids_writing() {
        let reader = Memory::allocate(4096).unwrap().expose();
        backing(&reader, FileAccess::ReadOnly).unwrap();
        let refused = backing(&reader, FileAccess::ReadWrite).unwrap_err();
        assert!(matches!(refused, BackingError::SealedReadOnly), "{refused}");
        backing(&reader, FileAccess::ReadOnly).unwrap();
    }
}
