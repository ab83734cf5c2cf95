//! Parses the output of `nft -j list ruleset`, see libnftables-json(5).

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::Value;

use super::walk::{Action, PORTS, Reach, Step, Steps, Table, is_nobodys, is_within};

/// Returns the tables with their chains, and what the rules do with our ports.
pub(super) fn parse(text: &str) -> Result<Vec<Table>, String> {
    let all: Value = serde_json::from_str(text).map_err(|error| format!("nft -j list ruleset: {error}"))?;
    let objects = all["nftables"].as_array().ok_or("nft -j list ruleset: the output has no list")?;
    let mut tables: Vec<Table> = Vec::new();
    let mut sets = BTreeMap::new();
    for object in objects {
        for kind in ["set", "map"] {
            if let Some(set) = object.get(kind) {
                sets.insert((table_of(set), word(set, "name")), set["elem"].clone());
            }
        }
    }
    for object in objects {
        if let Some(table) = object.get("table") {
            let name = format!("{} {}", word(table, "family"), word(table, "name"));
            tables.push(Table { name, ..Table::default() });
        }
        let of = object.get("chain").or_else(|| object.get("rule")).map(table_of);
        let Some(table) = tables.iter_mut().find(|table| Some(&table.name) == of.as_ref()) else { continue };
        if let Some(chain) = object.get("chain") {
            let hook = chain["hook"].as_str().map(str::to_owned);
            let steps = Steps { hook, policy: word(chain, "policy"), rules: Vec::new() };
            table.chains.push((word(chain, "name"), steps));
        }
        if let Some(rule) = object.get("rule") {
            let expressions = rule["expr"].as_array().map(Vec::as_slice).unwrap_or_default();
            table.is_opaque |= expressions.iter().any(|it| it.get("xt").is_some());
            let lookup = |name: &str| sets.get(&(table.name.clone(), name.to_owned()));
            let steps = PORTS.map(|(protocol, port)| step(expressions, protocol, port, &lookup));
            let chain = word(rule, "chain");
            if let Some((_, chain)) = table.chains.iter_mut().find(|(name, _)| *name == chain) {
                chain.rules.push(steps);
            }
        }
    }
    Ok(tables)
}

fn word(object: &Value, key: &str) -> String {
    object[key].as_str().unwrap_or_default().to_owned()
}

/// Returns the table of a chain, a rule or a set: `inet filter`.
fn table_of(object: &Value) -> String {
    format!("{} {}", word(object, "family"), word(object, "table"))
}

/// Returns what a rule does with packets of this protocol to this port. `lookup` finds a set by
/// name.
fn step<'a>(
    expressions: &[Value],
    protocol: &str,
    port: u16,
    lookup: &impl Fn(&str) -> Option<&'a Value>,
) -> Step {
    let packet = Packet { protocol, port };
    let mut step = Step { reach: Reach::All, action: Action::GoOn };
    for expression in expressions {
        let Some((name, body)) = expression.as_object().and_then(|it| it.iter().next()) else { continue };
        let reach = match name.as_str() {
            "match" => packet.matching(body, lookup),
            "vmap" => {
                let (reach, action) = packet.mapped(body, lookup);
                step.action = action;
                reach
            }
            // These match packets by their number.
            "limit" | "quota" | "ct count" => Reach::Some,
            _ => {
                step.action = action(name, body).unwrap_or(step.action);
                Reach::All
            }
        };
        step.reach = step.reach.min(reach);
    }
    step
}

fn action(name: &str, body: &Value) -> Option<Action> {
    let target = || word(body, "target");
    Some(match name {
        "accept" => Action::End("accept"),
        "drop" => Action::End("drop"),
        "reject" => Action::End("reject"),
        "jump" => Action::Jump(target()),
        "goto" => Action::Goto(target()),
        "return" => Action::Return,
        _ => return None,
    })
}

/// A packet that opens a new connection to one of our ports from another host.
struct Packet<'a> {
    protocol: &'a str,
    port: u16,
}

