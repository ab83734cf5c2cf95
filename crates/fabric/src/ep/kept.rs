//! Endpoints that are kept open, because others of this process may still look into them.
//!
//! Between endpoints of one process libfabric's shared memory has one mapping, that of the endpoint itself: its peers use it, and closing the endpoint
//! takes it away. A peer that then polls for what the closed one has sent reads what is not there, and the process dies. So such an
//! endpoint, once dropped, is only polled no more. It is closed when no other one is open that could look into it.
//!
//! libfabric never forgets the name of such an endpoint, nor where its memory was: who names it later, by an address that was kept, is led to where
//! something else may be mapped by then. So addresses of closed endpoints are kept here, and lead nowhere.

use std::collections::HashSet;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use super::Open;
use crate::Address;

static SIBLINGS: LazyLock<Mutex<Siblings>> = LazyLock::new(Mutex::default);

/// Endpoints of this process that may look into each other.
#[derive(Default)]
struct Siblings {
    /// How many are in use.
    open: usize,
    /// Dropped, and not closed.
    kept: Vec<Open>,
    /// Where endpoints were that are closed, or are about to be. While one is in use, there are no more of them.
    closed: HashSet<Address>,
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

/// Whether an endpoint of this process was there, and was closed.
pub(crate) fn was_closed(address: &Address) -> bool {
    siblings().closed.contains(address)
}

/// Runs `insert`, which tells the provider of an address, unless an endpoint that was closed was there. None is closed meanwhile.
pub(crate) fn unless_closed<R>(address: &Address, insert: impl FnOnce() -> R) -> Option<R> {
    let siblings = siblings();
    (!siblings.closed.contains(address)).then(insert)
}

impl Siblings {
    /// Those that can be closed now, the one that leaves at the end.
    fn leave(&mut self, endpoint: Open) -> Vec<Open> {
        self.open -= 1;
        self.kept.push(endpoint);
        if self.open > 0 {
            return Vec::new();
        }
        // Before they are closed, which is not under the lock: who opens an endpoint meanwhile must not come to know them.
        self.closed.extend(self.kept.iter().map(|endpoint| endpoint.address.clone()));
        std::mem::take(&mut self.kept)
    }
}
