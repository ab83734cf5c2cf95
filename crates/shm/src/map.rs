//! Maps memory of a peer, after a look at what its descriptor really is.

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use farreach_memory::process_epoch;
use rustix::fs::{SealFlags, fcntl_get_seals, fstat, fstatfs};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use rustix::process::{Resource, getrlimit};

/// The access that a grant gives.
///
/// ```
/// use farreach_shm::Access;
///
/// assert!(Access::ReadWrite.permits_writes() && !Access::ReadOnly.permits_writes());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// The peer may read.
    ReadOnly,
    /// The peer may read, write and change words atomically.
    ReadWrite,
}

impl Access {
    /// Returns `true` if the peer may change bytes.
    pub fn permits_writes(self) -> bool {
        self == Self::ReadWrite
    }
}

/// A descriptor that cannot be mapped safely.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DescriptorError {
    /// It is no memory: a file on a disk, a pipe, a socket.
    #[error("the descriptor is no memory (memfd)")]
    NotMemory,
    /// Its size is not sealed, so an access could raise SIGBUS.
    #[error("the size of the memory is not sealed: its seals are {seals:#x}")]
    Unsealed {
        /// Its seals.
        seals: u32,
    },
    /// It is shorter than announced.
    #[error("the memory has {len} bytes, and {expected} were announced")]
    TooShort {
        /// Its length in bytes.
        len: u64,
        /// The announced length in bytes.
        expected: usize,
    },
    /// It consists of huge pages, which its owner could take away. An access could raise SIGBUS.
    #[error("the memory has huge pages of the kernel's pool")]
    HugePages,
    /// No descriptor arrived: this process has too many open.
    #[error("no descriptor arrived: too many are open in this process")]
    Missing,
    /// The link has as many mappings as it may have.
    #[error("the link maps {max} memories of the peer already, the maximum")]
    TooMany {
        /// The maximum.
        max: usize,
    },
    /// This process has mapped as much memory of other processes as it may.
    #[error("this process maps {mappings} memories of peers already, of {bytes} bytes, and may map no more")]
    NoRoom {
        /// The number of mappings.
        mappings: usize,
        /// Their bytes.
        bytes: usize,
    },
    /// The address space of this process has no room for it.
    #[error(
        "mmap: out of memory (ENOMEM) for {len} bytes: the address space of this process is limited to \
         {limit} bytes (RLIMIT_AS)"
    )]
    NoAddressSpace {
        /// The length of the memory in bytes.
        len: usize,
        /// The limit in bytes.
        limit: u64,
    },
    /// A system call failed.
    #[error("{call}: {error}")]
    Call {
        /// Its name.
        call: &'static str,
        /// Its error.
        error: io::Error,
    },
}

impl DescriptorError {
    /// Returns whether another attempt may succeed, when other memory was unmapped.
    pub(crate) fn may_pass(&self) -> bool {
        matches!(
            self,
            Self::TooMany { .. } | Self::NoRoom { .. } | Self::NoAddressSpace { .. } | Self::Call { .. }
        )
    }

    /// Returns an instruction that resolves the error.
    pub fn fix(&self) -> &'static str {
        match self {
            Self::Missing => "raise `ulimit -n`",
            Self::TooMany { .. } | Self::NoRoom { .. } => {
                "have the peer revoke grants, or grant parts of fewer allocations"
            }
            Self::NoAddressSpace { .. } => "raise `ulimit -v`, or free memory of this process",
            Self::Call { .. } => "raise vm.max_map_count, or free memory",
            _ => "run the same release on both sides",
        }
    }
}

/// Identifies the file of a descriptor while a mapping of it exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    pub(crate) fn of(fd: BorrowedFd<'_>) -> Result<Self, DescriptorError> {
        let stat = fstat(fd).map_err(|error| call("fstat", error))?;
        Ok(Self { device: stat.st_dev, inode: stat.st_ino })
    }
}

fn call(call: &'static str, error: Errno) -> DescriptorError {
    DescriptorError::Call { call, error: error.into() }
}

