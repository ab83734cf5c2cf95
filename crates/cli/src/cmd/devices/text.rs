//! Formats the report as text: a line for each port, address and provider, and problems with their
//! fix.

use super::DevicesArgs;
use super::report::{Device, Offer, Port, Problem, Rail, Reach, Report, Shm, Verbs};
use crate::terminal::{folded, table};
use crate::units::size;

/// Formats the whole report.
pub(crate) fn render(report: &Report, args: &DevicesArgs, width: Option<u16>) -> String {
    let mut sections =
        vec![verbs(&report.verbs, args, width), fabric(report, args, width), shm(&report.shm, args, width)];
    if !report.rails.is_empty() {
        sections.push(rails(&report.rails, width));
    }
    sections.extend(summary(report, args).map(|text| folded("", &text, width)));
    sections.join("\n")
}

fn verbs(verbs: &Verbs, args: &DevicesArgs, width: Option<u16>) -> String {
    let library = verbs.library.as_ref().map(|path| path.display().to_string());
    let mut text = heading("verbs", library, verbs.devices.is_empty(), width);
    if !verbs.devices.is_empty() {
        let header = ["DEVICE", "PORT", "STATE", "RATE", "LINK", "MTU", "DRIVER", "FIRMWARE", "NUMA"];
        text.push_str(&table(&header, verbs.devices.iter().flat_map(port_rows), width));
        text.push('\n');
        let header = ["DEVICE", "PORT", "GID", "TYPE", "NET DEVICE", "ADDRESS"];
        text.push_str(&table(&header, verbs.devices.iter().flat_map(gid_rows), width));
    }
    if args.verbose {
        for device in &verbs.devices {
            text.push_str(&device_details(device, width));
        }
    }
    text.push_str(&problems(&verbs.problems, width));
    text
}

fn port_rows(device: &Device) -> Vec<Vec<String>> {
    let row = |port: &Port| {
        vec![
            device.name.clone(),
            port.number.to_string(),
            port.state.clone(),
            port.rate_bits_per_second.map_or_else(unknown, rate),
            port.link_layer.clone(),
            port.active_mtu_bytes.map_or_else(unknown, |bytes| bytes.to_string()),
            device.driver.clone().unwrap_or_else(unknown),
            device.firmware.clone().unwrap_or_else(unknown),
            device.numa_node.map_or_else(unknown, |node| node.to_string()),
        ]
    };
    device.ports.iter().map(row).collect()
}

fn gid_rows(device: &Device) -> Vec<Vec<String>> {
    let rows = device.ports.iter().flat_map(|port| port.gids.iter().map(move |gid| (port, gid)));
    rows.map(|(port, gid)| {
        vec![
            device.name.clone(),
            port.number.to_string(),
            gid.index.to_string(),
            gid.gid_type.clone(),
            gid.net_device.clone().unwrap_or_else(unknown),
            gid.address.map_or_else(|| gid.gid.clone(), |address| address.to_string()),
        ]
    })
    .collect()
}

fn device_details(device: &Device, width: Option<u16>) -> String {
    let limits = &device.limits;
    let chip = match device.on_chip_memory_bytes {
        0 => "none".to_owned(),
        bytes => size(bytes),
    };
    let mut lines = vec![
        ("node", format!("{}, {}, GUID {}", device.node_type, device.transport, device.node_guid)),
        ("location", place(device)),
        ("on-chip memory", chip),
        ("queue pairs", each(limits.max_qp, limits.max_qp_wr, "work requests")),
        ("completion queues", each(limits.max_cq, limits.max_cqe, "entries")),
        ("shared receive queues", each(limits.max_srq, limits.max_srq_wr, "work requests")),
        ("memory regions", format!("{}, {}", limits.max_mr, largest(limits.max_mr_bytes))),
        ("memory windows", limits.max_mw.to_string()),
        ("scatter-gather", format!("{} elements, {} for READ", limits.max_sge, limits.max_sge_rd)),
        (
            "READs and atomics",
            format!("{} as target, {} as initiator", limits.max_qp_rd_atom, limits.max_qp_init_rd_atom),
        ),
        ("atomics", atomics(&device.atomics)),
        ("on-demand paging", if device.on_demand_paging { "yes" } else { "no" }.to_owned()),
        ("capabilities", device.capabilities.join(" ")),
    ];
    for port in &device.ports {
        lines.push(("port", port_details(port)));
    }
    details(&device.name, &lines, width)
}

fn place(device: &Device) -> String {
    let node = device.uverbs_node.display();
    match &device.pci_address {
        Some(pci) => format!("{node}, PCI {pci}"),
        None => format!("{node}, not on a PCI bus"),
    }
}

