//! Memory of protection domains: local registrations, and memory that peers may access.
//!
//! Invariant: a key to exposed memory counts as ended only after its region is deregistered. A
//! region that cannot be deregistered leaks its memory.

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use farreach_memory::{
    AllocateError, AttachError, Exposed, KeyAccess, KeyError, KeyGuard, Memory, MemoryOptions, Registration,
    Release, Slice,
};

use crate::error::Error;
use crate::mr::{AccessFlags, MemoryRegion};
use crate::pd::ProtectionDomain;
use crate::wr::RemoteRange;

impl ProtectionDomain {
    /// Registers an allocation, so that work requests may name its slices: `ibv_reg_mr(3)`. Each
    /// domain registers an allocation once; further calls do nothing. It gives peers no access;
    /// [`expose`](Self::expose) does.
    ///
    /// The registration ends with the allocation.
    #[doc(alias = "ibv_reg_mr")]
    pub fn register(&self, memory: &Memory) -> Result<(), Error> {
        if memory.local_key(self.id()).is_some() {
            return Ok(());
        }
        // SAFETY: the registration is attached to the pages, which stay mapped until it is ended,
        // or for good if that fails.
        let register = || unsafe { self.attachable(memory.start(), memory.len()) };
        // SAFETY: the region covers all pages, its key is valid while the region lives, and it
        // permits no remote access.
        let attached = unsafe { memory.attach(self.id(), register) };
        attached.map_err(not_attached)
    }

    /// Registers a range for local access.
    ///
    /// # Safety
    ///
    /// The range stays mapped until the registration is released.
    unsafe fn attachable(&self, start: NonNull<u8>, len: usize) -> Result<Registration, Error> {
        // SAFETY: the caller guarantees that the range stays mapped. The device writes only as work
        // requests direct it, and work requests hold the slices that they name.
        let mr = unsafe { self.reg_mr_raw(start.as_ptr().cast(), len, AccessFlags::LOCAL_WRITE) }?;
        Ok(Registration::new(u64::from(mr.lkey().0), Box::new(Attached(mr))))
    }

    /// Allocates memory, on the device's NUMA node if it has one, and registers it.
    pub fn allocate(&self, len: usize) -> Result<Slice, Error> {
        let options = match self.context().device().numa_node() {
            Some(node) => MemoryOptions::new().numa_node(node),
            None => MemoryOptions::new(),
        };
        let slice = options.allocate(len)?;
        self.register(slice.memory())?;
        Ok(slice)
    }

    /// Gives peers access to a slice, under a key of its own: `ibv_reg_mr(3)`. On failure, the
    /// error contains the slice.
    ///
    /// From then on, no reference to its bytes exists: a peer may change them at any time. `access`
    /// is the access of peers.
    #[doc(alias = "ibv_reg_mr")]
    pub fn expose(&self, slice: Slice, access: AccessFlags) -> Result<ExposedRegion, (Error, Slice)> {
        let exposed = slice.expose();
        match self.key(&exposed, access) {
            Ok(key) => Ok(ExposedRegion { key, exposed }),
            Err(error) => Err((error, exposed.try_into_slice().expect("no key was made"))),
        }
    }

    /// Makes another key to memory that is already exposed: `ibv_reg_mr(3)`. Each path to the same
    /// memory, such as through another device, has a key of its own. `access` is the access of
    /// peers by this key.
    #[doc(alias = "ibv_reg_mr")]
    pub fn expose_also(&self, memory: &Exposed, access: AccessFlags) -> Result<ExposedKey, Error> {
        let key = self.key(memory, access)?;
        Ok(ExposedKey { remote: key.remote(memory), key })
    }

    fn key(&self, memory: &Exposed, access: AccessFlags) -> Result<Key, Error> {
        let needed = if access.intersects(CHANGES) { KeyAccess::Write } else { KeyAccess::Read };
        let refused = |error: KeyError| Error::Memory {
            what: format!("expose memory to peers: {error}"),
            fix: error.fix().to_owned(),
        };
        let guard = memory.guard_key(needed).map_err(refused)?;
        let (start, len) = (memory.address().as_ptr().cast(), memory.len());
        // A window of such a region cannot give what the region has not.
        let access = if memory.is_read_only() { access } else { with_local_write(access) };
        // SAFETY: the guard keeps the pages mapped until the region is deregistered. While the guard
        // exists, no reference into them does, or, if the memory is read-only, the device has no
        // right to change them, neither for this process nor for peers.
        match unsafe { self.reg_mr_raw(start, len, access) } {
            Ok(mr) => Ok(Key(Some((mr, guard)))),
            Err(error) => {
                // SAFETY: registration failed, so the key that the guard was taken for does not
                // exist.
                unsafe { guard.end() };
                Err(error)
            }
        }
    }
}

