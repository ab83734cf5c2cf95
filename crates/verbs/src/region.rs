//! Memory and domains: what requests may name, and what a peer may touch.

use std::fmt;
use std::sync::Arc;

use farreach_memory::{
    AllocateError, AttachReason, Exposed, Memory, MemoryOptions, Registration, Release, Slice,
};

use crate::error::Error;
use crate::mr::{AccessFlags, MemoryRegion};
use crate::pd::ProtectionDomain;
use crate::wr::RemoteRange;

impl ProtectionDomain {
    /// Registers an allocation, so that requests may name its slices: `ibv_reg_mr(3)`. Once for each domain; again, it does
    /// nothing. It gives no peer any access: [`expose`](Self::expose) does.
    ///
    /// The registration ends with the allocation.
    #[doc(alias = "ibv_reg_mr")]
    pub fn register(&self, memory: &Memory) -> Result<(), Error> {
        if memory.local_key(self.id()).is_some() {
            return Ok(());
        }
        let (start, len) = (memory.start().as_ptr().cast(), memory.len());
        // SAFETY: the pages stay mapped until the registration is ended, for good where that fails: it is attached to them. The
        // device writes where a request says so, and requests hold the slices that they name.
        let mr = unsafe { self.reg_mr_raw(start, len, AccessFlags::LOCAL_WRITE) }?;
        let key = u64::from(mr.lkey().0);
        let registration = Registration::new(self.id(), key, Box::new(Attached(mr)));
        // SAFETY: the region is of all pages, its key lives as long as it does, and it allows no remote access.
        match unsafe { memory.attach(registration) } {
            Ok(()) => Ok(()),
            // Another thread was faster. Ours is ended by its drop: no request knew its key.
            Err(error) if error.reason == AttachReason::AlreadyRegistered => Ok(()),
            Err(error) => Err(Error::Memory {
                what: error.reason.to_string(),
                fix: "use fewer domains, or another allocation for some of them".to_owned(),
            }),
        }
    }

    /// Allocates memory, on the device's NUMA node where it has one, and registers it.
    pub fn allocate(&self, len: usize) -> Result<Slice, Error> {
        let options = match self.context().device().numa_node() {
            Some(node) => MemoryOptions::new().numa_node(node),
            None => MemoryOptions::new(),
        };
        let slice = options.allocate(len)?;
        self.register(slice.memory())?;
        Ok(slice)
    }

    /// Gives peers access to a slice, under a key of its own: `ibv_reg_mr(3)`. On failure the slice is handed back.
    ///
    /// From now on there is no reference to its bytes: a peer may change them at any time. `access` is what a peer may do.
    #[doc(alias = "ibv_reg_mr")]
    pub fn expose(&self, slice: Slice, access: AccessFlags) -> Result<ExposedRegion, (Error, Slice)> {
        let (start, len) = (slice.address().as_ptr().cast(), slice.len());
        let exposed = slice.expose();
        // SAFETY: the pages stay mapped as long as `exposed` lives, which is kept until the region is deregistered, and no reference
        // into them exists.
        match unsafe { self.reg_mr_raw(start, len, access | AccessFlags::LOCAL_WRITE) } {
            Ok(mr) => Ok(ExposedRegion { parts: Some((mr, exposed)) }),
            // SAFETY: no key to it was made.
            Err(error) => Err((error, unsafe { exposed.conceal() })),
        }
    }

    /// Makes another key to memory that is exposed already: `ibv_reg_mr(3)`. Each way to the same memory has one of its own, as that
    /// over another device. `access` is what a peer may do by it.
    #[doc(alias = "ibv_reg_mr")]
    pub fn expose_also(&self, memory: &Arc<Exposed>, access: AccessFlags) -> Result<ExposedKey, Error> {
        let (start, len) = (memory.address().as_ptr().cast(), memory.len());
        let kept = Arc::clone(memory);
        let access = access | AccessFlags::LOCAL_WRITE;
        // SAFETY: the pages stay mapped as long as the memory lives, which the region holds until it is deregistered, and no reference
        // into them exists.
        let mr = unsafe { self.reg_mr_keeping(kept, start, len, access) }?;
        Ok(ExposedKey { mr, memory: Arc::clone(memory) })
    }
}

impl From<AllocateError> for Error {
    fn from(error: AllocateError) -> Self {
        Self::Memory { what: error.to_string(), fix: error.fix() }
    }
}

/// A region that is attached to its pages.
struct Attached(MemoryRegion);

impl Release for Attached {
    fn release(self: Box<Self>) -> bool {
        self.0.dereg().is_ok()
    }
}

