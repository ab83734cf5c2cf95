//! Finds firewalls that may drop packets, by the packs of both hosts.

use farreach_text::CommandLine;

use super::names::Names;
use super::readings::{CardEnd, CardsTried};
use crate::filter::{Blocked, ROCE, admit, blocked};
use crate::finding::{Finding, Fix};
use crate::pack::Pack;
use crate::probes::Chain;

/// Adds the chains that drop packets in these directions: there (`true`) or back (`false`). Returns
/// whether they explain that no packet arrives.
pub(super) fn with_suspects(
    mut finding: Finding,
    tried: &CardsTried,
    names: &Names<'_>,
    ways: &[bool],
) -> (Finding, bool) {
    let mut is_explained = true;
    for is_there in ways {
        let mut is_blocked = false;
        // The sender's chains for output, and the receiver's for input.
        for (is_here, way) in [(*is_there, Way::Out), (!*is_there, Way::In)] {
            let (end, pack) =
                if is_here { (&tried.local, names.here_pack) } else { (&tried.remote, names.peer_pack) };
            let Some(suspect) = is_filtered(end).then(|| suspect(pack, way)).flatten() else { continue };
            let host = names.host(is_here);
            finding.found.push_str(&format!("; on {host}, {}", suspect.words()));
            // A chain that drops only some packets may drop others than these.
            is_blocked |= !suspect.is_partial;
            let accept = names.fix(is_here, "accept UDP port 4791");
            finding = finding.fix(suspect.fix.into_iter().fold(accept, Fix::run));
        }
        is_explained &= is_blocked;
    }
    (finding, is_explained)
}

/// Returns whether the packets pass the host's firewall as UDP. Those of a hardware card do not.
pub(super) fn is_filtered(end: &CardEnd) -> bool {
    let is_soft = end.driver.as_deref().is_none_or(|driver| driver.contains("rxe"));
    is_soft && end.gid.kind == "RoCE v2"
}

/// The direction of packets through a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    In,
    Out,
}

impl Way {
    fn has(self, hook: &str) -> bool {
        match self {
            Self::In => matches!(hook, "input" | "prerouting" | "ingress"),
            Self::Out => matches!(hook, "output" | "postrouting" | "egress"),
        }
    }
}

/// A chain that drops RoCE v2 packets, or some of them.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Suspect {
    /// The family, table and name: `inet filter input`.
    chain: String,
    /// Whether a rule drops them. Otherwise no rule lets them through.
    is_by_rule: bool,
    /// Whether it drops only packets of some address, interface or length.
    is_partial: bool,
    /// The command that lets them through, if the chain can be named in it.
    fix: Option<CommandLine>,
}

impl Suspect {
    /// Describes the chain: `chain inet filter input drops UDP port 4791`.
    fn words(&self) -> String {
        let chain = &self.chain;
        match (self.is_by_rule, self.is_partial) {
            (true, false) => format!("chain {chain} drops UDP port 4791"),
            (true, true) => format!("chain {chain} drops some packets of UDP port 4791"),
            (false, false) => {
                format!("chain {chain} drops by default, and no rule accepts UDP port 4791")
            }
            (false, true) => {
                format!(
                    "chain {chain} drops by default, and its rules accept only some packets of UDP port 4791"
                )
            }
        }
    }
}

/// Returns the chain that drops packets in this direction. Also returns `None` if the firewall
/// could not be read.
fn suspect(pack: &Pack, way: Way) -> Option<Suspect> {
    let chains = pack.probes().firewall.get().ok()?;
    of_chains(chains.iter().filter(|chain| way.has(&chain.hook)))
}

fn of_chains<'a>(chains: impl IntoIterator<Item = &'a Chain>) -> Option<Suspect> {
    let (chain, is_partial) = match blocked(chains, ROCE)? {
        Blocked::All(chain) => (chain, false),
        Blocked::Some(chain) => (chain, true),
    };
    let is_by_rule = chain.rules.iter().any(|rule| rule.port == ROCE && rule.verdict != "accept");
    Some(Suspect { chain: chain.name.clone(), is_by_rule, is_partial, fix: admit(chain, ROCE) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter;

    fn chain(policy: &str, rules: &[(&str, bool)]) -> Chain {
        let rules: Vec<_> = rules.iter().map(|(verdict, is_partial)| (ROCE, *verdict, *is_partial)).collect();
        filter::tests::chain(policy, &rules)
    }

    #[test]
    fn the_first_rule_that_is_for_all_of_them_decides() {
        for (policy, rules, expected) in [
            ("accept", &[][..], None),
            ("drop", &[][..], Some((false, false))),
            ("drop", &[("accept", false)][..], None),
            ("accept", &[("drop", false)][..], Some((true, false))),
            ("accept", &[("accept", false), ("drop", false)][..], None),
            ("accept", &[("drop", true)][..], Some((true, true))),
            ("drop", &[("accept", true)][..], Some((false, true))),
        ] {
            let found = of_chains([&chain(policy, rules)]).map(|it| (it.is_by_rule, it.is_partial));
            assert_eq!(found, expected, "{policy} {rules:?}");
        }
    }

    #[test]
    fn ways_are_told_apart() {
        assert!(Way::In.has("input") && !Way::In.has("output") && Way::Out.has("postrouting"));
    }
}
