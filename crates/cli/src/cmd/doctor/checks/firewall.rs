//! Packet filters. They see what the kernel sends: Soft-RoCE and the control connection, and nothing that a card sends by itself.

use super::cards::hidden;
use super::wire::{Wire, wire};
use crate::cmd::doctor::finding::{Answer, Finding};
use crate::cmd::doctor::pack::Pack;
use crate::cmd::doctor::probes::Chain;

const RULES: &str = "nft list ruleset";
/// What RoCE v2 packets are sent to.
pub(crate) const ROCE: &str = "udp 4791";
/// What `farreach serve` listens on, unless told otherwise.
const CONTROL: &str = "tcp 18520";

/// Whether packets of RDMA, and of the control connection, are let through.
pub(super) fn firewall(pack: &Pack) -> Answer {
    let wires: Vec<_> = pack.ports().iter().map(|port| wire(pack, port)).collect();
    let chains = match pack.probes.firewall.get() {
        Ok(chains) => chains,
        Err(reason) => return Finding::unknown(reason).read(RULES).into(),
    };
    let mut findings: Vec<Finding> = hidden(pack).into_iter().collect();
    if let Some((path, missing)) = wires.iter().find_map(|wire| wire.as_ref().err()) {
        findings.push(Finding::unread(path, missing));
    }
    if wires.contains(&Ok(Wire::SoftRoce)) {
        findings.push(soft_roce(chains));
    }
    if wires.contains(&Ok(Wire::Roce)) {
        let found = "what a card sends passes by every packet filter of the kernel";
        findings.push(Finding::pass(found).of("RoCE of cards"));
    }
    findings.push(control(chains));
    Answer::Findings(findings.into_iter().map(|finding| finding.read(RULES)).collect())
}

fn soft_roce(chains: &[Chain]) -> Finding {
    let finding = match blocked(chains, ROCE) {
        None => Finding::pass(format!("{ROCE} is let through")),
        Some(Blocked::All(chain)) => {
            Finding::fail(format!("{}: Soft-RoCE packets are dropped", why(chain, ROCE)))
                .fix(admit(chain, ROCE))
                .fix_in("firewalld", "firewall-cmd --permanent --add-port=4791/udp; firewall-cmd --reload")
        }
        Some(Blocked::Some(chain)) => {
            Finding::warn(format!("{}: some Soft-RoCE packets are dropped", why(chain, ROCE)))
                .fix(admit(chain, ROCE))
        }
    };
    finding.of("Soft-RoCE")
}

fn control(chains: &[Chain]) -> Finding {
    let finding = match blocked(chains, CONTROL) {
        None => Finding::pass(format!("{CONTROL} is let through")),
        Some(blocked) => {
            let (chain, peers) = match blocked {
                Blocked::All(chain) => (chain, "a peer"),
                Blocked::Some(chain) => (chain, "some peers"),
            };
            let loss = match chain.hook.as_str() {
                "output" | "postrouting" => format!("this host may not reach farreach serve on {peers}"),
                _ => format!("{peers} may not reach farreach serve here"),
            };
            Finding::warn(format!("{}: {loss}", why(chain, CONTROL)))
                .fix(admit(chain, CONTROL))
                .fix_in("firewalld", "firewall-cmd --permanent --add-port=18520/tcp; firewall-cmd --reload")
        }
    };
    finding.of("control connection")
}

/// What becomes of packets to a port in the chains that they pass.
pub(crate) enum Blocked<'a> {
    All(&'a Chain),
    /// Those of some address, interface or length.
    Some(&'a Chain),
}

/// The first of these chains that stops all packets to a port; else the first that stops some.
pub(crate) fn blocked<'a>(chains: impl IntoIterator<Item = &'a Chain>, port: &str) -> Option<Blocked<'a>> {
    let mut partly = None;
    for chain in chains {
        match fate(chain, port) {
            Fate::Passes => {}
            Fate::Stops => return Some(Blocked::All(chain)),
            Fate::Depends => partly = partly.or(Some(Blocked::Some(chain))),
        }
    }
    partly
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Passes,
    Stops,
    Depends,
}

/// The first rule that is for all of the packets decides, else the policy; those before it that disagree are for some of them.
fn fate(chain: &Chain, port: &str) -> Fate {
    let of = |verdict: &str| if verdict == "accept" { Fate::Passes } else { Fate::Stops };
    let mut earlier = Vec::new();
    for rule in chain.rules.iter().filter(|rule| rule.port == port) {
        let verdict = of(&rule.verdict);
        if !rule.is_partial {
            return together(&earlier, verdict);
        }
        earlier.push(verdict);
    }
    together(&earlier, of(&chain.policy))
}

fn together(earlier: &[Fate], last: Fate) -> Fate {
    if earlier.iter().all(|fate| *fate == last) { last } else { Fate::Depends }
}

