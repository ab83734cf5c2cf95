//! The C headers that the bindings are generated from and compared with.

use std::path::PathBuf;

use anyhow::Result;

use crate::debian::Root;

/// The rdma-core and libfabric headers of a Debian release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum HeaderSet {
    /// rdma-core 44, libfabric 1.17.
    Debian12,
    /// The newest versions in Debian.
    Newest,
}

impl HeaderSet {
    /// Returns the folder for the compiler's option `-I`.
    pub(crate) fn include_folder(self) -> Result<PathBuf> {
        let root = match self {
            Self::Debian12 => &DEBIAN12,
            Self::Newest => &NEWEST,
        };
        Ok(root.get()?.path.join("usr/include"))
    }
}

const PACKAGES: &[&str] = &["libibverbs-dev", "librdmacm-dev", "libfabric-dev"];

const DEBIAN12: Root<'static> = Root {
    name: "headers-debian12",
    suites: &["bookworm"],
    packages: PACKAGES,
    minimum: ("libibverbs-dev", "44"),
    with_dependencies: false,
    foreign: &[],
    links: &[],
};

const NEWEST: Root<'static> = Root {
    name: "headers-newest",
    suites: &["unstable", "testing"],
    packages: PACKAGES,
    minimum: ("libibverbs-dev", "60"),
    with_dependencies: false,
    foreign: &[],
    links: &[],
};
