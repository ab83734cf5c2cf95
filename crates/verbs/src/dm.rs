//! On-chip memory: memory of the device itself, which peers reach without crossing the host's bus.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use farreach_verbs_sys as sys;

use crate::context::Context;
use crate::error::Error;
use crate::handle::Owned;
use crate::mr::{AccessFlags, MemoryRegion};
use crate::pd::ProtectionDomain;
use crate::wr::RemoteRange;

/// Memory on the device. This process accesses it by copies only, peers through a region.
///
/// It is cheap to clone. The memory is freed when the last clone, and every region of it, is gone.
///
/// ```no_run
/// # use farreach_verbs::device::DeviceList;
/// use farreach_verbs::mr::AccessFlags;
///
/// # let context = DeviceList::get()?.iter().next().unwrap().open()?;
/// # let pd = context.alloc_pd()?;
/// let dm = context.alloc_dm(4096, 6)?;
/// dm.copy_to(0, b"on the chip!")?;
/// let region = pd.reg_dm_mr(&dm, 0, 4096, AccessFlags::REMOTE_READ)?;
/// println!("a peer reads it by {}", region.rkey());
/// # Ok::<(), farreach_verbs::Error>(())
/// ```
#[doc(alias = "ibv_dm")]
#[doc(alias = "ibv_free_dm")]
#[derive(Clone)]
pub struct DeviceMemory(Arc<Inner>);

struct Inner {
    dm: Owned<sys::ibv_dm, Context>,
    len: usize,
}

impl Context {
    /// Allocates memory on the device: `ibv_alloc_dm(3)`. Its address on the device is a multiple
    /// of 2^`log_align`.
    ///
    /// Returns [`Error::Unsupported`] if the device has no such memory.
    #[doc(alias = "ibv_alloc_dm")]
    pub fn alloc_dm(&self, len: usize, log_align: u32) -> Result<DeviceMemory, Error> {
        let mut attr = sys::ibv_alloc_dm_attr { length: len, log_align_req: log_align, comp_mask: 0 };
        let dm = Owned::alloc_dm(self, &mut attr).ok_or_else(|| self.dm_error())?;
        Ok(DeviceMemory(Arc::new(Inner { dm, len })))
    }

    fn dm_error(&self) -> Error {
        match self.failed("ibv_alloc_dm") {
            Error::Call { operation, subject, errno }
                if matches!(errno.0, libc::EOPNOTSUPP | libc::ENOSYS) =>
            {
                Error::Unsupported { operation, subject, why: "the device offers no on-chip memory" }
            }
            other => other,
        }
    }
}

impl ProtectionDomain {
    /// Registers a part of a device's memory: `ibv_reg_dm_mr(3)`. In work requests, its addresses
    /// begin at 0.
    #[doc(alias = "ibv_reg_dm_mr")]
    pub fn reg_dm_mr(
        &self,
        dm: &DeviceMemory,
        offset: u64,
        len: usize,
        access: AccessFlags,
    ) -> Result<MemoryRegion, Error> {
        dm.check(offset, len)?;
        self.context().check_same(dm.context(), "on-chip memory")?;
        let access = access | AccessFlags::ZERO_BASED;
        // SAFETY: `check` has verified that the range is inside the memory, and `check_same` that
        // both objects belong to one context.
        let mr = unsafe { Owned::reg_dm_mr(self, dm, (offset, len), access.bits()) };
        let mr = mr.ok_or_else(|| self.context().failed("ibv_reg_dm_mr"))?;
        Ok(MemoryRegion::new(mr, access))
    }
}

impl ProtectionDomain {
    /// Gives peers access to a part of a device's memory, under a key of its own:
    /// `ibv_reg_dm_mr(3)`. `access` is the access of peers.
    #[doc(alias = "ibv_reg_dm_mr")]
    pub fn expose_dm(
        &self,
        dm: &DeviceMemory,
        offset: u64,
        len: usize,
        access: AccessFlags,
    ) -> Result<OnChipRegion, Error> {
        // Devices refuse remote writes to a region without local write access.
        let mr = self.reg_dm_mr(dm, offset, len, access | AccessFlags::LOCAL_WRITE)?;
        Ok(OnChipRegion { mr, dm: dm.clone(), len })
    }
}

