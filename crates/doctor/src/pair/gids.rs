//! Reports two GIDs that do not match.

use super::names::Names;
use super::readings::{CardsTried, GidReading};
use crate::finding::Finding;

/// Reports the mismatch, and which other GIDs match.
pub(super) fn unlike_gids(tried: &CardsTried, names: &Names<'_>, what: &str) -> Finding {
    let (local, remote) = (&tried.local.gid, &tried.remote.gid);
    let family = |gid: &GidReading| if gid.address.is_some_and(|it| it.is_ipv4()) { "IPv4" } else { "IPv6" };
    let found = format!(
        "{what}: {} is GID {} here, {} is GID {} of {}",
        local.gid, local.index, remote.gid, remote.index, names.peer
    );
    let mut finding = Finding::fail(found);
    let like = |gids: &[GidReading], other: &GidReading| {
        let is_like =
            |gid: &&GidReading| gid.kind == other.kind && family(gid) == family(other) && !is_link_local(gid);
        gids.iter().find(is_like).map(|gid| gid.index)
    };
    let words = |gid: &GidReading| format!("take the GID that is {} and {} too", gid.kind, family(gid));
    if let Some(index) = like(&tried.local.gids, remote) {
        finding = finding.fix_in("on this host", format!("{}: -x {index}", words(remote)));
    }
    if let Some(index) = like(&tried.remote.gids, local) {
        let fix = format!("{}: farreach serve -x {index}", words(local));
        finding = finding.fix_in(&format!("on {}", names.peer), fix);
    }
    if finding.fixes.is_empty() {
        return finding
            .fix("give both net devices an address of the same family: ip addr add ADDRESS dev NETDEV");
    }
    finding
}

fn is_link_local(gid: &GidReading) -> bool {
    gid.gid.starts_with("fe80:")
}
