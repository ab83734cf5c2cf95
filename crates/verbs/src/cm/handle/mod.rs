//! Wraps the C objects of librdmacm in types that make calls safe. The rest of `cm` uses no pointer
//! of the library.
//!
//! librdmacm accesses its ids when a function is called on them *and* when an event is taken,
//! without a lock of its own. So each [`Channel`] has a gate, which is a lock, with two invariants:
//!
//! - **Gate.** A thread holds the gate of an id's channel while it calls the library on the id,
//!   reads the id, or takes an event of that channel. An [`Entered`] id is the proof: only
//!   [`Id::enter`] makes one, while it holds the gate.
//! - **Acknowledged.** Every event is acknowledged before the gate is released. So functions that
//!   wait for acknowledgements (destroying, migrating, leaving a group) never wait.

mod channel;
mod entered;
mod event;
mod id;
mod lists;

pub(super) use channel::{Channel, Taken};
pub(super) use entered::{Entered, OnDevice};
pub(super) use id::Id;
pub(super) use lists::{Found, RawHints, getaddrinfo, with_devices};

/// Returns the `errno` of the last call.
pub(super) fn last_errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}
