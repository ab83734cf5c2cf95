//! How the command ends: one meaning for each code, the same for every subcommand.

use std::fmt;
use std::process::ExitCode;
use std::time::Duration;

use farreach::rail::RailError;
use farreach::{AtomicError, Error, SendError, TransferError, TransferReason};
use serde::{Deserialize, Serialize};

/// Why the command ended. Usage mistakes (2) that clap sees are clap's to tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Exit {
    /// All went well.
    Ok,
    /// A test or check failed.
    Failed,
    /// What was asked for makes no sense.
    Usage,
    /// There is no device, or it lacks what was asked for.
    Unavailable,
    /// The peer is lost, or was never there.
    PeerLost,
    /// Bytes came that were not sent.
    Mismatch,
    /// The person has had enough, and was told what was measured until then.
    Interrupted,
}

impl Exit {
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Unavailable => 3,
            Self::PeerLost => 4,
            Self::Mismatch => 5,
            Self::Interrupted => 130,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// What went wrong, in the words that a person reads: it is what every error is turned into in the end, and what an agent tells its client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{error}")]
pub(crate) struct Failure {
    pub(crate) error: String,
    pub(crate) cause: Option<String>,
    pub(crate) fix: Option<String>,
    pub(crate) exit: Exit,
}

impl Failure {
    pub(crate) fn new(exit: Exit, error: impl Into<String>) -> Self {
        Self { error: error.into(), cause: None, fix: None, exit }
    }

    pub(crate) fn cause(mut self, cause: impl Into<String>) -> Self {
        self.cause = Some(cause.into());
        self
    }

    pub(crate) fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }

    /// In one line, without the fix.
    pub(crate) fn sentence(&self) -> String {
        match &self.cause {
            Some(cause) => format!("{}: {cause}", self.error),
            None => self.error.clone(),
        }
    }

    /// Of any error: those of the libraries know their cause and fix.
    pub(crate) fn of(error: &anyhow::Error) -> Self {
        if let Some(failure) = error.downcast_ref::<Self>() {
            return failure.clone();
        }
        let known = known(error, of_engine)
            .or_else(|| known(error, of_rail))
            .or_else(|| known(error, of_transfer))
            .or_else(|| known(error, of_send))
            .or_else(|| known(error, of_word));
        let Some((mut failure, own_words)) = known else {
            let causes: Vec<String> = error.chain().skip(1).map(ToString::to_string).collect();
            let cause = (!causes.is_empty()).then(|| causes.join(": "));
            return Self { error: error.to_string(), cause, fix: None, exit: Exit::Failed };
        };
        // A context that was put around it says what was being done.
        let outermost = error.to_string();
        if outermost != own_words {
            failure.cause = Some(failure.sentence());
            failure.error = outermost;
        }
        failure
    }
}

/// What is known of an error of this type, and how it displays itself.
fn known<E: std::error::Error + Send + Sync + 'static>(
    error: &anyhow::Error,
    of: impl Fn(&E) -> Failure,
) -> Option<(Failure, String)> {
    error.downcast_ref::<E>().map(|error| (of(error), error.to_string()))
}

fn of_engine(error: &Error) -> Failure {
    let exit = match error {
        Error::Rail(_) | Error::NoRail { .. } => Exit::Unavailable,
        Error::Connect { .. } | Error::PeerLost { .. } | Error::TimedOut { .. } => Exit::PeerLost,
        Error::Address { .. } => Exit::Usage,
        _ => Exit::Failed,
    };
    let (told, cause) = (error.to_string(), error.cause());
    // Those that have their cause in their sentence are told once.
    let what = told.strip_suffix(&format!(": {cause}")).unwrap_or(&told).to_owned();
    let cause = (what != cause).then_some(cause);
    Failure { error: what, cause, fix: Some(error.fix()), exit }
}

fn of_rail(error: &RailError) -> Failure {
    let RailError { operation, cause, fix, .. } = error;
    Failure::new(Exit::Unavailable, operation.clone()).cause(cause.clone()).fix(fix.clone())
}

pub(crate) fn lost(reason: impl fmt::Display) -> Failure {
    let fix = "see the server's log; start the test again";
    Failure::new(Exit::PeerLost, "the peer is lost").cause(reason.to_string()).fix(fix)
}

