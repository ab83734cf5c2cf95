//! The results of trying every rail of this host with every rail of the peer.
//!
//! These are figures and errors, without a judgement.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use farreach_verbs::ah::GidEntry;
use serde::{Deserialize, Serialize};

/// What was tried between two hosts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct PairReadings {
    /// What the peer is called: by itself, or as it was typed where that is this host's name too.
    pub peer: String,
    /// The connection on which the two agree on everything; none where an older farreach has tried.
    #[serde(default)]
    pub control: Option<Control>,
    /// Whether only some of this side's rails were asked for.
    pub is_restricted: bool,
    /// Each rail of this host with each of the peer's.
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

/// The control connection: TCP, to where `farreach serve` listens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Control {
    /// This host's address and port.
    pub here: String,
    /// The peer's.
    pub there: String,
    /// Whether it is encrypted.
    pub is_tls: bool,
    /// Until the peer's process has answered a first word.
    pub round_trip_ns: u64,
}

impl Control {
    /// Creates a connection from the address `here` to the address `there`, without TLS.
    pub fn new(here: SocketAddr, there: SocketAddr, round_trip: Duration) -> Self {
        let round_trip_ns = round_trip.as_nanos() as u64;
        Self { here: here.to_string(), there: there.to_string(), is_tls: false, round_trip_ns }
    }
}

/// One rail of this host with one of the peer's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Cell {
    /// This host's rail.
    pub local: String,
    /// The peer's rail.
    pub remote: String,
    /// Of cards, until a WRITE of 256 bytes is acknowledged; of others, until a message is answered. The median.
    pub round_trip_ns: Option<u64>,
    /// Of long writes, or of pages.
    pub rate_bits_per_second: Option<u64>,
    /// What ended it, where that is not among what was tried of the cards.
    pub trouble: Option<Trouble>,
    /// Of two RDMA cards.
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

/// What two cards were tried with, one step after the other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct CardsTried {
    /// This host's card.
    pub local: CardEnd,
    /// The peer's card.
    pub remote: CardEnd,
    /// Datagrams that each side has sent.
    pub datagrams: u32,
    /// Of those, what came to the peer.
    pub there: Arrived,
    /// Of those, what came to this host.
    pub back: Arrived,
    /// This side's reliable queue pair.
    pub connected_here: Tried,
    /// The peer's.
    pub connected_there: Tried,
    /// The packets that both ports take.
    pub path_mtu_bytes: u32,
    /// A WRITE of one small packet.
    pub short: Tried,
    /// A WRITE of full packets.
    pub long_there: Tried,
    /// A READ of full packets: those come from the peer.
    pub long_back: Tried,
    /// Where full packets are lost: the largest that are not.
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

/// One end of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct CardEnd {
    /// The number of its port.
    pub port: u8,
    /// The kernel's driver, where sysfs tells.
    pub driver: Option<String>,
    /// `Ethernet` or `InfiniBand`
    pub link_layer: String,
    /// The port's active MTU.
    pub mtu_bytes: u32,
    /// The GID that was used.
    pub gid: GidReading,
    /// All of the port's.
    pub gids: Vec<GidReading>,
}

impl CardEnd {
    /// Creates a port that uses this GID, without a driver or a GID table.
    pub fn new(port: u8, link_layer: impl Into<String>, gid: GidReading) -> Self {
        Self { port, driver: None, link_layer: link_layer.into(), mtu_bytes: 0, gid, gids: Vec::new() }
    }
}

/// One place of a port's GID table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct GidReading {
    /// Its place.
    pub index: u32,
    /// As an IPv6 address.
    pub gid: String,
    /// `RoCE v2`, `RoCE v1` or `IB`
    pub kind: String,
    /// The IP address that it stands for; null on InfiniBand.
    pub address: Option<IpAddr>,
    /// The net device that it is an address of.
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
    /// How many came; null where none could be sent.
    pub count: Option<u32>,
    /// Why none could be sent.
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

/// What came of one step.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Tried {
    /// An earlier step has failed.
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

/// What went wrong, with the words of who has seen it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Trouble {
    /// What kind of trouble it is.
    pub obstacle: Obstacle,
    /// What failed.
    pub error: String,
    /// Why, where that is known.
    pub cause: Option<String>,
    /// What to do, where that is known.
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

/// What kind of trouble it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Obstacle {
    /// ENETUNREACH: no route from the GID's net device.
    NoRoute,
    /// ETIMEDOUT: nobody says that the address is his.
    NoNeighbour,
    /// One GID is IPv4, and the other IPv6.
    GidFamilies,
    /// ENODEV: the GID has no net device that can be used.
    NoNetDevice,
    /// Sent again and again, and never acknowledged.
    Unanswered,
    /// Bytes came that were not sent.
    Mismatch,
    /// It took longer than anything that works.
    Silent,
    /// Something else: the words of the error tell.
    Other,
}

/// A rail that was not tried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct LeftOut {
    /// Its name.
    pub rail: String,
    /// Why it was not.
    pub reason: String,
}

impl LeftOut {
    /// Creates an entry for this rail, with the reason.
    pub fn new(rail: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { rail: rail.into(), reason: reason.into() }
    }
}