/// On-chip memory that peers may access, with the key for it. It corresponds to
/// [`ExposedRegion`](crate::region::ExposedRegion) for host memory.
///
/// ```no_run
/// # use farreach_verbs::device::DeviceList;
/// use farreach_verbs::mr::AccessFlags;
///
/// # let context = DeviceList::get()?.iter().next().unwrap().open()?;
/// # let pd = context.alloc_pd()?;
/// let dm = context.alloc_dm(4096, 6)?;
/// let region = pd.expose_dm(&dm, 0, 4096, AccessFlags::REMOTE_READ | AccessFlags::REMOTE_ATOMIC)?;
/// let told_to_the_peer = region.remote();
/// assert_eq!(told_to_the_peer.address(), 0, "addresses are offsets from the first byte");
/// # Ok::<(), farreach_verbs::Error>(())
/// ```
#[derive(Debug)]
pub struct OnChipRegion {
    mr: MemoryRegion,
    dm: DeviceMemory,
    len: usize,
}

impl OnChipRegion {
    /// Returns the range and the key that a peer needs.
    pub fn remote(&self) -> RemoteRange {
        RemoteRange::new(0, self.len as u64, self.mr.rkey())
    }

    /// Returns the memory, to copy in and out of it. It may be larger than the region.
    pub fn memory(&self) -> &DeviceMemory {
        &self.dm
    }

    /// Returns the region.
    pub fn mr(&self) -> &MemoryRegion {
        &self.mr
    }
}

impl DeviceMemory {
    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Returns `true` if the length is zero.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the open device.
    pub fn context(&self) -> &Context {
        self.0.dm.parents()
    }

    /// Returns the C object. It is valid while `self` or a clone lives.
    pub fn as_raw(&self) -> *mut sys::ibv_dm {
        self.0.dm.as_ptr()
    }

    /// Returns an owner that keeps the memory alive.
    pub(crate) fn keep(&self) -> Arc<dyn Any + Send + Sync> {
        Arc::<Inner>::clone(&self.0)
    }

    /// Copies from the host to the device: `ibv_memcpy_to_dm(3)`. Some devices accept only
    /// multiples of four bytes.
    #[doc(alias = "ibv_memcpy_to_dm")]
    pub fn copy_to(&self, offset: u64, from: &[u8]) -> Result<(), Error> {
        self.check(offset, from.len())?;
        // SAFETY: the memory lives as long as `self`, and `check` has verified that `from` fits at
        // the offset.
        let errno = unsafe { sys::ibv_memcpy_to_dm(self.as_raw(), offset, from.as_ptr().cast(), from.len()) };
        self.copied("ibv_memcpy_to_dm", errno)
    }

    /// Copies from the device to the host: `ibv_memcpy_from_dm(3)`. Some devices accept only
    /// multiples of four bytes.
    #[doc(alias = "ibv_memcpy_from_dm")]
    pub fn copy_from(&self, offset: u64, to: &mut [u8]) -> Result<(), Error> {
        self.check(offset, to.len())?;
        // SAFETY: the memory lives as long as `self`, and `check` has verified that it has
        // `to.len()` bytes at the offset.
        let errno =
            unsafe { sys::ibv_memcpy_from_dm(to.as_mut_ptr().cast(), self.as_raw(), offset, to.len()) };
        self.copied("ibv_memcpy_from_dm", errno)
    }

    fn copied(&self, operation: &'static str, errno: i32) -> Result<(), Error> {
        match errno {
            0 => Ok(()),
            errno => Err(Error::call(operation, self.context().device().name(), errno)),
        }
    }

    fn check(&self, offset: u64, len: usize) -> Result<(), Error> {
        let end = usize::try_from(offset).ok().and_then(|offset| offset.checked_add(len));
        if end.is_some_and(|end| end <= self.len()) {
            return Ok(());
        }
        Err(Error::OutOfBounds { what: "on-chip memory", offset, len, size: self.len() })
    }
}

impl fmt::Debug for DeviceMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceMemory")
            .field("device", &self.context().device().name())
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}
