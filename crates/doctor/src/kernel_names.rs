//! Names as Linux has them. A pack of another host that has others is refused, because names stand in
//! findings and in commands.

use std::collections::BTreeMap;

use farreach_text::one_line;
use serde::de::Error;
use serde::{Deserialize, Deserializer};

use crate::finding::text_of;
use crate::pack::Entry;
use crate::probes::Probes;

/// The maximum length of the name of a net device, with its final zero (`IFNAMSIZ`).
const INTERFACE_MAX: usize = 16;

/// The maximum length of the name of an RDMA device, with its final zero (`IB_DEVICE_NAME_MAX`).
const DEVICE_MAX: usize = 64;

/// The maximum length of the name of a file, a rail or a chain.
const NAME_MAX: usize = 255;

/// Returns whether the kernel accepts a name for a net device (`dev_valid_name`), and it can be printed.
pub(crate) fn is_interface(name: &str) -> bool {
    name.len() < INTERFACE_MAX && is_name(name) && !name.contains(':') && !name.contains(char::is_whitespace)
}

fn is_device(name: &str) -> bool {
    name.len() < DEVICE_MAX && is_name(name) && !name.contains(char::is_whitespace)
}

/// Returns whether a name can be that of a file, and be printed.
fn is_name(name: &str) -> bool {
    !name.contains('/') && is_plain(name) && name != "." && name != ".."
}

fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.len() <= NAME_MAX && one_line(name, NAME_MAX) == name
}

/// Returns whether a path is absolute and without detours, and names devices as the kernel does.
fn is_path(path: &str) -> bool {
    let Some(rest) = path.strip_prefix('/') else { return false };
    let is_of = |folder: &str, is_it: fn(&str) -> bool| {
        path.strip_prefix(folder).and_then(|rest| rest.split('/').next()).is_none_or(is_it)
    };
    rest.split('/').all(is_name)
        && is_of("/sys/class/net/", is_interface)
        && is_of("/sys/class/infiniband/", is_device)
}

/// Deserializes the files of a pack.
pub(crate) fn files<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, Entry>, D::Error> {
    let files = BTreeMap::<String, Entry>::deserialize(from)?;
    match files.keys().find(|path| !is_path(path)) {
        Some(path) => Err(D::Error::custom(format!("Linux has no file \"{}\"", text_of(path)))),
        None => Ok(files),
    }
}

/// Deserializes the probes of a pack.
pub(crate) fn probes<'de, D: Deserializer<'de>>(from: D) -> Result<Probes, D::Error> {
    let probes = Probes::deserialize(from)?;
    match other_name(&probes) {
        Some(name) => Err(D::Error::custom(format!("Linux has no name \"{}\"", text_of(name)))),
        None => Ok(probes),
    }
}

/// Returns a name of the probes that Linux does not have.
fn other_name(probes: &Probes) -> Option<&str> {
    fn other<'a>(
        mut names: impl Iterator<Item = &'a String>,
        is_it: impl Fn(&str) -> bool,
    ) -> Option<&'a str> {
        names.find(|name| !is_it(name)).map(String::as_str)
    }
    let interfaces = probes.interfaces.get().into_iter().flatten().map(|it| &it.name);
    let verbs = probes.verbs.get().into_iter();
    let ports = verbs.clone().flat_map(|verbs| verbs.devices.values()).flat_map(|it| it.ports.keys());
    let fabric = probes.fabric.get().into_iter().flat_map(|it| &it.providers);
    let chains = probes.firewall.get().into_iter().flatten();
    other(interfaces.chain(probes.dcb.get().into_iter().flat_map(BTreeMap::keys)), is_interface)
        .or_else(|| other(verbs.flat_map(|verbs| verbs.devices.keys()), is_device))
        .or_else(|| other(probes.resources.get().into_iter().flat_map(BTreeMap::keys), is_device))
        .or_else(|| other(probes.nodes.get().into_iter().flat_map(BTreeMap::keys), is_name))
        .or_else(|| other(probes.acs.get().into_iter().flat_map(BTreeMap::keys), is_name))
        .or_else(|| other(ports, is_name))
        .or_else(|| other(probes.transfers.get().into_iter().flat_map(BTreeMap::keys), is_plain))
        .or_else(|| other(fabric.map(|(name, _)| name), is_plain))
        .or_else(|| other(chains.map(|chain| &chain.name), is_plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_the_kernel_accepts() {
        for name in ["eth0", "enp3s0f0np0", "bond0.100", "a;b", "-x"] {
            assert!(is_interface(name), "{name}");
        }
        for name in [
            "",
            ".",
            "..",
            "a b",
            "a\tb",
            "a:b",
            "a/b",
            "sixteen_letters_",
            "\x1b[2J",
            "a\u{202e}",
            "\u{200b}",
        ] {
            assert!(!is_interface(name), "{name:?}");
        }
        assert!(is_device("mlx5_bond_0") && !is_device(&"x".repeat(64)) && !is_device("mlx5 0"));
    }

    #[test]
    fn a_path_has_no_detour() {
        for path in ["/proc/self/limits", "/sys/class/net/eth0/mtu", "/sys/class/infiniband", "/dev/shm/a b"]
        {
            assert!(is_path(path), "{path}");
        }
        for path in [
            "",
            "proc",
            "/",
            "/proc/../etc/passwd",
            "/proc//x",
            "/proc/x/",
            "/proc/\n",
            "/sys/class/net/a:b/mtu",
        ] {
            assert!(!is_path(path), "{path:?}");
        }
    }
}
