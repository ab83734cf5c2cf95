//! What a port is made of: its wire, its net devices, its card. The checks of ports, networks and PCI ask here.

use super::cards::hidden;
use crate::finding::{Answer, Finding};
use crate::pack::{Missing, Pack, Port};

/// What a port speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wire {
    InfiniBand,
    /// RDMA over Ethernet, by a card.
    Roce,
    /// RDMA over Ethernet, by the kernel.
    SoftRoce,
    /// RDMA over TCP.
    Iwarp,
    /// Amazon's EFA calls its wire unspecified.
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
            Self::Unspecified => "a wire of its own",
        }
    }
}

/// A port, and what it speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WiredPort<'a> {
    pub(super) port: Port<'a>,
    pub(super) wire: Wire,
}

/// What a port speaks; the file that tells, and why it does not.
pub(super) fn wire(pack: &Pack, port: &Port) -> Result<Wire, (String, Missing)> {
    let path = port.path("link_layer");
    match pack.text(&path) {
        Ok("InfiniBand") => Ok(Wire::InfiniBand),
        // Only Soft-RoCE devices have this file: the net device that they were made on.
        Ok("Ethernet") if pack.text(&device_path(port.device, "parent")).is_ok() => Ok(Wire::SoftRoce),
        Ok("Ethernet") if is_rnic(pack, port.device) => Ok(Wire::Iwarp),
        Ok("Ethernet") => Ok(Wire::Roce),
        Ok(_) => Ok(Wire::Unspecified),
        Err(missing) => Err((path, missing)),
    }
}

/// One finding for each port that a check is for; `why_none` where there are none. Ports that are another's are not among them.
pub(super) fn each_port(
    pack: &Pack,
    is_for: impl Fn(Wire) -> bool,
    why_none: &str,
    look: impl FnMut(&WiredPort) -> Finding,
) -> Answer {
    let ports = pack.ports().into_iter().filter(|port| !is_anothers(pack, port));
    each_of(ports, pack, is_for, why_none, look)
}

/// The same of these ports.
pub(super) fn each_of<'a>(
    ports: impl IntoIterator<Item = Port<'a>>,
    pack: &'a Pack,
    is_for: impl Fn(Wire) -> bool,
    why_none: &str,
    mut look: impl FnMut(&WiredPort) -> Finding,
) -> Answer {
    let findings = ports.into_iter().filter_map(|port| match wire(pack, &port) {
        Ok(wire) => is_for(wire).then(|| look(&WiredPort { port, wire }).of(port.words())),
        // It may be one of them: it is not passed over.
        Err((path, missing)) => Some(Finding::unread(&path, &missing).of(port.words())),
    });
    or_hidden(pack, Answer::of_each(findings, why_none, |finding| finding))
}

/// That there is nothing to look at is not known where the devices are not to be seen.
pub(super) fn or_hidden(pack: &Pack, answer: Answer) -> Answer {
    match (&answer, hidden(pack)) {
        (Answer::DoesNotApply(_), Some(hidden)) => hidden.into(),
        _ => answer,
    }
}

fn is_rnic(pack: &Pack, device: &str) -> bool {
    pack.text(&device_path(device, "node_type")).is_ok_and(|kind| kind.starts_with("4:"))
}

/// A file of a device's.
pub(super) fn device_path(device: &str, file: &str) -> String {
    format!("/sys/class/infiniband/{device}/{file}")
}

/// The net devices of a port, the card's own first, then those that its GIDs are of (a VLAN, a bond).
pub(super) fn net_devices<'a>(pack: &'a Pack, port: &Port) -> Vec<&'a str> {
    let mut names: Vec<&str> = pack.text(&device_path(port.device, "parent")).ok().into_iter().collect();
    names.extend(pack.names(&device_path(port.device, "device/net")));
    let folder = port.path("gid_attrs/ndevs");
    names.extend(pack.names(&folder).iter().filter_map(|index| pack.text(&format!("{folder}/{index}")).ok()));
    let mut seen = Vec::new();
    names.retain(|name| !name.is_empty() && !seen.contains(name) && (seen.push(*name), true).1);
    names
}

/// Whether a port's net devices are in another network namespace, while those of another port are here: hosts of many containers show every device in
/// each. The check of namespaces tells of it, and the others have nothing to ask.
pub(super) fn is_anothers(pack: &Pack, port: &Port) -> bool {
    is_away(pack, port) == Some(true)
        && pack.ports().iter().any(|other| other != port && is_away(pack, other) == Some(false))
}

/// Whether none of a port's net devices is here; none where it has none, or it is not known what is here.
fn is_away(pack: &Pack, port: &Port) -> Option<bool> {
    let here = pack.probes().interfaces.get().ok()?;
    let names = net_devices(pack, port);
    let is_here = |name: &&str| here.iter().any(|interface| interface.name == **name);
    (!names.is_empty()).then(|| !names.iter().any(is_here))
}

/// The first of a port's net devices, for a command; a word to fill in where there is none.
pub(super) fn net_device<'a>(pack: &'a Pack, port: &Port) -> &'a str {
    net_devices(pack, port).first().copied().unwrap_or("NETDEVICE")
}

/// The PCI address of a device's card; none where there is no card.
pub(super) fn pci_address<'a>(pack: &'a Pack, device: &str) -> Option<&'a str> {
    // Older kernels link a Soft-RoCE device to the card of its net device.
    if pack.text(&device_path(device, "parent")).is_ok() {
        return None;
    }
    let name = pack.link_name(&device_path(device, "device")).ok()?;
    // 0000:3b:00.0
    (name.split(':').count() == 3 && name.contains('.')).then_some(name)
}

/// The devices that are PCI cards.
pub(super) fn cards(pack: &Pack) -> Vec<&str> {
    pack.devices().into_iter().filter(|device| pci_address(pack, device).is_some()).collect()
}

/// The answer of a check of cards, where there are none.
pub(super) fn no_cards(pack: &Pack) -> Answer {
    or_hidden(pack, Answer::DoesNotApply("no RDMA device is a PCI card".to_owned()))
}
