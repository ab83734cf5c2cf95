//! An open device.

use std::fmt;
use std::fs::OpenOptions;
use std::sync::Arc;

use farreach_verbs_sys as sys;
use farreach_verbs_sys::Ibverbs;

use crate::ah::{GidEntry, GidType, NetDevice};
use crate::attributes::DeviceAttributes;
use crate::device::Device;
use crate::error::Error;
use crate::handle::Owned;
use crate::os;
use crate::port::PortAttributes;
use crate::sysfs;

/// An open device, the parent of every object on it. It is cheap to clone. The device is closed
/// when the last clone, and every object made from one, is gone.
///
/// ```no_run
/// use farreach_verbs::device::DeviceList;
///
/// let devices = DeviceList::get()?;
/// let context = devices.find("rxe0").expect("a device named rxe0").open()?;
/// for port in 1..=context.query_device()?.port_count as u8 {
///     println!("port {port}: {}", context.query_port(port)?.state);
/// }
/// # Ok::<(), farreach_verbs::Error>(())
/// ```
#[doc(alias = "ibv_context")]
#[derive(Clone)]
#[doc(alias = "ibv_close_device")]
pub struct Context(Arc<Owned<sys::ibv_context, Device>>);

impl Context {
    pub(crate) fn open(device: &Device) -> Result<Self, Error> {
        let context = Owned::open_device(device)?.ok_or_else(|| open_error(device))?;
        Ok(Self(Arc::new(context)))
    }

    /// Returns the device.
    pub fn device(&self) -> &Device {
        self.0.parents()
    }

    /// Returns the number of completion vectors that events can be spread over.
    pub fn completion_vector_count(&self) -> u32 {
        u32::try_from(self.0.num_comp_vectors()).unwrap_or(0)
    }

    /// Returns the device's limits and capabilities: `ibv_query_device_ex(3)`.
    #[doc(alias = "ibv_query_device")]
    #[doc(alias = "ibv_query_device_ex")]
    pub fn query_device(&self) -> Result<DeviceAttributes, Error> {
        let mut attr = sys::ibv_device_attr_ex::default();
        match self.0.query_device(&mut attr)? {
            0 => Ok(DeviceAttributes::from(&attr)),
            errno => Err(Error::call("ibv_query_device_ex", self.device().name(), errno)),
        }
    }

    /// Returns the attributes of a port: `ibv_query_port(3)`. Ports are numbered from 1.
    #[doc(alias = "ibv_query_port")]
    pub fn query_port(&self, port: u8) -> Result<PortAttributes, Error> {
        let mut attr = sys::ibv_port_attr::default();
        match self.0.query_port(port, &mut attr)? {
            0 => Ok(PortAttributes::from(&attr)),
            errno => Err(Error::call("ibv_query_port", self.port_name(port), errno)),
        }
    }

    /// Returns the used entries of a port's GID table: `ibv_query_gid_table(3)`.
    ///
    /// Returns [`Error::Symbol`] with libraries before rdma-core 32, which cannot distinguish RoCE
    /// v1 from v2.
    #[doc(alias = "ibv_query_gid_table")]
    #[doc(alias = "ibv_query_gid_ex")]
    #[doc(alias = "ibv_query_gid")]
    pub fn gid_table(&self, port: u8) -> Result<Vec<GidEntry>, Error> {
        // One call reads the tables of all ports, so the array must have room for all of them.
        let ports = self.query_device()?.port_count.min(u8::MAX.into()) as u8;
        let mut room = 0;
        for port in 1..=ports {
            room += self.query_port(port)?.gid_table_len as usize;
        }
        let mut entries = vec![sys::ibv_gid_entry::default(); room];
        let filled = self.0.query_gid_table(&mut entries)?;
        let filled = usize::try_from(filled).map_err(|_| {
            // A negative errno, which fits an `i32`.
            Error::call("ibv_query_gid_table", self.port_name(port), -filled as i32)
        })?;
        entries.truncate(filled);
        let of_this_port = entries.into_iter().filter(|entry| entry.port_num == u32::from(port));
        Ok(of_this_port.map(|entry| self.gid_entry(port, &entry)).collect())
    }

    fn gid_entry(&self, port: u8, entry: &sys::ibv_gid_entry) -> GidEntry {
        let net_device = (entry.ndev_ifindex != 0).then(|| NetDevice {
            index: entry.ndev_ifindex,
            // The index belongs to the net device's own namespace, which may differ from this
            // process's. So the name in sysfs takes precedence over a lookup in this namespace.
            name: sysfs::gid_net_device(self.device().sysfs_path(), port, entry.gid_index)
                .or_else(|| os::interface_name(entry.ndev_ifindex)),
        });
        GidEntry {
            index: entry.gid_index,
            gid: entry.gid.into(),
            gid_type: GidType::from_raw(entry.gid_type),
            net_device,
        }
    }

    /// Returns an entry of a port's P_Key table: `ibv_query_pkey(3)`. The highest bit means full
    /// membership of the partition.
    #[doc(alias = "ibv_query_pkey")]
    pub fn query_pkey(&self, port: u8, index: u16) -> Result<u16, Error> {
        let mut pkey = 0;
        match self.0.query_pkey(port, index.into(), &mut pkey)? {
            0 => Ok(u16::from_be(pkey)),
            _ => Err(Error::last("ibv_query_pkey", self.port_name(port))),
        }
    }

    /// Returns the error of the call that just failed on this context, with the thread's `errno`.
    pub(crate) fn failed(&self, operation: &'static str) -> Error {
        Error::last(operation, self.device().name())
    }

    /// Checks that an object of `other` may be used with one of this context. The kernel numbers
    /// objects per context, so the number of an object of another context would name a different
    /// object.
    pub(crate) fn check_same(&self, other: &Self, object: &'static str) -> Result<(), Error> {
        if Arc::ptr_eq(&self.0, &other.0) {
            return Ok(());
        }
        Err(Error::OtherContext { object, subject: self.device().name().to_owned() })
    }

    pub(crate) fn lib(&self) -> &'static Ibverbs {
        self.0.lib()
    }

    pub(crate) fn port_name(&self, port: u8) -> String {
        format!("port {port} of {}", self.device().name())
    }

    /// Returns the C object. It stays open while `self` or a clone lives.
    pub fn as_raw(&self) -> *mut sys::ibv_context {
        self.0.as_ptr()
    }

    pub(crate) fn handle(&self) -> &Owned<sys::ibv_context, Device> {
        &self.0
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("device", &self.device().name()).finish_non_exhaustive()
    }
}

/// Returns the error for a device that did not open. After libibverbs is refused a node, it
/// searches for another one, and the `errno` that it leaves is that of the search. So this opens
/// the node itself to find the cause.
fn open_error(device: &Device) -> Error {
    let told = Error::last("ibv_open_device", device.name());
    match OpenOptions::new().read(true).write(true).open(device.uverbs_node()) {
        Ok(_) => told,
        Err(error) => match error.raw_os_error() {
            Some(errno) => Error::call("ibv_open_device", device.name(), errno),
            None => told,
        },
    }
}