/// Returns the error of memory that was not registered.
fn not_attached(error: AttachError<Error>) -> Error {
    match error {
        AttachError::Register(error) => error,
        error => Error::Memory {
            what: error.to_string(),
            fix: "use fewer domains, or another allocation for some of them".to_owned(),
        },
    }
}

/// The access by which a device may change memory.
pub(crate) const CHANGES: AccessFlags =
    AccessFlags::LOCAL_WRITE.union(AccessFlags::REMOTE_WRITE).union(AccessFlags::REMOTE_ATOMIC);

/// A device refuses to register memory for remote writes without the right to write locally.
fn with_local_write(access: AccessFlags) -> AccessFlags {
    access | AccessFlags::LOCAL_WRITE
}

/// A key that peers may use, and the guard of its memory. It is ended on drop.
struct Key(Option<(MemoryRegion, KeyGuard)>);

impl Key {
    fn mr(&self) -> &MemoryRegion {
        &self.0.as_ref().expect("only `end` takes the region").0
    }

    fn remote(&self, memory: &Exposed) -> RemoteRange {
        let address = memory.address().as_ptr().expose_provenance() as u64;
        RemoteRange::new(address, memory.len() as u64, self.mr().rkey())
    }

    /// Deregisters the region. If the kernel refuses, there is no proof that peers have stopped:
    /// the guard is dropped, so the memory is leaked and counted.
    fn end(&mut self) -> Result<(), Error> {
        let Some((mr, guard)) = self.0.take() else { return Ok(()) };
        mr.dereg()?;
        // SAFETY: the region is deregistered, and the device enforces that: it accepts no request
        // by this key any more, and has completed or stopped those in progress.
        unsafe { guard.end() };
        Ok(())
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        // A failure is counted by `leak::judge`; `drop` cannot return it.
        let _ = self.end();
    }
}

impl From<AllocateError> for Error {
    fn from(error: AllocateError) -> Self {
        Self::Memory { what: error.to_string(), fix: error.fix() }
    }
}

/// Exposed memory that a window can be bound to: a region, or one of several keys.
///
/// ```no_run
/// # use farreach_verbs::device::DeviceList;
/// use std::sync::Arc;
/// use farreach_verbs::mr::AccessFlags;
/// use farreach_verbs::mw::WindowType;
/// use farreach_verbs::wr::SendRequest;
///
/// # let pd = DeviceList::get()?.iter().next().unwrap().open()?.alloc_pd()?;
/// let page = farreach_memory::Memory::allocate(4096)?.expose();
/// let key = Arc::new(pd.expose_also(&page, AccessFlags::MW_BIND)?);
/// let window = pd.alloc_mw(WindowType::Two)?;
/// let bind = SendRequest::bind(&window, &key, 0..4096, AccessFlags::REMOTE_WRITE);
/// # drop(bind);
/// # Ok::<(), farreach_verbs::Error>(())
/// ```
#[derive(Debug, Clone)]
pub enum Bindable {
    /// A region.
    Region(Arc<ExposedRegion>),
    /// One of several keys.
    Key(Arc<ExposedKey>),
}

impl Bindable {
    pub(crate) fn mr(&self) -> &MemoryRegion {
        match self {
            Self::Region(region) => region.mr(),
            Self::Key(key) => key.mr(),
        }
    }

    pub(crate) fn remote(&self) -> RemoteRange {
        match self {
            Self::Region(region) => region.remote(),
            Self::Key(key) => key.remote(),
        }
    }
}

impl From<&Arc<ExposedRegion>> for Bindable {
    fn from(region: &Arc<ExposedRegion>) -> Self {
        Self::Region(Arc::clone(region))
    }
}

impl From<&Arc<ExposedKey>> for Bindable {
    fn from(key: &Arc<ExposedKey>) -> Self {
        Self::Key(Arc::clone(key))
    }
}

/// A region that is attached to its pages.
struct Attached(MemoryRegion);

impl Release for Attached {
    fn release(self: Box<Self>) -> bool {
        self.0.dereg().is_ok()
    }

