//! The error type of rails.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// An error of a rail: the operation, the cause, and a remedy.
///
/// If a library or a card reported an error, [`status`](Self::status) is its number and
/// [`source`](Error::source) is the library's own error.
///
/// ```
/// use std::error::Error;
/// use farreach_proto::rail::{RailError, RailStatus};
///
/// let said = std::io::Error::from_raw_os_error(111);
/// let error = RailError::new("connect a link", said.to_string(), "start the peer")
///     .caused_by(Some(RailStatus::Errno(111)), said);
/// assert_eq!(error.to_string(), "connect a link: Connection refused (os error 111)");
/// assert_eq!(error.status(), Some(RailStatus::Errno(111)));
/// assert!(error.source().is_some());
/// ```
#[derive(Debug, Clone)]
pub struct RailError {
    /// The operation that failed.
    pub operation: String,
    /// The cause.
    pub cause: String,
    /// The remedy.
    pub fix: String,
    // Boxed because an error is part of every answer of a rail, and few errors have an origin.
    origin: Option<Box<Origin>>,
}

#[derive(Debug, Clone)]
struct Origin {
    status: Option<RailStatus>,
    source: Arc<dyn Error + Send + Sync>,
}

/// The number with which a library or a card reports a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RailStatus {
    /// A call failed with this `errno`, or this code of `fi_errno(3)`.
    Errno(i32),
    /// A work request completed with this `ibv_wc_status`, or with this code of `fi_errno(3)`.
    Completion(u32),
}

impl RailError {
    /// Creates an error without an origin.
    pub fn new(operation: impl Into<String>, cause: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { operation: operation.into(), cause: cause.into(), fix: fix.into(), origin: None }
    }

    /// Adds the error of the library.
    #[must_use]
    pub fn caused_by(
        mut self,
        status: Option<RailStatus>,
        source: impl Error + Send + Sync + 'static,
    ) -> Self {
        self.origin = Some(Box::new(Origin { status, source: Arc::new(source) }));
        self
    }

    /// Returns the number that a library or a card reported.
    pub fn status(&self) -> Option<RailStatus> {
        self.origin.as_ref()?.status
    }
}

impl fmt::Display for RailError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.operation, self.cause)
    }
}

impl Error for RailError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.origin.as_ref().map(|origin| &*origin.source as &(dyn Error + 'static))
    }
}

/// Compares texts and status. The source repeats the same information.
impl PartialEq for RailError {
    fn eq(&self, other: &Self) -> bool {
        let Self { operation, cause, fix, .. } = self;
        (operation, cause, fix, self.status()) == (&other.operation, &other.cause, &other.fix, other.status())
    }
}

impl Eq for RailError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_the_same_by_words_and_status() {
        let error = || RailError::new("post", "no room", "wait");
        let said = |status| error().caused_by(Some(status), fmt::Error);
        assert_eq!(error(), error());
        assert_eq!(said(RailStatus::Errno(12)), said(RailStatus::Errno(12)).clone());
        assert_ne!(said(RailStatus::Errno(12)), said(RailStatus::Completion(12)));
        assert_ne!(said(RailStatus::Errno(12)), error());
        assert_ne!(
            RailError::new("post", "no room", "wait"),
            RailError::new("post", "no room", "wait longer")
        );
        assert!(error().source().is_none() && error().status().is_none());
    }

    #[test]
    fn an_error_is_small_enough_to_be_part_of_every_answer() {
        assert!(size_of::<RailError>() <= 80);
    }
}
