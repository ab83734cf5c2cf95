//! The interface between the engine and a rail: one card, or one libfabric provider, with links to
//! peers. Also the carrier of work to rails.
//!
//! The [machine](farreach_proto::machine) decides what is posted where, and what a completion means
//! for a transfer. A [`Rail`] knows its library. It keeps no list of transfers and no clock, starts
//! no thread, and never blocks: anything that takes time is requested by one call and reported by a
//! later [`poll`](Rail::poll). The [`Carrier`] is between them, and owns the memory.
#![forbid(unsafe_code)]

mod answer;
mod carrier;
mod current_call;
mod event;
mod held;
mod key;
mod message_pool;
mod rail;

pub use answer::{RevokeAnswer, TransferAnswer};
pub use carrier::{Carrier, GrantMade};
pub use current_call::{CallInProgress, CurrentCall, RailCall};
pub use event::Event;
pub use held::{Held, HeldList};
pub use key::{Key, KeyId};
pub use rail::Rail;

pub use farreach_proto::machine::PeerKey;
pub use farreach_proto::plan::{Extent, Limits};
pub use farreach_proto::rail::{
    EndedKeys, LinkKey, Proof, Properties, RailError, RailStatus, Refusal, RemoteSegment, RemoteSegments,
    RequestError, Scope, WorkRequest,
};
