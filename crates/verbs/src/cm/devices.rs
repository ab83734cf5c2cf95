//! The devices that connections can be made over.

use std::ptr::NonNull;

use farreach_verbs_sys as sys;
use farreach_verbs_sys::Rdmacm;

use super::channel::last_errno;
use super::error::Error;
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
    // SAFETY: the number is valid for writing.
    let list = unsafe { lib.rdma_get_devices(&raw mut count) }?;
    let Some(list) = NonNull::new(list) else {
        return Err(Error::call("rdma_get_devices", "this host", last_errno()));
    };
    let contexts: Vec<*mut sys::ibv_context> =
        // SAFETY: the list holds that many.
        (0..usize::try_from(count).unwrap_or(0)).map(|place| unsafe { *list.as_ptr().add(place) }).collect();
    let listed = DeviceList::get();
    // SAFETY: the contexts are open as long as the list is not freed. Both libraries know a device by the same pointer.
    let known: Vec<_> = contexts.iter().map(|context| unsafe { (**context).device }).collect();
    // SAFETY: freed once, and not used after.
    unsafe { lib.rdma_free_devices(list.as_ptr()) }?;
    Ok(listed?.iter().filter(|device| known.contains(&device.as_ptr())).cloned().collect())
}
