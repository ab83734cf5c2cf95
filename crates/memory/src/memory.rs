//! The pages behind slices.

use std::any::Any;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::allocation::Allocation;
use crate::registration::{AttachError, DomainId, Registration, Registrations};
use crate::{AllocateError, MemoryOptions, Slice};

/// A handle on an allocation: what a library registers, what its slices have in common. It gives no right to the bytes.
///
/// ```
/// use farreach_memory::Memory;
///
/// let slice = Memory::allocate(10_000)?;
/// let memory = slice.memory().clone();
/// assert_eq!(memory.len(), 10_000);
/// assert!(memory.notes().is_empty());
/// # Ok::<(), farreach_memory::AllocateError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Memory(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    registrations: Registrations,
    // Dropped by hand: the system gets the pages back only when every card has forgotten them.
    allocation: ManuallyDrop<Allocation>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.registrations.release_all() {
            // SAFETY: it is dropped once, because a drop runs once, and no code follows that reads the field. Every slice over the pages holds the `Arc` whose
            // content this is, so none is left, and `release_all` says that no card has a registration of them.
            unsafe { ManuallyDrop::drop(&mut self.allocation) };
        } else {
            leak(self.allocation.len());
        }
    }
}

/// Memory that could not be freed, because it is not proven that no card reaches it.
static LEAKED_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Counts bytes that are never freed.
pub(crate) fn leak(len: usize) {
    LEAKED_BYTES.fetch_add(len, Ordering::Relaxed);
}

/// The bytes of all allocations that were leaked, because it could not be proven that no card still reaches them. A program that
/// runs long watches that this stays 0.
///
/// ```
/// assert_eq!(farreach_memory::leaked_bytes(), 0);
/// ```
pub fn leaked_bytes() -> usize {
    LEAKED_BYTES.load(Ordering::Relaxed)
}

impl Memory {
    /// Allocates ordinary pages and gives the exclusive right to all their bytes. [`MemoryOptions`] has other kinds.
    pub fn allocate(len: usize) -> Result<Slice, AllocateError> {
        MemoryOptions::new().allocate(len)
    }

    /// Takes memory that the caller has from elsewhere: a shared mapping, a GPU's host buffer.
    ///
    /// # Safety
    ///
    /// `start` is valid for reads and writes of `len` initialised bytes until `owner` is dropped, which happens when the last slice over it and
    /// every registration is gone. Until then nobody touches the bytes but through what this returns.
    pub unsafe fn from_raw(start: NonNull<u8>, len: usize, owner: Box<dyn Any + Send + Sync>) -> Slice {
        // SAFETY: the caller vouches for the bytes. `Inner` drops the owner with the allocation: after the last slice, whose `whole` below is the first,
        // and after the last registration.
        let allocation = unsafe { Allocation::foreign(start, len, owner) };
        Slice::whole(Self::new(allocation))
    }

    pub(crate) fn new(allocation: Allocation) -> Self {
        Self(Arc::new(Inner {
            registrations: Registrations::new(),
            allocation: ManuallyDrop::new(allocation),
        }))
    }

    /// Where the first byte lies. Reading or writing through it is as unsafe as through any pointer: the right to the
    /// bytes is with the slices.
    #[inline]
    pub fn start(&self) -> NonNull<u8> {
        self.0.allocation.start()
    }

    /// The bytes that were asked for.
    #[expect(clippy::len_without_is_empty, reason = "an allocation is never empty")]
    pub fn len(&self) -> usize {
        self.0.allocation.len()
    }

    /// What did not go as asked for: such as ordinary pages where huge ones were wanted and none was free.
    pub fn notes(&self) -> &[String] {
        self.0.allocation.notes()
    }

    /// Whether both are handles on the same pages.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The local key under which a domain has these pages registered, if it has.
    #[inline]
    pub fn local_key(&self, domain: DomainId) -> Option<u64> {
        self.0.registrations.local_key(domain)
    }

    /// Keeps a registration with the pages: for the libraries that register, not for their users.
    ///
    /// # Safety
    ///
    /// `registration` is one of all of these pages in its domain, its key is valid until it is dropped, and it gives no
    /// remote access.
    pub unsafe fn attach(&self, registration: Registration) -> Result<(), AttachError> {
        self.0.registrations.attach(registration)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Buffer, Release};

    struct Guard {
        is_ended: bool,
        is_told: Arc<AtomicUsize>,
    }

    impl Release for Guard {
        fn release(self: Box<Self>) -> bool {
            self.is_told.fetch_add(1, Ordering::Relaxed);
            self.is_ended
        }
    }

