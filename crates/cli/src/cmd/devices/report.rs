//! The report of `farreach devices`, as JSON. Sizes are in bytes, rates in bits per second.
//!
//! Compatibility: fields may be added. Changing the meaning of a field, or removing it, raises
//! [`SCHEMA_VERSION`]. The schema is docs/schema/devices.json.

use std::net::IpAddr;
use std::path::PathBuf;

use serde::Serialize;

use crate::rails;

/// The schema version of the report.
pub(crate) const SCHEMA_VERSION: u32 = 1;

/// The devices, providers and rails of this host, and what is missing.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "DevicesReport"))]
pub(crate) struct Report {
    #[cfg_attr(test, schemars(extend("const" = SCHEMA_VERSION)))]
    pub(crate) schema_version: u32,
    pub(crate) verbs: Verbs,
    pub(crate) fabric: Fabric,
    pub(crate) shm: Shm,
    /// The rails: the names that `-d` of the tests accepts.
    pub(crate) rails: Vec<Rail>,
}

impl Report {
    /// Returns whether nothing here can carry data.
    pub(crate) fn is_empty(&self) -> bool {
        let has_shm = self.rails.iter().any(|rail| rail.name == rails::SHM);
        self.verbs.devices.is_empty() && self.fabric.offers.is_empty() && !has_shm
    }

    /// Drops every device and offer that does not have this name.
    pub(crate) fn keep_only(&mut self, name: &str) {
        self.verbs.devices.retain(|device| device.name == name);
        self.fabric.offers.retain(|offer| {
            // In libfabric 1.x the rail `tcp` is the provider `net`: both names match.
            let is_behind =
                |rail: &Rail| rail.name == name && rail.provider.as_ref() == Some(&offer.provider);
            offer.provider == name || offer.domain == name || self.rails.iter().any(is_behind)
        });
        self.rails.retain(|rail| rail.is_called(name));
    }

    /// Returns whether a provider's offers have atomic operations that work. A provider that is not
    /// a rail was not tried; then its offer decides.
    pub(crate) fn has_atomics(&self, provider: &str) -> bool {
        let rail = self.rails.iter().find(|rail| rail.provider.as_deref() == Some(provider));
        rail.map_or_else(
            || {
                let mut offers = self.fabric.offers.iter().filter(|offer| offer.provider == provider);
                offers.any(|offer| offer.capabilities.contains(&"ATOMIC"))
            },
            |rail| rail.has_atomics,
        )
    }
}

/// A rail that the tests can use.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Rail {
    /// The name in `-d` and in reports: `rxe0`, `tcp`.
    pub(crate) name: String,
    /// The library: `verbs`, `libfabric`, or `farreach-shm`, which is part of the command.
    pub(crate) library: String,
    /// The libfabric provider behind it; null for other rails.
    pub(crate) provider: Option<String>,
    /// The library and the address, as text.
    pub(crate) through: String,
    pub(crate) is_rdma: bool,
    /// Whether compare-and-swap and fetch-and-add work over it.
    pub(crate) has_atomics: bool,
}

impl Rail {
    fn is_called(&self, name: &str) -> bool {
        // A port belongs to its device: `mlx5_0/2` to `mlx5_0`.
        self.name == name
            || self.name.split('/').next() == Some(name)
            || self.provider.as_deref() == Some(name)
    }
}

/// The devices of libibverbs, or why there are none.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Verbs {
    /// The file that was loaded; null if there is none.
    pub(crate) library: Option<PathBuf>,
    pub(crate) devices: Vec<Device>,
    pub(crate) problems: Vec<Problem>,
}

/// The rail within this host, or why it cannot be used.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Shm {
    /// The processes that it reaches, and its limits; null if it cannot be used.
    pub(crate) reach: Option<Reach>,
    pub(crate) problems: Vec<Problem>,
}

/// The processes that the rail within this host reaches, and its limits.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Reach {
    /// The number of the user to whom both processes must belong.
    pub(crate) user: u32,
    /// The number of the network namespace in which both processes must be.
    pub(crate) network_namespace: u64,
    /// The longest message.
    pub(crate) message_bytes_max: usize,
    /// The largest work request. Transfers are split into these.
    pub(crate) request_bytes_max: u64,
    /// The maximum number of segments of a work request, on each side.
    pub(crate) segments_max: usize,
}

