//! A pointer to an object of libfabric, as a field.

use std::ptr::{self, NonNull};

use farreach_fabric_sys as sys;

use crate::leak::{self, Kind};
use crate::{Error, Library};

/// A live object of libfabric. `T` is one of the `fid_…` structures, each of which begins with a `fid`.
pub(crate) struct Handle<T>(NonNull<T>);

// SAFETY: whoever makes a handle promises it: see `Handle::open`.
unsafe impl<T> Send for Handle<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Handle<T> {}

impl<T> Handle<T> {
    /// The object that `open` writes to its argument.
    ///
    /// # Safety
    ///
    /// `open` answers 0 only where it has written a live object of the class `T`, which begins with a `fid`; the provider takes it
    /// from any thread, and from several at once.
    pub(crate) unsafe fn open(
        library: &Library,
        operation: &'static str,
        open: impl FnOnce(*mut *mut T) -> i32,
    ) -> Result<Self, Error> {
        let mut object = ptr::null_mut();
        match open(&raw mut object) {
            0 => NonNull::new(object).map(Self).ok_or(Error::Incomplete { operation }),
            status => Err(library.error(operation, status)),
        }
    }

    #[inline]
    pub(crate) fn as_ptr(&self) -> *mut T {
        self.0.as_ptr()
    }

    /// What all classes have in common.
    pub(crate) fn fid(&self) -> *mut sys::fid {
        self.as_ptr().cast()
    }

    /// Closes the object: `fi_close(3)`. Where that fails the object is counted as leaked, and the caller keeps what it
    /// stands on.
    ///
    /// # Safety
    ///
    /// Nothing uses the object afterwards, and nothing that is alive was made of it.
    pub(crate) unsafe fn close(&self, library: &Library, kind: Kind) -> Result<(), Error> {
        // SAFETY: the object is live, and the caller vouches that this is its end.
        match unsafe { sys::fi_close(self.fid()) } {
            0 => Ok(()),
            status => {
                leak::count(kind);
                Err(library.error("fi_close", status))
            }
        }
    }
}
