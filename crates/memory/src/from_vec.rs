//! Memory that begins as a vector.
//!
//! Invariant: the bytes go back to the allocator as the vector that they came from, once, after the
//! last slice is gone and every registration has ended. What cannot be proven to have ended is leaked
//! and counted.

use crate::allocation::Allocation;
use crate::{Memory, Slice};

impl Memory {
    /// Takes over a vector and returns the exclusive right to its bytes. It copies nothing, and
    /// [`Slice::into_vec`] returns the vector. Capacity beyond the length is kept and not used.
    ///
    /// The bytes begin at any address. [Pages of its own](Self::has_own_pages), as those of
    /// [`allocate`](Self::allocate), differ in this:
    ///
    /// - No other process can map the bytes. Memory that is granted within a host needs that, or goes
    ///   over another transport.
    /// - A device pins whole pages, so also the neighbours of the bytes on their first and last page.
    ///   It accesses none of them: a local registration is used only for buffers of operations, and
    ///   the key of a peer covers exactly the bytes that were granted.
    /// - A forked child inherits them. Before Linux 5.12, a fork while a device has registered them may
    ///   give the device other pages than this process; such a program allocates instead.
    /// - There are no huge pages, and no NUMA node can be chosen.
    ///
    /// Registering takes a system call and pins the pages, and memory that is freed is registered no
    /// more. So buffers that are used again and again are better kept as slices.
    ///
    /// ```
    /// use farreach_memory::Memory;
    ///
    /// let mut slice = Memory::from_vec(vec![1, 2, 3]);
    /// slice[0] = 7;
    /// assert!(!slice.memory().has_own_pages());
    /// assert_eq!(slice.into_vec().expect("nothing else refers to it"), [7, 2, 3]);
    /// ```
    pub fn from_vec(vec: Vec<u8>) -> Slice {
        Slice::whole(Self::new(Allocation::of_vec(vec)))
    }
}

impl From<Vec<u8>> for Slice {
    fn from(vec: Vec<u8>) -> Self {
        Memory::from_vec(vec)
    }
}

