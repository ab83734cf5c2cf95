//! Memory windows: a part of a region under a key of its own, which can be taken back without deregistering.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use farreach_verbs_sys as sys;

use crate::error::Error;
use crate::handle::Handle;
use crate::leak;
use crate::mr::RemoteKey;
use crate::pd::ProtectionDomain;
use crate::qp::QueuePair;

/// A memory window, bound to nothing at first.
///
/// ```no_run
/// # use farreach_verbs::device::DeviceList;
/// use farreach_verbs::mw::WindowType;
///
/// # let pd = DeviceList::get()?.iter().next().unwrap().open()?.alloc_pd()?;
/// let window = pd.alloc_mw(WindowType::Two)?;
/// println!("{}, next {}", window.rkey(), window.rkey().inc());
/// # Ok::<(), farreach_verbs::Error>(())
/// ```
#[doc(alias = "ibv_mw")]
pub struct MemoryWindow {
    mw: Handle<sys::ibv_mw>,
    kind: WindowType,
    /// Binding a window of type 1 writes its key.
    binding: Mutex<()>,
    pd: ProtectionDomain,
    is_released: bool,
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
        // SAFETY: the domain lives.
        let mw = unsafe { sys::ibv_alloc_mw(self.as_raw(), kind.raw()) };
        // SAFETY: a window is taken from any thread, and lives until its one owner deallocates it.
        let mw = unsafe { Handle::new(mw) }.ok_or_else(|| self.context().failed("ibv_alloc_mw"))?;
        Ok(MemoryWindow { mw, kind, binding: Mutex::new(()), pd: self.clone(), is_released: false })
    }
}

impl MemoryWindow {
    /// How it is bound.
    pub fn kind(&self) -> WindowType {
        self.kind
    }

    /// Its key. Of type 1: that of the last binding. Of type 2: the first one, from which the keys to bind with are
    /// [counted on](RemoteKey::inc).
    pub fn rkey(&self) -> RemoteKey {
        let _guard = self.binding.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the window lives, and nobody binds it meanwhile.
        RemoteKey(unsafe { (*self.as_raw()).rkey })
    }

    /// The protection domain that it is in.
    pub fn pd(&self) -> &ProtectionDomain {
        &self.pd
    }

    /// The C object. It lives as long as this does.
    pub fn as_raw(&self) -> *mut sys::ibv_mw {
        self.mw.as_ptr()
    }

    /// Binds a window of type 1: `ibv_bind_mw(3)`. The binding is posted to `qp` and completes like a send; the new key is
    /// [`rkey`](Self::rkey) at once.
    ///
    /// # Safety
    ///
    /// `bind` is valid. Its region lives, and its memory may be reached by peers, until the window is bound elsewhere
    /// or deallocated: some devices refuse to deregister a region while a window is bound to it.
    #[doc(alias = "ibv_bind_mw")]
    pub unsafe fn bind_raw(&self, qp: &QueuePair, bind: *mut sys::ibv_mw_bind) -> Result<(), Error> {
        let _guard = self.binding.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: window and queue pair live, and nobody else binds; the rest is passed on to the caller.
        match unsafe { sys::ibv_bind_mw(qp.as_raw(), self.as_raw(), bind) } {
            0 => Ok(()),
            errno => Err(Error::call("ibv_bind_mw", self.pd.context().device().name(), errno)),
        }
    }

    /// Deallocates it: `ibv_dealloc_mw(3)`. After success its key is dead.
    ///
    /// On failure the window stays for good, as when it is dropped.
    #[doc(alias = "ibv_dealloc_mw")]
    pub fn dealloc(mut self) -> Result<(), Error> {
        self.release()
    }

    fn release(&mut self) -> Result<(), Error> {
        self.is_released = true;
        // SAFETY: this is the owner's last use of the window.
        let answer = unsafe { sys::ibv_dealloc_mw(self.as_raw()) };
        leak::judge(leak::Kind::MemoryWindow, Ok(answer)).map_err(|errno| {
            leak::keep(&self.pd);
            Error::call("ibv_dealloc_mw", self.pd.context().device().name(), errno)
        })
    }
}

impl Drop for MemoryWindow {
    fn drop(&mut self) {
        if !self.is_released {
            // A failure is counted; a drop has nobody else to tell.
            let _ = self.release();
        }
    }
}

impl fmt::Debug for MemoryWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryWindow")
            .field("device", &self.pd.context().device().name())
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}
