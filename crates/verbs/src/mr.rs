//! Memory regions: memory that a device may access, and the keys that name it.

use std::any::Any;
use std::ffi::c_void;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use farreach_verbs_sys as sys;

use crate::error::Error;
use crate::handle::{Owned, RegionParents};
use crate::locked_memory::LockedMemory;
use crate::pd::ProtectionDomain;

/// A registered memory region.
///
/// It is deregistered on drop. If the kernel refuses that, the region, its protection domain and
/// the memory given to [`reg_mr_keeping`](ProtectionDomain::reg_mr_keeping) stay for good, and
/// [`leaked`](crate::leak::leaked) counts the region.
///
/// ```no_run
/// # use farreach_verbs::device::DeviceList;
/// use farreach_verbs::mr::AccessFlags;
///
/// # let pd = DeviceList::get()?.iter().next().unwrap().open()?.alloc_pd()?;
/// let page: &'static mut [u8] = vec![0; 4096].leak();
/// // SAFETY: the memory is never freed, and the slice is not used while the region lives.
/// let mr =
///     unsafe { pd.reg_mr_raw(page.as_mut_ptr().cast(), page.len(), AccessFlags::LOCAL_WRITE) }?;
/// println!("{} bytes at {:#x} by {}", mr.len(), mr.address(), mr.lkey());
/// # Ok::<(), farreach_verbs::Error>(())
/// ```
#[doc(alias = "ibv_mr")]
pub struct MemoryRegion {
    /// Holds the protection domain, and the owner of the registered memory if there is one.
    mr: Owned<sys::ibv_mr, RegionParents>,
    access: AccessFlags,
}

impl ProtectionDomain {
    /// Registers memory: `ibv_reg_mr(3)`.
    ///
    /// # Safety
    ///
    /// The memory stays mapped until the region is deregistered, which may be never (see
    /// [`MemoryRegion`]). The device writes to it as `access` and the work requests permit;
    /// meanwhile no reference into it exists.
    #[doc(alias = "ibv_reg_mr")]
    pub unsafe fn reg_mr_raw(
        &self,
        addr: *mut c_void,
        len: usize,
        access: AccessFlags,
    ) -> Result<MemoryRegion, Error> {
        // SAFETY: the caller guarantees that the memory stays mapped and that no reference into it
        // exists.
        unsafe { self.reg_mr(addr, len, access, None) }
    }

    /// Like [`reg_mr_raw`](Self::reg_mr_raw), but holds `memory` until the region is deregistered;
    /// for good, if the kernel refuses that.
    ///
    /// # Safety
    ///
    /// As for [`reg_mr_raw`](Self::reg_mr_raw), except that `memory` keeps the memory mapped.
    pub unsafe fn reg_mr_keeping(
        &self,
        memory: Arc<dyn Any + Send + Sync>,
        addr: *mut c_void,
        len: usize,
        access: AccessFlags,
    ) -> Result<MemoryRegion, Error> {
        // SAFETY: the caller guarantees that `memory`, which the region holds, keeps the memory
        // mapped, and that no reference into it exists.
        unsafe { self.reg_mr(addr, len, access, Some(memory)) }
    }

    /// Registers memory whose pages need not be present and are not pinned: `ibv_reg_mr(3)` with
    /// on-demand paging.
    ///
    /// Returns [`Error::Unsupported`] if the device has no on-demand paging. It never falls back to
    /// pinned memory.
    ///
    /// # Safety
    ///
    /// As for [`reg_mr_raw`](Self::reg_mr_raw).
    #[doc(alias = "IBV_ACCESS_ON_DEMAND")]
    pub unsafe fn reg_on_demand(
        &self,
        addr: *mut c_void,
        len: usize,
        access: AccessFlags,
    ) -> Result<MemoryRegion, Error> {
        if !self.context().query_device()?.on_demand.supported {
            return Err(Error::Unsupported {
                operation: "ibv_reg_mr with on-demand paging",
                subject: self.context().device().name().to_owned(),
                why: "the device reports no on-demand paging",
            });
        }
        // SAFETY: the caller guarantees that the memory stays mapped and that no reference into it
        // exists.
        unsafe { self.reg_mr(addr, len, access | AccessFlags::ON_DEMAND, None) }
    }

