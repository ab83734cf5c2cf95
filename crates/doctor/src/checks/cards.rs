//! Finds the RDMA cards of a host and their drivers.
//!
//! A card counts only if it is certain to be an RDMA card, because an ordinary network card must
//! not be reported as broken. The evidence is its PCI IDs, the auxiliary devices of its driver, or
//! an RDMA device.

use std::collections::BTreeMap;

use crate::finding::{Answer, CommandLine, Finding, Fix};
use crate::pack::{Entry, Missing, Pack};
use crate::survey::driver;

const PCI: &str = "/sys/bus/pci/devices";
const AUXILIARY: &str = "/sys/bus/auxiliary/devices";

/// Drivers that hand a card to a virtual machine or to a program.
const GIVES_AWAY: &[&str] = &["vfio-pci", "pci-stub", "uio_pci_generic", "igb_uio", "xen-pciback"];

/// A family of cards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Family {
    name: &'static str,
    /// The driver of the card.
    driver: &'static str,
    /// The module that creates the RDMA devices, often a different one.
    module: &'static str,
}

const MLX4: Family = Family { name: "a ConnectX-3", driver: "mlx4_core", module: "mlx4_ib" };
const MLX5: Family = Family { name: "a ConnectX or BlueField", driver: "mlx5_core", module: "mlx5_ib" };
const EFA: Family = Family { name: "an Elastic Fabric Adapter", driver: "efa", module: "efa" };

/// Auxiliary devices by which a driver announces that the card supports RDMA: `bnxt_en.rdma.0`.
const OFFERS: &[(&str, Family)] = &[
    ("mlx5_core.rdma", MLX5),
    ("bnxt_en.rdma", Family { name: "a Broadcom NetXtreme", driver: "bnxt_en", module: "bnxt_re" }),
    ("ice.roce", Family { name: "an Intel E800", driver: "ice", module: "irdma" }),
    ("ice.iwarp", Family { name: "an Intel E800", driver: "ice", module: "irdma" }),
    ("idpf.roce", Family { name: "an Intel IPU", driver: "idpf", module: "irdma" }),
    ("i40e.iwarp", Family { name: "an Intel X722", driver: "i40e", module: "irdma" }),
    ("ionic.rdma", Family { name: "an AMD Pensando", driver: "ionic", module: "ionic_rdma" }),
    ("mana.rdma", Family { name: "an Azure network adapter", driver: "mana", module: "mana_ib" }),
];

/// An RDMA card.
#[derive(Debug)]
pub(super) struct Card<'a> {
    /// The PCI address: `0000:3b:00.0`.
    address: &'a str,
    /// `None` if the card is known only by its RDMA device.
    family: Option<Family>,
    driver: Result<&'a str, Missing>,
    /// Its RDMA devices.
    devices: Vec<&'a str>,
}

impl Card<'_> {
    fn is_given_away(&self) -> bool {
        self.driver.as_ref().is_ok_and(|driver| GIVES_AWAY.contains(driver))
    }
}

/// Returns all RDMA cards that belong to this host, without those handed to a VM or a program.
pub(super) fn cards(pack: &Pack) -> Vec<Card<'_>> {
    all_cards(pack).into_iter().filter(|card| !card.is_given_away()).collect()
}

fn all_cards(pack: &Pack) -> Vec<Card<'_>> {
    let offered = offered(pack);
    let card = |address| {
        let family = family(pack, address).or_else(|| offered.get(address).copied());
        let devices = pack.names(&format!("{PCI}/{address}/infiniband"));
        let driver = pack.link_name(&format!("{PCI}/{address}/driver"));
        (family.is_some() || !devices.is_empty()).then_some(Card { address, family, driver, devices })
    };
    pack.names(PCI).into_iter().filter_map(card).collect()
}

