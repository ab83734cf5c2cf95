//! A processor architecture to build for, and how its programs are compiled and run on this
//! machine.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::cell::Cell;
use crate::debian::Root;
use crate::paths;
use crate::process::command;

/// The architecture of this machine, or aarch64 with a cross compiler and user-mode emulation.
#[derive(Debug)]
pub(crate) enum Platform {
    Host,
    Aarch64(Cell),
}

/// Debian's Rust, because Debian also packages its standard library for other architectures.
const CROSS: Root<'static> = Root {
    name: "cross-aarch64",
    suites: &["unstable", "testing"],
    packages: &["cargo", "coreutils", "gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross", "qemu-user", "rustc"],
    minimum: ("rustc", "1.88"),
    with_dependencies: true,
    foreign: &[("arm64", "libstd-rust-dev")],
    // Build scripts and procedural macros are linked for this machine, with `cc`.
    links: &[("usr/bin/cc", "gcc")],
};

const TRIPLE: &str = "aarch64-unknown-linux-gnu";
const LINKER: &str = "aarch64-linux-gnu-gcc";
const RUNNER: [&str; 3] = ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"];

impl Platform {
    /// Returns the cross compiler and the emulator, in a root of their own.
    pub(crate) fn aarch64() -> Result<Self> {
        let mut cell = Cell::new(&CROSS.get()?.path)?;
        cell.show(&paths::cache()?);
        let cargo_home = paths::cargo_home()?;
        cell.show(&cargo_home);
        cell.set("CARGO_HOME", &cargo_home.display().to_string());
        cell.set("CARGO_TARGET_DIR", &Self::target_of_aarch64().display().to_string());
        cell.set("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", LINKER);
        cell.set("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", &RUNNER.join(" "));
        Ok(Self::Aarch64(cell))
    }

    /// Returns a command for the C compiler, to which more arguments can be added.
    pub(crate) fn c_compiler(&self, arguments: &[&str]) -> Command {
        match self {
            Self::Host => command("cc", arguments),
            Self::Aarch64(cell) => cell.command(paths::repository(), &[&[LINKER], arguments].concat()),
        }
    }

    /// Returns a command for a program that was compiled for this platform.
    pub(crate) fn program(&self, path: &Path, arguments: &[&str]) -> Result<Command> {
        let path = path.to_str().with_context(|| format!("{} is not valid UTF-8", path.display()))?;
        Ok(match self {
            Self::Host => command(path, arguments),
            Self::Aarch64(cell) => {
                cell.command(Path::new("/"), &[RUNNER.as_slice(), &[path], arguments].concat())
            }
        })
    }

    /// Returns `cargo SUBCOMMAND` for this platform, to which more arguments can be added.
    pub(crate) fn cargo(&self, subcommand: &str) -> Command {
        match self {
            Self::Host => {
                let mut cargo = command("cargo", [subcommand]);
                cargo.current_dir(paths::repository());
                cargo
            }
            Self::Aarch64(cell) => {
                let words = ["cargo", subcommand, "--offline", "--locked", "--target", TRIPLE];
                cell.command(paths::repository(), &words)
            }
        }
    }

    /// Returns the path of the command after the build.
    pub(crate) fn binary(&self) -> PathBuf {
        match self {
            Self::Host => paths::target().join("debug/farreach"),
            Self::Aarch64(_) => Self::target_of_aarch64().join(TRIPLE).join("debug/farreach"),
        }
    }

    fn target_of_aarch64() -> PathBuf {
        paths::target().join("cross")
    }
}
