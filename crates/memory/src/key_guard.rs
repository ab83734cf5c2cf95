//! Counts the keys by which peers reach exposed memory.
//!
//! Invariant: the count falls only by `KeyGuard::end`, an `unsafe` function whose caller proves
//! that no peer can use the key. A guard that is dropped instead leaks the memory.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::memory::leak;
use crate::{Memory, Shared};

/// The bit of [`Keys::live`] that is set while the pages are being exchanged.
const EXCHANGING: usize = 1 << (usize::BITS - 1);

/// How long a reference to an atomic waits for an exchange.
const EXCHANGED_WITHIN: Duration = Duration::from_secs(10);

/// The time between two looks whether it has ended. A step takes about as long.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// The number of keys to one range of memory that a peer may still use.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    /// The number of keys, and [`EXCHANGING`]. One word, so that no key is made between the check of an
    /// exchange that it has all keys and its begin.
    live: AtomicUsize,
    // The bytes of a range are counted as leaked once, however many of its guards are dropped.
    is_leaked: AtomicBool,
    /// Held while pages are exchanged.
    pages: Mutex<()>,
    /// Odd while `pages` is held by a [`PagesLock`].
    changes: AtomicU64,
    /// Whether the owner has had a reference to an atomic of the memory.
    has_atomics: AtomicBool,
    /// Whether the owner has taken the memory back on its own word, as a slice.
    is_slice: AtomicBool,
    /// Memory that peers may only read. It does not become a slice while a key exists.
    shared: Option<Shared>,
}

impl Keys {
    pub(crate) fn of_shared(shared: Shared) -> Self {
        Self { shared: Some(shared), ..Self::default() }
    }

    fn pages(&self) -> MutexGuard<'_, ()> {
        // It protects no value.
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the pages for a step of an exchange.
    pub(crate) fn lock_pages(&self) -> PagesLock<'_> {
        let pages = self.pages();
        self.changes.fetch_add(1, Ordering::Relaxed);
        // Before the pages are copied. Who has written has the same fence between the bytes and its look
        // at the changes: either it sees that pages may have been copied, or the copy has its bytes.
        fence(Ordering::SeqCst);
        PagesLock { keys: self, _pages: pages }
    }

    /// Writes bytes to pages that may be exchanged meanwhile, and again if some were. `write` may be
    /// called several times.
    #[inline]
    pub(crate) fn write(&self, mut write: impl FnMut()) {
        loop {
            // Acquire pairs with the Release in the drop of a `PagesLock`: the new pages are mapped.
            let before = self.changes.load(Ordering::Acquire);
            write();
            fence(Ordering::SeqCst);
            if before.is_multiple_of(2) && self.changes.load(Ordering::Relaxed) == before {
                return;
            }
            drop(self.pages());
        }
    }

    /// Notes that the owner gets a reference to an atomic. What it changes by it could be lost while pages
    /// are exchanged, and cannot be changed again, so none are from now on. Waits for the end of an exchange,
    /// but not for one that does not end: it stops where it is.
    pub(crate) fn note_atomic(&self) {
        if self.has_atomics() {
            return;
        }
        let begun = Instant::now();
        loop {
            // After the exchange of the pages that are being copied, and before the next ones.
            let pages = self.pages();
            if !self.is_exchanging() || begun.elapsed() >= EXCHANGED_WITHIN {
                return self.has_atomics.store(true, Ordering::Release);
            }
            drop(pages);
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// Returns whether the owner has had a reference to an atomic.
    pub(crate) fn has_atomics(&self) -> bool {
        self.has_atomics.load(Ordering::Acquire)
    }

    /// Notes that the memory becomes a slice although keys are left. What the owner writes to it cannot be
    /// written again, so no pages are exchanged from now on.
    pub(crate) fn note_slice(&self) {
        let _pages = self.pages();
        self.is_slice.store(true, Ordering::Release);
    }

    /// Returns whether these are keys to [`Shared`] memory, to which there may be others.
    pub(crate) fn is_shared(&self) -> bool {
        self.shared.is_some()
    }

    pub(crate) fn is_slice(&self) -> bool {
        self.is_slice.load(Ordering::Acquire)
    }

    pub(crate) fn count(&self) -> usize {
        // Acquire pairs with the Release in `KeyGuard::end`: a thread that reads zero sees all that
        // peers wrote before the keys were ended.
        self.live.load(Ordering::Acquire) & !EXCHANGING
    }

    pub(crate) fn is_exchanging(&self) -> bool {
        self.live.load(Ordering::Acquire) & EXCHANGING != 0
    }

    /// Adds a key. While the pages are being exchanged there is none: its device or process would use the
    /// old ones.
    fn add(&self) -> Result<(), ExchangingError> {
        let more = |live| (live & EXCHANGING == 0).then_some(live + 1);
        match self.live.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) {
            Ok(_) => Ok(()),
            Err(_) => Err(ExchangingError),
        }
    }

    /// Marks the pages as being exchanged, if these are all keys. From then on no key is made.
    pub(crate) fn begin_exchange(&self, keys: usize) -> bool {
        self.live.compare_exchange(keys, keys | EXCHANGING, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    pub(crate) fn end_exchange(&self) {
        let before = self.live.fetch_and(!EXCHANGING, Ordering::Release);
        debug_assert!(before & EXCHANGING != 0, "an exchange ends once");
    }
}

/// The error of a key to memory whose pages are being exchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the pages of the memory are being exchanged, to prove that a peer has stopped")]
pub struct ExchangingError;

impl ExchangingError {
    /// Returns an instruction that resolves the error.
    pub fn fix(&self) -> &'static str {
        "wait until the revocation has ended: an exchange takes a second or two for a GiB"
    }
}

/// A lock on the pages of exposed memory, for a step of an exchange. What the owner writes meanwhile is
/// written again.
#[derive(Debug)]
#[must_use = "the pages are locked as long as it exists"]
pub(crate) struct PagesLock<'a> {
    keys: &'a Keys,
    _pages: MutexGuard<'a, ()>,
}

