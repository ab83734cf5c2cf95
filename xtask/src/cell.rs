//! A command in another root on this machine's own kernel: what a container would be, with `unshare` and `chroot` alone.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};

use crate::paths;
use crate::process::{command, output, require_programs};

/// A root to run commands in, with some of this machine's folders visible under their own paths.
#[derive(Debug)]
pub(crate) struct Cell {
    root: PathBuf,
    visible: Vec<PathBuf>,
    path: Vec<String>,
    variables: Vec<String>,
}

impl Cell {
    /// The root with the repository and its build visible.
    pub(crate) fn new(root: &Path) -> Result<Self> {
        require_programs(&[("unshare", "util-linux"), ("chroot", "coreutils")])?;
        if output(&mut command("id", ["-u"]))?.trim() != "0" {
            bail!("running in another root needs root\nfix: run this task as root, or in a container");
        }
        let mut cell = Self {
            root: root.to_owned(),
            visible: Vec::new(),
            path: ["/usr/sbin", "/usr/bin"].map(ToOwned::to_owned).into(),
            variables: Vec::new(),
        };
        cell.show(paths::repository());
        if !paths::target().starts_with(paths::repository()) {
            cell.show(&paths::target());
        }
        Ok(cell)
    }

    /// Makes a folder of this machine visible inside, under its own path.
    pub(crate) fn show(&mut self, folder: &Path) {
        self.visible.push(folder.to_owned());
    }

    /// Another folder to find programs in, before the root's own.
    pub(crate) fn add_to_path(&mut self, folder: &Path) {
        self.path.insert(0, folder.display().to_string());
    }

    /// A variable of the environment inside, which is otherwise empty.
    pub(crate) fn set(&mut self, name: &str, value: &str) {
        self.variables.push(format!("{name}={value}"));
    }

    /// A command that runs inside, in `directory`.
    pub(crate) fn command(&self, directory: &Path, words: &[&str]) -> Command {
        let mut outer =
            command("unshare", ["--mount", "--propagation", "private", "--", "sh", "-ec", ENTER, "cell"]);
        outer.arg(&self.root).arg(directory).arg(self.visible.len().to_string()).args(&self.visible);
        outer
            .arg(format!("PATH={}", self.path.join(":")))
            .args(["HOME=/root", "LC_ALL=C"])
            .args(&self.variables);
        outer.args(words);
        outer
    }
}

/// `cell ROOT DIRECTORY COUNT FOLDER… NAME=VALUE… WORD…`: the mounts live in a namespace of their own and vanish with the command.
const ENTER: &str = r#"
root=$1; directory=$2; count=$3
shift 3
for pseudo in proc sys dev; do
    mkdir -p "$root/$pseudo"
    mount --rbind "/$pseudo" "$root/$pseudo"
done
mount -t tmpfs tmp "$root/tmp"
while [ "$count" -gt 0 ]; do
    mkdir -p "$root$1"
    mount --rbind "$1" "$root$1"
    shift
    count=$((count - 1))
done
exec chroot "$root" /usr/bin/env -i -C "$directory" "$@"
"#;
