//! The C objects of libibverbs, behind types that make most calls of it safe.
//!
//! A [`Handle`] is a pointer to an object that lives; an [`Owned`] object is one that its holder destroys, with what it stands on. Their methods are
//! safe where a function asks for no more than live objects, and for arguments that are valid by their type. What asks for
//! more (memory that a device reaches, posting, the order of calls) is called where that is seen to: in `mr`, `dm`, `mw`, `cq`, `qp`.

mod context;
mod device;
mod event;
mod pd;
mod queue;

use std::ffi::{c_int, c_void};
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr::NonNull;

use farreach_verbs_sys as sys;
use farreach_verbs_sys::{Ibverbs, SymbolMissing};

pub(crate) use device::ListedDevice;
pub(crate) use pd::RegionParents;

use crate::leak;

/// What a function says that is not in every library: mostly 0 or an errno.
pub(crate) type Answer = Result<c_int, SymbolMissing>;

/// A pointer to a C object of libibverbs.
///
/// Invariant: the object lives as long as the handle is used, and so does all that it stands on. It was made by libibverbs, which takes
/// such objects from any thread and from several at once.
pub(crate) struct Handle<T>(NonNull<T>);

// SAFETY: the invariant: libibverbs takes the object from any thread.
unsafe impl<T> Send for Handle<T> {}
// SAFETY: the invariant: libibverbs takes the object from several threads at once.
unsafe impl<T> Sync for Handle<T> {}

impl<T> Handle<T> {
    /// None where a C function made nothing.
    ///
    /// # Safety
    ///
    /// The object is null, or libibverbs made it and takes it from any thread. It lives, with what it stands on, as long as the handle
    /// is used.
    pub(crate) unsafe fn new(object: *mut T) -> Option<Self> {
        NonNull::new(object).map(Self)
    }

    #[inline]
    pub(crate) fn as_ptr(&self) -> *mut T {
        self.0.as_ptr()
    }
}

/// Reads of fields. The library writes them before it hands the object out, and never again.
macro_rules! constants {
    ($($object:ident { $($field:ident: $type:ty),* })*) => {$(impl Handle<sys::$object> {$(
        #[inline]
        pub(crate) fn $field(&self) -> $type {
            // SAFETY: `Handle`: the object lives. Whoever adds a field to the list below vouches that nobody writes to it any more.
            unsafe { (*self.as_ptr()).$field }
        }
    )*})*};
}

constants! {
    ibv_context { num_comp_vectors: c_int }
    ibv_mr { addr: *mut c_void, length: usize, lkey: u32, rkey: u32 }
    ibv_cq { handle: u32 }
    ibv_srq { handle: u32 }
    ibv_qp { qp_num: u32 }
}

/// A C object that is destroyed when this is dropped, and what it stands on.
///
/// Invariant: the object is this one's alone, and stands on `parents`. Each object that was made on it holds it in turn, by its own
/// parents: so where nobody holds it any more, nothing stands on it.
///
/// An object that the kernel does not give up may still be used by the device: it stays, with its parents, and is counted.
pub(crate) struct Owned<T, P> {
    object: Handle<T>,
    state: State,
    kind: leak::Kind,
    destroy: Destroy<T>,
    lib: &'static Ibverbs,
    /// Dropped when the object is gone, and only then.
    parents: ManuallyDrop<P>,
}

#[derive(PartialEq)]
enum State {
    Live,
    Destroyed,
    /// Not given up by the kernel.
    Kept,
}

/// The function that destroys an object.
pub(crate) enum Destroy<T> {
    Exported(unsafe fn(&Ibverbs, *mut T) -> Answer),
    Inline(unsafe fn(*mut T) -> c_int),
}

impl<T, P> Owned<T, P> {
    /// None where a C function made nothing: then `parents` is not asked for, and `errno` stays as it is.
    ///
    /// # Safety
    ///
    /// The object is null, or `lib` has just made it, on `parents` and on nothing else, and nobody else has it. `destroy` is the function for
    /// objects of its type, which libibverbs takes from any thread.
    pub(crate) unsafe fn new(
        object: *mut T,
        lib: &'static Ibverbs,
        (kind, destroy): (leak::Kind, Destroy<T>),
        parents: impl FnOnce() -> P,
    ) -> Option<Self> {
        // SAFETY: the object is new and this one's alone, so that it lives until it is released here; its parents are held until then.
        let object = unsafe { Handle::new(object) }?;
        Some(Self { object, state: State::Live, kind, destroy, lib, parents: ManuallyDrop::new(parents()) })
    }

    /// What it stands on.
    #[inline]
    pub(crate) fn parents(&self) -> &P {
        &self.parents
    }

    /// The library that made it.
    pub(crate) fn lib(&self) -> &'static Ibverbs {
        self.lib
    }

    /// Destroys it; where the kernel refuses, that is counted, and the errno says why.
    pub(crate) fn destroy(mut self) -> Result<(), i32> {
        // SAFETY: `self` ends here.
        unsafe { self.release() }
    }

    /// As [`destroy`](Self::destroy), for who cannot give it away.
    ///
    /// # Safety
    ///
    /// After success it is not used any more, but for its parents, and dropped.
    pub(crate) unsafe fn release(&mut self) -> Result<(), i32> {
        // SAFETY: `Owned`: the object lives, `destroy` is its function, and nothing stands on it: whatever does would hold it, and it is
        // borrowed exclusively.
        let answer = unsafe {
            match self.destroy {
                Destroy::Exported(destroy) => destroy(self.lib, self.as_ptr()),
                Destroy::Inline(destroy) => Ok(destroy(self.as_ptr())),
            }
        };
        let released = leak::judge(self.kind, answer);
        self.state = if released.is_ok() { State::Destroyed } else { State::Kept };
        released
    }
}

impl<T, P> Deref for Owned<T, P> {
    type Target = Handle<T>;

    #[inline]
    fn deref(&self) -> &Handle<T> {
        &self.object
    }
}

impl<T, P> Drop for Owned<T, P> {
    fn drop(&mut self) {
        if self.state == State::Live {
            // A failure is counted; a drop has nobody else to tell.
            // SAFETY: nobody uses `self` after its drop.
            let _ = unsafe { self.release() };
        }
        if self.state == State::Destroyed {
            // SAFETY: dropped once, here: nobody uses `self` after its drop.
            unsafe { ManuallyDrop::drop(&mut self.parents) };
        }
    }
}
