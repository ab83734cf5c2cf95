//! Parses the output of `iptables-save`.

use std::net::IpAddr;

use super::walk::{Action, PORTS, Reach, Step, Steps, Table, is_nobodys, is_within};

/// Returns the tables of this family, `ip` or `ip6`.
pub(super) fn parse(text: &str, family: &str) -> Vec<Table> {
    let mut tables: Vec<Table> = Vec::new();
    for line in text.lines() {
        if let Some(name) = line.strip_prefix('*') {
            tables.push(Table { name: format!("{family} {name}"), ..Table::default() });
        }
        let Some(table) = tables.last_mut() else { continue };
        if let Some(chain) = line.strip_prefix(':') {
            let mut words = chain.split(' ');
            let (name, policy) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            // Only base chains have a policy.
            let hook = (policy != "-").then(|| name.to_ascii_lowercase());
            let policy = if hook.is_some() { policy.to_ascii_lowercase() } else { String::new() };
            table.chains.push((name.to_owned(), Steps { hook, policy, rules: Vec::new() }));
        }
        let mut words = split(line).into_iter();
        if words.next().as_deref() == Some("-A") {
            let (name, rest) = (words.next().unwrap_or_default(), words.collect::<Vec<_>>());
            if let Some((_, chain)) = table.chains.iter_mut().find(|(it, _)| *it == name) {
                chain.rules.push(PORTS.map(|(protocol, port)| step(&rest, protocol, port)));
            }
        }
    }
    tables
}

/// Splits a line into words. Quotes keep blanks together.
fn split(line: &str) -> Vec<String> {
    let (mut words, mut is_quoted, mut is_escaped) = (vec![String::new()], false, false);
    for letter in line.chars() {
        match letter {
            _ if is_escaped => is_escaped = false,
            '\\' if is_quoted => {
                is_escaped = true;
                continue;
            }
            '"' => {
                is_quoted = !is_quoted;
                continue;
            }
            ' ' if !is_quoted => {
                words.push(String::new());
                continue;
            }
            _ => {}
        }
        if let Some(word) = words.last_mut() {
            word.push(letter);
        }
    }
    words
}

/// Returns what a rule does with packets of this protocol to this port.
fn step(words: &[String], protocol: &str, port: u16) -> Step {
    let mut step = Step { reach: Reach::All, action: Action::GoOn };
    // `rpfilter` matches packets whose source address is routed to the interface they came from:
    // all but forged ones.
    let asks_for_the_way_back = words.windows(2).any(|pair| pair[0] == "-m" && pair[1] == "rpfilter");
    let (mut at, mut is_not) = (0, false);
    while let Some(flag) = words.get(at) {
        let value = words.get(at + 1).map(String::as_str).unwrap_or_default();
        let holds = |holds: bool| if holds != is_not { Reach::All } else { Reach::None };
        let (reach, len) = match flag.as_str() {
            "!" => {
                is_not = true;
                at += 1;
                continue;
            }
            "-p" => (holds(value == protocol || value == "all"), 2),
            "--dport" | "--dports" => (holds(is_within(port, &ranges(value))), 2),
            // As with nft, the first packet of a connection from another host decides.
            "--ctstate" | "--state" => (holds(value.split(',').any(|state| state == "NEW")), 2),
            "-i" | "-o" if value == "lo" => (holds(false), 2),
            "-s" | "-d" if is_forged(value) => (holds(false), 2),
            "-m" if value == "rpfilter" => (Reach::All, 2),
            "--loose" | "--validmark" | "--accept-local" if asks_for_the_way_back => (Reach::All, 1),
            "--invert" if asks_for_the_way_back => (Reach::None, 1),
            "-j" | "-g" => {
                step.action = action(flag == "-g", value);
                // The words that follow belong to the target.
                at = words.len();
                (Reach::All, 0)
            }
            "-m" | "--comment" => (neutral(flag, value), 2),
            // Any other option matches some packets by a condition that is not evaluated. The last
            // arm skips its value.
            _ if flag.starts_with('-') => (Reach::Some, 1),
            _ => (Reach::All, 1),
        };
        step.reach = step.reach.min(reach);
        is_not = false;
        at += len;
    }
    step
}