impl Drop for PagesLock<'_> {
    fn drop(&mut self) {
        // Before the lock is released.
        self.keys.changes.fetch_add(1, Ordering::Release);
    }
}

/// A guard for one key by which peers reach [exposed](crate::Exposed) memory. It is meant for
/// libraries that make keys, not for their users.
///
/// While a guard exists, the memory does not become a [`Slice`](crate::Slice) again and its pages
/// stay mapped. [`end`](Self::end) ends a guard where it is proven that no peer can use the key any
/// more. Dropping a guard leaks the memory, because a peer may still write to it;
/// [`leaked_bytes`](crate::leaked_bytes) counts the bytes.
///
/// ```
/// use farreach_memory::{KeyAccess, Memory};
///
/// let exposed = Memory::allocate(4096)?.expose();
/// let guard = exposed.guard_key(KeyAccess::Write).expect("it is no shared memory");
/// // … register the memory with a device, and send the key to a peer …
/// let exposed = exposed.try_into_slice().expect_err("a key is left");
/// // … deregister it, so that the device refuses the key …
/// // SAFETY: in this example, no device has registered the memory.
/// unsafe { guard.end() };
/// assert_eq!(exposed.try_into_slice().unwrap().len(), 4096);
/// # Ok::<(), farreach_memory::AllocateError>(())
/// ```
#[derive(Debug)]
#[must_use = "dropping a guard leaks the memory"]
pub struct KeyGuard {
    keys: Arc<Keys>,
    // The range's offset in the memory, and its length.
    offset: usize,
    len: usize,
    // Taken by `end`. If it is still here on drop, the memory is leaked.
    memory: Option<Memory>,
}

impl KeyGuard {
    pub(crate) fn new(
        keys: &Arc<Keys>,
        memory: &Memory,
        offset: usize,
        len: usize,
    ) -> Result<Self, ExchangingError> {
        keys.add()?;
        Ok(Self { keys: Arc::clone(keys), offset, len, memory: Some(memory.clone()) })
    }

    /// Returns the allocation, the offset of the range in it, and the length of the range.
    pub(crate) fn place(&self) -> (&Memory, usize, usize) {
        (self.memory(), self.offset, self.len)
    }

    /// Returns the keys of the range.
    pub(crate) fn keys(&self) -> &Arc<Keys> {
        &self.keys
    }

    fn memory(&self) -> &Memory {
        self.memory.as_ref().expect("only `end` and `drop` take the memory")
    }

    /// Returns a guard for one more key to the same memory, so that the memory can be registered
    /// again before this key is ended.
    pub fn another(&self) -> Self {
        let another = Self::new(&self.keys, self.memory(), self.offset, self.len);
        another.expect("an exchange owns all guards of its memory, so nobody has this one")
    }

    /// Returns the start and the length of the memory that the key leads to. The memory stays
    /// mapped while this guard exists, and no reference into it exists, unless it is
    /// [`Shared`](crate::Shared): then it does not change.
    pub fn range(&self) -> (NonNull<u8>, usize) {
        // SAFETY: `Exposed::guard_key` passes the offset of a range of this allocation, so it is
        // within the allocation, or at its end if the range is empty.
        (unsafe { self.memory().start().add(self.offset) }, self.len)
    }

    /// Returns the number of bytes that stay mapped only because of this guard: 0 while the
    /// [`Exposed`](crate::Exposed) exists, otherwise an equal share of the memory for each guard.
    pub fn unused_bytes(&self) -> usize {
        let guards = self.keys.count().max(1);
        if Arc::strong_count(&self.keys) > guards { 0 } else { self.len / guards }
    }

    /// Ends the guard. The memory then has one key less.
    ///
    /// # Safety
    ///
    /// No peer and no device reads or writes the memory by this key from now on: the library has
    /// deregistered it and the transport enforces that, or every object that could use the key has
    /// ended.
    pub unsafe fn end(mut self) {
        // This may free the pages. The caller's proof allows that.
        drop(self.memory.take());
        self.keys.live.fetch_sub(1, Ordering::Release);
    }
}

