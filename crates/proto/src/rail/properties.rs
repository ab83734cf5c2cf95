//! Properties of a rail.

use serde::{Deserialize, Serialize};

use crate::plan::Limits;

/// Properties of a rail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Properties {
    /// A name for people, such as `rxe0` or `tcp;ofi_rxm`.
    pub name: String,
    /// An address for people, in the notation of its network: a GID, or the address that libfabric
    /// assigned when the rail was opened.
    pub native: String,
    /// The kind. Rails of the same kind can be connected.
    pub kind: String,
    /// The peers that it reaches.
    pub scope: Scope,
    /// Whether a card moves the bytes, or at least an RDMA protocol is used. `false` for tcp.
    pub is_rdma: bool,
    /// The limits of one write or read, and whether writes land in the order of posting.
    pub limits: Limits,
    /// The number of work requests that one link may have in flight.
    pub window: u32,
    /// The maximum length of a message in bytes, with the header of the engine.
    pub message_max: usize,
    /// The maximum length in bytes of a write or read that it performs within the call that asks for
    /// it, if nothing is queued before. 0 if it performs none.
    pub performs_max: u64,
    /// Whether it has fetch-and-add and compare-and-swap on eight bytes.
    pub has_atomics: bool,
    /// The guarantee of a completed write.
    pub writes_prove: Proof,
    /// Whether an immediate identifies the link over which it came.
    pub immediates_name_link: bool,
    /// Whether closing one link stops all operations begun over it, on both sides. Where the end of
    /// a key is [reported](EndedKeys::Reported), bytes of an operation that the peer has begun may
    /// land until the report, but none of them is counted, and the peer posts nothing more.
    pub links_end_alone: bool,
    /// The guarantee of a key that was ended.
    pub ended_keys: EndedKeys,
    /// Whether a key is good over one link only, and must be bound to each link of its peer.
    pub keys_are_bound: bool,
    /// The rate in bits per second as reported by the card; determines the rail's share. 0 if
    /// unknown: such a rail is used only if no other is.
    pub rate_bps: u64,
}

/// The peers that a rail reaches.
///
/// Two engines that have rails of both scopes in common use those of the [host](Self::Host). The
/// others are connected when they are needed: for memory that cannot be granted within the host, or
/// if the links within the host fail. A grant is made over rails of one scope, because atomics of a
/// processor and of a card do not exclude each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Scope {
    /// Processes of this host.
    Host,
    /// Other hosts, too.
    Network,
}

/// The guarantee of a completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// The buffers are free.
    Sent,
    /// The bytes have arrived.
    Delivered,
}

/// The guarantee of a key that was ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndedKeys {
    /// No operation that uses the key lands any more, whether begun before or later.
    StopAll,
    /// No operation begun later lands. Operations in flight may still land.
    StopNew,
    /// Operations in flight may still land until the rail reports that the key has ended, because
    /// the peer has confirmed it, or because the rail was asked to prove it by itself.
    Reported,
}
