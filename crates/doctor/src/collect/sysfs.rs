//! Lists folders of the kernel that are not read by a pattern.

use std::fs;
use std::path::{Path, PathBuf};

/// Returns the folders of the kernel's RDMA devices.
pub(super) fn rdma_devices() -> Vec<PathBuf> {
    const FOLDER: &str = "/sys/class/infiniband";
    names_in(FOLDER).into_iter().map(|name| Path::new(FOLDER).join(name)).collect()
}

/// Returns the names in a folder, sorted. The list is empty if there is no such folder.
pub(super) fn names_in(folder: impl AsRef<Path>) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort_unstable();
    names
}
