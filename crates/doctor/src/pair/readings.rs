//! The results of trying every rail of this host with every rail of the peer.
//!
//! These are figures and errors, without a judgement.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use farreach_verbs::ah::GidEntry;
use serde::{Deserialize, Serialize};

/// The results of the trials between two hosts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct PairReadings {
    /// The name that the peer announced, or the name that was typed if both hosts have the same name.
    pub peer: String,
    /// The control connection; null in readings of an older farreach.
    #[serde(default)]
    pub control: Option<Control>,
    /// Whether only some rails of this host were requested.
    pub is_restricted: bool,
    /// Each rail of this host with each rail of the peer.
    pub cells: Vec<Cell>,
    /// Rails that were not tried.
    pub left_out: Vec<LeftOut>,
}

impl PairReadings {
    /// Creates readings of a peer, without any trials.
    pub fn new(peer: impl Into<String>) -> Self {
        Self {
            peer: peer.into(),
            control: None,
            is_restricted: false,
            cells: Vec::new(),
            left_out: Vec::new(),
        }
    }
}

impl PairReadings {
    /// Returns the addresses of both hosts on the control connection.
    pub(crate) fn addresses(&self) -> Option<(IpAddr, IpAddr)> {
        let ip = |address: &str| address.parse::<SocketAddr>().ok().map(|address| address.ip());
        let control = self.control.as_ref()?;
        Some((ip(&control.here)?, ip(&control.there)?))
    }
}

/// The control connection: the TCP connection to `farreach serve`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Control {
    /// This host's address and port.
    pub here: String,
    /// The peer's address and port.
    pub there: String,
    /// Whether it uses TLS.
    pub is_tls: bool,
    /// The time until the first answer of the peer's process.
    pub round_trip_ns: u64,
}

impl Control {
    /// Creates a connection from the address `here` to the address `there`, without TLS.
    pub fn new(here: SocketAddr, there: SocketAddr, round_trip: Duration) -> Self {
        let round_trip_ns = round_trip.as_nanos() as u64;
        Self { here: here.to_string(), there: there.to_string(), is_tls: false, round_trip_ns }
    }
}

/// The trial of one rail of this host with one rail of the peer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Cell {
    /// This host's rail.
    pub local: String,
    /// The peer's rail.
    pub remote: String,
    /// The median time until a WRITE of 256 bytes is acknowledged (cards), or until a message is answered (other rails).
    pub round_trip_ns: Option<u64>,
    /// The rate of long writes (cards), or of pages (other rails).
    pub rate_bits_per_second: Option<u64>,
    /// The error that ended the trial, unless it is one of the results in `cards`.
    pub trouble: Option<Trouble>,
    /// The results of each step, if both rails are RDMA cards.
    pub cards: Option<CardsTried>,
}

impl Cell {
    /// Creates a cell for two rails that were not tried yet.
    pub fn new(local: &str, remote: &str) -> Self {
        Self {
            local: local.to_owned(),
            remote: remote.to_owned(),
            round_trip_ns: None,
            rate_bits_per_second: None,
            trouble: None,
            cards: None,
        }
    }
}

/// The results of a trial between two cards, step by step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct CardsTried {
    /// This host's card.
    pub local: CardEnd,
    /// The peer's card.
    pub remote: CardEnd,
    /// The number of datagrams that each side sent.
    pub datagrams: u32,
    /// The datagrams that arrived at the peer.
    pub there: Arrived,
    /// The datagrams that arrived at this host.
    pub back: Arrived,
    /// Connecting this side's reliable queue pair.
    pub connected_here: Tried,
    /// Connecting the peer's reliable queue pair.
    pub connected_there: Tried,
    /// The smaller of both ports' MTUs.
    pub path_mtu_bytes: u32,
    /// A WRITE of one small packet.
    pub short: Tried,
    /// A WRITE of full packets.
    pub long_there: Tried,
    /// A READ of full packets, which the peer sends.
    pub long_back: Tried,
    /// If full packets are lost: the largest packet size that works.
    pub mtu_that_works_bytes: Option<u32>,
}

impl CardsTried {
    /// Creates the results of two cards before the first step. Each side will send this many
    /// datagrams.
    pub fn new(local: CardEnd, remote: CardEnd, datagrams: u32) -> Self {
        Self {
            path_mtu_bytes: local.mtu_bytes.min(remote.mtu_bytes),
            local,
            remote,
            datagrams,
            there: Arrived::default(),
            back: Arrived::default(),
            connected_here: Tried::NotYet,
            connected_there: Tried::NotYet,
            short: Tried::NotYet,
            long_there: Tried::NotYet,
            long_back: Tried::NotYet,
            mtu_that_works_bytes: None,
        }
    }
}

