//! What is in flight on a queue whose requests complete in the order of posting.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A ring of requests: posted at the head, retired at the tail.
///
/// **Who may touch a place.** Places from the tail up to the head are filled and belong to whoever retires; the others are
/// empty and belong to whoever posts. The head moves under the poster's lock, the tail under the retirer's, each published with
/// release after the place was written or emptied. So a thread that posts and one that polls never wait for each other.
///
/// A request's number is its place in the sequence of all requests of this queue, modulo 2^32.
pub(crate) struct Ring<T> {
    places: Box<[UnsafeCell<MaybeUninit<T>>]>,
    /// Requests that may be in flight at once; no more than there are places.
    depth: u32,
    head: AtomicU32,
    tail: AtomicU32,
    posting: Mutex<()>,
    retiring: Mutex<()>,
}

// SAFETY: values move between threads through the ring and are never shared in it: see the type's rule.
unsafe impl<T: Send> Send for Ring<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Ring<T> {}

/// Larger queues do not exist: C counts their depth in an `int`.
const DEPTH_MAX: u32 = 1 << 30;

impl<T> Ring<T> {
    /// An empty ring for `depth` requests, at most 2^30.
    pub(crate) fn new(depth: u32) -> Self {
        assert!(depth <= DEPTH_MAX, "a queue of {depth} requests");
        let places = depth.max(1).next_power_of_two();
        Self {
            places: (0..places).map(|_| UnsafeCell::new(MaybeUninit::uninit())).collect(),
            depth,
            head: AtomicU32::new(0),
            tail: AtomicU32::new(0),
            posting: Mutex::new(()),
            retiring: Mutex::new(()),
        }
    }

    /// The right to post.
    #[inline]
    pub(crate) fn poster(&self) -> Poster<'_, T> {
        // The locks hold no data: a panic under one leaves a ring that is whole.
        Poster { ring: self, _lock: self.posting.lock().unwrap_or_else(PoisonError::into_inner) }
    }

    /// The right to retire.
    #[inline]
    pub(crate) fn retirer(&self) -> Retirer<'_, T> {
        Retirer { ring: self, _lock: self.retiring.lock().unwrap_or_else(PoisonError::into_inner) }
    }

    /// Requests that may be in flight at once.
    pub(crate) fn depth(&self) -> u32 {
        self.depth
    }

    /// Requests that are in flight.
    pub(crate) fn len(&self) -> u32 {
        let tail = self.tail.load(Ordering::Acquire);
        self.head.load(Ordering::Acquire).wrapping_sub(tail)
    }

    #[inline]
    fn place(&self, number: u32) -> *mut MaybeUninit<T> {
        // The number of places is a power of two, so that a number that wraps keeps its place.
        let mask = self.places.len() as u32 - 1;
        self.places[(number & mask) as usize].get()
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        let mut retirer = self.retirer();
        while retirer.retire_next().is_some() {}
    }
}

/// The right to post to a ring.
pub(crate) struct Poster<'a, T> {
    ring: &'a Ring<T>,
    _lock: MutexGuard<'a, ()>,
}

impl<T> Poster<'_, T> {
    /// How many more requests there is room for.
    #[inline]
    pub(crate) fn room(&self) -> u32 {
        let head = self.ring.head.load(Ordering::Relaxed);
        self.ring.depth - head.wrapping_sub(self.ring.tail.load(Ordering::Acquire))
    }

    /// The number that the next request gets.
    #[inline]
    pub(crate) fn next_number(&self) -> u32 {
        self.ring.head.load(Ordering::Relaxed)
    }

    /// Puts a request in flight, before the card is told of it; a full ring hands it back.
    #[inline]
    pub(crate) fn push(&mut self, request: T) -> Result<(), T> {
        if self.room() == 0 {
            return Err(request);
        }
        let number = self.next_number();
        // SAFETY: the place lies outside of tail..head, so it is empty and ours while we hold the poster's lock.
        unsafe { (*self.ring.place(number)).write(request) };
        self.ring.head.store(number.wrapping_add(1), Ordering::Release);
        Ok(())
    }

    /// Takes the last request back: the card has refused it.
    ///
    /// # Safety
    ///
    /// The card does not have the request, so that nobody can retire it.
    #[inline]
    pub(crate) unsafe fn take_back(&mut self) -> T {
        let number = self.next_number().wrapping_sub(1);
        self.ring.head.store(number, Ordering::Release);
        // SAFETY: the caller vouches that it is still filled: it was pushed and not retired.
        unsafe { (*self.ring.place(number)).assume_init_read() }
    }
}

