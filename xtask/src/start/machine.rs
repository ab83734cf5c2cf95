//! The machines on which the commands of README run.

use std::fmt;
use std::path::Path;

use anyhow::{Result, ensure};

use super::session::Session;
use crate::cache::Entry;
use crate::cell::Cell;
use crate::cleanroom;
use crate::debian::Root;
use crate::paths;
use crate::vm::{GuestSpec, Task, guest_on};

/// One of the two machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Machine {
    Laptop,
    Guest,
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Laptop => "a Debian 12 without RDMA",
            Self::Guest => "a guest whose kernel has Soft-RoCE",
        })
    }
}

/// The packages of a guest before anything is installed: those that boot it, and the tools that
/// every Debian has.
const GUEST: &[&str] = &[
    "bash",
    "busybox-static",
    "coreutils",
    "dash",
    "grep",
    "iproute2",
    "kmod",
    "mount",
    "sed",
    "util-linux",
];

/// The time limit of all commands of one session, in seconds. The first may be a build of
/// everything.
const LIMIT_S: &str = "1800";

/// The path of the session's folder inside.
const FOLDER: &str = "/mnt";

impl Machine {
    /// Runs the session, with these packages installed.
    pub(super) fn run(self, session: &Session<'_>, installed: &[String]) -> Result<()> {
        match self {
            Self::Laptop => laptop(session, installed),
            Self::Guest => guest(session, installed),
        }
    }
}

fn laptop(session: &Session<'_>, installed: &[String]) -> Result<()> {
    let root =
        if installed.is_empty() { cleanroom::BUILDER.get()? } else { root(cleanroom::BUILDER, installed)? };
    let mut cell = Cell::new(&root.path)?;
    cell.shield_repository();
    cleanroom::equip(&mut cell)?;
    cell.show_at(&session.folder, Path::new(FOLDER));
    cell.own_network()?;
    // A build writes to the build folder, which belongs to the user that runs this task. Other
    // commands need no rights.
    if !session.builds() {
        cell.as_nobody();
    }
    let script = format!("{FOLDER}/follow.sh");
    let status = cell.command(paths::repository(), &["timeout", LIMIT_S, "sh", &script, FOLDER]).status()?;
    ensure!(status.success(), "the commands of README ended with {status}");
    Ok(())
}

fn guest(session: &Session<'_>, installed: &[String]) -> Result<()> {
    let root = root(Root { packages: GUEST, ..cleanroom::BUILDER }, installed)?;
    let words = ["--kernel", "debian12", "--topology", "none", "--limit", "300"];
    let script = format!(
        "set -e
        PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin
        mount --bind '{session}' {FOLDER}
        mkdir -p '{repository}/target'
        mount --bind '{built}' '{repository}/target'
        ip link add eth0 type veth peer name wire
        ip addr add 10.0.0.7/24 dev eth0
        ip link set wire up
        ip link set eth0 up
        exec sh {FOLDER}/follow.sh {FOLDER}",
        session = session.folder.display(),
        repository = paths::repository().display(),
        built = cleanroom::target().display(),
    );
    let task = Task::Command(vec!["sh".into(), "-c".into(), script]);
    let code = guest_on(&root, &GuestSpec::from_words(&words), task)?;
    ensure!(code == 0, "the commands of README ended with exit code {code} in a guest");
    Ok(())
}

/// Returns a root with additional packages.
fn root(base: Root<'_>, more: &[String]) -> Result<Entry> {
    let more = more.iter().map(String::as_str);
    let packages: Vec<&str> = base.packages.iter().copied().chain(more).collect();
    // One of Debian's alternatives, which an installation would set up: libfabric 1.17 does not
    // load without it.
    let psm =
        ("usr/lib/x86_64-linux-gnu/libpsm_infinipath.so.1", "/usr/lib/libpsm1/libpsm_infinipath.so.1.16");
    let links: Vec<_> = base.links.iter().copied().chain([psm]).collect();
    let minimum = ("libc6", "2.36");
    Root { name: "readme-debian12", packages: &packages, links: &links, minimum, ..base }.get()
}