/// A slice that peers may touch, and the key by which they do.
///
/// ```no_run
/// # use farreach_verbs::device::DeviceList;
/// use farreach_verbs::mr::AccessFlags;
///
/// # let pd = DeviceList::get()?.iter().next().unwrap().open()?.alloc_pd()?;
/// let slice = pd.allocate(4096)?;
/// let region = pd.expose(slice, AccessFlags::REMOTE_WRITE).map_err(|(error, _slice)| error)?;
/// let told_to_the_peer = region.remote();
/// // … the peer writes …
/// let slice = region.revoke().expect("the key is dead, and the bytes are ours alone");
/// println!("{} bytes by {}", slice.len(), told_to_the_peer.key());
/// # Ok::<(), farreach_verbs::Error>(())
/// ```
pub struct ExposedRegion {
    /// Taken out by whoever ends it.
    parts: Option<(MemoryRegion, Exposed)>,
}

impl ExposedRegion {
    fn parts(&self) -> &(MemoryRegion, Exposed) {
        self.parts.as_ref().expect("it is taken out only at the end")
    }

    /// What a peer needs to know.
    pub fn remote(&self) -> RemoteRange {
        let (mr, exposed) = self.parts();
        RemoteRange::new(
            exposed.address().as_ptr().expose_provenance() as u64,
            exposed.len() as u64,
            mr.rkey(),
        )
    }

    /// The bytes, to be copied in and out.
    pub fn bytes(&self) -> &Exposed {
        &self.parts().1
    }

    /// The region.
    pub fn mr(&self) -> &MemoryRegion {
        &self.parts().0
    }

    /// Ends the key and gives the slice back: `ibv_dereg_mr(3)`. A write that arrives later fails at its sender.
    ///
    /// Where the kernel refuses, nothing is proven: the memory is leaked and counted.
    #[doc(alias = "ibv_dereg_mr")]
    pub fn revoke(mut self) -> Result<Slice, Error> {
        let (mr, exposed) = self.parts.take().expect("it is taken out only at the end");
        match mr.dereg() {
            // SAFETY: the only key to it is dead.
            Ok(()) => Ok(unsafe { exposed.conceal() }),
            Err(error) => {
                std::mem::forget(exposed);
                Err(error)
            }
        }
    }
}

impl Drop for ExposedRegion {
    fn drop(&mut self) {
        if let Some((mr, exposed)) = self.parts.take()
            && mr.dereg().is_err()
        {
            // The region counts itself as leaked; the pages must stay with it.
            std::mem::forget(exposed);
        }
    }
}

impl fmt::Debug for ExposedRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExposedRegion").field("remote", &self.remote()).finish_non_exhaustive()
    }
}

/// A key to exposed memory, one of several.
///
/// The memory stays exposed as long as a key to it lives. When this is dropped, its key is ended; where the kernel refuses that, the
/// memory stays for good, and [`leaked`](crate::leak::leaked) counts the region.
///
/// ```no_run
/// # use farreach_verbs::device::DeviceList;
/// use std::sync::Arc;
/// use farreach_verbs::mr::AccessFlags;
///
/// # let devices = DeviceList::get()?;
/// // The same page by every card.
/// let page = Arc::new(farreach_memory::Memory::allocate(4096)?.expose());
/// for device in &devices {
///     let key = device.open()?.alloc_pd()?.expose_also(&page, AccessFlags::REMOTE_WRITE)?;
///     println!("{}: {}", device.name(), key.remote().key());
///     // … peers write …
///     key.end()?;
/// }
/// # Ok::<(), farreach_verbs::Error>(())
/// ```
pub struct ExposedKey {
    /// Holds the memory too, so that what cannot be deregistered keeps it.
    mr: MemoryRegion,
    memory: Arc<Exposed>,
}

impl ExposedKey {
    /// What a peer needs to know.
    pub fn remote(&self) -> RemoteRange {
        let address = self.memory.address().as_ptr().expose_provenance() as u64;
        RemoteRange::new(address, self.memory.len() as u64, self.mr.rkey())
    }

    /// The memory.
    pub fn memory(&self) -> &Arc<Exposed> {
        &self.memory
    }

    /// The region.
    pub fn mr(&self) -> &MemoryRegion {
        &self.mr
    }

    /// Ends the key, and lets go of the memory: `ibv_dereg_mr(3)`. A write that arrives later fails at its sender.
    ///
    /// Where the kernel refuses, nothing is proven: the memory stays exposed for good, and the region is counted as leaked.
    #[doc(alias = "ibv_dereg_mr")]
    pub fn end(self) -> Result<(), Error> {
        self.mr.dereg()
    }
}

impl fmt::Debug for ExposedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExposedKey").field("remote", &self.remote()).finish_non_exhaustive()
    }
}
