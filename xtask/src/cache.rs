//! A cache of entries made from packages of Debian and Python. Several tasks may run at once: an entry appears as
//! a whole or not at all, and never changes.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use crate::paths;

/// An entry of the cache.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) path: PathBuf,
    /// The origin, as described by the code that made the entry.
    pub(crate) origin: String,
}

/// Returns the entry `name` made by `recipe`, and makes it if it does not exist: `make` gets a
/// source (such as a suite of Debian) and an empty folder, and returns the origin. The sources are
/// tried in order.
///
/// Another recipe is another entry, so that users of the old entry are not disturbed.
pub(crate) fn entry(
    kind: &str,
    name: &str,
    recipe: &impl Hash,
    sources: &[&str],
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
    for source in sources {
        let fresh = tempfile::tempdir_in(&folder)?;
        // Programs in the entry also run as other users.
        std::fs::set_permissions(fresh.path(), PermissionsExt::from_mode(0o755))?;
        match make(source, fresh.path()) {
            Ok(origin) => {
                std::fs::write(fresh.path().join(ORIGIN), &origin)?;
                // If another task was faster, its entry is used, and this one is removed with
                // `fresh`.
                if std::fs::rename(fresh.path(), &path).is_ok() {
                    let _ = fresh.keep();
                }
                if let Some(entry) = complete(&path) {
                    return Ok(entry);
                }
                bail!("cannot put {} into the cache", path.display());
            }
            Err(error) => refused.push(format!("{source}: {error:#}")),
        }
    }
    bail!("nothing provides `{name}` of the {kind}\n{}", refused.join("\n"))
}

/// Written last: an entry with this file is complete.
const ORIGIN: &str = ".origin";

fn complete(path: &Path) -> Option<Entry> {
    let origin = std::fs::read_to_string(path.join(ORIGIN)).ok()?;
    Some(Entry { path: path.to_owned(), origin })
}
