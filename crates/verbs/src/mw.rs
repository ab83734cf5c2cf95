//! Memory windows: a part of a region under a key of its own, which can be revoked without
//! deregistering the region.
//!
//! Invariant: a window holds every region that it may be bound to, until it is bound elsewhere with
//! certainty or deallocated.

use std::ffi::c_int;
use std::fmt;
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use farreach_verbs_sys as sys;

use crate::error::Error;
use crate::handle::Owned;
use crate::mr::RemoteKey;
use crate::pd::ProtectionDomain;
use crate::qp::QueuePair;
use crate::region::Bindable;
use crate::weak_set::WeakSet;
use crate::wr::RemoteRange;

/// A memory window. It is unbound at first; [`SendRequest::bind`](crate::wr::SendRequest::bind)
/// binds it.
///
/// It is cheap to clone. The window is deallocated when it is [revoked](Self::revoke), or when the
/// last clone is gone. A window of type 2 belongs to the queue pair that bound it, and is revoked
/// when that queue pair is destroyed.
///
/// ```no_run
/// # use farreach_verbs::cq::CompletionQueue;
/// # use farreach_verbs::qp::QueuePair;
/// use std::sync::Arc;
/// use farreach_verbs::mr::AccessFlags;
/// use farreach_verbs::mw::WindowType;
/// use farreach_verbs::wr::SendRequest;
///
/// # use farreach_verbs::{Error, pd::ProtectionDomain};
/// # fn lend(qp: &QueuePair, pd: &ProtectionDomain) -> Result<(), Error> {
/// let region = pd.expose(pd.allocate(4096)?, AccessFlags::MW_BIND).map_err(|(error, _)| error)?;
/// let (region, window) = (Arc::new(region), pd.alloc_mw(WindowType::Two)?);
/// let bind = SendRequest::bind(&window, &region, 0..1024, AccessFlags::REMOTE_WRITE);
/// qp.post_send(bind).expect("there is room");
/// // … when the binding has completed:
/// println!("write here: {:?}", window.remote());
/// // … and when the peer has written:
/// window.revoke()?;
/// # Ok(())
/// # }
/// ```
#[doc(alias = "ibv_mw")]
#[derive(Clone)]
pub struct MemoryWindow(Arc<Inner>);

pub(crate) struct Inner {
    kind: WindowType,
    state: Mutex<State>,
    pd: ProtectionDomain,
}

/// The state that changes with each binding.
pub(crate) struct State {
    /// The C object. The lock gives exclusive access to the thread that binds it. `None` once
    /// revoked.
    pub(crate) mw: Option<Owned<sys::ibv_mw, ProtectionDomain>>,
    pub(crate) key: RemoteKey,
    pub(crate) bound: Option<Bound>,
    /// Other regions that it may be bound to: by bindings that the device may or may not have
    /// taken, or from before a binding that failed.
    pub(crate) in_doubt: Vec<Bindable>,
    /// The send queue whose bindings are in flight, and their number.
    binder: Option<(u32, usize)>,
}

/// The binding of a window. It holds the region.
pub(crate) struct Bound {
    pub(crate) region: Bindable,
    pub(crate) remote: RemoteRange,
    /// The number of the queue pair that a window of type 2 belongs to.
    pub(crate) owner: Option<u32>,
}

/// A binding in flight in a send queue. It holds the window, and the region that the window was
/// bound to before.
///
/// Invariant: while it exists, no other queue binds the window. A device processes one queue in
/// order, but the order among queues is undefined. Otherwise the window could be bound to another
/// region than the one that it holds.
pub(crate) struct BindingUnderWay {
    window: MemoryWindow,
    before: Option<Bindable>,
}

impl BindingUnderWay {
    /// Counts a binding by this queue. Returns `None` if another queue is binding.
    pub(crate) fn begin(window: &MemoryWindow, state: &mut State, queue: u32) -> Option<Self> {
        let count = match state.binder {
            None => 0,
            Some((binder, count)) if binder == queue => count,
            Some(_) => return None,
        };
        state.binder = Some((queue, count + 1));
        let before = state.bound.as_ref().map(|bound| bound.region.clone());
        Some(Self { window: window.clone(), before })
    }

