//! Endpoints that are kept open, because others of this process may still access them.
//!
//! Between endpoints of one process, libfabric's shared memory provider has one mapping, that of
//! the endpoint itself. Its peers use it, and closing the endpoint unmaps it. A peer that then
//! polls for operations of the closed one accesses unmapped memory, and the process crashes. Such
//! an endpoint is therefore no longer polled once dropped, and closed only when no other one is
//! open that could access it.
//!
//! libfabric never forgets the name of such an endpoint, nor the address of its memory: a later use
//! of the name, from an address that was kept, leads to memory where something else may be mapped
//! by then. The addresses of closed endpoints are therefore kept here, and refused.

use std::collections::HashSet;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::Open;
use crate::Address;

static SIBLINGS: LazyLock<Mutex<Siblings>> = LazyLock::new(Mutex::default);

/// Read-locked while a completion queue is read, which makes progress on every endpoint that
/// completes to it; write-locked while endpoints are closed. It is taken before all other locks.
static MOVING: RwLock<()> = RwLock::new(());

/// Prevents the close of endpoints that others access, as long as the guard is held.
pub(crate) fn moving() -> RwLockReadGuard<'static, ()> {
    MOVING.read().unwrap_or_else(PoisonError::into_inner)
}

/// Prevents accesses to all of them, as long as the guard is held.
pub(super) fn closing() -> RwLockWriteGuard<'static, ()> {
    MOVING.write().unwrap_or_else(PoisonError::into_inner)
}

/// Endpoints of this process that may access each other.
#[derive(Default)]
struct Siblings {
    /// The number of endpoints in use.
    open: usize,
    /// Endpoints that were dropped, and not closed.
    kept: Vec<Open>,
    /// The [names](name) of endpoints that are closed, or are about to be. While an endpoint is in
    /// use, its name is not among them.
    closed: HashSet<Vec<u8>>,
}

fn siblings() -> MutexGuard<'static, Siblings> {
    // A panic under the lock leaves consistent state.
    SIBLINGS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Accounts a new endpoint.
pub(super) fn opened() {
    siblings().open += 1;
}

/// Ends the use of an endpoint. Returns the endpoints that can be closed now, including itself if
/// it is the last.
pub(super) fn dropped(endpoint: Open) -> Vec<Open> {
    siblings().leave(endpoint)
}

/// Ends the use of an endpoint that is to be closed. Returns itself and the others that can be
/// closed now, if no other is in use. Otherwise it is kept.
pub(super) fn last(endpoint: Open) -> Option<(Open, Vec<Open>)> {
    let mut closable = siblings().leave(endpoint);
    closable.pop().map(|endpoint| (endpoint, closable))
}

/// Returns `true` if an address may lead to a closed endpoint of this process.
pub(super) fn was_closed(address: &Address) -> bool {
    siblings().was_closed(address)
}

/// Runs `insert`, which passes an address to the provider, unless the address may lead to a closed
/// endpoint. No other endpoint is selected for closing meanwhile.
pub(crate) fn unless_closed<R>(address: &Address, insert: impl FnOnce() -> R) -> Option<R> {
    let siblings = siblings();
    (!siblings.was_closed(address)).then(insert)
}

/// Returns the name by which libfabric finds an endpoint: the text behind `://`, or all of it.
/// Returns `None` for a text that it may confuse with another: it truncates a long one, and some
/// releases search for `://` twice.
fn name(address: &Address) -> Option<&[u8]> {
    /// `SMR_NAME_MAX`, with the NUL.
    const TEXT_MAX: usize = 256;
    const SCHEME_END: &[u8] = b"://";

    let bytes = address.bytes();
    let ends = bytes.windows(SCHEME_END.len()).enumerate().filter(|(_, window)| *window == SCHEME_END);
    let mut starts = ends.map(|(end, _)| end + SCHEME_END.len());
    let name = starts.next().map_or(bytes, |start| &bytes[start..]);
    let is_plain = !address.format().is_text() || (starts.next().is_none() && bytes.len() <= TEXT_MAX);
    is_plain.then_some(name)
}

impl Siblings {
    fn was_closed(&self, address: &Address) -> bool {
        name(address).is_none_or(|name| self.closed.contains(name))
    }

    /// Ends the use of an endpoint. Returns the endpoints that can be closed now, itself last.
    fn leave(&mut self, endpoint: Open) -> Vec<Open> {
        self.open -= 1;
        self.kept.push(endpoint);
        if self.open > 0 {
            return Vec::new();
        }
        // Done before they are closed, which is not under the lock: an endpoint that is opened
        // meanwhile must not learn of them.
        self.closed
            .extend(self.kept.iter().filter_map(|endpoint| name(&endpoint.address)).map(<[u8]>::to_vec));
        std::mem::take(&mut self.kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AddressFormat;

    #[test]
    fn no_other_text_leads_to_an_endpoint_that_was_closed() {
        let address = |text: &str| Address::new(AddressFormat::Text, text);
        let siblings = Siblings { closed: HashSet::from([b"7:1\0".to_vec()]), ..Siblings::default() };
        // After such a long prefix, libfabric truncates the last digit.
        let cut = format!("{}://7:10\0", "x".repeat(249));
        for text in ["fi_shm://7:1\0", "fi_ns://7:1\0", "7:1\0", "a://b://7:1\0", &cut] {
            assert!(siblings.was_closed(&address(text)), "{text:?}");
        }
        for text in ["fi_shm://7:10\0", "fi_shm://7:0\0", "7:11\0"] {
            assert!(!siblings.was_closed(&address(text)), "{text:?}");
        }
    }
}
