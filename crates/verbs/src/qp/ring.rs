//! What is in flight on a queue whose requests complete in the order of posting.

use std::mem::MaybeUninit;

use super::place::{Place, Taken};
use super::sync::{AtomicU32, Mutex, MutexGuard, Ordering, lock};

/// A ring of requests: posted at the head, retired at the tail.
///
/// **Who may touch a place.** Places from the tail up to the head are filled and belong to whoever retires; the others belong to
/// whoever posts, as soon as they are empty. The head moves under the poster's lock, and is published with release after the
/// place was written. The tail moves by a compare-and-exchange: who wins it has taken the place before it, and empties that when he
/// is done. So a thread that posts and one that polls never wait for each other.
///
/// A request's number is its place in the sequence of all requests of this queue, modulo 2^32.
pub(crate) struct Ring<T> {
    places: Box<[Place<T>]>,
    /// One less than there are places.
    mask: u32,
    /// Requests that may be in flight at once; no more than there are places.
    depth: u32,
    head: AtomicU32,
    tail: AtomicU32,
    /// Of a kind that cannot be poisoned: it holds no data, and costs a third of one that can.
    posting: Mutex<()>,
}

/// Larger queues do not exist: C counts their depth in an `int`.
const DEPTH_MAX: u32 = 1 << 30;

impl<T> Ring<T> {
    /// An empty ring for `depth` requests, at most 2^30.
    pub(crate) fn new(depth: u32) -> Self {
        assert!(depth <= DEPTH_MAX, "a queue of {depth} requests");
        // A power of two, so that a number that wraps keeps its place.
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

    /// The right to post.
    #[inline(always)]
    pub(crate) fn poster(&self) -> Poster<'_, T> {
        let lock = lock(&self.posting);
        // Only who has the lock changes it.
        Poster { ring: self, head: self.head.load(Ordering::Relaxed), _lock: Some(lock) }
    }

    /// The right to post, of one who need not ask for it.
    ///
    /// # Safety
    ///
    /// Nobody else has the right to post, or asks for it, as long as this lives.
    #[inline(always)]
    pub(crate) unsafe fn sole_poster(&self) -> Poster<'_, T> {
        Poster { ring: self, head: self.head.load(Ordering::Relaxed), _lock: None }
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

    /// Takes the oldest request out of flight, with its number: one up to `last`. None where `last` is not in flight: it may be a
    /// leftover of a queue that is gone.
    #[inline(always)]
    pub(crate) fn retire_up_to(&self, last: u32) -> Option<(u32, Taken<'_, T>)> {
        // Acquired, though the exchange below decides: who sees that a request was taken must see that it was posted, too. With an
        // older head than tail, less than nothing would be in flight, which is a very large number.
        let number = self.tail.load(Ordering::Acquire);
        let in_flight = self.head.load(Ordering::Acquire).wrapping_sub(number);
        if last.wrapping_sub(number) >= in_flight {
            return None;
        }
        let next = number.wrapping_add(1);
        self.tail.compare_exchange(number, next, Ordering::AcqRel, Ordering::Relaxed).ok()?;
        // SAFETY: the place was in tail..head, so it is filled. Who moves the tail over it, as the exchange has, takes it alone.
        Some((number, unsafe { self.place(number).take() }))
    }

    /// Takes the oldest request out of flight.
    pub(crate) fn retire_next(&self) -> Option<Taken<'_, T>> {
        loop {
            let oldest = self.tail.load(Ordering::Relaxed);
            if let Some((_, request)) = self.retire_up_to(oldest) {
                return Some(request);
            }
            if self.len() == 0 {
                return None;
            }
            // Another one was faster, and took that request.
        }
    }

    #[inline(always)]
    fn place(&self, number: u32) -> &Place<T> {
        // SAFETY: there is one place more than `mask`, which `new` sets and nobody changes, so that no place lies behind the last.
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
    /// What the ring's head is.
    head: u32,
    _lock: Option<MutexGuard<'a, ()>>,
}

impl<'a, T> Poster<'a, T> {
    /// Room for one more request; none where the ring is full.
    #[inline(always)]
    pub(crate) fn room(&mut self) -> Option<Room<'_, 'a, T>> {
        // Whether the request `depth` before it is gone, and its place empty: then fewer than `depth` are left. The next
        // place itself, which lies as far back or farther, was looked at so when a request before it was posted.
        let has_room = self.ring.place(self.head.wrapping_sub(self.ring.depth)).is_empty();
        if has_room { Some(Room(self)) } else { None }
    }

    /// Takes the last request back: the card has refused it.
    ///
    /// # Safety
    ///
    /// The card does not have the request, so that nobody can retire it.
    #[inline]
    pub(crate) unsafe fn take_back(&mut self) -> T {
        self.move_head(self.head.wrapping_sub(1));
        // SAFETY: the request was the last one pushed, and the caller vouches that nobody has retired it: its place is filled, and lies
        // outside of tail..head now, so that it is the poster's.
        unsafe { self.ring.place(self.head).take() }.into_inner()
    }

    #[inline(always)]
    fn move_head(&mut self, head: u32) {
        self.head = head;
        self.ring.head.store(head, Ordering::Release);
    }
}

/// Room for one request at the head of a ring.
///
/// Invariant: the place at the head is empty, and outside of tail..head: the poster, which is borrowed, may fill it.
pub(crate) struct Room<'p, 'a, T>(&'p mut Poster<'a, T>);

impl<T> Room<'_, '_, T> {
    /// The number that the request gets.
    #[inline(always)]
    pub(crate) fn number(&self) -> u32 {
        self.0.head
    }

    /// Puts a request in flight, before the card is told of it.
    #[inline(always)]
    pub(crate) fn push(self, request: T) {
        // SAFETY: all of the request is written.
        unsafe { self.push_with(|place| _ = place.write(request)) };
    }

    /// As [`push`](Self::push), where `write` writes the request to its place.
    ///
    /// # Safety
    ///
    /// `write` writes all of the request.
    #[inline(always)]
    pub(crate) unsafe fn push_with(self, write: impl FnOnce(&mut MaybeUninit<T>)) {
        let Self(poster) = self;
        // SAFETY: `Room`: the place is empty, and nobody else fills it. That all of it is written, the caller vouches for.
        unsafe { poster.ring.place(poster.head).fill_with(write) };
        poster.move_head(poster.head.wrapping_add(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    /// As who posts does; a full ring hands it back.
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

    /// As who polls does.
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
        assert_eq!(push(&ring, 3), Err(3), "both are looked at still");
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
        // SAFETY: there is no card, and this test alone retires.
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

    /// One polls what the other, who has destroyed the queue pair, takes back: each request comes out once.
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
