//! Writes the pack of a host or a pair as JSON, and reads it back on another host.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::finding::text_of;
use crate::pack::{self, Pack};
use crate::pair::PairPack;

/// A pack of a host or of a pair.
///
/// The JSON has no tag for the variant: only a pair has `readings`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Dump {
    /// The pack of one host.
    Host(Box<Pack>),
    /// The packs of two hosts, and the results of the trials between them.
    Pair(Box<PairPack>),
}

/// The reason why JSON could not be read as a dump.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DumpError {
    /// The input is not JSON, or not JSON of this schema.
    #[error("not a pack: {}", text_of(&.0.to_string()))]
    Malformed(#[from] serde_json::Error),
    /// Another version of Farreach wrote the dump, with another schema version.
    #[error("the pack has schema version {found}, and this farreach reads version {known}", known = pack::SCHEMA_VERSION)]
    Version {
        /// The schema version in the dump.
        found: String,
        /// The version of Farreach that wrote the dump, if the dump states it.
        farreach: Option<String>,
    },
}

impl Dump {
    /// Reads JSON written by [`to_json`](Self::to_json).
    pub fn from_json(json: &[u8]) -> Result<Self, DumpError> {
        let value: Value = serde_json::from_slice(json)?;
        // The version is checked first: a dump of another version may not match the types.
        for pack in ["/schema_version", "/here/schema_version", "/peer/schema_version"] {
            let Some(version) = value.pointer(pack) else { continue };
            if *version != pack::SCHEMA_VERSION {
                let farreach = value.pointer(&pack.replace("schema_version", "farreach"));
                let farreach = farreach.and_then(Value::as_str).filter(is_version).map(str::to_owned);
                return Err(DumpError::Version { found: text_of(&version.to_string()), farreach });
            }
        }
        Ok(match value.get("readings") {
            Some(_) => Self::Pair(typed(value)?),
            None => Self::Host(typed(value)?),
        })
    }

    /// Returns the dump as indented JSON.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(self)
    }
}

/// Returns whether a text is that of a version: `1.2.0-rc.1`.
fn is_version(text: &&str) -> bool {
    text.len() <= 32 && text.chars().all(|letter| letter.is_ascii_alphanumeric() || ".-+".contains(letter))
}

fn typed<T: DeserializeOwned>(value: Value) -> Result<Box<T>, serde_json::Error> {
    serde_json::from_value(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dump_of_another_version_names_the_farreach_that_reads_it() {
        let host = r#"{"schema_version": 99, "farreach": "7.1.0"}"#;
        let pair = format!(r#"{{"here": {host}, "peer": {host}, "readings": {{}}}}"#);
        for text in [host, &pair] {
            let error = Dump::from_json(text.as_bytes()).unwrap_err();
            assert_eq!(
                error.to_string(),
                "the pack has schema version 99, and this farreach reads version 1"
            );
            assert!(matches!(error, DumpError::Version { farreach: Some(it), .. } if it == "7.1.0"));
        }
    }

    #[test]
    fn what_is_no_dump_is_refused() {
        for text in ["not JSON", "{}", r#"{"readings": {}}"#, r#"{"schema_version": 1}"#] {
            let error = Dump::from_json(text.as_bytes()).unwrap_err();
            assert!(matches!(error, DumpError::Malformed(_)), "{text}: {error}");
        }
    }

    #[test]
    fn what_was_written_is_read_again() {
        let text = include_bytes!("../tests/packs/soft-roce.json");
        let dump = Dump::from_json(text).unwrap();
        assert!(matches!(&dump, Dump::Host(pack) if pack.devices() == ["rxe0"]), "{dump:?}");
        assert_eq!(Dump::from_json(dump.to_json().unwrap().as_bytes()).unwrap(), dump);
    }
}
