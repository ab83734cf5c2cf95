//! Evaluates packet filter chains for the two ports that Farreach uses.
//!
//! The result covers only the chains that were read.

use farreach_text::CommandLine;

use crate::probes::Chain;

/// The destination UDP port of RoCE v2 packets.
pub(crate) const ROCE_PORT: u16 = 4791;

/// The default TCP port of `farreach serve`.
pub const CONTROL_PORT: u16 = 18520;

/// [`ROCE_PORT`] as written in the rules of a pack.
pub(crate) const ROCE: &str = "udp 4791";

/// [`CONTROL_PORT`] as written in the rules of a pack.
pub(crate) const CONTROL: &str = "tcp 18520";

/// The chain that stops packets to a port.
pub(crate) enum Blocked<'a> {
    All(&'a Chain),
    /// It stops only packets of some address, interface or length.
    Some(&'a Chain),
}

/// Returns the first chain that stops all packets to a port, else the first that stops some of
/// them.
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

/// Returns what a chain does with packets to a port.
///
/// The first rule that matches all packets decides, else the policy. If an earlier partial rule
/// disagrees with it, the result depends on the packet.
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

/// Names the rule or policy that stops the packets.
///
/// That is the rule for all packets, else the policy. If these accept, it is the earlier rule that
/// stops some of the packets.
pub(crate) fn why(chain: &Chain, port: &str) -> String {
    let mut rules = chain.rules.iter().filter(|rule| rule.port == port);
    let is_stop = |verdict: &str| verdict != "accept";
    let (whole, name) = (rules.clone().find(|rule| !rule.is_partial), &chain.name);
    match (whole, rules.find(|rule| rule.is_partial && is_stop(&rule.verdict))) {
        (Some(rule), _) if is_stop(&rule.verdict) => {
            format!("a rule of chain {name} has the verdict {} for {port}", rule.verdict)
        }
        (None, _) if is_stop(&chain.policy) => {
            format!("chain {name} drops by default, and no rule accepts all packets of {port}")
        }
        (_, Some(rule)) => {
            format!("a rule of chain {name} has the verdict {} for some packets of {port}", rule.verdict)
        }
        (_, None) => format!("chain {name} accepts {port}"),
    }
}

/// Returns the command that lets packets to a port through; `None` if a name of the chain could be read
/// as more than a name: nft parses its arguments as one text, in which `;` begins another command.
pub(crate) fn admit(chain: &Chain, port: &'static str) -> Option<CommandLine> {
    let (protocol, number) = port.split_once(' ').unwrap_or((port, ""));
    let words: Vec<&str> = chain.name.split(' ').collect();
    let is_name = |word: &&str| {
        word.starts_with(|letter: char| letter.is_ascii_alphabetic())
            && word.chars().all(|letter| letter.is_ascii_alphanumeric() || "_-./".contains(letter))
    };
    if !words.iter().all(is_name) {
        return None;
    }
    Some(match words[..] {
        // An uppercase name marks a chain made by iptables, and iptables has to change it.
        [family @ ("ip" | "ip6"), table, name] if name.chars().all(|letter| letter.is_ascii_uppercase()) => {
            let program = if family == "ip6" { "ip6tables" } else { "iptables" };
            let command = CommandLine::new(program);
            let command = if table == "filter" { command } else { command.shell("-t").name(table) };
            let command = command.shell("-I").name(name);
            command.shell("-p").shell(protocol).shell("--dport").shell(number).shell("-j ACCEPT")
        }
        _ => words
            .iter()
            .fold(CommandLine::new("nft insert rule"), |command, word| command.name(word))
            .shell(protocol)
            .shell("dport")
            .shell(number)
            .shell("accept"),
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::probes::Rule;

    #[test]
    fn rules_name_the_ports_by_protocol_and_number() {
        assert_eq!((ROCE, CONTROL), (&*format!("udp {ROCE_PORT}"), &*format!("tcp {CONTROL_PORT}")));
    }

    /// A chain of input with these rules: port, verdict, and whether it is for some packets only.
    pub(crate) fn chain(policy: &str, rules: &[(&str, &str, bool)]) -> Chain {
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
}
