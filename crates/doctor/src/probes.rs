//! The values of a pack that are in no file: answers of the kernel and the two libraries, and
//! results of trials.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A value that was requested, or the reason why there is none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Reading<T> {
    /// The value.
    Read(T),
    /// The reason why the value could not be read.
    Unread(String),
    /// The reason why the value was deliberately not read.
    LeftOut(String),
}

/// Part of the reason of a [`Reading`] whose source did not answer in time.
pub const NO_ANSWER: &str = "no answer within";

impl<T> Reading<T> {
    /// Returns the value, or the reason why there is none.
    pub fn get(&self) -> Result<&T, &str> {
        match self {
            Self::Read(value) => Ok(value),
            Self::Unread(reason) | Self::LeftOut(reason) => Err(reason),
        }
    }
}

impl<T> Default for Reading<T> {
    fn default() -> Self {
        Self::Unread("not in this pack: an older farreach recorded it".to_owned())
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

/// The values of a host that are in no file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
#[non_exhaustive]
pub struct Probes {
    /// Whether the kernel has the netlink family that lists RDMA devices.
    pub rdma_netlink: Reading<bool>,
    /// Whether network namespaces share devices (`shared`), or each has its own (`exclusive`).
    pub rdma_namespaces: Reading<String>,
    /// The number of resources in use, by device and kind: `qp`, `cq`, `mr`, `pd`, `cm_id`, `ctx`, `srq`.
    pub resources: Reading<BTreeMap<String, BTreeMap<String, u64>>>,
    /// The result of opening each node in /dev/infiniband, by name (`uverbs0`): null, or the error with its name (`EACCES`, `EPERM`).
    pub nodes: Reading<BTreeMap<String, Option<String>>>,
    /// The growth of each port counter within about 1 s, by the counter's file. Counters that did not grow are omitted.
    pub counters_growth: Reading<BTreeMap<String, u64>>,
    /// The net devices of this network namespace, with their addresses.
    pub interfaces: Reading<Vec<NetInterface>>,
    /// The chains of the packet filters.
    pub firewall: Reading<Vec<Chain>>,
    /// Data centre bridging, by net device of an RDMA device. Net devices whose driver does not report it are omitted.
    pub dcb: Reading<BTreeMap<String, Dcb>>,
    /// The PCI access control services (ACS) of the bridges between each RDMA card and its root port, by the bridge's PCI address.
    pub acs: Reading<BTreeMap<String, Acs>>,
    /// The answers of libibverbs.
    pub verbs: Reading<Verbs>,
    /// The answers of libfabric.
    pub fabric: Reading<Fabric>,
    /// The kernel's answers to what the rail within a host (shm) needs.
    pub shm: Reading<Shm>,
    /// The results of transfers from this host to itself, by rail.
    pub transfers: Reading<BTreeMap<String, Trial>>,
}

/// A net device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct NetInterface {
    /// The name, such as `eth0`.
    pub name: String,
    /// Whether it is up.
    pub is_up: bool,
    /// Its addresses.
    pub addresses: Vec<std::net::IpAddr>,
}

/// A chain of a packet filter that packets of this host pass.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Chain {
    /// The family, table and name, such as `inet filter input`.
    pub name: String,
    /// The hook: `input`, `output`, `prerouting`, `postrouting`, `ingress` or `egress`.
    pub hook: String,
    /// The policy for packets that no rule matches: `accept` or `drop`.
    pub policy: String,
    /// The rules that match UDP port 4791 or the TCP port of `farreach serve`, in order. Other rules are omitted.
    pub rules: Vec<Rule>,
}

/// A rule that matches one of the ports that Farreach uses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Rule {
    /// The port: `udp 4791` or `tcp 18520`.
    pub port: String,
    /// The verdict: `accept`, `drop` or `reject`.
    pub verdict: String,
    /// Whether the rule matches only some packets of the port: by address, interface or length.
    pub is_partial: bool,
}

/// The data centre bridging (DCB) settings of a net device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Dcb {
    /// The priorities with priority flow control (PFC).
    pub lossless_priorities: Vec<u8>,
    /// The source of a packet's priority: `dscp` or `pcp`. Null if the driver does not report it.
    pub trust: Option<String>,
    /// The priority of each DSCP that has one configured; that of any other DSCP is the DSCP divided by 8. Null if the driver does not report it.
    #[serde(default)]
    pub dscp_priorities: Option<BTreeMap<u8, u8>>,
}