/// Returns whether all of these addresses, separated by commas, belong to no peer: `127.0.0.0/8`.
fn is_forged(addresses: &str) -> bool {
    addresses.split(',').all(|text| {
        let (address, bits) = text.split_once('/').unwrap_or((text, "128"));
        matches!((address.parse::<IpAddr>(), bits.parse()), (Ok(address), Ok(bits)) if is_nobodys(address, bits))
    })
}

/// Returns the effect of a match module or comment. The options of an evaluated module decide; any
/// other module matches some packets.
fn neutral(flag: &str, value: &str) -> Reach {
    let is_followed = matches!(value, "tcp" | "udp" | "multiport" | "conntrack" | "state" | "comment");
    if flag == "--comment" || is_followed { Reach::All } else { Reach::Some }
}

fn action(is_goto: bool, target: &str) -> Action {
    match target {
        "ACCEPT" => Action::End("accept"),
        "DROP" => Action::End("drop"),
        "REJECT" => Action::End("reject"),
        "RETURN" => Action::Return,
        _ if is_goto => Action::Goto(target.to_owned()),
        // A target such as LOG is not a chain. It is not found, and packets continue.
        _ => Action::Jump(target.to_owned()),
    }
}

/// Parses a list of ports: `22,4000:5000`.
fn ranges(text: &str) -> Vec<(u16, u16)> {
    let range = |part: &str| {
        let (first, last) = part.split_once(':').unwrap_or((part, part));
        Some((first.parse().ok()?, last.parse().ok()?))
    };
    text.split(',').filter_map(range).collect()
}

#[cfg(test)]
mod tests {
    use super::super::walk::chains;
    use super::*;

    #[test]
    fn rules_of_our_ports_are_found_in_lists_ranges_and_behind_jumps() {
        let text = include_str!("../../../tests/firewall/iptables-save.txt");
        let all = chains(&parse(text, "ip"));
        let names: Vec<_> = all.iter().map(|it| (it.name.as_str(), it.policy.as_str())).collect();
        assert_eq!(names, [("ip filter INPUT", "drop"), ("ip filter OUTPUT", "accept")]);
        let rules: Vec<_> =
            all[0].rules.iter().map(|it| (it.port.as_str(), it.verdict.as_str(), it.is_partial)).collect();
        let expected =
            [("udp 4791", "accept", false), ("tcp 18520", "accept", true), ("tcp 18520", "reject", false)];
        assert_eq!(rules, expected);
    }

    #[test]
    fn what_is_not_followed_is_for_some() {
        let of = |rule: &str| step(&split(rule), "udp", 4791).reach;
        assert_eq!(of("-p udp -m udp --dport 4000:5000 -j DROP"), Reach::All);
        assert_eq!(of("-p udp -m udp ! --dport 4791 -j DROP"), Reach::None);
        assert_eq!(of("-p udp -m udp --sport 4791 -j DROP"), Reach::Some);
        assert_eq!(of("-m set --match-set storage src -j ACCEPT"), Reach::Some);
        assert_eq!(of("-i lo -j ACCEPT"), Reach::None);
        assert_eq!(of("! -i lo -j DROP"), Reach::All);
        assert_eq!(of("-m comment --comment \"to -s \\\"us\\\"\" -j ACCEPT"), Reach::All);
        assert_eq!(of("-m limit --limit 3/min -j ACCEPT"), Reach::Some);
    }

    #[test]
    fn rules_against_forged_packets_stop_no_other() {
        let of = |rule: &str| step(&split(rule), "tcp", PORTS[1].1).reach;
        // Rules as written by kubelet, by firewalld and by hand.
        let kubelet = "! -s 127.0.0.0/8 -d 127.0.0.0/8 -m comment --comment \"block incoming localnet connections\" \
                       -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP";
        assert_eq!(of(kubelet), Reach::None);
        assert_eq!(of("-s 127.0.0.1/32 ! -i lo -j DROP"), Reach::None);
        assert_eq!(of("-s ::1/128 ! -i lo -j DROP"), Reach::None);
        assert_eq!(of("-m rpfilter --validmark --invert -j DROP"), Reach::None);
        assert_eq!(of("-m rpfilter --loose -j ACCEPT"), Reach::All);
        assert_eq!(of("-s 0.0.0.0/0 -j DROP"), Reach::Some);
        assert_eq!(of("! -s 127.0.0.0/8 -j DROP"), Reach::All);
    }
}
