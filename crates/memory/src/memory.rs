//! The pages behind slices.
//!
//! Invariant: pages are freed only after the last slice over them is gone and every registration of
//! them has ended. Otherwise they are leaked and counted.

use std::any::Any;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::allocation::Allocation;
use crate::registration::{AttachError, DomainId, Registration, Registrations};
use crate::{AllocateError, MemoryOptions, Slice};

/// A handle on an allocation, which a library registers and its slices share. It gives no right to
/// the bytes.
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
    // Dropped explicitly: the pages are freed only when every registration has ended.
    allocation: ManuallyDrop<Allocation>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.registrations.release_all() {
            // SAFETY: `drop` runs once, and nothing reads the field afterwards. Every slice over
            // the pages holds the `Arc` that contains this `Inner`, so none is left, and
            // `release_all` returned `true`, so no device has a registration of the pages.
            unsafe { ManuallyDrop::drop(&mut self.allocation) };
        } else {
            leak(self.allocation.len());
        }
    }
}

/// The bytes that were not freed, because no proof exists that no device accesses them.
static LEAKED_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Counts bytes that are never freed.
pub(crate) fn leak(len: usize) {
    LEAKED_BYTES.fetch_add(len, Ordering::Relaxed);
}

/// Returns the number of bytes that were leaked, because it could not be proven that no device
/// accesses them any more. Long-running programs should check that this stays 0.
///
/// ```
/// assert_eq!(farreach_memory::leaked_bytes(), 0);
/// ```
pub fn leaked_bytes() -> usize {
    LEAKED_BYTES.load(Ordering::Relaxed)
}

impl Memory {
    /// Allocates ordinary pages and returns the exclusive right to all their bytes.
    /// [`MemoryOptions`] offers huge pages and NUMA nodes.
    pub fn allocate(len: usize) -> Result<Slice, AllocateError> {
        MemoryOptions::new().allocate(len)
    }

    /// Takes over memory that was allocated elsewhere, such as a shared mapping or a GPU's host
    /// buffer. [`from_vec`](Self::from_vec) takes a vector and needs no `unsafe`.
    ///
    /// It has no [pages of its own](Self::has_own_pages), so no other process can map it.
    ///
    /// `owner` is dropped when the last slice over the memory and every registration of it are gone;
    /// never, if it cannot be proven that a registration has ended ([`leaked_bytes`]).
    ///
    /// # Safety
    ///
    /// Until `owner` is dropped:
    ///
    /// - `start` is valid for reads and writes of `len` initialised bytes, on any thread,
    /// - the bytes are accessed only through the returned slice,
    /// - the pages are not unmapped, moved, protected or shortened. A mapping of a file breaks this
    ///   rule if anyone can truncate the file: the next access raises SIGBUS.
    ///
    /// ```
    /// use std::ptr::NonNull;
    /// use farreach_memory::Memory;
    ///
    /// // Memory of a library that frees it by itself: here, a page of this crate.
    /// let library = Memory::allocate(4096)?;
    /// let (start, len): (NonNull<u8>, usize) = (library.address(), library.len());
    /// // SAFETY: the owner is the only slice over the page. It keeps the page mapped, and is not used.
    /// let mut slice = unsafe { Memory::from_raw(start, len, Box::new(library)) };
    /// slice[..5].copy_from_slice(b"hello");
    /// # Ok::<(), farreach_memory::AllocateError>(())
    /// ```
    pub unsafe fn from_raw(start: NonNull<u8>, len: usize, owner: Box<dyn Any + Send + Sync>) -> Slice {
        // SAFETY: the caller guarantees that the bytes are valid. `Inner` drops the owner with the
        // allocation, after the last slice (the one below is the first) and the last registration.
        let allocation = unsafe { Allocation::foreign(start, len, owner) };
        Slice::whole(Self::new(allocation))
    }

    /// Returns the vector that the memory was made from, if this is the last handle on it: no other
    /// slice, no key of a peer and no other `Memory` is left. Registrations are ended first.
    ///
    /// The caller gives up the range that covers the memory with this handle.
    pub(crate) fn into_vec(self) -> Result<Vec<u8>, Self> {
        if !self.allocation().is_of_vec() {
            return Err(self);
        }
        let mut inner = Arc::try_unwrap(self.0).map_err(Self)?;
        let is_released = inner.registrations.release_all();
        // SAFETY: each slice, shared, lent or exposed range holds a handle, and so does each guard of
        // a key. This was the last one, so none is left, and none can be made from it any more.
        let vec = unsafe { inner.allocation.take_vec() }.expect("the bytes are those of a vector");
        if is_released {
            return Ok(vec);
        }
        // As in `drop`: a device may still access the bytes.
        leak(vec.len());
        Ok(ManuallyDrop::new(vec).to_vec())
    }

