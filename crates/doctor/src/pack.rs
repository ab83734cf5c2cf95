//! What was read of a host: everything that the checks look at, and nothing else, so that they come to the same verdict on the host and far from it.
//!
//! A [`Pack`] is made by [`collect::host`](crate::collect::host), or read from JSON ([`Dump`](crate::Dump)). Checks ask it for files as if they stood on that
//! host.
//!
//! A field is only ever added; one that changes its meaning or goes away raises [`SCHEMA_VERSION`]. The schema is docs/schema/doctor-pack.json.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::probes::Probes;

/// The version of this shape.
pub const SCHEMA_VERSION: u32 = 1;

/// What was read of a host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "DoctorPack"))]
pub struct Pack {
    schema_version: u32,
    /// The version of the command that has read it.
    farreach: String,
    host: String,
    /// When, in seconds since 1970.
    recorded_unix_seconds: u64,
    /// Where it was written by a person instead of read from a host: from what.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    constructed: Option<String>,
    /// The patterns of all that was looked for: what one of them covers and is not in `files` was not there.
    looked_for: Vec<String>,
    files: BTreeMap<String, Entry>,
    /// What no file tells.
    #[serde(default)]
    probes: Probes,
}

/// A file as it was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
#[non_exhaustive]
pub enum Entry {
    /// Its text.
    Text(String),
    /// Where it leads.
    Link {
        /// As the link has it: often a relative path.
        link: String,
    },
    /// Why it could not be read.
    Error {
        /// In words.
        error: String,
    },
}

/// Why something is not known.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Missing {
    /// It was not there.
    Absent,
    /// It was there, and not to be read, or made no sense.
    Unreadable(String),
    /// Nobody looked: an older version has made the pack.
    NotRecorded,
}

impl Missing {
    /// Why, for a person: `path` is what was to be read.
    pub fn reason(&self, path: &str) -> String {
        match self {
            Self::Absent => format!("{path} is not there"),
            Self::Unreadable(why) => format!("{path}: {why}"),
            Self::NotRecorded => format!("{path} is not in this pack: an older farreach has made it"),
        }
    }
}

impl Pack {
    /// A pack of this version of Farreach. `files` are all that was found of what `looked_for` has the patterns of.
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

    /// The version of Farreach that has read it.
    pub fn farreach(&self) -> &str {
        &self.farreach
    }

    /// The host's name.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// When it was read, in seconds since 1970.
    pub fn recorded_unix_seconds(&self) -> u64 {
        self.recorded_unix_seconds
    }

    /// From what it was made, where a person has written it instead of reading it from a host.
    pub fn constructed(&self) -> Option<&str> {
        self.constructed.as_deref()
    }

    /// What no file tells.
    pub fn probes(&self) -> &Probes {
        &self.probes
    }

    /// A file or link as it was found.
    pub fn entry(&self, path: &str) -> Option<&Entry> {
        self.files.get(path)
    }

    /// The text of a file, without the blanks around it.
    pub fn text(&self, path: &str) -> Result<&str, Missing> {
        match self.files.get(path) {
            Some(Entry::Text(text)) => Ok(text.trim()),
            Some(Entry::Link { .. }) => Err(Missing::Unreadable("a link, and no file".to_owned())),
            Some(Entry::Error { error }) => Err(Missing::Unreadable(error.clone())),
            None => Err(self.why_not(path)),
        }
    }

    /// The number in a file.
    pub fn number(&self, path: &str) -> Result<u64, Missing> {
        let text = self.text(path)?;
        let number = match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => text.parse(),
        };
        number.map_err(|_| Missing::Unreadable(format!("\"{text}\" is no number")))
    }

    /// The last part of where a link leads: of a device's `driver`, the driver's name.
    pub fn link_name(&self, path: &str) -> Result<&str, Missing> {
        match self.files.get(path) {
            Some(Entry::Link { link }) => Ok(link.rsplit('/').next().unwrap_or(link)),
            Some(Entry::Text(_)) => Err(Missing::Unreadable("a file, and no link".to_owned())),
            Some(Entry::Error { error }) => Err(Missing::Unreadable(error.clone())),
            None => Err(self.why_not(path)),
        }
    }

    /// The names in a folder, in order; those below which nothing was read are not among them.
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

    /// The RDMA devices that the kernel has.
    pub fn devices(&self) -> Vec<&str> {
        self.names("/sys/class/infiniband")
    }

    /// The ports of all devices.
    pub fn ports(&self) -> Vec<Port<'_>> {
        let of = |device| {
            let ports = self.names(&format!("/sys/class/infiniband/{device}/ports"));
            ports.into_iter().map(move |number| Port { device, number })
        };
        self.devices().into_iter().flat_map(of).collect()
    }

    /// Why nothing was found in a folder.
    pub(crate) fn why_no_names(&self, folder: &str) -> Missing {
        // A folder that could not be read is kept as a file.
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
    /// The port's number, as its folder is called.
    pub number: &'a str,
}

impl Port<'_> {
    /// `mlx5_0 port 1`
    pub fn words(&self) -> String {
        format!("{} port {}", self.device, self.number)
    }

    /// A file of the port's.
    pub fn path(&self, file: &str) -> String {
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

/// Whether something below this folder was looked for by this pattern.
fn reaches_into(pattern: &str, folder: &str) -> bool {
    let mut parts = pattern.split('/');
    pattern == "/**"
        || (folder.split('/').all(|name| parts.next().is_some_and(|part| name_matches(part, name)))
            && parts.next().is_some())
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
impl Pack {
    /// The pack with these probes.
    pub(crate) fn with_probes(self, probes: Probes) -> Self {
        Self { probes, ..self }
    }

    /// The pack as another version of Farreach would have written it.
    pub(crate) fn by_version(self, farreach: &str) -> Self {
        Self { farreach: farreach.to_owned(), ..self }
    }

    /// All files.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&String, &Entry)> {
        self.files.iter()
    }

    /// The pack with one file changed.
    pub(crate) fn with_file(&self, path: &str, entry: Entry) -> Self {
        let mut pack = self.clone();
        pack.files.insert(path.to_owned(), entry);
        pack
    }

    /// The pack with each file changed.
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
