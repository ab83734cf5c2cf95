//! The table of operations in flight, each with a context by which the provider identifies it.

use std::ffi::c_void;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ops::Deref;
use std::ptr;

use farreach_fabric_sys as sys;
use farreach_memory::Buffers;

use super::sync::{AtomicU32, Mutex, Ordering, UnsafeCell, lock, store};
use crate::{OperationKind, Peer};

/// An operation in flight, with everything that belongs to it.
#[derive(Debug)]
pub(crate) struct InFlight {
    pub(crate) tag: u64,
    pub(crate) kind: OperationKind,
    pub(crate) is_delivery: bool,
    pub(crate) buffers: Buffers,
    /// Held so that it is not removed from the address vector meanwhile.
    pub(crate) peer: Option<Peer>,
}

/// The operations of one direction of an endpoint.
///
/// The provider identifies an operation by the address of its context: eight words that belong to
/// the provider until it completes, at a fixed address. It never gets a pointer to anything of the
/// user, and its result is only compared: an address that is not that of a context in this table,
/// or of one that is not in flight, finds nothing.
///
/// **Ownership of a place.** Free places form a queue, linked by their offsets. The last one stays
/// in it, so the queue is never empty. A poster takes the first one under the posters' lock, fills
/// it, and marks it. From then on it belongs to the thread that removes the mark, by an exchange
/// that only one thread wins: a poller, the poster after a refusal, or the thread that has closed
/// the endpoint. That thread takes the operation out and appends the place to the queue. Posters
/// and pollers therefore never wait for each other.
///
/// Marks differ, so that a poster after a refusal removes only its own mark: if the provider has
/// completed the operation nevertheless, its place may hold another operation by then.
///
/// **Late completions.** The addresses of a table are not reused as long as a completion queue may
/// still hold a completion of one of them: see [`Registry`](crate::cq::Registry). Within a table,
/// the context that was free for longest is used next.
pub(crate) struct Slots {
    places: Box<[Place]>,
    front: Front,
    back: Back,
}

/// The head of the queue, from which posters take places.
#[repr(align(64))] // written by other threads than `Back`
struct Front {
    /// It cannot be poisoned: it holds no data, and costs a third of one that can.
    posting: Mutex<()>,
    /// The first place of the queue.
    first: AtomicU32,
    /// The next operation's mark: one, and two more for each operation that was put in flight,
    /// modulo 2^32.
    mark: AtomicU32,
}

/// The tail of the queue, to which emptied places are appended.
#[repr(align(64))] // written by other threads than `Front`
struct Back {
    /// The last place of the queue.
    last: AtomicU32,
    /// Two for each operation that was taken out, modulo 2^32.
    taken: AtomicU32,
}

/// A context, at the very beginning, and its operation. The size is a power of two, so that an
/// address between two contexts is detected by its lowest bits.
#[repr(C, align(64))]
pub(crate) struct Place {
    context: std::cell::UnsafeCell<MaybeUninit<sys::fi_context2>>,
    operation: UnsafeCell<MaybeUninit<InFlight>>,
    /// The mark of the operation, or [`NOTHING`].
    mark: AtomicU32,
    /// While in the queue: the offset of the next place, or [`NOBODY`].
    next: AtomicU32,
}

/// Not a mark of an operation: those are odd.
const NOTHING: u32 = 0;

/// The mark of an exclusive poster, whose operations need not be distinguished.
const SOLE: u32 = 1;

/// Not the offset of a place: it is odd.
const NOBODY: u32 = u32::MAX;

/// The depth of a table is far below this.
const DEPTH_MAX: u32 = 1 << 24;

/// The distance of two places in bytes.
const STRIDE: usize = size_of::<Place>();
#[cfg(not(all(loom, test)))]
const _: () = assert!(STRIDE == 128, "two cache lines, of which the provider has the first");

