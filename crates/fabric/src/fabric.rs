//! Fabrics: a network of one provider.

use std::fmt;
use std::sync::Arc;

use farreach_fabric_sys as sys;

use crate::handle::Handle;
use crate::{Error, Info, Library};

/// An open fabric: `fi_fabric(3)`.
///
/// It is cheap to clone. It is closed when the last clone, and every domain in it, is dropped.
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
    provider: String,
    name: String,
}

impl Fabric {
    /// Opens the fabric of an offer: `fi_fabric(3)`.
    #[doc(alias = "fi_fabric")]
    pub fn open(info: &Info) -> Result<Self, Error> {
        let fabric = Handle::<sys::fid_fabric>::open(&Library::open()?, info)?;
        let (provider, name) = (info.provider().to_owned(), info.fabric().to_owned());
        Ok(Self(Arc::new(Inner { fabric, provider, name })))
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns the provider's name.
    pub fn provider(&self) -> &str {
        &self.0.provider
    }

    /// Returns the C object. It lives as long as this value.
    pub fn as_raw(&self) -> *mut sys::fid_fabric {
        self.0.fabric.as_ptr()
    }

    #[inline]
    pub(crate) fn handle(&self) -> &Handle<sys::fid_fabric> {
        &self.0.fabric
    }

    pub(crate) fn library(&self) -> &Library {
        self.0.fabric.parents()
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
