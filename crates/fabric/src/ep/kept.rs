//! Endpoints that are kept open, because others of this process may still look into them.
//!
//! Between endpoints of one process libfabric's shared memory has one mapping, that of the endpoint itself: its peers use it, and closing the endpoint
//! takes it away. A peer that then polls for what the closed one has sent reads what is not there, and the process dies. So such an
//! endpoint, once dropped, is only polled no more. It is closed when no other one is open that could look into it.
//!
//! libfabric never forgets the name of such an endpoint, nor where its memory was: who names it later, by an address that was kept, is led to where
//! something else may be mapped by then. So addresses of closed endpoints are kept here, and lead nowhere.

use std::collections::HashSet;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::Open;
use crate::Address;

static SIBLINGS: LazyLock<Mutex<Siblings>> = LazyLock::new(Mutex::default);

/// Shared by whoever reads a completion queue, which moves every endpoint that completes to it; held alone by whoever closes. Locked before all other locks.
static MOVING: RwLock<()> = RwLock::new(());

/// Nothing is closed that endpoints look into, as long as this is held.
pub(crate) fn moving() -> RwLockReadGuard<'static, ()> {
    MOVING.read().unwrap_or_else(PoisonError::into_inner)
}

/// Nobody looks into any of them, as long as this is held.
pub(super) fn closing() -> RwLockWriteGuard<'static, ()> {
    MOVING.write().unwrap_or_else(PoisonError::into_inner)
}

/// Endpoints of this process that may look into each other.
#[derive(Default)]
struct Siblings {
    /// How many are in use.
    open: usize,
    /// Dropped, and not closed.
    kept: Vec<Open>,
    /// The [names](name) of endpoints that are closed, or are about to be. While one is in use, there are no more of them.
    closed: HashSet<Vec<u8>>,
}

fn siblings() -> MutexGuard<'static, Siblings> {
    // A panic under the lock leaves nothing half done.
    SIBLINGS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// There is one more.
pub(super) fn opened() {
    siblings().open += 1;
}

/// One is not used any more: those that can be closed now, itself among them where it is the last.
pub(super) fn dropped(endpoint: Open) -> Vec<Open> {
    siblings().leave(endpoint)
}

/// One is to be closed: itself and the others that can be closed now, if no other is in use. Otherwise it is kept.
pub(super) fn last(endpoint: Open) -> Option<(Open, Vec<Open>)> {
    let mut closable = siblings().leave(endpoint);
    closable.pop().map(|endpoint| (endpoint, closable))
}

/// Whether an address may lead to an endpoint of this process that was closed.
pub(super) fn was_closed(address: &Address) -> bool {
    siblings().was_closed(address)
}

/// Runs `insert`, which tells the provider of an address, unless that may lead to an endpoint that was closed. Meanwhile no other is chosen to be closed.
pub(crate) fn unless_closed<R>(address: &Address, insert: impl FnOnce() -> R) -> Option<R> {
    let siblings = siblings();
    (!siblings.was_closed(address)).then(insert)
}

/// What libfabric finds an endpoint by: the text behind `://`, or all of it. None of a text that it may take for another: it cuts a long one, and some releases
/// look for `://` twice.
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

    /// Those that can be closed now, the one that leaves at the end.
    fn leave(&mut self, endpoint: Open) -> Vec<Open> {
        self.open -= 1;
        self.kept.push(endpoint);
        if self.open > 0 {
            return Vec::new();
        }
        // Before they are closed, which is not under the lock: who opens an endpoint meanwhile must not come to know them.
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
        // Behind so much, libfabric cuts the last digit off.
        let cut = format!("{}://7:10\0", "x".repeat(249));
        for text in ["fi_shm://7:1\0", "fi_ns://7:1\0", "7:1\0", "a://b://7:1\0", &cut] {
            assert!(siblings.was_closed(&address(text)), "{text:?}");
        }
        for text in ["fi_shm://7:10\0", "fi_shm://7:0\0", "7:11\0"] {
            assert!(!siblings.was_closed(&address(text)), "{text:?}");
        }
    }
}
