//! Downloaded packages.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use crate::process::{Ticker, command, require_programs};

/// Package files, which are deleted when this is dropped.
#[derive(Debug)]
pub(crate) struct Packages {
    folder: TempDir,
}

impl Packages {
    /// Takes the packages in a folder.
    pub(super) fn in_folder(folder: TempDir) -> Self {
        Self { folder }
    }

    /// Unpacks all packages into `root`, without running their scripts.
    pub(crate) fn unpack(&self, root: &Path) -> Result<()> {
        require_programs(&[("dpkg-deb", "dpkg"), ("tar", "tar")])?;
        let files = self.files()?;
        let mut ticker = Ticker::new("unpacking");
        for deb in &files {
            ticker.step(Some(files.len()));
            let mut reader = command("dpkg-deb", ["--fsys-tarfile".as_ref(), deb.as_os_str()])
                .stdout(Stdio::piped())
                .spawn()
                .context("cannot start dpkg-deb")?;
            let archive = reader.stdout.take().expect("stdout was piped");
            // Packages of Debian 12 still name /lib: their files must follow the link into
            // /usr/lib.
            let mut tar = command("tar", ["-x", "--keep-directory-symlink", "-C"]);
            let written = tar.arg(root).stdin(archive).status().context("cannot start tar")?;
            if !reader.wait()?.success() || !written.success() {
                bail!("cannot unpack {} into {}", deb.display(), root.display());
            }
        }
        Ok(())
    }

    fn files(&self) -> Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        for entry in std::fs::read_dir(self.folder.path())? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "deb") {
                files.push(path);
            }
        }
        if files.is_empty() {
            bail!("apt downloaded no package into {}", self.folder.path().display());
        }
        files.sort();
        Ok(files)
    }
}
