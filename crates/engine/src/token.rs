//! Textual tokens of counters and grants, which users pass to other processes.

/// The error for a text that is no token of a counter or grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the text is not a token of a {what}")]
pub struct ParseTokenError {
    pub(crate) what: &'static str,
}

/// Parses the hexadecimal number after `prefix`.
pub(crate) fn parse(text: &str, prefix: &str) -> Option<u64> {
    let digits = text.strip_prefix(prefix)?;
    // `from_str_radix` also takes a sign.
    if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    u64::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_its_prefix_and_hexadecimal_digits() {
        assert_eq!((parse("g-1f", "g-"), parse("g-ffffffffffffffff", "g-")), (Some(31), Some(u64::MAX)));
        for text in ["", "g", "g-", "g-+7", "g--7", "g- 7", "g-7 ", "g-0x7", "c-7", "g-1ffffffffffffffff"] {
            assert_eq!(parse(text, "g-"), None, "{text:?}");
        }
    }
}
