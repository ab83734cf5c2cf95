//! Identifiers must not use a word that docs/GLOSSARY.md has retired.

use std::collections::BTreeMap;

use super::Finding;
use super::tree::Tree;

const PAGE: &str = "docs/GLOSSARY.md";

/// Identifiers that contain a retired word in its ordinary meaning, with that meaning.
const ALLOWED: &[(&str, &str)] = &[
    ("a_region_that_promises_too_much_is_refused_by_its_target", "what an API promises"),
    ("a_single_stray_measurement_moves_no_median", "an outlier"),
    ("clock_ticks_per_second", "POSIX calls it so: sysconf(_SC_CLK_TCK)"),
    ("send_tls13_tickets", "rustls calls it so"),
    ("tick", "a mark on the axis of a chart"),
    ("tick_at", "a mark on the axis of a chart"),
    ("ticks", "a mark on the axis of a chart, or the kernel's clock"),
    ("TICKS_PER_S", "the kernel's clock"),
];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let retired = tree.get(PAGE).map(|page| retired(&page.text)).unwrap_or_default();
    let mut findings = Vec::new();
    for file in tree.rust().filter(|file| !file.is_generated()) {
        let identifiers = file.names().iter().flat_map(|name| name.segments.iter().map(|it| (it, name.line)));
        for (identifier, line) in identifiers {
            if ALLOWED.iter().any(|(allowed, _)| allowed == identifier) {
                continue;
            }
            for word in words(identifier) {
                if let Some(instead) = retired.get(&word) {
                    let message =
                        format!("`{identifier}`: `{word}` is retired; {PAGE} has {instead} instead");
                    findings.push(Finding::new(&file.path, line, message));
                }
            }
        }
    }
    findings
}

/// Returns the words in `code` in the last column of each row, with the term that replaces them.
fn retired(page: &str) -> BTreeMap<String, String> {
    let rows = page.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
    let mut retired = BTreeMap::new();
    for row in rows {
        let (Some((term, _)), Some((_, not))) = (row.split_once('|'), row.rsplit_once('|')) else { continue };
        for word in not.split('`').skip(1).step_by(2) {
            retired.insert(word.to_owned(), format!("\"{}\"", term.trim()));
        }
    }
    retired
}

/// Returns the words of an identifier, in lower case: `LinkDown` and `link_down` have two.
fn words(identifier: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for char in identifier.chars() {
        if char == '_' || (char.is_uppercase() && was_lower) {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| char != '_') {
            word.extend(char.to_lowercase());
        }
        was_lower = char.is_lowercase();
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identifier_is_taken_apart_as_it_is_written() {
        assert_eq!(words("LinkDown"), ["link", "down"]);
        assert_eq!(words("link_down2"), ["link", "down2"]);
        assert_eq!(words("LINK_DOWN"), ["link", "down"]);
    }

    #[test]
    fn what_is_retired_stands_in_the_last_column() {
        let page = "| term | meaning | not |\n|---|---|---|\n| leader (`Leader`) | leads | `helm`, `wheel`, driver |\n| `x` | y | |\n";
        let found = retired(page);
        assert_eq!(found.keys().collect::<Vec<_>>(), ["helm", "wheel"]);
        assert_eq!(found["helm"], "\"leader (`Leader`)\"");
    }
}
