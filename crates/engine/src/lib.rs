//! One machine reads and writes another machine's memory.

mod control;
mod counter;
mod driver;
mod engine;
mod error;
mod explain;
mod grant;
mod helm;
mod machine;
mod open;
mod pages;
mod peer;
mod pending;
pub mod provider;
mod rights;
mod settings;
#[cfg(test)]
mod simulation;
mod token;
mod transfer;

pub use counter::{Arrival, Counter, CounterToken};
pub use engine::{Accepting, Connecting, Engine};
pub use error::{Error, SendError, TransferError, TransferReason, WordError};
pub use explain::{Explanation, RailShare};
pub use farreach_core::counter::Outcome;
pub use farreach_memory::{Buffer, Buffers, Memory, MemoryOptions, Shared, Slice};
pub use grant::{Grant, GrantToken, RemoteSlice, RevokeError, Revoked};
pub use helm::Progress;
pub use pages::{PageMap, Pages};
pub use peer::{GrantError, Offer, Peer, Received, RemoteCounter, Sent, Word};
pub use pending::{Answer, Pending};
pub use rights::Rights;
pub use settings::Settings;
pub use token::ParseTokenError;
pub use transfer::{Done, PagesMoved, Transfer};
