//! Runs a command in another root on the kernel of this machine, like a container, with only
//! `unshare` and `chroot`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};

use crate::paths;
use crate::process::{command, output, require_programs};

/// A root to run commands in, in which some folders of this machine are visible.
#[derive(Debug)]
pub(crate) struct Cell {
    root: PathBuf,
    visible: Vec<Visible>,
    path: Vec<String>,
    variables: Vec<String>,
    has_own_network: bool,
    is_of_nobody: bool,
}

/// A folder of this machine that is visible inside.
#[derive(Debug)]
struct Visible {
    folder: PathBuf,
    inside: PathBuf,
    /// Writes inside go to an overlay, which is removed with the command.
    is_shielded: bool,
}

impl Cell {
    /// Creates a cell for a root, in which the repository and its build are visible.
    pub(crate) fn new(root: &Path) -> Result<Self> {
        require_programs(&[("unshare", "util-linux"), ("chroot", "coreutils")])?;
        if output(&mut command("id", ["-u"]))?.trim() != "0" {
            bail!(
                "running in another root needs root privileges\nfix: run this task as root, or in a container"
            );
        }
        let mut cell = Self {
            root: root.to_owned(),
            visible: Vec::new(),
            path: ["/usr/sbin", "/usr/bin"].map(ToOwned::to_owned).into(),
            variables: Vec::new(),
            has_own_network: false,
            is_of_nobody: false,
        };
        cell.show(paths::repository());
        if !paths::target().starts_with(paths::repository()) {
            cell.show(&paths::target());
        }
        Ok(cell)
    }

    /// Makes a folder of this machine visible inside, at the same path.
    pub(crate) fn show(&mut self, folder: &Path) {
        self.show_at(folder, folder);
    }

    /// Makes a folder of this machine visible inside, at another path.
    pub(crate) fn show_at(&mut self, folder: &Path, inside: &Path) {
        let (folder, inside) = (folder.to_owned(), inside.to_owned());
        self.visible.push(Visible { folder, inside, is_shielded: false });
    }

    /// Discards writes to the repository when a command ends, and lets any user write to its top
    /// folder.
    pub(crate) fn shield_repository(&mut self) {
        for visible in self.visible.iter_mut().filter(|it| it.folder == paths::repository()) {
            visible.is_shielded = true;
        }
    }

    /// Uses a separate network: loopback, and `eth0` with 10.0.0.7, which is connected to nothing.
    pub(crate) fn own_network(&mut self) -> Result<()> {
        require_programs(&[("ip", "iproute2")])?;
        self.has_own_network = true;
        Ok(())
    }

    /// Runs commands as a user without rights.
    pub(crate) fn as_nobody(&mut self) {
        self.is_of_nobody = true;
        self.set("HOME", "/tmp");
    }

    /// Adds a folder to search for programs, before those of the root.
    pub(crate) fn add_to_path(&mut self, folder: &Path) {
        self.path.insert(0, folder.display().to_string());
    }

    /// Sets an environment variable inside. The environment is empty otherwise.
    pub(crate) fn set(&mut self, name: &str, value: &str) {
        self.variables.push(format!("{name}={value}"));
    }

    /// Returns a command that runs inside, in `directory`.
    pub(crate) fn command(&self, directory: &Path, words: &[&str]) -> Command {
        let mut outer = command("unshare", ["--mount", "--propagation", "private"]);
        if self.has_own_network {
            outer.arg("--net");
        }
        outer.args(["--", "sh", "-ec", ENTER, "cell"]).arg(&self.root).arg(directory);
        outer.arg(if self.has_own_network { "own" } else { "" });
        outer.arg(if self.is_of_nobody { NOBODY } else { "" });
        outer.arg(self.visible.len().to_string());
        for Visible { folder, inside, is_shielded } in &self.visible {
            outer.arg(if *is_shielded { "layer" } else { "bind" }).arg(folder).arg(inside);
        }
        outer
            .arg(format!("PATH={}", self.path.join(":")))
            .args(["HOME=/root", "LC_ALL=C"])
            .args(&self.variables);
        outer.args(words);
        outer
    }
}

/// The address of `eth0` in a separate network.
pub(crate) const ADDRESS: &str = "10.0.0.7";

/// The user and the group.
const NOBODY: &str = "65534:65534";

/// `cell ROOT DIRECTORY NETWORK USER COUNT (KIND FOLDER INSIDE)… NAME=VALUE… WORD…`: mounts and
/// network are in separate namespaces, which end with the command.
const ENTER: &str = r#"
root=$1; directory=$2; network=$3; user=$4; count=$5
shift 5
if [ -n "$network" ]; then
    ip link set lo up
    ip link add eth0 type veth peer name wire
    ip addr add 10.0.0.7/24 dev eth0
    ip link set wire up
    ip link set eth0 up
fi
for pseudo in proc sys dev; do
    mkdir -p "$root/$pseudo"
    mount --rbind "/$pseudo" "$root/$pseudo"
done
# Each process that opens libfabric reads this list to its end, for a symbol that only vendors' kernels have. Not every kernel
# has the list.
[ ! -e "$root/proc/kallsyms" ] || mount --bind /dev/null "$root/proc/kallsyms"
mount -t tmpfs tmp "$root/tmp"
# Killed processes leave files of shared memory behind, named by their numbers, and numbers come again.
mount -t tmpfs -o mode=1777 shm "$root/dev/shm"
while [ "$count" -gt 0 ]; do
    kind=$1; folder=$2; inside=$root$3
    shift 3
    mkdir -p "$inside"
    if [ "$kind" = layer ]; then
        above=$root/tmp/.layers/$count
        mkdir -p "$above/upper" "$above/work"
        mount -t overlay -o "lowerdir=$folder,upperdir=$above/upper,workdir=$above/work" layer "$inside"
        chmod 777 "$inside"
    else
        mount --rbind "$folder" "$inside"
    fi
    count=$((count - 1))
done
exec chroot ${user:+"--userspec=$user"} "$root" /usr/bin/env -i -C "$directory" "$@"
"#;
