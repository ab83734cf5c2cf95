//! The devices that connections can be made over.

use std::ptr::NonNull;

use farreach_verbs_sys::Rdmacm;

use super::error::Error;
use super::handle::last_errno;
use crate::device::{Device, DeviceList};

/// The devices that the connection manager knows, sorted by name: `rdma_get_devices(3)`.
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
    let mut count = 0;
    // SAFETY: `count` is a variable of this function.
    let list = unsafe { lib.rdma_get_devices(&raw mut count) }?;
    let Some(list) = NonNull::new(list) else {
        return Err(Error::call("rdma_get_devices", "this host", last_errno()));
    };
    // While the contexts are open: so both libraries know a device by the same pointer.
    let listed = DeviceList::get();
    let count = usize::try_from(count).unwrap_or(0);
    // SAFETY: the list holds `count` contexts, each of which is open and has its device until the list is freed: once, at the end.
    let known: Vec<_> = unsafe {
        let known = (0..count).map(|place| (**list.as_ptr().add(place)).device).collect();
        lib.rdma_free_devices(list.as_ptr())?;
        known
    };
    Ok(listed?.iter().filter(|device| known.contains(&device.as_ptr())).cloned().collect())
}