impl Packet<'_> {
    fn matching<'a>(&self, body: &Value, lookup: &impl Fn(&str) -> Option<&'a Value>) -> Reach {
        let right = match body["right"].as_str().and_then(|it| it.strip_prefix('@')) {
            Some(name) => match lookup(name) {
                Some(elements) => elements,
                // The set is not in the listing, so its elements are not known.
                None => return Reach::Some,
            },
            None => &body["right"],
        };
        // A match on a field of another protocol applies only to packets of that protocol.
        if self.is_foreign(&body["left"]["payload"]) {
            return Reach::None;
        }
        let is_not = body["op"] == "!=";
        match self.holds(&body["left"], right) {
            None => Reach::Some,
            Some(holds) if holds != is_not => Reach::All,
            Some(_) => Reach::None,
        }
    }

    fn is_foreign(&self, payload: &Value) -> bool {
        const OTHERS: [&str; 11] =
            ["tcp", "udp", "icmp", "icmpv6", "igmp", "sctp", "dccp", "udplite", "ah", "esp", "arp"];
        let protocol = word(payload, "protocol");
        protocol != self.protocol && OTHERS.contains(&protocol.as_str())
    }

    /// Returns whether the left side is one of the values on the right side; `None` if that depends
    /// on the packet.
    fn holds(&self, left: &Value, right: &Value) -> Option<bool> {
        if let Some(payload) = left.get("payload") {
            if self.is_foreign(payload) {
                return Some(false);
            }
            return match (word(payload, "protocol").as_str(), word(payload, "field").as_str()) {
                ("th" | "tcp" | "udp", "dport") => Some(is_within(self.port, &numbers(right))),
                ("ip", "protocol") | ("ip6", "nexthdr") => Some(self.is_protocol(right)),
                ("ip" | "ip6", "saddr" | "daddr") if is_forged(right) => Some(false),
                _ => None,
            };
        }
        if let Some(fib) = left.get("fib") {
            // A packet that is not forged has a route back to its sender.
            let asks_for_the_way_back = words(&fib["flags"]).contains(&"saddr")
                && matches!(word(fib, "result").as_str(), "oif" | "check");
            return right.as_bool().filter(|_| asks_for_the_way_back);
        }
        let key = |of: &str| left.get(of).map(|it| word(it, "key"));
        match (key("meta").as_deref(), key("ct").as_deref()) {
            (Some("l4proto"), _) => Some(self.is_protocol(right)),
            // The first packet of a connection decides.
            (_, Some("state")) => Some(words(right).contains(&"new")),
            (Some("iifname" | "iif" | "oifname" | "oif"), _) if words(right) == ["lo"] => Some(false),
            _ => None,
        }
    }

    fn is_protocol(&self, right: &Value) -> bool {
        let number = match self.protocol {
            "tcp" => 6,
            _ => 17,
        };
        words(right).contains(&self.protocol) || is_within(number, &numbers(right))
    }

    /// Returns the effect of a verdict map.
    fn mapped<'a>(&self, body: &Value, lookup: &impl Fn(&str) -> Option<&'a Value>) -> (Reach, Action) {
        let data = match body["data"].as_str().and_then(|it| it.strip_prefix('@')) {
            Some(name) => lookup(name),
            None => body["data"].get("set"),
        };
        let pairs = data.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let mut unsure = (Reach::None, Action::GoOn);
        for pair in pairs {
            let (key, verdict) = (&pair[0], &pair[1]);
            let action = verdict
                .as_object()
                .and_then(|it| it.iter().next())
                .and_then(|(name, body)| action(name, body));
            let Some(action) = action else { continue };
            match self.holds(&body["key"], key) {
                Some(true) => return (Reach::All, action),
                Some(false) => {}
                // If several entries may match, the first stands for all.
                None if unsure.0 == Reach::None => unsure = (Reach::Some, action),
                None => {}
            }
        }
        unsure
    }
}

/// Returns whether no peer can have any of the addresses on the right side.
fn is_forged(right: &Value) -> bool {
    if let Some(address) = right.as_str() {
        return address.parse().is_ok_and(|address: IpAddr| is_nobodys(address, 128));
    }
    if let Some(prefix) = right.get("prefix") {
        let bits = prefix["len"].as_u64().and_then(|bits| u8::try_from(bits).ok());
        let address = word(prefix, "addr").parse::<IpAddr>().ok();
        return matches!((address, bits), (Some(address), Some(bits)) if is_nobodys(address, bits));
    }
    let all = right.as_array().or_else(|| right.get("set")?.as_array());
    all.is_some_and(|all| !all.is_empty() && all.iter().all(is_forged))
}

