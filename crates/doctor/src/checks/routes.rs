//! Checks several RDMA net devices in one subnet.
//!
//! By default the kernel may answer ARP and route through any of them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use super::wire::{net_devices, or_hidden, wire};
use crate::finding::{Answer, CommandLine, Finding, Fix};
use crate::pack::{Missing, Pack};

const ROUTES: &str = "/proc/net/route";

/// Checks whether the settings keep net devices of one subnet apart.
pub(super) fn routes(pack: &Pack) -> Answer {
    let mut names: BTreeSet<&str> = BTreeSet::new();
    for port in pack.ports() {
        match wire(pack, &port) {
            Ok(wire) if wire.is_roce() => names.extend(net_devices(pack, &port)),
            Ok(_) => {}
            Err((path, missing)) => return Finding::unread(&path, &missing).into(),
        }
    }
    if names.len() < 2 {
        let why_none = "fewer than two net devices of RoCE ports".to_owned();
        return or_hidden(pack, Answer::DoesNotApply(why_none));
    }
    let table = match pack.text(ROUTES) {
        Ok(table) => table,
        Err(missing) => return Finding::unread(ROUTES, &missing).into(),
    };
    let mut by_subnet: BTreeMap<(Ipv4Addr, u32), Vec<&str>> = BTreeMap::new();
    for (name, subnet) in table.lines().filter_map(on_link).filter(|(name, _)| names.contains(name)) {
        by_subnet.entry(subnet).or_default().push(name);
    }
    by_subnet.retain(|_, names| {
        names.dedup();
        names.len() > 1
    });
    let why_none = format!("{} are in different subnets", list(&names));
    let findings = by_subnet.into_iter().flat_map(|(subnet, names)| shared(pack, subnet, &names));
    match Answer::of_each(findings, &why_none, |finding| finding) {
        Answer::DoesNotApply(found) => Finding::pass(found).read(ROUTES).into(),
        findings => findings,
    }
}

/// Returns the net device and the subnet of an on-link route, from a line of the routing table.
fn on_link(line: &str) -> Option<(&str, (Ipv4Addr, u32))> {
    // The columns: Iface Destination Gateway Flags RefCnt Use Metric Mask ...
    let words: Vec<&str> = line.split_whitespace().collect();
    let hex = |text: &str| u32::from_str_radix(text, 16).ok();
    let (destination, gateway, mask) = (hex(words.get(1)?)?, hex(words.get(2)?)?, hex(words.get(7)?)?);
    // The file shows the bytes of the wire as one number in host order.
    let address = Ipv4Addr::from(destination.to_le_bytes());
    (gateway == 0 && mask != 0).then(|| (words[0], (address, mask.count_ones())))
}

/// The required value of a setting of each net device.
struct Setting {
    name: &'static str,
    is_well: fn(u64) -> bool,
    wanted: &'static str,
    /// The consequence of any other value.
    otherwise: &'static str,
}

const SETTINGS: &[Setting] = &[
    Setting {
        name: "rp_filter",
        is_well: |value| value != 1,
        wanted: "2",
        otherwise: " (strict): packets that arrive on the other one are dropped",
    },
    Setting {
        name: "arp_ignore",
        is_well: |value| value >= 1,
        wanted: "1",
        otherwise: ", so each answers ARP requests for the other's address (ARP flux)",
    },
    Setting {
        name: "arp_announce",
        is_well: |value| value >= 1,
        wanted: "2",
        otherwise: ", so each announces the other's address (ARP flux)",
    },
];

/// Makes one finding for each wrong setting, because one for all settings of many net devices would
/// be too long.
fn shared(pack: &Pack, (address, bits): (Ipv4Addr, u32), names: &[&str]) -> Vec<Finding> {
    let subnet = format!("{} share {address}/{bits}", names.join(" and "));
    let mut findings = Vec::new();
    for setting in SETTINGS {
        match wrong(pack, setting, names) {
            Ok(wrong) => findings.extend(fault(setting, &subnet, names, wrong)),
            Err((path, missing)) => {
                return vec![Finding::unknown(format!("{subnet}; {}", missing.reason(&path))).read(path)];
            }
        }
    }
    if findings.is_empty() {
        findings
            .push(Finding::pass(format!("{subnet}; rp_filter, arp_ignore and arp_announce keep them apart")));
    }
    let read = |finding: Finding| {
        let places = SETTINGS.iter().map(|it| format!("/proc/sys/net/ipv4/conf/*/{}", it.name));
        places.fold(finding.read(ROUTES), |finding, place| finding.read(place))
    };
    findings.into_iter().map(read).collect()
}

/// Returns the net devices with a wrong setting, by its value.
fn wrong<'a>(
    pack: &Pack,
    setting: &Setting,
    names: &[&'a str],
) -> Result<BTreeMap<u64, Vec<&'a str>>, (String, Missing)> {
    let mut by_value: BTreeMap<u64, Vec<&str>> = BTreeMap::new();
    for name in names {
        let value = effective(pack, name, setting.name)?;
        if !(setting.is_well)(value) {
            by_value.entry(value).or_default().push(name);
        }
    }
    Ok(by_value)
}

fn fault(
    setting: &Setting,
    subnet: &str,
    names: &[&str],
    wrong: BTreeMap<u64, Vec<&str>>,
) -> Option<Finding> {
    let Setting { name, wanted, otherwise, .. } = setting;
    let values = wrong.iter().map(|(value, these)| {
        let of = if these.len() == names.len() { "each".to_owned() } else { these.join(", ") };
        format!("{name} of {of} is {value}")
    });
    let values: Vec<String> = values.collect();
    // With slashes, because the name of a VLAN contains a dot.
    let keys = wrong.values().flatten().map(|net| format!("net/ipv4/conf/{net}/{name}={wanted}"));
    let keys: Vec<String> = keys.collect();
    let with_keys = |command: CommandLine| keys.iter().fold(command, |command, key| command.arg(key));
    (!wrong.is_empty()).then(|| {
        Finding::warn(format!("{subnet}: {}{otherwise}", values.join("; ")))
            .fix(Fix::new(format!("set {name} to {wanted}")).run(with_keys(CommandLine::new("sysctl -w"))))
            .fix(
                Fix::new("set it").at("at boot").run(
                    with_keys(CommandLine::new("printf '%s\\n'"))
                        .write_to(&format!("/etc/sysctl.d/90-rdma-{name}.conf")),
                ),
            )
            .fix("give each net device a subnet of its own")
    })
}

/// Returns the effective setting: the kernel uses the greater of the device's value and that of
/// `all`.
fn effective(pack: &Pack, name: &str, setting: &str) -> Result<u64, (String, Missing)> {
    let of = |name: &str| {
        let path = format!("/proc/sys/net/ipv4/conf/{name}/{setting}");
        pack.number(&path).map_err(|missing| (path, missing))
    };
    Ok(of("all")?.max(of(name)?))
}

fn list(names: &BTreeSet<&str>) -> String {
    names.iter().copied().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_routing_table_tells_the_subnets() {
        let line = "ens1f0np0\t0000A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0";
        assert_eq!(on_link(line), Some(("ens1f0np0", (Ipv4Addr::new(192, 168, 0, 0), 24))));
        let by_gateway = "eno1\t00000000\t0101A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0";
        assert_eq!(on_link(by_gateway), None);
        assert_eq!(on_link("Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask"), None);
    }
}