// SAFETY: the words of a context belong to the provider: this crate only takes their address. An
// operation is `Send`, and moves along with its place.
unsafe impl Send for Place {}
// SAFETY: an operation is accessed through a shared place only by the owner of the place, as
// described at [`Slots`], and never by two threads at once. It is `Send`, which is all that passing
// it on requires.
unsafe impl Sync for Place {}

impl Slots {
    /// Creates a table for `depth` operations. All places are allocated here: posting allocates
    /// nothing.
    pub(crate) fn new(depth: u32) -> Self {
        assert!(depth < DEPTH_MAX, "offsets have 32 bits");
        let place = |number: u32| Place {
            context: std::cell::UnsafeCell::new(MaybeUninit::zeroed()),
            operation: UnsafeCell::new(MaybeUninit::uninit()),
            mark: AtomicU32::new(NOTHING),
            next: AtomicU32::new(if number < depth { (number + 1) * STRIDE as u32 } else { NOBODY }),
        };
        Self {
            // One more, which stays in the queue.
            places: (0..=depth).map(place).collect(),
            front: Front { posting: Mutex::new(()), first: AtomicU32::new(0), mark: AtomicU32::new(1) },
            back: Back { last: AtomicU32::new(depth * STRIDE as u32), taken: AtomicU32::new(0) },
        }
    }

