//! The test programs of the repository, as cargo builds and lists them.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::paths;
use crate::process::{command, output, run};

/// The requirement of a test program. The name of its target begins with it: `host`,
/// `library_costs`, `device`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Tier {
    /// Only this machine. Unit tests belong to this tier too.
    Host,
    /// libfabric or rdma-core, in a root with the library.
    Library,
    /// An RDMA device, in a guest.
    Device,
}

impl Tier {
    /// Returns the tier of the integration test target of this name.
    pub(crate) fn of_target(name: &str) -> Option<Self> {
        match name.split('_').next()? {
            "host" => Some(Self::Host),
            "library" => Some(Self::Library),
            "device" => Some(Self::Device),
            _ => None,
        }
    }
}

/// How the names of tests begin that attack the first promise: `cargo xtask soundness` runs them.
pub(crate) const ATTACKS: &str = "attacks::";

/// A compiled test program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TestBinary {
    /// The folder of its crate, such as `cli`.
    pub(crate) krate: String,
    /// Its target: `library` for an integration test, `lib` or `bin` for unit tests.
    pub(crate) target: String,
    pub(crate) tier: Tier,
    pub(crate) executable: PathBuf,
    /// The working directory in which cargo would run it.
    pub(crate) directory: PathBuf,
}

/// Builds the tests of the workspace and returns every test program, including unit tests.
pub(crate) fn all_test_binaries() -> Result<Vec<TestBinary>> {
    // The same features as `cargo test` uses here, so that both use the same build.
    let words =
        ["test", "--workspace", "--all-features", "--no-run", "--message-format=json-render-diagnostics"];
    let messages = output(command("cargo", words).current_dir(paths::repository()))?;
    let mut binaries = Vec::new();
    for line in messages.lines() {
        binaries.extend(test_binary(line)?);
    }
    // Sorted by name, so that they run in the same order in every build.
    binaries.sort_by_key(|binary| (binary.name(), binary.executable.clone()));
    Ok(binaries)
}

/// Builds the tests of the workspace and returns the integration tests of a tier.
pub(crate) fn test_binaries(tier: Tier) -> Result<Vec<TestBinary>> {
    let mut binaries = all_test_binaries()?;
    binaries.retain(|it| it.tier == tier && it.is_integration_test());
    ensure!(!binaries.is_empty(), "no test program has the tier {tier:?}");
    Ok(binaries)
}

/// Builds the tests of a crate's library and returns the program.
pub(crate) fn library_tests(package: &str, profile: &str) -> Result<String> {
    let words =
        ["test", "--lib", "--no-run", "--message-format=json-render-diagnostics", "--package", package];
    let mut cargo = command("cargo", words);
    built(cargo.args(["--profile", profile]).current_dir(paths::repository()))
}

/// Runs cargo, which must print its messages as JSON, and returns the last program that it built.
pub(crate) fn built(cargo: &mut Command) -> Result<String> {
    let program = |line: &str| -> Option<String> {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        message["executable"].as_str().map(ToOwned::to_owned)
    };
    output(cargo)?.lines().filter_map(program).next_back().context("the messages of cargo name no program")
}

/// Builds an example with the profile `dist`, in the build folder of the tests, where a test that
/// counts its instructions finds it.
pub(crate) fn build_dist_example(package: &str, example: &str) -> Result<()> {
    let words = ["build", "--quiet", "--profile", "dist", "--package", package, "--example", example];
    run(command("cargo", words).current_dir(paths::repository()))
}

/// Builds an example for release and returns its path.
pub(crate) fn build_release_example(package: &str, example: &str) -> Result<PathBuf> {
    let words = ["build", "--quiet", "--release", "--package", package, "--example", example];
    run(command("cargo", words).current_dir(paths::repository()))?;
    Ok(paths::target().join("release/examples").join(example))
}

/// Builds the command for release and returns its path.
pub(crate) fn release_command() -> Result<PathBuf> {
    let words = ["build", "--quiet", "--release", "--package", "farreach-cli"];
    run(command("cargo", words).current_dir(paths::repository()))?;
    Ok(paths::target().join("release/farreach"))
}

