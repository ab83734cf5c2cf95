//! The protocol's view of a rail: names of links, properties, work requests and errors.
//!
//! This module contains no rail. The driver of the machine owns the rails, does the work and
//! reports the results.

mod error;
mod properties;
mod request;
mod segments;

pub use error::{RailError, RailStatus};
pub use properties::{EndedKeys, Proof, Properties, Scope};
pub use request::{Refusal, RequestError, WorkRequest};
pub use segments::{RemoteSegment, RemoteSegments};

/// Names a link on the rail of its own side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkKey(pub u64);
