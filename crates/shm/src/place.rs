//! The place of a process: which other processes it can have links with.

use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::directory::Directory;
use crate::host::{boot_id, digest, host_digest};
use crate::obstacle::Obstacle;
use crate::user::user_outside;
use crate::wire::MAGIC;

/// Where a process runs. Processes have links only if they run in the same place.
///
/// It is not for strangers: a process tells its [`digests`](Self::digests) to others.
///
/// ```
/// use farreach_shm::Place;
///
/// let here = Place::here()?;
/// assert_eq!(here.apart(&Place::here()?.digests()), None);
/// # Ok::<(), farreach_shm::Obstacle>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Place {
    /// A random number that the kernel of the host has chosen at its start.
    pub boot_id: String,
    /// The number of the user, outside of the user namespace of the process if that has a map. In
    /// namespaces within namespaces it may differ for one user; such processes have no links.
    pub user: u32,
    /// The number of the network namespace. Names of abstract sockets belong to one.
    pub network_namespace: u64,
    /// The numbers of the file system and the directory in which its sockets are, if it has one. The
    /// network namespace does not matter then.
    pub directory: Option<(u64, u64)>,
}

/// Digests of a [`Place`]. A process that runs elsewhere learns from them that it does, and nothing
/// else: neither the boot id, nor the user, nor the network namespace.
///
/// Each is 128 bits of a SHA-256, in hexadecimal. All of them include the boot id, which has 122
/// random bits and does not leave the host, so that the other, small numbers cannot be found by trying
/// them out. A process of the same host knows the boot id, and may find them.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlaceDigests {
    /// The same for all processes of a host.
    pub host: String,
    /// The same for all processes of a user on a host.
    pub user: String,
    /// The same for all processes that can have links with each other.
    pub place: String,
    /// Whether their sockets are in a directory. It is told as it is.
    pub has_directory: bool,
}

impl PlaceDigests {
    /// Creates the digests that another process has told.
    pub fn new(host: String, user: String, place: String, has_directory: bool) -> Self {
        Self { host, user, place, has_directory }
    }
}

/// What separates two processes. `Display` is the cause of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Apart {
    /// They run on different hosts, or in different virtual machines.
    #[error("the two processes run on different hosts")]
    Host,
    /// They belong to different users.
    #[error("this process belongs to user {ours}, and the other one to another user")]
    User {
        /// The user of this process.
        ours: u32,
    },
    /// They are in different network namespaces.
    #[error("the two processes are in different network namespaces")]
    NetworkNamespace,
    /// Their sockets are in different directories, or those of one of them are in none.
    #[error("the two processes do not have their sockets in the same directory")]
    Directory,
}

impl Apart {
    /// Returns an instruction that brings the processes together.
    pub fn fix(&self) -> &'static str {
        match self {
            Self::Host => "use another rail between hosts",
            Self::User { .. } => "run both processes as one user",
            Self::NetworkNamespace => {
                "run both processes in one network namespace, or name a directory that both see"
            }
            Self::Directory => "name the same directory to both processes, or to none of them",
        }
    }
}

impl Place {
    /// Reads the place of this process, whose sockets are abstract.
    pub fn here() -> Result<Self, Obstacle> {
        const NAMESPACE: &str = "/proc/self/ns/net";
        let network_namespace =
            fs::metadata(NAMESPACE).map_err(|error| Obstacle { call: NAMESPACE, error })?.ino();
        Ok(Self { boot_id: boot_id()?, user: user_outside(), network_namespace, directory: None })
    }

    /// Reads the place of this process, whose sockets are in this directory.
    pub fn in_directory(directory: &Directory) -> Result<Self, Obstacle> {
        Ok(Self { directory: Some(directory.id()), ..Self::here()? })
    }

