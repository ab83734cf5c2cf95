//! Protection domains, which group the memory and the queue pairs that may be used together.

use std::fmt;
use std::sync::Arc;

use farreach_memory::DomainId;
use farreach_verbs_sys as sys;

use crate::context::Context;
use crate::error::Error;
use crate::handle::Owned;

/// A protection domain. Regions, windows and queue pairs can be used together if they belong to the
/// same one.
///
/// It is cheap to clone. It is deallocated when the last clone, and every object made in it, is
/// gone.
///
/// ```no_run
/// # use farreach_verbs::device::DeviceList;
/// # let context = DeviceList::get()?.iter().next().unwrap().open()?;
/// let pd = context.alloc_pd()?;
/// assert_eq!(pd, pd.clone());
/// assert_ne!(pd, context.alloc_pd()?);
/// # Ok::<(), farreach_verbs::Error>(())
/// ```
#[doc(alias = "ibv_pd")]
#[doc(alias = "ibv_dealloc_pd")]
#[derive(Clone)]
pub struct ProtectionDomain(Arc<Inner>);

struct Inner {
    pd: Owned<sys::ibv_pd, Context>,
    id: DomainId,
}

impl Context {
    /// Allocates a protection domain: `ibv_alloc_pd(3)`.
    #[doc(alias = "ibv_alloc_pd")]
    pub fn alloc_pd(&self) -> Result<ProtectionDomain, Error> {
        let pd = Owned::alloc_pd(self)?.ok_or_else(|| self.failed("ibv_alloc_pd"))?;
        Ok(ProtectionDomain(Arc::new(Inner { pd, id: DomainId::unique() })))
    }
}

impl ProtectionDomain {
    /// Returns the open device.
    pub fn context(&self) -> &Context {
        self.0.pd.parents()
    }

    /// Returns an identifier that is unique among all protection domains of this process, past and
    /// present. Memory registrations refer to it.
    pub fn id(&self) -> DomainId {
        self.0.id
    }

    /// Returns the C object. It is valid while `self` or a clone lives.
    pub fn as_raw(&self) -> *mut sys::ibv_pd {
        self.0.pd.as_ptr()
    }
}

impl PartialEq for ProtectionDomain {
    fn eq(&self, other: &Self) -> bool {
        self.id() == other.id()
    }
}

impl Eq for ProtectionDomain {}

impl fmt::Debug for ProtectionDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProtectionDomain")
            .field("device", &self.context().device().name())
            .field("id", &self.id())
            .finish_non_exhaustive()
    }
}
