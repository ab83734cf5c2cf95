//! Memory windows: a part of a region under a key of its own, which can be taken back without deregistering.

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
use crate::region::ExposedRegion;
use crate::weak_set::WeakSet;
use crate::wr::RemoteRange;

/// A memory window, bound to nothing at first: [`SendRequest::bind`](crate::wr::SendRequest::bind) binds it.
///
/// Cheap to clone; it is deallocated when it is [revoked](Self::revoke), or when the last clone is gone. One of type 2 belongs to the
/// queue pair that bound it, and is revoked when that is destroyed.
///
/// ```no_run
/// # use farreach_verbs::cq::CompletionQueue;
/// # use farreach_verbs::qp::QueuePair;
/// use std::sync::Arc;
/// use farreach_verbs::mr::AccessFlags;
/// use farreach_verbs::mw::WindowType;
/// use farreach_verbs::wr::SendRequest;
///
/// # fn lend(qp: &QueuePair, pd: &farreach_verbs::pd::ProtectionDomain) -> Result<(), farreach_verbs::Error> {
/// let region = pd.expose(pd.allocate(4096)?, AccessFlags::MW_BIND).map_err(|(error, _)| error)?;
/// let (region, window) = (Arc::new(region), pd.alloc_mw(WindowType::Two)?);
/// qp.post_send(SendRequest::bind(&window, &region, 0..1024, AccessFlags::REMOTE_WRITE)).expect("there is room");
/// // … when that has completed:
/// println!("write here: {:?}", window.remote());
/// // … and when it has been written:
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

/// What changes with each binding.
pub(crate) struct State {
    /// The C object: whoever binds it has it exclusively, by the lock. None when it is revoked.
    pub(crate) mw: Option<Owned<sys::ibv_mw, ProtectionDomain>>,
    pub(crate) key: RemoteKey,
    pub(crate) bound: Option<Bound>,
    /// What it may be bound to besides: by bindings of which it is not known whether the device has them, or before one that failed.
    pub(crate) in_doubt: Vec<Arc<ExposedRegion>>,
    /// The send queue whose bindings are under way, and how many.
    binder: Option<(u32, usize)>,
}

/// What a window is bound to: it keeps the region.
pub(crate) struct Bound {
    pub(crate) region: Arc<ExposedRegion>,
    pub(crate) remote: RemoteRange,
    /// The queue pair that a window of type 2 belongs to, by its number.
    pub(crate) owner: Option<u32>,
}

/// A binding that a send queue has. It keeps the window, and what that is bound to until then.
///
/// As long as it is under way, no other queue binds the window: a device does what one queue has in its order, and nobody knows in which
/// order two of them are served. The window would then be bound to another region than the one that it keeps.
pub(crate) struct BindingUnderWay {
    window: MemoryWindow,
    before: Option<Arc<ExposedRegion>>,
}

impl BindingUnderWay {
    /// Counts a binding by this queue; nothing where another one is binding.
    pub(crate) fn begin(window: &MemoryWindow, state: &mut State, queue: u32) -> Option<Self> {
        let count = match state.binder {
            None => 0,
            Some((binder, count)) if binder == queue => count,
            Some(_) => return None,
        };
        state.binder = Some((queue, count + 1));
        let before = state.bound.as_ref().map(|bound| Arc::clone(&bound.region));
        Some(Self { window: window.clone(), before })
    }

    /// The binding failed, or nobody knows: the window may lead to where it led before, until it is revoked.
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

/// The windows of type 2 that a queue pair has bound. They go before it: the standard lets a device refuse to destroy it otherwise, and
/// Soft-RoCE waits 50 s for them, and then destroys it under them.
#[derive(Default)]
pub(crate) struct OwnWindows(Mutex<WeakSet<Inner>>);

impl OwnWindows {
    /// Notes one that is about to be bound.
    pub(crate) fn note(&self, window: &MemoryWindow) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(&window.0);
    }

