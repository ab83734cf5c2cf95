//! Compiles the program in C against the headers and the library of one release.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::headers::HeaderSet;
use crate::paths;
use crate::process::{command, require_programs, run};
use crate::vm::Userland;

/// Compiles `benches/bare` for a user space. Returns the path of the program.
pub(crate) fn build(userland: Userland) -> Result<PathBuf> {
    require_programs(&[("cc", "gcc")])?;
    let (set, name) = match userland {
        Userland::Debian12 => (HeaderSet::Debian12, "debian12"),
        Userland::Newest => (HeaderSet::Newest, "newest"),
    };
    let folder = paths::target().join("bare").join(name);
    std::fs::create_dir_all(&folder)?;
    let program = folder.join("paged");
    let library = library(&userland.root().get()?.path)?;
    // Its dependencies are searched for at run time.
    let mut cc = command("cc", ["-std=gnu11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Werror"]);
    cc.arg("-I").arg(set.include_folder()?).args(sources()?).arg(library).arg("-Wl,--allow-shlib-undefined");
    run(cc.arg("-o").arg(&program))?;
    Ok(program)
}

/// Returns the library of a root, in the folder of whichever architecture it has.
fn library(root: &Path) -> Result<PathBuf> {
    let folders = std::fs::read_dir(root.join("usr/lib"))?;
    let candidates = folders.filter_map(|folder| Some(folder.ok()?.path().join("libfabric.so.1")));
    let found = candidates.into_iter().find(|library| library.exists());
    found.with_context(|| format!("{} has no libfabric", root.display()))
}

fn sources() -> Result<Vec<PathBuf>> {
    let folder = paths::repository().join("benches/bare");
    let mut sources = Vec::new();
    for entry in std::fs::read_dir(&folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "c") {
            sources.push(path);
        }
    }
    sources.sort();
    Ok(sources)
}
