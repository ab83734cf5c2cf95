//! The Debian roots of guests.

use crate::debian::Root;

/// The user space of a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, clap::ValueEnum)]
pub(crate) enum Userland {
    /// The newest rdma-core and libfabric in Debian.
    Newest,
    /// Debian 12: rdma-core 44, libfabric 1.17.
    Debian12,
}

impl Userland {
    /// Both generations of the libraries, the older first.
    pub(crate) const BOTH: [Self; 2] = [Self::Debian12, Self::Newest];

    pub(crate) fn root(self) -> &'static Root<'static> {
        match self {
            Self::Newest => &NEWEST,
            Self::Debian12 => &DEBIAN12,
        }
    }
}

/// The packages for device tests and for interactive use: the two libraries with their tools,
/// perftest, and programs that cause and show faults.
const PACKAGES: &[&str] = &[
    "bash",
    "bsdutils",
    "busybox-static",
    "coreutils",
    "dash",
    "ethtool",
    "gawk",
    "grep",
    "ibverbs-providers",
    "ibverbs-utils",
    "iproute2",
    "iputils-ping",
    "kmod",
    "libfabric-bin",
    "libfabric1",
    "mount",
    "nftables",
    "perftest",
    "procps",
    "rdma-core",
    "rdmacm-utils",
    "sed",
    "strace",
    "tcpdump",
    "util-linux",
    "valgrind",
];

/// One of Debian's alternatives, which an installation would set up.
const AWK: (&str, &str) = ("usr/bin/awk", "gawk");

/// Also one of Debian's alternatives. libfabric 1.17 does not load without it.
pub(crate) const PSM: (&str, &str) =
    ("usr/lib/x86_64-linux-gnu/libpsm_infinipath.so.1", "/usr/lib/libpsm1/libpsm_infinipath.so.1.16");

const NEWEST: Root<'static> = Root {
    name: "guest-newest",
    suites: &["unstable", "testing"],
    packages: PACKAGES,
    // FLUSH is not in 44; the newest bound layouts came with 60 and later.
    minimum: ("rdma-core", "60"),
    with_dependencies: true,
    foreign: &[],
    links: &[AWK],
};

const DEBIAN12: Root<'static> = Root {
    name: "guest-debian12",
    suites: &["bookworm"],
    packages: PACKAGES,
    minimum: ("rdma-core", "44"),
    with_dependencies: true,
    foreign: &[],
    links: &[AWK, PSM],
};
