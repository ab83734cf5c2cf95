//! A pointer to a C object, as a field.

use std::ptr::NonNull;

/// A live C object of libibverbs, which takes its objects from any thread and from several at once.
pub(crate) struct Handle<T>(NonNull<T>);

// SAFETY: whoever makes a handle promises it: see `Handle::new`.
unsafe impl<T> Send for Handle<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Handle<T> {}

impl<T> Handle<T> {
    /// None where a C function made nothing.
    ///
    /// # Safety
    ///
    /// The object is one that libibverbs takes from any thread, and it lives as long as the handle is used.
    pub(crate) unsafe fn new(object: *mut T) -> Option<Self> {
        NonNull::new(object).map(Self)
    }

    #[inline]
    pub(crate) fn as_ptr(&self) -> *mut T {
        self.0.as_ptr()
    }
}
