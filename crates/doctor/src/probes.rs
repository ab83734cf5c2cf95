//! The values of a pack that are in no file: answers of the kernel and the two libraries, and
//! results of trials.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Something that was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Reading<T> {
    /// The answer.
    Read(T),
    /// Why there is none.
    Unread(String),
    /// Why it was not asked for: somebody wished so.
    LeftOut(String),
}

impl<T> Reading<T> {
    /// Returns the answer, or the reason why there is none.
    pub fn get(&self) -> Result<&T, &str> {
        match self {
            Self::Read(value) => Ok(value),
            Self::Unread(reason) | Self::LeftOut(reason) => Err(reason),
        }
    }
}

impl<T> Default for Reading<T> {
    fn default() -> Self {
        Self::Unread("not in this pack: an older farreach has made it".to_owned())
    }
}

impl<T, E: std::fmt::Display> From<Result<T, E>> for Reading<T> {
    fn from(result: Result<T, E>) -> Self {
        match result {
            Ok(value) => Self::Read(value),
            Err(error) => Self::Unread(error.to_string()),
        }
    }
}

/// All of them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
#[non_exhaustive]
pub struct Probes {
    /// Whether the kernel has the netlink family that RDMA devices are listed by.
    pub rdma_netlink: Reading<bool>,
    /// Whether network namespaces share devices (`shared`), or each has its own (`exclusive`).
    pub rdma_namespaces: Reading<String>,
    /// What is in use, by device and kind: `qp`, `cq`, `mr`, `pd`, `cm_id`, `ctx`, `srq`.
    pub resources: Reading<BTreeMap<String, BTreeMap<String, u64>>>,
    /// What came of opening each node in /dev/infiniband that a program opens, by its name (`uverbs0`): null, or the error with its name (`EACCES`, `EPERM`).
    pub nodes: Reading<BTreeMap<String, Option<String>>>,
    /// How much each counter of each port grew within about a second, by the counter's file; those that stood still are left out.
    pub counters_growth: Reading<BTreeMap<String, u64>>,
    /// The net devices of this network namespace, with their addresses.
    pub interfaces: Reading<Vec<NetInterface>>,
    /// What filters packets.
    pub firewall: Reading<Vec<Chain>>,
    /// Priorities without loss, by net device of an RDMA device; one whose driver knows nothing of them is left out.
    pub dcb: Reading<BTreeMap<String, Dcb>>,
    /// What access control services do along the way from each RDMA card to its root port, by PCI address of the bridge.
    pub acs: Reading<BTreeMap<String, Acs>>,
    /// What libibverbs says.
    pub verbs: Reading<Verbs>,
    /// What libfabric says.
    pub fabric: Reading<Fabric>,
    /// What came of real transfers from this host to itself, by rail.
    pub transfers: Reading<BTreeMap<String, Trial>>,
}

/// A net device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct NetInterface {
    /// `eth0`
    pub name: String,
    /// Whether it is up.
    pub is_up: bool,
    /// Its addresses.
    pub addresses: Vec<std::net::IpAddr>,
}

/// A chain of a firewall that packets of this host pass.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Chain {
    /// `inet filter input`
    pub name: String,
    /// `input`, `output`, `prerouting`, `postrouting`, `ingress`
    pub hook: String,
    /// What becomes of packets that no rule is for: `accept` or `drop`.
    pub policy: String,
    /// The rules that are for UDP 4791 or for the command's TCP port, in their order; the others are not kept.
    pub rules: Vec<Rule>,
}

/// A rule that is for one of our ports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Rule {
    /// `udp 4791`, `tcp 18520`
    pub port: String,
    /// `accept`, `drop`, `reject`
    pub verdict: String,
    /// Whether it is for some of those packets only: of an address, an interface, a length.
    pub is_partial: bool,
}

/// What data centre bridging says of a net device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Dcb {
    /// The priorities that are paused instead of dropped.
    pub lossless_priorities: Vec<u8>,
    /// `dscp` or `pcp`; null where the driver does not tell.
    pub trust: Option<String>,
    /// The priority of each DSCP that has one set; the others have an eighth of it. Null where the driver does not tell.
    #[serde(default)]
    pub dscp_priorities: Option<BTreeMap<u8, u8>>,
}

/// Access control services of one bridge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Acs {
    /// Whether requests of one card to another are sent up to the root.
    pub redirects_requests: bool,
    /// Whether completions are.
    pub redirects_completions: bool,
}

/// What libibverbs says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Verbs {
    /// The file of the library.
    pub library: String,
    /// Whether memory may be given to a card by a process that forks.
    pub is_fork_safe: Option<bool>,
    /// By name.
    pub devices: BTreeMap<String, VerbsDevice>,
}

/// A device that libibverbs lists.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct VerbsDevice {
    /// Why it could not be opened; null where it was.
    pub error: Option<String>,
    /// How many queue pairs it has.
    pub queue_pairs_max: u64,
    /// How much memory it has of its own.
    pub on_chip_memory_bytes: u64,
    /// By number.
    pub ports: BTreeMap<String, VerbsPort>,
    /// What came of registering 1 MiB: null, or the error.
    pub trial_registration: Option<String>,
    /// What came of making a queue pair: null, or the error.
    pub trial_queue_pair: Option<String>,
}

/// A port as libibverbs sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct VerbsPort {
    /// The MTU in use; null where it is none that verbs knows.
    pub active_mtu_bytes: Option<u32>,
    /// The largest MTU; null where it is none that verbs knows.
    pub max_mtu_bytes: Option<u32>,
}

/// What libfabric says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Fabric {
    /// The file of the library.
    pub library: String,
    /// `2.1`
    pub version: String,
    /// The providers that offer something, each with its domains.
    pub providers: BTreeMap<String, Vec<String>>,
}

/// What came of a real transfer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Trial {
    /// It worked.
    Worked {
        /// Half of the median of short messages there and back.
        latency_ns: u64,
        /// Of whole pages that were written and compared.
        rate_bits_per_second: u64,
        /// How much was written.
        bytes: u64,
    },
    /// It failed.
    Failed {
        /// What failed.
        error: String,
        /// Why, where that is known.
        cause: Option<String>,
        /// What to do, where that is known.
        fix: Option<String>,
    },
}
