//! Queries the RDMA core of the kernel by netlink.

use std::collections::BTreeMap;

use rustix::io::Errno;

use super::netlink::{NetlinkError, RDMA, Want, ask, attribute, attributes, open, text};
use crate::probes::Reading;

// From rdma/rdma_netlink.h.
const SYS_GET: u16 = (5 << 10) + 6;
const RES_GET: u16 = (5 << 10) + 9;
const DEV_NAME: u16 = 2;
const RES_SUMMARY: u16 = 15;
const RES_SUMMARY_ENTRY: u16 = 16;
const ENTRY_NAME: u16 = 17;
const ENTRY_CURRENT: u16 = 18;
const NETNS_MODE: u16 = 66;
const COPY_ON_FORK: u16 = 93;

/// Returns whether the kernel has the netlink family of RDMA.
pub(super) fn has_netlink() -> Reading<bool> {
    match open(RDMA) {
        Ok(_) => Reading::Read(true),
        Err(NetlinkError::Refused(Errno::PROTONOSUPPORT)) => Reading::Read(false),
        Err(error) => Reading::Unread(error.to_string()),
    }
}

/// The settings of the RDMA core.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct System {
    /// `shared` or `exclusive`.
    pub(super) namespaces: String,
    /// Whether `fork` copies locked pages for the child, so that the parent keeps the pages that
    /// the card uses.
    pub(super) copies_on_fork: bool,
}

pub(super) fn system() -> Result<System, String> {
    let answers = ask(RDMA, SYS_GET, Want::One, &[]).map_err(|error| reason(&error))?;
    answers.first().and_then(|answer| system_of(answer)).ok_or_else(|| {
        "this kernel does not report it: it is older than Linux 5.2, which introduced the setting".to_owned()
    })
}

pub(super) fn system_of(answer: &[u8]) -> Option<System> {
    let mode = attribute(answer, NETNS_MODE)?.first()?;
    let namespaces = if *mode == 0 { "exclusive" } else { "shared" }.to_owned();
    let copies_on_fork = attribute(answer, COPY_ON_FORK).is_some_and(|value| value.first() == Some(&1));
    Some(System { namespaces, copies_on_fork })
}

/// Returns the resources in use, by device and kind.
pub(super) fn resources() -> Reading<BTreeMap<String, BTreeMap<String, u64>>> {
    let answers = ask(RDMA, RES_GET, Want::List, &[]).map_err(|error| reason(&error));
    answers.map(|answers| answers.iter().filter_map(|answer| resources_of(answer)).collect()).into()
}

pub(super) fn resources_of(answer: &[u8]) -> Option<(String, BTreeMap<String, u64>)> {
    let device = text(attribute(answer, DEV_NAME)?);
    let entries = attributes(attribute(answer, RES_SUMMARY)?).filter(|(kind, _)| *kind == RES_SUMMARY_ENTRY);
    let entry = |(_, entry)| {
        let current = attribute(entry, ENTRY_CURRENT)?.try_into().ok()?;
        Some((text(attribute(entry, ENTRY_NAME)?), u64::from_ne_bytes(current)))
    };
    Some((device, entries.filter_map(entry).collect()))
}

fn reason(error: &NetlinkError) -> String {
    match error {
        NetlinkError::Refused(Errno::PROTONOSUPPORT) => {
            "the kernel has no RDMA support, or its module ib_core is not loaded".to_owned()
        }
        error => format!("cannot query the RDMA core over netlink: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::netlink::packed;
    use super::*;

    /// The answer of Linux 7.2 where `rdma system show` printed `netns shared … copy-on-fork on`.
    const SYSTEM: &str = "05004200010000000500600000000000050067000100000005005d0001000000";

    /// The answer for Soft-RoCE where `rdma resource show` printed `rxe0: pd 1 cq 1 qp 1 cm_id 0 mr
    /// 0 ctx 0 srq 0`.
    const RESOURCES: &str = "0800010000000000090002007278653000000000b0000f001800100007001100706400000c0012000100000000000000 \
         1800100007001100637100000c00120001000000000000001800100007001100717000000c0012000100000000000000 \
         1c0010000a001100636d5f69640000000c001200000000000000000018001000070011006d7200000c00120000000000 \
         000000001800100008001100637478000c00120000000000000000001800100008001100737271000c00120000000000 \
         00000000";

    fn recorded(hex: &str) -> Vec<u8> {
        let digits: Vec<char> = hex.chars().filter(|c| !c.is_whitespace()).collect();
        digits
            .chunks(2)
            .map(|pair| u8::from_str_radix(&pair.iter().collect::<String>(), 16).unwrap())
            .collect()
    }

    // The kernel answers in host byte order, and these answers were recorded on a little-endian
    // host.
    #[cfg(target_endian = "little")]
    #[test]
    fn what_a_kernel_has_answered_is_understood() {
        let system = system_of(&recorded(SYSTEM)).unwrap();
        assert_eq!(system, System { namespaces: "shared".to_owned(), copies_on_fork: true });
        let (device, counts) = resources_of(&recorded(RESOURCES)).unwrap();
        let expected = [("pd", 1), ("cq", 1), ("qp", 1), ("cm_id", 0), ("mr", 0), ("ctx", 0), ("srq", 0)];
        assert_eq!(device, "rxe0");
        assert_eq!(counts, expected.map(|(kind, count)| (kind.to_owned(), count)).into());
    }

    #[test]
    fn the_mode_of_namespaces_and_what_a_child_gets() {
        let told = |bytes: &[u8]| system_of(bytes).map(|it| (it.namespaces, it.copies_on_fork));
        let both = [packed(NETNS_MODE, &[1]), packed(COPY_ON_FORK, &[1])].concat();
        assert_eq!(told(&both), Some(("shared".to_owned(), true)));
        assert_eq!(told(&packed(NETNS_MODE, &[0])), Some(("exclusive".to_owned(), false)));
        assert_eq!(told(&[]), None);
    }

    #[test]
    fn resources_are_counted_by_kind() {
        let entry = |name: &[u8], count: u64| {
            packed(
                RES_SUMMARY_ENTRY,
                &[packed(ENTRY_NAME, name), packed(ENTRY_CURRENT, &count.to_ne_bytes())].concat(),
            )
        };
        let summary = packed(RES_SUMMARY, &[entry(b"pd\0", 1), entry(b"qp\0", 3)].concat());
        let answer = [packed(1, &[0; 4]), packed(DEV_NAME, b"rxe0\0"), summary].concat();
        let (device, counts) = resources_of(&answer).unwrap();
        assert_eq!(device, "rxe0");
        assert_eq!(counts, BTreeMap::from([("pd".to_owned(), 1), ("qp".to_owned(), 3)]));
        for len in 0..answer.len() {
            let _ = resources_of(&answer[..len]);
        }
    }
}
