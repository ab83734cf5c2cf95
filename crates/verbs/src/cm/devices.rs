//! The devices that connections can use.

use farreach_verbs_sys::Rdmacm;

use super::error::Error;
use super::handle::{self, last_errno};
use crate::device::{Device, DeviceList};

/// Returns the devices that the connection manager knows, sorted by name: `rdma_get_devices(3)`.
///
/// ```no_run
/// for device in farreach_verbs::cm::get_devices()? {
///     println!("{} at {}", device.name(), device.node_guid());
/// }
/// # Ok::<(), farreach_verbs::cm::Error>(())
/// ```
#[doc(alias = "rdma_get_devices")]
#[doc(alias = "rdma_free_devices")]
pub fn get_devices() -> Result<Vec<Device>, Error> {
    let lib = Rdmacm::get()?;
    // The list is taken while librdmacm has its contexts open. Only then do both libraries use the
    // same pointer for a device.
    let Some((known, listed)) = handle::with_devices(lib, DeviceList::get)? else {
        return Err(Error::call("rdma_get_devices", "this host", last_errno()));
    };
    Ok(listed?.iter().filter(|device| known.contains(&device.as_ptr())).cloned().collect())
}
