//! The devices of this host, before they are opened.

use std::ffi::{OsString, c_char};
use std::fmt;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use farreach_verbs_sys as sys;
use farreach_verbs_sys::Ibverbs;

use crate::ah::Guid;
use crate::context::Context;
use crate::error::Error;
use crate::handle::ListedDevice;
use crate::sysfs;

/// The devices that libibverbs finds: those of the kernel for which it has a provider library.
///
/// A list is a snapshot. Get a new list to see devices that were added later.
///
/// ```
/// use farreach_verbs::device::DeviceList;
///
/// match DeviceList::get() {
///     Ok(devices) => println!("{} devices", devices.len()),
///     Err(error) => println!("{error}: {}", error.fix()),
/// }
/// ```
#[derive(Debug, Clone)]
pub struct DeviceList {
    devices: Vec<Device>,
}

impl DeviceList {
    /// Lists the devices, sorted by name: `ibv_get_device_list(3)`.
    ///
    /// An empty list is not an error: either the kernel supports RDMA and has no device, or there
    /// is no provider library for its devices. [`survey`](crate::system::survey) finds out which.
    #[doc(alias = "ibv_get_device_list")]
    #[doc(alias = "ibv_free_device_list")]
    pub fn get() -> Result<Self, Error> {
        Self::of(Ibverbs::get()?)
    }

    /// Lists the devices that this library finds.
    pub(crate) fn of(lib: &'static Ibverbs) -> Result<Self, Error> {
        let listed =
            ListedDevice::all(lib)?.ok_or_else(|| Error::last("ibv_get_device_list", "this host"))?;
        let mut devices = listed.into_iter().map(Device::new).collect::<Result<Vec<_>, _>>()?;
        devices.sort_by(|a, b| a.name().cmp(b.name()));
        Ok(Self { devices })
    }

    /// Returns the device with that name, such as `mlx5_0`.
    pub fn find(&self, name: &str) -> Option<&Device> {
        self.iter().find(|device| device.name() == name)
    }

    /// Returns an iterator over the devices.
    pub fn iter(&self) -> std::slice::Iter<'_, Device> {
        self.devices.iter()
    }

    /// Returns the number of devices.
    pub fn len(&self) -> usize {
        self.devices.len()
    }

    /// Returns `true` if there is no device.
    pub fn is_empty(&self) -> bool {
        self.devices.is_empty()
    }
}

impl<'a> IntoIterator for &'a DeviceList {
    type Item = &'a Device;
    type IntoIter = std::slice::Iter<'a, Device>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// A device that is not open. It is cheap to clone, and outlives the list that it came from.
///
/// ```no_run
/// use farreach_verbs::device::DeviceList;
///
/// let devices = DeviceList::get()?;
/// let device = devices.find("rxe0").expect("a device named rxe0");
/// println!("{}: {} by {:?}", device.name(), device.transport(), device.driver());
/// let context = device.open()?;
/// # Ok::<(), farreach_verbs::Error>(())
/// ```
#[derive(Clone)]
pub struct Device(Arc<Inner>);

struct Inner {
    device: ListedDevice,
    name: String,
    node: String,
    sysfs: PathBuf,
    guid: Guid,
    node_type: NodeType,
    transport: Transport,
}

impl Device {
    fn new(device: ListedDevice) -> Result<Self, Error> {
        let raw = device.fields();
        Ok(Self(Arc::new(Inner {
            name: text(&raw.name).to_string_lossy().into_owned(),
            node: text(&raw.dev_name).to_string_lossy().into_owned(),
            sysfs: PathBuf::from(text(&raw.ibdev_path)),
            guid: Guid::from_be(device.guid()?),
            node_type: NodeType::from_raw(raw.node_type),
            transport: Transport::from_raw(raw.transport_type),
            device,
        })))
    }

    /// Returns the kernel's name for the device: `ibv_get_device_name(3)`.
    #[doc(alias = "ibv_get_device_name")]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns the kernel's index: `ibv_get_device_index(3)`. `None` if the kernel or the library
    /// is too old to report it.
    #[doc(alias = "ibv_get_device_index")]
    pub fn index(&self) -> Option<u32> {
        u32::try_from(self.0.device.index().ok()?).ok()
    }

    /// Returns the GUID: `ibv_get_device_guid(3)`.
    #[doc(alias = "ibv_get_device_guid")]
    pub fn node_guid(&self) -> Guid {
        self.0.guid
    }

    /// Returns the node type.
    #[doc(alias = "ibv_node_type")]
    pub fn node_type(&self) -> NodeType {
        self.0.node_type
    }

    /// Returns the transport protocol. RoCE is reported as InfiniBand; the link layer of the port
    /// distinguishes them.
    #[doc(alias = "ibv_transport_type")]
    pub fn transport(&self) -> Transport {
        self.0.transport
    }

