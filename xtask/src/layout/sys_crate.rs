//! The crates with bindings, and the headers that these are generated from and compared with.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::headers::HeaderSet;

/// A crate with bindings.
#[derive(Debug)]
pub(crate) struct SysCrate {
    /// Its folder below `crates/`.
    pub(crate) name: &'static str,
    /// The headers that the bindings are generated from.
    pub(crate) origin: HeaderSet,
    /// Files written by hand for headers that are newer than those of the bindings, with those
    /// headers.
    pub(crate) later: &'static [(&'static str, HeaderSet)],
    library: Library,
}

#[derive(Debug, Clone, Copy)]
enum Library {
    RdmaCore,
    Libfabric,
}

/// `verbs-sys` is generated from the newest headers, because its structures only grew, each with a
/// size or a mask. `fabric-sys` is generated from the oldest, because libfabric keeps the older
/// layout behind its older symbol versions.
pub(crate) const SYS_CRATES: &[SysCrate] = &[
    SysCrate { name: "verbs-sys", origin: HeaderSet::Newest, later: &[], library: Library::RdmaCore },
    SysCrate {
        name: "fabric-sys",
        origin: HeaderSet::Debian12,
        later: &[("src/since_2.rs", HeaderSet::Newest)],
        library: Library::Libfabric,
    },
];

impl SysCrate {
    /// Returns the crates that a `--crate` option selects.
    pub(crate) fn chosen(only: Option<&str>) -> impl Iterator<Item = &'static Self> {
        SYS_CRATES.iter().filter(move |sys| only.is_none_or(|only| only == sys.name))
    }

    pub(crate) fn directory(&self, root: &Path) -> PathBuf {
        root.join("crates").join(self.name)
    }

    pub(crate) fn package(&self) -> String {
        format!("farreach-{}", self.name)
    }

    /// Returns the name of the example that prints the layout. It is unique, because the examples
    /// of all crates are built into one folder.
    pub(crate) fn layout_example(&self) -> String {
        format!("{}_layout", self.name.trim_end_matches("-sys"))
    }

    pub(crate) fn layout_example_path(&self, root: &Path) -> PathBuf {
        self.directory(root).join("examples").join(self.layout_example()).with_extension("rs")
    }

    /// Returns the library's headers of one set.
    pub(crate) fn headers(&self, set: HeaderSet) -> Result<Headers> {
        let include = set.include_folder()?;
        let version = self.library.version(&include).with_context(|| format!("{}", include.display()))?;
        Ok(Headers { include, version })
    }
}

impl Library {
    /// Returns the version in the usual form: `rdma-core 65`, `libfabric 2.1`. It is not in the
    /// headers, but in the pkg-config files of the packages.
    fn version(self, include: &Path) -> Result<String> {
        let (file, name) = match self {
            Self::RdmaCore => ("libibverbs.pc", "rdma-core"),
            Self::Libfabric => ("libfabric.pc", "libfabric"),
        };
        let version = pkg_config_version(include, file)?;
        let parts: Vec<&str> = version.split('.').collect();
        match (self, &parts[..]) {
            // 1.14.44.0 is libibverbs 1.14 of rdma-core 44.
            (Self::RdmaCore, [_, _, release, ..]) => Ok(format!("{name} {release}")),
            (Self::Libfabric, [major, minor, ..]) => Ok(format!("{name} {major}.{minor}")),
            _ => anyhow::bail!("{file} has the version {version}, which does not contain the release"),
        }
    }
}

/// Reads it from `usr/lib/ARCHITECTURE/pkgconfig/`, which is next to `usr/include`.
fn pkg_config_version(include: &Path, file: &str) -> Result<String> {
    let library_folder = include.with_file_name("lib");
    let folders = std::fs::read_dir(&library_folder)
        .with_context(|| format!("cannot read {}", library_folder.display()))?
        .collect::<std::io::Result<Vec<_>>>()?;
    let texts = folders
        .iter()
        .filter_map(|folder| std::fs::read_to_string(folder.path().join("pkgconfig").join(file)).ok());
    let version =
        |text: String| Some(text.lines().find_map(|line| line.strip_prefix("Version: "))?.trim().to_owned());
    texts
        .filter_map(version)
        .next()
        .with_context(|| format!("no {file} with a version below {}", library_folder.display()))
}

/// One version of a library's headers.
#[derive(Debug, Clone)]
pub(crate) struct Headers {
    /// The folder for the option `-I`.
    pub(crate) include: PathBuf,
    /// `rdma-core 65`
    pub(crate) version: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_release_is_read_beside_the_headers() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("usr/lib/x86_64-linux-gnu/pkgconfig");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("libibverbs.pc"), "Name: libibverbs\nVersion: 1.14.44.0\n").unwrap();
        std::fs::write(folder.join("libfabric.pc"), "Version: 2.1.0\n").unwrap();
        let include = root.path().join("usr/include");
        assert_eq!(Library::RdmaCore.version(&include).unwrap(), "rdma-core 44");
        assert_eq!(Library::Libfabric.version(&include).unwrap(), "libfabric 2.1");
    }
}
