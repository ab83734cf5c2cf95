//! Checks the path from a card to memory and to other cards: PCI link, IOMMU and bridges.

use super::wire::{cards, device_path, no_cards, or_hidden, pci_address};
use crate::finding::{Answer, CommandLine, Finding, Fix};
use crate::pack::{Missing, Pack};

/// Checks whether the link of each card has the width and speed that both ends support.
pub(super) fn link(pack: &Pack) -> Answer {
    // Only PCI Express devices have these files.
    let has_link =
        |device: &&str| pack.text(&device_path(device, "device/max_link_width")) != Err(Missing::Absent);
    let linked = cards(pack).into_iter().filter(has_link);
    let why_none = "no RDMA device is a PCI Express card";
    or_hidden(pack, Answer::of_each(linked, why_none, |device| link_of(pack, device).of(device)))
}

fn link_of(pack: &Pack, device: &str) -> Finding {
    let path = |file: &str| device_path(device, &format!("device/{file}"));
    let text = |file: &str| pack.text(&path(file)).map_err(|missing| Finding::unread(&path(file), &missing));
    let read = || -> Result<_, Finding> {
        Ok((
            (text("current_link_width")?, text("current_link_speed")?),
            (text("max_link_width")?, text("max_link_speed")?),
        ))
    };
    let ((width, speed), (width_max, speed_max)) = match read() {
        Ok(read) => read,
        Err(unread) => return unread,
    };
    let (Some(lanes), Some(lanes_max)) = (lanes(width), lanes(width_max)) else {
        return Finding::unknown(
            "a virtual function does not report its PCIe link; see that of the physical function",
        )
        .read(path("current_link_width"));
    };
    let (Some(gigatransfers), Some(gigatransfers_max)) = (transfers(speed), transfers(speed_max)) else {
        return Finding::unknown(format!("cannot parse the link speed \"{speed}\" of \"{speed_max}\""))
            .read(path("current_link_speed"));
    };
    let found = format!("x{lanes} of x{lanes_max}, {speed} of {speed_max}");
    let address = pci_address(pack, device).unwrap_or("ADDRESS");
    let look = || {
        Fix::new("compare the link capabilities (LnkCap) with the link status (LnkSta)")
            .run(CommandLine::new("lspci -vv -s").name(address))
    };
    let finding = if lanes < lanes_max {
        Finding::warn(format!("{found}: the slot has fewer lanes than the card, or some lanes do not work"))
            .fix(format!(
                "move the card to a slot with {lanes_max} lanes, or reseat it; the BIOS may split slots (bifurcation)"
            ))
            .fix(look())
    } else if gigatransfers < gigatransfers_max {
        Finding::warn(format!(
            "{found}: the slot is slower than the card, or the link was trained at a lower speed"
        ))
        .fix("set the slot's link speed to auto in the BIOS, or move the card to a faster slot")
        .fix(look())
    } else {
        Finding::pass(found)
    };
    ["current_link_width", "current_link_speed", "max_link_width", "max_link_speed"]
        .iter()
        .fold(finding, |finding, file| finding.read(path(file)))
}

/// Parses a number of lanes. The kernel reports 0 or 255 if it is not known.
fn lanes(text: &str) -> Option<u32> {
    text.parse().ok().filter(|lanes| (1..=32).contains(lanes))
}

/// Parses `16.0 GT/s PCIe`, in tenths of GT/s.
fn transfers(text: &str) -> Option<u64> {
    let number: f64 = text.split_once(" GT/s")?.0.parse().ok()?;
    Some((number * 10.0) as u64)
}

/// Checks whether the IOMMU translates the addresses that a card uses.
pub(super) fn iommu(pack: &Pack) -> Answer {
    let why_none = "no RDMA device is a PCI card";
    or_hidden(pack, Answer::of_each(cards(pack), why_none, |device| iommu_of(pack, device).of(device)))
}

