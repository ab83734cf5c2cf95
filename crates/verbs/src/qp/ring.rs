//! The work requests in flight on a queue that completes in the order of posting.
//!
//! Invariant: a place is filled by the poster while it is empty, and taken by the one thread that
//! moves the tail over it.

use std::mem::MaybeUninit;

use super::place::{Place, Taken};
use super::sync::{AtomicU32, Mutex, MutexGuard, Ordering, lock};

/// A ring of work requests: posted at the head, retired at the tail.
///
/// **Access to places.** Places from the tail up to the head are filled and belong to the retiring
/// threads; the others belong to the poster, once they are empty. The head moves under the poster's
/// lock, and is published with Release after the place was written. The tail moves by a
/// compare-and-exchange: the thread that wins it has taken the place before it, and empties that
/// place when it is done. So posting and polling threads never wait for each other.
///
/// The number of a work request is its position in the sequence of all work requests of this queue,
/// modulo 2^32.
pub(crate) struct Ring<T> {
    places: Box<[Place<T>]>,
    /// The number of places, which is a power of two, minus one.
    mask: u32,
    /// The maximum number of work requests in flight; at most the number of places.
    depth: u32,
    head: AtomicU32,
    tail: AtomicU32,
    /// A lock without poisoning: it guards no data, and costs a third of one with poisoning.
    posting: Mutex<()>,
}

/// Larger queues do not exist: C stores their depth in an `int`.
const DEPTH_MAX: u32 = 1 << 30;

impl<T> Ring<T> {
    /// Creates an empty ring for `depth` work requests, at most 2^30.
    pub(crate) fn new(depth: u32) -> Self {
        assert!(depth <= DEPTH_MAX, "a queue of {depth} work requests exceeds the maximum");
        // A power of two, so that numbers that wrap keep their place.
        let count = depth.max(1).next_power_of_two();
        let places = match depth {
            0 => [Place::blocked()].into(),
            _ => (0..count).map(|_| Place::empty()).collect(),
        };
        Self {
            places,
            mask: count - 1,
            depth,
            head: AtomicU32::new(0),
            tail: AtomicU32::new(0),
            posting: Mutex::new(()),
        }
    }

    /// Returns the right to post. Blocks while another thread has it.
    #[inline(always)]
    pub(crate) fn poster(&self) -> Poster<'_, T> {
        let lock = lock(&self.posting);
        // Relaxed suffices: only the holder of the lock changes the head.
        Poster { ring: self, head: self.head.load(Ordering::Relaxed), _lock: Some(lock) }
    }

    /// Returns the right to post without taking the lock.
    ///
    /// # Safety
    ///
    /// Nothing else has or requests the right to post while this lives.
    #[inline(always)]
    pub(crate) unsafe fn sole_poster(&self) -> Poster<'_, T> {
        Poster { ring: self, head: self.head.load(Ordering::Relaxed), _lock: None }
    }

    /// Returns the maximum number of work requests in flight.
    pub(crate) fn depth(&self) -> u32 {
        self.depth
    }

    /// Returns the number of work requests in flight.
    pub(crate) fn len(&self) -> u32 {
        let tail = self.tail.load(Ordering::Acquire);
        self.head.load(Ordering::Acquire).wrapping_sub(tail)
    }

    /// Retires the oldest work request, if its number is not after `last`, and returns it with its
    /// number. Returns `None` if `last` is not in flight: the completion may be a late one of an
    /// earlier queue.
    #[inline(always)]
    pub(crate) fn retire_up_to(&self, last: u32) -> Option<(u32, Taken<'_, T>)> {
        // Acquire, although the exchange below decides: a thread that sees that a work request was
        // taken must also see that it was posted. With a head older than the tail, the difference
        // would wrap to a very large number in flight.
        let number = self.tail.load(Ordering::Acquire);
        let in_flight = self.head.load(Ordering::Acquire).wrapping_sub(number);
        if last.wrapping_sub(number) >= in_flight {
            return None;
        }
        let next = number.wrapping_add(1);
        self.tail.compare_exchange(number, next, Ordering::AcqRel, Ordering::Relaxed).ok()?;
        // SAFETY: the place was in tail..head, so it is filled. Only the thread that moves the tail
        // over it, which the exchange has just done, takes it.
        Some((number, unsafe { self.place(number).take() }))
    }

    /// Retires the oldest work request.
    pub(crate) fn retire_next(&self) -> Option<Taken<'_, T>> {
        loop {
            let oldest = self.tail.load(Ordering::Relaxed);
            if let Some((_, request)) = self.retire_up_to(oldest) {
                return Some(request);
            }
            if self.len() == 0 {
                return None;
            }
            // Another thread retired that work request first.
        }
    }

    #[inline(always)]
    fn place(&self, number: u32) -> &Place<T> {
        // SAFETY: there are `mask + 1` places, which `new` sets and nothing changes, so the index
        // is in bounds.
        unsafe { self.places.get_unchecked((number & self.mask) as usize) }
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        while self.retire_next().is_some() {}
    }
}