/// The mappings of memory of other processes, and their bytes. What peers grant must not use up what the
/// kernel permits to this process: a program without memory ends.
static MAPPINGS: AtomicUsize = AtomicUsize::new(0);
static BYTES: AtomicUsize = AtomicUsize::new(0);

/// The bytes that may be mapped: a quarter of the addresses that a process has on x86-64.
const BYTES_MAX: usize = 32 << 40;

/// Returns the number of mappings that there may be: three quarters of what the kernel permits.
fn mappings_max() -> usize {
    const DEFAULT: usize = 65_530;
    static MAX: OnceLock<usize> = OnceLock::new();
    *MAX.get_or_init(|| {
        let permitted = std::fs::read_to_string("/proc/sys/vm/max_map_count").ok();
        permitted.and_then(|number| number.trim().parse().ok()).unwrap_or(DEFAULT) / 4 * 3
    })
}

/// A place among the mappings, until it is dropped.
#[derive(Debug)]
struct Room {
    len: usize,
}

impl Room {
    fn take(len: usize) -> Result<Self, DescriptorError> {
        let mappings = MAPPINGS.fetch_add(1, Ordering::Relaxed);
        let bytes = BYTES.fetch_add(len, Ordering::Relaxed);
        let room = Self { len };
        match bytes.checked_add(len).is_some_and(|bytes| bytes <= BYTES_MAX) && mappings < mappings_max() {
            true => Ok(room),
            // Dropping it gives back what was added.
            false => Err(DescriptorError::NoRoom { mappings, bytes }),
        }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        MAPPINGS.fetch_sub(1, Ordering::Relaxed);
        BYTES.fetch_sub(self.len, Ordering::Relaxed);
    }
}

/// Returns the reason for which the kernel maps no more.
#[cold]
fn not_mapped(error: Errno, len: usize) -> DescriptorError {
    match getrlimit(Resource::As).current.filter(|_| error == Errno::NOMEM) {
        Some(limit) => DescriptorError::NoAddressSpace { len, limit },
        None => call("mmap", error),
    }
}

/// A mapping of a file whose size is sealed. Forked children do not inherit it.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    len: usize,
    access: Access,
    epoch: u64,
    _room: Room,
}

// SAFETY: a mapping is an address and a length. It may be unmapped by any thread, and its bytes are
// accessed only through `copy` and atomics.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `len` bytes of a file.
    pub(crate) fn new(fd: BorrowedFd<'_>, len: usize, access: Access) -> Result<Self, DescriptorError> {
        check(fd, len)?;
        let room = Room::take(len)?;
        let protection = match access {
            Access::ReadOnly => ProtFlags::READ,
            Access::ReadWrite => ProtFlags::READ | ProtFlags::WRITE,
        };
        // SAFETY: a new mapping at an address chosen by the kernel overlaps nothing that exists.
        let start = unsafe { mmap(ptr::null_mut(), len, protection, MapFlags::SHARED, fd, 0) }
            .map_err(|error| not_mapped(error, len))?;
        let epoch = process_epoch();
        let start =
            NonNull::new(start.cast()).expect("the kernel maps nothing at address 0 unless requested");
        let mapping = Self { start, len, access, epoch, _room: room };
        // Before any use: a forked child of an ended peer would go on writing.
        // SAFETY: the range was mapped above. The advice changes no byte.
        unsafe { madvise(start.as_ptr().cast(), len, Advice::LinuxDontFork) }
            .map_err(|error| call("madvise", error))?;
        Ok(mapping)
    }

    #[inline(always)]
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn access(&self) -> Access {
        self.access
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // A forked child has not inherited the mapping, and may have mapped something else here.
        if self.epoch == process_epoch() {
            // SAFETY: `new` made this mapping with this length. Nothing uses it after its drop:
            // pointers into it are made from `&self` and not kept.
            let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
        }
    }
}

