//! Whether something allocates.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, which counts what each thread asks it for: a test makes it its `#[global_allocator]`. A C library's own
/// memory does not come this way.
#[derive(Debug)]
pub struct CountingAllocator;

thread_local! {
    /// Without an initializer or a destructor to run, so that asking for it allocates nothing itself.
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: all is passed on to the system's allocator, which keeps the contract.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: passed on to the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: passed on to the caller.
        unsafe { System.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: passed on to the caller.
        unsafe { System.dealloc(block, layout) }
    }
}

/// How often this thread allocates in `work`.
///
/// # Panics
///
/// If the program's allocator is another one, which counts nothing.
pub fn allocations(work: impl FnOnce()) -> u64 {
    assert_eq!(counted(|| drop(std::hint::black_box(Box::new(7)))), 1, "they are not counted here");
    counted(work)
}

fn counted(work: impl FnOnce()) -> u64 {
    let before = COUNT.get();
    work();
    COUNT.get() - before
}
