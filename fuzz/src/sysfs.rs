//! What the kernel reports about devices. The first byte of an input says what the rest is.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use farreach_doctor::collect::fuzz::{config_space, netlink};
use farreach_verbs::system::{Kernel, KernelSupport, NodeAccess, Source, Unread};

// The file depends on nothing else of its crate.
#[path = "../../crates/verbs/src/sysfs.rs"]
mod files;

const DEVICES: &str = "/sys/class/infiniband/";

pub(crate) fn run(input: &[u8]) {
    let Some((kind, bytes)) = input.split_first() else { return };
    match kind {
        b'n' => drop(netlink(bytes)),
        b'p' => config_space(bytes),
        b'f' => on_disk(&Record::new(bytes)),
        _ => kernel(&Record::new(bytes)),
    }
}

/// The files of a host: `PATH=TEXT` and `PATH>TARGET`, separated by zero bytes.
struct Record {
    files: BTreeMap<String, String>,
    links: BTreeMap<String, String>,
}

impl Record {
    fn new(bytes: &[u8]) -> Self {
        let (mut files, mut links) = (BTreeMap::new(), BTreeMap::new());
        for entry in bytes.split(|byte| *byte == 0).map(String::from_utf8_lossy) {
            if let Some((path, text)) = entry.split_once('=') {
                files.insert(path.to_owned(), text.trim().to_owned());
            } else if let Some((path, target)) = entry.split_once('>') {
                links.insert(path.to_owned(), target.to_owned());
            }
        }
        Self { files, links }
    }

    fn paths(&self) -> impl Iterator<Item = &String> {
        self.files.keys().chain(self.links.keys())
    }
}

impl Source for Record {
    fn text(&self, path: &str) -> Result<String, Unread> {
        self.files.get(path).cloned().ok_or(Unread::Absent)
    }

    fn link_name(&self, path: &str) -> Result<String, Unread> {
        let target = self.links.get(path).ok_or(Unread::Absent)?;
        Ok(target.rsplit('/').next().unwrap_or_default().to_owned())
    }

    fn names(&self, folder: &str) -> Result<Vec<String>, Unread> {
        let below = |path: &'_ String| {
            Some(path.strip_prefix(folder)?.strip_prefix('/')?.split('/').next()?.to_owned())
        };
        let names: BTreeSet<String> = self.paths().filter_map(below).collect();
        if names.is_empty() { Err(Unread::Absent) } else { Ok(names.into_iter().collect()) }
    }

    fn has_rdma_netlink(&self) -> Option<bool> {
        self.files.get("netlink").map(|text| text == "1")
    }

    fn open(&self, node: &str) -> NodeAccess {
        if self.files.contains_key(node) { NodeAccess::Granted } else { NodeAccess::NoNode(node.into()) }
    }
}

fn kernel(record: &Record) {
    let kernel = Kernel::read(record);
    let names = record.names(DEVICES.trim_end_matches('/')).unwrap_or_default();
    let found: Vec<&str> = kernel.devices.iter().map(|device| device.name.as_str()).collect();
    assert_eq!(found, names);
    assert!(found.is_empty() || kernel.support == KernelSupport::Present);
    for device in &kernel.devices {
        // Only a node that names the device is opened.
        if device.access == NodeAccess::Granted {
            let node = device.node.as_ref().expect("a node was opened");
            let named = record.text(&format!("/sys/class/infiniband_verbs/{node}/ibdev"));
            assert_eq!(named.as_deref(), Ok(device.name.as_str()));
        }
    }
}

/// Writes the files of devices below a temporary folder, and reads them.
fn on_disk(record: &Record) {
    const FILES_MAX: usize = 12;
    let root = Scratch::new();
    let mut devices = BTreeSet::new();
    let is_inside =
        |path: &str| Path::new(path).components().all(|part| matches!(part, Component::Normal(_)));
    for (path, text) in record.files.iter().chain(&record.links).take(FILES_MAX) {
        let Some(path) = path.strip_prefix(DEVICES).filter(|path| is_inside(path) && path.len() < 200) else {
            continue;
        };
        let Some((device, _)) = path.split_once('/') else { continue };
        devices.insert(device.to_owned());
        let file = root.0.join(path);
        // A name may be that of a file and of a folder.
        let Some(folder) = file.parent().filter(|folder| fs::create_dir_all(folder).is_ok()) else {
            continue;
        };
        if record.files.contains_key(&format!("{DEVICES}{path}")) {
            let _ = fs::write(&file, text);
        } else if text.len() < 200 && is_inside(text) {
            let target = folder.join(text);
            let _ = fs::create_dir_all(&target);
            let _ = std::os::unix::fs::symlink(&target, &file);
        }
    }
    for device in devices {
        let folder = root.0.join(&device);
        let is_soft = folder.join("parent").is_file();
        let driver = files::driver(&folder);
        assert!(driver.as_deref() == Some("rdma_rxe") || !is_soft, "{device}: {driver:?}");
        if let Some(address) = files::pci_address(&folder) {
            assert!(!is_soft && address.len() >= "0000:3b:00.0".len() && address.is_ascii());
        }
        let node = files::numa_node(&folder);
        assert!(node.is_none() || !is_soft);
        for index in 0..2 {
            let name = files::gid_net_device(&folder, 1, index);
            assert!(name.is_none_or(|name| !name.trim().is_empty() && name.trim() == name));
        }
    }
}

/// A temporary folder of this thread.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let thread = format!("{:?}", std::thread::current().id());
        let digits: String = thread.chars().filter(char::is_ascii_digit).collect();
        let path = parent.join(format!("farreach-fuzz-{}-{digits}", std::process::id()));
        fs::create_dir_all(&path).expect("a temporary folder");
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // It is harmless if it stays.
        let _ = fs::remove_dir_all(&self.0);
    }
}
