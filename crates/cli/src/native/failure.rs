//! Converts errors of verbs to failures of the command.

use farreach_verbs::cq::{self, WorkStatus};
use farreach_verbs::wr::Refusal;
use farreach_verbs::{Error, qp};

use crate::exit::{Exit, Failure};

/// Converts the error of a call.
pub(crate) fn of_verbs(error: &Error) -> Failure {
    let exit = match error {
        Error::Unsupported { .. } | Error::Library(_) | Error::Symbol(_) => Exit::Unavailable,
        Error::StateChange(refused) if refused.to == qp::QueuePairState::ReadyToReceive => Exit::PeerLost,
        _ => Exit::Failed,
    };
    Failure::new(exit, error.to_string()).cause(error.cause()).fix(error.fix())
}

/// Converts the refusal of a work request that was not posted.
pub(crate) fn of_refusal(reason: &Refusal) -> Failure {
    Failure::new(Exit::Failed, "a work request was not posted").cause(reason.to_string()).fix(reason.fix())
}

/// Converts the error of a work request that was posted and failed.
pub(crate) fn of_completion(card: &str, failure: cq::Failure) -> Failure {
    let exit = match failure.status {
        WorkStatus::RetryExceeded | WorkStatus::ResponseTimeout => Exit::PeerLost,
        _ => Exit::Failed,
    };
    Failure::new(exit, format!("a work request on {card} failed: {failure}"))
        .cause(failure.cause())
        .fix(failure.fix())
}
