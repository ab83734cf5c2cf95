//! Properties of the guest that a test runs in.

use std::env;

/// Returns `true` if this guest runs long tests completely: the newest kernel's with one host. The
/// others run only a part of tests that take a minute and are the same everywhere.
///
/// A machine that is no guest, such as a developer's with a card, runs them completely.
pub fn does_long_tests() -> bool {
    let is = |name: &str, expected: fn(&str) -> bool| env::var(name).map_or(true, |value| expected(&value));
    is("FARREACH_TOPOLOGY", |topology| topology == "one")
        && is("FARREACH_KERNEL", |version| !version.starts_with("6.1."))
}