/// Something that is missing or failed.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Problem {
    pub(crate) what: String,
    /// The meaning on this host, if `what` does not state it.
    pub(crate) cause: Option<String>,
    pub(crate) fix: String,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Device {
    pub(crate) name: String,
    pub(crate) driver: Option<String>,
    pub(crate) firmware: Option<String>,
    pub(crate) node_type: String,
    pub(crate) transport: String,
    pub(crate) node_guid: String,
    pub(crate) system_image_guid: String,
    pub(crate) uverbs_node: PathBuf,
    pub(crate) pci_address: Option<String>,
    pub(crate) numa_node: Option<u32>,
    pub(crate) vendor_id: u32,
    pub(crate) vendor_part_id: u32,
    pub(crate) hardware_version: u32,
    pub(crate) on_chip_memory_bytes: u64,
    pub(crate) completion_vectors: u32,
    pub(crate) capabilities: Vec<&'static str>,
    pub(crate) atomics: String,
    pub(crate) on_demand_paging: bool,
    pub(crate) limits: Limits,
    pub(crate) ports: Vec<Port>,
}

/// The device's limits, under their names in verbs.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Limits {
    pub(crate) max_mr_bytes: u64,
    pub(crate) max_mr: u32,
    pub(crate) max_mw: u32,
    pub(crate) max_pd: u32,
    pub(crate) max_qp: u32,
    pub(crate) max_qp_wr: u32,
    pub(crate) max_sge: u32,
    pub(crate) max_sge_rd: u32,
    pub(crate) max_cq: u32,
    pub(crate) max_cqe: u32,
    pub(crate) max_srq: u32,
    pub(crate) max_srq_wr: u32,
    pub(crate) max_srq_sge: u32,
    pub(crate) max_ah: u32,
    pub(crate) max_qp_rd_atom: u32,
    pub(crate) max_res_rd_atom: u32,
    pub(crate) max_qp_init_rd_atom: u32,
    pub(crate) max_mcast_grp: u32,
    pub(crate) max_mcast_qp_attach: u32,
    pub(crate) max_pkeys: u16,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Port {
    pub(crate) number: u8,
    pub(crate) state: String,
    pub(crate) physical_state: String,
    pub(crate) link_layer: String,
    /// Null if width or speed is unknown.
    pub(crate) rate_bits_per_second: Option<u64>,
    pub(crate) width: String,
    pub(crate) lane_speed: String,
    pub(crate) active_mtu_bytes: Option<u32>,
    pub(crate) max_mtu_bytes: Option<u32>,
    pub(crate) lid: u16,
    pub(crate) sm_lid: u16,
    pub(crate) lmc: u8,
    pub(crate) gid_table_len: u32,
    pub(crate) pkey_table_len: u16,
    pub(crate) max_message_bytes: u32,
    pub(crate) gids: Vec<Gid>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Gid {
    pub(crate) index: u32,
    pub(crate) gid: String,
    #[serde(rename = "type")]
    pub(crate) gid_type: String,
    /// Null if the GID has none. For a device in another network namespace, it is a name of that namespace.
    pub(crate) net_device: Option<String>,
    /// The IP address that a RoCE GID stands for; null for an InfiniBand one.
    pub(crate) address: Option<IpAddr>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Fabric {
    /// The file that was loaded; null if there is none.
    pub(crate) library: Option<PathBuf>,
    pub(crate) version: Option<String>,
    pub(crate) offers: Vec<Offer>,
    pub(crate) problems: Vec<Problem>,
}

/// One domain and endpoint type of one provider.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Offer {
    pub(crate) provider: String,
    pub(crate) provider_version: String,
    pub(crate) fabric: String,
    pub(crate) domain: String,
    pub(crate) endpoint_type: String,
    pub(crate) protocol: String,
    pub(crate) capabilities: Vec<&'static str>,
    pub(crate) mode: Vec<&'static str>,
    pub(crate) registration_modes: Vec<&'static str>,
    pub(crate) order: Vec<&'static str>,
    pub(crate) writes_ordered: bool,
    pub(crate) ordered_write_bytes: usize,
    pub(crate) immediate_bytes: usize,
    pub(crate) inject_bytes: usize,
    pub(crate) message_bytes_max: usize,
    pub(crate) transmit_queue: usize,
    pub(crate) receive_queue: usize,
    pub(crate) buffers_per_operation: usize,
    pub(crate) key_bytes: usize,
    pub(crate) progress: String,
    pub(crate) threading: String,
    pub(crate) address_format: String,
    pub(crate) address: Option<String>,
    pub(crate) nic: Option<Nic>,
}

/// The card behind an offer, if the provider reports it.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Nic {
    pub(crate) device: Option<String>,
    pub(crate) driver: Option<String>,
    pub(crate) firmware: Option<String>,
    pub(crate) pci_address: Option<String>,
    pub(crate) link_state: String,
    pub(crate) rate_bits_per_second: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_is_what_the_type_says() {
        crate::schema::assert_current::<Report>("devices.json");
    }

    /// A host with libfabric 1.17, whose `net` is the rail `tcp` and offers atomics that it does
    /// not have.
    fn with_net() -> Report {
        let offer = |provider: &str| Offer {
            provider: provider.to_owned(),
            provider_version: "117.0".to_owned(),
            fabric: "192.0.2.0/24".to_owned(),
            domain: "eth0".to_owned(),
            endpoint_type: "rdm".to_owned(),
            protocol: "xnet".to_owned(),
            capabilities: vec!["MSG", "RMA", "ATOMIC"],
            mode: Vec::new(),
            registration_modes: Vec::new(),
            order: Vec::new(),
            writes_ordered: true,
            ordered_write_bytes: 0,
            immediate_bytes: 8,
            inject_bytes: 128,
            message_bytes_max: 1 << 30,
            transmit_queue: 256,
            receive_queue: 256,
            buffers_per_operation: 4,
            key_bytes: 8,
            progress: "manual".to_owned(),
            threading: "safe".to_owned(),
            address_format: "sockaddr_in".to_owned(),
            address: Some("192.0.2.1:0".to_owned()),
            nic: None,
        };
        Report {
            schema_version: SCHEMA_VERSION,
            verbs: Verbs { library: None, devices: Vec::new(), problems: Vec::new() },
            fabric: Fabric {
                library: None,
                version: Some("1.17".to_owned()),
                offers: vec![offer("net"), offer("tcp;ofi_rxm")],
                problems: Vec::new(),
            },
            shm: Shm { reach: None, problems: Vec::new() },
            rails: vec![Rail {
                name: "tcp".to_owned(),
                library: "libfabric".to_owned(),
                provider: Some("net".to_owned()),
                through: "libfabric net, 192.0.2.1".to_owned(),
                is_rdma: false,
                has_atomics: false,
            }],
        }
    }

    #[test]
    fn an_offer_of_atomics_counts_only_where_they_work() {
        let report = with_net();
        assert!(!report.has_atomics("net"));
        assert!(report.has_atomics("tcp;ofi_rxm"), "not a rail: what the library says");
        crate::schema::assert_describes(&report);
    }

    #[test]
    fn the_name_that_tests_use_finds_its_provider() {
        for name in ["tcp", "net"] {
            let mut report = with_net();
            report.keep_only(name);
            let kept: Vec<_> = report.fabric.offers.iter().map(|offer| offer.provider.as_str()).collect();
            assert_eq!((kept, report.rails.len()), (vec!["net"], 1), "{name}");
        }
    }

    #[test]
    fn the_text_names_a_rail_as_tests_do_and_says_what_it_can() {
        let args = super::super::DevicesArgs { device: None, verbose: false, json: false };
        let text = super::super::text::render(&with_net(), &args, Some(80));
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let lines: Vec<String> = text.lines().map(words).collect();
        assert!(lines.contains(&"tcp no send write read libfabric net, 192.0.2.1".to_owned()), "{text}");
        assert!(lines.contains(&"net rdm msg rma ordered eth0".to_owned()), "{text}");
        assert!(lines.contains(&"tcp;ofi_rxm rdm msg rma atomic ordered eth0".to_owned()), "{text}");
    }
}
