//! What happens in the network, each at its time.

use farreach_proto::inflight::SlotId;

/// An action that happens at its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    /// A card reads a part of a work request's bytes, and sends it.
    Depart {
        operation: SlotId,
        part: u8,
    },
    /// A part arrives at the peer's memory.
    Land {
        operation: SlotId,
        part: u8,
    },
    /// All parts have arrived: the peer is notified.
    Deliver {
        operation: SlotId,
    },
    /// A part of an answer arrives at the requesting side.
    Answer {
        operation: SlotId,
        part: u8,
    },
    /// The work request is completed.
    Finish {
        operation: SlotId,
    },
    /// A card binds a key to a link.
    Bind {
        end: usize,
        key: usize,
        tag: u64,
    },
    /// The peers confirm that they do not use an ended key any more.
    ConfirmKey {
        key: usize,
    },
    /// A card has proven by itself that an ended key has ended.
    ProveKey {
        key: usize,
    },
    /// A card gives up a link.
    Break {
        end: usize,
    },
    KillLink {
        end: usize,
    },
    CutCable {
        card: usize,
    },
    MendCable {
        card: usize,
    },
    StopHost {
        host: usize,
    },
    KillHost {
        host: usize,
    },
    /// Nothing, except that the driver should poll.
    Wake,
}

impl Action {
    /// Returns the operation that it refers to.
    pub(super) fn operation(self) -> Option<SlotId> {
        match self {
            Self::Depart { operation, .. }
            | Self::Land { operation, .. }
            | Self::Deliver { operation }
            | Self::Answer { operation, .. }
            | Self::Finish { operation } => Some(operation),
            _ => None,
        }
    }
}