/// The access control services (ACS) of one PCI bridge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Acs {
    /// Whether requests from one card to another are redirected to the root complex.
    pub redirects_requests: bool,
    /// Whether completions are redirected.
    pub redirects_completions: bool,
}

/// The answers of libibverbs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Verbs {
    /// The file of the library.
    pub library: String,
    /// Whether a process may fork while its memory is registered; null if the kernel does not report it.
    pub is_fork_safe: Option<bool>,
    /// The devices, by name.
    pub devices: BTreeMap<String, VerbsDevice>,
}

/// A device that libibverbs lists.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct VerbsDevice {
    /// The error of opening the device, or null.
    pub error: Option<String>,
    /// The maximum number of queue pairs.
    pub queue_pairs_max: u64,
    /// The size of the on-chip memory.
    pub on_chip_memory_bytes: u64,
    /// The ports, by number.
    pub ports: BTreeMap<String, VerbsPort>,
    /// The error of registering 1 MiB, or null.
    pub trial_registration: Option<String>,
    /// The error of creating a queue pair, or null.
    pub trial_queue_pair: Option<String>,
}

/// A port that libibverbs reports.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct VerbsPort {
    /// The active MTU; null if it is not an MTU of verbs.
    pub active_mtu_bytes: Option<u32>,
    /// The largest MTU; null if it is not an MTU of verbs.
    pub max_mtu_bytes: Option<u32>,
}

/// The answers of libfabric.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Fabric {
    /// The file of the library.
    pub library: String,
    /// The version, such as `2.1`.
    pub version: String,
    /// The usable providers, each with its domains.
    pub providers: BTreeMap<String, Vec<String>>,
}

/// The kernel's answers to what the rail within a host (shm) needs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Shm {
    /// The calls that were refused, in the order of their use.
    pub refused: Vec<Refused>,
    /// The error of the seal against writing (`F_SEAL_FUTURE_WRITE`), or null.
    pub read_only_seal: Option<String>,
    /// The error of the call that tells the process at the other end of a socket in any pid namespace (`SO_PEERPIDFD`), or null.
    #[serde(default)]
    pub peer_pidfd: Option<String>,
    /// The directory that was named with `--shm-dir`, or null.
    #[serde(default)]
    pub directory: Option<ShmDirectory>,
}

/// The directory in which processes meet over the rail within a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct ShmDirectory {
    /// Its path.
    pub path: String,
    /// The user of the process that tried it.
    pub user: u32,
    /// The number of this user outside of the user namespace of the process; null if it is not known.
    pub user_outside: Option<u32>,
    /// Its owner; null if it was not read.
    pub owner: Option<u32>,
    /// Its mode, such as `0700`; null if it was not read.
    pub mode: Option<String>,
    /// Why it cannot be used; null if a link was made through it.
    pub problem: Option<ShmDirectoryProblem>,
}

/// The reason why a directory cannot be used for the rail within a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ShmDirectoryProblem {
    /// It belongs to another user.
    OtherOwner,
    /// Other users can write to it, and it is not sticky.
    OthersCanWrite,
    /// A call failed.
    Refused(Refused),
    /// It was not tried, for this reason.
    NotTried(String),
}

/// A call that the kernel refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Refused {
    /// The call, such as `memfd_create`, or the file that could not be read.
    pub call: String,
    /// The error with its name, such as `Operation not permitted (EPERM)`.
    pub error: String,
}

impl Refused {
    pub(crate) fn new(call: &str, error: String) -> Self {
        Self { call: call.to_owned(), error }
    }
}

/// The result of a transfer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Trial {
    /// It worked.
    Worked {
        /// Half of the median round trip of short messages.
        latency_ns: u64,
        /// The rate at which pages were written and verified.
        rate_bits_per_second: u64,
        /// The number of bytes written.
        bytes: u64,
    },
    /// It failed.
    Failed {
        /// The operation that failed.
        error: String,
        /// The cause, if it is known.
        cause: Option<String>,
        /// The fix, if one is known.
        fix: Option<String>,
    },
}
