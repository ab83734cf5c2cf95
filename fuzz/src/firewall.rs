//! The output of programs that list firewall rules.

use farreach_doctor::collect::fuzz::{iptables, nft};
use farreach_doctor::probes::Chain;

/// Rules that are recorded for one port, and some for those that one walk adds at its end.
const RULES_MAX: usize = 300;

pub(crate) fn run(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    match nft(&text) {
        Ok(chains) => check(&chains),
        Err(error) => assert!(error.starts_with("nft -j list ruleset: ")),
    }
    check(&iptables(&text));
}

fn check(chains: &[Chain]) {
    for chain in chains {
        assert!(!chain.hook.is_empty() || !chain.policy.is_empty());
        for port in ["udp 4791", "tcp 18520"] {
            assert!(chain.rules.iter().filter(|rule| rule.port == port).count() < RULES_MAX);
        }
        assert!(chain.rules.iter().all(|rule| ["accept", "drop", "reject"].contains(&rule.verdict.as_str())));
    }
}
