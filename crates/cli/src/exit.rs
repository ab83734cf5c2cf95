//! Exit codes of the command, and the errors behind them. Each code has one meaning for all
//! subcommands.

use std::fmt;
use std::process::ExitCode;
use std::time::Duration;

use farreach::{Error, ErrorKind, RailError, RevokeError, TransferError};
use serde::{Deserialize, Serialize};

/// The reason why the command ended. clap itself reports the usage errors (2) that it detects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Exit {
    /// Success.
    Ok,
    /// A test or check failed.
    Failed,
    /// The arguments make no sense.
    Usage,
    /// There is no device, or it lacks the requested feature.
    Unavailable,
    /// The peer is lost, or could not be reached.
    PeerLost,
    /// Received bytes differ from the sent ones.
    Mismatch,
    /// The user interrupted the command; the results until then were printed.
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

/// An error as the user sees it. Every error is finally converted to it, and an agent sends it to
/// its client.
///
/// It is not read from another process: [`TheirFailure`](crate::session::TheirFailure) is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{error}")]
pub(crate) struct Failure {
    pub(crate) error: String,
    pub(crate) cause: Option<String>,
    pub(crate) fix: Option<String>,
    /// The fix that another process names, as a quotation.
    #[serde(skip)]
    pub(crate) their_fix: Option<String>,
    pub(crate) exit: Exit,
}

impl Failure {
    pub(crate) fn new(exit: Exit, error: impl Into<String>) -> Self {
        Self { error: error.into(), cause: None, fix: None, their_fix: None, exit }
    }

    pub(crate) fn cause(mut self, cause: impl Into<String>) -> Self {
        self.cause = Some(cause.into());
        self
    }

    pub(crate) fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }

    /// Returns the error in one line, without the fix.
    pub(crate) fn sentence(&self) -> String {
        match &self.cause {
            Some(cause) => format!("{}: {cause}", self.error),
            None => self.error.clone(),
        }
    }

    /// Converts any error. Errors of the libraries include their cause and fix.
    pub(crate) fn of(error: &anyhow::Error) -> Self {
        if let Some(failure) = error.downcast_ref::<Self>() {
            return failure.clone();
        }
        let known = known(error, of_engine)
            .or_else(|| known(error, of_rail))
            .or_else(|| known(error, |error: &TransferError| of_engine(&error.error)))
            .or_else(|| known(error, |error: &RevokeError| of_engine(&error.error)))
            .or_else(|| known(error, NotHeard::failure));
        let Some((mut failure, own_words)) = known else {
            let causes: Vec<String> = error.chain().skip(1).map(ToString::to_string).collect();
            let cause = (!causes.is_empty()).then(|| causes.join(": "));
            return Self { cause, ..Self::new(Exit::Failed, error.to_string()) };
        };
        // A context around the error states the operation.
        let outermost = error.to_string();
        if outermost != own_words {
            failure.cause = Some(failure.sentence());
            failure.error = outermost;
        }
        failure
    }
}

/// An error, as every command reports it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Told {
    pub(crate) error: String,
    pub(crate) cause: Option<String>,
    pub(crate) fix: Option<String>,
    /// The fix that the other side names, as a quotation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) their_fix: Option<String>,
}

impl From<&Failure> for Told {
    fn from(failure: &Failure) -> Self {
        let Failure { error, cause, fix, their_fix, .. } = failure.clone();
        Self { error, cause, fix, their_fix }
    }
}

impl Told {
    /// Converts it to a failure with this exit code.
    pub(crate) fn failure(&self, exit: Exit) -> Failure {
        let Self { error, cause, fix, their_fix } = self.clone();
        Failure { error, cause, fix, their_fix, exit }
    }
}

/// Converts an error of this type, and returns its own message too.
fn known<E: std::error::Error + Send + Sync + 'static>(
    error: &anyhow::Error,
    of: impl Fn(&E) -> Failure,
) -> Option<(Failure, String)> {
    error.downcast_ref::<E>().map(|error| (of(error), error.to_string()))
}

fn of_engine(error: &Error) -> Failure {
    let exit = match error.kind() {
        ErrorKind::Rail | ErrorKind::NoRail | ErrorKind::Unsupported => Exit::Unavailable,
        ErrorKind::Connect | ErrorKind::PeerLost | ErrorKind::TimedOut => Exit::PeerLost,
        ErrorKind::Address | ErrorKind::Insecure => Exit::Usage,
        _ => Exit::Failed,
    };
    let (message, cause) = (error.to_string(), error.cause());
    // A message that contains its cause is not followed by it.
    let what = message.strip_suffix(&format!(": {cause}")).unwrap_or(&message).to_owned();
    let cause = (what != cause).then(|| cause.to_owned());
    Failure { cause, ..Failure::new(exit, what).fix(error.fix()) }
}

fn of_rail(error: &RailError) -> Failure {
    let RailError { operation, cause, fix, .. } = error;
    Failure::new(Exit::Unavailable, operation.clone()).cause(cause.clone()).fix(fix.clone())
}

pub(crate) fn lost(reason: impl fmt::Display) -> Failure {
    let fix = "check the server's log, and start the test again";
    Failure::new(Exit::PeerLost, "the peer is lost").cause(reason.to_string()).fix(fix)
}

/// The other side has sent nothing for this long.
#[derive(Debug, thiserror::Error)]
#[error("the other side has sent nothing for {0:?}")]
pub(crate) struct NotHeard(pub(crate) Duration);

impl NotHeard {
    fn failure(&self) -> Failure {
        Failure::new(Exit::PeerLost, self.to_string()).fix("check the server's log, and the load of its host")
    }
}

/// Returns the engine's error inside an error, if there is one.
fn engine_error(error: &anyhow::Error) -> Option<&Error> {
    let transfer = || error.downcast_ref().map(|error: &TransferError| &error.error);
    error.downcast_ref().or_else(transfer)
}

/// Returns whether an error is a timeout.
pub(crate) fn is_timeout(error: &anyhow::Error) -> bool {
    engine_error(error).is_some_and(|error| error.kind() == ErrorKind::TimedOut)
        || error.downcast_ref::<NotHeard>().is_some()
}

/// Returns whether an error means that the other side's memory is no longer accessible.
pub(crate) fn is_revoked(error: &anyhow::Error) -> bool {
    let is_gone = |error: &Error| matches!(error.kind(), ErrorKind::Revoked | ErrorKind::NotGranted);
    engine_error(error).is_some_and(is_gone)
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    /// Scripts depend on the codes, so they must stay as in README.md and the manual.
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
        let failure = Failure::of(&NotHeard(Duration::from_secs(3)).into());
        assert_eq!((failure.error.as_str(), failure.cause), ("the other side has sent nothing for 3s", None));
        assert_eq!(failure.exit.code(), 4);
    }

    #[test]
    fn an_error_of_the_engine_has_its_exit_code() {
        let error = farreach::Engine::with(farreach::Settings::new().rails(["nowhere0"])).unwrap_err();
        let failure = Failure::of(&error.into());
        assert_eq!(failure.exit.code(), 3, "{failure:?}");
        assert!(failure.fix.is_some() && failure.cause.is_some(), "{failure:?}");
    }

    #[test]
    fn a_message_that_contains_its_cause_is_told_once() {
        let rail = RailError::new("open rxe0", "it is down", "set it up");
        let failure = Failure::of(&Error::from(rail).into());
        let expected = Failure::new(Exit::Unavailable, "open rxe0").cause("it is down").fix("set it up");
        assert_eq!(failure, expected);
    }
}
