//! Diagnoses packets that do not arrive between two cards: in which direction, and what drops them.

use super::gids::unlike_gids;
use super::judged::Judged;
use super::names::Names;
use super::readings::{CardEnd, CardsTried, Tried};
use super::suspects::{is_filtered, with_suspects};
use crate::finding::Finding;

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
                "of {all} datagrams each way none arrives; the two hear each other over TCP, so something drops {} on the way",
                carrier(&tried.local)
            );
            Some(walled(tried, names, found, &[true, false], "blocked both ways").perhaps_apart())
        }
        (0, back) => {
            let found = format!(
                "0 of {all} datagrams arrive at {}, {back} of {all} come back: something drops {} on the way {}",
                names.peer,
                carrier(&tried.local),
                names.way(true)
            );
            Some(walled(tried, names, found, &[true], &format!("blocked to {}", names.peer)))
        }
        (there, 0) => {
            let found = format!(
                "{there} of {all} datagrams arrive at {}, 0 of {all} come back: something drops {} on the way {}",
                names.peer,
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
            finding = finding.fix_in(
                &format!("on {}", names.host(is_here)),
                "nft list ruleset; iptables-save: let UDP port 4791 in, and out on the other side",
            );
        }
    }
    let between = match tried.local.link_layer.as_str() {
        "InfiniBand" => {
            "the subnet manager must have both ports in one partition: see pkeys of both (ibv_devinfo -v)"
                .to_owned()
        }
        _ => format!(
            "let {} pass each switch and router: ACLs, security groups; see that both ports are in one VLAN",
            carrier(&tried.local)
        ),
    };
    Judged::fails(why, finding.fix_in("between the hosts", between))
}

/// Returns the packets that carry RDMA on this port.
fn carrier(end: &CardEnd) -> &'static str {
    match end.gid.kind.as_str() {
        "RoCE v2" => "UDP port 4791 (RoCE v2)",
        "RoCE v1" => "Ethernet frames of type 0x8915 (RoCE v1)",
        _ => "the cards' packets",
    }
}