    /// Registers memory that another device, such as a GPU, shares by a descriptor:
    /// `ibv_reg_dmabuf_mr(3)`. Work requests and peers name its first byte by `iova`, which must
    /// have the same offset within its page as `offset`.
    ///
    /// # Safety
    ///
    /// If the shared memory is also mapped into a process, no reference into it exists while the
    /// device may write to it. (The kernel keeps the memory alive.)
    #[doc(alias = "ibv_reg_dmabuf_mr")]
    pub unsafe fn reg_dmabuf(
        &self,
        fd: BorrowedFd<'_>,
        offset: u64,
        len: usize,
        iova: u64,
        access: AccessFlags,
    ) -> Result<MemoryRegion, Error> {
        // SAFETY: the caller guarantees that no reference into the memory exists.
        let mr = unsafe { Owned::reg_dmabuf_mr(self, fd, (offset, len), iova, access.bits()) }?;
        let mr = mr.ok_or_else(|| self.context().failed("ibv_reg_dmabuf_mr"))?;
        Ok(MemoryRegion::new(mr, access))
    }

    /// Registers memory, and holds its owner if there is one.
    ///
    /// # Safety
    ///
    /// As for [`reg_mr_raw`](Self::reg_mr_raw), except that the region holds `memory` until it is
    /// deregistered.
    unsafe fn reg_mr(
        &self,
        addr: *mut c_void,
        len: usize,
        access: AccessFlags,
        memory: Option<Arc<dyn Any + Send + Sync>>,
    ) -> Result<MemoryRegion, Error> {
        // Dropping memory may be a system call that changes `errno`. This clone delays the drop
        // until `registration_error` has read `errno`.
        let _until_errno_is_read = memory.clone();
        // SAFETY: the caller guarantees that the memory stays mapped, by `memory` if it is given,
        // and that no reference into it exists.
        let mr = unsafe { Owned::reg_mr(self, (addr, len), access.bits(), memory) }?;
        let mr = mr.ok_or_else(|| self.registration_error(len))?;
        Ok(MemoryRegion::new(mr, access))
    }

    fn registration_error(&self, len: usize) -> Error {
        match self.context().failed("ibv_reg_mr") {
            Error::Call { subject, errno, .. } if errno.0 == libc::ENOMEM => {
                Error::LockedMemory(Box::new(LockedMemory::of_this_process(subject, len)))
            }
            other => other,
        }
    }
}

impl MemoryRegion {
    pub(crate) fn new(mr: Owned<sys::ibv_mr, RegionParents>, access: AccessFlags) -> Self {
        Self { mr, access }
    }

    /// Returns the key by which local work requests name the region.
    pub fn lkey(&self) -> LocalKey {
        LocalKey(self.mr.lkey())
    }

    /// Returns the key by which peers name the region.
    pub fn rkey(&self) -> RemoteKey {
        RemoteKey(self.mr.rkey())
    }

    /// Returns the address of the region in this process. 0 for memory that is not mapped into this
    /// process.
    pub fn address(&self) -> u64 {
        self.mr.addr().addr() as u64
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.mr.length()
    }

    /// Returns `true` if the length is zero.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the access that it was registered with.
    pub fn access(&self) -> AccessFlags {
        self.access
    }

    /// Returns the protection domain.
    pub fn pd(&self) -> &ProtectionDomain {
        &self.mr.parents().0
    }

    /// Returns the C object. It is valid while `self` lives.
    pub fn as_raw(&self) -> *mut sys::ibv_mr {
        self.mr.as_ptr()
    }

    /// Deregisters the region: `ibv_dereg_mr(3)`. After success its keys are invalid, and the
    /// device no longer accesses the memory.
    ///
    /// On failure the region stays for good, as on drop, and its memory with it.
    #[doc(alias = "ibv_dereg_mr")]
    pub fn dereg(self) -> Result<(), Error> {
        let context = self.pd().context().clone();
        self.mr.destroy().map_err(|errno| Error::call("ibv_dereg_mr", context.device().name(), errno))
    }
}

