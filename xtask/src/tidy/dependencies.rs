//! Compares docs/DEPENDENCIES.md with the manifests: every third-party crate has its line, and no
//! line is stale.

use std::collections::{BTreeMap, BTreeSet};

use super::Finding;
use super::manifest::Manifest;
use super::tree::Tree;

const LIST: &str = "docs/DEPENDENCIES.md";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let used = used(tree);
    let listed = listed(tree);

    for (name, crates) in &used {
        let crates = crates.iter().copied().collect::<Vec<_>>().join(", ");
        match listed.iter().find(|row| row.name == *name) {
            None => {
                let message =
                    format!("add a line for {name}, used by {crates}: | `{name}` | {crates} | the reason |");
                findings.push(Finding::new(LIST, 1, message));
            }
            Some(row) if row.used_by != crates => {
                let message = format!("{name} is used by {crates}: write that into the second column");
                findings.push(Finding::new(LIST, row.line, message));
            }
            Some(_) => {}
        }
    }
    for row in listed.iter().filter(|row| !used.contains_key(row.name)) {
        findings.push(Finding::new(
            LIST,
            row.line,
            format!("no crate uses {} any more: remove the line", row.name),
        ));
    }
    if let Some(root) = tree.get("Cargo.toml") {
        for (name, line, is_ours) in Manifest::parse(&root.text).workspace_dependencies() {
            if !is_ours && !used.contains_key(name) {
                findings.push(Finding::new(
                    &root.path,
                    line,
                    format!("no crate uses {name}: remove the line"),
                ));
            }
        }
    }
    findings
}

/// Returns the third-party crates, with the folders of the crates that use each.
fn used(tree: &Tree) -> BTreeMap<String, BTreeSet<&str>> {
    let mut used = BTreeMap::<String, BTreeSet<&str>>::new();
    let members = tree.manifests().filter_map(|file| Some((file, file.krate()?)));
    // It is not a member of the workspace. The other package there has the dependencies of the command.
    let fuzz = tree.get("fuzz/Cargo.toml").map(|file| (file, "fuzz"));
    for (file, krate) in members.chain(fuzz) {
        for dependency in Manifest::parse(&file.text).dependencies() {
            let is_ours = dependency.name == "farreach" || dependency.name.starts_with("farreach-");
            if !is_ours {
                used.entry(dependency.name).or_default().insert(krate);
            }
        }
    }
    used
}

struct Row<'a> {
    name: &'a str,
    used_by: &'a str,
    line: usize,
}

impl<'a> Row<'a> {
    fn parse(line: usize, text: &'a str) -> Option<Self> {
        let mut cells = text.strip_prefix('|')?.split('|').map(str::trim);
        let name = cells.next()?.strip_prefix('`')?.strip_suffix('`')?;
        Some(Self { name, used_by: cells.next()?, line })
    }
}

/// Returns the rows of the table whose first cell is the name of a crate in backquotes.
fn listed(tree: &Tree) -> Vec<Row<'_>> {
    let Some(list) = tree.get(LIST) else { return Vec::new() };
    list.lines().filter_map(|(line, text)| Row::parse(line, text)).collect()
}
