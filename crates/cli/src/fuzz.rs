//! Private parts of the command, for the fuzz targets. The command itself does not contain them.

use serde::de::DeserializeOwned;

use crate::agent::{AGENT_BYTES, Task};
use crate::cmd::{bench, doctor};
use crate::exit::Failure;
use crate::session::{
    self, HEAD_LEN, Notice, Order, Other, PeerAddress, TheirFailure, Welcome, check_head, head,
    of_the_server, understand,
};

/// Reads an order as the server does: its bounds first. Returns the memory that it needs, if it is
/// accepted.
///
/// # Panics
///
/// If an order that needs more memory than a client may have is accepted.
pub fn order(bytes: &[u8], rails: &[String], memory_max: u64) -> Option<u64> {
    let order: Order<Task> = serde_json::from_slice(bytes).ok()?;
    let checked = order.check(rails, memory_max);
    if let Err(failure) = &checked {
        told(failure);
    }
    let needed = checked.ok()?;
    assert!((AGENT_BYTES..=memory_max).contains(&needed), "{needed} of {memory_max} bytes");
    // What the agent does with the numbers of an order that was accepted.
    let _ = order.engine.settings();
    assert!(order.rails.among(rails, ([127, 0, 0, 1], 1).into()).len() <= rails.len());
    Some(needed)
}

/// Reads what a client sends to its agent after the order.
pub fn message_of_client(bytes: &[u8]) {
    if let Err(failure) = bench::fuzz_step(bytes) {
        told(&failure);
    }
    doctor::fuzz_step(bytes);
    let _ = understand::<u64>(bytes);
}

/// Reads what a server sends to a client.
pub fn message_of_server(bytes: &[u8]) {
    fn read<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
        serde_json::from_slice(bytes).ok()
    }
    if let Some(Err(failure)) = read::<Result<Welcome, TheirFailure>>(bytes) {
        assert!(session::refusal(&failure.clone().of_this_program()).starts_with(&head()));
        told(&of_the_server(failure));
    }
    if let Some(Notice::Refused(failure)) = read::<Notice<TheirFailure>>(bytes) {
        told(&of_the_server(failure));
    }
    if let Some(first) = bytes.first_chunk::<HEAD_LEN>() {
        for other in [Other::Client, Other::Server] {
            let checked = check_head(first, other);
            assert_eq!(checked.is_ok(), *first == head());
            if let Err(failure) = checked {
                told(&failure);
            }
        }
    }
}

/// Parses texts that a user types.
pub fn names(text: &str) {
    if let Ok(address) = text.parse::<PeerAddress>() {
        assert!(!address.host().is_empty() && !address.host().contains(char::is_whitespace));
        let again: PeerAddress = address.to_string().parse().expect("an address that is shown can be typed");
        assert_eq!(again.to_string(), address.to_string());
        assert_eq!(again.host(), address.host());
    }
    if let Ok(cpus) = text.parse::<crate::cpu::Cpus>() {
        assert!(cpus.client.is_some() || cpus.server.is_some());
    }
    if let Ok(sizes) = text.parse::<crate::units::sweep::Sizes>() {
        assert!((1..=400).contains(&sizes.bytes().len()));
    }
    if let Ok(counts) = text.parse::<crate::units::sweep::Counts>() {
        assert!((1..=400).contains(&counts.numbers().len()));
    }
}

/// A user reads a failure.
fn told(failure: &Failure) {
    let text = failure.sentence();
    assert_eq!(farreach_text::one_line(&text, usize::MAX), text, "a text of the other side is shown as text");
}
