//! The messages between the two sides, on the connection itself: a channel over a rail would not
//! work if the rail does not.
//!
//! ```text
//! client                                  agent
//!   Task::Look ────────────────────────────▶
//!                              ◀──── Looking       at once
//!                              ◀──── HostTold      its pack and rails
//!
//!   Task::Cards, on a connection of its own ─▶
//!                              ◀──── CardTold      its card, and its address for datagrams
//!   Step::Datagrams ───────────────────────▶      the client has sent its own
//!                              ◀──── DatagramsTold how many arrived; it has sent as many
//!   Step::Connect ─────────────────────────▶      once for each packet size
//!                              ◀──── ConnectTold   its queue pair, and the memory behind it
//!   Step::Enough ──────────────────────────▶
//! ```

use serde::{Deserialize, Serialize};

use crate::bounds;
use crate::exit::Failure;
use crate::native::{End, Place};
use farreach_doctor::Pack;
use farreach_doctor::pair::readings::{CardEnd, Tried, Trouble};

/// The task of an agent.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Task {
    /// Collect the pack of its host.
    Look,
    /// Try its card of this name with one of the client's.
    Cards { server: String, client: String },
    /// Answer over a rail of an engine.
    Engine,
}

impl Task {
    /// Returns an error unless every name is within its bound.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        match self {
            Self::Look | Self::Engine => Ok(()),
            Self::Cards { server, client } => {
                bounds::NAME_BYTES.check(server.len())?;
                bounds::NAME_BYTES.check(client.len())
            }
        }
    }

    /// Returns the memory that the agent needs: its pages, or a pack as text and as values.
    pub(crate) fn memory_bytes(&self) -> u64 {
        match self {
            Self::Look => 64 << 20,
            Self::Cards { .. } | Self::Engine => 16 << 20,
        }
    }

    /// Returns whether the task is done on the connection itself.
    pub(crate) fn is_without_engine(&self) -> bool {
        !matches!(self, Self::Engine)
    }

    /// Describes the task, for the log.
    pub(crate) fn words(&self) -> String {
        match self {
            Self::Look => "checks of this host".to_owned(),
            Self::Cards { server, client } => format!("trial of {server} with the client's {client}"),
            Self::Engine => "trial of a rail without a card".to_owned(),
        }
    }
}

/// The agent has received the task.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Looking;

/// The agent's host.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct HostTold {
    #[serde(deserialize_with = "farreach_text::lines")]
    pub(super) rails: Vec<String>,
    pub(super) pack: Box<Pack>,
}

/// The agent's card.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct CardTold {
    pub(super) card: CardEnd,
    /// `None` if the card has no datagrams.
    pub(super) datagrams: Option<End>,
}

/// The next step of the client.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Step {
    /// The client has sent its datagrams. The agent sends its own to this address.
    Datagrams {
        to: End,
    },
    /// Connect a reliable queue pair with packets of this size.
    Connect {
        end: End,
        mtu_bytes: u32,
    },
    Enough,
}

/// The agent's results for datagrams.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct DatagramsTold {
    pub(super) arrived: u32,
    /// The reason why it could send none.
    pub(super) trouble: Option<Trouble>,
}

/// The agent's results for a reliable queue pair.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ConnectTold {
    /// `None` if there is no queue pair.
    pub(super) end: Option<(End, Place)>,
    pub(super) tried: Tried,
}
