//! The file that `--dump` writes and `--from` reads.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use farreach_doctor::{CommandLine, Dump, DumpError};
use farreach_text::printable;

use crate::exit::{Exit, Failure};
use crate::terminal;

/// Reads a file written by [`save`].
pub(super) fn load(path: &Path) -> Result<Dump, Failure> {
    let failure = |cause: String, fix: String| {
        Failure::new(Exit::Usage, format!("cannot read the pack {}", path.display())).cause(cause).fix(fix)
    };
    let other_file =
        |cause: String| failure(cause, "give a file written by farreach doctor --dump".to_owned());
    let bytes = fs::read(path).map_err(|error| other_file(error.to_string()))?;
    Dump::from_json(&bytes).map_err(|error| match &error {
        DumpError::Version { farreach, .. } => {
            let fix = match farreach {
                Some(version) => format!("use farreach {version}, which wrote it"),
                None => "use the version of farreach that wrote it".to_owned(),
            };
            failure(error.to_string(), fix)
        }
        _ => other_file(error.to_string()),
    })
}

/// Writes a dump, for analysis on another host.
pub(super) fn save(dump: &Dump, path: &Path) -> Result<()> {
    // Who looks at the file sees it on a terminal.
    let text = dump.to_json().context("cannot write the pack as JSON")? + "\n";
    fs::write(path, printable(&text).as_bytes())
        .with_context(|| format!("cannot write {}", path.display()))?;
    // The command is alone on its line, to be copied.
    let command = CommandLine::new("farreach doctor --from").path(&path.to_string_lossy());
    let path = path.display();
    terminal::tell(&format!("wrote {path}; diagnose it on another host with:\n  {command}"));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the cause and the fix for a file with this text.
    fn refused(text: &str) -> (String, String) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pack.json");
        fs::write(&path, text).unwrap();
        let failure = load(&path).unwrap_err();
        (failure.cause.unwrap(), failure.fix.unwrap())
    }

    #[test]
    fn a_pack_of_another_version_names_the_farreach_that_reads_it() {
        let host = r#"{"schema_version": 99, "farreach": "7.1.0"}"#;
        let pair = format!(r#"{{"here": {host}, "peer": {host}, "readings": {{}}}}"#);
        for text in [host, &pair] {
            let (cause, fix) = refused(text);
            assert_eq!(cause, "the pack has schema version 99, and this farreach reads version 1");
            assert_eq!(fix, "use farreach 7.1.0, which wrote it");
        }
    }

    #[test]
    fn what_is_no_pack_is_refused() {
        for text in ["not JSON", "{}", r#"{"readings": {}}"#, r#"{"schema_version": 1}"#] {
            let (cause, fix) = refused(text);
            assert!(cause.starts_with("not a pack: "), "{text}: {cause}");
            assert_eq!(fix, "give a file written by farreach doctor --dump");
        }
    }
}
