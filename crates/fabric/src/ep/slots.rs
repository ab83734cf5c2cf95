//! What is in flight: a table of operations, each with a context that the provider knows it by.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr;

use farreach_fabric_sys as sys;
use farreach_memory::Buffers;

use super::line::{Line, Ticket};
use super::sync::{AtomicU64, Ordering, UnsafeCell};
use crate::{OperationKind, Peer};

/// An operation that the provider has, and what belongs to it.
#[derive(Debug)]
pub(crate) struct InFlight {
    pub(crate) tag: u64,
    pub(crate) kind: OperationKind,
    pub(crate) is_delivery: bool,
    pub(crate) buffers: Buffers,
    /// Held so that it is not removed from the address vector meanwhile.
    pub(crate) peer: Option<Peer>,
}

impl InFlight {
    /// Writes what has to be kept of a request, field by field: made elsewhere first, it would be copied once more.
    ///
    /// # Safety
    ///
    /// Buffers and peer are forgotten afterwards; or what is written here is, if they stay.
    #[inline(always)]
    pub(super) unsafe fn write(
        place: &mut MaybeUninit<Self>,
        tag: u64,
        kind: OperationKind,
        is_delivery: bool,
        buffers: &Buffers,
        peer: Option<&Peer>,
    ) {
        let place = place.as_mut_ptr();
        // SAFETY: the place is valid for writing each of its fields. The caller forgets buffers and peer here or there.
        unsafe {
            (&raw mut (*place).tag).write(tag);
            (&raw mut (*place).kind).write(kind);
            (&raw mut (*place).is_delivery).write(is_delivery);
            (&raw mut (*place).buffers).write(ptr::read(buffers));
            (&raw mut (*place).peer).write(peer.map(|peer| ptr::read(peer)));
        }
    }
}

/// The operations of one direction of an endpoint.
///
/// The provider knows an operation by the address of its context: eight words that are the provider's until it completes, at a place
/// that does not move. It never gets a pointer to anything of the user's, and what it gives back is only compared: an address that
/// is not that of a context in this table, or of one that is not in flight, finds nothing.
///
/// **Who may touch a place.** One that stands in [line](Line) is nobody's. Who takes it out of the line fills it, and marks it with the ticket
/// that he drew; from then on it is the one's who takes the mark away, by an exchange that only one wins: who polls, who posted it and
/// was refused, or who has closed the endpoint. He takes the operation out and puts the place back in line, so that nobody
/// ever waits for another. Who was refused takes away only his own mark: should the provider have completed the operation all the same, its
/// place may be another's by then.
///
/// **Late completions.** The addresses of a table belong to it for as long as a completion queue may still hold a completion of one of them: see
/// [`Registry`](crate::cq::Registry). Within a table the context that was free for longest is used next.
pub(crate) struct Slots {
    places: Box<[Place]>,
    free: Line,
}

/// A context, at the very beginning, and the operation that it stands for. Its size is a power of two, so that what lies between two of them is
/// told by the lowest bits.
#[repr(C, align(64))]
struct Place {
    context: std::cell::UnsafeCell<MaybeUninit<sys::fi_context2>>,
    operation: UnsafeCell<MaybeUninit<InFlight>>,
    /// The ticket of the operation, or [`NOTHING`].
    mark: AtomicU64,
}

/// No ticket: there are not so many places.
const NOTHING: u64 = u64::MAX;

/// How many bytes lie from one place to the next.
const STRIDE: usize = size_of::<Place>();
#[cfg(not(all(loom, test)))]
const _: () = assert!(STRIDE == 128, "two cache lines, of which the provider has the first");

// SAFETY: a context's words are the provider's alone: here only their address is taken. An operation, which is `Send`, moves between threads
// through its place and is never shared in it: who may touch it is told above.
unsafe impl Send for Place {}
// SAFETY: as above.
unsafe impl Sync for Place {}

/// A place that holds an operation, for whoever is about to post it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot(Ticket);

