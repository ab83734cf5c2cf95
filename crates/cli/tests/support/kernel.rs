//! The other witnesses: the kernel's own word, by `rdma`, by `ip`, and by sysfs.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;

use serde_json::{Value, json};

use super::agreement::Testimony;
use super::host::Host;

/// Says what `ibv_devices` lists.
pub(crate) fn testify_by_device_list(host: Host, testimony: &mut Testimony) {
    // Two lines of heading come first.
    for line in host.output(&["ibv_devices"]).lines().skip(2) {
        let mut words = line.split_whitespace();
        let (Some(name), Some(guid)) = (words.next(), words.next()) else { panic!("ibv_devices: {line}") };
        let groups: Vec<_> = (0..16).step_by(4).map(|at| &guid[at..at + 4]).collect();
        testimony.says("ibv_devices", format!("devices[{name}].name"), name);
        testimony.says("ibv_devices", format!("devices[{name}].node_guid"), groups.join(":"));
    }
}

/// Says what `rdma dev` lists.
pub(crate) fn testify_by_rdma_dev(host: Host, testimony: &mut Testimony) {
    for device in list(host, &["rdma", "-j", "dev"]) {
        let place = format!("devices[{}]", text(&device, "ifname"));
        let mut says =
            |field: &str, value: Value| testimony.says("rdma dev", format!("{place}.{field}"), value);
        says("name", text(&device, "ifname").into());
        says("node_type", node_type(text(&device, "node_type")).into());
        says("node_guid", text(&device, "node_guid").into());
        says("system_image_guid", text(&device, "sys_image_guid").into());
        if let Some(firmware) = device.get("fw") {
            says("firmware", firmware.clone());
        }
    }
}

/// Says what `rdma link` lists, and whether `ip addr` has the addresses of the net devices that it names.
pub(crate) fn testify_by_rdma_link(host: Host, sysfs: &Sysfs, testimony: &mut Testimony) {
    for link in list(host, &["rdma", "-j", "link"]) {
        let (device, port) = (text(&link, "ifname"), link["port"].to_string());
        let place = format!("devices[{device}].ports[{port}]");
        testimony.says("rdma link", format!("{place}.number"), link["port"].clone());
        testimony.says("rdma link", format!("{place}.state"), text(&link, "state"));
        testimony.says("rdma link", format!("{place}.physical_state"), text(&link, "physical_state"));
        // It names the net device only in the namespace that has it.
        let Some(net_device) = link.get("netdev").and_then(Value::as_str) else { continue };
        let addresses = addresses(host, net_device);
        for (index, gid) in sysfs.gids(device, &port) {
            testimony.says("rdma link", format!("{place}.gids[{index}].net_device"), net_device);
            let address = gid.to_canonical().to_string();
            let known = if addresses.contains(&address) { address.into() } else { json!(addresses) };
            testimony.says("ip addr", format!("{place}.gids[{index}].address"), known);
        }
    }
}

fn addresses(host: Host, net_device: &str) -> Vec<String> {
    let shown = list(host, &["ip", "-j", "addr", "show", "dev", net_device]);
    let infos = shown.iter().filter_map(|shown| shown["addr_info"].as_array()).flatten();
    infos.map(|info| text(info, "local").to_owned()).collect()
}

/// What a command prints as a JSON array.
fn list(host: Host, words: &[&str]) -> Vec<Value> {
    let text = host.output(words);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{words:?}: {error}\n{text}"))
}

fn text<'a>(object: &'a Value, key: &str) -> &'a str {
    object[key].as_str().unwrap_or_else(|| panic!("no text {key} in {object}"))
}

/// What sysfs and `rdma` call a node, in our words.
fn node_type(word: &str) -> &'static str {
    match word.to_lowercase().as_str() {
        "ca" => "channel adapter",
        "rnic" => "iWARP NIC",
        other => panic!("no guest has a node of the type {other}"),
    }
}

/// Attributes under `/sys/class`, by their path there; links by what they lead to.
#[derive(Debug)]
pub(crate) struct Sysfs(BTreeMap<String, String>);

