//! Why a rail could not do something.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// Why a rail could not do something: what was asked for, the cause, and what to do about it.
///
/// Where a library or a card has said something, [`status`](Self::status) is its number and [`source`](Error::source) the library's own error.
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
    /// What was asked for.
    pub operation: String,
    /// Why it did not work.
    pub cause: String,
    /// What to do.
    pub fix: String,
    // Apart, because an error is part of every answer of a rail, and few have this.
    origin: Option<Box<Origin>>,
}

#[derive(Debug, Clone)]
struct Origin {
    status: Option<RailStatus>,
    source: Arc<dyn Error + Send + Sync>,
}

/// The number by which a library or a card tells what went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RailStatus {
    /// A call failed: its `errno`, or that of `fi_errno(3)`.
    Errno(i32),
    /// A request completed with a failure: its `ibv_wc_status`, or the `fi_errno(3)` of its entry.
    Completion(u32),
}

impl RailError {
    /// With these words.
    pub fn new(operation: impl Into<String>, cause: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { operation: operation.into(), cause: cause.into(), fix: fix.into(), origin: None }
    }

    /// What the library said.
    #[must_use]
    pub fn caused_by(
        mut self,
        status: Option<RailStatus>,
        source: impl Error + Send + Sync + 'static,
    ) -> Self {
        self.origin = Some(Box::new(Origin { status, source: Arc::new(source) }));
        self
    }

    /// The number that a library or a card gave it.
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

/// By its words and its number: the source says the same.
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
