//! The first witness: `ibv_devinfo -v`, whose output is text for people.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;

use serde_json::{Value, json};

use super::agreement::Testimony;

const WITNESS: &str = "ibv_devinfo";

/// A device as `ibv_devinfo -v` prints it.
#[derive(Debug, Default)]
pub(crate) struct Device {
    fields: BTreeMap<String, String>,
    /// The words listed under a field, one a line.
    lists: BTreeMap<String, Vec<String>>,
    ports: Vec<Port>,
}

#[derive(Debug, Default)]
struct Port {
    fields: BTreeMap<String, String>,
    /// Index, GID, and the type where one is printed.
    gids: Vec<(u32, Ipv6Addr, Option<String>)>,
}

/// Lists have this many tabs before each word, fields fewer.
const LIST_INDENT: usize = 5;

/// Reads the whole output.
pub(crate) fn parse(text: &str) -> Vec<Device> {
    let mut devices: Vec<Device> = Vec::new();
    let mut last_field = String::new();
    for line in text.lines() {
        let indent = line.chars().take_while(|tab| *tab == '\t').count();
        let line = line.trim();
        if indent >= LIST_INDENT {
            let device = devices.last_mut().expect("a list belongs to a device");
            device.lists.entry(last_field.clone()).or_default().push(line.to_owned());
            continue;
        }
        // Without a colon it only says that something is not supported.
        let Some((key, value)) = line.split_once(':').map(|(key, value)| (key, value.trim().to_owned()))
        else {
            continue;
        };
        if key == "hca_id" {
            devices.push(Device::default());
        }
        let device = devices.last_mut().expect("the first line names a device");
        if key == "port" {
            device.ports.push(Port::default());
        }
        match (device.ports.last_mut(), key.strip_prefix("GID[")) {
            (Some(port), Some(index)) => port.gids.push(gid(index, &value)),
            (Some(port), None) => drop(port.fields.insert(key.to_owned(), value)),
            (None, _) => drop(device.fields.insert(key.to_owned(), value)),
        }
        last_field = key.to_owned();
    }
    devices
}

/// `  0]` and `fe80::1, RoCE v2`.
fn gid(index: &str, value: &str) -> (u32, Ipv6Addr, Option<String>) {
    let index = index.trim_matches([' ', ']']).parse().expect("a GID's index");
    let (gid, kind) =
        value.split_once(", ").map_or((value, None), |(gid, kind)| (gid, Some(kind.to_owned())));
    (index, gid.parse().expect("a GID"), kind)
}

/// Says all that the output tells of the fields of our report.
pub(crate) fn testify(devices: &[Device], testimony: &mut Testimony) {
    for device in devices {
        let place = format!("devices[{}]", device.text("hca_id"));
        let mut says = |field: &str, value: Value| testimony.says(WITNESS, format!("{place}.{field}"), value);
        says("name", device.text("hca_id").into());
        says("transport", device.text("transport").split(" (").next().into());
        says("firmware", device.text("fw_ver").into());
        says("node_guid", device.text("node_guid").into());
        says("system_image_guid", device.text("sys_image_guid").into());
        says("vendor_id", device.number("vendor_id"));
        says("vendor_part_id", device.number("vendor_part_id"));
        says("hardware_version", device.number("hw_ver"));
        says("completion_vectors", device.number("num_comp_vectors"));
        says("on_chip_memory_bytes", device.on_chip_memory());
        says("capabilities", device.capabilities().into());
        says("atomics", atomics(device.text("atomic_cap")).into());
        says("on_demand_paging", device.list("general_odp_caps").contains(&"ODP_SUPPORT".to_owned()).into());
        says("limits.max_mr_bytes", device.number("max_mr_size"));
        for limit in LIMITS {
            says(&format!("limits.{limit}"), device.number(limit));
        }
        assert_eq!(device.number("phys_port_cnt"), device.ports.len(), "{WITNESS} on the ports");
        for port in &device.ports {
            port.testify(&format!("{place}.ports[{}]", port.fields["port"]), testimony);
        }
    }
}

/// The limits that we call as `ibv_devinfo` does.
const LIMITS: [&str; 19] = [
    "max_mr",
    "max_mw",
    "max_pd",
    "max_qp",
    "max_qp_wr",
    "max_sge",
    "max_sge_rd",
    "max_cq",
    "max_cqe",
    "max_srq",
    "max_srq_wr",
    "max_srq_sge",
    "max_ah",
    "max_qp_rd_atom",
    "max_res_rd_atom",
    "max_qp_init_rd_atom",
    "max_mcast_grp",
    "max_mcast_qp_attach",
    "max_pkeys",
];

impl Device {
    fn text(&self, key: &str) -> &str {
        self.fields.get(key).unwrap_or_else(|| panic!("{WITNESS} prints no {key}"))
    }

    fn number(&self, key: &str) -> Value {
        number(self.text(key)).into()
    }

    fn list(&self, key: &str) -> &[String] {
        self.lists.get(key).map_or(&[], Vec::as_slice)
    }

    /// Printed only where there is some.
    fn on_chip_memory(&self) -> Value {
        let text = self.fields.get("maximum available device memory");
        text.map_or(0, |bytes| number(bytes.trim_end_matches("Bytes"))).into()
    }