    /// Revokes those that nobody else has bound since.
    pub(crate) fn revoke(&self, owner: u32) {
        let windows = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        for window in windows.into_kept() {
            let state = window.lock();
            if state.bound.as_ref().is_some_and(|bound| bound.owner == Some(owner)) {
                // A failure is counted, and what follows fails too.
                let _ = window.release(state);
            }
        }
    }
}

/// How a window is bound, and to whom it belongs.
///
/// ```
/// use farreach_verbs::mw::WindowType;
///
/// assert_eq!(WindowType::Two.to_string(), "type 2");
/// ```
#[doc(alias = "ibv_mw_type")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WindowType {
    /// Bound by a call, and open to every queue pair of its protection domain.
    One,
    /// Bound by a work request, invalidated by one of either side; the binder chooses the key's last eight bits.
    Two,
}

impl WindowType {
    /// The value that C gives it.
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
    /// Makes a window: `ibv_alloc_mw(3)`.
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
    /// How it is bound.
    pub fn kind(&self) -> WindowType {
        self.0.kind
    }

    /// Its key: that of the last binding, or the first one, under which nothing can be reached.
    pub fn rkey(&self) -> RemoteKey {
        self.lock().key
    }

    /// What a peer may reach by it from when the last binding that was posted has completed well; none where it was never bound, or is
    /// revoked. After a binding that failed, the key stands for nothing.
    pub fn remote(&self) -> Option<RemoteRange> {
        self.lock().bound.as_ref().map(|bound| bound.remote)
    }

    /// The protection domain that it is in.
    pub fn pd(&self) -> &ProtectionDomain {
        &self.0.pd
    }

    /// The C object. It lives as long as this does, and is not revoked; null once it is.
    pub fn as_raw(&self) -> *mut sys::ibv_mw {
        self.lock().mw.as_ref().map_or(null_mut(), |mw| mw.as_ptr())
    }

    /// Binds a window of type 1: `ibv_bind_mw(3)`. The binding is posted to `qp` and completes like a send; the new key is
    /// [`rkey`](Self::rkey) at once.
    ///
    /// # Safety
    ///
    /// `bind` is valid, and no binding by another queue pair is under way. Its region lives, and its memory may be reached by peers, until
    /// the window is bound elsewhere or deallocated: some devices refuse to deregister a region while a window is bound to it.
    #[doc(alias = "ibv_bind_mw")]
    pub unsafe fn bind_raw(&self, qp: &QueuePair, bind: *mut sys::ibv_mw_bind) -> Result<(), Error> {
        let mut state = self.lock();
        // SAFETY: the caller vouches for `bind` and its region.
        match unsafe { state.bind_type_1(qp, bind) } {
            0 => Ok(()),
            errno => Err(Error::call("ibv_bind_mw", self.0.pd.context().device().name(), errno)),
        }
    }

    /// Ends its key and lets its region go: `ibv_dealloc_mw(3)`. A peer's request that arrives later fails at its sender. A second
    /// time, it does nothing.
    ///
    /// Where the kernel refuses, nothing is proven: the window and its region stay for good, and are counted.
    #[doc(alias = "ibv_dealloc_mw")]
    pub fn revoke(&self) -> Result<(), Error> {
        self.0.release(self.lock())
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }
}

impl State {
    /// # Safety
    ///
    /// As for [`MemoryWindow::bind_raw`].
    pub(crate) unsafe fn bind_type_1(&mut self, qp: &QueuePair, bind: *mut sys::ibv_mw_bind) -> c_int {
        let Some(mw) = &mut self.mw else { return libc::EINVAL };
        // SAFETY: `Owned`: the window lives, and its lock, by which `self` is had, lets nobody else bind it. The queue pair lives as long as
        // `qp`. For `bind` and its region the caller vouches.
        let errno = unsafe { sys::ibv_bind_mw(qp.as_raw(), mw.as_ptr(), bind) };
        self.key = RemoteKey(mw.rkey());
        errno
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic under it leaves what was there before.
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
        // A failure is counted; a drop has nobody else to tell.
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