    /// Puts an operation in flight, before it is handed to the provider. Returns `None` if the
    /// table is full, or while another thread is about to put a place back.
    ///
    /// The operation is written field by field, because a value built elsewhere would be copied
    /// once more. A caller that `is_alone` does not take the lock.
    ///
    /// # Safety
    ///
    /// If this returns a slot, the caller neither uses nor drops its buffers and peer any more, or
    /// it forgets the result of [`take_refused`](Self::take_refused). If `is_alone`, no other
    /// thread puts anything in flight until the slot is gone.
    #[inline(always)]
    pub(crate) unsafe fn put(
        &self,
        is_alone: bool,
        tag: u64,
        kind: OperationKind,
        is_delivery: bool,
        buffers: &Buffers,
        peer: Option<&Peer>,
    ) -> Option<Slot<'_>> {
        let posting = (!is_alone).then(|| lock(&self.front.posting));
        let place = self.take_first()?;
        let mark = self.front.mark.load(Ordering::Relaxed);
        self.front.mark.store(mark.wrapping_add(2), Ordering::Relaxed);
        drop(posting);
        place.operation.with_mut(|operation| {
            let operation: *mut InFlight = operation.cast();
            // SAFETY: the place was taken out of the queue: it is empty, and belongs to this thread
            // until it is marked. `take_first` ran under the lock, or for an exclusive caller.
            // Every field is written. Buffers and peer exist twice now, of which the caller uses
            // one.
            unsafe {
                (&raw mut (*operation).tag).write(tag);
                (&raw mut (*operation).kind).write(kind);
                (&raw mut (*operation).is_delivery).write(is_delivery);
                (&raw mut (*operation).buffers).write(ptr::read(buffers));
                (&raw mut (*operation).peer).write(peer.map(|peer| ptr::read(peer)));
            }
        });
        let mark = if is_alone { SOLE } else { mark };
        // Release: the thread that removes the mark sees the operation.
        store(&place.mark, mark, Ordering::Release);
        Some(Slot { place, mark })
    }

    /// Takes the first place out of the queue. Only one thread does so at a time.
    #[inline(always)]
    fn take_first(&self) -> Option<&Place> {
        let first = self.front.first.load(Ordering::Relaxed);
        // SAFETY: `first`, `last` and every `next` but NOBODY hold offsets of places in this box,
        // set by `new` and `put_last`. The box does not change during the life of the table.
        let place = unsafe { &*self.places.as_ptr().byte_add(first as usize) };
        // Acquire: the next place, which becomes the first, was emptied before it was appended.
        let next = place.next.load(Ordering::Acquire);
        if next == NOBODY {
            return None;
        }
        self.front.first.store(next, Ordering::Relaxed);
        Some(place)
    }

    /// Appends a place, which is empty and belongs to the caller, to the queue.
    #[inline(always)]
    fn put_last(&self, place: &Place) {
        let start = self.places.as_ptr();
        let offset = ptr::from_ref(place).addr().wrapping_sub(start.addr()) as u32;
        place.next.store(NOBODY, Ordering::Relaxed);
        self.back.taken.fetch_add(2, Ordering::Relaxed);
        // Release, and acquired by the next thread that does this: the NOBODY of this place is
        // written before its successor.
        let before = self.back.last.swap(offset, Ordering::AcqRel);
        // SAFETY: `last` holds the offset of a place, as described in `take_first`.
        let before = unsafe { &*start.byte_add(before as usize) };
        // Release: a thread that reaches this place through `before` sees that it is empty.
        before.next.store(offset, Ordering::Release);
    }

    /// Takes out an operation that the provider has refused. Returns `None` if a completion has
    /// taken it out nevertheless.
    pub(crate) fn take_refused(&self, slot: Slot<'_>) -> Option<InFlight> {
        let Slot { place, mark } = slot;
        place.mark.compare_exchange(mark, NOTHING, Ordering::Acquire, Ordering::Relaxed).ok()?;
        Some(Taken { slots: self, place }.into_inner())
    }

    /// Returns the place whose context is at this address, if it belongs to this table.
    #[inline(always)]
    pub(crate) fn find(&self, context: *mut c_void) -> Option<Found<'_>> {
        let offset = context.addr().wrapping_sub(self.start());
        // An address between two contexts, or before the first one, becomes a very large number.
        if offset.rotate_right(STRIDE.trailing_zeros()) >= self.places.len() {
            return None;
        }
        // SAFETY: the rotation has moved the lowest bits to the top, so a number below the number
        // of places is the index of one: `offset` is that many strides.
        Some(Found { slots: self, place: unsafe { &*self.places.as_ptr().byte_add(offset) } })
    }

    /// Returns a place by its number.
    #[cfg(all(loom, test))]
    pub(super) fn at(&self, number: usize) -> Found<'_> {
        Found { slots: self, place: &self.places[number] }
    }

    /// Returns the index of a place, which is at most the depth.
    pub(crate) fn index(&self, slot: Slot<'_>) -> usize {
        (ptr::from_ref(slot.place).addr() - self.start()) / STRIDE
    }

    /// Returns the address of the first context.
    #[inline(always)]
    pub(crate) fn start(&self) -> usize {
        self.places.as_ptr().addr()
    }

    /// Returns the maximum number of operations in flight.
    pub(crate) fn depth(&self) -> usize {
        self.places.len() - 1
    }

    /// Returns the approximate number of operations in flight.
    pub(crate) fn in_flight(&self) -> usize {
        let taken = self.back.taken.load(Ordering::Relaxed);
        let put = self.front.mark.load(Ordering::Relaxed).wrapping_sub(1);
        (put.wrapping_sub(taken) / 2) as usize
    }

    /// Takes out all operations, after the provider has stopped.
    pub(crate) fn take_all(&self) -> Vec<InFlight> {
        let left = self.places.iter().filter_map(|place| Found { slots: self, place }.take());
        left.map(Taken::into_inner).collect()
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        drop(self.take_all());
    }
}

/// A place that holds an operation which is about to be posted.
#[derive(Clone, Copy)]
pub(crate) struct Slot<'a> {
    place: &'a Place,
    mark: u32,
}

impl Slot<'_> {
    /// Returns the context, for the provider.
    #[inline(always)]
    pub(crate) fn context(self) -> *mut c_void {
        self.place.context.get().cast()
    }
}

/// A place that a completion, possibly a late one, refers to.
#[derive(Clone, Copy)]
pub(crate) struct Found<'a> {
    slots: &'a Slots,
    place: &'a Place,
}