/// The right to retire from a ring.
pub(crate) struct Retirer<'a, T> {
    ring: &'a Ring<T>,
    _lock: MutexGuard<'a, ()>,
}

impl<T> Retirer<'_, T> {
    /// Whether this request is in flight. A number that is not may be a leftover of a queue that is gone.
    #[inline]
    pub(crate) fn is_in_flight(&self, number: u32) -> bool {
        let tail = self.ring.tail.load(Ordering::Relaxed);
        number.wrapping_sub(tail) < self.ring.head.load(Ordering::Acquire).wrapping_sub(tail)
    }

    /// The oldest request in flight, with its number.
    #[inline]
    pub(crate) fn retire_next(&mut self) -> Option<(u32, T)> {
        let number = self.ring.tail.load(Ordering::Relaxed);
        if number == self.ring.head.load(Ordering::Acquire) {
            return None;
        }
        // SAFETY: the place lies in tail..head, so it is filled and ours while we hold the retirer's lock.
        let request = unsafe { (*self.ring.place(number)).assume_init_read() };
        self.ring.tail.store(number.wrapping_add(1), Ordering::Release);
        Some((number, request))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn requests_come_back_in_order_and_a_full_ring_hands_them_back() {
        let ring = Ring::new(3);
        for value in 0..3 {
            ring.poster().push(value).unwrap();
        }
        assert_eq!(ring.poster().push(9), Err(9));
        assert_eq!(ring.len(), 3);
        assert_eq!(ring.retirer().retire_next(), Some((0, 0)));
        ring.poster().push(3).unwrap();
        let rest: Vec<_> = std::iter::from_fn(|| ring.retirer().retire_next()).collect();
        assert_eq!(rest, [(1, 1), (2, 2), (3, 3)]);
        assert_eq!(ring.poster().room(), 3);
    }

    #[test]
    fn numbers_wrap() {
        let ring = Ring::new(2);
        ring.head.store(u32::MAX, Ordering::Relaxed);
        ring.tail.store(u32::MAX, Ordering::Relaxed);
        ring.poster().push('a').unwrap();
        ring.poster().push('b').unwrap();
        assert!(ring.retirer().is_in_flight(u32::MAX) && ring.retirer().is_in_flight(0));
        assert!(!ring.retirer().is_in_flight(1) && !ring.retirer().is_in_flight(u32::MAX - 1));
        assert_eq!(ring.retirer().retire_next(), Some((u32::MAX, 'a')));
        assert_eq!(ring.retirer().retire_next(), Some((0, 'b')));
    }

    #[test]
    fn what_the_card_refused_is_taken_back() {
        let ring = Ring::new(2);
        ring.poster().push("kept").unwrap();
        ring.poster().push("refused").unwrap();
        // SAFETY: there is no card.
        assert_eq!(unsafe { ring.poster().take_back() }, "refused");
        assert_eq!(ring.len(), 1);
        ring.poster().push("next").unwrap();
        assert_eq!(ring.retirer().retire_next().unwrap().1, "kept");
        assert_eq!(ring.retirer().retire_next().unwrap().1, "next");
    }

    #[test]
    fn what_is_left_is_dropped_with_the_ring() {
        let value = Arc::new(());
        let ring = Ring::new(4);
        for _ in 0..3 {
            ring.poster().push(Arc::clone(&value)).unwrap();
        }
        drop(ring.retirer().retire_next());
        assert_eq!(Arc::strong_count(&value), 3);
        drop(ring);
        assert_eq!(Arc::strong_count(&value), 1);
    }

    #[test]
    fn one_thread_posts_while_another_retires() {
        const COUNT: u32 = 100_000;
        let ring = Ring::new(7);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for value in 0..COUNT {
                    let mut request = Box::new(value);
                    while let Err(back) = ring.poster().push(request) {
                        request = back;
                        std::thread::yield_now();
                    }
                }
            });
            for expected in 0..COUNT {
                let (number, value) = loop {
                    match ring.retirer().retire_next() {
                        Some(retired) => break retired,
                        None => std::thread::yield_now(),
                    }
                };
                assert_eq!((number, *value), (expected, expected));
            }
        });
    }
}
