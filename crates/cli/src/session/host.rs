//! Which host this is.

use std::fs;

use serde::{Deserialize, Serialize};

/// A host, as it tells others of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Host {
    /// For people.
    pub(crate) name: String,
    /// The same for all processes of one running kernel, and for no other.
    boot: String,
    /// Processes that cannot see each other do not share memory either.
    processes: String,
}

impl Host {
    /// This one.
    pub(crate) fn this() -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        let processes = fs::read_link("/proc/self/ns/pid").map(|link| link.display().to_string());
        Self {
            name: read("/proc/sys/kernel/hostname"),
            boot: read("/proc/sys/kernel/random/boot_id"),
            processes: processes.unwrap_or_default(),
        }
    }

    /// Whether processes of both may share memory. Where that cannot be told they do not.
    pub(crate) fn shares_memory_with(&self, other: &Self) -> bool {
        !self.boot.is_empty() && self.boot == other.boot && self.processes == other.processes
    }
}