    /// Records that the binding failed, or may have failed. The window may then lead to its former
    /// region until it is revoked.
    pub(crate) fn fail(&self) {
        let mut state = self.window.lock();
        if state.mw.is_some() {
            state.in_doubt.extend(self.before.clone());
        }
    }
}

impl Drop for BindingUnderWay {
    fn drop(&mut self) {
        let mut state = self.window.lock();
        state.binder = state.binder.filter(|(_, count)| *count > 1).map(|(queue, count)| (queue, count - 1));
    }
}

impl fmt::Debug for BindingUnderWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BindingUnderWay").finish_non_exhaustive()
    }
}

/// The windows of type 2 that a queue pair has bound. They are deallocated before it: the standard
/// allows a device to refuse to destroy a queue pair with bound windows, and Soft-RoCE waits 50 s
/// for them and then destroys it anyway.
#[derive(Default)]
pub(crate) struct OwnWindows(Mutex<WeakSet<Inner>>);

impl OwnWindows {
    /// Records a window that is about to be bound.
    pub(crate) fn note(&self, window: &MemoryWindow) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(&window.0);
    }

    /// Revokes the windows that still belong to this queue pair.
    pub(crate) fn revoke(&self, owner: u32) {
        let windows = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        for window in windows.into_kept() {
            let state = window.lock();
            if state.bound.as_ref().is_some_and(|bound| bound.owner == Some(owner)) {
                // A failure is counted by `leak::judge`. Destroying the queue pair then fails too.
                let _ = window.release(state);
            }
        }
    }
}

/// The type of a window: how it is bound, and which queue pairs may use it.
///
/// ```
/// use farreach_verbs::mw::WindowType;
///
/// assert_eq!(WindowType::Two.to_string(), "type 2");
/// ```
#[doc(alias = "ibv_mw_type")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WindowType {
    /// Bound by a call, and usable by every queue pair of its protection domain.
    One,
    /// Bound by a work request, and invalidated by a work request of either side. The binder
    /// chooses the last eight bits of the key.
    Two,
}

impl WindowType {
    /// Returns the C value.
    pub fn raw(self) -> u32 {
        match self {
            Self::One => sys::IBV_MW_TYPE_1,
            Self::Two => sys::IBV_MW_TYPE_2,
        }
    }
}

impl fmt::Display for WindowType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::One => "type 1",
            Self::Two => "type 2",
        })
    }
}

impl ProtectionDomain {
    /// Allocates a window: `ibv_alloc_mw(3)`.
    #[doc(alias = "ibv_alloc_mw")]
    pub fn alloc_mw(&self, kind: WindowType) -> Result<MemoryWindow, Error> {
        let mw = Owned::alloc_mw(self, kind.raw());
        let mut mw = mw.ok_or_else(|| self.context().failed("ibv_alloc_mw"))?;
        let key = RemoteKey(mw.rkey());
        let state = State { mw: Some(mw), key, bound: None, in_doubt: Vec::new(), binder: None };
        Ok(MemoryWindow(Arc::new(Inner { kind, state: Mutex::new(state), pd: self.clone() })))
    }
}

impl MemoryWindow {
    /// Returns the type of the window.
    pub fn kind(&self) -> WindowType {
        self.0.kind
    }

    /// Returns the key of the last binding, or the initial key, which gives no access.
    pub fn rkey(&self) -> RemoteKey {
        self.lock().key
    }

    /// Returns the range that a peer may access once the last posted binding has completed with
    /// success. `None` if the window was never bound, or is revoked. After a failed binding, the
    /// key gives no access.
    pub fn remote(&self) -> Option<RemoteRange> {
        self.lock().bound.as_ref().map(|bound| bound.remote)
    }

