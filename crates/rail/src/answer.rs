//! Answers that contain memory: the machine's result for a number, together with the memory that
//! the [carrier](crate::Carrier) holds for it.

use farreach_memory::Exposed;
use farreach_proto::error::NotRevoked;
use farreach_proto::machine::TransferFault;
use farreach_proto::stats::TransferStats;

use crate::Held;

/// The result of a transfer.
#[derive(Debug)]
pub struct TransferAnswer {
    /// Whether all pages were moved.
    pub outcome: Result<(), TransferFault>,
    /// The memory; `None` if a card may still access a part of it.
    pub held: Option<Held>,
    /// The statistics of the transfer.
    pub stats: TransferStats,
}

/// The result of a revoke.
#[derive(Debug)]
pub enum RevokeAnswer {
    /// The memory is the user's again. Its keys show what is proven.
    Back(Exposed),
    /// The user holds the grant again, although the peer was told to stop. Contains the reason.
    NotYet(NotRevoked),
}
