//! The card of a domain.

use std::fmt;

use crate::LinkState;

/// The properties of the card, as far as the provider knows them: `fi_nic(3)`.
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
    /// The address on the PCI bus.
    pub pci: Option<PciAddress>,
    /// The address of the port.
    pub link_address: Option<String>,
    /// The maximum frame size in bytes; 0 if unknown.
    pub mtu: usize,
    /// The rate of the link; 0 if unknown.
    pub speed_bits_per_second: usize,
    /// Whether the link is up.
    pub link_state: LinkState,
    /// The kind of network, such as `InfiniBand` or `Ethernet`.
    pub network_type: Option<String>,
}

/// An address on the PCI bus.
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

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}:{:02x}:{:02x}.{:x}", self.domain, self.bus, self.device, self.function)
    }
}
