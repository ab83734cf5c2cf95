//! Errors of the rail, and events of its links.

use std::fmt::Display;

use farreach_rail::{Event, LinkKey, RailError, RequestError};
use farreach_shm as shm;
use farreach_shm::OperationError;

/// Reports an event of a link. The ends of grants are collected. Returns the number of events.
pub(super) fn report(
    event: shm::Event<'_>,
    link: LinkKey,
    is_closed: bool,
    ended: &mut Vec<(LinkKey, u64)>,
    sink: &mut dyn FnMut(Event<'_>),
) -> usize {
    match event {
        shm::Event::Completed { tag, buffers, outcome } => {
            let outcome = outcome.map_err(|error| request_error(&error));
            sink(Event::Completed { tag, buffers, outcome });
        }
        shm::Event::Immediate(bits) => sink(Event::Immediate { link: Some(link), bits }),
        shm::Event::Message(bytes) => sink(Event::Message { link: Some(link), bytes }),
        shm::Event::GrantEnded { key } => {
            // No event of the rail yet: the key may be bound to other links, and is reported when
            // it has ended on all of them.
            ended.push((link, key));
            return 0;
        }
        // Whoever closed it knows.
        shm::Event::Down(_) if is_closed => return 0,
        shm::Event::Down(error) => {
            let reason = failed("link over shm", &error, error.fix());
            sink(Event::LinkDown { link, reason });
        }
    }
    1
}

/// Returns what fails with an operation. One that fails has passed no immediate.
#[cold]
fn request_error(error: &OperationError) -> RequestError {
    let reason = failed("work request over shm", error, error.fix());
    match error {
        // Only an error of the link leaves open whether an atomic took effect. A peer that closes the link, or
        // lets it pause for an exchange of pages, revokes what it has granted over the link a moment before that is
        // known here, and goes on with it over the next one. What is revoked for good is told by a frame.
        OperationError::Link(_) | OperationError::InDoubt | OperationError::Revoked => {
            RequestError::Link(reason)
        }
        // The link goes on with other memory. An owner could otherwise end it again and again, with
        // memory that this side cannot map.
        OperationError::NotMapped(_) | OperationError::UnknownKey { .. } => RequestError::Key(reason),
        _ => RequestError::Request(reason),
    }
}

/// The reason for which a link is lost whose peer is well.
pub(super) fn paused() -> RailError {
    let cause = "another peer does not answer, and the pages that both may write to are exchanged";
    RailError::new("link over shm", cause, "nothing has to be done: it is connected again")
}

pub(super) fn failed(operation: &str, error: &impl Display, fix: &str) -> RailError {
    RailError::new(operation, error.to_string(), fix)
}

#[cold]
pub(super) fn no_link(operation: &str) -> RailError {
    RailError::new(operation, "the link was closed, or there is no such link", "open and connect a new link")
}

#[cold]
pub(super) fn no_such_key(verb: &str) -> RailError {
    let operation = format!("{verb} a key over shm");
    RailError::new(operation, "there is no such key, or it has ended", "end each key once")
}

#[cold]
pub(super) fn ended_key() -> RailError {
    RailError::new("bind a key over shm", "the key has ended", "none is needed")
}
