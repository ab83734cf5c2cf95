//! Memory and domains: what requests may name, and what a peer may touch.

use std::fmt;

use farreach_memory::{
    AllocateError, AttachReason, Exposed, KeyGuard, Memory, MemoryOptions, Registration, Release, Slice,
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
        let attached = unsafe { memory.attach(registration) };
        attached.or_else(|error| not_attached(error.reason))
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
        let exposed = slice.expose();
        match self.key(&exposed, access) {
            Ok(key) => Ok(ExposedRegion { key, exposed }),
            Err(error) => Err((error, exposed.try_into_slice().expect("no key to it was made"))),
        }
    }

    /// Makes another key to memory that is exposed already: `ibv_reg_mr(3)`. Each way to the same memory has one of its own, as that
    /// over another device. `access` is what a peer may do by it.
    #[doc(alias = "ibv_reg_mr")]
    pub fn expose_also(&self, memory: &Exposed, access: AccessFlags) -> Result<ExposedKey, Error> {
        let key = self.key(memory, access)?;
        Ok(ExposedKey { remote: key.remote(memory), key })
    }

    fn key(&self, memory: &Exposed, access: AccessFlags) -> Result<Key, Error> {
        let guard = memory.guard_key();
        let (start, len) = (memory.address().as_ptr().cast(), memory.len());
        // SAFETY: the guard keeps the pages mapped until the region is deregistered, and no reference into them exists while it does.
        match unsafe { self.reg_mr_raw(start, len, with_local_write(access)) } {
            Ok(mr) => Ok(Key(Some((mr, guard)))),
            Err(error) => {
                // SAFETY: the guard was of the key that registering has just refused to make: there is none.
                unsafe { guard.end() };
                Err(error)
            }
        }
    }
}

/// Another thread may have been faster. Ours is ended by its drop then: no request knew its key.
fn not_attached(reason: AttachReason) -> Result<(), Error> {
    if reason == AttachReason::AlreadyRegistered {
        return Ok(());
    }
    Err(Error::Memory {
        what: reason.to_string(),
        fix: "use fewer domains, or another allocation for some of them".to_owned(),
    })
}

/// A device registers no memory for remote writes that it may not write itself.
fn with_local_write(access: AccessFlags) -> AccessFlags {
    access | AccessFlags::LOCAL_WRITE
}

/// A key that peers may use, and the guard of the memory that it leads to. When it is dropped, it ends.
struct Key(Option<(MemoryRegion, KeyGuard)>);

impl Key {
    fn mr(&self) -> &MemoryRegion {
        &self.0.as_ref().expect("it is taken out only at the end").0
    }

    fn remote(&self, memory: &Exposed) -> RemoteRange {
        let address = memory.address().as_ptr().expose_provenance() as u64;
        RemoteRange::new(address, memory.len() as u64, self.mr().rkey())
    }

    /// Where the kernel refuses, nothing is proven: the guard is dropped, so the memory is leaked and counted.
    fn end(&mut self) -> Result<(), Error> {
        let Some((mr, guard)) = self.0.take() else { return Ok(()) };
        mr.dereg()?;
        // SAFETY: the region is deregistered, and a device enforces that: it takes no request by this key any more, and has stopped what
        // it was doing by it.
        unsafe { guard.end() };
        Ok(())
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        // A failure is counted; a drop has nobody else to tell.
        let _ = self.end();
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
    key: Key,
    exposed: Exposed,
}

impl ExposedRegion {
    /// What a peer needs to know.
    pub fn remote(&self) -> RemoteRange {
        self.key.remote(&self.exposed)
    }

    /// The bytes, to be copied in and out.
    pub fn bytes(&self) -> &Exposed {
        &self.exposed
    }

    /// The region.
    pub fn mr(&self) -> &MemoryRegion {
        self.key.mr()
    }

    /// Ends the key and gives the slice back: `ibv_dereg_mr(3)`. A write that arrives later fails at its sender.
    ///
    /// Where the kernel refuses, nothing is proven: the memory comes back exposed, and its pages stay for good, counted as leaked. It
    /// comes back exposed, too, where [another key](ProtectionDomain::expose_also) to it is left.
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
/// The memory stays exposed as long as a key to it lives. When this is dropped, its key is ended; where the kernel refuses that, the
/// memory stays for good, and [`leaked`](crate::leak::leaked) counts the region.
///
/// ```no_run
/// # use farreach_verbs::device::DeviceList;
/// use farreach_verbs::mr::AccessFlags;
///
/// # let devices = DeviceList::get()?;
/// // The same page by every card.
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
    /// What a peer needs to know.
    pub fn remote(&self) -> RemoteRange {
        self.remote
    }

    /// The region.
    pub fn mr(&self) -> &MemoryRegion {
        self.key.mr()
    }

    /// Ends the key: `ibv_dereg_mr(3)`. A write that arrives later fails at its sender.
    ///
    /// Where the kernel refuses, nothing is proven: the memory stays exposed for good, and is counted as leaked.
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
    fn only_memory_that_is_registered_here_already_needs_no_registration() {
        assert!(not_attached(AttachReason::AlreadyRegistered).is_ok());
        let error = not_attached(AttachReason::TooManyDomains).unwrap_err();
        assert!(error.to_string().contains("which is the most"), "{error}");
    }
}
