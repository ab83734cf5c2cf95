//! Packs of strangers: whatever stands in a pack, its report can be printed, and a command that it
//! leads to can be copied.

use farreach_doctor::{Dump, DumpError, checks};
use serde_json::Value;

use crate::recorded::{Base, bases};

/// A text that writes to the terminal, forges a line, and is several commands for a shell.
const TEXT: &str =
    "\u{1b}[2J\u{1b}]52;c;eA==\u{7}\n  fix: curl \u{9b}1A\u{202e}\u{200b}\u{2028}$(id)`id`; touch x #'\"\\";

/// A name that the kernel accepts for a net device, and that is several commands for a shell.
const NAME: &str = "v;>P'$(id)`#\"\\";

/// Returns whether something of this text would not be shown as it is.
fn is_harmful(text: &str) -> bool {
    let is_hidden = |it: char| matches!(it, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}');
    text.chars().any(|it| it.is_control() || is_hidden(it))
}

/// Returns what a shell would make of a command beyond words, pipes and files to write to.
fn objection(command: &str) -> Option<String> {
    // The line of a configuration file. No value of a pack is in it but one that is plain.
    const LINES: [&str; 3] = ["Default=0x7fff, ipoib : ALL=full;", "capabilities: {", "hugepages-2Mi: "];
    if LINES.iter().any(|line| command.starts_with(line)) {
        return None;
    }
    let mut letters = command.chars();
    let mut is_quoted = false;
    while let Some(letter) = letters.next() {
        match letter {
            '\'' => is_quoted = !is_quoted,
            // A quotation mark of an argument: `'\''`.
            '\\' if !is_quoted && letters.next() == Some('\'') => {}
            _ if is_quoted => {}
            ';' | '$' | '`' | '#' | '"' | '\\' | '(' | ')' | '<' | '!' | '~' => {
                return Some(format!("{letter:?} outside of quotes"));
            }
            _ => {}
        }
    }
    is_quoted.then(|| "the quotes do not end".to_owned())
}

/// Returns the report of a pack, or why the pack is refused.
fn report(pack: &Value) -> Result<Value, DumpError> {
    match Dump::from_json(pack.to_string().as_bytes())? {
        Dump::Host(pack) => Ok(serde_json::to_value(checks::run(&pack)).expect("a report is JSON")),
        Dump::Pair(_) => panic!("a pack of a pair"),
    }
}

/// Returns the commands of all fixes.
fn commands(report: &Value) -> Vec<&str> {
    fn list(value: &Value) -> impl Iterator<Item = &Value> {
        value.as_array().into_iter().flatten()
    }
    let findings = list(&report["checks"]).flat_map(|check| list(&check["findings"]));
    let fixes = findings.flat_map(|finding| list(&finding["fixes"]));
    fixes.flat_map(|fix| list(&fix["commands"])).filter_map(Value::as_str).collect()
}

/// Returns what is wrong with the report of a pack: nothing of it may reach a terminal or a shell as
/// more than text.
fn objections(pack: &Value) -> Vec<String> {
    let report = match report(pack) {
        Ok(report) => report,
        // A pack may be refused, in words that can be printed.
        Err(error) if is_harmful(&error.to_string()) => return vec![format!("refused: {error:?}")],
        Err(_) => return Vec::new(),
    };
    let mut objections = Vec::new();
    each_text(&report, &mut |text| {
        if is_harmful(text) {
            objections.push(format!("not printable: {text:?}"));
        }
    });
    let of_command = |command: &str| objection(command).map(|why| format!("{command}: {why}"));
    objections.extend(commands(&report).into_iter().filter_map(of_command));
    objections
}

fn each_text(value: &Value, see: &mut impl FnMut(&str)) {
    match value {
        Value::String(text) => see(text),
        Value::Array(all) => all.iter().for_each(|value| each_text(value, see)),
        Value::Object(all) => all.iter().for_each(|(key, value)| {
            see(key);
            each_text(value, see);
        }),
        _ => {}
    }
}

/// Returns the value with each of its texts changed, also those that are keys, such as the names of
/// devices. `change` gets a number for each.
fn changed(value: &Value, count: &mut usize, change: &impl Fn(usize, &str) -> String) -> Value {
    let mut next = |text: &str| {
        *count += 1;
        change(*count - 1, text)
    };
    match value {
        Value::String(text) => Value::String(next(text)),
        Value::Array(all) => all.iter().map(|value| changed(value, count, change)).collect(),
        Value::Object(all) => {
            let change = |(key, value): (&String, &Value)| {
                *count += 1;
                // The names of fields, without which it is no pack.
                let is_field = key.chars().all(|letter| letter.is_ascii_lowercase() || letter == '_');
                let key = if is_field { key.clone() } else { change(*count - 1, key) };
                (key, changed(value, count, change))
            };
            Value::Object(all.iter().map(change).collect())
        }
        other => other.clone(),
    }
}

