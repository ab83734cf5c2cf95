//! The data read from a host: everything the checks read, and nothing else.
//!
//! Checks therefore reach the same verdict on the host and elsewhere.
//!
//! A [`Pack`] is made by [`collect::host`](crate::collect::host), or read from JSON
//! ([`Dump`](crate::Dump)). Checks look files up by their paths on that host.
//!
//! Compatibility: fields may be added. Changing the meaning of a field, or removing it, raises
//! [`SCHEMA_VERSION`]. The schema is docs/schema/doctor-pack.json.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::kernel_names;
use crate::probes::Probes;

/// The schema version of a pack.
pub const SCHEMA_VERSION: u32 = 1;

/// The data that was read from a host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "DoctorPack"))]
pub struct Pack {
    schema_version: u32,
    /// The version of Farreach that recorded the pack.
    farreach: String,
    /// The host's name.
    host: String,
    /// The time of recording, in seconds since 1970.
    recorded_unix_seconds: u64,
    /// The source of a pack that was written by hand instead of read from a host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    constructed: Option<String>,
    /// The patterns of all files that were looked for. A file that matches one and is not in `files` did not exist.
    looked_for: Vec<String>,
    /// The files, by path.
    #[serde(deserialize_with = "kernel_names::files")]
    files: BTreeMap<String, Entry>,
    /// The values that are in no file.
    #[serde(default, deserialize_with = "kernel_names::probes")]
    probes: Probes,
}

/// The content of a file or link, or the error of reading it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
#[non_exhaustive]
pub enum Entry {
    /// The text of a file.
    Text(String),
    /// A symbolic link.
    Link {
        /// The target as stored in the link, often a relative path.
        link: String,
    },
    /// The error of reading a file.
    Error {
        /// The message.
        error: String,
    },
}

/// The reason why a value is not known.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Missing {
    /// It does not exist on the host.
    Absent,
    /// It exists, but could not be read or parsed.
    Unreadable(String),
    /// It was not looked for: an older version made the pack.
    NotRecorded,
}

impl Missing {
    /// Returns the reason as text. `path` is the file that was requested.
    pub fn reason(&self, path: &str) -> String {
        match self {
            Self::Absent => format!("{path} does not exist"),
            Self::Unreadable(why) => format!("cannot read {path}: {why}"),
            Self::NotRecorded => format!("{path} is not in this pack: an older farreach recorded it"),
        }
    }
}

impl Pack {
    /// Creates a pack of this version of Farreach.
    ///
    /// `files` contains every file that was found for the patterns in `looked_for`.
    pub fn new(
        host: impl Into<String>,
        recorded: SystemTime,
        looked_for: Vec<String>,
        files: BTreeMap<String, Entry>,
        probes: Probes,
    ) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            farreach: env!("CARGO_PKG_VERSION").to_owned(),
            host: host.into(),
            recorded_unix_seconds: recorded.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
            constructed: None,
            looked_for,
            files,
            probes,
        }
    }

    /// Returns the version of Farreach that made the pack.
    pub fn farreach(&self) -> &str {
        &self.farreach
    }

    /// Returns the host's name.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the time of recording, in seconds since 1970.
    pub fn recorded_unix_seconds(&self) -> u64 {
        self.recorded_unix_seconds
    }

    /// Returns the source of a pack that was written by hand rather than read from a host.
    pub fn constructed(&self) -> Option<&str> {
        self.constructed.as_deref()
    }

    /// Returns the values that are in no file.
    pub fn probes(&self) -> &Probes {
        &self.probes
    }

    /// Returns a file or link as it was found.
    pub fn entry(&self, path: &str) -> Option<&Entry> {
        self.files.get(path)
    }

    /// Returns the text of a file, without leading and trailing whitespace.
    pub fn text(&self, path: &str) -> Result<&str, Missing> {
        match self.files.get(path) {
            Some(Entry::Text(text)) => Ok(text.trim()),
            Some(Entry::Link { .. }) => Err(Missing::Unreadable("a link instead of a file".to_owned())),
            Some(Entry::Error { error }) => Err(Missing::Unreadable(error.clone())),
            None => Err(self.why_not(path)),
        }
    }

    /// Returns the number in a file: decimal, or hexadecimal after `0x`.
    pub fn number(&self, path: &str) -> Result<u64, Missing> {
        let text = self.text(path)?;
        let number = match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => text.parse(),
        };
        number.map_err(|_| Missing::Unreadable(format!("\"{text}\" is not a number")))
    }

    /// Returns the last component of a link's target: for a device's `driver`, the driver's name.
    pub fn link_name(&self, path: &str) -> Result<&str, Missing> {
        match self.files.get(path) {
            Some(Entry::Link { link }) => Ok(link.rsplit('/').next().unwrap_or(link)),
            Some(Entry::Text(_)) => Err(Missing::Unreadable("a file instead of a link".to_owned())),
            Some(Entry::Error { error }) => Err(Missing::Unreadable(error.clone())),
            None => Err(self.why_not(path)),
        }
    }

    /// Returns the names in a folder, sorted. Entries below which nothing was read are missing.
    pub fn names(&self, folder: &str) -> Vec<&str> {
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

    /// Returns the RDMA devices of the kernel.
    pub fn devices(&self) -> Vec<&str> {
        self.names("/sys/class/infiniband")
    }

    /// Returns the ports of all devices.
    pub fn ports(&self) -> Vec<Port<'_>> {
        let of = |device| {
            let ports = self.names(&format!("/sys/class/infiniband/{device}/ports"));
            ports.into_iter().map(move |number| Port { device, number })
        };
        self.devices().into_iter().flat_map(of).collect()
    }

    /// Returns the reason why a folder has no names.
    pub(crate) fn why_no_names(&self, folder: &str) -> Missing {
        // A folder that could not be read is recorded as a file.
        match self.text(folder) {
            Err(missing @ Missing::Unreadable(_)) => missing,
            _ if self.looked_for.iter().any(|pattern| reaches_into(pattern, folder)) => Missing::Absent,
            _ => Missing::NotRecorded,
        }
    }

    fn why_not(&self, path: &str) -> Missing {
        let is_covered = self.looked_for.iter().any(|pattern| covers(pattern, path));
        if is_covered { Missing::Absent } else { Missing::NotRecorded }
    }
}

