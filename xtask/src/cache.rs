//! What is made once from Debian's packages and kept. Several tasks may run at once: an entry appears whole or not at all,
//! and is never changed.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use crate::paths;

/// An entry that is in the cache.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) path: PathBuf,
    /// Where it came from, in the words of whoever made it.
    pub(crate) origin: String,
}

/// The entry `name` made by `recipe`, or a new one: `make` is given a suite and an empty folder, and tells the origin.
///
/// Another recipe is another entry, so that what still uses the old one is not disturbed.
pub(crate) fn entry(
    kind: &str,
    name: &str,
    recipe: &impl Hash,
    suites: &[&str],
    make: impl Fn(&str, &Path) -> Result<String>,
) -> Result<Entry> {
    let mut hasher = DefaultHasher::new();
    recipe.hash(&mut hasher);
    let folder = paths::cache()?.join(kind);
    let path = folder.join(format!("{name}-{:08x}", hasher.finish() as u32));
    if let Some(entry) = complete(&path) {
        return Ok(entry);
    }
    std::fs::create_dir_all(&folder)?;
    let mut refused = Vec::new();
    for suite in suites {
        let fresh = tempfile::tempdir_in(&folder)?;
        // Programs inside run as other users too.
        std::fs::set_permissions(fresh.path(), PermissionsExt::from_mode(0o755))?;
        match make(suite, fresh.path()) {
            Ok(origin) => {
                std::fs::write(fresh.path().join(ORIGIN), &origin)?;
                // Where another task was faster, its entry serves, and ours goes with `fresh`.
                if std::fs::rename(fresh.path(), &path).is_ok() {
                    let _ = fresh.keep();
                }
                if let Some(entry) = complete(&path) {
                    return Ok(entry);
                }
                bail!("cannot put {} into the cache", path.display());
            }
            Err(error) => refused.push(format!("{suite}: {error:#}")),
        }
    }
    bail!("no Debian suite gives `{name}` of the {kind}\n{}", refused.join("\n"))
}

/// Written last, so that its presence means that the entry is whole.
const ORIGIN: &str = ".origin";

fn complete(path: &Path) -> Option<Entry> {
    let origin = std::fs::read_to_string(path.join(ORIGIN)).ok()?;
    Some(Entry { path: path.to_owned(), origin })
}
