//! Formats the report as text.

mod findings;
mod host;
mod pair;

use super::report::Report;

pub(super) use findings::Style;

/// Formats the whole report: the pair first, then each host.
pub(super) fn report(report: &Report, style: Style) -> String {
    let pair = report.pair.as_ref().map(|pair| pair::pair(pair, style));
    let hosts = match report.hosts.as_slice() {
        // A host that is its own peer is printed once.
        [here, peer] if here.host == peer.host && here.checks == peer.checks => &report.hosts[..1],
        hosts => hosts,
    };
    let hosts = hosts.iter().map(|it| host::host(it, style));
    pair.into_iter().chain(hosts).collect::<Vec<_>>().join("\n")
}