impl<'a> Found<'a> {
    /// Takes its operation, if it is in flight.
    #[inline(always)]
    pub(crate) fn take(self) -> Option<Taken<'a>> {
        let Self { slots, place } = self;
        if place.mark.swap(NOTHING, Ordering::Acquire) == NOTHING {
            return None;
        }
        Some(Taken { slots, place })
    }
}

/// An operation that was taken and is still in its place, so that it moves only if it is used. The
/// place is free again when this is dropped.
pub(crate) struct Taken<'a> {
    slots: &'a Slots,
    place: &'a Place,
}

impl Taken<'_> {
    /// Returns the operation, and frees its place.
    #[inline(always)]
    pub(crate) fn into_inner(self) -> InFlight {
        // SAFETY: all of the operation is read at once.
        unsafe { self.empty_with(|operation| operation.read()) }
    }

    /// Returns the buffers of the operation, and frees its place.
    #[inline(always)]
    pub(crate) fn into_buffers(self) -> Buffers {
        // SAFETY: the buffers are read and the peer is dropped, each once; the other fields have no
        // drop. `empty_with` passes a place that holds an operation.
        unsafe {
            self.empty_with(|operation| {
                let buffers = read_words(&raw const (*operation).buffers);
                // A panic of this drop must not make the compiler keep the buffers in memory, for
                // dropping them during unwinding.
                let buffers = ManuallyDrop::new(buffers);
                (&raw mut (*operation).peer).drop_in_place();
                ManuallyDrop::into_inner(buffers)
            })
        }
    }

    /// Returns the result of `read` on the operation, and frees its place.
    ///
    /// # Safety
    ///
    /// `read` reads or drops each part of the operation once.
    #[inline(always)]
    unsafe fn empty_with<R>(self, read: impl FnOnce(*mut InFlight) -> R) -> R {
        let Self { slots, place } = *ManuallyDrop::new(self);
        let part = place.operation.with_mut(|operation| read(operation.cast()));
        slots.put_last(place);
        part
    }
}

impl Deref for Taken<'_> {
    type Target = InFlight;

    #[inline(always)]
    fn deref(&self) -> &InFlight {
        // SAFETY: the thread that removed the mark, as `Found::take` did for this value, sees a
        // complete operation (the mark is released and acquired), and owns it until the place is
        // back in the queue, at the end of this value.
        self.place.operation.with(|operation| unsafe { (*operation).assume_init_ref() })
    }
}

impl Drop for Taken<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        let Self { slots, place } = *self;
        slots.drop_operation(place);
    }
}

/// As [`ptr::read`], word by word, and in a way that the compiler does not combine into one copy: a
/// value that is copied as a whole is kept in memory wherever it is moved.
///
/// # Safety
///
/// As for [`ptr::read`].
#[inline(always)]
unsafe fn read_words(place: *const Buffers) -> Buffers {
    /// Any bytes, including those of a pointer and uninitialised ones.
    type Word = MaybeUninit<*const u8>;
    const COUNT: usize = size_of::<Buffers>() / size_of::<Word>();
    const {
        assert!(
            size_of::<Buffers>() == COUNT * size_of::<Word>() && align_of::<Buffers>() == align_of::<Word>()
        )
    };
    let words: *const Word = place.cast();
    // SAFETY: the caller guarantees the value. Its size and alignment are those of the words
    // (asserted above), a `MaybeUninit` may hold any byte of it, and all of them are read.
    unsafe {
        let words: [Word; COUNT] = std::array::from_fn(|index| words.add(index).read_volatile());
        std::mem::transmute::<[Word; COUNT], Buffers>(words)
    }
}

impl Slots {
    /// Drops the operation of a place that belongs to the caller.
    #[cold]
    #[inline(never)]
    fn drop_operation(&self, place: &Place) {
        // SAFETY: only the drop of a `Taken` calls this. It owns operation and place, and is gone
        // afterwards.
        place.operation.with_mut(|operation| unsafe { (*operation).assume_init_drop() });
        self.put_last(place);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use farreach_memory::{Lent, Memory};

    use super::*;

    /// Posts.
    fn put_slot(slots: &Slots, tag: u64) -> Option<Slot<'_>> {
        // SAFETY: the buffers and the peer are empty, which may be duplicated.
        unsafe { slots.put(false, tag, OperationKind::Receive, false, &Buffers::None, None) }
    }

