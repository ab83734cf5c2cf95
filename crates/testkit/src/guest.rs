//! What a test knows of its guest.

use std::env;

/// Whether this guest does long tests whole: the newest kernel's with one host. What costs a minute there and is the same
/// everywhere is done in part in the others.
///
/// A machine that is no guest, such as a developer's with a card, does them whole.
pub fn does_long_tests() -> bool {
    let is = |name: &str, expected: fn(&str) -> bool| env::var(name).map_or(true, |value| expected(&value));
    is("FARREACH_TOPOLOGY", |topology| topology == "one")
        && is("FARREACH_KERNEL", |version| !version.starts_with("6.1."))
}