/// Returns the test program in one line of cargo's messages, if there is one.
fn test_binary(line: &str) -> Result<Option<TestBinary>> {
    let Ok(message) = serde_json::from_str::<serde_json::Value>(line) else { return Ok(None) };
    let text = |value: &serde_json::Value| value.as_str().map(ToOwned::to_owned);
    let is_test = message["profile"]["test"] == true;
    let Some(executable) = text(&message["executable"]).filter(|_| is_test) else { return Ok(None) };
    let (kind, name) = (text(&message["target"]["kind"][0]), text(&message["target"]["name"]));
    let (kind, name) = (kind.unwrap_or_default(), name.unwrap_or_default());
    let manifest = PathBuf::from(text(&message["manifest_path"]).context("a target without its manifest")?);
    let directory = manifest.parent().context("a manifest lies in a folder")?.to_owned();
    let krate = directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let (target, tier) = match kind.as_str() {
        "test" => {
            let tier = Tier::of_target(&name);
            // The integration test of xtask boots guests itself.
            let tier = if krate == "xtask" { Some(Tier::Host) } else { tier };
            let tier = tier.with_context(|| {
                format!("{krate}/tests/{name}: the name must begin with host, library or device")
            })?;
            (name, tier)
        }
        "lib" | "bin" => (kind, Tier::Host),
        _ => return Ok(None),
    };
    Ok(Some(TestBinary { krate, target, tier, executable: executable.into(), directory }))
}

impl TestBinary {
    /// Returns the name, such as `cli/library`.
    pub(crate) fn name(&self) -> String {
        format!("{}/{}", self.krate, self.target)
    }

    /// Returns whether it is a program of `tests/`, and not the unit tests of a library or a
    /// command.
    pub(crate) fn is_integration_test(&self) -> bool {
        self.target != "lib" && self.target != "bin"
    }

    /// Returns the tests that need a library or a device, and are ignored by default.
    pub(crate) fn ignored(&self) -> Result<Vec<String>> {
        self.list(&["--ignored", "--list"])
    }

    /// Returns the tests that need neither.
    pub(crate) fn plain(&self) -> Result<Vec<String>> {
        let ignored = self.ignored()?;
        Ok(self.list(&["--list"])?.into_iter().filter(|test| !ignored.contains(test)).collect())
    }

    /// Returns the command with which `cargo test` would start it.
    pub(crate) fn command(&self) -> Result<Command> {
        let mut test = Command::new(self.path()?);
        // Some tests start cargo for code that must not compile.
        test.current_dir(&self.directory).env("CARGO_MANIFEST_DIR", &self.directory).env("CARGO", "cargo");
        Ok(test)
    }

    fn list(&self, words: &[&str]) -> Result<Vec<String>> {
        let list = output(&mut command(self.path()?, words))?;
        Ok(list.lines().filter_map(|line| line.strip_suffix(": test")).map(ToOwned::to_owned).collect())
    }

    /// Returns the path of the executable as text, for a command line.
    pub(crate) fn path(&self) -> Result<&str> {
        self.executable.to_str().with_context(|| format!("{} is not valid UTF-8", self.executable.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIBRARY: &str = r#"{"reason":"compiler-artifact","manifest_path":"/r/crates/cli/Cargo.toml",
        "target":{"kind":["test"],"name":"library_costs"},"profile":{"test":true},
        "executable":"/r/target/debug/deps/library-1"}"#;

    #[test]
    fn a_test_program_has_its_crate_and_its_tier() {
        let binary = test_binary(LIBRARY).unwrap().unwrap();
        assert_eq!((binary.name().as_str(), binary.tier), ("cli/library_costs", Tier::Library));
        assert_eq!(binary.directory, PathBuf::from("/r/crates/cli"));
        let unit = test_binary(&LIBRARY.replace(r#"["test"]"#, r#"["lib"]"#)).unwrap().unwrap();
        assert_eq!((unit.name().as_str(), unit.tier), ("cli/lib", Tier::Host));
        assert!(binary.is_integration_test() && !unit.is_integration_test());
    }

    #[test]
    fn what_is_no_test_program_is_not_listed() {
        assert_eq!(test_binary(&LIBRARY.replace("true", "false")).unwrap(), None);
        assert_eq!(test_binary("not json").unwrap(), None);
    }

    #[test]
    fn a_program_of_no_tier_is_an_error() {
        assert!(test_binary(&LIBRARY.replace("library_costs", "costs")).is_err());
    }
}