/// The right to post to a ring.
pub(crate) struct Poster<'a, T> {
    ring: &'a Ring<T>,
    /// A copy of the ring's head.
    head: u32,
    _lock: Option<MutexGuard<'a, ()>>,
}

impl<'a, T> Poster<'a, T> {
    /// Returns room for one more work request, or `None` if the ring is full.
    #[inline(always)]
    pub(crate) fn room(&mut self) -> Option<Room<'_, 'a, T>> {
        // Checks that the work request `depth` before it is gone and its place is empty: then fewer
        // than `depth` are in flight. The place at the head itself, which is as far back or
        // farther, was checked in the same way when an earlier work request was posted.
        let has_room = self.ring.place(self.head.wrapping_sub(self.ring.depth)).is_empty();
        if has_room { Some(Room(self)) } else { None }
    }

    /// Takes back the last work request, which the device has refused.
    ///
    /// # Safety
    ///
    /// The device does not have the work request, so nothing can retire it.
    #[inline]
    pub(crate) unsafe fn take_back(&mut self) -> T {
        self.move_head(self.head.wrapping_sub(1));
        // SAFETY: the work request was the last one pushed, and the caller guarantees that nothing
        // has retired it. Its place is filled, and now outside of tail..head, so it belongs to the
        // poster.
        unsafe { self.ring.place(self.head).take() }.into_inner()
    }

    #[inline(always)]
    fn move_head(&mut self, head: u32) {
        self.head = head;
        self.ring.head.store(head, Ordering::Release);
    }
}

/// Room for one work request at the head of a ring.
///
/// Invariant: the place at the head is empty and outside of tail..head, so the poster, which is
/// borrowed, may fill it.
pub(crate) struct Room<'p, 'a, T>(&'p mut Poster<'a, T>);

impl<T> Room<'_, '_, T> {
    /// Returns the number of the next work request.
    #[inline(always)]
    pub(crate) fn number(&self) -> u32 {
        self.0.head
    }

    /// Puts a work request in flight, before it is passed to the device.
    #[inline(always)]
    pub(crate) fn push(self, request: T) {
        // SAFETY: the whole work request is written.
        unsafe { self.push_with(|place| _ = place.write(request)) };
    }

