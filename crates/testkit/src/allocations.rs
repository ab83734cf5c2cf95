//! Counts allocations.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, counting the allocations of each thread. A test makes it its
/// `#[global_allocator]`. Memory of C libraries is not counted.
#[derive(Debug)]
pub struct CountingAllocator;

thread_local! {
    /// Without an initialiser or a destructor, so that an access allocates nothing itself.
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: everything is passed to the system's allocator, which keeps the contract.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: the contract is that of the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: the contract is that of the caller.
        unsafe { System.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the contract is that of the caller.
        unsafe { System.dealloc(block, layout) }
    }
}

/// Returns how often this thread allocates in `work`.
///
/// # Panics
///
/// Panics if the program has another allocator, which counts nothing.
pub fn allocations(work: impl FnOnce()) -> u64 {
    assert_eq!(counted(|| drop(std::hint::black_box(Box::new(7)))), 1, "they are not counted here");
    counted(work)
}

fn counted(work: impl FnOnce()) -> u64 {
    let before = COUNT.get();
    work();
    COUNT.get() - before
}
