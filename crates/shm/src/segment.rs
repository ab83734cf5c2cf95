//! The segment of a link: rings, flags and generations, in memory that both sides map.
//!
//! Invariant: the words are accessed only by atomics, and each value that is loaded is untrusted.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

use crate::map::{Access, DescriptorError, Mapping};
use crate::ring::{Area, SLOT_WORDS};
use crate::words::Words;

/// The slots of a ring: 64 KiB. A side that is not scheduled for a while finds room for a thousand
/// immediates.
const SLOTS: usize = 1024;

/// The number of grants that one side can have at a time on a link.
pub const GENERATIONS: usize = 1 << 16;

/// The maximum length of a message in bytes.
pub const MESSAGE_MAX: usize = Area::len_max_of(SLOTS);

/// The words between values that different sides write. Processors fetch lines in pairs.
const APART: usize = 16;

const SLEEP_AT: usize = APART;
const HEAD_AT: usize = SLEEP_AT + 2 * APART;
const CONTROL_AT: usize = HEAD_AT + 2 * APART;
const STOPPED_AT: usize = CONTROL_AT + 2 * APART;
const RINGS_AT: usize = 512;
const GENERATIONS_AT: usize = RINGS_AT + 2 * SLOTS * SLOT_WORDS;
const WORDS: usize = GENERATIONS_AT + 2 * GENERATIONS;

/// The length of a segment in bytes.
const LEN: usize = WORDS * 8;

/// One of the two ends of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// The one that has connected, and has created the segment.
    Connector = 0,
    /// The one that has accepted.
    Acceptor = 1,
}

impl Side {
    pub(crate) fn other(self) -> Self {
        match self {
            Self::Connector => Self::Acceptor,
            Self::Acceptor => Self::Connector,
        }
    }

    /// Returns the word in which this side says that it sleeps.
    pub(crate) fn sleep_at(self) -> usize {
        SLEEP_AT + self as usize * APART
    }

    /// Returns the word in which this side counts the packets that it has sent.
    pub(crate) fn control_at(self) -> usize {
        CONTROL_AT + self as usize * APART
    }

    /// Returns the word in which this side says that it uses no key any more, because the link has
    /// ended.
    pub(crate) fn stopped_at(self) -> usize {
        STOPPED_AT + self as usize * APART
    }

    /// Returns the ring that this side writes to.
    pub(crate) fn ring(self) -> Area {
        let slots_at = RINGS_AT + self as usize * SLOTS * SLOT_WORDS;
        Area { slots_at, slots: SLOTS, head_at: HEAD_AT + self as usize * APART }
    }

    /// Returns the word with the generation of one of this side's grants.
    pub(crate) fn generation_at(self, slot: u16) -> usize {
        GENERATIONS_AT + self as usize * GENERATIONS + usize::from(slot)
    }
}

/// The mapped segment.
#[derive(Debug)]
pub(crate) struct Segment {
    mapping: Mapping,
}

impl Segment {
    /// Creates a segment, and returns its descriptor for the other side.
    pub(crate) fn create() -> io::Result<(Self, OwnedFd)> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        // `vm.memfd_noexec` may require the flag. Linux before 6.3 does not know it.
        let fd = memfd_create("farreach-link", flags | MemfdFlags::NOEXEC_SEAL)
            .or_else(|_| memfd_create("farreach-link", flags))?;
        ftruncate(&fd, LEN as u64)?;
        fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let segment = Self::map(fd.as_fd()).map_err(|error| match error {
            DescriptorError::Call { error, .. } => error,
            other => io::Error::other(other.to_string()),
        })?;
        Ok((segment, fd))
    }

    /// Maps the segment that the other side has created.
    pub(crate) fn map(fd: BorrowedFd<'_>) -> Result<Self, DescriptorError> {
        Ok(Self { mapping: Mapping::new(fd, LEN, Access::ReadWrite)? })
    }

    /// Returns the epoch of the process that has mapped it. Others have nothing at its address, or something
    /// else.
    pub(crate) fn epoch(&self) -> u64 {
        self.mapping.epoch()
    }

    #[inline(always)]
    fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < WORDS);
        // SAFETY: the mapping has `LEN` bytes (`map`), is page-aligned, and lives as long as
        // `self`. The words of a segment are accessed by nothing but these atomics in this process;
        // accesses of the other process count as atomic.
        unsafe { AtomicU64::from_ptr(self.start().cast::<u64>().as_ptr().add(index)) }
    }

    #[inline(always)]
    fn start(&self) -> NonNull<u8> {
        self.mapping.start()
    }
}

impl Words for Segment {
    #[inline(always)]
    fn load(&self, index: usize, order: Ordering) -> u64 {
        self.word(index).load(order)
    }

    #[inline(always)]
    fn store(&self, index: usize, value: u64, order: Ordering) {
        self.word(index).store(value, order);
    }

    #[inline(always)]
    fn swap(&self, index: usize, value: u64, order: Ordering) -> u64 {
        self.word(index).swap(value, order)
    }

    #[inline(always)]
    fn fence(&self) {
        fence(Ordering::SeqCst);
    }
}