fn port_details(port: &Port) -> String {
    let mut text = format!(
        "{}: {}, {} × {}, messages {}, GIDs up to {}, P_Keys up to {}",
        port.number,
        port.physical_state,
        port.width,
        port.lane_speed,
        largest(port.max_message_bytes.into()),
        port.gid_table_len,
        port.pkey_table_len,
    );
    if let (Some(active), Some(largest)) = (port.active_mtu_bytes, port.max_mtu_bytes) {
        text.push_str(&format!(", MTU {active} of {largest}"));
    }
    if port.lid != 0 {
        text.push_str(&format!(", LID {}, subnet manager LID {}", port.lid, port.sm_lid));
    }
    text
}

/// Formats the rails, by the names that the tests accept.
fn rails(rails: &[Rail], width: Option<u16>) -> String {
    let row = |rail: &Rail| {
        let can = if rail.has_atomics { "send write read atomic" } else { "send write read" };
        let is_rdma = if rail.is_rdma { "yes" } else { "no" };
        vec![rail.name.clone(), is_rdma.to_owned(), can.to_owned(), rail.through.clone()]
    };
    let mut text = folded("rails: ", "used by the tests; -d NAME selects one", width);
    text.push_str(&table(&["NAME", "RDMA", "OPERATIONS", "VIA"], rails.iter().map(row), width));
    text
}

fn fabric(report: &Report, args: &DevicesArgs, width: Option<u16>) -> String {
    let fabric = &report.fabric;
    let version = fabric.version.as_deref().unwrap_or_default();
    let library = fabric.library.as_ref().map(|path| format!("libfabric {version}, {}", path.display()));
    let mut text = heading("fabric", library, fabric.offers.is_empty(), width);
    if !fabric.offers.is_empty() {
        let providers = grouped(&fabric.offers, |offer| vec![offer.provider.as_str()]);
        let header = ["PROVIDER", "ENDPOINTS", "SUPPORTS", "WRITES", "DOMAINS"];
        text.push_str(&table(&header, providers.iter().map(|offers| provider_row(report, offers)), width));
        text.push('\n');
        let domains = grouped(&fabric.offers, |offer| vec![offer.domain.as_str()]);
        text.push_str(&table(&["DOMAIN", "ADDRESS"], domains.iter().flat_map(address_rows), width));
    }
    if args.verbose {
        for offers in grouped(&fabric.offers, |offer| vec![&offer.provider, &offer.endpoint_type]) {
            text.push_str(&offer_details(&offers, width));
        }
    }
    text.push_str(&problems(&fabric.problems, width));
    text
}

fn shm(shm: &Shm, args: &DevicesArgs, width: Option<u16>) -> String {
    let reach = |reach: &Reach| format!("processes of user {} in this network namespace", reach.user);
    let mut text = heading("shm", shm.reach.as_ref().map(reach), false, width);
    if let Some(reach) = shm.reach.as_ref().filter(|_| args.verbose) {
        let lines = [
            ("network namespace", reach.network_namespace.to_string()),
            ("messages", format!("up to {} bytes", reach.message_bytes_max)),
            (
                "work requests",
                format!("up to {}, {} segments", size(reach.request_bytes_max), reach.segments_max),
            ),
        ];
        text.push_str(&details("shm", &lines, width));
    }
    text.push_str(&problems(&shm.problems, width));
    text
}

/// Groups the offers that share a key, in the library's order. A provider makes one offer for each
/// domain, endpoint type and address, and they are printed once.
fn grouped<'a>(offers: &'a [Offer], key: impl Fn(&'a Offer) -> Vec<&'a str>) -> Vec<Vec<&'a Offer>> {
    let mut groups: Vec<Vec<&Offer>> = Vec::new();
    for offer in offers {
        match groups.iter_mut().find(|group| key(group[0]) == key(offer)) {
            Some(group) => group.push(offer),
            None => groups.push(vec![offer]),
        }
    }
    groups
}

fn provider_row(report: &Report, offers: &[&Offer]) -> Vec<String> {
    let can = [("MSG", "msg"), ("RMA", "rma"), ("ATOMIC", "atomic"), ("TAGGED", "tagged")]
        .into_iter()
        .filter(|(name, _)| offers.iter().any(|offer| offer.capabilities.contains(name)))
        .filter(|(name, _)| *name != "ATOMIC" || report.has_atomics(&offers[0].provider))
        .map(|(_, word)| word.to_owned());
    let order = offers.iter().map(|offer| if offer.writes_ordered { "ordered" } else { "unordered" });
    vec![
        offers[0].provider.clone(),
        distinct(offers.iter().map(|offer| offer.endpoint_type.as_str())).join(" "),
        can.collect::<Vec<_>>().join(" "),
        distinct(order).join(" or "),
        distinct(offers.iter().map(|offer| offer.domain.as_str())).join(" "),
    ]
}

fn address_rows(offers: &Vec<&Offer>) -> Vec<Vec<String>> {
    let mut addresses: Vec<_> =
        offers.iter().filter_map(|offer| readable(offer.address.as_deref()?)).collect();
    if addresses.is_empty() {
        // This domain has only a native address, such as EFA's.
        addresses = offers.iter().filter_map(|offer| offer.address.as_deref()).collect();
        addresses.retain(|address| address.contains(|digit| digit != '0'));
    }
    let row = |address: &str| vec![offers[0].domain.clone(), address.to_owned()];
    distinct(addresses.into_iter()).into_iter().map(row).collect()
}

