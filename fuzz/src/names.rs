//! Texts that a user or another program gives: tokens, secrets, GIDs, addresses.

use std::fmt::Display;
use std::str::FromStr;

use farreach::{CounterToken, GrantToken, Secret};
use farreach_verbs::ah::Gid;

pub(crate) fn run(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    token::<GrantToken>(text, "g-");
    token::<CounterToken>(text, "c-");
    round_trip::<Gid>(text);
    if let Ok(secret) = text.parse::<Secret>() {
        let digits = text.trim().len();
        assert!((32..=128).contains(&digits), "{digits} digits");
        assert!(!format!("{secret:?}").contains(text.trim()), "a secret is not shown");
    }
    farreach::fuzz::address(text);
    farreach_command::fuzz::names(text);
}

fn round_trip<T: FromStr + Display + PartialEq>(text: &str) -> Option<T> {
    let parsed = text.parse::<T>().ok()?;
    let shown = parsed.to_string();
    assert!(shown.parse().is_ok_and(|again: T| again == parsed), "{text:?} is shown as {shown:?}");
    Some(parsed)
}

/// A token is its prefix and a hexadecimal number, and nothing else.
fn token<T: FromStr + Display + PartialEq>(text: &str, prefix: &str) {
    if let Some(token) = round_trip::<T>(text) {
        let number = text.strip_prefix(prefix).expect("a token has a prefix");
        assert!(number.bytes().all(|byte| byte.is_ascii_hexdigit()), "{text:?} is taken for {token}");
    }
}
