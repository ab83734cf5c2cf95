//! What is in flight: a table of operations, each with a context that the provider knows it by.

use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::sync::{Mutex, MutexGuard, PoisonError};

use farreach_fabric_sys as sys;
use farreach_memory::Buffers;

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

/// The operations of one direction of an endpoint.
///
/// The provider knows an operation by the address of its context: eight words that are the provider's until it completes, at a place
/// that does not move. It never gets a pointer to anything of the user's, and what it gives back is only compared: an address that
/// is not that of a context in this table, or of one that is not in flight, finds nothing.
///
/// **Late completions.** The addresses of a table belong to it for as long as a completion queue may still hold a completion of one of them: see
/// [`Registry`](crate::cq::Registry). Within a table the context that was free for longest is used next.
pub(crate) struct Slots {
    contexts: Box<[Context]>,
    places: Mutex<Places>,
}

#[repr(C)]
struct Context(UnsafeCell<MaybeUninit<sys::fi_context2>>);

// SAFETY: a context's words are the provider's alone: here only their address is taken.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

struct Places {
    operations: Vec<Option<InFlight>>,
    free: VecDeque<u32>,
}

/// A place that holds an operation, for whoever is about to post it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Number(u32);

impl Number {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

impl Slots {
    /// A table for `depth` operations, all places at once: posting allocates nothing.
    pub(crate) fn new(depth: u32) -> Self {
        let context = || Context(UnsafeCell::new(MaybeUninit::zeroed()));
        let operations = (0..depth).map(|_| None).collect();
        Self {
            contexts: (0..depth).map(|_| context()).collect(),
            places: Mutex::new(Places { operations, free: (0..depth).collect() }),
        }
    }

    /// Puts an operation in flight, before the provider is told of it; a full table hands it back.
    #[inline]
    pub(crate) fn put(&self, operation: InFlight) -> Result<Number, InFlight> {
        let mut places = self.lock();
        let Some(number) = places.free.pop_front() else { return Err(operation) };
        places.operations[number as usize] = Some(operation);
        Ok(Number(number))
    }

    /// Takes an operation out: it is done, or the provider has refused it.
    #[inline]
    pub(crate) fn take(&self, number: Number) -> Option<InFlight> {
        let mut places = self.lock();
        let operation = places.operations.get_mut(number.index())?.take()?;
        places.free.push_back(number.0);
        Some(operation)
    }

    /// The context of a place, for the provider.
    #[inline]
    pub(crate) fn context(&self, number: Number) -> *mut c_void {
        self.contexts[number.index()].0.get().cast()
    }

    /// The place whose context is at this address, if it is one of this table's.
    #[inline]
    pub(crate) fn find(&self, context: *mut c_void) -> Option<Number> {
        let offset = context.addr().checked_sub(self.start())?;
        let number = offset / size_of::<Context>();
        let is_context = offset.is_multiple_of(size_of::<Context>()) && number < self.contexts.len();
        is_context.then_some(Number(number as u32))
    }

    /// The address of the first context.
    pub(crate) fn start(&self) -> usize {
        self.contexts.as_ptr().addr()
    }

    /// How many operations may be in flight.
    pub(crate) fn depth(&self) -> usize {
        self.contexts.len()
    }

    /// How many are.
    pub(crate) fn in_flight(&self) -> usize {
        self.depth() - self.lock().free.len()
    }

    /// Everything that is left, when the provider has stopped.
    pub(crate) fn take_all(&self) -> Vec<InFlight> {
        let numbers = 0..self.depth() as u32;
        numbers.filter_map(|number| self.take(Number(number))).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Places> {
        // A panic under the lock leaves at worst a place that is neither free nor filled.
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(tag: u64) -> InFlight {
        InFlight { tag, kind: OperationKind::Receive, is_delivery: false, buffers: Buffers::None, peer: None }
    }

    #[test]
    fn operations_come_back_in_any_order_and_a_full_table_hands_them_back() {
        let slots = Slots::new(2);
        let first = slots.put(operation(1)).unwrap();
        let second = slots.put(operation(2)).unwrap();
        assert_eq!(slots.put(operation(3)).unwrap_err().tag, 3);
        assert_eq!(slots.take(second).unwrap().tag, 2);
        assert!(slots.take(second).is_none(), "it is not in flight any more");
        assert_eq!(slots.in_flight(), 1);
        assert_eq!(slots.take(first).unwrap().tag, 1);
    }

    #[test]
    fn the_context_that_was_free_for_longest_is_next() {
        let slots = Slots::new(3);
        let first = slots.put(operation(1)).unwrap();
        slots.take(first);
        for _ in 0..2 {
            let number = slots.put(operation(2)).unwrap();
            assert_ne!(number, first);
            slots.take(number);
        }
        assert_eq!(slots.put(operation(3)).unwrap(), first);
    }

    #[test]
    fn only_the_address_of_a_context_finds_one() {
        let slots = Slots::new(4);
        let number = slots.put(operation(1)).unwrap();
        let context = slots.context(number);
        assert_eq!(slots.find(context), Some(number));
        assert_eq!(slots.find(context.wrapping_byte_add(1)), None);
        assert_eq!(slots.find(std::ptr::null_mut()), None);
        assert_eq!(slots.find(slots.context(Number(3)).wrapping_byte_add(64)), None);
        assert_eq!(slots.find(slots.context(Number(0)).wrapping_byte_sub(64)), None);
    }

    #[test]
    fn what_is_left_is_taken_whole() {
        let slots = Slots::new(4);
        for tag in 0..3 {
            slots.put(operation(tag)).unwrap();
        }
        let tags: Vec<_> = slots.take_all().iter().map(|operation| operation.tag).collect();
        assert_eq!(tags, [0, 1, 2]);
        assert_eq!((slots.in_flight(), slots.take_all().len()), (0, 0));
    }
}
