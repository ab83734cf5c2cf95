//! Rules for the plain text of a line.
//!
//! The searched words are split in this file, so that it passes its own rules.

use super::Finding;
use super::tree::Tree;

pub(super) fn markers(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files() {
        for (line, text) in file.lines() {
            if let Some(marker) = MARKERS.iter().find(|marker| has_word(text, marker)) {
                let message = format!("{marker} is left over: do it now, or open an issue");
                findings.push(Finding::new(&file.path, line, message));
            }
        }
    }
    findings
}

const MARKERS: &[&str] =
    &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X"), concat!("HA", "CK")];

pub(super) fn registry_hosts(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    // cargo writes its lock file, which names the host of the index without using it.
    for file in tree.files().filter(|file| !file.path.ends_with("Cargo.lock")) {
        for (line, text) in file.lines() {
            let text = text.to_ascii_lowercase();
            if let Some(host) = HOSTS.iter().find(|host| has_host(&text, host)) {
                let message = format!(
                    "names the host {host}: the settings of the machine define where packages come from"
                );
                findings.push(Finding::new(&file.path, line, message));
            }
        }
    }
    findings
}

const HOSTS: &[&str] = &[
    concat!("crates", ".", "io"),
    concat!("py", "pi.org"),
    concat!("python", "hosted.org"),
    concat!("npm", "js.org"),
    concat!("npm", "js.com"),
    concat!("ruby", "gems.org"),
    concat!("proxy.go", "lang.org"),
    concat!("deb.de", "bian.org"),
    concat!("ftp.de", "bian.org"),
    concat!("security.de", "bian.org"),
    concat!("snapshot.de", "bian.org"),
    concat!("archive.ub", "untu.com"),
    concat!("ports.ub", "untu.com"),
    concat!("security.ub", "untu.com"),
];

pub(super) fn developer_paths(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files() {
        for (line, text) in file.lines() {
            if let Some(home) = HOMES.iter().find(|home| has_path_below(text, home)) {
                let message = format!(
                    "a path below {home} exists on one machine only: derive it, or take it as an argument"
                );
                findings.push(Finding::new(&file.path, line, message));
            }
        }
    }
    findings
}

/// The superuser's home counts only with a hidden file in it: guests and chroots mount other
/// folders there.
const HOMES: &[&str] = &[concat!("/ho", "me/"), concat!("/Us", "ers/"), concat!("/ro", "ot/.")];

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Returns the occurrences of `needle`, as the bytes before and after each.
fn occurrences<'a>(text: &'a str, needle: &'a str) -> impl Iterator<Item = (Option<u8>, Option<u8>)> + 'a {
    text.match_indices(needle).map(move |(at, _)| {
        let bytes = text.as_bytes();
        (at.checked_sub(1).map(|before| bytes[before]), bytes.get(at + needle.len()).copied())
    })
}

fn has_word(text: &str, word: &str) -> bool {
    let outside = |byte: Option<u8>| !byte.is_some_and(is_word);
    occurrences(text, word).any(|(before, after)| outside(before) && outside(after))
}

/// Returns whether the text has this host or one below it, and not a longer name that only contains
/// it.
fn has_host(text: &str, host: &str) -> bool {
    let part_of_name = |byte: u8| is_word(byte) || byte == b'-';
    occurrences(text, host)
        .any(|(before, after)| !before.is_some_and(part_of_name) && !after.is_some_and(is_word))
}

/// Returns whether the text has an absolute path below the folder: no longer path precedes it, and
/// a name follows.
fn has_path_below(text: &str, directory: &str) -> bool {
    let continues = |byte: u8| is_word(byte) || matches!(byte, b'.' | b'-' | b'}' | b')');
    occurrences(text, directory)
        .any(|(before, after)| !before.is_some_and(continues) && after.is_some_and(is_word))
}
