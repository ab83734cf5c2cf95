//! What the protocol knows of a rail: how it names links, what it can do, what it is asked to do, and why it does not.
//!
//! There is no rail here. Whoever has them does the work, and says what became of it.

mod error;
mod properties;
mod request;
mod segments;

pub use error::{RailError, RailStatus};
pub use properties::{EndedKeys, Proof, Properties};
pub use request::{Refusal, RemoteSegment, WorkRequest};
pub use segments::RemoteSegments;

/// A link, as its own side's rail names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkKey(pub u64);
