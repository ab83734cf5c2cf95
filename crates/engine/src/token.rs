//! Textual tokens of counters and grants, which users pass to other processes.

/// The error for a text that is no token of a counter or grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the text is not a token of a {what}")]
pub struct ParseTokenError {
    pub(crate) what: &'static str,
}

/// Parses the hexadecimal number after `prefix`.
pub(crate) fn parse(text: &str, prefix: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix(prefix)?, 16).ok()
}