/// Returns the family of a card by its PCI IDs.
fn family(pack: &Pack, address: &str) -> Option<Family> {
    let number = |file| pack.number(&format!("{PCI}/{address}/{file}")).ok();
    // Ethernet and InfiniBand only: a BlueField has other functions too.
    let is_network = matches!(number("class")? >> 8, 0x0200 | 0x0207);
    match (number("vendor")?, number("device")?) {
        (0x15b3, 0x1003..=0x1010) if is_network => Some(MLX4),
        (0x15b3, 0x1011..=0x1027 | 0xa2d2..=0xa2df) if is_network => Some(MLX5),
        (0x1d0f, 0xefa0..=0xefa3) => Some(EFA),
        _ => None,
    }
}

/// Returns the families that drivers announce on the auxiliary bus, by PCI address.
fn offered(pack: &Pack) -> BTreeMap<&str, Family> {
    let offer = |name: &str| {
        let kind = name.rsplit_once('.')?.0;
        let (_, family) = OFFERS.iter().find(|(offer, _)| *offer == kind)?;
        let Some(Entry::Link { link }) = pack.entry(&format!("{AUXILIARY}/{name}")) else { return None };
        Some((link.rsplit('/').nth(1)?, *family))
    };
    pack.names(AUXILIARY).into_iter().filter_map(offer).collect()
}

/// Returns whether there is an RDMA device, or a card that should have one.
pub(super) fn has_rdma(pack: &Pack) -> bool {
    let lists_some = pack.probes().verbs.get().is_ok_and(|verbs| !verbs.devices.is_empty());
    !pack.devices().is_empty() || !cards(pack).is_empty() || lists_some || hidden(pack).is_some()
}

const DEVICES: &str = "/sys/class/infiniband";

/// Returns a finding if the folder of RDMA devices cannot be read; `None` if it can, or is absent.
pub(super) fn hidden(pack: &Pack) -> Option<Finding> {
    // A folder that could not be read is recorded as a file.
    match pack.text(DEVICES) {
        Err(missing @ Missing::Unreadable(_)) => Some(Finding::unread(DEVICES, &missing)),
        _ => None,
    }
}

/// Returns the answer of a check of RDMA devices when none is visible.
pub(super) fn no_device(pack: &Pack) -> Answer {
    hidden(pack).map_or_else(|| Answer::DoesNotApply(NO_DEVICE.to_owned()), Answer::from)
}

/// The reason why a check of RDMA devices does not apply.
pub(super) const NO_DEVICE: &str = "no RDMA device";

/// Returns the RDMA devices that are Elastic Fabric Adapters.
pub(super) fn efa_devices(pack: &Pack) -> Vec<&str> {
    pack.devices().into_iter().filter(|device| driver(pack, device).as_deref() == Some(EFA.driver)).collect()
}

/// Returns whether there is an Elastic Fabric Adapter, with or without a driver.
pub(super) fn has_efa(pack: &Pack) -> bool {
    !efa_devices(pack).is_empty() || cards(pack).iter().any(|card| card.family == Some(EFA))
}

/// Returns whether all RDMA devices are Elastic Fabric Adapters.
///
/// Cards without an RDMA device count only if no card has one.
pub(super) fn is_efa_only(pack: &Pack) -> bool {
    let devices = pack.devices();
    if devices.is_empty() {
        let cards = cards(pack);
        return !cards.is_empty() && cards.iter().all(|card| card.family == Some(EFA));
    }
    efa_devices(pack).len() == devices.len()
}

/// Returns whether a module is loaded. A built-in module counts as not loaded; the files that it
/// provides show that it is there.
pub(super) fn is_loaded(pack: &Pack, module: &str) -> Result<bool, Missing> {
    match pack.text(&format!("/sys/module/{module}/initstate")) {
        Ok(state) => Ok(state == "live"),
        Err(Missing::Absent) => Ok(false),
        Err(missing) => Err(missing),
    }
}

