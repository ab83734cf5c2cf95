//! Diagnoses packets that do not arrive between two cards: in which direction, and what drops them.

use super::gids::unlike_gids;
use super::judged::Judged;
use super::names::Names;
use super::readings::{CardEnd, CardsTried, Tried};
use super::suspects::{is_filtered, with_suspects};
use crate::finding::{Finding, Fix};

/// Detects that packets of one direction, or of both, are dropped.
pub(super) fn of_silence(tried: &CardsTried, names: &Names<'_>) -> Option<Judged> {
    // An acknowledged write proves both directions. Datagrams of a card may fail where its
    // connections work.
    if tried.short == Tried::Worked {
        return None;
    }
    let (local, remote) = (&tried.local.gid, &tried.remote.gid);
    if local.kind != remote.kind {
        let what = format!("one GID is {} and the other {}", local.kind, remote.kind);
        return Some(Judged::fails("GIDs of two kinds", unlike_gids(tried, names, &what)));
    }
    let (there, back) = (tried.there.count?, tried.back.count?);
    let all = tried.datagrams;
    match (there, back) {
        (0, 0) => {
            let found = format!(
                "0 of {all} datagrams arrive in each direction; TCP works between the hosts, so {} is dropped on the path",
                carrier(&tried.local)
            );
            Some(walled(tried, names, found, &[true, false], "blocked both ways").perhaps_apart())
        }
        (0, back) => {
            let found = format!(
                "0 of {all} datagrams arrive at {}, {back} of {all} arrive at {}: {} is dropped on the path {}",
                names.peer,
                names.here,
                carrier(&tried.local),
                names.way(true)
            );
            Some(walled(tried, names, found, &[true], &format!("blocked to {}", names.peer)))
        }
        (there, 0) => {
            let found = format!(
                "{there} of {all} datagrams arrive at {}, 0 of {all} arrive at {}: {} is dropped on the path {}",
                names.peer,
                names.here,
                carrier(&tried.local),
                names.way(false)
            );
            Some(walled(tried, names, found, &[false], &format!("blocked from {}", names.peer)))
        }
        _ => None,
    }
}

/// Names the firewall that drops the packets, if a pack shows it. If that does not explain the
/// loss, adds other places to check.
fn walled(tried: &CardsTried, names: &Names<'_>, found: String, ways: &[bool], why: &str) -> Judged {
    let (mut finding, is_explained) = with_suspects(Finding::fail(found), tried, names, ways);
    if is_explained {
        return Judged::fails(why, finding);
    }
    for is_there in ways {
        let (receiver, is_here) = if *is_there { (&tried.remote, false) } else { (&tried.local, true) };
        if is_filtered(receiver) {
            let sender = names.host(!is_here);
            finding = finding.fix(
                names
                    .fix(is_here, format!("accept UDP port 4791 on input, and on output of {sender}"))
                    .run("nft list ruleset")
                    .run("iptables-save"),
            );
        }
    }
    let between = match tried.local.link_layer.as_str() {
        "InfiniBand" => Fix::new(
            "put both ports into one partition of the subnet manager; this lists the pkeys of a port",
        )
        .run("ibv_devinfo -v"),
        _ => Fix::new(format!(
            "let {} pass the ACLs and security groups of every switch and router, and put both ports into one VLAN",
            carrier(&tried.local)
        )),
    };
    Judged::fails(why, finding.fix(between.at("between the hosts")))
}

/// Returns the packets that carry RDMA on this port.
fn carrier(end: &CardEnd) -> &'static str {
    match end.gid.kind.as_str() {
        "RoCE v2" => "UDP port 4791 (RoCE v2)",
        "RoCE v1" => "Ethernet frames of type 0x8915 (RoCE v1)",
        _ => "the traffic of the cards",
    }
}
