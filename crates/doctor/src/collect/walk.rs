//! Reads files by their patterns.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use crate::pack::{Entry, name_matches};

/// More than any requested file has. Longer files are truncated.
const LENGTH_MAX: usize = 64 * 1024;

/// For kernel modules only the names are needed.
const BY_NAME_ONLY: &str = "/lib/modules/";

/// Reads all files that match one of these patterns.
pub(super) fn read(patterns: &[&str]) -> BTreeMap<String, Entry> {
    let mut files = BTreeMap::new();
    for pattern in patterns {
        let parts: Vec<&str> = pattern.split('/').filter(|part| !part.is_empty()).collect();
        descend(String::new(), &parts, &mut files);
    }
    files
}

fn descend(at: String, parts: &[&str], files: &mut BTreeMap<String, Entry>) {
    let Some((part, rest)) = parts.split_first() else {
        files.extend(entry(&at).map(|entry| (at, entry)));
        return;
    };
    if !part.contains('*') {
        return descend(format!("{at}/{part}"), rest, files);
    }
    match fs::read_dir(if at.is_empty() { "/" } else { &at }) {
        Ok(entries) => {
            let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
            for name in names.filter(|name| name_matches(part, name)) {
                descend(format!("{at}/{name}"), rest, files);
            }
        }
        // A folder that does not exist has no entries.
        Err(error) if is_absent(&error) => {}
        Err(error) => {
            files.insert(at, Entry::Error { error: error.to_string() });
        }
    }
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Reads a file or link. Returns `None` if it does not exist or is an empty entry of a table.
fn entry(path: &str) -> Option<Entry> {
    let is_link = fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_symlink());
    if is_link {
        let link = fs::read_link(path).map(|target| target.display().to_string());
        return Some(
            link.map_or_else(|error| Entry::Error { error: error.to_string() }, |link| Entry::Link { link }),
        );
    }
    if path.starts_with(BY_NAME_ONLY) {
        return Path::new(path).exists().then(|| Entry::Text(String::new()));
    }
    match fs::read(Path::new(path)) {
        Ok(mut bytes) => {
            bytes.truncate(LENGTH_MAX);
            let text = kept(path, String::from_utf8_lossy(&bytes).trim_end());
            (!is_empty_place(path, &text)).then_some(Entry::Text(text))
        }
        Err(error) if is_absent(&error) => None,
        // The kernel returns EINVAL for an empty entry of this table.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput && path.contains("/gid_attrs/") => None,
        Err(error) => Some(Entry::Error { error: error.to_string() }),
    }
}

/// Returns the part of a file that may be recorded.
///
/// The kernel's command line may contain anything, even a password. Only words about the IOMMU are
/// recorded.
fn kept(path: &str, text: &str) -> String {
    if path != "/proc/cmdline" {
        return text.to_owned();
    }
    let words: Vec<&str> = text.split_whitespace().filter(|word| word.contains("iommu")).collect();
    words.join(" ")
}

/// Returns whether a file is an empty entry. Tables of GIDs and partition keys have hundreds of
/// entries, and few are filled.
fn is_empty_place(path: &str, text: &str) -> bool {
    let is_table = path.contains("/gids/") || path.contains("/pkeys/");
    is_table && text.trim_start_matches("0x").chars().all(|c| matches!(c, '0' | ':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_the_command_line_is_kept_but_the_iommu() {
        let line = "root=/dev/vda1 rd.luks.key=hunter2 intel_iommu=on iommu=pt iscsi_password=hunter3 quiet";
        assert_eq!(kept("/proc/cmdline", line), "intel_iommu=on iommu=pt");
        assert_eq!(kept("/proc/self/limits", line), line);

        let of_this_host = fs::read_to_string("/proc/cmdline").unwrap();
        let Some(Entry::Text(text)) = entry("/proc/cmdline") else { panic!("it is there") };
        for word in of_this_host.split_whitespace().filter(|word| !word.contains("iommu")) {
            assert!(!text.split_whitespace().any(|it| it == word), "{text}");
        }
    }

    #[test]
    fn patterns_find_files_links_and_reasons() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().display().to_string();
        let write = |path: &str, text: &str| {
            let path = format!("{root}/{path}");
            fs::create_dir_all(Path::new(&path).parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("rxe0/ports/1/state", "4: ACTIVE\n");
        write("rxe0/ports/1/gids/0", "fe80:0000:0000:0000:0000:0000:0000:0001\n");
        write("rxe0/ports/1/gids/1", "0000:0000:0000:0000:0000:0000:0000:0000\n");
        fs::create_dir(format!("{root}/rxe1")).unwrap();
        fs::create_dir_all(format!("{root}/rxe2/ports/1/state")).unwrap();
        std::os::unix::fs::symlink("../drivers/rdma_rxe", format!("{root}/rxe0/driver")).unwrap();

        let patterns =
            ["*/ports/*/state", "*/ports/*/gids/*", "r*0/driver"].map(|pattern| format!("{root}/{pattern}"));
        let files = read(&patterns.each_ref().map(String::as_str));
        let of = |path: &str| files.get(&format!("{root}/{path}"));
        assert_eq!(of("rxe0/ports/1/state"), Some(&Entry::Text("4: ACTIVE".to_owned())));
        assert_eq!(of("rxe0/driver"), Some(&Entry::Link { link: "../drivers/rdma_rxe".to_owned() }));
        assert!(of("rxe0/ports/1/gids/0").is_some() && of("rxe0/ports/1/gids/1").is_none());
        assert!(matches!(of("rxe2/ports/1/state"), Some(Entry::Error { .. })), "{files:?}");
        assert_eq!(files.len(), 4, "{files:?}");
    }
}
