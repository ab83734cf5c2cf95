//! Keys to exposed memory.

use std::fmt;

use farreach_memory::{Exposed, KeyGuard};

use crate::mr::MemoryRegion;
use crate::{Domain, Error, MrMode, RemoteAccess, RemoteRegion};

impl Domain {
    /// Makes one more key to memory that is exposed already: `fi_mr(3)`. Peers that reach it over several domains need a key for each.
    ///
    /// As [`expose`](Self::expose), it refuses a provider that registers from a cache.
    #[doc(alias = "fi_mr_reg")]
    pub fn expose_also(&self, exposed: &Exposed, access: RemoteAccess) -> Result<ExposedKey, Error> {
        self.check_exposable()?;
        let guard = exposed.guard_key();
        let start = exposed.address().as_ptr();
        // SAFETY: while the guard exists the pages stay mapped, and `Exposed` forms no reference into them, nor becomes a slice. It goes into the key
        // together with the region, and `Domain::retire` ends it after the region's close has proven that nothing reaches them; otherwise it is kept.
        match unsafe { MemoryRegion::register(self, start, exposed.len(), access.bits()) } {
            Ok(region) => {
                let remote = region.remote(exposed);
                Ok(ExposedKey { parts: Some((region, guard)), remote, access })
            }
            Err(error) => {
                // SAFETY: the registration has failed, so there is no region, and no peer was ever told of a key.
                unsafe { guard.end() };
                Err(error)
            }
        }
    }
}

/// One of several keys by which peers may touch the same memory: each is of a domain, and ends by itself.
///
/// The memory stays exposed as long as there is a key to it, and becomes a slice again by [`Exposed::try_into_slice`] when there is none.
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
    /// Taken out by whoever ends it.
    parts: Option<(MemoryRegion, KeyGuard)>,
    remote: RemoteRegion,
    access: RemoteAccess,
}

impl ExposedKey {
    /// What a peer needs to know.
    pub fn remote(&self) -> RemoteRegion {
        self.remote
    }

    /// The domain that it is of.
    pub fn domain(&self) -> &Domain {
        self.parts.as_ref().expect("it is taken out only at the end").0.domain()
    }

    /// Ends the key: `fi_close(3)`. A write by it that begins later finds no region, where the provider enforces keys. Whether that proves
    /// that no peer reaches the memory by it.
    ///
    /// Otherwise the memory stays exposed until there is a proof, as [`Domain::kept_keys`] says, or for good where keys are not enforced or
    /// the provider does not close the region, counted.
    #[doc(alias = "fi_close")]
    pub fn end(mut self) -> Result<bool, Error> {
        self.close()
    }

    /// Makes the same key in another domain, [renewed](Domain::renew) from this one's, and ends it here: peers that know it need not be told another one. Nobody
    /// reaches the memory by it before an endpoint is open there. On failure the key stays where it is.
    ///
    /// It cannot be done where the provider chooses the keys.
    #[doc(alias = "fi_mr_reg")]
    pub fn move_to(&mut self, domain: &Domain) -> Result<(), Error> {
        if domain.info().mr_mode().contains(MrMode::PROV_KEY) {
            let (what, why) = ("a key in two domains".to_owned(), "the provider chooses keys".to_owned());
            return Err(Error::Unsupported { what, why });
        }
        // Another one may give the same number to other memory, before or later.
        if !domain.has_keys_of(self.domain()) {
            return Err(Error::NotOfThis { object: "key", of: "domain, or one that it was renewed from" });
        }
        let guard = self.parts.as_ref().expect("it is taken out only at the end").1.another();
        let (start, len) = guard.range();
        // SAFETY: while the guard exists the pages stay mapped, and `Exposed` forms no reference into them, nor becomes a slice. It goes into the new key together
        // with the region, as in `expose_also`.
        match unsafe {
            MemoryRegion::open(domain, (start.as_ptr(), len), self.access.bits(), self.remote.key())
        } {
            Ok(region) => {
                // The old one is ended by its drop.
                *self = Self { parts: Some((region, guard)), remote: self.remote, access: self.access };
                Ok(())
            }
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
        // What fails is counted, and kept.
        let _ = self.close();
    }
}

impl fmt::Debug for ExposedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExposedKey").field("remote", &self.remote).finish_non_exhaustive()
    }
}
