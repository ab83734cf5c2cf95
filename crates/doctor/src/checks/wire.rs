//! Describes a port: its link layer, its net devices and its card. The checks of ports, networks
//! and PCI use it.

use super::cards::hidden;
use crate::finding::{Answer, Finding};
use crate::kernel_names::is_interface;
use crate::pack::{Missing, Pack, Port};

/// The protocol of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wire {
    InfiniBand,
    /// RDMA over Ethernet, implemented by a card.
    Roce,
    /// RDMA over Ethernet, implemented by the kernel.
    SoftRoce,
    /// RDMA over TCP.
    Iwarp,
    /// Amazon's EFA reports its link layer as unspecified.
    Unspecified,
}

impl Wire {
    pub(super) fn is_roce(self) -> bool {
        matches!(self, Self::Roce | Self::SoftRoce)
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::InfiniBand => "InfiniBand",
            Self::Roce => "RoCE",
            Self::SoftRoce => "Soft-RoCE",
            Self::Iwarp => "iWARP",
            Self::Unspecified => "link layer unspecified",
        }
    }
}

/// A port and its protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WiredPort<'a> {
    pub(super) port: Port<'a>,
    pub(super) wire: Wire,
}

/// Returns the protocol of a port, or the file that could not be read and why.
pub(super) fn wire(pack: &Pack, port: &Port) -> Result<Wire, (String, Missing)> {
    let path = port.path("link_layer");
    match pack.text(&path) {
        Ok("InfiniBand") => Ok(Wire::InfiniBand),
        // Only Soft-RoCE devices have the file `parent`: it names the net device beneath.
        Ok("Ethernet") if pack.text(&device_path(port.device, "parent")).is_ok() => Ok(Wire::SoftRoce),
        Ok("Ethernet") if is_rnic(pack, port.device) => Ok(Wire::Iwarp),
        Ok("Ethernet") => Ok(Wire::Roce),
        Ok(_) => Ok(Wire::Unspecified),
        Err(missing) => Err((path, missing)),
    }
}

/// Makes one finding for each port that a check is for, or `DoesNotApply(why_none)` if there is
/// none. Ports whose net devices are in another network namespace are left out.
pub(super) fn each_port(
    pack: &Pack,
    is_for: impl Fn(Wire) -> bool,
    why_none: &str,
    look: impl FnMut(&WiredPort) -> Finding,
) -> Answer {
    let ports = pack.ports().into_iter().filter(|port| !is_anothers(pack, port));
    each_of(ports, pack, is_for, why_none, look)
}

/// Like [`each_port`], for these ports only.
pub(super) fn each_of<'a>(
    ports: impl IntoIterator<Item = Port<'a>>,
    pack: &'a Pack,
    is_for: impl Fn(Wire) -> bool,
    why_none: &str,
    mut look: impl FnMut(&WiredPort) -> Finding,
) -> Answer {
    let findings = ports.into_iter().filter_map(|port| match wire(pack, &port) {
        Ok(wire) => is_for(wire).then(|| look(&WiredPort { port, wire }).of(port.words())),
        // The port may be one that the check is for, so it is not left out.
        Err((path, missing)) => Some(Finding::unread(&path, &missing).of(port.words())),
    });
    or_hidden(pack, Answer::of_each(findings, why_none, |finding| finding))
}

/// Replaces `DoesNotApply` if the devices are hidden: it is then unknown whether the check applies.
pub(super) fn or_hidden(pack: &Pack, answer: Answer) -> Answer {
    match (&answer, hidden(pack)) {
        (Answer::DoesNotApply(_), Some(hidden)) => hidden.into(),
        _ => answer,
    }
}

fn is_rnic(pack: &Pack, device: &str) -> bool {
    pack.text(&device_path(device, "node_type")).is_ok_and(|kind| kind.starts_with("4:"))
}

/// Returns the path of one of a device's files.
pub(super) fn device_path(device: &str, file: &str) -> String {
    format!("/sys/class/infiniband/{device}/{file}")
}

/// Returns the net devices of a port: the card's own first, then those of its GIDs (a VLAN, a
/// bond). What cannot be a name is left out.
pub(super) fn net_devices<'a>(pack: &'a Pack, port: &Port) -> Vec<&'a str> {
    let mut names: Vec<&str> = pack.text(&device_path(port.device, "parent")).ok().into_iter().collect();
    names.extend(pack.names(&device_path(port.device, "device/net")));
    let folder = port.path("gid_attrs/ndevs");
    names.extend(pack.names(&folder).iter().filter_map(|index| pack.text(&format!("{folder}/{index}")).ok()));
    let mut seen = Vec::new();
    names.retain(|name| is_interface(name) && !seen.contains(name) && (seen.push(*name), true).1);
    names
}

/// Returns whether a port's net devices are in another network namespace, while those of another
/// port are in this one.
///
/// Hosts of many containers show every device in each container. The check of namespaces reports
/// such ports; the others skip them.
pub(super) fn is_anothers(pack: &Pack, port: &Port) -> bool {
    is_away(pack, port) == Some(true)
        && pack.ports().iter().any(|other| other != port && is_away(pack, other) == Some(false))
}

/// Returns whether none of a port's net devices is in this namespace; `None` if the port has no net
/// device, or if the interfaces are not known.
fn is_away(pack: &Pack, port: &Port) -> Option<bool> {
    let here = pack.probes().interfaces.get().ok()?;
    let names = net_devices(pack, port);
    let is_here = |name: &&str| here.iter().any(|interface| interface.name == **name);
    (!names.is_empty()).then(|| !names.iter().any(is_here))
}

/// Returns the first of a port's net devices, for use in a command; a placeholder if there is none.
pub(super) fn net_device<'a>(pack: &'a Pack, port: &Port) -> &'a str {
    net_devices(pack, port).first().copied().unwrap_or("NETDEVICE")
}

/// Returns the PCI address of a device's card, or `None` if there is no card.
pub(super) fn pci_address<'a>(pack: &'a Pack, device: &str) -> Option<&'a str> {
    // Older kernels link a Soft-RoCE device to the card of its net device.
    if pack.text(&device_path(device, "parent")).is_ok() {
        return None;
    }
    let name = pack.link_name(&device_path(device, "device")).ok()?;
    // The form of a PCI address is 0000:3b:00.0.
    (name.split(':').count() == 3 && name.contains('.')).then_some(name)
}

/// Returns the devices that are PCI cards.
pub(super) fn cards(pack: &Pack) -> Vec<&str> {
    pack.devices().into_iter().filter(|device| pci_address(pack, device).is_some()).collect()
}

/// Returns the answer of a check of cards when there are none.
pub(super) fn no_cards(pack: &Pack) -> Answer {
    or_hidden(pack, Answer::DoesNotApply("no RDMA device is a PCI card".to_owned()))
}