    /// Returns what others may know of it.
    pub fn digests(&self) -> PlaceDigests {
        let (boot_id, user) = (self.boot_id.as_bytes(), self.user.to_le_bytes());
        // Links of releases with other packets are of another kind: they do not meet.
        let place = match self.directory {
            None => {
                digest(&[b"network namespace", MAGIC, boot_id, &user, &self.network_namespace.to_le_bytes()])
            }
            Some((device, inode)) => {
                digest(&[b"directory", MAGIC, boot_id, &user, &device.to_le_bytes(), &inode.to_le_bytes()])
            }
        };
        PlaceDigests {
            host: host_digest(&self.boot_id),
            user: digest(&[b"user", boot_id, &user]),
            place,
            has_directory: self.directory.is_some(),
        }
    }

    /// Returns what separates a process here from one there, if something does.
    pub fn apart(&self, there: &PlaceDigests) -> Option<Apart> {
        let here = self.digests();
        if here.host != there.host {
            return Some(Apart::Host);
        }
        if here.user != there.user {
            return Some(Apart::User { ours: self.user });
        }
        let apart = match here.has_directory || there.has_directory {
            true => Apart::Directory,
            false => Apart::NetworkNamespace,
        };
        (here.place != there.place).then_some(apart)
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
            here.apart(&there.digests())
        };
        assert_eq!(other(|_| {}), None);
        assert_eq!(other(|there| there.boot_id.push('0')), Some(Apart::Host));
        assert!(matches!(other(|there| there.user ^= 1), Some(Apart::User { .. })));
        assert_eq!(other(|there| there.network_namespace ^= 1), Some(Apart::NetworkNamespace));
        assert_eq!(other(|there| there.directory = Some((1, 2))), Some(Apart::Directory));
        // Numbers of users mean nothing on another host.
        let far = other(|there| (there.boot_id, there.user) = (String::new(), !there.user));
        assert_eq!(far, Some(Apart::Host));
    }

    #[test]
    fn digests_are_stable_and_tell_nothing() {
        let place = Place {
            boot_id: "01234567-89ab-cdef-0123-456789abcdef".to_owned(),
            user: 1000,
            network_namespace: 4_026_531_840,
            directory: None,
        };
        let PlaceDigests { host, user, place: last, .. } = place.digests();
        // Computed with another implementation. Other values here would keep two releases apart.
        assert_eq!([&*host, &*user, &*last], DIGESTS);
        let all = [host, user, last];
        for digest in &all {
            assert!(digest.len() == 32 && digest.bytes().all(|byte| byte.is_ascii_hexdigit()), "{digest}");
            // Another host with the same numbers has other digests.
            let boot_id = "11234567-89ab-cdef-0123-456789abcdef".to_owned();
            let other = Place { boot_id, ..place.clone() }.digests();
            assert!(![other.host, other.user, other.place].contains(digest));
        }
    }

    #[test]
    fn a_directory_is_the_same_wherever_it_is_mounted() {
        let volumes = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let [one, other] = volumes.each_ref().map(|volume| Directory::open(volume.path()).unwrap());
        let elsewhere = volumes[1].path().join("link");
        std::os::unix::fs::symlink(volumes[0].path(), &elsewhere).unwrap();
        let one = Place::in_directory(&one).unwrap();
        let same = Directory::open(&elsewhere).unwrap();
        // Another network namespace changes nothing.
        let same = Place { network_namespace: 1, ..Place::in_directory(&same).unwrap() };
        assert_eq!(one.apart(&same.digests()), None);
        assert_eq!(one.apart(&Place::in_directory(&other).unwrap().digests()), Some(Apart::Directory));
        assert_eq!(one.apart(&Place::here().unwrap().digests()), Some(Apart::Directory));
    }

    const DIGESTS: [&str; 3] = [
        "6326d50543c031f4cf0958e8e6e17843",
        "eaa00763c0ff2b17c0e4c50089d3d4df",
        "4607a3706dc32b0311f22a37f0d567d5",
    ];
}
