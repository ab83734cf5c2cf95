//! What is made in a protection domain.

use std::any::Any;
use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;

use farreach_verbs_sys as sys;
use farreach_verbs_sys::{Ibverbs, SymbolMissing};

use super::{Destroy, Owned};
use crate::ah::GRH_BYTES;
use crate::dm::DeviceMemory;
use crate::leak::Kind;
use crate::pd::ProtectionDomain;

/// What a region stands on: its domain, and what keeps its memory.
pub(crate) type RegionParents = (ProtectionDomain, Option<Arc<dyn Any + Send + Sync>>);

const END_REGION: (Kind, Destroy<sys::ibv_mr>) =
    (Kind::MemoryRegion, Destroy::Exported(Ibverbs::ibv_dereg_mr));

/// What makes a region; none where it is not made, and `errno` says why.
impl Owned<sys::ibv_mr, RegionParents> {
    /// # Safety
    ///
    /// The memory is mapped until the region is deregistered, which may be never: holding `memory` keeps it so, or the caller does. The
    /// device writes to it where `access` and the work requests say so; meanwhile nobody holds a reference into it.
    pub(crate) unsafe fn reg_mr(
        pd: &ProtectionDomain,
        (address, len): (*mut c_void, usize),
        access: u32,
        memory: Option<Arc<dyn Any + Send + Sync>>,
    ) -> Result<Option<Self>, SymbolMissing> {
        let lib = pd.context().lib();
        // SAFETY: a `ProtectionDomain` lives, and the region is made here, in it. For the memory the caller vouches.
        unsafe {
            let mr = sys::ibv_reg_mr(lib, pd.as_raw(), address, len, access)?;
            Ok(Self::new(mr, lib, END_REGION, || (pd.clone(), memory)))
        }
    }

    /// # Safety
    ///
    /// Nobody holds a reference into the shared memory while the device may write to it.
    pub(crate) unsafe fn reg_dmabuf_mr(
        pd: &ProtectionDomain,
        fd: BorrowedFd<'_>,
        (offset, len): (u64, usize),
        iova: u64,
        access: u32,
    ) -> Result<Option<Self>, SymbolMissing> {
        let (lib, fd, access) = (pd.context().lib(), fd.as_raw_fd(), access as c_int);
        // SAFETY: a `ProtectionDomain` lives, and the region is made here, in it. The kernel keeps the memory of the open descriptor; for
        // references into it the caller vouches.
        unsafe {
            let mr = lib.ibv_reg_dmabuf_mr(pd.as_raw(), offset, len, iova, fd, access)?;
            Ok(Self::new(mr, lib, END_REGION, || (pd.clone(), None)))
        }
    }

    /// # Safety
    ///
    /// The range is inside of the memory, which is of the domain's context.
    pub(crate) unsafe fn reg_dm_mr(
        pd: &ProtectionDomain,
        dm: &DeviceMemory,
        (offset, len): (u64, usize),
        access: u32,
    ) -> Option<Self> {
        // SAFETY: a `ProtectionDomain` and a `DeviceMemory` live, and the region is made here, of both, which it holds. For context and
        // range the caller vouches.
        unsafe {
            let mr = sys::ibv_reg_dm_mr(pd.as_raw(), dm.as_raw(), offset, len, access);
            Self::new(mr, pd.context().lib(), END_REGION, || (pd.clone(), Some(dm.keep())))
        }
    }
}

impl Owned<sys::ibv_mw, ProtectionDomain> {
    /// None where it is not made, and `errno` says why.
    pub(crate) fn alloc_mw(pd: &ProtectionDomain, kind: sys::ibv_mw_type) -> Option<Self> {
        let end = (Kind::MemoryWindow, Destroy::Inline(sys::ibv_dealloc_mw));
        // SAFETY: a `ProtectionDomain` lives, and the window is made here, in it.
        unsafe {
            let mw = sys::ibv_alloc_mw(pd.as_raw(), kind);
            Self::new(mw, pd.context().lib(), end, || pd.clone())
        }
    }

    /// The key of the last binding. Who binds the window has it exclusively.
    pub(crate) fn rkey(&mut self) -> u32 {
        // SAFETY: `Owned`: the window lives. Binding alone writes the field, and needs the window exclusively, as this does.
        unsafe { (*self.as_ptr()).rkey }
    }

    /// Tells the library the key of the last binding.
    pub(crate) fn set_rkey(&mut self, rkey: u32) {
        // SAFETY: `Owned`: the window lives, and it is had exclusively. The library copies the number into a request and no more.
        unsafe { (*self.as_ptr()).rkey = rkey };
    }
}

const END_ADDRESS: (Kind, Destroy<sys::ibv_ah>) =
    (Kind::AddressHandle, Destroy::Exported(Ibverbs::ibv_destroy_ah));

/// What makes an address handle; none where it is not made, and `errno` says why.
impl Owned<sys::ibv_ah, ProtectionDomain> {
    pub(crate) fn create_ah(
        pd: &ProtectionDomain,
        attributes: &mut sys::ibv_ah_attr,
    ) -> Result<Option<Self>, SymbolMissing> {
        let lib = pd.context().lib();
        // SAFETY: a `ProtectionDomain` lives, and the address handle is made here, in it.
        unsafe {
            let ah = lib.ibv_create_ah(pd.as_raw(), attributes)?;
            Ok(Self::new(ah, lib, END_ADDRESS, || pd.clone()))
        }
    }

    pub(crate) fn create_ah_from_wc(
        pd: &ProtectionDomain,
        mut completion: sys::ibv_wc,
        header: &[u8; GRH_BYTES],
        port: u8,
    ) -> Result<Option<Self>, SymbolMissing> {
        const { assert!(size_of::<sys::ibv_grh>() == GRH_BYTES) };
        let lib = pd.context().lib();
        // SAFETY: a `ProtectionDomain` lives, and the address handle is made here, in it. The header has as many bytes as the structure,
        // for which any bytes are valid.
        unsafe {
            let mut grh = header.as_ptr().cast::<sys::ibv_grh>().read_unaligned();
            let ah = lib.ibv_create_ah_from_wc(pd.as_raw(), &raw mut completion, &raw mut grh, port)?;
            Ok(Self::new(ah, lib, END_ADDRESS, || pd.clone()))
        }
    }
}
