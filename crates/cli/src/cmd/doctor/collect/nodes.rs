//! Opens what programs open: the device nodes.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io;
use std::path::Path;

use super::{errno_words, names_in};
use crate::cmd::doctor::probes::Reading;

const FOLDER: &str = "/dev/infiniband";

/// What came of opening each node, which is closed at once.
pub(super) fn read() -> Reading<BTreeMap<String, Option<String>>> {
    let all = names_in(FOLDER).into_iter().map(|name| {
        let path = Path::new(FOLDER).join(&name);
        let opened = OpenOptions::new().read(true).write(true).open(&path);
        (name, opened.err().map(|error| words(&error)))
    });
    Reading::Read(all.collect())
}

/// With the name of the error: a cgroup says EPERM where permissions say EACCES, in nearly the same words.
fn words(error: &io::Error) -> String {
    error.raw_os_error().map_or_else(|| error.to_string(), errno_words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_kinds_of_refusal_differ() {
        let of = |code| words(&io::Error::from_raw_os_error(code));
        assert_eq!(of(13), "Permission denied (EACCES)");
        assert_eq!(of(1), "Operation not permitted (EPERM)");
    }
}