    #[test]
    fn every_kind_of_part_finds_the_key_of_its_memory() {
        let slice = Memory::allocate(8).unwrap();
        let (memory, domain, is_told) = (slice.memory().clone(), DomainId::unique(), Arc::default());
        // SAFETY: no card knows the key, so that nothing ever uses it.
        unsafe { memory.attach(Registration::new(domain, 5, Box::new(Guard { is_ended: true, is_told }))) }
            .unwrap();
        assert!(memory.notes().is_empty());
        let lent = slice.lend();
        assert!(lent.local_key(domain) == Some(5) && !lent.is_empty());
        let shared = lent.try_reclaim().unwrap().share();
        assert_eq!((shared.local_key(domain), shared.as_ref().len()), (Some(5), 8));
        let buffer = Buffer::from(shared.try_unshare().unwrap());
        assert_eq!(buffer.local_key(domain), Some(5));
        let mut slice = buffer.into_slice().unwrap();
        slice.as_mut()[0] = 9;
        assert!(slice.as_ref()[0] == 9 && !slice.is_empty() && slice.split_off(8).is_empty());
        assert!(slice.split_off(8).lend().is_empty());
        let exposed = slice.expose();
        assert_eq!(exposed.to_vec(), [9, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    #[cfg_attr(miri, ignore = "reads /proc/self/maps")]
    fn pages_are_unmapped_when_the_memory_is_gone() {
        // No other test has so much in one piece.
        const LEN: usize = 77 << 20;
        let slice = Memory::allocate(LEN).unwrap();
        let start = slice.address().as_ptr().addr();
        let is_mapped = || {
            let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
            let ranges = maps.lines().filter_map(|line| line.split_once(' ')?.0.split_once('-'));
            let number = |text| usize::from_str_radix(text, 16).unwrap();
            ranges
                .map(|(from, to)| number(from)..number(to))
                .any(|range| range.contains(&start) && range.end >= start + LEN)
        };
        assert!(is_mapped());
        drop(slice);
        assert!(!is_mapped());
    }

    #[test]
    fn pages_are_freed_when_the_last_slice_is_gone_and_the_cards_forgot_them() {
        for is_ended in [true, false] {
            let leaked_before = leaked_bytes();
            let mut slice = Memory::allocate(8192).unwrap();
            let address = slice.address();
            let is_told = Arc::new(AtomicUsize::new(0));
            let guard = Guard { is_ended, is_told: Arc::clone(&is_told) };
            let domain = DomainId::unique();
            // SAFETY: no card knows the key, so that nothing ever uses it.
            unsafe { slice.memory().attach(Registration::new(domain, 5, Box::new(guard))) }.unwrap();
            assert_eq!(slice.local_key(domain), Some(5));

            let rest = slice.split_off(4096);
            drop(slice);
            assert_eq!(is_told.load(Ordering::Relaxed), 0, "a slice is left");
            drop(rest);
            assert_eq!(is_told.load(Ordering::Relaxed), 1);
            assert_eq!(leaked_bytes() - leaked_before, if is_ended { 0 } else { 8192 });
            // Pages that were freed may be another test's by now, so only the others can be looked for.
            assert!(is_ended || cfg!(miri) || is_mapped(address));
        }
    }

    /// A slice in whichever of its three places.
    #[test]
    fn pages_stay_while_a_slice_is_shared_or_exposed() {
        let ways: [fn(Slice) -> Box<dyn Any>; 3] =
            [|slice| Box::new(slice), |slice| Box::new(slice.share()), |slice| Box::new(slice.expose())];
        for way in ways {
            let (page, owner) = (Memory::allocate(64).unwrap(), Arc::new(()));
            let (start, kept) = (page.address(), Arc::clone(&owner));
            // SAFETY: the owner holds the page's slice, which keeps it mapped, and never derefs it.
            let slice = unsafe { Memory::from_raw(start, 64, Box::new((page, owner))) };
            let place = way(slice);
            assert_eq!(Arc::strong_count(&kept), 2);
            drop(place);
            assert_eq!(Arc::strong_count(&kept), 1);
        }
    }

    #[test]
    fn what_has_no_key_is_the_same_slice_again() {
        let mut slice = Memory::allocate(64).unwrap();
        let rest = slice.split_off(16);
        let exposed = slice.expose();
        exposed.write_at(0, b"by a peer");
        let mut slice = exposed.try_into_slice().expect("no key to it was made");
        assert_eq!((&slice[..9], slice.len(), slice.offset()), (&b"by a peer"[..], 16, 0));
        slice.unsplit(rest).expect("its neighbour is its neighbour still");
    }

    fn is_mapped(address: NonNull<u8>) -> bool {
        let mut residency = 0;
        // SAFETY: the call takes any address, and writes one byte for one page: to the local.
        unsafe { libc::mincore(address.as_ptr().cast(), 1, &raw mut residency) == 0 }
    }
}
