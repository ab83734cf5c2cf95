//! The files that are read: `*` stands for any part of one name.

/// All of them, in the order of the checks. What ends with `/driver`, `/subsystem`, `/module` or the like is a link, and kept as one.
pub(super) const PATTERNS: &[&str] =
    &["/proc/self/limits", "/sys/class/infiniband/*/node_guid", "/sys/class/infiniband/*/ports/*/state"];
