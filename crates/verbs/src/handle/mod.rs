//! Wraps the C objects of libibverbs in types that make most calls safe.
//!
//! A [`Handle`] is a pointer to a live object. An [`Owned`] object destroys its C object on drop,
//! and holds the objects that it depends on. Their methods are safe if the C function requires only
//! live objects and arguments that are valid by their type. Functions with further requirements
//! (memory that a device accesses, posting, the order of calls) are called in the modules that
//! uphold these: `mr`, `dm`, `mw`, `cq`, `qp`.

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

/// The result of a function that not every library has: usually 0 or an errno.
pub(crate) type Answer = Result<c_int, SymbolMissing>;

/// A pointer to a C object of libibverbs.
///
/// Invariant: the object, and all that it depends on, lives as long as the handle is used.
/// libibverbs created it, and accepts such objects from any thread and from several threads at
/// once.
pub(crate) struct Handle<T>(NonNull<T>);

// SAFETY: by the invariant, libibverbs accepts the object from any thread.
unsafe impl<T> Send for Handle<T> {}
// SAFETY: by the invariant, libibverbs accepts the object from several threads at once.
unsafe impl<T> Sync for Handle<T> {}

impl<T> Handle<T> {
    /// Wraps a pointer. Returns `None` for null.
    ///
    /// # Safety
    ///
    /// The object is null, or libibverbs created it and accepts it from any thread. It lives, with
    /// all that it depends on, as long as the handle is used.
    pub(crate) unsafe fn new(object: *mut T) -> Option<Self> {
        NonNull::new(object).map(Self)
    }

    #[inline]
    pub(crate) fn as_ptr(&self) -> *mut T {
        self.0.as_ptr()
    }
}

/// Defines getters of constant fields. The library writes them before it returns the object, and
/// never again.
macro_rules! constants {
    ($($object:ident { $($field:ident: $type:ty),* })*) => {$(impl Handle<sys::$object> {$(
        #[inline]
        pub(crate) fn $field(&self) -> $type {
            // SAFETY: `Handle`: the object lives. Only fields that are never written again may be
            // added to the list below.
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

/// A C object that is destroyed on drop, and the objects that it depends on.
///
/// Invariant: this is the only owner of the object, which depends on `parents`. Each object that
/// was created on it holds it by its own parents. So when it is dropped, nothing depends on it.
///
/// The device may still use an object that the kernel refuses to release. Such an object stays,
/// with its parents, and is counted.
pub(crate) struct Owned<T, P> {
    object: Handle<T>,
    state: State,
    kind: leak::Kind,
    destroy: Destroy<T>,
    lib: &'static Ibverbs,
    /// Dropped only after the object was destroyed.
    parents: ManuallyDrop<P>,
}

#[derive(PartialEq)]
enum State {
    Live,
    Destroyed,
    /// The kernel refused to release it.
    Kept,
}

/// The function that destroys an object.
pub(crate) enum Destroy<T> {
    Exported(unsafe fn(&Ibverbs, *mut T) -> Answer),
    Inline(unsafe fn(*mut T) -> c_int),
}

impl<T, P> Owned<T, P> {
    /// Wraps a new object. Returns `None` for null; then `parents` is not called, and `errno` is
    /// preserved.
    ///
    /// # Safety
    ///
    /// The object is null, or `lib` has just created it, on `parents` and nothing else, and it has
    /// no other owner. `destroy` is the function for objects of its type, which libibverbs accepts
    /// from any thread.
    pub(crate) unsafe fn new(
        object: *mut T,
        lib: &'static Ibverbs,
        (kind, destroy): (leak::Kind, Destroy<T>),
        parents: impl FnOnce() -> P,
    ) -> Option<Self> {
        // SAFETY: the object is new and has no other owner, so it lives until it is released here.
        // Its parents are held until then.
        let object = unsafe { Handle::new(object) }?;
        Some(Self { object, state: State::Live, kind, destroy, lib, parents: ManuallyDrop::new(parents()) })
    }

    /// Returns the objects that it depends on.
    #[inline]
    pub(crate) fn parents(&self) -> &P {
        &self.parents
    }

    /// Returns the library that created it.
    pub(crate) fn lib(&self) -> &'static Ibverbs {
        self.lib
    }

    /// Destroys the object. If the kernel refuses, that is counted, and the errno is returned.
    pub(crate) fn destroy(mut self) -> Result<(), i32> {
        // SAFETY: `self` is consumed here.
        unsafe { self.release() }
    }

    /// Like [`destroy`](Self::destroy), for callers that cannot move it.
    ///
    /// # Safety
    ///
    /// After success, only the parents are used, and it is dropped.
    pub(crate) unsafe fn release(&mut self) -> Result<(), i32> {
        // SAFETY: `Owned`: the object lives, `destroy` is its function, and nothing depends on it:
        // a dependent object would hold it, and it is borrowed exclusively.
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
            // A failure is counted by `leak::judge`; `drop` cannot return it.
            // SAFETY: `self` is not used after its drop.
            let _ = unsafe { self.release() };
        }
        if self.state == State::Destroyed {
            // SAFETY: dropped once, here; `self` is not used after its drop.
            unsafe { ManuallyDrop::drop(&mut self.parents) };
        }
    }
}
