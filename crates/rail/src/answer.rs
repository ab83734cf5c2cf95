//! Answers that have memory in them: what the machine tells by a number, together with what the [carrier](crate::Carrier) holds by it.

use farreach_memory::Exposed;
use farreach_proto::explain::Explanation;
use farreach_proto::machine::TransferFault;

use crate::Held;

/// What became of a transfer.
#[derive(Debug)]
pub struct TransferAnswer {
    /// Whether all pages were moved.
    pub outcome: Result<(), TransferFault>,
    /// The memory; none where a card may still have a part of it.
    pub held: Option<Held>,
    /// How it went.
    pub explanation: Explanation,
}

/// What became of the wish to have memory back.
#[derive(Debug)]
pub enum RevokeAnswer {
    /// It is the user's again; what is proven, its keys tell.
    Back(Exposed),
    /// The grant is in the user's hand again, though the peer was told to stop.
    NotYet(&'static str),
}
