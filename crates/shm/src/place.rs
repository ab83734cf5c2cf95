//! The place of a process: which other processes it can have links with.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;

use rustix::process::geteuid;

use crate::obstacle::Obstacle;

/// Where a process runs. Processes have links only if they run in the same place.
///
/// ```
/// use farreach_shm::Place;
///
/// let here = Place::here()?;
/// assert_eq!(here.apart(&Place::here()?), None);
/// # Ok::<(), farreach_shm::Obstacle>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Place {
    /// A random number that the kernel of the host has chosen at its start.
    pub boot_id: String,
    /// The number of the user, in the user namespace of the process.
    pub user: u32,
    /// The number of the network namespace. Names of abstract sockets belong to one.
    pub network_namespace: u64,
}

/// What separates two processes. `Display` is the cause of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Apart {
    /// They run on different hosts, or in different virtual machines.
    #[error("the two processes run on different hosts")]
    Host,
    /// They belong to different users.
    #[error("this process belongs to user {ours}, and the other one to user {theirs}")]
    User {
        /// The user of this process.
        ours: u32,
        /// The user of the other process.
        theirs: u32,
    },
    /// They are in different network namespaces.
    #[error("the two processes are in different network namespaces: {ours} and {theirs}")]
    NetworkNamespace {
        /// The number of this process's namespace.
        ours: u64,
        /// The number of the other process's namespace.
        theirs: u64,
    },
}

impl Apart {
    /// Returns an instruction that brings the processes together.
    pub fn fix(&self) -> &'static str {
        match self {
            Self::Host => "use another rail between hosts",
            Self::User { .. } => "run both processes as one user",
            Self::NetworkNamespace { .. } => "run both processes in one network namespace",
        }
    }
}

impl Place {
    /// Reads the place of this process.
    pub fn here() -> Result<Self, Obstacle> {
        const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
        const NAMESPACE: &str = "/proc/self/ns/net";
        let at = |call| move |error: io::Error| Obstacle { call, error };
        let boot_id = fs::read_to_string(BOOT_ID).map_err(at(BOOT_ID))?.trim().to_owned();
        let network_namespace = fs::metadata(NAMESPACE).map_err(at(NAMESPACE))?.ino();
        Ok(Self::new(boot_id, geteuid().as_raw(), network_namespace))
    }

    /// Creates the place that another process has announced.
    pub fn new(boot_id: String, user: u32, network_namespace: u64) -> Self {
        Self { boot_id, user, network_namespace }
    }

    /// Returns what separates a process here from one there, if something does.
    pub fn apart(&self, other: &Self) -> Option<Apart> {
        if self.boot_id != other.boot_id {
            return Some(Apart::Host);
        }
        if self.user != other.user {
            return Some(Apart::User { ours: self.user, theirs: other.user });
        }
        let (ours, theirs) = (self.network_namespace, other.network_namespace);
        (ours != theirs).then_some(Apart::NetworkNamespace { ours, theirs })
    }
}

#[cfg(all(test, not(miri), not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_first_difference_is_told() {
        let here = Place::here().unwrap();
        let other = |change: fn(&mut Place)| {
            let mut there = here.clone();
            change(&mut there);
            here.apart(&there)
        };
        assert_eq!(other(|_| {}), None);
        assert_eq!(other(|there| there.boot_id.push('0')), Some(Apart::Host));
        assert!(matches!(other(|there| there.user ^= 1), Some(Apart::User { .. })));
        let namespace = other(|there| there.network_namespace ^= 1);
        assert!(matches!(namespace, Some(Apart::NetworkNamespace { .. })));
        // Numbers of users mean nothing on another host.
        let far = other(|there| (there.boot_id, there.user) = (String::new(), !there.user));
        assert_eq!(far, Some(Apart::Host));
    }
}
