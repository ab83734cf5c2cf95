//! Copies from and to memory that other processes change at the same time.

use std::ffi::c_void;

use libc::size_t;

type Memcpy = unsafe extern "C" fn(*mut c_void, *const c_void, size_t) -> *mut c_void;

/// C's `memcpy`, loaded anew for each copy, so that the compiler does not know what is called.
static MEMCPY: Memcpy = libc::memcpy;

/// Copies `len` bytes.
///
/// The compiler sees a call of an unknown foreign function, so it assumes nothing about the bytes.
/// If another process changes them meanwhile, each byte of the copy is an old or a new one.
/// `rep movsb` by hand is as fast for large pages and slower for small ones; atomics of a byte or a
/// word reach 0.14 to 0.38 of it.
///
/// # Safety
///
/// `from` is mapped for reading and `to` for writing, `len` bytes each, and they do not overlap. No
/// reference to the bytes at `to` exists in this process. A reference to the bytes at `from` is
/// shared.
#[inline(always)]
pub(crate) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the static is initialised and never changes.
    let memcpy = unsafe { std::ptr::read_volatile(&raw const MEMCPY) };
    // SAFETY: the caller guarantees both ranges. Races with other processes, and with threads of
    // this one that use another mapping of the same pages, happen in foreign code that works on
    // machine memory, where a race has a result and no undefined behaviour.
    unsafe { memcpy(to.cast(), from.cast(), len) };
}
