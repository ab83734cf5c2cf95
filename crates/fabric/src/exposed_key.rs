//! Keys of exposed memory.

use std::fmt;

use farreach_memory::{Exposed, KeyAccess, KeyGuard};

use crate::mr::MemoryRegion;
use crate::{Domain, Error, MrMode, RemoteAccess, RemoteRegion};

impl Domain {
    /// Creates one more key for memory that is exposed already: `fi_mr(3)`. Peers that reach it
    /// over several domains need a key for each.
    ///
    /// As [`expose`](Self::expose), it refuses a provider that registers through a cache.
    #[doc(alias = "fi_mr_reg")]
    pub fn expose_also(&self, exposed: &Exposed, access: RemoteAccess) -> Result<ExposedKey, Error> {
        self.check_no_cache()?;
        let reads_only = RemoteAccess::READ.contains(access);
        let needed = if reads_only { KeyAccess::Read } else { KeyAccess::Write };
        let guard = exposed.guard_key(needed)?;
        let start = exposed.address().as_ptr();
        // SAFETY: while the guard exists the pages stay mapped, and `Exposed` forms no reference
        // into them, nor becomes a slice, or peers have the right to read only. The
        // guard is stored in the key together with the region. `Domain::retire` ends it only after
        // the region's close has proven that nothing reaches the pages; otherwise it is kept.
        match unsafe { MemoryRegion::register(self, start, exposed.len(), access.bits()) } {
            Ok(region) => {
                let remote = region.remote(exposed);
                Ok(ExposedKey { parts: Some((region, guard)), remote, access })
            }
            Err(error) => {
                // SAFETY: the registration has failed, so there is no region, and no peer ever got
                // a key.
                unsafe { guard.end() };
                Err(error)
            }
        }
    }
}

/// One of several keys with which peers may access the same memory. Each belongs to one domain, and
/// ends by itself.
///
/// The memory stays exposed as long as it has a key. [`Exposed::try_into_slice`] makes it a slice
/// again when it has none.
///
/// ```no_run
/// # use farreach_fabric::{Domain, Error};
/// use farreach_fabric::RemoteAccess;
///
/// # fn expose(rails: &[Domain]) -> Result<(), Error> {
/// let exposed = farreach_memory::Memory::allocate(4096)?.expose();
/// for rail in rails {
///     let key = rail.expose_also(&exposed, RemoteAccess::WRITE)?;
///     println!("over {}: key {:#x}", rail.info().domain(), key.remote().key());
///     key.end()?;
/// }
/// # Ok(())
/// # }
/// ```
#[doc(alias = "fid_mr")]
pub struct ExposedKey {
    /// `None` only after the key was ended.
    parts: Option<(MemoryRegion, KeyGuard)>,
    remote: RemoteRegion,
    access: RemoteAccess,
}

impl ExposedKey {
    /// Returns the description for a peer.
    pub fn remote(&self) -> RemoteRegion {
        self.remote
    }

    /// Returns the domain that it belongs to.
    pub fn domain(&self) -> &Domain {
        self.parts.as_ref().expect("it is taken only when the key ends").0.domain()
    }

    /// Ends the key: `fi_close(3)`. A write with it that begins later finds no region, if the
    /// provider enforces keys. Returns `true` if that proves that no peer reaches the memory with
    /// it.
    ///
    /// Otherwise the memory stays exposed until there is a proof, as [`Domain::kept_keys`]
    /// describes, or for good, counted, if keys are not enforced or the provider does not close the
    /// region.
    #[doc(alias = "fi_close")]
    pub fn end(mut self) -> Result<bool, Error> {
        self.close()
    }

    /// Creates the same key in another domain, [renewed](Domain::renew) from this one's, and ends
    /// it here: peers that know it need no other one. The memory cannot be reached with it before
    /// an endpoint is open there. On failure the key stays where it is.
    ///
    /// This is not possible if the provider chooses the keys.
    #[doc(alias = "fi_mr_reg")]
    pub fn move_to(&mut self, domain: &Domain) -> Result<(), Error> {
        // The old one is ended by its drop.
        *self = self.copy_to(domain)?;
        Ok(())
    }

    /// Creates the same key in another domain, [renewed](Domain::renew) from this one's: a peer that
    /// knows it reaches the memory over either domain. Each of the two ends by itself.
    ///
    /// This is not possible if the provider chooses the keys.
    #[doc(alias = "fi_mr_reg")]
    pub fn copy_to(&self, domain: &Domain) -> Result<Self, Error> {
        if domain.info().mr_mode().contains(MrMode::PROV_KEY) {
            let (what, why) = ("a key in two domains".to_owned(), "the provider chooses keys".to_owned());
            return Err(Error::Unsupported { what, why });
        }
        // An unrelated domain may use the same number for other memory, before or later.
        if !domain.has_keys_of(self.domain()) {
            return Err(Error::NotOfThis { object: "key", of: "domain, or one that it was renewed from" });
        }
        let guard = self.parts.as_ref().expect("it is taken only when the key ends").1.another();
        let (start, len) = guard.range();
        // SAFETY: while the guard exists the pages stay mapped, and `Exposed` forms no reference
        // into them, nor becomes a slice. The guard is stored in the new key together with the
        // region, as in `expose_also`.
        match unsafe {
            MemoryRegion::open(domain, (start.as_ptr(), len), self.access.bits(), self.remote.key())
        } {
            Ok(region) => Ok(Self { parts: Some((region, guard)), remote: self.remote, access: self.access }),
            Err(error) => {
                // SAFETY: the registration has failed, so there is no region.
                unsafe { guard.end() };
                Err(error)
            }
        }
    }

    fn close(&mut self) -> Result<bool, Error> {
        let Some((region, guard)) = self.parts.take() else { return Ok(true) };
        let domain = region.domain().clone();
        domain.retire(region, guard)
    }
}

impl Drop for ExposedKey {
    fn drop(&mut self) {
        // Failures are counted, and the memory is kept.
        let _ = self.close();
    }
}

impl fmt::Debug for ExposedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExposedKey").field("remote", &self.remote).finish_non_exhaustive()
    }
}
