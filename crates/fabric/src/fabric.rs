//! Fabrics: a network, as its provider sees it.

use std::fmt;
use std::ptr;
use std::sync::Arc;

use farreach_fabric_sys as sys;

use crate::handle::Handle;
use crate::leak::Kind;
use crate::{Error, Info, Library};

/// An open fabric: `fi_fabric(3)`.
///
/// Cheap to clone; it is closed when the last clone, and every domain in it, is gone.
///
/// ```no_run
/// use farreach_fabric::{Fabric, Hints, Info};
///
/// let offers = Info::query(&Hints::rdm().provider("tcp"))?;
/// let fabric = Fabric::open(&offers[0])?;
/// let domain = fabric.open_domain(&offers[0])?;
/// # Ok::<(), farreach_fabric::Error>(())
/// ```
#[doc(alias = "fid_fabric")]
#[derive(Clone)]
pub struct Fabric(Arc<Inner>);

struct Inner {
    fabric: Handle<sys::fid_fabric>,
    library: Library,
    provider: String,
    name: String,
}

impl Fabric {
    /// Opens the fabric of an offer: `fi_fabric(3)`.
    #[doc(alias = "fi_fabric")]
    pub fn open(info: &Info) -> Result<Self, Error> {
        let library = Library::open()?;
        let functions = library.functions();
        let attr = info.fabric_attr();
        let mut missing = None;
        let open = |fabric: *mut *mut sys::fid_fabric| {
            // SAFETY: the structure is the library's own, and lives through the call, which only reads it.
            let answer = unsafe { functions.fi_fabric(attr, fabric, ptr::null_mut()) };
            answer.unwrap_or_else(|error| {
                missing = Some(error);
                -sys::FI_ENOSYS
            })
        };
        // SAFETY: the function writes a fabric where it answers 0. What is opened with `FI_THREAD_SAFE` may be called from any
        // thread, and no domain is opened otherwise.
        let opened = unsafe { Handle::open(&library, "fi_fabric", open) };
        let fabric = match missing {
            Some(missing) => return Err(missing.into()),
            None => opened?,
        };
        let (provider, name) = (info.provider().to_owned(), info.fabric().to_owned());
        Ok(Self(Arc::new(Inner { fabric, library, provider, name })))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The provider.
    pub fn provider(&self) -> &str {
        &self.0.provider
    }

    /// The C object. It lives as long as this does.
    pub fn as_raw(&self) -> *mut sys::fid_fabric {
        self.0.fabric.as_ptr()
    }

    pub(crate) fn library(&self) -> &Library {
        &self.0.library
    }
}

impl fmt::Debug for Fabric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fabric")
            .field("provider", &self.provider())
            .field("name", &self.name())
            .finish_non_exhaustive()
    }
}

impl Drop for Inner {
    #[doc(alias = "fi_close")]
    fn drop(&mut self) {
        // It stands on nothing, so there is nothing to keep where it does not close.
        // SAFETY: everything made of the fabric holds it, so nothing is left.
        let _ = unsafe { self.fabric.close(&self.library, Kind::Fabric) };
    }
}
