//! Checks the LIDs and partition keys that a subnet manager assigns to InfiniBand ports.

use super::port::start_subnet_manager;
use super::wire::{Wire, each_port};
use crate::finding::{Answer, Finding, Fix};
use crate::pack::{Pack, Port};

const NO_INFINIBAND: &str = "no InfiniBand port";

/// Checks whether a subnet manager has assigned each port its LID.
pub(super) fn manager(pack: &Pack) -> Answer {
    each_port(pack, |wire| wire == Wire::InfiniBand, NO_INFINIBAND, |it| manager_of(pack, &it.port))
}

fn manager_of(pack: &Pack, port: &Port) -> Finding {
    let (own, theirs) = (port.path("lid"), port.path("sm_lid"));
    let number = |path: &str| pack.number(path).map_err(|missing| Finding::unread(path, &missing));
    let (lid, sm_lid) = match (number(&own), number(&theirs)) {
        (Ok(lid), Ok(sm_lid)) => (lid, sm_lid),
        (Err(unread), _) | (_, Err(unread)) => return unread,
    };
    let found = format!("LID {lid}, subnet manager at LID {sm_lid}");
    let finding = if lid == 0 || sm_lid == 0 {
        Finding::fail(format!("{found}: LID 0 means that none is assigned, so no packet can be routed"))
            .fix(start_subnet_manager())
            .fix(Fix::new("see whether a subnet manager answers").run("sminfo"))
    } else {
        Finding::pass(found)
    };
    finding.read(own).read(theirs)
}

/// The bit of a partition key that marks a full member, which may communicate with every member.
const FULL_MEMBER: u64 = 0x8000;

/// Checks whether each port is a full member of a partition.
pub(super) fn partition_keys(pack: &Pack) -> Answer {
    each_port(pack, |wire| wire == Wire::InfiniBand, NO_INFINIBAND, |it| keys_of(pack, &it.port))
}

fn keys_of(pack: &Pack, port: &Port) -> Finding {
    let folder = port.path("pkeys");
    let mut keys = Vec::new();
    for index in pack.names(&folder) {
        let path = format!("{folder}/{index}");
        match pack.number(&path) {
            Ok(key) => keys.push(key),
            Err(missing) => return Finding::unread(&path, &missing),
        }
    }
    let named = keys.iter().map(|key| format!("{key:#06x}")).collect::<Vec<_>>().join(", ");
    let finding = if keys.iter().any(|key| key & FULL_MEMBER != 0) {
        Finding::pass(named)
    } else if keys.is_empty() {
        Finding::unknown("the table of partition keys could not be read")
    } else {
        Finding::fail(format!(
            "{named}: the port is only a limited member, and two limited members cannot communicate"
        ))
        .fix(
            Fix::new("make the port a full member: put this line into partitions.conf, and restart opensm")
                .at("opensm")
                .run("Default=0x7fff, ipoib : ALL=full;"),
        )
    };
    finding.read(folder)
}