    /// Returns the path of the device in sysfs: `/sys/class/infiniband/NAME`.
    pub fn sysfs_path(&self) -> &Path {
        &self.0.sysfs
    }

    /// Returns the path of the character device that [`open`](Self::open) opens:
    /// `/dev/infiniband/uverbsN`.
    pub fn uverbs_node(&self) -> PathBuf {
        Path::new("/dev/infiniband").join(&self.0.node)
    }

    /// Returns the kernel driver, such as `mlx5_core` or `rdma_rxe`, if sysfs reports it.
    pub fn driver(&self) -> Option<String> {
        sysfs::driver(self.sysfs_path())
    }

    /// Returns the PCI address, such as `0000:3b:00.0`. `None` for a software device.
    pub fn pci_address(&self) -> Option<String> {
        sysfs::pci_address(self.sysfs_path())
    }

    /// Returns the NUMA node that the device is attached to. `None` if there is only one node, or
    /// for a software device.
    pub fn numa_node(&self) -> Option<u32> {
        sysfs::numa_node(self.sysfs_path())
    }

    /// Opens the device: `ibv_open_device(3)`.
    #[doc(alias = "ibv_open_device")]
    pub fn open(&self) -> Result<Context, Error> {
        Context::open(self)
    }

    /// Returns the library that listed the device.
    pub(crate) fn lib(&self) -> &'static Ibverbs {
        self.0.device.lib()
    }

    pub(crate) fn as_ptr(&self) -> *mut sys::ibv_device {
        self.0.device.as_ptr()
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device").field("name", &self.name()).finish_non_exhaustive()
    }
}

/// Returns the text in a C array, up to its NUL or its end.
pub(crate) fn text(array: &[c_char]) -> OsString {
    OsString::from_vec(array.iter().map(|byte| *byte as u8).take_while(|byte| *byte != 0).collect())
}

c_enum! {
    /// The node type of a device.
    ///
    /// ```
    /// use farreach_verbs::device::NodeType;
    ///
    /// assert_eq!(NodeType::ChannelAdapter.to_string(), "channel adapter");
    /// ```
    #[doc(alias = "ibv_node_type")]
    pub enum NodeType(i32) {
        /// InfiniBand or RoCE.
        ChannelAdapter = sys::IBV_NODE_CA, "channel adapter";
        /// The management port of a switch.
        Switch = sys::IBV_NODE_SWITCH, "switch";
        /// The management port of a router.
        Router = sys::IBV_NODE_ROUTER, "router";
        /// iWARP.
        Rnic = sys::IBV_NODE_RNIC, "iWARP NIC";
        /// usNIC.
        UsNic = sys::IBV_NODE_USNIC, "usNIC";
        /// usNIC over UDP.
        UsNicUdp = sys::IBV_NODE_USNIC_UDP, "usNIC UDP";
        /// A vendor-specific protocol, such as EFA.
        Unspecified = sys::IBV_NODE_UNSPECIFIED, "unspecified";
    }
}

c_enum! {
    /// The transport protocol of a device.
    ///
    /// ```
    /// use farreach_verbs::device::Transport;
    ///
    /// assert_eq!(Transport::Iwarp.to_string(), "iWARP");
    /// ```
    #[doc(alias = "ibv_transport_type")]
    pub enum Transport(i32) {
        /// InfiniBand, which RoCE carries over Ethernet.
        InfiniBand = sys::IBV_TRANSPORT_IB, "InfiniBand";
        /// iWARP.
        Iwarp = sys::IBV_TRANSPORT_IWARP, "iWARP";
        /// usNIC.
        UsNic = sys::IBV_TRANSPORT_USNIC, "usNIC";
        /// usNIC over UDP.
        UsNicUdp = sys::IBV_TRANSPORT_USNIC_UDP, "usNIC UDP";
        /// A vendor-specific protocol, such as EFA.
        Unspecified = sys::IBV_TRANSPORT_UNSPECIFIED, "unspecified";
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_ends_at_its_nul_or_at_the_arrays_end() {
        let array = [b'r' as c_char, b'x' as c_char, b'e' as c_char, 0, 7];
        assert_eq!(text(&array), "rxe");
        assert_eq!(text(&array[..2]), "rx");
    }

    #[test]
    fn devices_go_to_any_thread() {
        fn any_thread<T: Send + Sync>() {}
        any_thread::<DeviceList>();
        any_thread::<Device>();
        any_thread::<Context>();
    }

    #[test]
    fn an_unknown_kind_is_kept() {
        assert_eq!(NodeType::from_raw(-1), NodeType::Unknown(-1));
        assert_eq!(Transport::from_raw(0), Transport::InfiniBand);
    }
}