    /// Posts, and returns the context.
    fn put(slots: &Slots, tag: u64) -> Option<*mut c_void> {
        put_slot(slots, tag).map(Slot::context)
    }

    /// Posts exclusively.
    fn put_alone(slots: &mut Slots, tag: u64) -> Option<*mut c_void> {
        // SAFETY: as in `put_slot`, and nobody else has the table.
        let slot = unsafe { slots.put(true, tag, OperationKind::Receive, false, &Buffers::None, None) };
        slot.map(Slot::context)
    }

    /// Polls.
    fn take(slots: &Slots, context: *mut c_void) -> Option<u64> {
        Some(slots.find(context)?.take()?.into_inner().tag)
    }

    #[test]
    fn operations_come_back_in_any_order_and_a_full_table_takes_none() {
        let slots = Slots::new(2);
        let [first, second] = [1, 2].map(|tag| put(&slots, tag).unwrap());
        assert_eq!(put(&slots, 3), None);
        assert_eq!(take(&slots, second), Some(2));
        assert_eq!(take(&slots, second), None, "it is not in flight any more");
        assert_eq!(slots.in_flight(), 1);
        assert_eq!(take(&slots, first), Some(1));
        assert_eq!(slots.in_flight(), 0);
    }

    #[test]
    fn the_context_that_was_free_for_longest_is_next() {
        let mut slots = Slots::new(3);
        let contexts = [1, 2, 3].map(|tag| put(&slots, tag).unwrap());
        // The place that stays in the queue was free for longer than any of them.
        for index in [1, 0, 2] {
            take(&slots, contexts[index]);
        }
        let spare = put_alone(&mut slots, 4).unwrap();
        assert!(!contexts.contains(&spare));
        assert_eq!([put(&slots, 5), put_alone(&mut slots, 6)], [Some(contexts[1]), Some(contexts[0])]);
        assert_eq!(put(&slots, 7), None);
        take(&slots, spare);
        assert_eq!(put(&slots, 8), Some(contexts[2]));
    }

    #[test]
    fn a_place_is_not_used_again_while_its_operation_is_looked_at() {
        let slots = Slots::new(1);
        let context = put(&slots, 1).unwrap();
        let taken = slots.find(context).unwrap().take().unwrap();
        assert_eq!((taken.tag, slots.in_flight()), (1, 1));
        assert_eq!(put(&slots, 2), None);
        assert_eq!(slots.take_all().len(), 0, "it is somebody's");
        drop(taken);
        assert_eq!(slots.in_flight(), 0);
        put(&slots, 2).unwrap();
    }

    #[test]
    fn only_the_address_of_a_context_finds_one() {
        let slots = Slots::new(4);
        let contexts = [0; 4].map(|tag| put(&slots, tag).unwrap());
        let spare = contexts[3].wrapping_byte_add(STRIDE);
        let elsewhere = [
            ptr::null_mut(),
            contexts[0].wrapping_byte_add(1),
            contexts[1].wrapping_byte_add(64),
            spare.wrapping_byte_add(STRIDE),
            contexts[0].wrapping_byte_sub(STRIDE),
            contexts[0].wrapping_byte_sub(1),
        ];
        for address in elsewhere {
            assert!(slots.find(address).is_none(), "{address:p}");
        }
        assert!(slots.find(spare).unwrap().take().is_none(), "nothing was ever there");
        for context in contexts {
            assert_eq!(take(&slots, context), Some(0));
            assert!(slots.find(context).unwrap().take().is_none());
        }
    }

