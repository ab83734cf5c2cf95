//! Open devices, and what is made on them alone.

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
    /// None where the device does not open, and `errno` says why.
    pub(crate) fn open_device(device: &Device) -> Result<Option<Self>, SymbolMissing> {
        let lib = device.lib();
        // SAFETY: a `Device` is listed, by this library, as long as somebody holds it, and the context is made here, on it.
        unsafe {
            let context = lib.ibv_open_device(device.as_ptr())?;
            let end = (Kind::Context, Destroy::Exported(Ibverbs::ibv_close_device));
            Ok(Self::new(context, lib, end, || device.clone()))
        }
    }

    pub(crate) fn query_device(&self, attributes: &mut sys::ibv_device_attr_ex) -> Answer {
        // SAFETY: `Owned`: the context is open. Without an input, all is asked for.
        unsafe { sys::ibv_query_device_ex(self.lib(), self.as_ptr(), null(), attributes) }
    }

    pub(crate) fn query_port(&self, port: u8, attributes: &mut sys::ibv_port_attr) -> Answer {
        // SAFETY: `Owned`: the context is open.
        unsafe { sys::ibv_query_port(self.lib(), self.as_ptr(), port, attributes) }
    }

    /// How many of the entries were filled, or minus an errno.
    pub(crate) fn query_gid_table(&self, entries: &mut [sys::ibv_gid_entry]) -> Result<isize, SymbolMissing> {
        // SAFETY: `Owned`: the context is open. The library is told how many entries there are.
        unsafe { sys::ibv_query_gid_table(self.lib(), self.as_ptr(), entries.as_mut_ptr(), entries.len(), 0) }
    }

    pub(crate) fn query_pkey(&self, port: u8, index: c_int, pkey: &mut u16) -> Answer {
        // SAFETY: `Owned`: the context is open.
        unsafe { self.lib().ibv_query_pkey(self.as_ptr(), port, index, pkey) }
    }
}

impl Handle<sys::ibv_context> {
    /// The descriptor that is readable where there is an event.
    pub(crate) fn async_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: `Handle`: the context is open. The field does not change, and the descriptor is closed with the context.
        unsafe { BorrowedFd::borrow_raw((*self.as_ptr()).async_fd) }
    }
}

/// What is made on a context, and on nothing else. None where it is not made, and `errno` says why.
impl<T> Owned<T, Context> {
    /// # Safety
    ///
    /// As for [`Owned::new`], where the object was made on `context`.
    unsafe fn on(context: &Context, object: *mut T, end: (Kind, Destroy<T>)) -> Option<Self> {
        // SAFETY: the caller vouches for the object, and a `Context` holds the C context that it was made on.
        unsafe { Self::new(object, context.lib(), end, || context.clone()) }
    }
}

impl Owned<sys::ibv_pd, Context> {
    pub(crate) fn alloc_pd(context: &Context) -> Result<Option<Self>, SymbolMissing> {
        let end = (Kind::ProtectionDomain, Destroy::Exported(Ibverbs::ibv_dealloc_pd));
        // SAFETY: a `Context` is open, and the domain is made here, on it.
        unsafe { Ok(Self::on(context, context.lib().ibv_alloc_pd(context.as_raw())?, end)) }
    }
}

impl Owned<sys::ibv_comp_channel, Context> {
    pub(crate) fn create_comp_channel(context: &Context) -> Result<Option<Self>, SymbolMissing> {
        let end = (Kind::CompletionChannel, Destroy::Exported(Ibverbs::ibv_destroy_comp_channel));
        // SAFETY: a `Context` is open, and the channel is made here, on it.
        unsafe { Ok(Self::on(context, context.lib().ibv_create_comp_channel(context.as_raw())?, end)) }
    }
}

impl Owned<sys::ibv_dm, Context> {
    pub(crate) fn alloc_dm(context: &Context, attributes: &mut sys::ibv_alloc_dm_attr) -> Option<Self> {
        let end = (Kind::DeviceMemory, Destroy::Inline(sys::ibv_free_dm));
        // SAFETY: a `Context` is open, and the memory is made here, on it.
        unsafe { Self::on(context, sys::ibv_alloc_dm(context.as_raw(), attributes), end) }
    }
}

impl Owned<sys::ibv_xrcd, Context> {
    /// `file` is that of the domain, or none.
    pub(crate) fn open_xrcd(context: &Context, file: Option<BorrowedFd<'_>>) -> Option<Self> {
        let mut attributes = sys::ibv_xrcd_init_attr {
            comp_mask: sys::IBV_XRCD_INIT_ATTR_FD | sys::IBV_XRCD_INIT_ATTR_OFLAGS,
            fd: file.map_or(-1, |file| file.as_raw_fd()),
            oflags: libc::O_CREAT,
        };
        let end = (Kind::XrcDomain, Destroy::Inline(sys::ibv_close_xrcd));
        // SAFETY: a `Context` is open, and the domain is made here, on it. The kernel keeps the file.
        unsafe { Self::on(context, sys::ibv_open_xrcd(context.as_raw(), &raw mut attributes), end) }
    }
}