    unsafe fn renew(&self, start: NonNull<u8>, len: usize) -> Result<Registration, String> {
        // SAFETY: the caller guarantees that the range stays mapped.
        unsafe { self.0.pd().attachable(start, len) }.map_err(|error| error.to_string())
    }
}

/// A slice that peers may access, and the key for it.
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
/// let slice = region.revoke().expect("the region was deregistered");
/// println!("{} bytes by {}", slice.len(), told_to_the_peer.key());
/// # Ok::<(), farreach_verbs::Error>(())
/// ```
pub struct ExposedRegion {
    key: Key,
    exposed: Exposed,
}

impl ExposedRegion {
    /// Returns the range and the key that a peer needs.
    pub fn remote(&self) -> RemoteRange {
        self.key.remote(&self.exposed)
    }

    /// Returns the memory, to copy in and out of it.
    pub fn bytes(&self) -> &Exposed {
        &self.exposed
    }

    /// Returns the region.
    pub fn mr(&self) -> &MemoryRegion {
        self.key.mr()
    }

    /// Ends the key and returns the slice: `ibv_dereg_mr(3)`. A write that arrives later fails at
    /// its sender.
    ///
    /// If the kernel refuses, there is no proof that peers have stopped: the memory is returned
    /// exposed, and its pages stay for good, counted as leaked. The memory is also returned exposed
    /// if [another key](ProtectionDomain::expose_also) to it is left.
    #[doc(alias = "ibv_dereg_mr")]
    pub fn revoke(self) -> Result<Slice, (Error, Exposed)> {
        let Self { mut key, exposed } = self;
        if let Err(error) = key.end() {
            return Err((error, exposed));
        }
        exposed.try_into_slice().map_err(|exposed| {
            let what = format!("{} other keys to the memory are left", exposed.keys());
            (Error::Memory { what, fix: "end every key to it first".to_owned() }, exposed)
        })
    }
}

impl fmt::Debug for ExposedRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExposedRegion").field("remote", &self.remote()).finish_non_exhaustive()
    }
}

/// A key to exposed memory, one of several.
///
/// The memory stays exposed while a key to it lives. Dropping this ends its key; if the kernel
/// refuses that, the memory stays for good, and [`leaked`](crate::leak::leaked) counts the region.
///
/// ```no_run
/// # use farreach_verbs::device::DeviceList;
/// use farreach_verbs::mr::AccessFlags;
///
/// # let devices = DeviceList::get()?;
/// // The same page through every device.
/// let page = farreach_memory::Memory::allocate(4096)?.expose();
/// for device in &devices {
///     let key = device.open()?.alloc_pd()?.expose_also(&page, AccessFlags::REMOTE_WRITE)?;
///     println!("{}: {}", device.name(), key.remote().key());
///     // … peers write …
///     key.end()?;
/// }
/// let page = page.try_into_slice().expect("no key is left");
/// # Ok::<(), farreach_verbs::Error>(())
/// ```
pub struct ExposedKey {
    key: Key,
    remote: RemoteRange,
}

impl ExposedKey {
    /// Returns the range and the key that a peer needs.
    pub fn remote(&self) -> RemoteRange {
        self.remote
    }

    /// Returns the region.
    pub fn mr(&self) -> &MemoryRegion {
        self.key.mr()
    }

    /// Ends the key: `ibv_dereg_mr(3)`. A write that arrives later fails at its sender.
    ///
    /// If the kernel refuses, there is no proof that peers have stopped: the memory stays exposed
    /// for good, and is counted as leaked.
    #[doc(alias = "ibv_dereg_mr")]
    pub fn end(mut self) -> Result<(), Error> {
        self.key.end()
    }
}

impl fmt::Debug for ExposedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExposedKey").field("remote", &self.remote).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_peers_may_do_is_kept_and_the_device_may_write() {
        let asked = AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ;
        let all = asked | AccessFlags::LOCAL_WRITE;
        assert_eq!(with_local_write(asked), all);
        assert_eq!(with_local_write(all), all);
    }

    #[test]
    fn why_memory_is_not_registered_is_told() {
        let error = not_attached(AttachError::TooManyDomains);
        assert!(error.to_string().contains("the maximum"), "{error}");
        let of_device = || Error::Memory { what: "it is locked".to_owned(), fix: "unlock it".to_owned() };
        assert_eq!(not_attached(AttachError::Register(of_device())).to_string(), of_device().to_string());
    }
}
