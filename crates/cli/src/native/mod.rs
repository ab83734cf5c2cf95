//! Uses verbs directly, with queue pairs beside those of the engine.
//!
//! On-chip memory, ATOMIC WRITE and FLUSH are not part of the engine's model, because no rail of
//! libfabric has them. Plain writes, reads and messages measure a card without the engine, as perftest
//! does.
//!
//! Both sides use the card and the GID that carry the session, and exchange the addresses of their
//! queue pairs over the [`Channel`]:
//!
//! ```text
//! client                                        agent
//!   Proposal ────────────────────────────────────▶       the pair of cards to use
//!                             ◀──── Offer                 its queue pairs, and their memory
//!   Answer ──────────────────────────────────────▶       the client's queue pairs, connected
//!                             ◀──── Ready                 the agent's are connected too
//! ```
//!
//! [`Channel`]: crate::session::Channel

mod card;
mod failure;
mod link;
mod meet;
mod memory;
mod operation;
mod queue_pair;
mod receiver;
mod stream;

pub(crate) use card::{Card, Cards};
pub(crate) use failure::{of_completion, of_refusal, of_verbs};
pub(crate) use link::{Link, LinkRules};
pub(crate) use meet::{Called, End, Place, Received, call, receive};
pub(crate) use memory::Memory;
pub(crate) use operation::NativeOperation;
pub(crate) use queue_pair::{Connection, QueuePairArgs};
pub(crate) use receiver::Receiver;
pub(crate) use stream::{StreamRules, client_stream, serve_stream};
