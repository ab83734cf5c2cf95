//! Names that a user passes on.

/// A text that names no counter or grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this names no {what}")]
pub struct ParseTokenError {
    pub(crate) what: &'static str,
}

pub(crate) fn parse(text: &str, prefix: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix(prefix)?, 16).ok()
}
