//! What a rail is and can do.

use crate::plan::Limits;

/// What a rail is and can do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Properties {
    /// For people: `rxe0`, `tcp;ofi_rxm`.
    pub name: String,
    /// For people: where it is in its own network's words, such as a GID, or the address that libfabric gave it when it was opened.
    pub native: String,
    /// Ends of the same kind can be connected.
    pub kind: String,
    /// Whether a card moves the bytes, or at least its protocol is spoken: not tcp.
    pub is_rdma: bool,
    /// What one write or read may be, and whether writes land in the order of posting.
    pub limits: Limits,
    /// How many requests one link may have in flight.
    pub window: u32,
    /// The longest message, with what the engine adds to it.
    pub message_max: usize,
    /// Whether it has fetch-and-add and compare-and-swap on eight bytes.
    pub has_atomics: bool,
    /// What a completed write proves.
    pub writes_prove: Proof,
    /// Whether an immediate says over which link it came.
    pub immediates_name_link: bool,
    /// Whether closing one link stops all that was begun over it, on both sides.
    pub links_end_alone: bool,
    /// What a key that was ended proves.
    pub ended_keys: EndedKeys,
    /// For shares: bits a second as the card says, or 0 where nothing is known: it is used then where no other rail is.
    pub rate_bps: u64,
}

/// What a completion proves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// The buffers are free.
    Sent,
    /// The bytes are there.
    Delivered,
}

/// What a key that was ended proves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndedKeys {
    /// Nothing that a peer has begun or will begin by it lands.
    StopAll,
    /// Nothing that a peer will begin by it lands. What is under way may go on.
    StopNew,
}