impl Slot {
    #[inline(always)]
    pub(crate) fn index(self) -> usize {
        self.0.number() as usize
    }
}

impl Slots {
    /// A table for `depth` operations, all places at once: posting allocates nothing.
    pub(crate) fn new(depth: u32) -> Self {
        let place = |_| Place {
            context: std::cell::UnsafeCell::new(MaybeUninit::zeroed()),
            operation: UnsafeCell::new(MaybeUninit::uninit()),
            mark: AtomicU64::new(NOTHING),
        };
        Self { places: (0..depth).map(place).collect(), free: Line::of_all(depth) }
    }

    /// Puts an operation in flight, before the provider is told of it: `write` writes it to its place. None where the table is full.
    ///
    /// # Safety
    ///
    /// `write` writes all of the operation.
    #[inline(always)]
    pub(crate) unsafe fn put_with(&self, write: impl FnOnce(&mut MaybeUninit<InFlight>)) -> Option<Slot> {
        let ticket = self.free.take()?;
        // SAFETY: the numbers in the line are those of the places.
        let place = unsafe { self.places.get_unchecked(ticket.number() as usize) };
        // SAFETY: it was in line, so it is ours, and holds nothing that would have to be dropped.
        place.operation.with_mut(|operation| write(unsafe { &mut *operation }));
        // Released: who takes the mark away sees the operation.
        place.mark.store(ticket.to_raw(), Ordering::Release);
        Some(Slot(ticket))
    }

    /// Takes an operation out that the provider has refused. None where a completion has taken it out all the same.
    pub(crate) fn take_refused(&self, slot: Slot) -> Option<InFlight> {
        let place = self.places.get(slot.index())?;
        let mark = slot.0.to_raw();
        place.mark.compare_exchange(mark, NOTHING, Ordering::Acquire, Ordering::Relaxed).ok()?;
        // SAFETY: its mark was there, and we have taken it away.
        Some(unsafe { self.empty(place, slot.0.number()) })
    }

    /// The place whose context is at this address, if it is one of this table's.
    #[inline(always)]
    pub(crate) fn find(&self, context: *mut c_void) -> Option<Found<'_>> {
        // An address between two contexts, or before the first one, becomes a very large number.
        let number = context.addr().wrapping_sub(self.start()).rotate_right(STRIDE.trailing_zeros());
        let place = self.places.get(number)?;
        Some(Found { slots: self, place, number: number as u32 })
    }

    /// # Safety
    ///
    /// The place is the caller's, filled, and has this number.
    #[inline(always)]
    unsafe fn empty(&self, place: &Place, number: u32) -> InFlight {
        // SAFETY: it is filled, and nobody else reads it.
        let operation = place.operation.with_mut(|operation| unsafe { (*operation).assume_init_read() });
        self.free.put(number);
        operation
    }

    /// The context of a place, for the provider.
    #[inline(always)]
    pub(crate) fn context(&self, slot: Slot) -> *mut c_void {
        // SAFETY: the numbers in the line are those of the places.
        unsafe { self.places.get_unchecked(slot.index()) }.context.get().cast()
    }

    /// The address of the first context.
    #[inline(always)]
    pub(crate) fn start(&self) -> usize {
        self.places.as_ptr().addr()
    }

    /// How many operations may be in flight.
    pub(crate) fn depth(&self) -> usize {
        self.places.len()
    }

    /// How many are.
    pub(crate) fn in_flight(&self) -> usize {
        self.depth().saturating_sub(self.free.len() as usize)
    }

    /// Everything that is left, when the provider has stopped.
    pub(crate) fn take_all(&self) -> Vec<InFlight> {
        let places = self.places.iter().zip(0..);
        places.filter_map(|(place, number)| Found { slots: self, place, number }.take()).collect()
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        drop(self.take_all());
    }
}

/// A place that a completion, which may be late, tells of.
#[derive(Clone, Copy)]
pub(crate) struct Found<'a> {
    slots: &'a Slots,
    place: &'a Place,
    number: u32,
}