    pub(crate) fn new(allocation: Allocation) -> Self {
        Self(Arc::new(Inner {
            registrations: Registrations::new(),
            allocation: ManuallyDrop::new(allocation),
        }))
    }

    pub(crate) fn allocation(&self) -> &Allocation {
        &self.0.allocation
    }

    /// Returns the address of the first byte. Accessing memory through it is as unsafe as through
    /// any raw pointer: the slices own the right to the bytes.
    #[inline]
    pub fn start(&self) -> NonNull<u8> {
        self.0.allocation.start()
    }

    /// Returns the length in bytes, as requested.
    pub fn len(&self) -> usize {
        self.0.allocation.len()
    }

    /// Returns `true` if it has no bytes: it was made from an empty vector.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns `true` if the memory begins at a page and nothing else is in its pages, because this
    /// crate has allocated it. Another process can map only such memory.
    ///
    /// Memory of a [vector](Self::from_vec), or [from elsewhere](Self::from_raw), begins at any
    /// address, and shares its first and its last page with other data of this process.
    pub fn has_own_pages(&self) -> bool {
        self.allocation().mapped().is_some()
    }

    /// Returns notes on what differs from the request, such as ordinary pages because no huge pages
    /// were free.
    pub fn notes(&self) -> &[String] {
        self.0.allocation.notes()
    }

    /// Returns `true` if both are handles on the same pages.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Returns the local key under which a domain has registered these pages, if any.
    #[inline]
    pub fn local_key(&self, domain: DomainId) -> Option<u64> {
        self.0.registrations.local_key(domain)
    }

    /// Registers the pages in a domain, unless they are, and attaches the registration to them. It is
    /// meant for libraries that register memory, not for their users.
    ///
    /// This is the registration cache: it belongs to the allocation and ends with it. No address is
    /// looked up, so memory that is allocated at the address of freed memory is registered anew.
    /// Memory without bytes is not registered.
    ///
    /// # Safety
    ///
    /// `register` registers all of these pages in the domain, at this moment. The key is valid until
    /// the registration is released, and permits no remote access. The same holds for a registration
    /// that [`Release::renew`](crate::Release::renew) returns.
    pub unsafe fn attach<E>(
        &self,
        domain: DomainId,
        register: impl FnOnce() -> Result<Registration, E>,
    ) -> Result<(), AttachError<E>> {
        // Devices refuse to register nothing.
        if self.is_empty() {
            return Ok(());
        }
        self.0.registrations.attach(domain, register)
    }

