//! Checks the packet filters of the kernel.
//!
//! They see the traffic of Soft-RoCE and of the control connection, but not packets that a card
//! sends by itself.

use super::cards::hidden;
use super::wire::{Wire, wire};
use crate::filter::{Blocked, CONTROL, ROCE, admit, blocked, why};
use crate::finding::{Answer, Finding};
use crate::pack::Pack;
use crate::probes::Chain;

const RULES: &str = "nft list ruleset";

/// Checks whether RoCE packets and the control connection are let through.
pub(super) fn firewall(pack: &Pack) -> Answer {
    let wires: Vec<_> = pack.ports().iter().map(|port| wire(pack, port)).collect();
    let chains = match pack.probes().firewall.get() {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::tests::chain;
    use crate::finding::Verdict;

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
