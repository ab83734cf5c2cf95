//! Follows packets to our ports through the chains of a table.
//!
//! Jumps are followed. Rules after the one that decides for all packets are left out.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::filter::{CONTROL_PORT, ROCE_PORT};
use crate::probes::{Chain, Rule};

/// The ports of RoCE v2 and of the control connection.
pub(super) const PORTS: [(&str, u16); 2] = [("udp", ROCE_PORT), ("tcp", CONTROL_PORT)];

/// The limit of jumps, as in the kernel.
const DEPTH_MAX: usize = 16;

/// An upper bound on the rules recorded for one port.
const RULES_MAX: usize = 256;

/// An upper bound on the rules that are followed for one port. Chains that jump to each other several
/// times make the number of paths grow exponentially with the number of jumps.
const STEPS_MAX: usize = 100_000;

/// A table of rules.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Table {
    /// The family and name: `inet filter`.
    pub(super) name: String,
    /// In the order of the listing.
    pub(super) chains: Vec<(String, Steps)>,
    /// Whether it has rules that the listing program cannot show.
    pub(super) is_opaque: bool,
}

/// The rules of a chain.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Steps {
    /// `None` if packets reach the chain only by a jump.
    pub(super) hook: Option<String>,
    /// Empty means `accept`.
    pub(super) policy: String,
    /// The effect of each rule on packets to each of our ports.
    pub(super) rules: Vec<[Step; 2]>,
}

/// The effect of a rule on packets to one port.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) reach: Reach,
    pub(super) action: Action,
}

/// The packets that a rule matches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reach {
    #[default]
    None,
    /// Those of some address, interface or length.
    Some,
    All,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum Action {
    /// It counts, logs or marks; packets continue with the next rule.
    #[default]
    GoOn,
    /// `accept`, `drop` or `reject`.
    End(&'static str),
    Jump(String),
    /// A jump that does not return.
    Goto(String),
    Return,
}

/// Returns the chains that have a hook, each with the rules that concern our ports.
pub(super) fn chains(tables: &[Table]) -> Vec<Chain> {
    let mut found = Vec::new();
    for table in tables {
        let by_name: BTreeMap<&str, &Steps> =
            table.chains.iter().map(|(name, steps)| (name.as_str(), steps)).collect();
        for (name, steps) in &table.chains {
            // Forwarded packets are not for this host.
            let Some(hook) = steps.hook.as_ref().filter(|hook| *hook != "forward") else { continue };
            let mut rules = Vec::new();
            for (place, (protocol, port)) in PORTS.iter().enumerate() {
                let port = format!("{protocol} {port}");
                let mut walk = Walk { by_name: &by_name, place, port, rules: Vec::new(), steps: 0 };
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
    /// The number of rules that were followed.
    steps: usize,
}

impl Walk<'_> {
    /// Records the rules of a chain. Returns whether any packet leaves at its end.
    fn through(&mut self, steps: &Steps, reach: Reach, depth: usize) -> bool {
        let place = self.place;
        for step in steps.rules.iter().map(|rule| &rule[place]) {
            let reach = reach.min(step.reach);
            // If the rule matches all packets that get this far, later rules see only those that
            // continue.
            let is_whole = step.reach == Reach::All;
            self.steps += 1;
            if self.steps > STEPS_MAX || self.rules.len() > RULES_MAX {
                return true;
            }
            if reach == Reach::None {
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

    /// Follows a jump. Returns whether any packet comes back.
    fn aside(&mut self, target: &str, reach: Reach, depth: usize) -> bool {
        match self.by_name.get(target).copied() {
            Some(chain) if depth < DEPTH_MAX => self.through(chain, reach, depth + 1),
            _ => true,
        }
    }
}

/// Returns whether only forged packets can have these addresses and come from another host.
///
/// These are loopback addresses, 0.0.0.0/8, and IPv6 addresses that embed IPv4 ones. Rules against
/// forged packets exist on every host, and stop no other packets.
pub(super) fn is_nobodys(address: IpAddr, prefix_bits: u8) -> bool {
    match address {
        IpAddr::V4(address) => prefix_bits >= 8 && matches!(address.octets()[0], 0 | 127),
        IpAddr::V6(address) => match address.segments() {
            [0, 0, 0, 0, 0, 0 | 0xffff, ..] => prefix_bits >= 96,
            [first, ..] => first == 0x2002 && prefix_bits >= 16,
        },
    }
}

/// Returns whether a port is in one of these ranges.
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

    /// Returns the verdicts for the chain `input`, the only one with a hook.
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

    /// Each chain jumps to the next one ten times, so there are 10^16 paths.
    #[test]
    fn many_paths_through_few_chains_end() {
        let chain = |number: u32| {
            let jump = Action::Jump(format!("x{}", number + 1));
            let name = if number == 0 { "input".to_owned() } else { format!("x{number}") };
            (name, vec![both(Reach::Some, jump); 10])
        };
        let chains: Vec<_> = (0..17).map(chain).collect();
        let told = verdicts(chains.iter().map(|(name, rules)| (name.as_str(), rules.clone())).collect());
        assert!(told.is_empty(), "{told:?}");
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
