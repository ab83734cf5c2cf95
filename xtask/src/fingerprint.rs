//! Fingerprints of files, to detect changes since a slow check has passed.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Returns the fingerprint of texts and files, in their order.
///
/// Comments of Rust files are excluded: a better comment changes no behaviour, and should not cause
/// slow checks to run again. A line of a string literal that begins with `//` is excluded too.
pub(crate) fn of(texts: &[&str], files: &[PathBuf]) -> Result<String> {
    let mut parts: Vec<String> = texts.iter().map(|&text| text.to_owned()).collect();
    for file in files {
        let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        let is_rust = file.extension().is_some_and(|extension| extension == "rs");
        parts.push(if is_rust { without_comments(&text) } else { text });
    }
    Ok(format!("{:016x}", hash(parts.iter().flat_map(|part| part.bytes().chain([0])))))
}

fn without_comments(text: &str) -> String {
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    code.flat_map(|line| [line, "\n"]).collect()
}

/// FNV-1a. The hashers of the standard library may return other values in another release.
fn hash(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Returns every file in a folder and its subfolders, sorted; empty if there is no such folder.
pub(crate) fn files_in(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files_in(&path));
        } else {
            found.push(path);
        }
    }
    found.sort();
    found
}