/// Returns the words on the right side: one, a list, or a set.
fn words(right: &Value) -> Vec<&str> {
    match right {
        Value::String(word) => vec![word],
        Value::Array(all) => all.iter().flat_map(words).collect(),
        Value::Object(object) => object
            .get("set")
            .or_else(|| object.get("elem"))
            .or_else(|| object.get("val"))
            .map(words)
            .unwrap_or_default(),
        _ => Vec::new(),
    }
}

/// Returns the numbers on the right side: one, a range, a list, or a set.
fn numbers(right: &Value) -> Vec<(u16, u16)> {
    let number = |value: &Value| value.as_u64().and_then(|it| u16::try_from(it).ok());
    match right {
        Value::Number(_) => number(right).map(|it| (it, it)).into_iter().collect(),
        Value::Array(all) => all.iter().flat_map(numbers).collect(),
        Value::Object(object) => {
            if let Some(range) = object.get("range") {
                return number(&range[0]).zip(number(&range[1])).into_iter().collect();
            }
            object
                .get("set")
                .or_else(|| object.get("elem"))
                .or_else(|| object.get("val"))
                .map(numbers)
                .unwrap_or_default()
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::walk::chains;
    use super::*;
    use crate::probes::Chain;

    /// The output of nft 1.0.6 for tests/firewall/rules.nft.
    const RULES: &str = include_str!("../../../tests/firewall/nft.json");

    fn told(chain: &Chain) -> Vec<String> {
        let words = |rule: &crate::probes::Rule| {
            format!("{} {}{}", rule.port, rule.verdict, if rule.is_partial { " some" } else { "" })
        };
        chain.rules.iter().map(words).collect()
    }

    #[test]
    fn rules_of_our_ports_are_found_in_sets_ranges_maps_and_behind_jumps() {
        let all = chains(&parse(RULES).unwrap());
        let names: Vec<_> =
            all.iter().map(|it| (it.name.as_str(), it.hook.as_str(), it.policy.as_str())).collect();
        let expected = [
            ("inet filter input", "input", "drop"),
            ("inet filter output", "output", "accept"),
            ("ip nat post", "postrouting", "accept"),
        ];
        assert_eq!(names, expected);
        assert_eq!(told(&all[0]), ["udp 4791 accept some", "udp 4791 drop", "tcp 18520 accept"]);
        // Each flow has another source port, so the first rule matches some packets only.
        assert_eq!(told(&all[1]), ["udp 4791 drop some", "udp 4791 accept"]);
        assert!(all[2].rules.is_empty());
    }

    #[test]
    fn what_iptables_has_made_may_be_opaque() {
        let tables = parse(include_str!("../../../tests/firewall/nft-of-iptables.json")).unwrap();
        assert!(tables.iter().any(|table| table.name == "ip filter" && table.is_opaque));
    }

    #[test]
    fn rules_against_forged_packets_stop_no_other() {
        // The output of nft 1.1.7 for tests/firewall/forged.nft, parts of which firewalld and
        // kubelet wrote; 1.0.6 prints the same.
        let all = chains(&parse(include_str!("../../../tests/firewall/nft-forged.json")).unwrap());
        let told: Vec<_> = all.iter().map(|chain| (chain.hook.as_str(), told(chain))).collect();
        let of_some = ["udp 4791 drop some", "tcp 18520 drop some"].map(str::to_owned).to_vec();
        assert_eq!(told, [("prerouting", Vec::new()), ("output", Vec::new()), ("input", of_some)]);
    }

    #[test]
    fn nonsense_is_told() {
        assert!(parse("no").is_err() && parse("{}").is_err());
        assert_eq!(parse(r#"{"nftables": [{"rule": {"expr": [1, {"match": 3}]}}, 7]}"#), Ok(Vec::new()));
    }
}
