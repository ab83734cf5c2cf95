//! The card behind a domain.

use std::fmt;

use farreach_fabric_sys as sys;

use crate::LinkState;
use crate::raw::{NicParts, text};

/// What the provider knows of the card: `fi_nic(3)`.
///
/// ```
/// use farreach_fabric::{Hints, Info};
///
/// for info in Info::query(&Hints::new()).unwrap_or_default() {
///     if let Some(nic) = info.nic() {
///         println!("{}: {:?}, {} bit/s", info.domain(), nic.device, nic.speed_bits_per_second);
///     }
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[doc(alias = "fid_nic")]
#[non_exhaustive]
pub struct Nic {
    /// The device's name, such as `mlx5_0` or `eth0`.
    pub device: Option<String>,
    /// The vendor's number for the kind of device.
    pub device_id: Option<String>,
    /// The version of the device.
    pub device_version: Option<String>,
    /// The vendor's number.
    pub vendor_id: Option<String>,
    /// The driver.
    pub driver: Option<String>,
    /// The firmware.
    pub firmware: Option<String>,
    /// Where it sits on the PCI bus.
    pub pci: Option<PciAddress>,
    /// The port's own address.
    pub link_address: Option<String>,
    /// The largest frame, in bytes; 0 where not known.
    pub mtu: usize,
    /// The rate of the link; 0 where not known.
    pub speed_bits_per_second: usize,
    /// Whether the link is up.
    pub link_state: LinkState,
    /// The kind of network, such as `InfiniBand` or `Ethernet`.
    pub network_type: Option<String>,
}

impl Nic {
    pub(crate) fn from_raw(parts: NicParts<'_>) -> Self {
        // SAFETY: every text of these structures is null or NUL-terminated and lives as long as they do.
        let copy = |pointer: *mut std::ffi::c_char| unsafe { text(pointer) };
        let NicParts { device, bus, link } = parts;
        Self {
            device: device.and_then(|device| copy(device.name)),
            device_id: device.and_then(|device| copy(device.device_id)),
            device_version: device.and_then(|device| copy(device.device_version)),
            vendor_id: device.and_then(|device| copy(device.vendor_id)),
            driver: device.and_then(|device| copy(device.driver)),
            firmware: device.and_then(|device| copy(device.firmware)),
            pci: bus.and_then(PciAddress::from_raw),
            link_address: link.and_then(|link| copy(link.address)),
            mtu: link.map_or(0, |link| link.mtu),
            speed_bits_per_second: link.map_or(0, |link| link.speed),
            link_state: link.map_or(LinkState::Unknown, |link| LinkState::from_c(link.state)),
            network_type: link.and_then(|link| copy(link.network_type)),
        }
    }
}

/// A place on the PCI bus.
///
/// ```
/// use farreach_fabric::PciAddress;
///
/// let pci = PciAddress { domain: 0, bus: 0x3b, device: 0, function: 1 };
/// assert_eq!(pci.to_string(), "0000:3b:00.1");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[doc(alias = "fi_pci_attr")]
pub struct PciAddress {
    /// The domain, also called segment.
    pub domain: u16,
    /// The bus.
    pub bus: u8,
    /// The device.
    pub device: u8,
    /// The function.
    pub function: u8,
}

impl PciAddress {
    fn from_raw(bus: &sys::fi_bus_attr) -> Option<Self> {
        if bus.bus_type != sys::FI_BUS_PCI {
            return None;
        }
        // SAFETY: the type says that the union holds this, and every bit pattern is a value of it.
        let pci = unsafe { bus.attr.pci };
        Some(Self {
            domain: pci.domain_id,
            bus: pci.bus_id,
            device: pci.device_id,
            function: pci.function_id,
        })
    }
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}:{:02x}:{:02x}.{:x}", self.domain, self.bus, self.device, self.function)
    }
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;

    #[test]
    fn a_card_is_copied_out() {
        let device = sys::fi_device_attr {
            name: c"rdmap0".as_ptr().cast_mut(),
            device_id: c"0xefa1".as_ptr().cast_mut(),
            device_version: ptr::null_mut(),
            vendor_id: c"0x1d0f".as_ptr().cast_mut(),
            driver: c"efa".as_ptr().cast_mut(),
            firmware: ptr::null_mut(),
        };
        let pci = sys::fi_pci_attr { domain_id: 1, bus_id: 0x4f, device_id: 2, function_id: 0 };
        let mut bus =
            sys::fi_bus_attr { bus_type: sys::FI_BUS_PCI, attr: sys::fi_bus_attr__bindgen_ty_1 { pci } };
        let link = sys::fi_link_attr {
            address: ptr::null_mut(),
            mtu: 8760,
            speed: 100_000_000_000,
            state: sys::FI_LINK_UP,
            network_type: c"Ethernet".as_ptr().cast_mut(),
        };

        let nic = Nic::from_raw(NicParts { device: Some(&device), bus: Some(&bus), link: Some(&link) });
        assert_eq!(nic.device.as_deref(), Some("rdmap0"));
        assert_eq!(nic.firmware, None);
        assert_eq!(nic.pci.map(|pci| pci.to_string()).as_deref(), Some("0001:4f:02.0"));
        assert_eq!((nic.mtu, nic.speed_bits_per_second), (8760, 100_000_000_000));
        assert_eq!(nic.link_state, LinkState::Up);

        bus.bus_type = sys::FI_BUS_UNKNOWN;
        let nic = Nic::from_raw(NicParts { device: None, bus: Some(&bus), link: None });
        assert_eq!((nic.device, nic.pci, nic.link_state), (None, None, LinkState::Unknown));
    }
}
