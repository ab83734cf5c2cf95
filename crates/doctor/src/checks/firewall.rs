//! Checks the packet filters of the kernel.
//!
//! They see the traffic of Soft-RoCE and of the control connection, but not packets that a card
//! sends by itself.

use super::cards::hidden;
use super::wire::{Wire, wire};
use crate::filter::{Blocked, CONTROL, ROCE, admit, blocked, why};
use crate::finding::{Answer, CommandLine, Finding, Fix};
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
        let found = "packets of RDMA cards do not pass the packet filters of the kernel";
        findings.push(Finding::pass(found).of("RoCE of cards"));
    }
    findings.push(control(chains));
    Answer::Findings(findings.into_iter().map(|finding| finding.read(RULES)).collect())
}

fn soft_roce(chains: &[Chain]) -> Finding {
    let finding = match blocked(chains, ROCE) {
        None => Finding::pass(format!("{ROCE} is accepted")),
        Some(Blocked::All(chain)) => {
            Finding::fail(format!("{}: Soft-RoCE packets are dropped", why(chain, ROCE)))
                .fix(accept(chain, ROCE))
                .fix(firewalld("4791/udp"))
        }
        Some(Blocked::Some(chain)) => {
            Finding::warn(format!("{}: some Soft-RoCE packets are dropped", why(chain, ROCE)))
                .fix(accept(chain, ROCE))
        }
    };
    finding.of("Soft-RoCE")
}

fn accept(chain: &Chain, port: &'static str) -> Fix {
    admit(chain, port).into_iter().fold(Fix::new(format!("accept {port}")), Fix::run)
}

fn firewalld(port: &str) -> Fix {
    Fix::new("open the port")
        .at("firewalld")
        .run(CommandLine::new("firewall-cmd --permanent").arg(format!("--add-port={port}")))
        .run("firewall-cmd --reload")
}

fn control(chains: &[Chain]) -> Finding {
    let finding = match blocked(chains, CONTROL) {
        None => Finding::pass(format!("{CONTROL} is accepted")),
        Some(blocked) => {
            let (chain, peers) = match blocked {
                Blocked::All(chain) => (chain, "a peer"),
                Blocked::Some(chain) => (chain, "some peers"),
            };
            let loss = match chain.hook.as_str() {
                "output" | "postrouting" => format!("this host cannot connect to farreach serve on {peers}"),
                _ => format!("{peers} cannot connect to farreach serve on this host"),
            };
            Finding::warn(format!("{}: {loss}", why(chain, CONTROL)))
                .fix(accept(chain, CONTROL))
                .fix(firewalld("18520/tcp"))
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
        let drops = "chain inet filter input drops by default, and no rule accepts all packets of tcp 18520";
        begins(&of("drop", &[(CONTROL, "drop", true)]), &format!("{drops}: a peer cannot"));
        begins(
            &of("drop", &[(CONTROL, "reject", true), (CONTROL, "accept", true)]),
            &format!("{drops}: some peers cannot"),
        );
        begins(
            &of("accept", &[(CONTROL, "drop", true)]),
            "a rule of chain inet filter input has the verdict drop for some packets of tcp 18520: some peers cannot",
        );
        begins(
            &of("accept", &[(CONTROL, "drop", true), (CONTROL, "reject", false)]),
            "a rule of chain inet filter input has the verdict reject for tcp 18520: a peer cannot",
        );
    }

    #[test]
    fn what_stops_soft_roce_is_told_with_the_command_that_admits_it() {
        let of = |rules: &[(&str, &str, bool)]| soft_roce(&[chain("accept", &[]), chain("drop", rules)]);
        let stopped = of(&[]);
        assert_eq!(stopped.verdict, Verdict::Fail);
        assert_eq!(stopped.fixes[0].commands, ["nft insert rule inet filter input udp dport 4791 accept"]);
        let by_iptables = Chain { name: "ip6 filter INPUT".to_owned(), ..chain("drop", &[]) };
        let command = "ip6tables -I INPUT -p udp --dport 4791 -j ACCEPT";
        assert_eq!(soft_roce(&[by_iptables]).fixes[0].commands, [command]);
        assert_eq!(of(&[(ROCE, "accept", true)]).verdict, Verdict::Warn);
        assert_eq!(of(&[(ROCE, "accept", false)]).verdict, Verdict::Pass);
    }
}
