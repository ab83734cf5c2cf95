//! Memory regions: memory that operations may use, and memory that peers may access.

use std::fmt;
use std::ptr::NonNull;

use bitflags::bitflags;
use farreach_fabric_sys as sys;
use farreach_memory::{
    AllocateError, AttachError, Exposed, Memory, MemoryOptions, Registration, Release, Slice,
};

use crate::handle::Handle;
use crate::{Domain, Error, ExposedKey, MrMode, RemoteRegion};

/// The maximum number of keys to try if the provider reports that one is in use.
const KEY_ATTEMPTS: usize = 16;

bitflags! {
    /// The operations that peers may do on a region.
    ///
    /// ```
    /// use farreach_fabric::RemoteAccess;
    ///
    /// assert!(RemoteAccess::all().contains(RemoteAccess::READ | RemoteAccess::WRITE));
    /// ```
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct RemoteAccess: u64 {
        /// Reads.
        #[doc(alias = "FI_REMOTE_READ")]
        const READ = sys::FI_REMOTE_READ;
        /// Writes. Atomic operations need both.
        #[doc(alias = "FI_REMOTE_WRITE")]
        const WRITE = sys::FI_REMOTE_WRITE;
    }
}

/// Returns `true` if registrations come from a cache, so that the registration of a part may be
/// that of the whole, and a closed one may stay valid.
///
/// No offer states this. It is determined by two registrations of the same page: they have
/// different keys, unless both come from the cache.
pub(crate) fn are_cached(domain: &Domain) -> bool {
    if !domain.info().mr_mode().contains(MrMode::PROV_KEY) {
        return false;
    }
    let Ok(page) = Memory::allocate(4096) else { return true };
    let register = || {
        let start = page.address().as_ptr();
        // SAFETY: `page` belongs to this function until it returns. By then it has closed both
        // regions, or leaked the page, and it forms no reference into it.
        unsafe { MemoryRegion::register(domain, start, page.len(), sys::FI_REMOTE_WRITE) }
    };
    let regions = [register(), register()];
    let is_same = match &regions {
        [Ok(first), Ok(second)] => first.key() == second.key(),
        // If it cannot be determined, the worse is assumed.
        _ => true,
    };
    let open = regions.into_iter().flatten().filter_map(|region| region.close().err()).count();
    if open > 0 {
        std::mem::forget(page);
    }
    is_same || open > 0
}

/// Registered memory: `fi_mr(3)`. It is closed when dropped. If that fails it is leaked and
/// counted; the owner of the pages checks before, and keeps them.
pub(crate) type MemoryRegion = Handle<sys::fid_mr>;

impl MemoryRegion {
    /// Registers memory with a key that is free.
    ///
    /// # Safety
    ///
    /// As for [`open`](Self::open).
    pub(crate) unsafe fn register(
        domain: &Domain,
        start: *mut u8,
        len: usize,
        access: u64,
    ) -> Result<Self, Error> {
        let mut attempts = 0;
        loop {
            // Even if the provider chooses keys, a layer over it may keep regions by the requested
            // key.
            let key = domain.next_key()?;
            // SAFETY: the caller guarantees the requirements on the memory. A failed attempt has
            // registered nothing.
            match unsafe { Self::open(domain, (start, len), access, key) } {
                Err(Error::Failed { errno: sys::FI_ENOKEY, .. }) if attempts < KEY_ATTEMPTS => {
                    attempts += 1;
                }
                answer => return answer,
            }
        }
    }

    /// Returns the description of the registered memory for a peer.
    pub(crate) fn remote(&self, exposed: &Exposed) -> RemoteRegion {
        let has_addresses = self.domain().info().mr_mode().contains(MrMode::VIRT_ADDR);
        // Otherwise a peer addresses by the offset in the region.
        let address = if has_addresses { exposed.address().as_ptr().expose_provenance() as u64 } else { 0 };
        RemoteRegion::new(address, exposed.len() as u64, self.key())
    }

    pub(crate) fn domain(&self) -> &Domain {
        self.parents()
    }
}

impl Release for MemoryRegion {
    fn release(self: Box<Self>) -> bool {
        self.close().is_ok()
    }

    unsafe fn renew(&self, start: NonNull<u8>, len: usize) -> Result<Registration, String> {
        // SAFETY: the caller guarantees that the range stays mapped.
        unsafe { self.domain().attachable(start, len) }.map_err(|error| error.to_string())
    }
}

impl Domain {
    /// Registers an allocation, so that operations may use its slices: `fi_mr(3)`. It is done once
    /// for each domain; it does nothing the second time, or if the provider does not require it. It
    /// gives no peer access: [`expose`](Self::expose) does.
    ///
    /// The registration ends with the allocation. A provider that registers through a cache is refused for
    /// memory [from elsewhere](Memory::has_own_pages): the cache finds a registration by its address, and
    /// may find that of freed memory if the allocator uses the address again.
    #[doc(alias = "fi_mr_reg")]
    #[doc(alias = "FI_MR_LOCAL")]
    pub fn register(&self, memory: &Memory) -> Result<(), Error> {
        if !self.needs_local_keys() || memory.local_key(self.id()).is_some() {
            return Ok(());
        }
        if !memory.has_own_pages() {
            self.check_no_cache()?;
        }
        // SAFETY: the pages stay mapped until the registration is ended, for good if that fails: it
        // is attached to them.
        let register = || unsafe { self.attachable(memory.start(), memory.len()) };
        // SAFETY: the region is registered for all pages of this memory and for local access. The
        // registration owns it, so its descriptor is valid as long as the registration exists.
        unsafe { memory.attach(self.id(), register) }.map_err(|error| match error {
            AttachError::Register(error) => error,
            error => Error::Memory {
                what: error.to_string(),
                fix: "use fewer domains, or another allocation for some of them".to_owned(),
            },
        })
    }

