//! What was read of a host: everything that the checks look at, and nothing else, so that they come to the same verdict on the host and far from it.
//!
//! A field is only ever added; one that changes its meaning or goes away raises [`SCHEMA_VERSION`]. The schema is docs/schema/doctor-pack.json.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::probes::Probes;

/// The version of this shape.
pub(crate) const SCHEMA_VERSION: u32 = 1;

/// What was read of a host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "DoctorPack"))]
pub(crate) struct Pack {
    pub(crate) schema_version: u32,
    /// The version of the command that has read it.
    pub(crate) farreach: String,
    pub(crate) host: String,
    /// When, in seconds since 1970.
    pub(crate) recorded_unix_seconds: u64,
    /// Where it was written by a person instead of read from a host: from what.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) constructed: Option<String>,
    /// The patterns of all that was looked for: what one of them covers and is not in `files` was not there.
    pub(crate) looked_for: Vec<String>,
    pub(crate) files: BTreeMap<String, Entry>,
    /// What no file tells.
    #[serde(default)]
    pub(crate) probes: Probes,
}

/// A file as it was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(untagged)]
pub(crate) enum Entry {
    /// Its text.
    Text(String),
    /// Where it leads.
    Link { link: String },
    /// Why it could not be read.
    Error { error: String },
}

/// Why something is not known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Missing {
    /// It was not there.
    Absent,
    /// It was there, and not to be read, or made no sense.
    Unreadable(String),
    /// Nobody looked: an older version has made the pack.
    NotRecorded,
}

impl Missing {
    /// Why, for a person: `path` is what was to be read.
    pub(crate) fn reason(&self, path: &str) -> String {
        match self {
            Self::Absent => format!("{path} is not there"),
            Self::Unreadable(why) => format!("{path}: {why}"),
            Self::NotRecorded => format!("{path} is not in this pack: an older farreach has made it"),
        }
    }
}

impl Pack {
    /// The text of a file, without the blanks around it.
    pub(crate) fn text(&self, path: &str) -> Result<&str, Missing> {
        match self.files.get(path) {
            Some(Entry::Text(text)) => Ok(text.trim()),
            Some(Entry::Link { .. }) => Err(Missing::Unreadable("a link, and no file".to_owned())),
            Some(Entry::Error { error }) => Err(Missing::Unreadable(error.clone())),
            None => Err(self.why_not(path)),
        }
    }

    /// The number in a file.
    pub(crate) fn number(&self, path: &str) -> Result<u64, Missing> {
        let text = self.text(path)?;
        let number = match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => text.parse(),
        };
        number.map_err(|_| Missing::Unreadable(format!("\"{text}\" is no number")))
    }

    /// The last part of where a link leads: of a device's `driver`, the driver's name.
    pub(crate) fn link_name(&self, path: &str) -> Result<&str, Missing> {
        match self.files.get(path) {
            Some(Entry::Link { link }) => Ok(link.rsplit('/').next().unwrap_or(link)),
            Some(Entry::Text(_)) => Err(Missing::Unreadable("a file, and no link".to_owned())),
            Some(Entry::Error { error }) => Err(Missing::Unreadable(error.clone())),
            None => Err(self.why_not(path)),
        }
    }

    /// The names in a folder, in order; those below which nothing was read are not among them.
    pub(crate) fn names(&self, folder: &str) -> Vec<&str> {
        let prefix = format!("{folder}/");
        let mut names: Vec<&str> = self
            .files
            .range(prefix.clone()..)
            .map_while(|(path, _)| path.strip_prefix(&prefix))
            .filter_map(|rest| rest.split('/').next())
            .collect();
        names.dedup();
        names
    }

    /// The RDMA devices that the kernel has.
    pub(crate) fn devices(&self) -> Vec<&str> {
        self.names("/sys/class/infiniband")
    }

    /// The ports of all devices.
    pub(crate) fn ports(&self) -> Vec<Port<'_>> {
        let of = |device| {
            let ports = self.names(&format!("/sys/class/infiniband/{device}/ports"));
            ports.into_iter().map(move |number| Port { device, number })
        };
        self.devices().into_iter().flat_map(of).collect()
    }

    fn why_not(&self, path: &str) -> Missing {
        let is_covered = self.looked_for.iter().any(|pattern| covers(pattern, path));
        if is_covered { Missing::Absent } else { Missing::NotRecorded }
    }
}