/// Something was not done in time, though the other side is not lost.
fn stuck(what: &str, after: Duration) -> Failure {
    Failure::new(Exit::PeerLost, format!("{what} for more than {after:?}"))
        .cause("the other side is there, and its memory is not reached")
        .fix("see the server's log, and whether its host is overloaded")
}

/// Whether it says that something was not done in time.
pub(crate) fn is_timeout(error: &anyhow::Error) -> bool {
    let is = |found: Option<bool>| found == Some(true);
    is(error.downcast_ref().map(|error: &Error| matches!(error, Error::TimedOut { .. })))
        || is(error
            .downcast_ref()
            .map(|error: &TransferError| matches!(error.reason, TransferReason::TimedOut(_))))
        || is(error.downcast_ref().map(|error: &SendError| matches!(error, SendError::TimedOut(_))))
        || is(error.downcast_ref().map(|error: &AtomicError| matches!(error, AtomicError::TimedOut(_))))
}

/// Whether it says that memory of the other side may not be reached any more.
pub(crate) fn is_revoked(error: &anyhow::Error) -> bool {
    let transfer =
        |error: &TransferError| matches!(error.reason, TransferReason::Revoked | TransferReason::NotGranted);
    error.downcast_ref().is_some_and(transfer)
        || error.downcast_ref().is_some_and(|error: &AtomicError| matches!(error, AtomicError::NotGranted))
}

fn of_transfer(error: &TransferError) -> Failure {
    match &error.reason {
        TransferReason::PeerLost(reason) => lost(reason),
        TransferReason::Rail(error) => of_rail(error),
        TransferReason::TimedOut(after) => stuck("pages are on their way", *after),
        other => Failure::new(Exit::Failed, "move pages").cause(other.to_string()),
    }
}

fn of_send(error: &SendError) -> Failure {
    match error {
        SendError::PeerLost { reason } => lost(reason),
        SendError::TimedOut(after) => stuck("a message is on its way", *after),
        other => Failure::new(Exit::Failed, "send a message").cause(other.to_string()),
    }
}

fn of_word(error: &AtomicError) -> Failure {
    let failure =
        |exit| Failure::new(exit, "run an atomic operation on the peer's memory").cause(error.to_string());
    match error {
        AtomicError::PeerLost { reason } => lost(reason),
        AtomicError::Rail(error) => of_rail(error),
        AtomicError::TimedOut(after) => stuck("an atomic operation is in flight", *after),
        AtomicError::Unsupported => {
            failure(Exit::Unavailable).fix("use a rail that has them: an RDMA card or Soft-RoCE")
        }
        _ => failure(Exit::Failed),
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    /// Scripts look at them: they stay as README.md and the manual say.
    #[test]
    fn each_way_to_end_has_its_code() {
        let codes = [
            Exit::Ok,
            Exit::Failed,
            Exit::Usage,
            Exit::Unavailable,
            Exit::PeerLost,
            Exit::Mismatch,
            Exit::Interrupted,
        ];
        assert_eq!(codes.map(Exit::code), [0, 1, 2, 3, 4, 5, 130]);
    }

    #[test]
    fn an_error_of_a_library_keeps_its_cause_and_fix_under_what_was_being_done() {
        let rail = RailError::new("open rxe0", "it is down", "set it up");
        let error = Err::<(), _>(rail).context("cannot measure").expect_err("it is one");
        let expected =
            Failure::new(Exit::Unavailable, "cannot measure").cause("open rxe0: it is down").fix("set it up");
        assert_eq!(Failure::of(&error), expected);
    }

    #[test]
    fn an_error_that_nothing_was_put_around_is_told_once() {
        let failure = Failure::of(&AtomicError::Unsupported.into());
        assert_eq!(failure.error, "run an atomic operation on the peer's memory");
        assert_eq!(failure.cause, Some(AtomicError::Unsupported.to_string()));
    }

    #[test]
    fn a_sentence_that_has_its_cause_is_told_once() {
        let error = Error::PeerLost { reason: farreach::LostReason::Goodbye };
        let failure = Failure::of(&error.into());
        assert_eq!(
            (failure.error.as_str(), failure.cause.as_deref()),
            ("the peer is lost", Some("the peer closed the connection"))
        );
        assert_eq!(failure.exit.code(), 4);
    }
}
