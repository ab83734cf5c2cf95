//! Why a rail could not do something.

/// Why a rail could not do something: what was asked for, the cause, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{operation}: {cause}")]
pub struct RailError {
    /// What was asked for.
    pub operation: String,
    /// Why it did not work.
    pub cause: String,
    /// What to do.
    pub fix: String,
}

impl RailError {
    /// With these words.
    pub fn new(operation: impl Into<String>, cause: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { operation: operation.into(), cause: cause.into(), fix: fix.into() }
    }
}