impl From<Box<[u8]>> for Slice {
    fn from(bytes: Box<[u8]>) -> Self {
        Memory::from_vec(bytes.into_vec())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::{BackingError, DomainId, FileAccess, Registration, Release};

    /// A vector with this many bytes, and as many more of capacity.
    fn vec(len: usize) -> Vec<u8> {
        let mut vec = Vec::with_capacity(2 * len);
        vec.extend((0..len).map(|at| at as u8));
        vec
    }

    #[test]
    fn a_vector_comes_back_as_it_was_with_what_was_written() {
        for len in [0, 1, 7, 100] {
            let vec = vec(len);
            let (start, capacity, mut expected) = (vec.as_ptr(), vec.capacity(), vec.clone());
            let mut slice = Slice::from(vec);
            assert_eq!((&*slice, slice.len(), slice.memory().is_empty()), (&*expected, len, len == 0));
            slice.iter_mut().chain(&mut expected).for_each(|byte| *byte ^= 0x55);
            let back = slice.into_vec().unwrap();
            assert_eq!((back.as_ptr(), back.capacity(), &back), (start, capacity, &expected));
        }
        let boxed = vec(100).into_boxed_slice();
        let start = boxed.as_ptr();
        let back = Slice::from(boxed).into_vec().unwrap().into_boxed_slice();
        assert_eq!((back.as_ptr(), &*back), (start, &*vec(100)));
    }

    #[test]
    fn parts_come_back_as_a_vector_when_they_are_joined_again() {
        for at in [0, 1, 50, 99, 100] {
            let mut head = Memory::from_vec(vec(100));
            let mut tail = head.split_off(at);
            let last = tail.split_off(tail.len() / 2);
            let head_alone = head.into_vec().expect_err("parts are left");
            let mut head = head_alone;
            tail.unsplit(last).unwrap();
            head.unsplit(tail).unwrap();
            assert_eq!(head.into_vec().unwrap(), vec(100));
        }
        let mut part = Memory::from_vec(vec(100));
        drop(part.split_off(99));
        assert_eq!(part.into_vec().expect_err("a byte is missing").len(), 99);
        // A part without bytes refers to the memory as any other.
        let mut whole = Memory::from_vec(vec(100));
        let none = whole.split_off(100);
        let whole = whole.into_vec().expect_err("a part is left");
        let none = none.into_vec().expect_err("it is not the whole");
        drop(none);
        assert_eq!(whole.into_vec().unwrap().len(), 100);
    }

    #[test]
    fn a_vector_does_not_come_back_while_anything_refers_to_it() {
        let slice = Memory::from_vec(vec(64));
        let memory = slice.memory().clone();
        let slice = slice.into_vec().expect_err("a library may register it");
        drop(memory);

        let shared = slice.share();
        let clone = shared.clone();
        let shared = shared.try_unshare().expect_err("a clone is left");
        drop(clone);
        let exposed = shared.try_unshare().unwrap().expose();
        assert!(matches!(exposed.check_backing(FileAccess::ReadOnly), Err(BackingError::Foreign)));
        let guard = exposed.guard_key(crate::KeyAccess::Write).unwrap();
        // SAFETY: no key was made for the guard, so no peer can use it.
        let slice = unsafe { exposed.into_slice_unchecked() };
        let slice = slice.into_vec().expect_err("a peer may have a key");
        // SAFETY: as above.
        unsafe { guard.end() };
        assert_eq!(slice.into_vec().unwrap(), vec(64));

        let pages = Memory::allocate(64).unwrap();
        assert!(pages.memory().has_own_pages());
        assert_eq!(pages.into_vec().expect_err("it was no vector").len(), 64);
    }

    /// Bytes that begin at any address, as words and as bytes. Miri checks that none beside them are
    /// accessed.
    #[test]
    fn a_peer_may_change_the_bytes_of_a_vector_and_none_beside_them() {
        // Miri is slow: a few cases that have a head, a whole word and a tail.
        let lens = if cfg!(miri) { 16..18 } else { 1..20 };
        for len in lens {
            for skip in 0..len.min(9) {
                let mut head = Memory::from_vec(vec(len));
                let exposed = head.split_off(skip).expose();
                exposed.write_at(0, &vec![0xEE; len - skip]);
                head.unsplit(exposed.try_into_slice().unwrap()).unwrap();
                let mut expected = vec(len);
                expected[skip..].fill(0xEE);
                assert_eq!(head.into_vec().unwrap(), expected);
            }
        }
    }

    struct Guard(Arc<AtomicBool>);

    impl Release for Guard {
        fn release(self: Box<Self>) -> bool {
            assert!(!self.0.swap(true, Ordering::Relaxed), "a registration ends once");
            true
        }

        unsafe fn renew(&self, _: std::ptr::NonNull<u8>, _: usize) -> Result<Registration, String> {
            Err("nothing is exchanged here".to_owned())
        }
    }

    #[test]
    fn registrations_end_before_the_vector_comes_back() {
        let register = |slice: &Slice| {
            let is_ended = Arc::new(AtomicBool::new(false));
            let register = || Ok::<_, ()>(Registration::new(3, Box::new(Guard(Arc::clone(&is_ended)))));
            // SAFETY: no device knows the key, so nothing uses it.
            unsafe { slice.memory().attach(DomainId::unique(), register) }.unwrap();
            is_ended
        };
        let slice = Memory::from_vec(vec(10));
        let is_ended = register(&slice);
        let other = slice.memory().clone();
        let slice = slice.into_vec().unwrap_err();
        assert!(!is_ended.load(Ordering::Relaxed), "nothing was given back");
        drop(other);
        assert_eq!(slice.into_vec().unwrap(), vec(10));
        assert!(is_ended.load(Ordering::Relaxed));

        let slice = Memory::from_vec(vec(10));
        let is_ended = register(&slice);
        drop(slice);
        assert!(is_ended.load(Ordering::Relaxed), "also if it is dropped");

        let none = Memory::from_vec(Vec::new());
        let registered = |_| -> Result<Registration, ()> { panic!("there is nothing to register") };
        // SAFETY: nothing is registered.
        unsafe { none.memory().attach(DomainId::unique(), || registered(())) }.unwrap();
    }
}
