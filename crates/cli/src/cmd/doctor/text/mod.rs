//! Formats the report as text.

mod findings;
mod host;
mod pair;

use farreach_doctor::HostReport;

use super::report::Report;
use crate::terminal::folded;

pub(super) use findings::Style;

/// Formats the whole report: what was examined, then the pair, then each host.
pub(super) fn report(report: &Report, style: Style) -> String {
    let mut parts = vec![folded("", &examined(report), style.width)];
    parts.extend(report.pair.as_ref().map(|pair| pair::pair(pair, style)));
    let hosts = hosts(report);
    for (host, label) in hosts.iter().zip(labels(report)) {
        // With one host, the fixes can only be for that one.
        parts.push(host::host(host, &label, (hosts.len() > 1).then_some(label.as_str()), style));
    }
    parts.join("\n")
}

/// Returns the hosts to print. A host that is its own peer is printed once.
fn hosts(report: &Report) -> &[HostReport] {
    match report.hosts.as_slice() {
        [here, peer]
            if (&here.host, here.address, &here.checks) == (&peer.host, peer.address, &peer.checks) =>
        {
            &report.hosts[..1]
        }
        hosts => hosts,
    }
}

/// Returns the label of each host: its name, and its address if there are two.
fn labels(report: &Report) -> Vec<String> {
    let label = |host: &HostReport| match host.address {
        Some(address) => format!("{} ({address})", host.host),
        None => host.host.clone(),
    };
    let mut labels: Vec<String> = report.hosts.iter().map(label).collect();
    if let [here, peer] = &mut labels[..]
        && here == peer
    {
        *peer = format!("farreach serve on {peer}");
    }
    labels
}

/// Formats the first line: what was examined, against which peer, over which rails.
fn examined(report: &Report) -> String {
    let labels = labels(report);
    match (&report.pair, labels.as_slice()) {
        (Some(pair), [here, peer]) => {
            let mut rails: Vec<&str> = pair.matrix.iter().map(|row| row.cell.local.as_str()).collect();
            rails.dedup();
            let over = if rails.is_empty() { "no common rail".to_owned() } else { rails.join(", ") };
            let peer = if hosts(report).len() == 1 { "itself" } else { peer };
            format!("Examined {here} with {peer} over {over}")
        }
        (_, [host, ..]) => {
            let rails = report.hosts[0].tried_rails();
            let over = match (rails.is_empty(), &report.error) {
                (false, _) => format!("with transfers to itself over {}", rails.join(", ")),
                (true, None) => "without transfers".to_owned(),
                (true, Some(_)) => "without the peer, which could not be reached".to_owned(),
            };
            format!("Examined host {host}, {over}")
        }
        _ => "Examined no host".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use farreach_doctor::Dump;
    use serde_json::{Value, json};

    use super::*;
    use crate::show::paint::Paint;

    const STYLE: Style = Style { is_verbose: false, width: Some(80), paint: Paint::PLAIN };

    fn host_report(host: &str, address: Option<&str>, check: Value) -> Value {
        json!({
            "host": host,
            "address": address,
            "read_unix_seconds": 0,
            "constructed": null,
            "has_rdma": true,
            "checks": [check],
            "not_here": [],
        })
    }

    fn check(found: &str) -> Value {
        let fix = json!({ "place": null, "what": "load the module", "commands": ["modprobe ib_uverbs"] });
        let finding =
            json!({ "subject": null, "verdict": "fail", "found": found, "read": [], "fixes": [fix] });
        json!({ "check": "modules", "why": "It matters.", "verdict": "fail", "findings": [finding] })
    }

    fn pair_of(names: [&str; 2], addresses: [&str; 2], found: [&str; 2]) -> String {
        let hosts = [0, 1].map(|it| host_report(names[it], Some(addresses[it]), check(found[it])));
        let row = json!({
            "state": "works", "why": "works", "local": "tcp", "remote": "tcp", "round_trip_ns": 1000,
            "rate_bits_per_second": 1_000_000, "trouble": null, "cards": null,
        });
        let pair =
            json!({ "here": names[0], "peer": names[1], "matrix": [row], "left_out": [], "findings": [] });
        let json = json!({ "schema_version": 1, "hosts": hosts, "pair": pair });
        report(&serde_json::from_value(json).unwrap(), STYLE)
    }

    #[test]
    fn hosts_of_a_pair_are_told_apart_and_fixes_name_their_host() {
        let text = pair_of(["node", "node"], ["192.0.2.1", "192.0.2.2"], ["not loaded", "not loaded"]);
        let first = "Examined node (192.0.2.1) with node (192.0.2.2) over tcp";
        assert_eq!(text.lines().next(), Some(first), "{text}");
        for address in ["192.0.2.1", "192.0.2.2"] {
            assert!(text.contains(&format!("\nnode ({address}): 1 check fails\n")), "{text}");
            let fix =
                format!("fix   on node ({address}): load the module:\n                 modprobe ib_uverbs\n");
            assert!(text.contains(&fix), "{text}");
        }
        assert!(!text.contains("here"), "{text}");
    }

    #[test]
    fn a_host_that_is_its_own_peer_is_told_once() {
        let text = pair_of(["node", "node"], ["127.0.0.1", "127.0.0.1"], ["not loaded", "not loaded"]);
        assert!(text.starts_with("Examined node (127.0.0.1) with itself over tcp\n"), "{text}");
        assert_eq!(text.matches("check fails").count(), 1, "{text}");
        assert!(text.contains("fix   load the module:\n"), "{text}");
        let text = pair_of(["node", "node"], ["127.0.0.1", "127.0.0.1"], ["not loaded", "absent"]);
        assert!(text.contains("\nfarreach serve on node (127.0.0.1): 1 check fails\n"), "{text}");
    }

    #[test]
    fn the_first_line_says_what_was_examined() {
        let pack = include_bytes!("../../../../../doctor/tests/packs/broken/soft-roce.json");
        let report = Report::of(&Dump::from_json(pack).unwrap());
        let text = super::report(&report, STYLE);
        let first = text.lines().next().unwrap_or_default();
        assert!(first.starts_with("Examined host ") && first.contains("over "), "{text}");
    }
}