    /// Like [`push`](Self::push), but `write` writes the work request to its place.
    ///
    /// # Safety
    ///
    /// `write` initialises the whole work request.
    #[inline(always)]
    pub(crate) unsafe fn push_with(self, write: impl FnOnce(&mut MaybeUninit<T>)) {
        let Self(poster) = self;
        // SAFETY: `Room`: the place is empty, and nothing else fills it. The caller guarantees that
        // `write` initialises it.
        unsafe { poster.ring.place(poster.head).fill_with(write) };
        poster.move_head(poster.head.wrapping_add(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    /// Pushes like a poster; returns the value if the ring is full.
    fn push<T>(ring: &Ring<T>, request: T) -> Result<(), T> {
        let mut poster = ring.poster();
        match poster.room() {
            Some(room) => {
                room.push(request);
                Ok(())
            }
            None => Err(request),
        }
    }

    /// Retires like a poller.
    fn retire<T>(ring: &Ring<T>, last: u32) -> Option<(u32, T)> {
        ring.retire_up_to(last).map(|(number, request)| (number, request.into_inner()))
    }

    #[test]
    fn requests_come_back_in_order_and_a_full_ring_hands_them_back() {
        let ring = Ring::new(3);
        for value in 0..3 {
            push(&ring, value).unwrap();
        }
        assert_eq!(push(&ring, 9), Err(9));
        assert_eq!(ring.len(), 3);
        assert_eq!(retire(&ring, 3), None, "that one is not in flight");
        assert_eq!(retire(&ring, 0), Some((0, 0)));
        assert_eq!(retire(&ring, 0), None, "not a second time");
        push(&ring, 3).unwrap();
        let rest: Vec<_> = std::iter::from_fn(|| retire(&ring, 3)).collect();
        assert_eq!(rest, [(1, 1), (2, 2), (3, 3)]);
        assert_eq!(ring.len(), 0);
    }

    #[test]
    fn a_place_is_not_used_again_before_it_is_empty() {
        let ring = Ring::new(2);
        push(&ring, 1).unwrap();
        push(&ring, 2).unwrap();
        let (_, first) = ring.retire_up_to(1).unwrap();
        let (_, second) = ring.retire_up_to(1).unwrap();
        assert_eq!(push(&ring, 3), Err(3), "both are still in use");
        assert_eq!(second.into_inner(), 2);
        assert_eq!(push(&ring, 3), Err(3), "the place of the first is next");
        assert_eq!(first.into_inner(), 1);
        push(&ring, 3).unwrap();
        push(&ring, 4).unwrap();
        assert_eq!((retire(&ring, 3), retire(&ring, 3)), (Some((2, 3)), Some((3, 4))));
    }

    #[test]
    fn a_ring_of_no_depth_has_no_room() {
        let ring = Ring::new(0);
        assert_eq!(push(&ring, 'a'), Err('a'));
        assert_eq!(retire(&ring, 0), None);
    }

    #[test]
    fn numbers_wrap() {
        let ring = Ring::new(2);
        ring.head.store(u32::MAX, Ordering::Relaxed);
        ring.tail.store(u32::MAX, Ordering::Relaxed);
        push(&ring, 'a').unwrap();
        push(&ring, 'b').unwrap();
        assert_eq!((retire(&ring, 1), retire(&ring, u32::MAX - 1)), (None, None));
        assert_eq!(retire(&ring, 0), Some((u32::MAX, 'a')));
        assert_eq!(retire(&ring, 0), Some((0, 'b')));
    }

    #[test]
    fn what_the_card_refused_is_taken_back() {
        let ring = Ring::new(2);
        push(&ring, "kept").unwrap();
        push(&ring, "refused").unwrap();
        // SAFETY: there is no device, and only this test retires.
        assert_eq!(unsafe { ring.poster().take_back() }, "refused");
        assert_eq!(ring.len(), 1);
        push(&ring, "next").unwrap();
        assert_eq!(retire(&ring, 1), Some((0, "kept")));
        assert_eq!(retire(&ring, 1), Some((1, "next")));
    }

    #[test]
    fn what_is_left_is_dropped_with_the_ring() {
        let value = Arc::new(());
        let ring = Ring::new(4);
        for _ in 0..3 {
            push(&ring, Arc::clone(&value)).unwrap();
        }
        drop(retire(&ring, 0));
        assert_eq!(Arc::strong_count(&value), 3);
        drop(ring);
        assert_eq!(Arc::strong_count(&value), 1);
    }

    #[test]
    fn one_thread_posts_while_another_retires() {
        const COUNT: u32 = if cfg!(miri) { 100 } else { 100_000 };
        let ring = Ring::new(7);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for value in 0..COUNT {
                    let mut request = Box::new(value);
                    while let Err(back) = push(&ring, request) {
                        request = back;
                        std::thread::yield_now();
                    }
                }
            });
            for expected in 0..COUNT {
                let (number, value) = loop {
                    match retire(&ring, expected) {
                        Some(retired) => break retired,
                        None => std::thread::yield_now(),
                    }
                };
                assert_eq!((number, *value), (expected, expected));
            }
        });
    }

    /// One thread polls while another takes back all, as after destroying the queue pair. Each work
    /// request comes out once.
    #[test]
    fn two_who_retire_share_what_is_left() {
        const COUNT: u32 = if cfg!(miri) { 50 } else { 10_000 };
        for _ in 0..if cfg!(miri) { 3 } else { 20 } {
            let ring = Ring::new(COUNT);
            for value in 0..COUNT {
                push(&ring, Box::new(value)).unwrap();
            }
            let polled = std::thread::scope(|scope| {
                let destroyer = scope.spawn(|| {
                    std::iter::from_fn(|| ring.retire_next().map(Taken::into_inner)).collect::<Vec<_>>()
                });
                let mut polled: Vec<Box<u32>> = Vec::new();
                for number in 0..COUNT {
                    polled.extend(retire(&ring, number).map(|(_, request)| request));
                }
                polled.extend(destroyer.join().unwrap());
                polled
            });
            let mut values: Vec<u32> = polled.into_iter().map(|value| *value).collect();
            values.sort_unstable();
            assert!(values.into_iter().eq(0..COUNT));
        }
    }
}
