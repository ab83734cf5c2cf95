//! Parsers of what a host reports, for the fuzz targets.

use super::{acs, dcb, netlink, rdma};

pub use super::firewall::{parse_iptables as iptables, parse_nft as nft};

/// Parses an answer of netlink, and each of its parts as one of RDMA, of DCB and of nf_tables.
/// Returns the number of its parts.
pub fn netlink(bytes: &[u8]) -> usize {
    let mut answers = Vec::new();
    let _ = netlink::take(bytes, &mut answers);
    for answer in answers.iter().map(Vec::as_slice).chain([bytes]) {
        let _ = (rdma::system_of(answer), rdma::resources_of(answer));
        let _ = (dcb::parse(answer, false), dcb::parse(answer, true));
    }
    answers.len()
}

/// Parses the config space of a PCI bridge.
pub fn config_space(bytes: &[u8]) {
    let _ = acs::services(bytes);
}
