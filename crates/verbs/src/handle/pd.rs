//! Objects of a protection domain.

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

/// The objects that a region depends on: its protection domain, and the owner of its memory.
pub(crate) type RegionParents = (ProtectionDomain, Option<Arc<dyn Any + Send + Sync>>);

const END_REGION: (Kind, Destroy<sys::ibv_mr>) =
    (Kind::MemoryRegion, Destroy::Exported(Ibverbs::ibv_dereg_mr));

/// Registration of regions. Functions return `None` with `errno` set on failure.
impl Owned<sys::ibv_mr, RegionParents> {
    /// Registers memory of this process.
    ///
    /// # Safety
    ///
    /// The memory stays mapped until the region is deregistered, which may be never: `memory` keeps
    /// it mapped, or the caller does. The device writes to it as `access` and the work requests
    /// permit; meanwhile no reference into it exists.
    pub(crate) unsafe fn reg_mr(
        pd: &ProtectionDomain,
        (address, len): (*mut c_void, usize),
        access: u32,
        memory: Option<Arc<dyn Any + Send + Sync>>,
    ) -> Result<Option<Self>, SymbolMissing> {
        let lib = pd.context().lib();
        // SAFETY: a `ProtectionDomain` lives, and the region is created here, in it. The caller
        // guarantees that the memory is valid.
        unsafe {
            let mr = sys::ibv_reg_mr(lib, pd.as_raw(), address, len, access)?;
            Ok(Self::new(mr, lib, END_REGION, || (pd.clone(), memory)))
        }
    }

    /// Registers memory that another device shares by a descriptor.
    ///
    /// # Safety
    ///
    /// No reference into the shared memory exists while the device may write to it.
    pub(crate) unsafe fn reg_dmabuf_mr(
        pd: &ProtectionDomain,
        fd: BorrowedFd<'_>,
        (offset, len): (u64, usize),
        iova: u64,
        access: u32,
    ) -> Result<Option<Self>, SymbolMissing> {
        let (lib, fd, access) = (pd.context().lib(), fd.as_raw_fd(), access as c_int);
        // SAFETY: a `ProtectionDomain` lives, and the region is created here, in it. The kernel
        // keeps the memory of the open descriptor. The caller guarantees that no reference into it
        // exists.
        unsafe {
            let mr = lib.ibv_reg_dmabuf_mr(pd.as_raw(), offset, len, iova, fd, access)?;
            Ok(Self::new(mr, lib, END_REGION, || (pd.clone(), None)))
        }
    }

    /// Registers a part of a device's memory.
    ///
    /// # Safety
    ///
    /// The range is inside the memory, which belongs to the domain's context.
    pub(crate) unsafe fn reg_dm_mr(
        pd: &ProtectionDomain,
        dm: &DeviceMemory,
        (offset, len): (u64, usize),
        access: u32,
    ) -> Option<Self> {
        // SAFETY: a `ProtectionDomain` and a `DeviceMemory` live, and the region is created here,
        // of both, which it holds. The caller guarantees context and range.
        unsafe {
            let mr = sys::ibv_reg_dm_mr(pd.as_raw(), dm.as_raw(), offset, len, access);
            Self::new(mr, pd.context().lib(), END_REGION, || (pd.clone(), Some(dm.keep())))
        }
    }
}

impl Owned<sys::ibv_mw, ProtectionDomain> {
    /// Allocates a window. Returns `None` with `errno` set on failure.
    pub(crate) fn alloc_mw(pd: &ProtectionDomain, kind: sys::ibv_mw_type) -> Option<Self> {
        let end = (Kind::MemoryWindow, Destroy::Inline(sys::ibv_dealloc_mw));
        // SAFETY: a `ProtectionDomain` lives, and the window is allocated here, in it.
        unsafe {
            let mw = sys::ibv_alloc_mw(pd.as_raw(), kind);
            Self::new(mw, pd.context().lib(), end, || pd.clone())
        }
    }

    /// Returns the key of the last binding. `&mut` excludes a concurrent binding.
    pub(crate) fn rkey(&mut self) -> u32 {
        // SAFETY: `Owned`: the window lives. Only binding writes the field, and needs the window
        // exclusively, as this does.
        unsafe { (*self.as_ptr()).rkey }
    }

    /// Sets the key of the last binding in the C object.
    pub(crate) fn set_rkey(&mut self, rkey: u32) {
        // SAFETY: `Owned`: the window lives, and it is borrowed exclusively. The library only
        // copies the number into a work request.
        unsafe { (*self.as_ptr()).rkey = rkey };
    }
}

const END_ADDRESS: (Kind, Destroy<sys::ibv_ah>) =
    (Kind::AddressHandle, Destroy::Exported(Ibverbs::ibv_destroy_ah));

/// Creation of address handles. Functions return `None` with `errno` set on failure.
impl Owned<sys::ibv_ah, ProtectionDomain> {
    pub(crate) fn create_ah(
        pd: &ProtectionDomain,
        attributes: &mut sys::ibv_ah_attr,
    ) -> Result<Option<Self>, SymbolMissing> {
        let lib = pd.context().lib();
        // SAFETY: a `ProtectionDomain` lives, and the address handle is created here, in it.
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
        // SAFETY: a `ProtectionDomain` lives, and the address handle is created here, in it. The
        // header has the size of the structure, for which any bytes are valid.
        unsafe {
            let mut grh = header.as_ptr().cast::<sys::ibv_grh>().read_unaligned();
            let ah = lib.ibv_create_ah_from_wc(pd.as_raw(), &raw mut completion, &raw mut grh, port)?;
            Ok(Self::new(ah, lib, END_ADDRESS, || pd.clone()))
        }
    }
}