/// Prints `PATH:CONTENT` for each attribute and `PATH:TARGET` for each link. grep prints an empty attribute too.
const READ: &str = "cd /sys/class
grep -sH ^ infiniband_verbs/*/ibdev infiniband/*/* infiniband/*/device/numa_node \
    infiniband/*/ports/*/* infiniband/*/ports/*/gids/* infiniband/*/ports/*/gid_attrs/*/* infiniband/*/ports/*/pkeys/*
for link in infiniband/*/device infiniband/*/device/driver; do
    [ ! -L $link ] || echo $link:$(readlink -f $link)
done
true";

impl Sysfs {
    /// Reads all that it has on RDMA devices.
    pub(crate) fn read(host: Host) -> Self {
        let text = host.output(&["sh", "-c", READ]);
        let attribute =
            |line: &str| line.split_once(':').map(|(path, text)| (path.to_owned(), text.to_owned()));
        Self(text.lines().filter_map(attribute).collect())
    }

    /// Says all that sysfs tells of the fields of our report.
    pub(crate) fn testify(&self, testimony: &mut Testimony) {
        for device in self.names("infiniband/") {
            let place = format!("devices[{device}]");
            let mut says =
                |field: &str, value: Value| testimony.says("sysfs", format!("{place}.{field}"), value);
            let read = |attribute: &str| self.get(&format!("infiniband/{device}/{attribute}"));
            says("name", device.into());
            says("node_type", node_type(after_colon(read("node_type").expect("a node type"))).into());
            says("node_guid", read("node_guid").into());
            says("system_image_guid", read("sys_image_guid").into());
            says("uverbs_node", self.uverbs_node(device).into());
            says("driver", self.driver(device).into());
            says("pci_address", self.pci_address(device).into());
            says("numa_node", self.numa_node(device).into());
            // Soft-RoCE has these empty or not at all, where libibverbs makes something up.
            if let Some(firmware) = read("fw_ver") {
                says("firmware", firmware.into());
            }
            if let Some(version) = read("hw_rev") {
                says("hardware_version", hexadecimal(version).into());
            }
            for port in self.names(&format!("infiniband/{device}/ports/")) {
                self.testify_of_port(device, port, testimony);
            }
        }
    }

    fn testify_of_port(&self, device: &str, port: &str, testimony: &mut Testimony) {
        let directory = format!("infiniband/{device}/ports/{port}");
        let place = format!("devices[{device}].ports[{port}]");
        let mut says = |field: &str, value: Value| testimony.says("sysfs", format!("{place}.{field}"), value);
        let read = |attribute: &str| {
            let path = format!("{directory}/{attribute}");
            self.get(&path).unwrap_or_else(|| panic!("sysfs has no {path}"))
        };
        says("number", port.parse::<u8>().expect("a port is a number").into());
        says("state", after_colon(read("state")).into());
        says("physical_state", physical_state(after_colon(read("phys_state"))).into());
        says("link_layer", read("link_layer").into());
        says("lid", hexadecimal(read("lid")).into());
        says("sm_lid", hexadecimal(read("sm_lid")).into());
        says("lmc", read("lid_mask_count").parse::<u8>().expect("a number").into());
        let (rate, width, speed) = rate(read("rate"));
        says("rate_bits_per_second", rate.into());
        says("width", width.into());
        says("lane_speed", speed.into());
        says("gid_table_len", self.names(&format!("{directory}/gids/")).len().into());
        says("pkey_table_len", self.names(&format!("{directory}/pkeys/")).len().into());
        for (index, gid) in self.gids(device, port) {
            let kind = read(&format!("gid_attrs/types/{index}"));
            // The kernel has one word for both; only InfiniBand's GIDs are on no Ethernet.
            let kind = if kind == "IB/RoCE v1" { "RoCE v1" } else { kind };
            says(&format!("gids[{index}].index"), index.into());
            says(&format!("gids[{index}].gid"), gid.to_string().into());
            says(&format!("gids[{index}].type"), kind.into());
            says(&format!("gids[{index}].net_device"), read(&format!("gid_attrs/ndevs/{index}")).into());
            says(&format!("gids[{index}].address"), gid.to_canonical().to_string().into());
        }
    }

    /// The filled places of a port's GID table.
    pub(crate) fn gids(&self, device: &str, port: &str) -> Vec<(u32, Ipv6Addr)> {
        let directory = format!("infiniband/{device}/ports/{port}/gids/");
        let gid = |index: &str| {
            let gid: Ipv6Addr = self.get(&format!("{directory}{index}"))?.parse().expect("a GID");
            (!gid.is_unspecified()).then(|| (index.parse().expect("an index"), gid))
        };
        self.names(&directory).into_iter().filter_map(gid).collect()
    }

    /// An attribute that is there and not empty.
    fn get(&self, path: &str) -> Option<&str> {
        self.0.get(path).map(String::as_str).filter(|text| !text.is_empty())
    }

    /// The names in a directory that ends with a slash.
    fn names(&self, directory: &str) -> Vec<&str> {
        let inside = self.0.keys().filter_map(|path| path.strip_prefix(directory));
        let mut names: Vec<_> = inside.filter_map(|path| path.split('/').next()).collect();
        names.dedup();
        names
    }

    fn uverbs_node(&self, device: &str) -> Option<String> {
        let nodes = self.names("infiniband_verbs/").into_iter();
        let mut nodes =
            nodes.filter(|node| self.get(&format!("infiniband_verbs/{node}/ibdev")) == Some(device));
        nodes.next().map(|node| format!("/dev/infiniband/{node}"))
    }

    /// Soft-RoCE alone has a parent, the net device; on older kernels it links to that one's hardware, which is not its own.
    fn is_software(&self, device: &str) -> bool {
        self.get(&format!("infiniband/{device}/parent")).is_some()
    }

    fn driver(&self, device: &str) -> Option<&str> {
        if self.is_software(device) {
            return Some("rdma_rxe");
        }
        self.get(&format!("infiniband/{device}/device/driver"))?.rsplit('/').next()
    }

    fn pci_address(&self, device: &str) -> Option<&str> {
        let hardware =
            self.get(&format!("infiniband/{device}/device")).filter(|_| !self.is_software(device))?;
        hardware.rsplit('/').next().filter(|name| name.contains(':'))
    }

    fn numa_node(&self, device: &str) -> Option<u32> {
        let node = self.get(&format!("infiniband/{device}/device/numa_node"));
        node.filter(|_| !self.is_software(device))?.parse().ok()
    }
}

/// `4: ACTIVE`
fn after_colon(text: &str) -> &str {
    text.split_once(": ").map_or(text, |(_, word)| word)
}

fn hexadecimal(text: &str) -> u64 {
    u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// The kernel's words in sysfs, as `rdma link` has them.
fn physical_state(word: &str) -> &'static str {
    match word {
        "Polling" => "POLLING",
        "Disabled" => "DISABLED",
        "LinkUp" => "LINK_UP",
        other => panic!("no guest has a link that is {other}"),
    }
}

/// `2.5 Gb/sec (1X SDR)`: bits a second, width, speed of a lane.
fn rate(text: &str) -> (u64, &str, &str) {
    let words: Vec<_> = text.split([' ', '(', ')']).filter(|word| !word.is_empty()).collect();
    let [gigabits, "Gb/sec", width, speed] = words[..] else { panic!("sysfs on the rate: {text}") };
    let gigabits: f64 = gigabits.parse().expect("a rate");
    ((gigabits * 1e9) as u64, width, speed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_found_by_path_and_name() {
        let sysfs = Sysfs(
            [
                ("infiniband/rxe0/parent", "v0"),
                ("infiniband/rxe0/fw_ver", ""),
                ("infiniband/rxe0/ports/1/gids/0", "fe80:0000:0000:0000:540d:4dff:fe1e:4990"),
                ("infiniband/rxe0/ports/1/gids/1", "0000:0000:0000:0000:0000:0000:0000:0000"),
                ("infiniband/rxe0/ports/1/gids/10", "0000:0000:0000:0000:0000:ffff:c000:0201"),
                ("infiniband_verbs/uverbs3/ibdev", "rxe0"),
            ]
            .map(|(path, text)| (path.to_owned(), text.to_owned()))
            .into(),
        );
        assert_eq!(sysfs.names("infiniband/"), ["rxe0"]);
        assert_eq!(sysfs.get("infiniband/rxe0/fw_ver"), None);
        assert_eq!(sysfs.uverbs_node("rxe0").as_deref(), Some("/dev/infiniband/uverbs3"));
        assert_eq!(sysfs.driver("rxe0"), Some("rdma_rxe"));
        let gids = sysfs.gids("rxe0", "1");
        assert_eq!(gids.iter().map(|(index, _)| *index).collect::<Vec<_>>(), [0, 10]);
        assert_eq!(gids[1].1.to_canonical().to_string(), "192.0.2.1");
    }

    #[test]
    fn rates_are_read() {
        assert_eq!(rate("2.5 Gb/sec (1X SDR)"), (2_500_000_000, "1X", "SDR"));
        assert_eq!(rate("100 Gb/sec (4X EDR)"), (100_000_000_000, "4X", "EDR"));
    }
}
