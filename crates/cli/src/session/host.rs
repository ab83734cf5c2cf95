//! The name of this host.

use std::fs;

/// Returns the name of this host, for display.
pub(crate) fn host_name() -> String {
    fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
}
