//! The list of devices.

use std::ffi::{c_char, c_int};
use std::ptr::NonNull;
use std::sync::Arc;

use farreach_verbs_sys as sys;
use farreach_verbs_sys::{Ibverbs, SymbolMissing};

use super::Handle;

/// The C list, freed when the last of its devices is dropped.
struct List {
    lib: &'static Ibverbs,
    list: NonNull<*mut sys::ibv_device>,
}

// SAFETY: the list is only read, and libibverbs can free it on any thread.
unsafe impl Send for List {}
// SAFETY: the list is only read, until the last holder frees it.
unsafe impl Sync for List {}

impl Drop for List {
    fn drop(&mut self) {
        // A library that has ibv_get_device_list has this function too.
        // SAFETY: the list came from ibv_get_device_list. Each of its `ListedDevice`s holds it, so
        // none is left.
        let _ = unsafe { self.lib.ibv_free_device_list(self.list.as_ptr()) };
    }
}

/// A device of a list. libibverbs does not change a listed device, and counts its users itself.
pub(crate) struct ListedDevice {
    device: Handle<sys::ibv_device>,
    /// Keeps the device listed.
    list: Arc<List>,
}

/// The fields of a listed device.
pub(crate) struct DeviceFields {
    pub(crate) name: [c_char; 64],
    pub(crate) dev_name: [c_char; 64],
    pub(crate) ibdev_path: [c_char; 256],
    pub(crate) node_type: sys::ibv_node_type,
    pub(crate) transport_type: sys::ibv_transport_type,
}

impl ListedDevice {
    /// Lists all devices that this library finds. Returns `None` with `errno` set on failure.
    pub(crate) fn all(lib: &'static Ibverbs) -> Result<Option<Vec<Self>>, SymbolMissing> {
        let mut count: c_int = 0;
        // SAFETY: `count` is a local variable.
        let list = unsafe { lib.ibv_get_device_list(&raw mut count) }?;
        let Some(list) = NonNull::new(list) else { return Ok(None) };
        let owner = Arc::new(List { lib, list });
        let count = usize::try_from(count).unwrap_or(0);
        // SAFETY: the list holds `count` devices. Each lives until the list is freed, and the
        // `ListedDevice` that is made of it holds the list.
        let device = |place| unsafe { Handle::new(list.as_ptr().add(place).read()) };
        let devices = (0..count).filter_map(device);
        Ok(Some(devices.map(|device| Self { device, list: Arc::clone(&owner) }).collect()))
    }

    pub(crate) fn lib(&self) -> &'static Ibverbs {
        self.list.lib
    }

    pub(crate) fn as_ptr(&self) -> *mut sys::ibv_device {
        self.device.as_ptr()
    }

    pub(crate) fn guid(&self) -> Result<u64, SymbolMissing> {
        // SAFETY: the device lives, because `list` keeps it.
        unsafe { self.lib().ibv_get_device_guid(self.as_ptr()) }
    }

    pub(crate) fn index(&self) -> Result<c_int, SymbolMissing> {
        // SAFETY: the device lives, because `list` keeps it.
        unsafe { self.lib().ibv_get_device_index(self.as_ptr()) }
    }

    pub(crate) fn fields(&self) -> DeviceFields {
        // SAFETY: the device lives, because `list` keeps it. The library writes these fields before
        // it lists a device, and never again.
        unsafe {
            let device = self.as_ptr();
            DeviceFields {
                name: (*device).name,
                dev_name: (*device).dev_name,
                ibdev_path: (*device).ibdev_path,
                node_type: (*device).node_type,
                transport_type: (*device).transport_type,
            }
        }
    }
}