/// Checks that every card has a driver, and every driver has made an RDMA device.
pub(super) fn drivers(pack: &Pack) -> Answer {
    // An older pack has no PCI files. A folder that cannot be read has its reason recorded.
    let probe = pack.text(&format!("{PCI}/0000:00:00.0/vendor"));
    match (pack.text(PCI), probe) {
        (Err(missing @ Missing::Unreadable(_)), _) | (_, Err(missing @ Missing::NotRecorded)) => {
            Finding::unread(PCI, &missing).into()
        }
        _ => Answer::of_each(all_cards(pack), "no PCI card of this host is known to support RDMA", |card| {
            let place = format!("{PCI}/{}", card.address);
            card_finding(pack, &card).of(card.address).read(place)
        }),
    }
}

fn card_finding(pack: &Pack, card: &Card<'_>) -> Finding {
    let what = card.family.map_or("an RDMA card", |family| family.name);
    match &card.driver {
        Ok(driver) if card.is_given_away() => Finding::pass(format!(
            "{what}, assigned to {driver}: a virtual machine or a program uses it, not this host"
        )),
        Ok(driver) if !card.devices.is_empty() => {
            Finding::pass(format!("{what}: {}, driver {driver}", card.devices.join(", ")))
        }
        Ok(driver) => without_device(pack, what, driver, card),
        Err(Missing::Absent) if !card.devices.is_empty() => {
            Finding::pass(format!("{what}: {}", card.devices.join(", ")))
        }
        Err(Missing::Absent) => without_driver(pack, what, card),
        Err(missing) => Finding::unread(&format!("{PCI}/{}/driver", card.address), missing),
    }
}

fn without_driver(pack: &Pack, what: &str, card: &Card<'_>) -> Finding {
    let driver = card.family.map_or("its driver", |family| family.driver);
    if is_loaded(pack, driver) == Ok(true) {
        return Finding::fail(format!("{what} without a driver, although {driver} is loaded"))
            .fix(kernel_log(driver, card));
    }
    loads(Finding::fail(format!("{what} without a driver")), driver)
}

fn without_device(pack: &Pack, what: &str, driver: &str, card: &Card<'_>) -> Finding {
    if pack.probes().rdma_namespaces.get().map(String::as_str) == Ok("exclusive") {
        return Finding::unknown(format!(
            "{what} with the driver {driver} has no RDMA device here; each network namespace has its own RDMA devices, \
             and that of this card may be in another one"
        ));
    }
    let Some(family) = card.family else {
        return Finding::unknown(format!("{what} with the driver {driver} has no RDMA device"));
    };
    let module = family.module;
    if module != driver && is_loaded(pack, module) == Ok(false) {
        return loads(
            Finding::fail(format!(
                "{what} with the driver {driver}; {module} is not loaded, so the card has no RDMA device"
            )),
            module,
        );
    }
    let finding = Finding::fail(format!("{what} with the driver {driver} has no RDMA device"));
    let finding = finding.fix(kernel_log(module, card));
    if family != MLX5 {
        return finding;
    }
    let at = format!("pci/{}", card.address);
    finding.fix(
        Fix::new("if RoCE is switched off, switch it on while nothing uses the card")
            .run(
                CommandLine::new("devlink dev param set")
                    .name(&at)
                    .shell("name enable_roce value true cmode driverinit"),
            )
            .run(CommandLine::new("devlink dev reload").name(&at)),
    )
}

fn kernel_log(module: &str, card: &Card<'_>) -> Fix {
    Fix::new("read the driver's messages in the kernel log")
        .run(CommandLine::new("dmesg | grep -e").arg(module).shell("-e").arg(card.address))
}

/// Adds the fixes that load a module.
pub(super) fn loads(finding: Finding, module: &str) -> Finding {
    finding
        .fix(Fix::new(format!("load the module {module}")).run(CommandLine::new("modprobe").name(module)))
        .fix(Fix::new("load it").at("at boot").run(
            CommandLine::new("echo").name(module).write_to(&format!("/etc/modules-load.d/{module}.conf")),
        ))
        .fix(
            Fix::new("load it on the host of the container")
                .at("container")
                .run(CommandLine::new("modprobe").name(module)),
        )
}
