//! Reads the data centre bridging (DCB) settings: lossless priorities, and what a packet's priority
//! is taken from.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use rustix::io::Errno;

use super::netlink::{NetlinkError, ROUTE, Want, ask, attribute, attributes, packed};
use super::sysfs::{names_in, rdma_devices};
use crate::probes::{Dcb, Reading};

// From linux/dcbnl.h and linux/rtnetlink.h.
const RTM_GETDCB: u16 = 78;
const CMD_IEEE_GET: u8 = 21;
const ATTR_IFNAME: u16 = 1;
const ATTR_IEEE: u16 = 13;
const IEEE_PFC: u16 = 2;
const IEEE_APP_TABLE: u16 = 3;
const APP_TRUST_TABLE: u16 = 11;
const SELECTOR_DSCP: u8 = 5;
const SELECTOR_PCP: u8 = 255;

/// The size of `struct dcbmsg`: address family, command, and two bytes of padding.
const HEADER: usize = 4;

/// Returns the settings of each net device of an RDMA device. Net devices whose driver does not
/// support DCB are left out.
pub(super) fn read() -> Reading<BTreeMap<String, Dcb>> {
    let mut found = BTreeMap::new();
    for name in net_devices() {
        let mut question = vec![0, CMD_IEEE_GET, 0, 0];
        question.extend(packed(ATTR_IFNAME, &[name.as_bytes(), &[0]].concat()));
        match ask(ROUTE, RTM_GETDCB, Want::One, &question) {
            Ok(answers) => {
                found.extend(answers.first().and_then(|it| parse(it, is_mlx5(&name))).map(|dcb| (name, dcb)));
            }
            // The driver has no DCB, or the net device is in another network namespace.
            Err(NetlinkError::Refused(Errno::OPNOTSUPP | Errno::NODEV)) => {}
            Err(error) => {
                return Reading::Unread(format!(
                    "cannot query data centre bridging of {name} over netlink: {error}"
                ));
            }
        }
    }
    Reading::Read(found)
}

/// Returns the net devices of all RDMA devices: those of cards by sysfs, those of Soft-RoCE by its
/// GIDs.
fn net_devices() -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for device in rdma_devices() {
        all.extend(names_in(device.join("device/net")));
        for port in names_in(device.join("ports")) {
            let folder = device.join("ports").join(port).join("gid_attrs/ndevs");
            let names =
                names_in(&folder).into_iter().filter_map(|it| fs::read_to_string(folder.join(it)).ok());
            all.extend(names.map(|name| name.trim().to_owned()));
        }
    }
    all.remove("");
    all
}

fn is_mlx5(net_device: &str) -> bool {
    let driver = Path::new("/sys/class/net").join(net_device).join("device/driver");
    fs::read_link(driver).is_ok_and(|driver| driver.ends_with("mlx5_core"))
}

pub(super) fn parse(answer: &[u8], is_mlx5: bool) -> Option<Dcb> {
    let ieee = attribute(answer.get(HEADER..)?, ATTR_IEEE)?;
    // `struct ieee_pfc`: the number of classes, then a bit for each enabled priority.
    let enabled = attribute(ieee, IEEE_PFC)?.get(1)?;
    let lossless_priorities = (0..8).filter(|priority| enabled >> priority & 1 == 1).collect();
    let dscp_priorities = attribute(ieee, IEEE_APP_TABLE).map(dscp_priorities);
    Some(Dcb { lossless_priorities, trust: trust(ieee, is_mlx5), dscp_priorities })
}

/// Parses `struct dcb_app` entries: selector, priority, and the selected value, in two bytes of
/// host order.
fn dscp_priorities(table: &[u8]) -> BTreeMap<u8, u8> {
    let entry = |entry: &[u8]| match *entry {
        [SELECTOR_DSCP, priority, first, second, ..] => {
            Some((u8::try_from(u16::from_ne_bytes([first, second])).ok()?, priority))
        }
        _ => None,
    };
    attributes(table).filter_map(|(_, bytes)| entry(bytes)).collect()
}

/// Returns what priorities are taken from.
///
/// If the driver has no trust table, mlx5 still shows it: it trusts DSCP as soon as its table has
/// an entry for one.
fn trust(ieee: &[u8], is_mlx5: bool) -> Option<String> {
    if let Some(table) = attribute(ieee, APP_TRUST_TABLE) {
        let selector = attributes(table).next()?.1.first()?;
        return match *selector {
            SELECTOR_DSCP => Some("dscp".to_owned()),
            SELECTOR_PCP => Some("pcp".to_owned()),
            _ => None,
        };
    }
    let table = attribute(ieee, IEEE_APP_TABLE).filter(|_| is_mlx5)?;
    let has_dscp = attributes(table).any(|(_, entry)| entry.first() == Some(&SELECTOR_DSCP));
    Some(if has_dscp { "dscp" } else { "pcp" }.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(ieee: &[Vec<u8>]) -> Vec<u8> {
        [&[0, CMD_IEEE_GET, 0, 0][..], &packed(ATTR_IFNAME, b"eth0\0"), &packed(ATTR_IEEE, &ieee.concat())]
            .concat()
    }

    fn pfc(enabled: u8) -> Vec<u8> {
        let mut bytes = vec![0; 136];
        bytes[..2].copy_from_slice(&[8, enabled]);
        packed(IEEE_PFC, &bytes)
    }

    fn trust_of(ieee: &[Vec<u8>], is_mlx5: bool) -> Option<String> {
        parse(&answer(ieee), is_mlx5).unwrap().trust
    }

    #[test]
    fn priorities_are_a_bit_each() {
        let told = parse(&answer(&[pfc(0b0000_1001)]), false).unwrap();
        assert_eq!(told, Dcb { lossless_priorities: vec![0, 3], trust: None, dscp_priorities: None });
        assert_eq!(parse(&answer(&[]), false), None);
    }

    #[test]
    fn the_first_that_is_trusted_counts() {
        let table = |selectors: &[u8]| {
            let entries: Vec<u8> = selectors.iter().flat_map(|it| packed(1, &[*it])).collect();
            packed(APP_TRUST_TABLE, &entries)
        };
        assert_eq!(trust_of(&[pfc(8), table(&[5, 255])], false).as_deref(), Some("dscp"));
        assert_eq!(trust_of(&[pfc(8), table(&[255])], false).as_deref(), Some("pcp"));
    }

    #[test]
    fn mlx5_tells_by_its_table_of_priorities() {
        let table = packed(IEEE_APP_TABLE, &packed(1, &[SELECTOR_DSCP, 3, 26, 0]));
        assert_eq!(trust_of(&[pfc(8), table.clone()], true).as_deref(), Some("dscp"));
        assert_eq!(trust_of(&[pfc(8), packed(IEEE_APP_TABLE, &[])], true).as_deref(), Some("pcp"));
        let told = parse(&answer(&[pfc(8), table.clone()]), true).unwrap();
        assert_eq!(told.dscp_priorities, Some([(26, 3)].into()));
        assert_eq!(trust_of(&[pfc(8), table], false), None);
    }
}
