//! What came of trying every rail of this host with every one of the peer's: figures and errors, without a judgement.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::exit::Failure;

/// What was tried between two hosts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct PairReadings {
    /// What the peer is called: by itself, or as it was typed where that is this host's name too.
    pub(crate) peer: String,
    /// The connection on which the two agree on everything; none where an older farreach has tried.
    #[serde(default)]
    pub(crate) control: Option<Control>,
    /// Whether only some of this side's rails were asked for.
    pub(crate) is_restricted: bool,
    pub(crate) cells: Vec<Cell>,
    pub(crate) left_out: Vec<LeftOut>,
}

/// The control connection: TCP, to where `farreach serve` listens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Control {
    /// This host's address and port.
    pub(crate) here: String,
    /// The peer's.
    pub(crate) there: String,
    pub(crate) is_tls: bool,
    /// Until the peer's process has answered a first word.
    pub(crate) round_trip_ns: u64,
}

/// One rail of this host with one of the peer's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Cell {
    /// This host's rail.
    pub(crate) local: String,
    /// The peer's rail.
    pub(crate) remote: String,
    /// Of cards, until a WRITE of 256 bytes is acknowledged; of others, until a message is answered. The median.
    pub(crate) round_trip_ns: Option<u64>,
    pub(crate) rate_bits_per_second: Option<u64>,
    /// What ended it, where that is not among what was tried of the cards.
    pub(crate) trouble: Option<Trouble>,
    /// Of two RDMA cards.
    pub(crate) cards: Option<CardsTried>,
}

impl Cell {
    pub(crate) fn new(local: &str, remote: &str) -> Self {
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
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct CardsTried {
    pub(crate) local: CardEnd,
    pub(crate) remote: CardEnd,
    /// Datagrams that each side has sent.
    pub(crate) datagrams: u32,
    /// Of those, what came to the peer.
    pub(crate) there: Arrived,
    /// Of those, what came to this host.
    pub(crate) back: Arrived,
    /// This side's reliable queue pair.
    pub(crate) connected_here: Tried,
    /// The peer's.
    pub(crate) connected_there: Tried,
    /// The packets that both ports take.
    pub(crate) path_mtu_bytes: u32,
    /// A WRITE of one small packet.
    pub(crate) short: Tried,
    /// A WRITE of full packets.
    pub(crate) long_there: Tried,
    /// A READ of full packets: those come from the peer.
    pub(crate) long_back: Tried,
    /// Where full packets are lost: the largest that are not.
    pub(crate) mtu_that_works_bytes: Option<u32>,
}

/// One end of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct CardEnd {
    pub(crate) port: u8,
    pub(crate) driver: Option<String>,
    /// `Ethernet` or `InfiniBand`
    pub(crate) link_layer: String,
    /// The port's active MTU.
    pub(crate) mtu_bytes: u32,
    /// The GID that was used.
    pub(crate) gid: GidReading,
    /// All of the port's.
    pub(crate) gids: Vec<GidReading>,
}

/// One place of a port's GID table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct GidReading {
    pub(crate) index: u32,
    pub(crate) gid: String,
    /// `RoCE v2`, `RoCE v1` or `IB`
    pub(crate) kind: String,
    /// The IP address that it stands for; null on InfiniBand.
    pub(crate) address: Option<IpAddr>,
    pub(crate) net_device: Option<String>,
}

/// Datagrams of one direction.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Arrived {
    /// How many came; null where none could be sent.
    pub(crate) count: Option<u32>,
    /// Why none could be sent.
    pub(crate) trouble: Option<Trouble>,
}

/// What came of one step.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(crate) enum Tried {
    /// An earlier step has failed.
    #[default]
    NotYet,
    Worked,
    Failed(Trouble),
}

impl Tried {
    pub(crate) fn trouble(&self) -> Option<&Trouble> {
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
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Trouble {
    pub(crate) obstacle: Obstacle,
    pub(crate) error: String,
    pub(crate) cause: Option<String>,
    pub(crate) fix: Option<String>,
}

impl Trouble {
    pub(crate) fn new(obstacle: Obstacle, failure: Failure) -> Self {
        let Failure { error, cause, fix, .. } = failure;
        Self { obstacle, error, cause, fix }
    }

    /// In one line, without the fix.
    pub(crate) fn sentence(&self) -> String {
        match &self.cause {
            Some(cause) => format!("{}: {cause}", self.error),
            None => self.error.clone(),
        }
    }
}

impl Obstacle {
    /// Whether a side's kernel has found no way to the other's address: then nothing else need be tried.
    pub(crate) fn is_of_the_way(self) -> bool {
        matches!(self, Self::NoRoute | Self::NoNeighbour | Self::GidFamilies | Self::NoNetDevice)
    }
}

/// What kind of trouble it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(crate) enum Obstacle {
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
    Other,
}

/// A rail that was not tried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct LeftOut {
    pub(crate) rail: String,
    pub(crate) reason: String,
}
