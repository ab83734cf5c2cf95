//! Counts objects that could not be released.
//!
//! The device may still use an object that the kernel refuses to release, so nothing that the
//! object depends on is freed. The object and its parents stay until the process ends, and are
//! counted here.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering};

use farreach_verbs_sys::SymbolMissing;

/// Returns the number of objects of this process that could not be released so far. Objects kept
/// alive by a leaked child are not counted.
///
/// ```
/// use farreach_verbs::leak::leaked;
///
/// assert_eq!(leaked().total(), 0);
/// ```
pub fn leaked() -> Leaked {
    let of = |kind: Kind| COUNTS[kind as usize].load(Ordering::Relaxed);
    Leaked {
        contexts: of(Kind::Context),
        protection_domains: of(Kind::ProtectionDomain),
        memory_regions: of(Kind::MemoryRegion),
        memory_windows: of(Kind::MemoryWindow),
        device_memories: of(Kind::DeviceMemory),
        completion_channels: of(Kind::CompletionChannel),
        completion_queues: of(Kind::CompletionQueue),
        shared_receive_queues: of(Kind::SharedReceiveQueue),
        queue_pairs: of(Kind::QueuePair),
        address_handles: of(Kind::AddressHandle),
        xrc_domains: of(Kind::XrcDomain),
    }
}

/// The number of objects that could not be released, by kind. See [`leaked`].
///
/// ```
/// use farreach_verbs::leak::Leaked;
///
/// let leaked = Leaked { queue_pairs: 1, memory_regions: 2, ..Leaked::default() };
/// assert_eq!(leaked.total(), 3);
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "each field is named after what it counts")]
pub struct Leaked {
    pub contexts: u64,
    pub protection_domains: u64,
    pub memory_regions: u64,
    pub memory_windows: u64,
    pub device_memories: u64,
    pub completion_channels: u64,
    pub completion_queues: u64,
    pub shared_receive_queues: u64,
    pub queue_pairs: u64,
    pub address_handles: u64,
    pub xrc_domains: u64,
}

impl Leaked {
    /// Returns the total of all kinds.
    pub fn total(&self) -> u64 {
        let memory =
            self.memory_regions + self.memory_windows + self.device_memories + self.protection_domains;
        let queues =
            self.completion_channels + self.completion_queues + self.shared_receive_queues + self.queue_pairs;
        self.contexts + memory + queues + self.address_handles + self.xrc_domains
    }
}

/// The kind of an object.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    Context,
    ProtectionDomain,
    MemoryRegion,
    MemoryWindow,
    DeviceMemory,
    CompletionChannel,
    CompletionQueue,
    SharedReceiveQueue,
    QueuePair,
    AddressHandle,
    XrcDomain,
}

const KINDS: usize = Kind::XrcDomain as usize + 1;

static COUNTS: [AtomicU64; KINDS] = [const { AtomicU64::new(0) }; KINDS];

/// Interprets the result of a destroy function: 0 is success. Anything else is counted, and
/// returned as an errno.
///
/// After a failure, the caller must keep the object's parents alive for good.
pub(crate) fn judge(kind: Kind, answer: Result<c_int, SymbolMissing>) -> Result<(), i32> {
    let errno = match answer {
        Ok(0) => return Ok(()),
        // Some functions return -1 and set errno.
        Ok(-1) => std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO),
        Ok(errno) => errno,
        Err(_) => libc::ENOSYS,
    };
    COUNTS[kind as usize].fetch_add(1, Ordering::Relaxed);
    Err(errno)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_failures_are_counted() {
        let before = leaked().xrc_domains;
        assert_eq!(judge(Kind::XrcDomain, Ok(0)), Ok(()));
        assert_eq!(leaked().xrc_domains, before);
        assert_eq!(judge(Kind::XrcDomain, Ok(libc::EBUSY)), Err(libc::EBUSY));
        assert_eq!(leaked().xrc_domains, before + 1);
        assert!(leaked().total() > 0);
    }
}