impl Drop for KeyGuard {
    fn drop(&mut self) {
        let Some(memory) = self.memory.take() else { return };
        // `live` is not lowered either, so `try_into_slice` fails for good.
        std::mem::forget(memory);
        // Shared memory stays shared.
        std::mem::forget(Arc::clone(&self.keys));
        if !self.keys.is_leaked.swap(true, Ordering::Relaxed) {
            leak(self.len);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::any::Any;

    use super::*;
    use crate::{Exposed, KeyAccess, leaked_bytes};

    /// Returns exposed memory, and an `Arc` whose other reference lives as long as the pages.
    fn exposed() -> (Exposed, Arc<()>) {
        let (page, owner) = (Memory::allocate(64).unwrap(), Arc::new(()));
        let (start, kept): (_, Box<dyn Any + Send + Sync>) =
            (page.address(), Box::new((page, Arc::clone(&owner))));
        // SAFETY: the owner holds the page's slice, which keeps the page mapped, and never derefs
        // it.
        (unsafe { Memory::from_raw(start, 64, kept) }.expose(), owner)
    }

    fn guard(exposed: &Exposed) -> KeyGuard {
        exposed.guard_key(KeyAccess::Write).unwrap()
    }

    #[test]
    fn what_is_written_while_pages_change_is_written_again() {
        let (keys, mut writes) = (Keys::default(), 0);
        keys.write(|| {
            writes += 1;
            if writes < 3 {
                drop(keys.lock_pages());
            }
        });
        assert_eq!(writes, 3);
        keys.write(|| writes += 1);
        assert_eq!(writes, 4, "once if nothing has changed");
    }

    #[test]
    fn who_writes_while_pages_are_locked_waits() {
        let (keys, written) = (Keys::default(), AtomicUsize::new(0));
        let write = || {
            written.fetch_add(1, Ordering::SeqCst);
        };
        std::thread::scope(|scope| {
            let pages = keys.lock_pages();
            let writer = scope.spawn(|| keys.write(write));
            while written.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            assert!(!writer.is_finished());
            drop(pages);
            writer.join().unwrap();
        });
        assert!(written.into_inner() >= 2);
    }

    #[test]
    fn memory_comes_back_when_the_last_key_is_ended() {
        let (exposed, _owner) = exposed();
        let guards = [guard(&exposed), guard(&exposed)];
        let mut exposed = Some(exposed);
        for (ended, guard) in guards.into_iter().enumerate() {
            let kept = exposed.take().unwrap().try_into_slice().unwrap_err();
            assert_eq!(kept.keys(), 2 - ended);
            // SAFETY: no key was made for this guard.
            unsafe { guard.end() };
            exposed = Some(kept);
        }
        assert_eq!(exposed.unwrap().try_into_slice().unwrap().len(), 64);
    }

    #[test]
    fn another_guard_is_one_more_to_the_same_range() {
        let mut first = Memory::allocate(128).unwrap();
        let exposed = first.split_off(64).expose();
        let guard = guard(&exposed);
        let another = guard.another();
        assert_eq!((another.range(), exposed.keys()), ((exposed.address(), exposed.len()), 2));
        for guard in [guard, another] {
            // SAFETY: no key was made for this guard.
            unsafe { guard.end() };
        }
        assert_eq!(exposed.keys(), 0);
    }

    #[test]
    fn bytes_that_only_guards_hold_are_shared_among_them() {
        let (exposed, _owner) = exposed();
        let guards = [guard(&exposed), guard(&exposed)];
        assert_eq!(guards.each_ref().map(KeyGuard::unused_bytes), [0, 0], "the `Exposed` still exists");
        drop(exposed);
        assert_eq!(guards.each_ref().map(KeyGuard::unused_bytes), [32, 32]);
        for guard in guards {
            // SAFETY: no key was made for this guard.
            unsafe { guard.end() };
        }
    }

    #[test]
    fn pages_stay_while_a_key_is_left() {
        let (exposed, owner) = exposed();
        let guard = guard(&exposed);
        drop(exposed);
        assert_eq!(Arc::strong_count(&owner), 2);
        // SAFETY: no key was made for this guard.
        unsafe { guard.end() };
        assert_eq!(Arc::strong_count(&owner), 1);
    }

    #[test]
    fn guards_that_are_dropped_leak_the_memory_and_count_it_once() {
        let (exposed, owner) = exposed();
        let before = leaked_bytes();
        for _ in 0..2 {
            drop(guard(&exposed));
            // Other tests leak too, but only multiples of 4096 bytes.
            assert_eq!((leaked_bytes() - before) % 4096, 64);
        }
        let exposed = exposed.try_into_slice().expect_err("a peer may still write");
        assert_eq!(exposed.keys(), 2);
        drop(exposed);
        assert_eq!(Arc::strong_count(&owner), 2);
    }
}
