//! Memory regions: memory that a device may reach, and the keys that name it.

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

/// Registered memory.
///
/// It is deregistered when dropped. Where the kernel refuses that, the region, its protection domain and whatever was given to
/// [`reg_mr_keeping`](ProtectionDomain::reg_mr_keeping) stay for good, and [`leaked`](crate::leak::leaked) counts it.
///
/// ```no_run
/// # use farreach_verbs::device::DeviceList;
/// use farreach_verbs::mr::AccessFlags;
///
/// # let pd = DeviceList::get()?.iter().next().unwrap().open()?.alloc_pd()?;
/// let page: &'static mut [u8] = vec![0; 4096].leak();
/// // SAFETY: the memory is never freed, and nobody uses the slice while the region lives.
/// let mr = unsafe { pd.reg_mr_raw(page.as_mut_ptr().cast(), page.len(), AccessFlags::LOCAL_WRITE) }?;
/// println!("{} bytes at {:#x} by {}", mr.len(), mr.address(), mr.lkey());
/// # Ok::<(), farreach_verbs::Error>(())
/// ```
#[doc(alias = "ibv_mr")]
pub struct MemoryRegion {
    /// It holds its domain, and what the registered memory is a part of.
    mr: Owned<sys::ibv_mr, RegionParents>,
    access: AccessFlags,
}

impl ProtectionDomain {
    /// Registers memory: `ibv_reg_mr(3)`.
    ///
    /// # Safety
    ///
    /// The memory is mapped until the region is deregistered, which may be never: see [`MemoryRegion`]. The device writes to it
    /// where `access` and the work requests say so; meanwhile nobody holds a reference into it.
    #[doc(alias = "ibv_reg_mr")]
    pub unsafe fn reg_mr_raw(
        &self,
        addr: *mut c_void,
        len: usize,
        access: AccessFlags,
    ) -> Result<MemoryRegion, Error> {
        // SAFETY: the caller vouches for the memory.
        unsafe { self.reg_mr(addr, len, access, None) }
    }

    /// As [`reg_mr_raw`](Self::reg_mr_raw), and lets go of `memory` only when the region is deregistered: never, where the kernel
    /// refuses that.
    ///
    /// # Safety
    ///
    /// As for [`reg_mr_raw`](Self::reg_mr_raw), where holding `memory` keeps the memory mapped.
    pub unsafe fn reg_mr_keeping(
        &self,
        memory: Arc<dyn Any + Send + Sync>,
        addr: *mut c_void,
        len: usize,
        access: AccessFlags,
    ) -> Result<MemoryRegion, Error> {
        // SAFETY: the caller vouches for the memory, which the region keeps by `memory`.
        unsafe { self.reg_mr(addr, len, access, Some(memory)) }
    }

