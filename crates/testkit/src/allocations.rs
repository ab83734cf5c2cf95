//! Counts allocations.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// The system's allocator, counting the allocations of each thread and of all. A test makes it its
/// `#[global_allocator]`. Memory of C libraries is not counted.
#[derive(Debug)]
pub struct CountingAllocator;

thread_local! {
    /// Without an initialiser or a destructor, so that an access allocates nothing itself.
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

static OF_ALL: AtomicU64 = AtomicU64::new(0);

fn count() {
    COUNT.set(COUNT.get() + 1);
    OF_ALL.fetch_add(1, Ordering::Relaxed);
}

// SAFETY: everything is passed to the system's allocator, which keeps the contract.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the contract is that of the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
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
    counted(|| COUNT.get(), work)
}

/// Returns how often the threads of this process allocate while `work` runs. A test calls it in
/// [a process of its own](crate::in_own_process).
///
/// # Panics
///
/// Panics if the program has another allocator, which counts nothing.
pub fn allocations_of_all(work: impl FnOnce()) -> u64 {
    counted(|| OF_ALL.load(Ordering::Relaxed), work)
}

fn counted(count: impl Fn() -> u64, work: impl FnOnce()) -> u64 {
    let before = count();
    drop(std::hint::black_box(Box::new(7)));
    assert!(count() > before, "allocations are not counted here");
    let before = count();
    work();
    count() - before
}