    /// Returns the protection domain.
    pub fn pd(&self) -> &ProtectionDomain {
        &self.0.pd
    }

    /// Returns the C object, which is valid while `self` or a clone lives and the window is not
    /// revoked. Null once it is revoked.
    pub fn as_raw(&self) -> *mut sys::ibv_mw {
        self.lock().mw.as_ref().map_or(null_mut(), |mw| mw.as_ptr())
    }

    /// Binds a window of type 1: `ibv_bind_mw(3)`. The binding is posted to `qp` and completes like
    /// a send. [`rkey`](Self::rkey) returns the new key at once.
    ///
    /// # Safety
    ///
    /// `bind` is valid, and no binding by another queue pair is in flight. Its region lives, and
    /// peers may access its memory, until the window is bound elsewhere or deallocated. Some
    /// devices refuse to deregister a region while a window is bound to it. If a
    /// [`Poller`](crate::cq::Poller) polls the completion queue, the `wr_id` is below 2^32.
    #[doc(alias = "ibv_bind_mw")]
    pub unsafe fn bind_raw(&self, qp: &QueuePair, bind: *mut sys::ibv_mw_bind) -> Result<(), Error> {
        let mut state = self.lock();
        // SAFETY: the caller guarantees that `bind` and its region are valid.
        match unsafe { state.bind_type_1(qp, bind) } {
            0 => Ok(()),
            errno => Err(Error::call("ibv_bind_mw", self.0.pd.context().device().name(), errno)),
        }
    }

    /// Invalidates the key and releases the region: `ibv_dealloc_mw(3)`. A peer's request that
    /// arrives later fails at its sender. Further calls do nothing.
    ///
    /// If the kernel refuses, there is no proof that peers no longer access the memory: the window
    /// and its region stay for good, and the window is counted as leaked.
    #[doc(alias = "ibv_dealloc_mw")]
    pub fn revoke(&self) -> Result<(), Error> {
        self.0.release(self.lock())
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }
}

impl State {
    /// Binds a window of type 1, and takes over its new key.
    ///
    /// # Safety
    ///
    /// As for [`MemoryWindow::bind_raw`].
    pub(crate) unsafe fn bind_type_1(&mut self, qp: &QueuePair, bind: *mut sys::ibv_mw_bind) -> c_int {
        let Some(mw) = &mut self.mw else { return libc::EINVAL };
        // SAFETY: the window lives, because `Owned` holds it, and the lock behind `&mut self`
        // excludes other bindings. The queue pair lives as long as `qp`. The caller guarantees that
        // `bind` and its region are valid.
        let errno = unsafe { sys::ibv_bind_mw(qp.as_raw(), mw.as_ptr(), bind) };
        self.key = RemoteKey(mw.rkey());
        errno
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic while the lock was held left the previous state, which is consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn release(&self, mut state: MutexGuard<'_, State>) -> Result<(), Error> {
        let Some(mw) = state.mw.take() else { return Ok(()) };
        let bound = (state.bound.take(), std::mem::take(&mut state.in_doubt));
        mw.destroy().map_err(|errno| {
            std::mem::forget(bound);
            Error::call("ibv_dealloc_mw", self.pd.context().device().name(), errno)
        })
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // A failure is counted by `leak::judge`; `drop` cannot return it.
        let _ = self.release(self.lock());
    }
}

impl fmt::Debug for MemoryWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryWindow")
            .field("device", &self.0.pd.context().device().name())
            .field("kind", &self.0.kind)
            .field("remote", &self.remote())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_type_has_the_number_of_c_and_a_name() {
        assert_eq!(WindowType::One.raw(), sys::IBV_MW_TYPE_1);
        assert_eq!(WindowType::Two.raw(), sys::IBV_MW_TYPE_2);
        assert_eq!(
            (WindowType::One.to_string(), WindowType::Two.to_string()),
            ("type 1".into(), "type 2".into())
        );
    }
}
