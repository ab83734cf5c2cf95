//! Converts errors of verbs into errors of a rail.

use farreach_rail::{RailError, RailStatus};
use farreach_verbs::cq::{Failure, WorkKind};

/// Converts the error of a call.
#[cold]
pub(super) fn told(operation: impl Into<String>, error: &farreach_verbs::Error) -> RailError {
    let status = error.errno().map(|errno| RailStatus::Errno(errno.0));
    RailError::new(operation, format!("{error}: {}", error.cause()), error.fix())
        .caused_by(status, error.clone())
}

/// Returns a description of an operation, for messages.
pub(super) fn operation(kind: WorkKind, rail: &str) -> String {
    let what = match kind {
        WorkKind::Send => "message",
        WorkKind::Write => "write",
        WorkKind::Read => "read",
        WorkKind::FetchAdd => "fetch and add",
        WorkKind::CompareSwap => "compare and swap",
        WorkKind::Recv => "receive",
        WorkKind::BindWindow => "binding of a memory window",
        _ => "request",
    };
    format!("{what} over {rail}")
}

/// Returns the error that ends a link.
#[cold]
pub(super) fn first_failure(kind: WorkKind, rail: &str, failure: Failure) -> RailError {
    if failure.is_flush() {
        // A card that refuses a peer's request reports it to the peer, and ends the link on this
        // side without a completion error.
        return RailError::new(
            operation(kind, rail),
            "the card had ended the link before: the peer used a key without the right to do so, or sent a \
             message that is too long",
            "read the error on the peer",
        );
    }
    RailError::new(operation(kind, rail), format!("{failure}: {}", failure.cause()), failure.fix())
        .caused_by(Some(RailStatus::Completion(failure.status.raw())), failure)
}

/// Returns the error of a request that the card flushed because its link had ended.
#[cold]
pub(super) fn given_up(kind: WorkKind, rail: &str, link: &RailError) -> RailError {
    let cause = format!("flushed when its link ended: {}", link.cause);
    RailError::new(operation(kind, rail), cause, link.fix.clone())
}

/// Returns the error of a closed link.
#[cold]
pub(super) fn closed(rail: &str) -> RailError {
    RailError::new(format!("link over {rail}"), "the link was closed on this side", "open another link")
}

/// Returns the error of a key that was ended while it was being bound.
#[cold]
pub(super) fn ended_key(rail: &str) -> RailError {
    RailError::new(format!("bind a key over {rail}"), "the key was ended meanwhile", "grant the memory again")
}

/// Returns the error of a link that is not connected yet.
#[cold]
pub(super) fn not_connected(rail: &str) -> RailError {
    RailError::new(format!("link over {rail}"), "the link is not connected yet", "connect it first")
}
