//! Failures of the program: three lines of text, and an exit code.

use std::fmt;

use farreach_fabric::{Error, PostError, Refusal};

/// The error, its cause and a remedy, with the exit code of the program.
#[derive(Debug)]
pub(crate) struct Failure {
    error: String,
    cause: String,
    fix: String,
    pub(crate) code: u8,
}

impl Failure {
    fn new(code: u8, error: impl fmt::Display, cause: impl fmt::Display, fix: impl fmt::Display) -> Self {
        Self { error: error.to_string(), cause: cause.to_string(), fix: fix.to_string(), code }
    }

    /// The server refused.
    pub(crate) fn refused(reason: &str) -> Self {
        Self::new(1, "the server refused the request", reason, "ask for what it serves")
    }

    pub(crate) fn usage(error: &str, fix: &str) -> Self {
        Self::new(2, error, "the arguments do not allow it", fix)
    }

    pub(crate) fn lost(what: &str) -> Self {
        Self::new(
            4,
            format!("no {what}"),
            "the server is gone, or does not answer in time",
            "see that it runs, and uses the same provider",
        )
    }

    pub(crate) fn mismatch(region: usize, page: u32, offset: usize) -> Self {
        Self::new(
            5,
            format!("byte {offset} of page {page} in region {region} is wrong"),
            "what arrived is not what the seed gives",
            "this should never be seen: report it, with the provider and the arguments",
        )
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let code = match &error {
            Error::InvalidAddress { .. } | Error::AddressRefused { .. } => 2,
            Error::Failed { .. } | Error::Memory { .. } => 1,
            _ => 3,
        };
        Self::new(code, &error, error.cause(), error.fix())
    }
}

impl<R: fmt::Debug> From<PostError<R>> for Failure {
    fn from(error: PostError<R>) -> Self {
        let code = match error.reason {
            // A provider that cannot reach the peer reports only that there is no room, until the
            // deadline.
            Refusal::QueueFull { .. } => return Self::lost("room for a message within the deadline"),
            Refusal::Failed(_) => 4,
            _ => 1,
        };
        Self::new(code, &error, &error.reason, error.reason.fix())
    }
}

impl From<farreach_fabric::Failure> for Failure {
    fn from(failure: farreach_fabric::Failure) -> Self {
        Self::new(4, &failure, failure.cause(), failure.fix())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}\ncause: {}\nfix: {}", self.error, self.cause, self.fix)
    }
}
