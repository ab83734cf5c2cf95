//! The C objects of librdmacm, behind types that make calling it safe. The rest of `cm` names no pointer of it.
//!
//! librdmacm reads and writes its ids when it is called on them *and* when it gets an event, without a lock of its own. So each
//! [`Channel`] has a gate, a lock, and two rules hold here:
//!
//! - **Gate.** Whoever calls the library on an id, or reads one, is inside the gate of the channel that the id is on. So is whoever gets an
//!   event of that channel. An [`Entered`] id is the proof: only [`Id::enter`] makes one, for as long as it holds the gate.
//! - **Acknowledged.** An event is acknowledged before the gate is left again. So no function that waits for acknowledgements
//!   (destroying, migrating, leaving a group) ever waits.

mod channel;
mod entered;
mod event;
mod id;
mod lists;

pub(super) use channel::{Channel, Taken};
pub(super) use entered::{Entered, OnDevice};
pub(super) use id::Id;
pub(super) use lists::{Found, RawHints, getaddrinfo, with_devices};

/// The `errno` of the call that was just made.
pub(super) fn last_errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}
