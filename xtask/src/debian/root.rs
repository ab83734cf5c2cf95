//! A root folder of unpacked packages: enough of Debian to run programs in, without installing
//! anything.

use std::path::Path;

use anyhow::{Context, Result, bail};

use super::Apt;
use crate::cache;

/// The recipe of a root folder: its name, its packages, and their suites.
#[derive(Debug, Clone, Copy, Hash)]
pub(crate) struct Root<'a> {
    pub(crate) name: &'a str,
    /// The suites, tried in order until one has every package.
    pub(crate) suites: &'a [&'a str],
    pub(crate) packages: &'a [&'a str],
    /// A package, and the minimum version that a suite must have.
    pub(crate) minimum: (&'a str, &'a str),
    /// Whether to include dependencies: needed to run programs in the root, not for headers.
    pub(crate) with_dependencies: bool,
    /// Packages `(architecture, package)` of another architecture, without their dependencies.
    pub(crate) foreign: &'a [(&'a str, &'a str)],
    /// Links `(name, target)` that the installation of a package would create.
    pub(crate) links: &'a [(&'a str, &'a str)],
}

impl Root<'_> {
    /// Returns the unpacked root. It is fetched the first time, and then kept in the cache.
    pub(crate) fn get(&self) -> Result<cache::Entry> {
        cache::entry("roots", self.name, self, self.suites, |suite, folder| self.fetch(suite, folder))
    }

    /// Makes the root in an empty folder. Returns the suite and the version of the characteristic
    /// package.
    fn fetch(&self, suite: &str, folder: &Path) -> Result<String> {
        let apt = Apt::of_suite(suite)?;
        let (package, minimum) = self.minimum;
        let version = apt.version_of(package)?.with_context(|| format!("it has no package {package}"))?;
        if !version.is_at_least(minimum) {
            bail!("{package} is {version}, older than {minimum}");
        }
        let origin = format!("Debian {suite} ({package} {version})");
        eprintln!("fetching the root `{}` from {origin}", self.name);
        let packages = if self.with_dependencies {
            apt.download_with_dependencies(self.packages)?
        } else {
            apt.download(self.packages)?
        };
        lay_out(folder)?;
        packages.unpack(folder)?;
        for (architecture, package) in self.foreign {
            Apt::of_suite_for(suite, Some(architecture))?.download(&[package])?.unpack(folder)?;
        }
        for (name, target) in self.links {
            std::os::unix::fs::symlink(target, folder.join(name))
                .with_context(|| format!("cannot create the link {name}"))?;
        }
        Ok(origin)
    }
}

/// Creates the folders that every Debian has and none of these packages contains. `/bin` and the
/// like are links, as in Debian.
fn lay_out(root: &Path) -> Result<()> {
    for folder in ["proc", "sys", "dev", "run", "tmp", "root", "mnt", "etc", "var/run", "usr"] {
        std::fs::create_dir_all(root.join(folder))?;
    }
    for merged in ["bin", "sbin", "lib", "lib64"] {
        std::fs::create_dir_all(root.join("usr").join(merged))?;
        std::os::unix::fs::symlink(format!("usr/{merged}"), root.join(merged))?;
    }
    std::fs::write(
        root.join("etc/passwd"),
        "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n",
    )?;
    std::fs::write(root.join("etc/group"), "root:x:0:\nnogroup:x:65534:\n")?;
    std::fs::write(root.join("etc/hosts"), "127.0.0.1 localhost\n::1 localhost\n")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[ignore = "needs the package archive: cargo xtask vm test runs it"]
    fn what_is_not_to_be_had_is_said_for_each_suite() {
        let root = |packages, minimum| Root {
            name: "test-of-what-is-missing",
            suites: &["bookworm"],
            packages,
            minimum,
            with_dependencies: true,
            foreign: &[],
            links: &[],
        };
        let missing = root(&["no-such-package"], ("rdma-core", "1")).get().unwrap_err().to_string();
        assert!(missing.contains("bookworm: ") && missing.contains("no-such-package"), "{missing}");
        let too_old = root(&["rdma-core"], ("rdma-core", "9999")).get().unwrap_err().to_string();
        assert!(too_old.contains("older than 9999"), "{too_old}");
        let unknown = root(&["rdma-core"], ("no-such-package", "1")).get().unwrap_err().to_string();
        assert!(unknown.contains("it has no package no-such-package"), "{unknown}");
    }
}