    /// The names under both words of flags, and ours for the bits that `ibv_devinfo` has no name for.
    fn capabilities(&self) -> Vec<String> {
        let mut names = self.list("device_cap_flags").to_vec();
        for name in self.list("device_cap_flags_ex") {
            match name.strip_prefix("Unknown flags: ") {
                Some(bits) => names.extend(kernel_flags(number(bits))),
                None => names.push(name.clone()),
            }
        }
        let bits = number(self.text("device_cap_flags_ex")) | number(self.text("device_cap_flags"));
        assert_eq!(bits.count_ones() as usize, names.len(), "a name for each bit of {bits:#x}: {names:?}");
        names
    }
}

/// Flags of the kernel's `rdma/ib_user_verbs.h` that `ibv_devinfo` passes over.
fn kernel_flags(bits: u64) -> Vec<String> {
    let known = [(38, "FLUSH_GLOBAL"), (39, "FLUSH_PERSISTENT"), (40, "ATOMIC_WRITE")];
    let set = known.iter().filter(|(bit, _)| bits & (1 << bit) != 0);
    set.map(|(_, name)| (*name).to_owned()).collect()
}

fn atomics(printed: &str) -> &'static str {
    match printed.split(' ').next() {
        Some("ATOMIC_NONE") => "none",
        Some("ATOMIC_HCA") => "device",
        Some("ATOMIC_GLOB") => "global",
        _ => panic!("{WITNESS} on atomics: {printed}"),
    }
}

impl Port {
    fn testify(&self, place: &str, testimony: &mut Testimony) {
        let text =
            |key: &str| self.fields.get(key).unwrap_or_else(|| panic!("{WITNESS} prints no {key}")).as_str();
        let first = |key: &str| text(key).split(' ').next().unwrap_or_default();
        let mut says = |field: &str, value: Value| testimony.says(WITNESS, format!("{place}.{field}"), value);
        says("number", number(text("port")).into());
        says("state", first("state").trim_start_matches("PORT_").into());
        says("physical_state", first("phys_state").into());
        says("link_layer", text("link_layer").into());
        says("width", first("active_width").into());
        says("lane_speed", lane_speed(text("active_speed")).into());
        says("rate_bits_per_second", rate(first("active_width"), first("active_speed")).into());
        says("active_mtu_bytes", number(text("active_mtu")).into());
        says("max_mtu_bytes", number(text("max_mtu")).into());
        says("lid", number(text("port_lid")).into());
        says("sm_lid", number(text("sm_lid")).into());
        says("lmc", number(text("port_lmc")).into());
        says("gid_table_len", number(text("gid_tbl_len")).into());
        says("pkey_table_len", number(text("pkey_tbl_len")).into());
        says("max_message_bytes", number(text("max_msg_sz")).into());
        for (index, gid, kind) in &self.gids {
            says(&format!("gids[{index}].index"), json!(index));
            says(&format!("gids[{index}].gid"), gid.to_string().into());
            if let Some(kind) = kind {
                says(&format!("gids[{index}].type"), kind.as_str().into());
            }
        }
    }
}

/// `10.0 Gbps (8)`: the number in brackets is the InfiniBand specification's.
fn lane_speed(printed: &str) -> &'static str {
    let code = printed.split(['(', ')']).nth(1).expect("a speed's number");
    match code {
        "1" => "SDR",
        "2" => "DDR",
        "4" => "QDR",
        "8" => "FDR10",
        "16" => "FDR",
        "32" => "EDR",
        "64" => "HDR",
        "128" => "NDR",
        "256" => "XDR",
        _ => panic!("{WITNESS} on the speed: {printed}"),
    }
}

/// `4X` and `10.0`.
fn rate(width: &str, lane_gigabits: &str) -> u64 {
    let lanes: f64 = width.trim_end_matches('X').parse().expect("a width");
    let gigabits: f64 = lane_gigabits.parse().expect("a speed");
    (lanes * gigabits * 1e9) as u64
}

/// The first word, in whichever base it is written.
fn number(text: &str) -> u64 {
    let word = text.split(' ').next().unwrap_or_default();
    let parsed = match word.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => word.parse(),
    };
    parsed.unwrap_or_else(|error| panic!("{WITNESS} prints {text:?}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of Linux 7.2 and rdma-core 65, one device of two cut out.
    const SAMPLE: &str = include_str!("devinfo.txt");

    #[test]
    fn a_device_is_read_with_its_lists_ports_and_gids() {
        let devices = parse(SAMPLE);
        assert_eq!(devices.len(), 1);
        let device = &devices[0];
        assert_eq!(device.text("node_guid"), "84df:ebff:fec3:2023");
        assert_eq!(device.number("vendor_id"), 0xff_ffff);
        assert_eq!(device.list("general_odp_caps"), ["ODP_SUPPORT"]);
        assert_eq!(device.on_chip_memory(), 0);
        let capabilities = device.capabilities();
        assert!(capabilities.contains(&"MEM_WINDOW_TYPE_2B".to_owned()), "{capabilities:?}");
        assert!(capabilities.contains(&"ATOMIC_WRITE".to_owned()), "{capabilities:?}");
        let port = &device.ports[0];
        assert_eq!(port.fields["active_mtu"], "1024 (3)");
        let mapped = "::ffff:192.0.2.1".parse().unwrap();
        assert_eq!(port.gids.len(), 3);
        assert_eq!(port.gids[1], (1, mapped, Some("RoCE v2".to_owned())));
    }

    #[test]
    fn rates_are_lanes_times_lane() {
        assert_eq!((rate("4X", "25.0"), lane_speed("25.0 Gbps (32)")), (100_000_000_000, "EDR"));
        assert_eq!((rate("1X", "2.5"), lane_speed("2.5 Gbps (1)")), (2_500_000_000, "SDR"));
    }
}
