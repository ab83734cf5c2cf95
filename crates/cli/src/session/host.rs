//! Which host this is.

use std::fs;

use rustix::process::geteuid;
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
    /// Nor do those of different users.
    user: String,
}

impl Host {
    /// This one.
    pub(crate) fn this() -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        let namespace = |name: &str| {
            fs::read_link(format!("/proc/self/ns/{name}"))
                .map(|link| link.display().to_string())
                .unwrap_or_default()
        };
        Self {
            name: read("/proc/sys/kernel/hostname"),
            boot: read("/proc/sys/kernel/random/boot_id"),
            processes: namespace("pid"),
            user: format!("{} of {}", geteuid().as_raw(), namespace("user")),
        }
    }

    /// Why processes of this host and of the server's cannot share memory; none where they can. Where it cannot be told they cannot.
    pub(crate) fn apart_from(&self, server: &Self) -> Option<&'static str> {
        match () {
            () if self.boot.is_empty() || self.boot != server.boot => Some("the server is on another host"),
            () if self.processes != server.processes => {
                Some("the server is in another container of this host")
            }
            () if self.user != server.user => {
                Some("the server is another user's, with whom no memory can be shared")
            }
            () => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_shared_within_one_host_container_and_user() {
        let here = Host::this();
        assert_eq!(here.apart_from(&Host { name: "another name".to_owned(), ..here.clone() }), None);
        for (server, why) in [
            (Host { boot: "another".to_owned(), ..here.clone() }, "host"),
            (Host { processes: "other".to_owned(), ..here.clone() }, "container"),
            (Host { user: "7".to_owned(), ..here.clone() }, "user"),
        ] {
            assert!(here.apart_from(&server).is_some_and(|told| told.contains(why)), "{server:?}");
        }
        let unknown = Host { boot: String::new(), ..here };
        assert!(unknown.apart_from(&unknown).is_some());
    }
}
