//! What the two sides tell each other, on the connection itself: an engine's words would not get through where a rail does not.
//!
//! ```text
//! client                                  agent
//!   Task::Look ────────────────────────────▶
//!                              ◀──── Looking       at once: how long it takes is told of the connection
//!                              ◀──── HostTold      its pack, and its rails
//!
//!   Task::Cards, on a connection of its own ─▶
//!                              ◀──── CardTold      its card, and where its datagrams go
//!   Step::Datagrams ───────────────────────▶      the client has sent its own
//!                              ◀──── DatagramsTold how many came, and it has sent as many
//!   Step::Connect ─────────────────────────▶      once for each size of packets
//!                              ◀──── ConnectTold   its queue pair, and the memory that it reaches
//!   Step::Enough ──────────────────────────▶
//! ```

use serde::{Deserialize, Serialize};

use crate::native::{End, Place};
use farreach_doctor::Pack;
use farreach_doctor::pair::readings::{CardEnd, Tried, Trouble};

/// What an agent is to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Task {
    /// Tell of its host.
    Look,
    /// Try one of its cards, by this name, with one of the client's.
    Cards { server: String, client: String },
    /// Answer over a rail of an engine.
    Engine,
}

impl Task {
    /// Whether it is done on the connection itself.
    pub(crate) fn is_without_engine(&self) -> bool {
        !matches!(self, Self::Engine)
    }

    /// For the log.
    pub(crate) fn words(&self) -> String {
        match self {
            Self::Look => "what this host is like".to_owned(),
            Self::Cards { server, client } => format!("{server} with its {client}"),
            Self::Engine => "over the rail".to_owned(),
        }
    }
}

/// The agent has heard it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Looking;

/// The agent's host.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct HostTold {
    pub(super) rails: Vec<String>,
    pub(super) pack: Box<Pack>,
}

/// The agent's card.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct CardTold {
    pub(super) card: CardEnd,
    /// None where the card has no datagrams.
    pub(super) datagrams: Option<End>,
}

/// What the client says next.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Step {
    /// It has sent its datagrams; here come those of the agent to.
    Datagrams {
        to: End,
    },
    /// A reliable queue pair with packets of this size.
    Connect {
        end: End,
        mtu_bytes: u32,
    },
    Enough,
}

/// The agent's half of the datagrams.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct DatagramsTold {
    pub(super) arrived: u32,
    /// Why it could send none.
    pub(super) trouble: Option<Trouble>,
}

/// The agent's half of a reliable queue pair.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ConnectTold {
    /// None where there is no queue pair.
    pub(super) end: Option<(End, Place)>,
    pub(super) tried: Tried,
}
