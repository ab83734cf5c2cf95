//! Open devices, and objects that depend on a context only.

use std::ffi::c_int;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::null;

use farreach_verbs_sys as sys;
use farreach_verbs_sys::{Ibverbs, SymbolMissing};

use super::{Answer, Destroy, Handle, Owned};
use crate::context::Context;
use crate::device::Device;
use crate::leak::Kind;

impl Owned<sys::ibv_context, Device> {
    /// Opens a device. Returns `None` with `errno` set on failure.
    pub(crate) fn open_device(device: &Device) -> Result<Option<Self>, SymbolMissing> {
        let lib = device.lib();
        // SAFETY: a `Device` stays listed, by this library, while it is held, and the context is
        // created here, on it.
        unsafe {
            let context = lib.ibv_open_device(device.as_ptr())?;
            let end = (Kind::Context, Destroy::Exported(Ibverbs::ibv_close_device));
            Ok(Self::new(context, lib, end, || device.clone()))
        }
    }

    pub(crate) fn query_device(&self, attributes: &mut sys::ibv_device_attr_ex) -> Answer {
        // SAFETY: `Owned`: the context is open. A null input requests all attributes.
        unsafe { sys::ibv_query_device_ex(self.lib(), self.as_ptr(), null(), attributes) }
    }

    pub(crate) fn query_port(&self, port: u8, attributes: &mut sys::ibv_port_attr) -> Answer {
        // SAFETY: `Owned`: the context is open.
        unsafe { sys::ibv_query_port(self.lib(), self.as_ptr(), port, attributes) }
    }

    /// Returns the number of filled entries, or a negative errno.
    pub(crate) fn query_gid_table(&self, entries: &mut [sys::ibv_gid_entry]) -> Result<isize, SymbolMissing> {
        // SAFETY: `Owned`: the context is open. The library gets the array with its length.
        unsafe { sys::ibv_query_gid_table(self.lib(), self.as_ptr(), entries.as_mut_ptr(), entries.len(), 0) }
    }

    pub(crate) fn query_pkey(&self, port: u8, index: c_int, pkey: &mut u16) -> Answer {
        // SAFETY: `Owned`: the context is open.
        unsafe { self.lib().ibv_query_pkey(self.as_ptr(), port, index, pkey) }
    }
}

impl Handle<sys::ibv_context> {
    /// Returns the descriptor that is readable while an event is pending.
    pub(crate) fn async_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: `Handle`: the context is open. The field does not change, and the descriptor is
        // closed with the context.
        unsafe { BorrowedFd::borrow_raw((*self.as_ptr()).async_fd) }
    }
}

/// Objects that depend on a context only. Functions return `None` with `errno` set on failure.
impl<T> Owned<T, Context> {
    /// Wraps a new object of a context.
    ///
    /// # Safety
    ///
    /// As for [`Owned::new`], with an object that was created on `context`.
    unsafe fn on(context: &Context, object: *mut T, end: (Kind, Destroy<T>)) -> Option<Self> {
        // SAFETY: the caller guarantees that the object is new, and a `Context` holds the C context
        // that it was created on.
        unsafe { Self::new(object, context.lib(), end, || context.clone()) }
    }
}

impl Owned<sys::ibv_pd, Context> {
    pub(crate) fn alloc_pd(context: &Context) -> Result<Option<Self>, SymbolMissing> {
        let end = (Kind::ProtectionDomain, Destroy::Exported(Ibverbs::ibv_dealloc_pd));
        // SAFETY: a `Context` is open, and the domain is created here, on it.
        unsafe { Ok(Self::on(context, context.lib().ibv_alloc_pd(context.as_raw())?, end)) }
    }
}

impl Owned<sys::ibv_comp_channel, Context> {
    pub(crate) fn create_comp_channel(context: &Context) -> Result<Option<Self>, SymbolMissing> {
        let end = (Kind::CompletionChannel, Destroy::Exported(Ibverbs::ibv_destroy_comp_channel));
        // SAFETY: a `Context` is open, and the channel is created here, on it.
        unsafe { Ok(Self::on(context, context.lib().ibv_create_comp_channel(context.as_raw())?, end)) }
    }
}

impl Owned<sys::ibv_dm, Context> {
    pub(crate) fn alloc_dm(context: &Context, attributes: &mut sys::ibv_alloc_dm_attr) -> Option<Self> {
        let end = (Kind::DeviceMemory, Destroy::Inline(sys::ibv_free_dm));
        // SAFETY: a `Context` is open, and the memory is allocated here, on it.
        unsafe { Self::on(context, sys::ibv_alloc_dm(context.as_raw(), attributes), end) }
    }
}

impl Owned<sys::ibv_xrcd, Context> {
    /// Opens an XRC domain, shared by `file` if it is given.
    pub(crate) fn open_xrcd(context: &Context, file: Option<BorrowedFd<'_>>) -> Option<Self> {
        let mut attributes = sys::ibv_xrcd_init_attr {
            comp_mask: sys::IBV_XRCD_INIT_ATTR_FD | sys::IBV_XRCD_INIT_ATTR_OFLAGS,
            fd: file.map_or(-1, |file| file.as_raw_fd()),
            oflags: libc::O_CREAT,
        };
        let end = (Kind::XrcDomain, Destroy::Inline(sys::ibv_close_xrcd));
        // SAFETY: a `Context` is open, and the domain is created here, on it. The kernel keeps the
        // file.
        unsafe { Self::on(context, sys::ibv_open_xrcd(context.as_raw(), &raw mut attributes), end) }
    }
}
