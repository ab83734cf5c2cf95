//! One of several keys to the same memory.

use std::fmt;
use std::sync::Arc;

use farreach_memory::Exposed;

use crate::leak::{self, Kind};
use crate::mr::MemoryRegion;
use crate::{Domain, Error, RemoteAccess, RemoteRegion};

impl Domain {
    /// Makes one more key to memory that is exposed already: `fi_mr(3)`. Peers that reach it over several domains need a key for each.
    ///
    /// As [`expose`](Self::expose), it refuses a provider that registers from a cache.
    #[doc(alias = "fi_mr_reg")]
    pub fn expose_also(&self, exposed: &Arc<Exposed>, access: RemoteAccess) -> Result<ExposedKey, Error> {
        self.check_exposable()?;
        let (start, exposed) = (exposed.address(), Arc::clone(exposed));
        // SAFETY: the pages stay mapped as long as `exposed` lives, which is kept until the region is closed (and for as long as that
        // proves nothing), and no reference into them exists.
        let mr = unsafe { MemoryRegion::register(self, start.as_ptr(), exposed.len(), access.bits()) }?;
        let remote = mr.remote(&exposed);
        Ok(ExposedKey { parts: Some((mr, exposed)), remote })
    }
}

/// One of several keys by which peers may touch the same memory: each is of a domain, and ends by itself.
///
/// The memory stays exposed as long as there is a key to it. What ends with the last one is up to those who share it: the bytes
/// can be had again by [`Exposed::conceal`], which is `unsafe`.
///
/// ```no_run
/// # use farreach_fabric::{Domain, Error};
/// use std::sync::Arc;
/// use farreach_fabric::RemoteAccess;
///
/// # fn expose(rails: &[Domain]) -> Result<(), Error> {
/// let exposed = Arc::new(farreach_memory::Memory::allocate(4096)?.expose());
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
    parts: Option<(MemoryRegion, Arc<Exposed>)>,
    remote: RemoteRegion,
}

impl ExposedKey {
    fn parts(&self) -> &(MemoryRegion, Arc<Exposed>) {
        self.parts.as_ref().expect("it is taken out only at the end")
    }

    /// What a peer needs to know.
    pub fn remote(&self) -> RemoteRegion {
        self.remote
    }

    /// The memory.
    pub fn exposed(&self) -> &Arc<Exposed> {
        &self.parts().1
    }

    /// The domain that it is of.
    pub fn domain(&self) -> &Domain {
        self.parts().0.domain()
    }

    /// Ends the key: `fi_close(3)`. A write by it that begins later finds no region, where the provider enforces keys.
    ///
    /// The memory is let go of when that proves that no peer reaches it by this key: as
    /// [`Domain::kept_slices`] says, or never where keys are not enforced, counted. Where the provider does not close the region, the memory
    /// is leaked and counted.
    #[doc(alias = "fi_close")]
    pub fn end(mut self) -> Result<(), Error> {
        self.close(true)
    }

    /// Ends the key, and lets go of the memory at once.
    ///
    /// # Safety
    ///
    /// Somebody else holds the memory, and neither conceals it nor lets go of it before no peer reaches it by this key: nothing
    /// that a peer has begun is under way, and where keys are not enforced no peer will begin anything.
    pub unsafe fn end_trusting_peers(mut self) -> Result<(), Error> {
        self.close(false)
    }

    /// Ends the key. With `keeps`, the memory stays for as long as that proves nothing.
    fn close(&mut self, keeps: bool) -> Result<(), Error> {
        let Some((mr, exposed)) = self.parts.take() else { return Ok(()) };
        let domain = mr.domain().clone();
        let is_out_of_reach = domain.is_out_of_reach();
        if let Err(error) = mr.close() {
            // It counts itself as leaked; the pages must stay with it.
            std::mem::forget(exposed);
            return Err(error);
        }
        if !keeps || is_out_of_reach {
            return Ok(());
        }
        if domain.profile().keys_enforced {
            domain.keep_exposed(exposed);
        } else {
            leak::count(Kind::ExposedSlice);
            std::mem::forget(exposed);
        }
        Ok(())
    }
}

impl Drop for ExposedKey {
    fn drop(&mut self) {
        // What fails is counted, and kept.
        let _ = self.close(true);
    }
}

impl fmt::Debug for ExposedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExposedKey").field("remote", &self.remote).finish_non_exhaustive()
    }
}
