//! The repository's test programs, built and listed by cargo itself.

use std::path::PathBuf;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::paths;
use crate::process::{command, output, run};

/// A compiled test program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TestBinary {
    /// The name of its source file: `device_…` needs an RDMA kernel, `engine_…` an engine's library, others neither.
    pub(crate) name: String,
    pub(crate) executable: PathBuf,
    /// Where cargo would run it.
    pub(crate) directory: PathBuf,
}

/// Builds the workspace's tests and lists the integration tests whose name begins with `prefix`.
pub(crate) fn test_binaries(prefix: &str) -> Result<Vec<TestBinary>> {
    // With the features that `cargo test` is run with here: a build that serves both.
    let words =
        ["test", "--workspace", "--all-features", "--no-run", "--message-format=json-render-diagnostics"];
    let messages = output(command("cargo", words).current_dir(paths::repository()))?;
    let mut binaries: Vec<_> =
        messages.lines().filter_map(integration_test).filter(|it| it.name.starts_with(prefix)).collect();
    binaries.sort_by(|left, right| left.executable.cmp(&right.executable));
    anyhow::ensure!(!binaries.is_empty(), "there is no test program named {prefix}…");
    Ok(binaries)
}

/// Builds the tests of a crate's library, and gives their program.
pub(crate) fn library_tests(package: &str, profile: &str) -> Result<String> {
    let words =
        ["test", "--lib", "--no-run", "--message-format=json-render-diagnostics", "--package", package];
    let mut cargo = command("cargo", words);
    let messages = output(cargo.args(["--profile", profile]).current_dir(paths::repository()))?;
    let program = |line: &str| -> Option<String> {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        message["executable"].as_str().map(ToOwned::to_owned)
    };
    messages.lines().filter_map(program).next_back().context("cargo names no test program")
}

/// Builds an example for release, beside the tests' own build, where a test that counts its instructions finds it.
pub(crate) fn build_release_example(package: &str, example: &str) -> Result<()> {
    let words = ["build", "--quiet", "--release", "--package", package, "--example", example];
    run(command("cargo", words).current_dir(paths::repository()))
}

/// Builds the command for release, and gives its file.
pub(crate) fn release_command() -> Result<PathBuf> {
    let words = ["build", "--quiet", "--release", "--package", "farreach-cli"];
    run(command("cargo", words).current_dir(paths::repository()))?;
    Ok(paths::target().join("release/farreach"))
}

/// What one line of cargo's messages says of an integration test, if it speaks of one.
fn integration_test(line: &str) -> Option<TestBinary> {
    let message: serde_json::Value = serde_json::from_str(line).ok()?;
    if message["reason"] != "compiler-artifact" || message["target"]["kind"] != serde_json::json!(["test"]) {
        return None;
    }
    let text = |value: &serde_json::Value| value.as_str().map(ToOwned::to_owned);
    Some(TestBinary {
        name: text(&message["target"]["name"])?,
        executable: text(&message["executable"])?.into(),
        directory: PathBuf::from(text(&message["manifest_path"])?).parent()?.to_owned(),
    })
}

impl TestBinary {
    /// Those of its tests that wait for an engine's library or a device, and are ignored elsewhere.
    pub(crate) fn ignored(&self) -> Result<Vec<String>> {
        let list = output(&mut command(self.path()?, ["--ignored", "--list"]))?;
        Ok(list.lines().filter_map(|line| line.strip_suffix(": test")).map(ToOwned::to_owned).collect())
    }

    /// The executable as text, for a command line.
    pub(crate) fn path(&self) -> Result<&str> {
        self.executable.to_str().with_context(|| format!("{} is not text", self.executable.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_integration_tests_are_listed() {
        let test = r#"{"reason":"compiler-artifact","manifest_path":"/r/crates/cli/Cargo.toml",
            "target":{"kind":["test"],"name":"device_list"},"executable":"/r/target/debug/deps/device_list-1"}"#;
        assert_eq!(
            integration_test(test),
            Some(TestBinary {
                name: "device_list".into(),
                executable: "/r/target/debug/deps/device_list-1".into(),
                directory: "/r/crates/cli".into(),
            })
        );
        assert_eq!(integration_test(&test.replace(r#"["test"]"#, r#"["lib"]"#)), None);
        assert_eq!(integration_test("not json"), None);
    }
}
