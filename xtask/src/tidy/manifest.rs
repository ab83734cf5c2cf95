//! Parses Cargo.toml as this repository writes it: one `key = value` per line. Other TOML is not
//! supported.

use super::Finding;
use super::tree::Tree;

pub(super) struct Manifest<'a> {
    entries: Vec<Entry<'a>>,
}

struct Entry<'a> {
    section: &'a str,
    key: &'a str,
    value: &'a str,
    line: usize,
}

pub(super) struct Dependency {
    pub(super) name: String,
    pub(super) line: usize,
    /// Whether the version comes from the workspace.
    inherited: bool,
    /// Whether only tests, examples and benches use it.
    is_dev: bool,
}

impl<'a> Manifest<'a> {
    pub(super) fn parse(text: &'a str) -> Self {
        let mut entries = Vec::new();
        let mut section = "";
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if let Some(header) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                section = header.trim_matches(['[', ']']);
            } else if let Some((key, value)) = line.split_once('=').filter(|_| !line.starts_with('#')) {
                entries.push(Entry { section, key: key.trim(), value: value.trim(), line: index + 1 });
            }
        }
        Self { entries }
    }

    pub(super) fn get(&self, section: &str, key: &str) -> Option<&'a str> {
        self.entries
            .iter()
            .find(|entry| entry.section == section && entry.key == key)
            .map(|entry| entry.value)
    }

    /// Returns the dependencies of every kind: normal, dev, build, and for one target.
    pub(super) fn dependencies(&self) -> Vec<Dependency> {
        let of_crate = |section: &str| section.ends_with("dependencies") && !section.starts_with("workspace");
        let entries = self.entries.iter().filter(|entry| of_crate(entry.section));
        let dependency = |entry: &Entry<'_>| {
            let (name, inherited) = match entry.key.strip_suffix(".workspace") {
                Some(name) => (name, entry.value == "true"),
                None => (entry.key, entry.value.contains("workspace = true")),
            };
            let is_dev = entry.section.ends_with("dev-dependencies");
            Dependency { name: name.to_owned(), line: entry.line, inherited, is_dev }
        };
        entries.map(dependency).collect()
    }

    /// Returns `[workspace.dependencies]`: name, line, and whether it is a crate of this
    /// repository.
    pub(super) fn workspace_dependencies(&self) -> Vec<(&'a str, usize, bool)> {
        let entries = self.entries.iter().filter(|entry| entry.section == "workspace.dependencies");
        entries.map(|entry| (entry.key, entry.line, entry.value.contains("path ="))).collect()
    }

    /// Returns the source files that targets name explicitly.
    pub(super) fn target_paths(&self) -> impl Iterator<Item = &'a str> {
        let targets = self.entries.iter().filter(|entry| {
            entry.key == "path" && ["lib", "bin", "test", "example", "bench"].contains(&entry.section)
        });
        targets.map(|entry| entry.value.trim_matches('"'))
    }
}

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.manifests() {
        let manifest = Manifest::parse(&file.text);
        let mut report = |line, message: String| findings.push(Finding::new(&file.path, line, message));
        if manifest.get("lints", "workspace") != Some("true") {
            report(1, "add `[lints]` with `workspace = true`".to_owned());
        }
        if manifest.get("package", "description").is_none() {
            report(1, "add a `description`".to_owned());
        }
        for key in INHERITED {
            if manifest.get("package", &format!("{key}.workspace")) != Some("true") {
                report(1, format!("add `{key}.workspace = true`"));
            }
        }
        for dependency in manifest.dependencies().iter().filter(|dependency| !dependency.inherited) {
            let name = &dependency.name;
            let message = format!(
                "put {name} into the root's [workspace.dependencies], and `{name}.workspace = true` here"
            );
            report(dependency.line, message);
        }
    }
    findings
}

/// Published crates must not depend on simulated cards and test helpers.
pub(super) fn published(tree: &Tree) -> Vec<Finding> {
    let is_published = |manifest: &Manifest<'_>| manifest.get("package", "publish") != Some("false");
    let manifests: Vec<_> = tree.manifests().map(|file| (file, Manifest::parse(&file.text))).collect();
    let unpublished: Vec<_> = manifests
        .iter()
        .filter(|(_, manifest)| !is_published(manifest))
        .filter_map(|(_, manifest)| manifest.get("package", "name"))
        .map(|name| name.trim_matches('"'))
        .collect();
    let mut findings = Vec::new();
    for (file, manifest) in manifests.iter().filter(|(_, manifest)| is_published(manifest)) {
        for dependency in manifest.dependencies().iter().filter(|dependency| !dependency.is_dev) {
            if unpublished.contains(&dependency.name.as_str()) {
                let message =
                    format!("{} is not published: only [dev-dependencies] may name it", dependency.name);
                findings.push(Finding::new(&file.path, dependency.line, message));
            }
        }
    }
    findings
}

const INHERITED: &[&str] = &["version", "edition", "rust-version", "license", "authors"];
