//! Folders of the kernel's, where they are looked through and not read by a pattern.

use std::fs;
use std::path::{Path, PathBuf};

/// The folders of the RDMA devices that the kernel has.
pub(super) fn rdma_devices() -> Vec<PathBuf> {
    const FOLDER: &str = "/sys/class/infiniband";
    names_in(FOLDER).into_iter().map(|name| Path::new(FOLDER).join(name)).collect()
}

/// The names in a folder, in order; none where there is no folder.
pub(super) fn names_in(folder: impl AsRef<Path>) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort_unstable();
    names
}
