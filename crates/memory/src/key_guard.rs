//! The keys by which peers reach exposed memory.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::Memory;
use crate::memory::leak;

/// How many keys to one range of memory may still be used by a peer.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    live: AtomicUsize,
    // The bytes of a range are counted as leaked once, however many of its guards were dropped.
    is_leaked: AtomicBool,
}

impl Keys {
    pub(crate) fn count(&self) -> usize {
        // Acquire, against the release in `KeyGuard::end`: what a peer wrote before the proof is visible to whoever sees no key.
        self.live.load(Ordering::Acquire)
    }
}

/// Stands for one key by which peers reach [exposed](crate::Exposed) memory: for the libraries that make keys, not for their users.
///
/// While one exists the memory does not become a [`Slice`](crate::Slice) again and its pages stay mapped. It ends by [`end`](Self::end),
/// where it is proven that no peer uses the key any more. One that is dropped leaks the memory, which
/// [`leaked_bytes`](crate::leaked_bytes) counts: without a proof, a peer may still write.
///
/// ```
/// use farreach_memory::Memory;
///
/// let exposed = Memory::allocate(4096)?.expose();
/// let guard = exposed.guard_key();
/// // … a card is told of the memory, and a peer is given the key …
/// let exposed = exposed.try_into_slice().expect_err("there is a key");
/// // … the card has forgotten the key …
/// // SAFETY: in this example, no card was told of it.
/// unsafe { guard.end() };
/// assert_eq!(exposed.try_into_slice().unwrap().len(), 4096);
/// # Ok::<(), farreach_memory::AllocateError>(())
/// ```
#[derive(Debug)]
#[must_use = "a guard that is dropped leaks the memory"]
pub struct KeyGuard {
    keys: Arc<Keys>,
    // Where the range begins in the memory, and how long it is.
    offset: usize,
    len: usize,
    // Taken out by `end`; what is left here when it is dropped is leaked.
    memory: Option<Memory>,
}

impl KeyGuard {
    pub(crate) fn new(keys: &Arc<Keys>, memory: &Memory, offset: usize, len: usize) -> Self {
        keys.live.fetch_add(1, Ordering::Relaxed);
        Self { keys: Arc::clone(keys), offset, len, memory: Some(memory.clone()) }
    }

    fn memory(&self) -> &Memory {
        self.memory.as_ref().expect("it is taken out only at the end")
    }

    /// Stands for one more key to the same memory, which may be made anew before this one is ended.
    pub fn another(&self) -> Self {
        Self::new(&self.keys, self.memory(), self.offset, self.len)
    }

    /// The memory that the key is to: where it begins, and how long it is. It is mapped as long as this guard exists, and there is no reference into it.
    pub fn range(&self) -> (NonNull<u8>, usize) {
        // SAFETY: `Exposed::guard_key` gives the offset of a range of this allocation, so it is within, or at its end where the range is empty.
        (unsafe { self.memory().start().add(self.offset) }, self.len)
    }

    /// Returns how many bytes this guard keeps mapped that only guards hold: 0 while the [`Exposed`](crate::Exposed) exists, otherwise an equal share of the
    /// memory for each guard.
    pub fn unused_bytes(&self) -> usize {
        let guards = self.keys.count().max(1);
        if Arc::strong_count(&self.keys) > guards { 0 } else { self.len / guards }
    }

    /// Ends it: the memory has one key less.
    ///
    /// # Safety
    ///
    /// No peer and no card reads or writes the memory by this key from now on: the library has deregistered it and the transport
    /// enforces that, or whatever could use it has ended.
    pub unsafe fn end(mut self) {
        // The pages may be freed here, and that is in order: it is what the caller has proven.
        drop(self.memory.take());
        self.keys.live.fetch_sub(1, Ordering::Release);
    }
}

impl Drop for KeyGuard {
    fn drop(&mut self) {
        let Some(memory) = self.memory.take() else { return };
        std::mem::forget(memory);
        if !self.keys.is_leaked.swap(true, Ordering::Relaxed) {
            leak(self.len);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::any::Any;

    use super::*;
    use crate::{Exposed, leaked_bytes};

    /// Exposed memory, and what lives as long as its pages.
    fn exposed() -> (Exposed, Arc<()>) {
        let (page, owner) = (Memory::allocate(64).unwrap(), Arc::new(()));
        let (start, kept): (_, Box<dyn Any + Send + Sync>) =
            (page.address(), Box::new((page, Arc::clone(&owner))));
        // SAFETY: the owner holds the page's slice, which keeps it mapped, and never derefs it.
        (unsafe { Memory::from_raw(start, 64, kept) }.expose(), owner)
    }

    #[test]
    fn memory_comes_back_when_the_last_key_is_ended() {
        let (exposed, _owner) = exposed();
        let guards = [exposed.guard_key(), exposed.guard_key()];
        let mut exposed = Some(exposed);
        for (ended, guard) in guards.into_iter().enumerate() {
            let kept = exposed.take().unwrap().try_into_slice().unwrap_err();
            assert_eq!(kept.keys(), 2 - ended);
            // SAFETY: the guard stands for no key: none was made.
            unsafe { guard.end() };
            exposed = Some(kept);
        }
        assert_eq!(exposed.unwrap().try_into_slice().unwrap().len(), 64);
    }

    #[test]
    fn another_guard_is_one_more_to_the_same_range() {
        let mut first = Memory::allocate(128).unwrap();
        let exposed = first.split_off(64).expose();
        let guard = exposed.guard_key();
        let another = guard.another();
        assert_eq!((another.range(), exposed.keys()), ((exposed.address(), exposed.len()), 2));
        for guard in [guard, another] {
            // SAFETY: the guard stands for no key: none was made.
            unsafe { guard.end() };
        }
        assert_eq!(exposed.keys(), 0);
    }

    #[test]
    fn bytes_that_only_guards_hold_are_shared_among_them() {
        let (exposed, _owner) = exposed();
        let guards = [exposed.guard_key(), exposed.guard_key()];
        assert_eq!(guards.each_ref().map(KeyGuard::unused_bytes), [0, 0], "the memory is in our hand");
        drop(exposed);
        assert_eq!(guards.each_ref().map(KeyGuard::unused_bytes), [32, 32]);
        for guard in guards {
            // SAFETY: the guard stands for no key: none was made.
            unsafe { guard.end() };
        }
    }

    #[test]
    fn pages_stay_while_a_key_is_left() {
        let (exposed, owner) = exposed();
        let guard = exposed.guard_key();
        drop(exposed);
        assert_eq!(Arc::strong_count(&owner), 2);
        // SAFETY: the guard stands for no key: none was made.
        unsafe { guard.end() };
        assert_eq!(Arc::strong_count(&owner), 1);
    }

    #[test]
    fn guards_that_are_dropped_leak_the_memory_and_count_it_once() {
        let (exposed, owner) = exposed();
        let before = leaked_bytes();
        for _ in 0..2 {
            drop(exposed.guard_key());
            // Other tests leak too, and none of them 64 bytes.
            assert_eq!((leaked_bytes() - before) % 4096, 64);
        }
        let exposed = exposed.try_into_slice().expect_err("a peer may still write");
        assert_eq!(exposed.keys(), 2);
        drop(exposed);
        assert_eq!(Arc::strong_count(&owner), 2);
    }
}