impl Found<'_> {
    /// Takes its operation out, if it is in flight.
    #[inline(always)]
    pub(crate) fn take(self) -> Option<InFlight> {
        if self.place.mark.swap(NOTHING, Ordering::Acquire) == NOTHING {
            return None;
        }
        // SAFETY: its mark was there, and we have taken it away.
        Some(unsafe { self.slots.empty(self.place, self.number) })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn operation(tag: u64) -> InFlight {
        InFlight { tag, kind: OperationKind::Receive, is_delivery: false, buffers: Buffers::None, peer: None }
    }

    /// As who posts does.
    fn put(slots: &Slots, tag: u64) -> Option<Slot> {
        // SAFETY: all of it is written.
        unsafe { slots.put_with(|place| _ = place.write(operation(tag))) }
    }

    /// As who polls does.
    fn take(slots: &Slots, context: *mut c_void) -> Option<u64> {
        Some(slots.find(context)?.take()?.tag)
    }

    #[test]
    fn operations_come_back_in_any_order_and_a_full_table_takes_none() {
        let slots = Slots::new(2);
        let [first, second] = [1, 2].map(|tag| slots.context(put(&slots, tag).unwrap()));
        assert_eq!(put(&slots, 3), None);
        assert_eq!(take(&slots, second), Some(2));
        assert_eq!(take(&slots, second), None, "it is not in flight any more");
        assert_eq!(slots.in_flight(), 1);
        assert_eq!(take(&slots, first), Some(1));
        assert_eq!(slots.in_flight(), 0);
    }

    #[test]
    fn the_context_that_was_free_for_longest_is_next() {
        let slots = Slots::new(3);
        let contexts = [1, 2, 3].map(|tag| slots.context(put(&slots, tag).unwrap()));
        for index in [1, 0, 2] {
            take(&slots, contexts[index]);
        }
        for index in [1, 0, 2] {
            assert_eq!(slots.context(put(&slots, 4).unwrap()), contexts[index]);
        }
    }

    #[test]
    fn only_the_address_of_a_context_finds_one() {
        let slots = Slots::new(4);
        let contexts = [0; 4].map(|tag| slots.context(put(&slots, tag).unwrap()));
        let elsewhere = [
            ptr::null_mut(),
            contexts[0].wrapping_byte_add(1),
            contexts[1].wrapping_byte_add(64),
            contexts[3].wrapping_byte_add(STRIDE),
            contexts[0].wrapping_byte_sub(STRIDE),
            contexts[0].wrapping_byte_sub(1),
        ];
        for address in elsewhere {
            assert!(slots.find(address).is_none(), "{address:p}");
        }
        for context in contexts {
            assert_eq!(take(&slots, context), Some(0));
            assert!(slots.find(context).unwrap().take().is_none());
        }
    }

    #[test]
    fn what_was_refused_is_taken_back_unless_it_is_gone() {
        let slots = Slots::new(1);
        let refused = put(&slots, 1).unwrap();
        assert_eq!(slots.take_refused(refused).unwrap().tag, 1);
        let done = put(&slots, 2).unwrap();
        assert_eq!(take(&slots, slots.context(done)), Some(2));
        assert!(slots.take_refused(done).is_none(), "a completion has taken it");
        let next = put(&slots, 3).unwrap();
        assert_eq!(slots.context(next), slots.context(done));
        assert!(slots.take_refused(done).is_none(), "that is another's");
        assert_eq!(take(&slots, slots.context(next)), Some(3));
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

    /// Two post, one polls: each operation comes back once, whichever place it had.
    #[test]
    fn several_post_while_another_takes() {
        const EACH: u64 = 50_000;
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
                for place in &slots.places {
                    tags.extend(take(&slots, place.context.get().cast()));
                }
            }
        });
        tags.sort_unstable();
        assert!(tags.into_iter().eq(0..2 * EACH));
        assert_eq!(slots.in_flight(), 0);
    }
}
