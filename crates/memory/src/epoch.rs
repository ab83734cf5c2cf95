//! Tells a process from its forked children, without a system call.
//!
//! A child inherits the handles of its parent, and not the pages (`MADV_DONTFORK`). If it unmapped
//! them, it would unmap what it has mapped there since.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};

/// Returns a number that differs between a process and its forked children. It is meant for
/// libraries that share memory between processes.
///
/// ```
/// assert_eq!(farreach_memory::process_epoch(), farreach_memory::process_epoch());
/// ```
#[inline]
pub fn process_epoch() -> u64 {
    static WORD: OnceLock<Option<&'static AtomicU64>> = OnceLock::new();
    let Some(word) = WORD.get_or_init(wiped_on_fork) else { return 1 };
    match word.load(Ordering::Relaxed) {
        0 => begin(word),
        epoch => epoch,
    }
}

#[cold]
fn begin(word: &AtomicU64) -> u64 {
    // Process numbers are used again, so the time is part of it.
    let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let time = time.map_or(0, |time| time.subsec_nanos() ^ time.as_secs() as u32);
    let epoch = (u64::from(std::process::id()) << 32) | u64::from(time) | 1;
    match word.compare_exchange(0, epoch, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => epoch,
        Err(first) => first,
    }
}

/// Returns a word that is zero in each new child. `None` if the kernel offers none (before Linux
/// 4.14): children are then not told from their parent.
fn wiped_on_fork() -> Option<&'static AtomicU64> {
    if cfg!(miri) {
        return None;
    }
    let len = 4096;
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new private mapping at an address chosen by the kernel overlaps nothing that exists.
    let start = unsafe { mmap_anonymous(std::ptr::null_mut(), len, access, MapFlags::PRIVATE) }.ok()?;
    // SAFETY: the range was mapped by the line above. In this process, the advice changes no byte.
    unsafe { madvise(start, len, Advice::LinuxWipeOnFork) }.ok()?;
    // SAFETY: the mapping is aligned, zeroed, never unmapped, and accessed only by this atomic.
    Some(unsafe { AtomicU64::from_ptr(start.cast()) })
}