/// A card in a trial.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct CardEnd {
    /// The port number.
    pub port: u8,
    /// The kernel's driver; null if sysfs does not state it.
    pub driver: Option<String>,
    /// The link layer: `Ethernet` or `InfiniBand`.
    pub link_layer: String,
    /// The port's active MTU.
    pub mtu_bytes: u32,
    /// The GID that was used.
    pub gid: GidReading,
    /// All GIDs of the port.
    pub gids: Vec<GidReading>,
}

impl CardEnd {
    /// Creates a port that uses this GID, without a driver or a GID table.
    pub fn new(port: u8, link_layer: impl Into<String>, gid: GidReading) -> Self {
        Self { port, driver: None, link_layer: link_layer.into(), mtu_bytes: 0, gid, gids: Vec::new() }
    }
}

/// One entry of a port's GID table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct GidReading {
    /// The index in the table.
    pub index: u32,
    /// The GID, written as an IPv6 address.
    pub gid: String,
    /// The type: `RoCE v2`, `RoCE v1` or `IB`.
    pub kind: String,
    /// The IP address that the GID represents; null on InfiniBand.
    pub address: Option<IpAddr>,
    /// The net device that has this address.
    pub net_device: Option<String>,
}

impl From<&GidEntry> for GidReading {
    fn from(entry: &GidEntry) -> Self {
        Self {
            index: entry.index,
            gid: entry.gid.to_string(),
            kind: entry.gid_type.to_string(),
            address: entry.address(),
            net_device: entry.net_device.as_ref().map(ToString::to_string),
        }
    }
}

/// Datagrams of one direction.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Arrived {
    /// The number that arrived; null if none could be sent.
    pub count: Option<u32>,
    /// The error if none could be sent.
    pub trouble: Option<Trouble>,
}

impl Arrived {
    /// Creates the result that this many arrived.
    pub fn counted(count: u32) -> Self {
        Self { count: Some(count), trouble: None }
    }

    /// Creates the result that none could be sent.
    pub fn unsent(trouble: Trouble) -> Self {
        Self { count: None, trouble: Some(trouble) }
    }
}

/// The result of one step.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Tried {
    /// Not tried, because an earlier step failed.
    #[default]
    NotYet,
    /// It worked.
    Worked,
    /// It failed.
    Failed(Trouble),
}

impl Tried {
    /// Returns the error of a step that failed.
    pub fn trouble(&self) -> Option<&Trouble> {
        match self {
            Self::Failed(trouble) => Some(trouble),
            Self::NotYet | Self::Worked => None,
        }
    }
}

impl<T> From<&Result<T, Trouble>> for Tried {
    fn from(result: &Result<T, Trouble>) -> Self {
        match result {
            Ok(_) => Self::Worked,
            Err(trouble) => Self::Failed(trouble.clone()),
        }
    }
}

/// An error in a trial.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Trouble {
    /// The kind of the error.
    pub obstacle: Obstacle,
    /// The operation that failed.
    pub error: String,
    /// The cause, if it is known.
    pub cause: Option<String>,
    /// The fix, if one is known.
    pub fix: Option<String>,
}

impl Trouble {
    /// Creates an error without a known cause or fix.
    pub fn new(obstacle: Obstacle, error: impl Into<String>) -> Self {
        Self { obstacle, error: error.into(), cause: None, fix: None }
    }

    /// Returns the error in one line, without the fix.
    pub fn sentence(&self) -> String {
        match &self.cause {
            Some(cause) => format!("{}: {cause}", self.error),
            None => self.error.clone(),
        }
    }
}

impl Obstacle {
    /// Returns whether a kernel has no route to the other's address. Nothing else need be tried
    /// then.
    pub fn is_of_the_way(self) -> bool {
        matches!(self, Self::NoRoute | Self::NoNeighbour | Self::GidFamilies | Self::NoNetDevice)
    }
}

/// The kind of an error in a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Obstacle {
    /// ENETUNREACH: no route from the GID's net device.
    NoRoute,
    /// ETIMEDOUT: no neighbour answers for the address.
    NoNeighbour,
    /// One GID is IPv4, and the other IPv6.
    GidFamilies,
    /// ENODEV: the GID has no usable net device.
    NoNetDevice,
    /// Packets were retransmitted and never acknowledged.
    Unanswered,
    /// The received bytes differ from those sent.
    Mismatch,
    /// No answer within the time limit.
    Silent,
    /// Any other error; `error` describes it.
    Other,
}

/// A rail that was not tried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct LeftOut {
    /// The name of the rail.
    pub rail: String,
    /// The reason why it was not tried.
    pub reason: String,
}

impl LeftOut {
    /// Creates an entry for this rail, with the reason.
    pub fn new(rail: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { rail: rail.into(), reason: reason.into() }
    }
}
