//! What a look came to: all that a report is made of, as `--dump` writes it and `--from` reads it.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::pack::{self, Pack};
use super::pair::PairPack;
use super::report::Report;
use crate::exit::{Exit, Failure};
use crate::terminal;

/// What was looked at. A file has the one or the other, without a name for it: only of a pair were there `readings`.
#[derive(Debug, PartialEq)]
pub(super) enum Looked {
    AtHost(Box<Pack>),
    AtPair(Box<PairPack>),
}

impl Looked {
    pub(super) fn report(&self) -> Report {
        match self {
            Self::AtHost(pack) => Report::of(pack),
            Self::AtPair(pack) => Report::of_pair(pack),
        }
    }

    /// Reads what [`Looked::dump`] has written.
    pub(super) fn load(path: &Path) -> Result<Self, Failure> {
        let failure = |cause: String, fix: String| {
            Failure::new(Exit::Usage, format!("read the pack {}", path.display())).cause(cause).fix(fix)
        };
        let other_file = |cause: String| failure(cause, "give a file that --dump has written".to_owned());
        let bytes = fs::read(path).map_err(|error| other_file(error.to_string()))?;
        let value: Value = parse(serde_json::from_slice(&bytes)).map_err(other_file)?;
        // Before all else: what another version has written may be of another shape.
        for pack in ["/schema_version", "/here/schema_version", "/peer/schema_version"] {
            let Some(version) = value.pointer(pack) else { continue };
            if *version != pack::SCHEMA_VERSION {
                let cause =
                    format!("its version is {version}, and this farreach knows {}", pack::SCHEMA_VERSION);
                let writer = pack.replace("schema_version", "farreach");
                let writer = value.pointer(&writer).and_then(Value::as_str).unwrap_or("that has written it");
                return Err(failure(cause, format!("read it with farreach {writer}")));
            }
        }
        let looked = match value.get("readings") {
            Some(_) => typed(value).map(|pack| Self::AtPair(Box::new(pack))),
            None => typed(value).map(|pack| Self::AtHost(Box::new(pack))),
        };
        looked.map_err(other_file)
    }

    /// Writes it for someone who cannot reach the host.
    pub(super) fn dump(&self, path: &Path) -> Result<()> {
        let text = match self {
            Self::AtHost(pack) => serde_json::to_string_pretty(pack),
            Self::AtPair(pack) => serde_json::to_string_pretty(pack),
        };
        let text = text.context("cannot write the pack as JSON")? + "\n";
        fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
        let path = path.display();
        terminal::tell(&format!(
            "what was read is in {path}; to look at it elsewhere: farreach doctor --from {path}"
        ));
        Ok(())
    }
}

fn typed<T: DeserializeOwned>(value: Value) -> Result<T, String> {
    parse(serde_json::from_value(value))
}

fn parse<T>(parsed: serde_json::Result<T>) -> Result<T, String> {
    parsed.map_err(|error| format!("it is none: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cause and the fix that are told for a file with this in it.
    fn refused(text: &str) -> (String, String) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pack.json");
        fs::write(&path, text).unwrap();
        let failure = Looked::load(&path).unwrap_err();
        (failure.cause.unwrap(), failure.fix.unwrap())
    }

    #[test]
    fn a_pack_of_another_version_names_the_farreach_that_reads_it() {
        let host = r#"{"schema_version": 99, "farreach": "7.1.0"}"#;
        let pair = format!(r#"{{"here": {host}, "peer": {host}, "readings": {{}}}}"#);
        for text in [host, &pair] {
            let (cause, fix) = refused(text);
            assert_eq!(cause, "its version is 99, and this farreach knows 1");
            assert_eq!(fix, "read it with farreach 7.1.0");
        }
    }

    #[test]
    fn what_is_no_pack_is_refused() {
        for text in ["not JSON", "{}", r#"{"readings": {}}"#, r#"{"schema_version": 1}"#] {
            let (cause, fix) = refused(text);
            assert!(cause.starts_with("it is none: "), "{text}: {cause}");
            assert_eq!(fix, "give a file that --dump has written");
        }
    }
}