/// Checks that no access within the first `len` bytes of a file raises SIGBUS, now and later,
/// whatever another process does with the descriptor.
///
/// A hole that is punched into such a file reads as zeroes. Only if the kernel may not allocate a
/// page for it (`vm.overcommit_memory=2` with no memory left to commit) would an access raise SIGBUS.
fn check(fd: BorrowedFd<'_>, len: usize) -> Result<(), DescriptorError> {
    const HUGETLBFS_MAGIC: u64 = 0x9584_58f6;
    let seals = match fcntl_get_seals(fd) {
        Ok(seals) => seals,
        Err(Errno::INVAL | Errno::BADF) => return Err(DescriptorError::NotMemory),
        Err(error) => return Err(call("fcntl", error)),
    };
    if !seals.contains(SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL) {
        return Err(DescriptorError::Unsealed { seals: seals.bits() });
    }
    let system = fstatfs(fd).map_err(|error| call("fstatfs", error))?;
    if system.f_type as u64 == HUGETLBFS_MAGIC {
        return Err(DescriptorError::HugePages);
    }
    let size = fstat(fd).map_err(|error| call("fstat", error))?.st_size;
    let size = u64::try_from(size).unwrap_or(0);
    if len == 0 || size < len as u64 {
        return Err(DescriptorError::TooShort { len: size, expected: len });
    }
    Ok(())
}

#[cfg(all(test, not(miri), not(loom)))]
mod tests {
    use std::os::fd::{AsFd, OwnedFd};

    use rustix::fs::{MemfdFlags, fcntl_add_seals, ftruncate, memfd_create};

    use super::*;

    fn memfd(len: u64, seals: SealFlags) -> OwnedFd {
        let fd = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&fd, len).unwrap();
        fcntl_add_seals(&fd, seals).unwrap();
        fd
    }

    fn all() -> SealFlags {
        SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL
    }

    fn refused(fd: impl AsFd, len: usize) -> DescriptorError {
        Mapping::new(fd.as_fd(), len, Access::ReadWrite).unwrap_err()
    }

    #[test]
    fn what_is_no_sealed_memory_is_refused() {
        let (reader, _writer) = io::pipe().unwrap();
        assert!(matches!(refused(&reader, 1), DescriptorError::NotMemory));
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        assert!(matches!(refused(&file, 1), DescriptorError::NotMemory));
        for missing in [SealFlags::SHRINK, SealFlags::GROW, SealFlags::SEAL] {
            let error = refused(memfd(4096, all() - missing), 4096);
            assert!(matches!(error, DescriptorError::Unsealed { .. }), "{error}");
        }
        let error = refused(memfd(4096, all()), 4097);
        assert!(matches!(error, DescriptorError::TooShort { len: 4096, expected: 4097 }), "{error}");
        assert!(matches!(refused(memfd(4096, all()), 0), DescriptorError::TooShort { .. }));
        assert!(matches!(refused(memfd(0, all()), 1), DescriptorError::TooShort { .. }));
    }

    /// A file without pages costs nobody anything, and its mapping costs addresses.
    #[test]
    fn peers_do_not_use_up_the_addresses_of_this_process() {
        const LEN: usize = 15 << 40;
        let fd = memfd(LEN as u64, all());
        let map = || Mapping::new(fd.as_fd(), LEN, Access::ReadOnly);
        for _ in 0..3 {
            let kept = [map().unwrap(), map().unwrap()];
            let error = map().unwrap_err();
            assert!(matches!(error, DescriptorError::NoRoom { .. }), "{error}");
            drop(kept);
        }
    }

    #[test]
    fn read_only_memory_is_mapped_for_reading_only() {
        let fd = memfd(4096, (all() - SealFlags::SEAL) | SealFlags::FUTURE_WRITE);
        fcntl_add_seals(&fd, SealFlags::SEAL).unwrap();
        assert!(matches!(refused(&fd, 4096), DescriptorError::Call { call: "mmap", .. }));
        let mapping = Mapping::new(fd.as_fd(), 4096, Access::ReadOnly).unwrap();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let line = maps.lines().find(|line| line.starts_with(&format!("{:x}-", mapping.start.addr())));
        assert!(line.unwrap().contains(" r--s "), "{line:?}");
    }
}
