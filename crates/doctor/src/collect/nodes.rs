//! Opens the device nodes, as programs do.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io;
use std::path::Path;

use super::errno::errno_words;
use super::sysfs::names_in;
use crate::probes::Reading;

const FOLDER: &str = "/dev/infiniband";

/// Opens and closes each node that the checks need, and returns the errors.
pub(super) fn read() -> Reading<BTreeMap<String, Option<String>>> {
    read_in(Path::new(FOLDER))
}

fn read_in(folder: &Path) -> Reading<BTreeMap<String, Option<String>>> {
    match fs::read_dir(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Reading::Unread(format!("{}: {}", folder.display(), words(&error)));
        }
        _ => {}
    }
    let all = names_in(folder).into_iter().filter(|name| is_asked(name)).map(|name| {
        let opened = OpenOptions::new().read(true).write(true).open(folder.join(&name));
        (name, opened.err().map(|error| words(&error)))
    });
    Reading::Read(all.collect())
}

/// Returns whether a node may be opened.
///
/// The others are not touched: opening an `issm` node announces a subnet manager to the fabric, and
/// blocks while another one is open.
fn is_asked(name: &str) -> bool {
    name.starts_with("uverbs") || name == "rdma_cm"
}

/// Includes the name of the error: a cgroup causes EPERM, and permissions cause EACCES, with
/// similar messages.
fn words(error: &io::Error) -> String {
    error.raw_os_error().map_or_else(|| error.to_string(), errno_words)
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn two_kinds_of_refusal_differ() {
        let of = |code| words(&io::Error::from_raw_os_error(code));
        assert_eq!(of(13), "Permission denied (EACCES)");
        assert_eq!(of(1), "Operation not permitted (EPERM)");
    }

    #[test]
    fn nodes_of_the_fabrics_management_are_not_opened() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["uverbs0", "rdma_cm", "umad0"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        fs::create_dir(folder.path().join("uverbs1")).unwrap();
        // Opening a FIFO blocks until its other end is opened, so this reports whether the node is
        // opened.
        let issm = folder.path().join("issm0");
        assert!(Command::new("mkfifo").arg(&issm).status().unwrap().success());
        let (sender, opened) = mpsc::channel();
        thread::spawn(move || sender.send(fs::File::open(issm)));

        let found = read_in(folder.path());
        let Reading::Read(found) = found else { panic!("{found:?}") };
        let names: Vec<_> = found.iter().map(|(name, error)| (name.as_str(), error.is_none())).collect();
        assert_eq!(names, [("rdma_cm", true), ("uverbs0", true), ("uverbs1", false)]);
        assert!(opened.recv_timeout(Duration::from_millis(200)).is_err(), "somebody has opened issm0");
    }

    #[test]
    fn a_folder_that_is_not_there_has_no_nodes_and_one_that_cannot_be_read_is_told() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(read_in(&folder.path().join("none")), Reading::Read(BTreeMap::new()));
        fs::write(folder.path().join("file"), "").unwrap();
        let found = read_in(&folder.path().join("file"));
        assert!(matches!(&found, Reading::Unread(why) if why.contains("ENOTDIR")), "{found:?}");
    }
}
