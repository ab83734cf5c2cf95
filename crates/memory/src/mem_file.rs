//! Files without a name that hold pages (`memfd_create(2)`), so that another process can map them.
//!
//! Invariant: the size of a file never changes after [`MemFile::create`] has returned, in any
//! process (`F_SEAL_SHRINK`, `F_SEAL_GROW`). An access within it never raises SIGBUS because the
//! file has become shorter.
//!
//! Only the process that has created a file changes, seals or maps it: a forked child has the descriptor, too,
//! and the pages are those of its parent.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, ftruncate, memfd_create,
};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap};
use rustix::process::{Resource, getrlimit};

use crate::epoch::process_epoch;

/// The access to a file that another process gets with its descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileAccess {
    /// The other process maps the file for reading only.
    ReadOnly,
    /// The other process maps the file for reading and writing.
    ReadWrite,
}

/// A sealed file that holds pages.
#[derive(Debug)]
pub(crate) struct MemFile {
    fd: OwnedFd,
    len: usize,
    is_huge: bool,
    id: u64,
    /// The process that has created it.
    epoch: u64,
    /// The access that the seals permit to other processes. `None` until a descriptor is passed.
    sealed_for: Mutex<Option<FileAccess>>,
}

impl MemFile {
    /// Creates a file of `len` zero bytes. `len` is a multiple of the page size.
    pub(crate) fn create(len: usize, is_huge: bool) -> io::Result<Self> {
        static IDS: AtomicU64 = AtomicU64::new(1);
        // A file beyond this limit would end the process by SIGXFSZ.
        if getrlimit(Resource::Fsize).current.is_some_and(|limit| len as u64 > limit) {
            return Err(io::Error::other("the limit of file sizes is lower (`ulimit -f`)"));
        }
        let fd = create(is_huge)?;
        // The rest is for the files and sockets of the program.
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        if fd.as_raw_fd() as u64 >= limit - limit / 4 {
            return Err(io::Error::other("three quarters of the file descriptors are in use (`ulimit -n`)"));
        }
        ftruncate(&fd, len as u64)?;
        fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW)?;
        let id = IDS.fetch_add(1, Ordering::Relaxed);
        Ok(Self { fd, len, is_huge, id, epoch: process_epoch(), sealed_for: Mutex::new(None) })
    }

    /// Returns an error in a forked child.
    fn check(&self) -> io::Result<()> {
        if self.epoch == process_epoch() {
            return Ok(());
        }
        Err(io::Error::other("the memory belongs to the process that this one was forked from"))
    }

    /// Maps a part of the file at an address that the kernel chooses. A forked child does not
    /// inherit the mapping: it would write to memory that is no longer its parent's.
    pub(crate) fn map(&self, offset: u64, len: usize) -> io::Result<NonNull<u8>> {
        self.check()?;
        assert!(offset.checked_add(len as u64).is_some_and(|end| end <= self.len as u64));
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address chosen by the kernel overlaps nothing that exists.
        let start = unsafe { mmap(ptr::null_mut(), len, access, MapFlags::SHARED, &self.fd, offset) }?;
        // SAFETY: the range was mapped by the line above, and nothing else has a pointer to it. The
        // advice changes no byte.
        let advised = unsafe { madvise(start, len, Advice::LinuxDontFork) };
        if let Err(error) = advised {
            // SAFETY: as above; the mapping is not used any more.
            let _ = unsafe { rustix::mm::munmap(start, len) };
            return Err(error.into());
        }
        Ok(NonNull::new(start.cast()).expect("the kernel maps nothing at address 0 unless requested"))
    }

    /// Allocates all pages of the file. Returns an error where touching a page would raise SIGBUS.
    pub(crate) fn allocate(&self) -> io::Result<()> {
        self.check()?;
        Ok(fallocate(&self.fd, FallocateFlags::empty(), 0, self.len as u64)?)
    }

    /// Frees the pages of a part of the file. Whoever still maps it finds zeroes there.
    ///
    /// Huge pages stay: a process that then writes to one would get SIGBUS if no huge page is free.
    /// So do the pages of a file that is sealed against writing, because the kernel refuses.
    pub(crate) fn punch(&self, offset: u64, len: usize) -> io::Result<bool> {
        self.check()?;
        if self.is_huge {
            return Ok(false);
        }
        let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match fallocate(&self.fd, mode, offset, len as u64) {
            Ok(()) => Ok(true),
            Err(Errno::PERM) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Adds the seals with which the descriptor may be passed. Returns `false` if the file is
    /// sealed against writing and writing is asked for.
    ///
    /// The first call decides: seals can be added and not removed, and the last one forbids to add
    /// any. If the first descriptor was passed for writing, a later one for reading is not enforced
    /// by a seal.
    pub(crate) fn seal(&self, access: FileAccess) -> io::Result<bool> {
        self.check()?;
        let mut sealed_for = self.sealed_for.lock().unwrap_or_else(PoisonError::into_inner);
        match (*sealed_for, access) {
            (None, _) => {
                let seals = match access {
                    FileAccess::ReadOnly => SealFlags::FUTURE_WRITE | SealFlags::SEAL,
                    FileAccess::ReadWrite => SealFlags::SEAL,
                };
                fcntl_add_seals(&self.fd, seals)?;
                *sealed_for = Some(access);
                Ok(true)
            }
            (Some(FileAccess::ReadOnly), FileAccess::ReadWrite) => Ok(false),
            _ => Ok(true),
        }
    }

    /// Returns `false` if [`seal`](Self::seal) would.
    pub(crate) fn may_be_sealed(&self, access: FileAccess) -> bool {
        let sealed_for = self.sealed_for.lock().unwrap_or_else(PoisonError::into_inner);
        !matches!((*sealed_for, access), (Some(FileAccess::ReadOnly), FileAccess::ReadWrite))
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_huge(&self) -> bool {
        self.is_huge
    }

    /// Returns a number that no other file of this process has.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }
}

impl AsFd for MemFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn create(is_huge: bool) -> io::Result<OwnedFd> {
    let mut flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    if is_huge {
        flags |= MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
    }
    // `vm.memfd_noexec` may require the flag. Linux before 6.3 does not know it.
    match memfd_create(NAME, flags | MemfdFlags::NOEXEC_SEAL) {
        Err(Errno::INVAL) => Ok(memfd_create(NAME, flags)?),
        created => Ok(created?),
    }
}

/// The name in `/proc/PID/maps`.
const NAME: &str = "farreach";

#[cfg(all(test, not(miri)))]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    const PAGE: usize = 4096;

    #[test]
    fn the_size_is_sealed_and_seals_are_final_when_a_descriptor_is_passed() {
        let file = MemFile::create(2 * PAGE, false).unwrap();
        for len in [0, PAGE, 3 * PAGE] {
            assert_eq!(ftruncate(&file, len as u64), Err(Errno::PERM));
        }
        assert!(file.seal(FileAccess::ReadWrite).unwrap());
        assert_eq!(fcntl_add_seals(&file, SealFlags::WRITE), Err(Errno::PERM));
        assert!(file.seal(FileAccess::ReadOnly).unwrap(), "a writable file may be mapped for reading");
    }

    #[test]
    fn a_file_for_readers_cannot_be_written_through_its_descriptor() {
        let file = MemFile::create(PAGE, false).unwrap();
        let start = file.map(0, PAGE).unwrap();
        assert!(file.seal(FileAccess::ReadOnly).unwrap());
        assert!(!file.seal(FileAccess::ReadWrite).unwrap());
        assert_eq!(file.map(0, PAGE).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        let passed = std::fs::File::from(file.as_fd().try_clone_to_owned().unwrap());
        assert_eq!(passed.write_at(b"x", 0).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        assert!(!file.punch(0, PAGE).unwrap());
        // SAFETY: the mapping is one page, made above, and this is its only pointer.
        unsafe { start.as_ptr().write(7) };
        let mut byte = [0];
        passed.read_exact_at(&mut byte, 0).unwrap();
        assert_eq!(byte, [7], "the owner's mapping stays writable");
        // SAFETY: as above; it is not used any more.
        unsafe { rustix::mm::munmap(start.as_ptr().cast(), PAGE) }.unwrap();
    }

    #[test]
    fn holes_read_as_zeroes() {
        let file = MemFile::create(2 * PAGE, false).unwrap();
        let content = std::fs::File::from(file.as_fd().try_clone_to_owned().unwrap());
        content.write_at(&[9; 2 * PAGE], 0).unwrap();
        assert!(file.punch(0, PAGE).unwrap());
        let mut bytes = [1; 2 * PAGE];
        content.read_exact_at(&mut bytes, 0).unwrap();
        assert!(bytes[..PAGE].iter().all(|byte| *byte == 0) && bytes[PAGE..].iter().all(|byte| *byte == 9));
    }
}