    /// Registers a range for local access.
    ///
    /// # Safety
    ///
    /// The range stays mapped until the registration is released.
    unsafe fn attachable(&self, start: NonNull<u8>, len: usize) -> Result<Registration, Error> {
        let access = sys::FI_SEND | sys::FI_RECV | sys::FI_READ | sys::FI_WRITE;
        // SAFETY: the caller guarantees that the range stays mapped. `access` is local, so the
        // provider writes only where an operation of this process names a buffer, and an operation
        // owns its buffers.
        let mr = unsafe { MemoryRegion::register(self, start.as_ptr(), len, access) }?;
        Ok(Registration::new(mr.descriptor(), Box::new(mr)))
    }

    /// Allocates memory and registers it.
    pub fn allocate(&self, len: usize) -> Result<Slice, Error> {
        let slice = MemoryOptions::new().allocate(len)?;
        self.register(slice.memory())?;
        Ok(slice)
    }

    /// Gives peers access to a slice, with a key of its own: `fi_mr(3)`. Returns the slice on
    /// failure.
    ///
    /// From now on there is no reference to its bytes: a peer may change them at any time. A
    /// provider that registers through a cache is refused: its keys cover more than the slice, and
    /// stay valid after they are ended.
    #[doc(alias = "fi_mr_reg")]
    pub fn expose(&self, slice: Slice, access: RemoteAccess) -> Result<ExposedRegion, (Error, Slice)> {
        let exposed = slice.expose();
        match self.expose_also(&exposed, access) {
            Ok(key) => Ok(ExposedRegion { key, exposed }),
            Err(error) => Err((error, exposed.try_into_slice().expect("no key was created"))),
        }
    }

    /// Checks that a key of this domain covers only its memory, and ends when it is ended.
    pub(crate) fn check_no_cache(&self) -> Result<(), Error> {
        if self.caches_registrations() {
            return Err(Error::RegistrationCache { provider: self.info().provider().to_owned() });
        }
        Ok(())
    }
}

impl From<AllocateError> for Error {
    fn from(error: AllocateError) -> Self {
        Self::Memory { what: error.to_string(), fix: error.fix() }
    }
}

/// A slice that peers may access, with its key.
///
/// ```no_run
/// # use farreach_fabric::Domain;
/// use farreach_fabric::RemoteAccess;
///
/// # fn expose(domain: &Domain) -> Result<(), farreach_fabric::Error> {
/// let slice = domain.allocate(4096)?;
/// let region = domain.expose(slice, RemoteAccess::WRITE).map_err(|(error, _slice)| error)?;
/// let told_to_the_peer = region.remote();
/// // … the peer writes …
/// println!("{} bytes by key {:#x}", told_to_the_peer.len(), told_to_the_peer.key());
/// match region.revoke() {
///     Ok(slice) => println!("{} bytes are a slice again", slice.len()),
///     // A peer's write may be in flight. The memory can be read, and becomes a slice when no key is left.
///     Err((error, exposed)) => println!("{error}: {} ({} keys)", error.fix(), exposed.keys()),
/// }
/// # Ok(())
/// # }
/// ```
#[doc(alias = "fid_mr")]
pub struct ExposedRegion {
    key: ExposedKey,
    exposed: Exposed,
}

impl ExposedRegion {
    /// Returns the description for a peer.
    pub fn remote(&self) -> RemoteRegion {
        self.key.remote()
    }

    /// Returns the bytes, for copying in and out.
    pub fn bytes(&self) -> &Exposed {
        &self.exposed
    }

    /// Returns the domain that it is in.
    pub fn domain(&self) -> &Domain {
        self.key.domain()
    }

    /// Ends the key, and returns the slice if that proves that no peer reaches it: `fi_close(3)`. A
    /// write that begins later finds no region.
    ///
    /// Otherwise it returns the exposed memory, which can be read, and [`Exposed::try_into_slice`]
    /// returns the slice when there is a proof. If a write in flight continues although its region
    /// is closed ([`Profile::revoke_stops_writes`](crate::Profile::revoke_stops_writes)), the proof
    /// is the close of every endpoint of the domain. If the provider does not enforce keys
    /// ([`Profile::keys_enforced`](crate::Profile::keys_enforced)), or does not close the region,
    /// there is none: the memory is leaked and counted. [`Exposed::into_slice_unchecked`] is for
    /// callers that know that no peer writes.
    #[doc(alias = "fi_close")]
    pub fn revoke(self) -> Result<Slice, (Error, Exposed)> {
        let Self { key, exposed } = self;
        let profile = *key.domain().profile();
        if let Err(error) = key.end() {
            return Err((error, exposed));
        }
        exposed.try_into_slice().map_err(|exposed| {
            let why = match profile {
                _ if exposed.keys() > 1 => "there are other keys to it",
                profile if profile.keys_enforced => {
                    "a write in flight continues until the endpoint is closed"
                }
                _ => "this provider lets a peer write with an ended key",
            };
            (Error::NotRevocable { why }, exposed)
        })
    }
}

impl fmt::Debug for ExposedRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExposedRegion").field("remote", &self.remote()).finish_non_exhaustive()
    }
}
