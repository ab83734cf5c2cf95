//! Reports two GIDs that do not match.

use super::names::{BOTH, Names};
use super::readings::{CardsTried, GidReading};
use crate::finding::{CommandLine, Finding, Fix};

/// Reports the mismatch, and which other GIDs match.
pub(super) fn unlike_gids(tried: &CardsTried, names: &Names<'_>, what: &str) -> Finding {
    let (local, remote) = (&tried.local.gid, &tried.remote.gid);
    let family = |gid: &GidReading| if gid.address.is_some_and(|it| it.is_ipv4()) { "IPv4" } else { "IPv6" };
    let found = format!(
        "{what}: GID {} of {} is {}, GID {} of {} is {}",
        local.index, names.here, local.gid, remote.index, names.peer, remote.gid
    );
    let mut finding = Finding::fail(found);
    let like = |gids: &[GidReading], other: &GidReading| {
        let is_like =
            |gid: &&GidReading| gid.kind == other.kind && family(gid) == family(other) && !is_link_local(gid);
        gids.iter().find(is_like).map(|gid| gid.index)
    };
    let words =
        |index, gid: &GidReading| format!("use GID {index}, which is {} and {}", gid.kind, family(gid));
    if let Some(index) = like(&tried.local.gids, remote) {
        let fix = names.fix(true, words(index, remote));
        finding = finding.fix(fix.run(CommandLine::new("farreach doctor PEER -x").arg(index.to_string())));
    }
    if let Some(index) = like(&tried.remote.gids, local) {
        let fix = names.fix(false, words(index, local));
        finding = finding.fix(fix.run(CommandLine::new("farreach serve -x").arg(index.to_string())));
    }
    if finding.fixes.is_empty() {
        return finding.fix(
            Fix::new("give both net devices an address of the same family")
                .at(BOTH)
                .run("ip address add ADDRESS/PREFIX dev NETDEV"),
        );
    }
    finding
}

fn is_link_local(gid: &GidReading) -> bool {
    gid.gid.starts_with("fe80:")
}