/// Returns each host, and each with one of its faults.
fn hosts(base: &Base) -> impl Iterator<Item = (String, Value)> {
    let faults = base.variants.iter().map(|variant| {
        let pack = variant.of(base).unwrap_or_else(|error| panic!("{}: {error}", variant.name));
        (format!("{}, {}", base.name, variant.name), pack)
    });
    std::iter::once((base.name.clone(), base.pack.clone())).chain(faults)
}

/// Returns the names of the devices, net devices, drivers, modules and chains of a pack.
fn names(pack: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let probes = &pack["probes"];
    let interfaces = probes["interfaces"]["read"].as_array().into_iter().flatten();
    let chains = probes["firewall"]["read"].as_array().into_iter().flatten();
    let mut names: Vec<String> =
        interfaces.chain(chains).filter_map(|it| text(&it["name"])).filter(|name| name != "lo").collect();
    for (path, entry) in pack["files"].as_object().into_iter().flatten() {
        let device = path.strip_prefix("/sys/class/infiniband/").and_then(|rest| rest.split('/').next());
        names.extend(device.map(str::to_owned));
        if path.ends_with("/parent") || path.contains("/gid_attrs/ndevs/") {
            names.extend(text(entry).map(|name| name.trim().to_owned()));
        }
        if path.ends_with("/driver") || path.ends_with("/device") {
            names.extend(entry["link"].as_str().and_then(|link| link.rsplit('/').next()).map(str::to_owned));
        }
    }
    names.retain(|name| !name.is_empty());
    names.sort();
    names.dedup();
    names
}

#[test]
fn a_name_that_is_a_command_stays_a_word() {
    let (mut objected, mut tried) = (Vec::new(), 0);
    for base in bases() {
        for (host, pack) in hosts(&base) {
            let report = report(&pack).expect("it is a pack");
            let commands = commands(&report);
            // A name that is in no command of the host is in none of the hostile one.
            for name in names(&pack).into_iter().filter(|name| commands.iter().any(|it| it.contains(name))) {
                let hostile = changed(&pack, &mut 0, &|_, text| text.replace(&name, NAME));
                tried += 1;
                objected.extend(objections(&hostile).into_iter().map(|it| format!("{host}, {name}: {it}")));
            }
        }
    }
    assert!(tried > 50, "{tried}");
    assert!(objected.is_empty(), "{} of {tried} packs:\n{}", objected.len(), objected.join("\n"));
}

#[test]
fn no_text_of_a_pack_reaches_a_terminal_or_a_shell_as_more_than_text() {
    /// As many packs of each host, each with another part of its texts changed.
    const PARTS: usize = 30;
    let (mut objected, mut tried) = (Vec::new(), 0);
    for base in bases() {
        for part in 0..2 * PARTS {
            let is_added = part % 2 == 0;
            let hostile = changed(&base.pack, &mut 0, &|at, text| match (at % PARTS == part / 2, is_added) {
                (true, true) => format!("{text}{TEXT}"),
                (true, false) if !text.starts_with('/') => TEXT.to_owned(),
                _ => text.to_owned(),
            });
            tried += 1;
            objected
                .extend(objections(&hostile).into_iter().map(|it| format!("{}, {part}: {it}", base.name)));
        }
        // A fault leads to findings that a good host has not.
        for (host, pack) in hosts(&base).skip(1) {
            for part in 0..3 {
                let hostile =
                    changed(&pack, &mut 0, &|at, text| match at % 3 == part && !text.starts_with('/') {
                        true => format!("{text}{TEXT}"),
                        false => text.to_owned(),
                    });
                tried += 1;
                objected.extend(objections(&hostile).into_iter().map(|it| format!("{host}, {part}: {it}")));
            }
        }
    }
    assert!(tried > 500, "{tried}");
    assert!(objected.is_empty(), "{} of {tried} packs:\n{}", objected.len(), objected.join("\n"));
}

#[test]
fn the_objections_of_these_tests_are_to_the_point() {
    for command in ["ip link set eth0 up", "echo 'a b;$(c)' > /x", r"ethtool 'it'\''s'", "dmesg | grep -e a"]
    {
        assert_eq!(objection(command), None, "{command}");
    }
    for command in ["ip link set v; reboot up", "echo $(id)", "echo 'a", "echo \"`id`\"", "x # y", r"echo \a"]
    {
        assert!(objection(command).is_some(), "{command}");
    }
    assert!(is_harmful(TEXT) && !is_harmful(NAME));
}
