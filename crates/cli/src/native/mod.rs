//! Verbs by hand: queue pairs beside those of the engine, for what is verbs' own. On-chip memory, ATOMIC WRITE and FLUSH are no part of the
//! engine's model, because no rail of libfabric's has them; plain writes and reads are here to measure a card without the engine, as perftest does.
//!
//! Both sides go by the card and the GID that carry the session already, and tell each other of their queue pairs by [`Channel`]:
//!
//! ```text
//! client                                        agent
//!   Proposal ────────────────────────────────────▶        by which pair of cards
//!                             ◀──── Offer                  its queue pairs, and the memory that they reach
//!   Answer ──────────────────────────────────────▶        the client's queue pairs, which are connected
//!                             ◀──── Ready                  and so are the agent's
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
mod stream;

pub(crate) use card::{Card, Cards};
pub(crate) use failure::{of_completion, of_refusal, of_verbs};
pub(crate) use link::{Link, LinkRules};
pub(crate) use meet::{Called, End, Place, Received, call, receive};
pub(crate) use memory::Memory;
pub(crate) use operation::NativeOperation;
pub(crate) use queue_pair::{Connection, QueuePairArgs};
pub(crate) use stream::{StreamRules, client_stream, serve_stream};
