//! Counts the bytes that a thread has allocated at a time.
//!
//! libFuzzer limits the memory of the process, and that of a single allocation. Neither notices an
//! input of ten bytes that allocates a megabyte.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    /// The bytes that are allocated now, and the most that were. Bytes that another thread frees are
    /// not subtracted here.
    static NOW: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn add(bytes: isize) {
    // A thread that ends may free memory after its counters.
    let _ = NOW.try_with(|now| {
        now.set(now.get() + bytes);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(now.get())));
    });
}

// SAFETY: every call goes to the system's allocator with the same arguments. Counting allocates
// nothing: the counters are constants without a destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size() as isize);
        // SAFETY: the caller upholds the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        add(layout.size() as isize);
        // SAFETY: the caller upholds the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        add(-(layout.size() as isize));
        // SAFETY: the caller got the pointer from this allocator, and so from the system's.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        add(new_size as isize - layout.size() as isize);
        // SAFETY: the caller got the pointer from this allocator, and so from the system's.
        unsafe { System.realloc(pointer, layout, new_size) }
    }
}

/// Returns the bytes that this thread has allocated and not freed.
pub fn now() -> isize {
    NOW.get()
}

/// Calls a function. Returns how many bytes more than before were allocated at a time.
pub fn peak_of(call: impl FnOnce()) -> usize {
    let before = NOW.get();
    PEAK.set(before);
    call();
    (PEAK.get() - before).max(0) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_bytes_at_a_time_are_counted() {
        let peak = peak_of(|| {
            for _ in 0..10 {
                drop(std::hint::black_box(vec![1_u8; 1000]));
            }
        });
        assert!((1000..2000).contains(&peak), "{peak}");
        let peak = peak_of(|| drop(std::hint::black_box(vec![vec![1_u8; 1000]; 10])));
        assert!((10_000..20_000).contains(&peak), "{peak}");
    }
}