    /// Registers memory whose pages need not be there yet, and are not pinned: `ibv_reg_mr(3)` with on-demand paging.
    ///
    /// [`Error::Unsupported`] where the device has none: it is not replaced by pinned memory behind the caller's back.
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
        // SAFETY: the caller vouches for the memory.
        unsafe { self.reg_mr(addr, len, access | AccessFlags::ON_DEMAND, None) }
    }

    /// Registers memory of another device, such as a GPU, that shares it by a descriptor: `ibv_reg_dmabuf_mr(3)`. Work requests and
    /// peers name its first byte by `iova`, whose offset in its page is that of `offset`.
    ///
    /// # Safety
    ///
    /// Where the shared memory is also mapped into a process, nobody holds a reference into it while the device may write
    /// to it. (Its lifetime is the kernel's business.)
    #[doc(alias = "ibv_reg_dmabuf_mr")]
    pub unsafe fn reg_dmabuf(
        &self,
        fd: BorrowedFd<'_>,
        offset: u64,
        len: usize,
        iova: u64,
        access: AccessFlags,
    ) -> Result<MemoryRegion, Error> {
        // SAFETY: the caller vouches that nobody holds a reference into the memory.
        let mr = unsafe { Owned::reg_dmabuf_mr(self, fd, (offset, len), iova, access.bits()) }?;
        let mr = mr.ok_or_else(|| self.context().failed("ibv_reg_dmabuf_mr"))?;
        Ok(MemoryRegion::new(mr, access))
    }

    /// # Safety
    ///
    /// As for [`reg_mr_raw`](Self::reg_mr_raw), where the region holds `memory` until it is deregistered.
    unsafe fn reg_mr(
        &self,
        addr: *mut c_void,
        len: usize,
        access: AccessFlags,
        memory: Option<Arc<dyn Any + Send + Sync>>,
    ) -> Result<MemoryRegion, Error> {
        // To let go of memory is a system call that may change `errno`: where the library fails, that is read first.
        let _until_errno_is_read = memory.clone();
        // SAFETY: the caller vouches for the memory, which the region keeps by `memory` if that is given.
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

    /// The key by which own work requests name it.
    pub fn lkey(&self) -> LocalKey {
        LocalKey(self.mr.lkey())
    }

    /// The key by which a peer names it.
    pub fn rkey(&self) -> RemoteKey {
        RemoteKey(self.mr.rkey())
    }

    /// Where it begins in this process; 0 for memory that is not of this process.
    pub fn address(&self) -> u64 {
        self.mr.addr().addr() as u64
    }

    /// How many bytes.
    pub fn len(&self) -> usize {
        self.mr.length()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What it was registered for.
    pub fn access(&self) -> AccessFlags {
        self.access
    }

    /// The protection domain that it is in.
    pub fn pd(&self) -> &ProtectionDomain {
        &self.mr.parents().0
    }

    /// The C object. It lives as long as this does.
    pub fn as_raw(&self) -> *mut sys::ibv_mr {
        self.mr.as_ptr()
    }

    /// Deregisters it: `ibv_dereg_mr(3)`. After success its keys are dead, and the device does not touch the memory any more.
    ///
    /// On failure the region stays for good, as when it is dropped, and the memory with it.
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

/// The key by which own work requests name a region.
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
/// assert_eq!(RemoteKey(0x12ff).inc(), RemoteKey(0x1200), "the last eight bits are the window's own");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RemoteKey(pub u32);

impl RemoteKey {
    /// The next key of the same window: `ibv_inc_rkey(3)`.
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
    /// What a region, a window or a queue pair lets happen. Reading by own work requests is always allowed.
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
        /// Own work requests write: RECV, RDMA READ, the old value of an atomic.
        const LOCAL_WRITE = sys::IBV_ACCESS_LOCAL_WRITE;
        /// A peer writes; a region that allows it allows `LOCAL_WRITE` too.
        const REMOTE_WRITE = sys::IBV_ACCESS_REMOTE_WRITE;
        /// A peer reads.
        const REMOTE_READ = sys::IBV_ACCESS_REMOTE_READ;
        /// A peer's atomics; a region that allows them allows `LOCAL_WRITE` too.
        const REMOTE_ATOMIC = sys::IBV_ACCESS_REMOTE_ATOMIC;
        /// Windows can be bound to the region.
        const MW_BIND = sys::IBV_ACCESS_MW_BIND;
        /// Addresses count from the region's first byte.
        const ZERO_BASED = sys::IBV_ACCESS_ZERO_BASED;
        /// On-demand paging: see [`ProtectionDomain::reg_on_demand`].
        const ON_DEMAND = sys::IBV_ACCESS_ON_DEMAND;
        /// The memory is of huge pages, with on-demand paging.
        const HUGETLB = sys::IBV_ACCESS_HUGETLB;
        /// A peer's FLUSH to where all can see the bytes.
        const FLUSH_GLOBAL = sys::IBV_ACCESS_FLUSH_GLOBAL;
        /// A peer's FLUSH to where the bytes survive a power failure.
        const FLUSH_PERSISTENT = sys::IBV_ACCESS_FLUSH_PERSISTENT;
        /// The bus may reorder the device's writes, and real cards are much faster for it. A completion still means that they
        /// have landed. Left out silently where the kernel does not know it.
        const RELAXED_ORDERING = sys::IBV_ACCESS_RELAXED_ORDERING;
    }
}

impl AccessFlags {
    /// The part that a queue pair has a say in: what its peer may do.
    #[must_use]
    pub fn of_peer(self) -> Self {
        self & (Self::REMOTE_WRITE
            | Self::REMOTE_READ
            | Self::REMOTE_ATOMIC
            | Self::FLUSH_GLOBAL
            | Self::FLUSH_PERSISTENT)
    }
}
