//! A root folder made of unpacked packages: enough of a Debian to run programs in, without installing anything.

use std::path::Path;

use anyhow::{Context, Result, bail};

use super::Apt;
use crate::cache;

/// A root folder to be had: its name, where its packages come from, and what they are.
#[derive(Debug, Clone, Copy, Hash)]
pub(crate) struct Root<'a> {
    pub(crate) name: &'a str,
    /// Tried in turn until one gives every package.
    pub(crate) suites: &'a [&'a str],
    pub(crate) packages: &'a [&'a str],
    /// A package, and the version below which a suite is not good enough.
    pub(crate) minimum: (&'a str, &'a str),
    /// Whether the packages' dependencies come along: yes for a root to run programs in, no for headers.
    pub(crate) with_dependencies: bool,
    /// Packages `(architecture, package)` of another processor, without their dependencies.
    pub(crate) foreign: &'a [(&'a str, &'a str)],
    /// Links `(name, target)` that a package makes when it is installed, which unpacking it does not.
    pub(crate) links: &'a [(&'a str, &'a str)],
}

impl Root<'_> {
    /// The unpacked root; fetched the first time, from the cache afterwards.
    pub(crate) fn get(&self) -> Result<cache::Entry> {
        cache::entry("roots", self.name, self, self.suites, |suite, folder| self.fetch(suite, folder))
    }

    /// Makes the root in an empty folder; the suite and its most telling version.
    fn fetch(&self, suite: &str, folder: &Path) -> Result<String> {
        let apt = Apt::of_suite(suite)?;
        let (package, minimum) = self.minimum;
        let version = apt.version_of(package)?.with_context(|| format!("there is no {package}"))?;
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
                .with_context(|| format!("cannot make the link {name}"))?;
        }
        Ok(origin)
    }
}

/// The folders that every Debian has and no package of ours brings; `/bin` and its like are links, as Debian has it.
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
    #[ignore = "asks the package archive: cargo xtask vm test runs it"]
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
        assert!(unknown.contains("there is no no-such-package"), "{unknown}");
    }
}