/// What decides: the rule for all packets, else the policy; where that lets them through, the rule that takes some away before.
fn why(chain: &Chain, port: &str) -> String {
    let mut rules = chain.rules.iter().filter(|rule| rule.port == port);
    let is_stop = |verdict: &str| verdict != "accept";
    let (whole, name) = (rules.clone().find(|rule| !rule.is_partial), &chain.name);
    match (whole, rules.find(|rule| rule.is_partial && is_stop(&rule.verdict))) {
        (Some(rule), _) if is_stop(&rule.verdict) => {
            format!("a rule of {name} says {} to {port}", rule.verdict)
        }
        (None, _) if is_stop(&chain.policy) => {
            format!("{name} drops what no rule admits, and none admits all of {port}")
        }
        (_, Some(rule)) => format!("a rule of {name} says {} to some of {port}", rule.verdict),
        (_, None) => format!("{name} lets {port} through"),
    }
}

/// The command that lets a port through.
pub(crate) fn admit(chain: &Chain, port: &str) -> String {
    let (protocol, number) = port.split_once(' ').unwrap_or((port, ""));
    let words: Vec<&str> = chain.name.split(' ').collect();
    match words[..] {
        // Chains that iptables has made are changed by iptables: it writes their names in capitals.
        [family @ ("ip" | "ip6"), table, name] if name.chars().all(|letter| letter.is_ascii_uppercase()) => {
            let program = if family == "ip6" { "ip6tables" } else { "iptables" };
            let table = if table == "filter" { String::new() } else { format!("-t {table} ") };
            format!("{program} {table}-I {name} -p {protocol} --dport {number} -j ACCEPT")
        }
        _ => format!("nft insert rule {} {protocol} dport {number} accept", chain.name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::doctor::finding::Verdict;
    use crate::cmd::doctor::probes::Rule;

    fn chain(policy: &str, rules: &[(&str, &str, bool)]) -> Chain {
        let rule = |(port, verdict, is_partial): &(&str, &str, bool)| Rule {
            port: (*port).to_owned(),
            verdict: (*verdict).to_owned(),
            is_partial: *is_partial,
        };
        Chain {
            name: "inet filter input".to_owned(),
            hook: "input".to_owned(),
            policy: policy.to_owned(),
            rules: rules.iter().map(rule).collect(),
        }
    }

    #[test]
    fn the_first_rule_for_all_packets_decides() {
        let of = |policy: &str, rules: &[(&str, &str, bool)]| fate(&chain(policy, rules), ROCE);
        assert_eq!(of("accept", &[]), Fate::Passes);
        assert_eq!(of("drop", &[]), Fate::Stops);
        assert_eq!(of("drop", &[(CONTROL, "accept", false)]), Fate::Stops);
        assert_eq!(of("drop", &[(ROCE, "accept", false), (ROCE, "drop", false)]), Fate::Passes);
        assert_eq!(of("accept", &[(ROCE, "reject", false)]), Fate::Stops);
        assert_eq!(of("accept", &[(ROCE, "drop", true)]), Fate::Depends);
        assert_eq!(of("drop", &[(ROCE, "accept", true)]), Fate::Depends);
        assert_eq!(of("accept", &[(ROCE, "drop", true), (ROCE, "drop", false)]), Fate::Stops);
    }

    #[test]
    fn what_decides_is_named_and_what_is_for_some_is_called_so() {
        let of = |policy: &str, rules: &[(&str, &str, bool)]| control(&[chain(policy, rules)]).found;
        let begins = |found: &str, with: &str| assert!(found.starts_with(with), "{found}");
        let drops = "inet filter input drops what no rule admits, and none admits all of tcp 18520";
        begins(&of("drop", &[(CONTROL, "drop", true)]), &format!("{drops}: a peer may"));
        begins(
            &of("drop", &[(CONTROL, "reject", true), (CONTROL, "accept", true)]),
            &format!("{drops}: some peers may"),
        );
        begins(
            &of("accept", &[(CONTROL, "drop", true)]),
            "a rule of inet filter input says drop to some of tcp 18520: some peers may",
        );
        begins(
            &of("accept", &[(CONTROL, "drop", true), (CONTROL, "reject", false)]),
            "a rule of inet filter input says reject to tcp 18520: a peer may",
        );
    }

    #[test]
    fn what_stops_soft_roce_is_told_with_the_command_that_admits_it() {
        let of = |rules: &[(&str, &str, bool)]| soft_roce(&[chain("accept", &[]), chain("drop", rules)]);
        let stopped = of(&[]);
        assert_eq!(stopped.verdict, Verdict::Fail);
        assert_eq!(stopped.fixes[0].how, "nft insert rule inet filter input udp dport 4791 accept");
        let by_iptables = Chain { name: "ip6 filter INPUT".to_owned(), ..chain("drop", &[]) };
        let command = "ip6tables -I INPUT -p udp --dport 4791 -j ACCEPT";
        assert_eq!(soft_roce(&[by_iptables]).fixes[0].how, command);
        assert_eq!(of(&[(ROCE, "accept", true)]).verdict, Verdict::Warn);
        assert_eq!(of(&[(ROCE, "accept", false)]).verdict, Verdict::Pass);
    }
}
