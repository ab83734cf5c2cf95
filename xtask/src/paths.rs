//! Paths of the repository, its build and the cache of fetched files.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Returns the top folder of the repository.
pub(crate) fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the repository")
}

/// Returns cargo's target folder for this repository, as cargo itself would choose it.
pub(crate) fn target() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(directory) => repository().join(directory),
        None => repository().join("target"),
    }
}

/// Returns cargo's folder for downloads.
pub(crate) fn cargo_home() -> Result<PathBuf> {
    in_home("CARGO_HOME", ".cargo")
}

/// Returns rustup's folder for toolchains.
pub(crate) fn rustup_home() -> Result<PathBuf> {
    in_home("RUSTUP_HOME", ".rustup")
}

/// Returns the cache of fetched files, which serves every checkout: kernels, roots, package lists.
/// It is safe to delete.
pub(crate) fn cache() -> Result<PathBuf> {
    let directory = match std::env::var_os("FARREACH_CACHE") {
        Some(own) => PathBuf::from(own),
        None => in_home("XDG_CACHE_HOME", ".cache")?.join("farreach"),
    };
    std::fs::create_dir_all(&directory)
        .with_context(|| format!("cannot create the cache folder {}", directory.display()))?;
    Ok(directory)
}

/// Returns the folder that a variable names, or one in the user's home.
fn in_home(variable: &str, folder: &str) -> Result<PathBuf> {
    match std::env::var_os(variable) {
        Some(path) => Ok(PathBuf::from(path)),
        None => Ok(PathBuf::from(std::env::var_os("HOME").context("HOME is not set")?).join(folder)),
    }
}
