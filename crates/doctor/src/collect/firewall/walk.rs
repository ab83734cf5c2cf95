//! What becomes of packets to our ports on their way through chains: jumps are followed, and what is behind the last word is left out.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::filter::{CONTROL_PORT, ROCE_PORT};
use crate::probes::{Chain, Rule};

/// What RoCE v2 goes over, and the command's own connections.
pub(super) const PORTS: [(&str, u16); 2] = [("udp", ROCE_PORT), ("tcp", CONTROL_PORT)];

/// Chains that jump deeper than the kernel lets them.
const DEPTH_MAX: usize = 16;

/// A host with more rules than this for one port has other troubles.
const RULES_MAX: usize = 256;

/// A table of rules.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Table {
    /// `inet filter`
    pub(super) name: String,
    /// In their order.
    pub(super) chains: Vec<(String, Steps)>,
    /// Whether it has rules that the program which listed it cannot show.
    pub(super) is_opaque: bool,
}

/// The rules of a chain.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Steps {
    /// None where packets only come by a jump.
    pub(super) hook: Option<String>,
    /// Empty for `accept`.
    pub(super) policy: String,
    /// What each rule does with packets to each of our ports.
    pub(super) rules: Vec<[Step; 2]>,
}

/// What a rule does with packets to one port.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) reach: Reach,
    pub(super) action: Action,
}

/// Which of them it is for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reach {
    #[default]
    None,
    /// Those of an address, an interface, a length.
    Some,
    All,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum Action {
    /// It counts, logs, marks: they go on.
    #[default]
    GoOn,
    /// `accept`, `drop`, `reject`
    End(&'static str),
    Jump(String),
    /// A jump that does not come back.
    Goto(String),
    Return,
}

/// The chains that packets come to by themselves, each with what is for our ports.
pub(super) fn chains(tables: &[Table]) -> Vec<Chain> {
    let mut found = Vec::new();
    for table in tables {
        let by_name: BTreeMap<&str, &Steps> =
            table.chains.iter().map(|(name, steps)| (name.as_str(), steps)).collect();
        for (name, steps) in &table.chains {
            // What is forwarded is not for this host.
            let Some(hook) = steps.hook.as_ref().filter(|hook| *hook != "forward") else { continue };
            let mut rules = Vec::new();
            for (place, (protocol, port)) in PORTS.iter().enumerate() {
                let mut walk =
                    Walk { by_name: &by_name, place, port: format!("{protocol} {port}"), rules: Vec::new() };
                walk.through(steps, Reach::All, 0);
                rules.append(&mut walk.rules);
            }
            let policy = if steps.policy.is_empty() { "accept" } else { &steps.policy };
            found.push(Chain {
                name: format!("{} {name}", table.name),
                hook: hook.clone(),
                policy: policy.to_owned(),
                rules,
            });
        }
    }
    found
}

struct Walk<'a> {
    by_name: &'a BTreeMap<&'a str, &'a Steps>,
    place: usize,
    port: String,
    rules: Vec<Rule>,
}

impl Walk<'_> {
    /// Whether any packet comes out at the end of the chain.
    fn through(&mut self, steps: &Steps, reach: Reach, depth: usize) -> bool {
        let place = self.place;
        for step in steps.rules.iter().map(|rule| &rule[place]) {
            let reach = reach.min(step.reach);
            // Whether all packets that have come here are meant: then nothing behind is reached.
            let is_whole = step.reach == Reach::All;
            if reach == Reach::None || self.rules.len() > RULES_MAX {
                continue;
            }
            let (goes_on, comes_out) = match &step.action {
                Action::GoOn => (true, true),
                Action::Return => (false, true),
                Action::End(verdict) => {
                    let (port, verdict) = (self.port.clone(), (*verdict).to_owned());
                    self.rules.push(Rule { port, verdict, is_partial: reach == Reach::Some });
                    (false, false)
                }
                Action::Jump(target) => {
                    let comes_back = self.aside(target, reach, depth);
                    (comes_back, false)
                }
                Action::Goto(target) => (false, self.aside(target, reach, depth)),
            };
            if is_whole && !goes_on {
                return comes_out;
            }
        }
        true
    }

    /// Whether any packet comes back from another chain.
    fn aside(&mut self, target: &str, reach: Reach, depth: usize) -> bool {
        match self.by_name.get(target).copied() {
            Some(chain) if depth < DEPTH_MAX => self.through(chain, reach, depth + 1),
            _ => true,
        }
    }
}