    #[test]
    fn what_was_refused_is_taken_back_unless_it_is_gone() {
        let slots = Slots::new(1);
        assert_eq!(slots.take_refused(put_slot(&slots, 1).unwrap()).unwrap().tag, 1);
        let done = put_slot(&slots, 2).unwrap();
        assert_eq!(take(&slots, done.context()), Some(2));
        assert!(slots.take_refused(done).is_none(), "a completion has taken it");
        // Its place, and the one that was in the queue meanwhile.
        assert_ne!(put(&slots, 3), Some(done.context()));
        slots.take_all();
        assert_eq!(put(&slots, 4), Some(done.context()));
        assert!(slots.take_refused(done).is_none(), "that is another's");
        assert_eq!(take(&slots, done.context()), Some(4));
    }

    /// Posts with buffers, which the table owns from then on.
    fn put_buffers(slots: &Slots, buffers: Buffers) -> *mut c_void {
        let buffers = ManuallyDrop::new(buffers);
        // SAFETY: there is room, so a slot is returned, and the buffers are neither used nor
        // dropped any more.
        let slot = unsafe { slots.put(false, 0, OperationKind::Send, false, &buffers, None) };
        slot.expect("there is room").context()
    }

    fn lent() -> Lent {
        Memory::allocate(4096).expect("a page can be allocated").lend()
    }

    #[test]
    fn every_place_has_a_number_of_its_own() {
        let slots = Slots::new(3);
        assert_eq!(slots.depth(), 3);
        let numbers: Vec<usize> = (0..3).map(|tag| slots.index(put_slot(&slots, tag).unwrap())).collect();
        assert_eq!(numbers, [0, 1, 2]);
        take(&slots, slots.places[1].context.get().cast());
        assert_eq!(slots.index(put_slot(&slots, 3).unwrap()), 3, "the one that was in line");
    }

    #[test]
    fn buffers_come_back_without_the_rest() {
        let (slots, lent) = (Slots::new(1), lent());
        let context = put_buffers(&slots, lent.get(0..100).unwrap().into());
        let taken = slots.find(context).unwrap().take().unwrap();
        assert_eq!((taken.into_buffers().len(), slots.in_flight()), (100, 0));
        assert!(lent.try_reclaim().is_ok(), "nobody has a part of it");
    }

    #[test]
    fn what_is_in_flight_goes_with_the_table() {
        let (slots, lent) = (Slots::new(1), lent());
        put_buffers(&slots, lent.get(0..100).unwrap().into());
        let lent = lent.try_reclaim().expect_err("the table has a part of it");
        drop(slots);
        assert!(lent.try_reclaim().is_ok());
    }

    #[test]
    fn what_is_left_is_taken_whole() {
        let slots = Slots::new(4);
        for tag in 0..3 {
            put(&slots, tag).unwrap();
        }
        let tags: Vec<_> = slots.take_all().iter().map(|operation| operation.tag).collect();
        assert_eq!(tags, [0, 1, 2]);
        assert_eq!((slots.in_flight(), slots.take_all().len()), (0, 0));
    }

    /// Two threads post, one polls: each operation comes back once, whichever place it had.
    #[test]
    fn several_post_while_another_takes() {
        const EACH: u64 = if cfg!(miri) { 50 } else { 20_000 };
        let slots = Slots::new(5);
        let mut tags = Vec::new();
        std::thread::scope(|scope| {
            for poster in 0..2 {
                let slots = &slots;
                scope.spawn(move || {
                    for tag in poster * EACH..(poster + 1) * EACH {
                        while put(slots, tag).is_none() {
                            std::thread::yield_now();
                        }
                    }
                });
            }
            while tags.len() < 2 * EACH as usize {
                let before = tags.len();
                for place in &slots.places {
                    tags.extend(take(&slots, place.context.get().cast()));
                }
                if tags.len() == before {
                    std::thread::yield_now();
                }
            }
        });
        tags.sort_unstable();
        assert!(tags.into_iter().eq(0..2 * EACH));
        assert_eq!(slots.in_flight(), 0);
    }
}