/// One port of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Port<'a> {
    pub(crate) device: &'a str,
    pub(crate) number: &'a str,
}

impl Port<'_> {
    /// `mlx5_0 port 1`
    pub(crate) fn words(&self) -> String {
        format!("{} port {}", self.device, self.number)
    }

    /// A file of the port's.
    pub(crate) fn path(&self, file: &str) -> String {
        format!("/sys/class/infiniband/{}/ports/{}/{file}", self.device, self.number)
    }
}

/// Whether this pattern was looked for in this place. A `*` stands for any part of one name; `/**` is everything.
fn covers(pattern: &str, path: &str) -> bool {
    if pattern == "/**" {
        return true;
    }
    let (mut pattern, mut path) = (pattern.split('/'), path.split('/'));
    loop {
        match (pattern.next(), path.next()) {
            (None, None) => return true,
            (Some(pattern), Some(name)) if name_matches(pattern, name) => {}
            // Below what was looked for there is nothing that was not.
            _ => return false,
        }
    }
}

/// Whether a name is of this pattern, which has one `*` at most.
pub(crate) fn name_matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((begin, end)) => {
            name.len() >= begin.len() + end.len() && name.starts_with(begin) && name.ends_with(end)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pack() -> Pack {
        let files = [
            ("/sys/class/infiniband/rxe0/ports/1/state", Entry::Text("4: ACTIVE\n".to_owned())),
            ("/sys/class/infiniband/rxe0/device/driver", Entry::Link { link: "../../rxe".to_owned() }),
            ("/sys/class/infiniband/rxe1/node_guid", Entry::Error { error: "no".to_owned() }),
            ("/sys/class/infiniband_verbs/abi_version", Entry::Text("6\n".to_owned())),
        ];
        Pack {
            schema_version: SCHEMA_VERSION,
            farreach: "0".to_owned(),
            host: "h".to_owned(),
            recorded_unix_seconds: 0,
            constructed: None,
            looked_for: vec!["/sys/class/infiniband/*/ports/*/state".to_owned()],
            files: files.map(|(path, entry)| (path.to_owned(), entry)).into(),
            probes: Probes::default(),
        }
    }

    #[test]
    fn names_are_those_of_one_folder() {
        let pack = pack();
        assert_eq!(pack.devices(), ["rxe0", "rxe1"]);
        assert_eq!(pack.ports(), [Port { device: "rxe0", number: "1" }]);
        assert_eq!(pack.names("/sys/class"), ["infiniband", "infiniband_verbs"]);
        assert!(pack.names("/sys/cla").is_empty());
    }

    #[test]
    fn what_was_not_there_is_told_from_what_nobody_looked_for() {
        let pack = pack();
        assert_eq!(pack.text("/sys/class/infiniband/rxe0/ports/1/state"), Ok("4: ACTIVE"));
        assert_eq!(pack.text("/sys/class/infiniband/rxe0/ports/2/state"), Err(Missing::Absent));
        assert_eq!(pack.text("/sys/class/infiniband/rxe0/ports/1/rate"), Err(Missing::NotRecorded));
        assert_eq!(
            pack.text("/sys/class/infiniband/rxe1/node_guid"),
            Err(Missing::Unreadable("no".to_owned()))
        );
        assert_eq!(pack.number("/sys/class/infiniband_verbs/abi_version"), Ok(6));
        assert_eq!(pack.link_name("/sys/class/infiniband/rxe0/device/driver"), Ok("rxe"));
    }

    #[test]
    fn a_star_stands_for_a_part_of_one_name() {
        assert!(covers("/a/b*/c", "/a/bcd/c") && covers("/**", "/a"));
        assert!(!covers("/a/b*/c", "/a/x/c") && !covers("/a/*", "/a/b/c") && !covers("/a/*/c", "/a/b"));
    }
}