/// Whether packets of or to these addresses come from no other host and go to none, unless somebody forges them: those of the loopback, and those that
/// only stand for IPv4 ones. Rules against forged packets are on every host, and stop no honest one.
pub(super) fn is_nobodys(address: IpAddr, prefix_bits: u8) -> bool {
    match address {
        IpAddr::V4(address) => prefix_bits >= 8 && matches!(address.octets()[0], 0 | 127),
        IpAddr::V6(address) => match address.segments() {
            [0, 0, 0, 0, 0, 0 | 0xffff, ..] => prefix_bits >= 96,
            [first, ..] => first == 0x2002 && prefix_bits >= 16,
        },
    }
}

/// Whether a number lies in one of these.
pub(super) fn is_within(port: u16, ranges: &[(u16, u16)]) -> bool {
    ranges.iter().any(|(first, last)| (*first..=*last).contains(&port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_no_peer_has() {
        let of = |address: &str, bits| is_nobodys(address.parse().unwrap(), bits);
        assert!(of("127.0.0.0", 8) && of("127.0.0.1", 32) && of("::1", 128));
        assert!(of("::", 96) && of("::ffff:0:0", 96) && of("2002:a00::", 24));
        assert!(!of("0.0.0.0", 0) && !of("10.0.0.0", 8) && !of("::", 0) && !of("2001:db8::", 32));
    }

    fn both(reach: Reach, action: Action) -> [Step; 2] {
        [Step { reach, action: action.clone() }, Step { reach, action }]
    }

    /// Of the first chain, which alone has a hook.
    fn verdicts(chains: Vec<(&str, Vec<[Step; 2]>)>) -> Vec<(String, bool)> {
        let chains = chains.into_iter().map(|(name, rules)| {
            let hook = (name == "input").then(|| name.to_owned());
            (name.to_owned(), Steps { hook, policy: String::new(), rules })
        });
        let table = Table { name: "inet t".to_owned(), chains: chains.collect(), is_opaque: false };
        let all = super::chains(&[table]);
        all[0]
            .rules
            .iter()
            .filter(|it| it.port == "udp 4791")
            .map(|it| (it.verdict.clone(), it.is_partial))
            .collect()
    }

    #[test]
    fn what_is_behind_the_last_word_is_left_out() {
        let jump = both(Reach::Some, Action::Jump("x".to_owned()));
        let input =
            vec![jump, both(Reach::All, Action::End("accept")), both(Reach::All, Action::End("drop"))];
        let x = vec![both(Reach::All, Action::End("drop"))];
        let told = verdicts(vec![("input", input), ("x", x)]);
        assert_eq!(told, [("drop".to_owned(), true), ("accept".to_owned(), false)]);
    }

    #[test]
    fn a_jump_comes_back_and_a_loop_ends() {
        let input =
            vec![both(Reach::All, Action::Jump("x".to_owned())), both(Reach::All, Action::End("drop"))];
        let x = vec![both(Reach::All, Action::Return), both(Reach::All, Action::End("accept"))];
        let told = verdicts(vec![("input", input.clone()), ("x", x)]);
        assert_eq!(told, [("drop".to_owned(), false)]);
        let x = vec![both(Reach::All, Action::Jump("x".to_owned()))];
        let told = verdicts(vec![("input", input), ("x", x)]);
        assert_eq!(told, [("drop".to_owned(), false)]);
    }
}
