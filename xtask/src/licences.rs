//! Checks licences, sources and banned crates of all dependencies, from `cargo metadata`.
//!
//! It reads deny.toml, which cargo-deny reads too, and checks a part of it in a second. `cargo
//! xtask deny` runs cargo-deny itself, which takes minutes to build and also compares licence texts
//! and versions.

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use spdx::{Expression, ParseMode};

use crate::paths;
use crate::process::{command, output, run};

/// The version of cargo-deny that `cargo xtask deny` installs.
const CARGO_DENY: &str = "0.20.2";

/// The licences and crates that deny.toml allows and bans.
#[derive(Debug, PartialEq, Eq)]
struct Policy {
    licences: Vec<String>,
    banned: Vec<String>,
}

/// A package of `cargo metadata`.
#[derive(Debug, Deserialize)]
struct Package {
    name: String,
    license: Option<String>,
    /// `None` for a crate of this workspace.
    source: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

/// Checks every package of the dependency graph.
pub(crate) fn check() -> Result<()> {
    let policy = Policy::read(&std::fs::read_to_string(paths::repository().join("deny.toml"))?)?;
    let words = ["metadata", "--format-version=1", "--locked", "--all-features"];
    let metadata = output(command("cargo", words).current_dir(paths::repository()))?;
    let packages = serde_json::from_str::<Metadata>(&metadata)?.packages;
    let foreign: Vec<_> = packages.iter().filter(|package| package.source.is_some()).collect();
    ensure!(!foreign.is_empty(), "cargo metadata lists no dependency");
    let complaints: Vec<_> = foreign.iter().filter_map(|package| policy.complaint(package)).collect();
    if !complaints.is_empty() {
        bail!("dependencies that deny.toml does not allow:\n{}", complaints.join("\n"));
    }
    println!("licences: {} dependencies, all allowed", foreign.len());
    Ok(())
}

/// Runs cargo-deny, and installs it if it is missing. Advisories are not checked, because not every
/// machine can download their database.
pub(crate) fn deny() -> Result<()> {
    if output(&mut command("cargo", ["deny", "--version"])).is_err() {
        println!("── installing cargo-deny {CARGO_DENY}, which takes some minutes");
        run(&mut command(
            "cargo",
            ["install", "--quiet", "--locked", "cargo-deny", "--version", CARGO_DENY],
        ))?;
    }
    let words = ["deny", "--log-level", "error", "check", "bans", "licenses", "sources"];
    run(command("cargo", words).current_dir(paths::repository()))
}

impl Policy {
    /// Parses the text of deny.toml: the list `allow`, and each `crate = "…"` of the list `deny`.
    fn read(text: &str) -> Result<Self> {
        let quoted = |line: &str| -> Vec<String> {
            line.split('"').skip(1).step_by(2).map(ToOwned::to_owned).collect()
        };
        let allowed = text.lines().find(|line| line.starts_with("allow = ["));
        let banned = text.lines().filter_map(|line| line.trim().strip_prefix("{ crate = "));
        let policy = Self {
            licences: quoted(allowed.context("deny.toml has no list of licences in one line")?),
            banned: banned.filter_map(|line| quoted(line).into_iter().next()).collect(),
        };
        ensure!(
            !policy.licences.is_empty() && !policy.banned.is_empty(),
            "deny.toml cannot be parsed: it has no allowed licences, or no banned crates"
        );
        Ok(policy)
    }

    /// Returns why this package must not be used, if it must not.
    fn complaint(&self, package: &Package) -> Option<String> {
        let Package { name, license, source } = package;
        if self.banned.contains(name) {
            return Some(format!("{name}: deny.toml bans it"));
        }
        // The content of a git repository or a folder may change.
        if !source.as_ref()?.starts_with("registry+") {
            return Some(format!("{name}: its source is {}, not from the registry", source.as_ref()?));
        }
        let Some(license) = license else { return Some(format!("{name}: it has no licence")) };
        match Expression::parse_mode(license, ParseMode::LAX) {
            Err(error) => Some(format!("{name}: `{license}` cannot be parsed: {}", error.reason)),
            Ok(expression) => {
                let is_allowed = expression.evaluate(|requirement| {
                    let id = requirement.license.id();
                    id.is_some_and(|id| self.licences.iter().any(|allowed| allowed == id.name))
                });
                (!is_allowed).then(|| format!("{name}: deny.toml does not allow `{license}`"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaint(license: &str, source: &str) -> Option<String> {
        let policy = Policy { licences: vec!["MIT".into(), "ISC".into()], banned: vec!["cmake".into()] };
        policy.complaint(&Package {
            name: "some".into(),
            license: Some(license.into()),
            source: Some(source.into()),
        })
    }

    #[test]
    fn a_licence_is_allowed_if_one_of_its_choices_is() {
        for allowed in
            ["MIT", "MIT/Apache-2.0", "Apache-2.0 OR MIT", "MIT AND ISC", "(GPL-3.0 OR ISC) AND MIT"]
        {
            assert_eq!(complaint(allowed, "registry+here"), None, "{allowed}");
        }
        for refused in ["GPL-3.0", "MIT AND GPL-3.0", "", "Mine"] {
            assert!(complaint(refused, "registry+here").is_some(), "{refused}");
        }
    }

    #[test]
    fn what_is_not_from_the_registry_or_is_banned_is_refused() {
        assert!(complaint("MIT", "git+elsewhere").unwrap().contains("not from the registry"));
        let policy = Policy { licences: vec!["MIT".into()], banned: vec!["cmake".into()] };
        let cmake = Package { name: "cmake".into(), license: Some("MIT".into()), source: None };
        assert_eq!(policy.complaint(&cmake).unwrap(), "cmake: deny.toml bans it");
    }

    #[test]
    fn the_policy_is_read_from_the_file_of_cargo_deny() {
        let policy =
            Policy::read(&std::fs::read_to_string(paths::repository().join("deny.toml")).unwrap()).unwrap();
        assert!(policy.licences.contains(&"ISC".to_owned()), "{policy:?}");
        assert!(policy.banned.contains(&"bindgen".to_owned()), "{policy:?}");
        assert!(Policy::read("[bans]").is_err());
    }
}
