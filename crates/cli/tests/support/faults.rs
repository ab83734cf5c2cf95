//! Faults made for real, and taken back when the test ends, also when it fails: other tests follow in the same guest.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::host::Host;
use super::run::{Ended, FARREACH};
use super::server::SECRET;

/// The devices' nodes, closed to everyone but root.
#[derive(Debug)]
pub(crate) struct ClosedNodes {
    /// Each with the mode that it had.
    nodes: Vec<(PathBuf, u32)>,
    /// The command where anyone can run it: a build folder may be closed to others.
    copy: PathBuf,
}

impl ClosedNodes {
    pub(crate) fn new() -> Self {
        let directory = Path::new("/tmp/farreach-of-nobody");
        fs::create_dir_all(directory).expect("/tmp is writable");
        fs::set_permissions(directory, Permissions::from_mode(0o755)).expect("a folder of our own");
        let mut closed = Self { nodes: Vec::new(), copy: directory.join("farreach") };
        fs::copy(FARREACH, &closed.copy).expect("a copy of the command");
        fs::set_permissions(&closed.copy, Permissions::from_mode(0o755)).expect("a file of our own");
        for entry in fs::read_dir("/dev/infiniband").expect("a guest with RDMA") {
            let entry = entry.expect("an entry of /dev/infiniband");
            if entry.file_name().to_string_lossy().starts_with("uverbs") {
                let mode = entry.metadata().expect("a node").permissions().mode();
                closed.nodes.push((entry.path(), mode));
                fs::set_permissions(entry.path(), Permissions::from_mode(0o600)).expect("root may");
            }
        }
        assert!(!closed.nodes.is_empty(), "there is a device node");
        closed
    }

    /// Runs the command as the user who owns nothing.
    pub(crate) fn as_nobody(&self, words: &[&str]) -> Ended {
        let copy = self.copy.to_str().expect("a path of our own");
        let nobody =
            ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "env", SECRET, copy];
        Host::HERE.run(&[&nobody, words].concat())
    }
}

impl Drop for ClosedNodes {
    fn drop(&mut self) {
        // A failure here shows in the next test, and a second panic would hide the first.
        for (node, mode) in &self.nodes {
            let _ = fs::set_permissions(node, Permissions::from_mode(*mode));
        }
        if let Some(directory) = self.copy.parent() {
            let _ = fs::remove_dir_all(directory);
        }
    }
}

/// This machine's Soft-RoCE devices, deleted.
#[derive(Debug)]
pub(crate) struct DeletedLinks {
    links: Vec<Link>,
}

#[derive(Debug)]
struct Link {
    /// The host that has the net device.
    host: Host,
    name: String,
    net_device: String,
    gid_count: usize,
}

/// Addresses come to a new device one after the other, within milliseconds.
const GIDS_LIMIT: Duration = Duration::from_secs(10);

impl DeletedLinks {
    pub(crate) fn new() -> Self {
        let links: Vec<_> = Host::all().iter().flat_map(|host| links(*host)).collect();
        // The second of two machines keeps its own device: it is not here.
        let links =
            links.into_iter().filter(|link| Path::new("/sys/class/infiniband").join(&link.name).exists());
        let deleted = Self { links: links.collect() };
        for link in &deleted.links {
            link.host.output(&["rdma", "link", "delete", &link.name]);
        }
        deleted
    }

    /// Makes the devices again and waits until they have their addresses.
    pub(crate) fn restore(mut self) {
        for link in std::mem::take(&mut self.links) {
            link.add();
            let end = Instant::now() + GIDS_LIMIT;
            while link.gid_count() != link.gid_count {
                assert!(Instant::now() < end, "the GIDs of {} do not come back", link.name);
                thread::sleep(Duration::from_millis(50));
            }
        }
    }
}

impl Drop for DeletedLinks {
    fn drop(&mut self) {
        // Only after a failure: what remains to be done is done without a word.
        self.links.iter().for_each(|link| drop(link.add()));
    }
}

fn links(host: Host) -> Vec<Link> {
    let text = host.output(&["rdma", "-j", "link"]);
    let links: Vec<Value> = serde_json::from_str(&text).expect("rdma prints JSON");
    let link = |link: &Value| {
        // One without a net device is of another namespace, whose host lists it too.
        let net_device = link.get("netdev")?.as_str()?.to_owned();
        let mut link = Link { host, name: link["ifname"].as_str()?.to_owned(), net_device, gid_count: 0 };
        link.gid_count = link.gid_count();
        Some(link)
    };
    links.iter().filter_map(link).collect()
}

impl Link {
    fn add(&self) -> Ended {
        self.host.run(&["rdma", "link", "add", &self.name, "type", "rxe", "netdev", &self.net_device])
    }

    fn gid_count(&self) -> usize {
        let count = format!(
            "grep -shv ^0000:0000:0000:0000:0000:0000:0000:0000 /sys/class/infiniband/{}/ports/1/gids/* | wc -l",
            self.name
        );
        self.host.output(&["sh", "-c", &count]).trim().parse().expect("a count")
    }
}