    /// Registers the pages anew in all domains, after others were mapped at some of the addresses.
    pub(crate) fn renew_registrations(&self) -> Result<(), String> {
        // SAFETY: this is the range of the allocation.
        unsafe { self.0.registrations.renew_all(self.start(), self.len()) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

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

        unsafe fn renew(&self, _: NonNull<u8>, _: usize) -> Result<Registration, String> {
            Err("nothing is exchanged here".to_owned())
        }
    }

    /// Held by tests that leak and compare the number of leaked bytes.
    static LEAKING: Mutex<()> = Mutex::new(());

    fn registration(guard: Guard) -> Result<Registration, ()> {
        Ok(Registration::new(5, Box::new(guard)))
    }

    #[test]
    fn every_kind_of_part_finds_the_key_of_its_memory() {
        let slice = Memory::allocate(8).unwrap();
        let (memory, domain, is_told) = (slice.memory().clone(), DomainId::unique(), Arc::default());
        // SAFETY: no device knows the key, so nothing uses it.
        let attached = unsafe { memory.attach(domain, || registration(Guard { is_ended: true, is_told })) };
        attached.unwrap();
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
        // No other test maps that much in one mapping.
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
        let _leaking = LEAKING.lock();
        for is_ended in [true, false] {
            let leaked_before = leaked_bytes();
            let mut slice = Memory::allocate(8192).unwrap();
            let address = slice.address();
            let is_told = Arc::new(AtomicUsize::new(0));
            let guard = Guard { is_ended, is_told: Arc::clone(&is_told) };
            let domain = DomainId::unique();
            // SAFETY: no device knows the key, so nothing uses it.
            unsafe { slice.memory().attach(domain, || registration(guard)) }.unwrap();
            assert_eq!(slice.local_key(domain), Some(5));

            let rest = slice.split_off(4096);
            drop(slice);
            assert_eq!(is_told.load(Ordering::Relaxed), 0, "a slice is left");
            drop(rest);
            assert_eq!(is_told.load(Ordering::Relaxed), 1);
            assert_eq!(leaked_bytes() - leaked_before, if is_ended { 0 } else { 8192 });
            // Freed pages may be in use by another test by now, so only leaked ones can be checked.
            assert!(is_ended || cfg!(miri) || is_mapped(address));
        }
    }

    #[test]
    fn a_vector_that_a_device_may_still_access_is_leaked_and_comes_back_as_a_copy() {
        let _leaking = LEAKING.lock();
        let slice = |byte| {
            let slice = Memory::from_vec(vec![byte; 4096]);
            let guard = Guard { is_ended: false, is_told: Arc::default() };
            // SAFETY: no device knows the key, so nothing uses it.
            unsafe { slice.memory().attach(DomainId::unique(), || registration(guard)) }.unwrap();
            slice
        };
        let leaked_before = leaked_bytes();
        let kept = slice(7);
        let start = kept.address();
        let vec = kept.into_vec().unwrap();
        assert!(vec.as_ptr() != start.as_ptr() && vec == [7; 4096]);
        assert_eq!(leaked_bytes() - leaked_before, 4096);
        // SAFETY: the bytes were leaked, and nothing writes to them.
        assert_eq!(unsafe { start.add(4095).read_volatile() }, 7);
        drop(slice(8));
        assert_eq!(leaked_bytes() - leaked_before, 2 * 4096);
    }

    #[test]
    fn memory_is_registered_once_for_each_domain_however_often_it_is_used() {
        let (mut slice, domains) = (Memory::from_vec(vec![7; 64]), [(); 3].map(|()| DomainId::unique()));
        let (start, registered, is_told) = (slice.address(), AtomicUsize::new(0), Arc::default());
        let register = || {
            registered.fetch_add(1, Ordering::Relaxed);
            registration(Guard { is_ended: true, is_told: Arc::clone(&is_told) })
        };
        for _ in 0..if cfg!(miri) { 10 } else { 1000 } {
            // A transfer takes the slice, and gives it back.
            let lent = slice.lend();
            for domain in domains {
                // SAFETY: no device knows the key, so nothing uses it.
                unsafe { lent.memory().attach(domain, register) }.unwrap();
            }
            slice = lent.try_reclaim().unwrap();
        }
        assert_eq!(registered.load(Ordering::Relaxed), domains.len());

        // Other memory at the same address: nothing of the first one is found.
        let vec = slice.into_vec().unwrap();
        assert_eq!(is_told.load(Ordering::Relaxed), domains.len(), "registrations end with their memory");
        let slice = Memory::from_vec(vec);
        assert_eq!((slice.address(), slice.local_key(domains[0])), (start, None));
        // SAFETY: as above.
        unsafe { slice.memory().attach(domains[0], register) }.unwrap();
        assert_eq!(registered.load(Ordering::Relaxed), domains.len() + 1);
    }

    /// Checks a slice in each of its three places.
    #[test]
    fn pages_stay_while_a_slice_is_shared_or_exposed() {
        let ways: [fn(Slice) -> Box<dyn Any>; 3] =
            [|slice| Box::new(slice), |slice| Box::new(slice.share()), |slice| Box::new(slice.expose())];
        for way in ways {
            let (page, owner) = (Memory::allocate(64).unwrap(), Arc::new(()));
            let (start, kept) = (page.address(), Arc::clone(&owner));
            // SAFETY: the owner holds the page's slice, which keeps the page mapped, and never
            // derefs it.
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
        slice.unsplit(rest).expect("they are still neighbours");
    }

    fn is_mapped(address: NonNull<u8>) -> bool {
        let mut residency = 0;
        // SAFETY: the call accepts any address, and writes one byte for one page, to the local.
        unsafe { libc::mincore(address.as_ptr().cast(), 1, &raw mut residency) == 0 }
    }
}