fn iommu_of(pack: &Pack, device: &str) -> Finding {
    let link = device_path(device, "device/iommu_group");
    let group = match pack.link_name(&link) {
        Ok(group) => group,
        Err(Missing::Absent) => return Finding::pass("no IOMMU translates the card's addresses").read(link),
        Err(missing) => return Finding::unread(&link, &missing),
    };
    let path = format!("/sys/kernel/iommu_groups/{group}/type");
    let address = pci_address(pack, device);
    let finding = match pack.text(&path) {
        Ok("identity") => Finding::pass("the IOMMU passes the card's addresses through"),
        Ok(kind @ ("DMA" | "DMA-FQ")) => {
            Finding::warn(format!(
                "the IOMMU translates every address ({kind}): large transfers are slower, and GPU memory may not be reachable"
            ))
            .fix(
                Fix::new("add iommu=pt to GRUB_CMDLINE_LINUX in /etc/default/grub, then run this and reboot")
                    .at("at boot")
                    .run("update-grub"),
            )
        }
        Ok("blocked") => Finding::fail("the IOMMU blocks the card: the card was prepared for a virtual machine").fix(
            Fix::new("return the card to its driver")
                .run(CommandLine::new("driverctl unset-override").name(address.unwrap_or("ADDRESS"))),
        ),
        Ok(other) => Finding::unknown(format!("the IOMMU domain has the unknown type \"{other}\"")),
        Err(missing) => return without_type(pack, &path, &missing),
    };
    finding.read(path)
}

/// Makes the finding from the kernel's command line if the type of the group is not known.
fn without_type(pack: &Pack, path: &str, missing: &Missing) -> Finding {
    const BOOT: &str = "/proc/cmdline";
    match pack.text(BOOT) {
        Ok(words) if words.split_whitespace().any(|word| word == "iommu=pt") => {
            Finding::pass("booted with iommu=pt: the IOMMU passes the card's addresses through").read(BOOT)
        }
        _ => Finding::unread(path, missing).read(BOOT),
    }
}

/// Checks whether bridges redirect traffic between two cards to the root complex.
pub(super) fn acs(pack: &Pack) -> Answer {
    const CAPABILITY: &str = "PCI config, extended capability 0x0d";
    if cards(pack).is_empty() {
        return no_cards(pack);
    }
    let bridges = match pack.probes().acs.get() {
        Ok(bridges) => bridges,
        Err(reason) => return Finding::unknown(reason).read(CAPABILITY).into(),
    };
    let detours: Vec<&str> = bridges
        .iter()
        .filter(|(_, acs)| acs.redirects_requests || acs.redirects_completions)
        .map(|(address, _)| address.as_str())
        .collect();
    let finding = match (detours.is_empty(), peer_card(pack)) {
        (true, _) => Finding::pass("no PCI bridge redirects traffic between cards to the root complex"),
        (false, None) => Finding::pass(format!(
            "{} redirects traffic between cards to the root complex; this host has no GPU, so it makes no difference",
            detours.join(", ")
        )),
        (false, Some(peer)) => {
            let finding = Finding::warn(format!(
                "{} redirects traffic between a card and {peer} to the root complex, which lowers the rate",
                detours.join(", ")
            ));
            // ACS isolates a virtual machine's card from the memory of others.
            let turn_off =
                Fix::new("until the next boot, if no virtual machine has a card: switch the redirection off");
            let turn_off = detours
                .iter()
                .map(|address| CommandLine::new("setpci -s").name(address).shell("ECAP_ACS+6.w=0000"))
                .fold(turn_off, Fix::run);
            finding
                .fix(turn_off)
                .fix("permanently, if no virtual machine has a card: switch ACS off in the BIOS")
        }
    };
    finding.read(CAPABILITY).into()
}

/// Returns a card that other cards access without the processor: a GPU or an accelerator.
fn peer_card(pack: &Pack) -> Option<String> {
    const DEVICES: &str = "/sys/bus/pci/devices";
    let is_peer = |address: &&str| {
        let of = |file: &str| pack.text(&format!("{DEVICES}/{address}/{file}")).unwrap_or_default();
        let is_maker = matches!(of("vendor"), "0x10de" | "0x1002");
        // Display and 3D controllers of GPU vendors, and accelerators of any vendor.
        (of("class").starts_with("0x03") && is_maker) || of("class").starts_with("0x12")
    };
    pack.names(DEVICES).into_iter().find(is_peer).map(|address| format!("the GPU {address}"))
}