/// Returns an IP address or a name, without the port 0 of an unbound address; `None` for plain
/// hexadecimal.
fn readable(address: &str) -> Option<&str> {
    let is_hexadecimal = address.bytes().all(|digit| digit.is_ascii_hexdigit());
    let without_port = address.strip_suffix(":0").unwrap_or(address);
    (!is_hexadecimal).then(|| without_port.trim_matches(['[', ']']))
}

fn offer_details(offers: &[&Offer], width: Option<u16>) -> String {
    let offer = offers[0];
    let mut lines = vec![
        ("domains", distinct(offers.iter().map(|offer| offer.domain.as_str())).join(" ")),
        ("protocol", offer.protocol.clone()),
        ("capabilities", offer.capabilities.join(" ")),
        ("order", offer.order.join(" ")),
        ("registration", offer.registration_modes.join(" ")),
        ("immediate, inject", format!("{} B, {} B", offer.immediate_bytes, offer.inject_bytes)),
        ("messages", largest(offer.message_bytes_max as u64)),
        (
            "queues",
            format!(
                "transmit {}, receive {}, {} buffers per operation",
                offer.transmit_queue, offer.receive_queue, offer.buffers_per_operation
            ),
        ),
        ("progress", format!("{}, threading {}", offer.progress, offer.threading)),
    ];
    if let Some(nic) = &offer.nic {
        let rate = nic.rate_bits_per_second.map_or_else(unknown, rate);
        let device = nic.device.clone().unwrap_or_else(unknown);
        lines.push(("card", format!("{device}, link {}, {rate}", nic.link_state)));
    }
    details(&format!("{} {}", offer.provider, offer.endpoint_type), &lines, width)
}

/// Formats a name, and its properties in lines of two columns.
fn details(name: &str, lines: &[(&str, String)], width: Option<u16>) -> String {
    let mut text = format!("\n{name}\n");
    let column = lines.iter().map(|(key, _)| key.len()).max().unwrap_or(0) + 4;
    for (key, value) in lines.iter().filter(|(_, value)| !value.is_empty()) {
        text.push_str(&folded(&format!("  {key:<0$}", column - 2), value, width));
    }
    text
}

fn heading(engine: &str, library: Option<String>, is_empty: bool, width: Option<u16>) -> String {
    let text = match library {
        Some(library) if is_empty => format!("{library}, nothing usable"),
        Some(library) => library,
        None => "not available".to_owned(),
    };
    folded(&format!("{engine}: "), &text, width)
}

fn problems(problems: &[Problem], width: Option<u16>) -> String {
    let mut text = String::new();
    for problem in problems {
        text.push_str(&folded("  - ", &problem.what, width));
        if let Some(cause) = &problem.cause {
            text.push_str(&folded("    cause: ", cause, width));
        }
        text.push_str(&folded("    fix: ", &problem.fix, width));
    }
    text
}

/// Returns a summary, if the result is not clear from the lists.
fn summary(report: &Report, args: &DevicesArgs) -> Option<String> {
    let providers = distinct(report.fabric.offers.iter().map(|offer| offer.provider.as_str()));
    let shm = if report.shm.reach.is_some() { "; the rail shm works within it" } else { "" };
    match (&args.device, report.verbs.devices.is_empty(), providers.is_empty()) {
        (Some(name), true, true) if report.is_empty() => {
            Some(format!("No device, provider or domain is named {name}."))
        }
        (None, true, true) => {
            Some(format!("This host has no usable RDMA device and no libfabric provider{shm}."))
        }
        (None, true, false) => {
            Some(format!("This host has no usable RDMA device; libfabric offers {}.", providers.join(", ")))
        }
        _ => None,
    }
}

fn distinct<'a>(words: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut kept = Vec::new();
    for word in words {
        if !kept.contains(&word) {
            kept.push(word);
        }
    }
    kept
}

fn unknown() -> String {
    "-".to_owned()
}

/// Formats a rate in Gb/s, of 10⁹ bits, as link speeds are given.
fn rate(bits_per_second: u64) -> String {
    format!("{} Gb/s", bits_per_second as f64 / 1e9)
}

/// Describes a number of queues and their length.
fn each(count: u32, length: u32, what: &str) -> String {
    format!("{count}, each with up to {length} {what}")
}

/// Describes what an atomic operation is atomic against.
fn atomics(word: &str) -> String {
    match word {
        "device" => "within the device only".to_owned(),
        "global" => "with CPUs and other devices".to_owned(),
        word => word.to_owned(),
    }
}

/// Describes a limit on a size. A limit that no machine can reach counts as none.
fn largest(bytes: u64) -> String {
    if bytes >= 1 << 62 { "of any size".to_owned() } else { format!("up to {}", size(bytes)) }
}