impl fmt::Debug for MemoryRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryRegion")
            .field("device", &self.pd().context().device().name())
            .field("address", &format_args!("{:#x}", self.address()))
            .field("len", &self.len())
            .field("access", &self.access)
            .finish_non_exhaustive()
    }
}

/// The key by which local work requests name a region.
///
/// ```
/// use farreach_verbs::mr::LocalKey;
///
/// assert_eq!(LocalKey(0x1a2b).to_string(), "0x1a2b");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LocalKey(pub u32);

impl fmt::Display for LocalKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// The key by which a peer names a region or a window.
///
/// ```
/// use farreach_verbs::mr::RemoteKey;
///
/// assert_eq!(RemoteKey(0x12ff).inc(), RemoteKey(0x1200), "only the last eight bits change");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RemoteKey(pub u32);

impl RemoteKey {
    /// Returns the next key of the same window: `ibv_inc_rkey(3)`.
    #[doc(alias = "ibv_inc_rkey")]
    #[must_use]
    pub const fn inc(self) -> Self {
        Self(sys::ibv_inc_rkey(self.0))
    }
}

impl fmt::Display for RemoteKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

bitflags::bitflags! {
    /// The access that a region, a window or a queue pair permits. Local work requests may always
    /// read.
    ///
    /// ```
    /// use farreach_verbs::mr::AccessFlags;
    ///
    /// let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_READ;
    /// assert!(!access.contains(AccessFlags::REMOTE_WRITE));
    /// ```
    #[doc(alias = "ibv_access_flags")]
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct AccessFlags: u32 {
        /// Local work requests may write: RECV, RDMA READ, the old value of an atomic.
        const LOCAL_WRITE = sys::IBV_ACCESS_LOCAL_WRITE;
        /// Peers may write. A region with this flag needs `LOCAL_WRITE` too.
        const REMOTE_WRITE = sys::IBV_ACCESS_REMOTE_WRITE;
        /// Peers may read.
        const REMOTE_READ = sys::IBV_ACCESS_REMOTE_READ;
        /// Peers may use atomics. A region with this flag needs `LOCAL_WRITE` too.
        const REMOTE_ATOMIC = sys::IBV_ACCESS_REMOTE_ATOMIC;
        /// Windows may be bound to the region.
        const MW_BIND = sys::IBV_ACCESS_MW_BIND;
        /// Addresses are offsets from the region's first byte.
        const ZERO_BASED = sys::IBV_ACCESS_ZERO_BASED;
        /// On-demand paging. See [`ProtectionDomain::reg_on_demand`].
        const ON_DEMAND = sys::IBV_ACCESS_ON_DEMAND;
        /// The memory consists of huge pages, with on-demand paging.
        const HUGETLB = sys::IBV_ACCESS_HUGETLB;
        /// Peers may FLUSH to global visibility.
        const FLUSH_GLOBAL = sys::IBV_ACCESS_FLUSH_GLOBAL;
        /// Peers may FLUSH to persistence across power failures.
        const FLUSH_PERSISTENT = sys::IBV_ACCESS_FLUSH_PERSISTENT;
        /// The bus may reorder the device's writes, which is much faster on hardware. A completion
        /// still means that the writes are visible. The flag is ignored by kernels that do not know
        /// it.
        const RELAXED_ORDERING = sys::IBV_ACCESS_RELAXED_ORDERING;
    }
}

impl AccessFlags {
    /// Returns the flags that apply to a queue pair: the access of its peer.
    #[must_use]
    pub fn of_peer(self) -> Self {
        self & (Self::REMOTE_WRITE
            | Self::REMOTE_READ
            | Self::REMOTE_ATOMIC
            | Self::FLUSH_GLOBAL
            | Self::FLUSH_PERSISTENT)
    }
}