/// One port of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Port<'a> {
    /// The device's name.
    pub device: &'a str,
    /// The port's number, as its folder is named.
    pub number: &'a str,
}

impl Port<'_> {
    /// Returns the port's name for messages: `mlx5_0 port 1`.
    pub fn words(&self) -> String {
        format!("{} port {}", self.device, self.number)
    }

    /// Returns the path of one of the port's files.
    pub fn path(&self, file: &str) -> String {
        format!("/sys/class/infiniband/{}/ports/{}/{file}", self.device, self.number)
    }
}

/// Returns whether a path matches this pattern. A `*` stands for any part of one name; `/**`
/// matches every path.
fn covers(pattern: &str, path: &str) -> bool {
    if pattern == "/**" {
        return true;
    }
    let (mut pattern, mut path) = (pattern.split('/'), path.split('/'));
    loop {
        match (pattern.next(), path.next()) {
            (None, None) => return true,
            (Some(pattern), Some(name)) if name_matches(pattern, name) => {}
            // A pattern covers exactly its own depth.
            _ => return false,
        }
    }
}

/// Returns whether this pattern matches paths below this folder.
fn reaches_into(pattern: &str, folder: &str) -> bool {
    let mut parts = pattern.split('/');
    pattern == "/**"
        || (folder.split('/').all(|name| parts.next().is_some_and(|part| name_matches(part, name)))
            && parts.next().is_some())
}

/// Returns whether a name matches this pattern, which contains at most one `*`.
pub(crate) fn name_matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((begin, end)) => {
            name.len() >= begin.len() + end.len() && name.starts_with(begin) && name.ends_with(end)
        }
    }
}

#[cfg(test)]
impl Pack {
    /// Returns the pack with these probes.
    pub(crate) fn with_probes(self, probes: Probes) -> Self {
        Self { probes, ..self }
    }

    /// Returns the pack as that of another host.
    pub(crate) fn named(self, host: &str) -> Self {
        Self { host: host.to_owned(), ..self }
    }

    /// Returns the pack as written by another version of Farreach.
    pub(crate) fn by_version(self, farreach: &str) -> Self {
        Self { farreach: farreach.to_owned(), ..self }
    }

    /// Returns all files.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&String, &Entry)> {
        self.files.iter()
    }

    /// Returns the pack with one file changed.
    pub(crate) fn with_file(&self, path: &str, entry: Entry) -> Self {
        let mut pack = self.clone();
        pack.files.insert(path.to_owned(), entry);
        pack
    }

    /// Returns the pack with each file changed.
    pub(crate) fn map_files(&self, change: impl Fn(&str, &Entry) -> Entry) -> Self {
        let files = self.files.iter().map(|(path, entry)| (path.clone(), change(path, entry))).collect();
        Self { files, ..self.clone() }
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
        let looked_for = vec!["/sys/class/infiniband/*/ports/*/state".to_owned()];
        let files = files.map(|(path, entry)| (path.to_owned(), entry)).into();
        Pack::new("h", UNIX_EPOCH, looked_for, files, Probes::default())
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
    fn an_empty_folder_is_told_from_one_that_nobody_looked_into() {
        let pack = pack();
        assert_eq!(pack.why_no_names("/sys/class/infiniband/rxe7/ports"), Missing::Absent);
        assert_eq!(pack.why_no_names("/sys/class/net"), Missing::NotRecorded);
        assert_eq!(
            pack.why_no_names("/sys/class/infiniband/rxe1/node_guid"),
            Missing::Unreadable("no".to_owned())
        );
    }

    #[test]
    fn a_star_stands_for_a_part_of_one_name() {
        assert!(covers("/a/b*/c", "/a/bcd/c") && covers("/**", "/a"));
        assert!(!covers("/a/b*/c", "/a/x/c") && !covers("/a/*", "/a/b/c") && !covers("/a/*/c", "/a/b"));
    }
}
