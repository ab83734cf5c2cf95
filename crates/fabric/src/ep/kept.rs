//! Endpoints that are kept open, because others of this process may still look into them.
//!
//! Between endpoints of one process libfabric's shared memory has one mapping, that of the endpoint itself: its peers use it, and closing the endpoint
//! takes it away. A peer that then polls for what the closed one has sent reads what is not there, and the process dies. So such an
//! endpoint, once dropped, is only polled no more. It is closed when no other one is open that could look into it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Open;

static SIBLINGS: Mutex<Siblings> = Mutex::new(Siblings { open: 0, kept: Vec::new() });

/// Endpoints of this process that may look into each other.
struct Siblings {
    /// How many are in use.
    open: usize,
    /// Dropped, and not closed.
    kept: Vec<Open>,
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

impl Siblings {
    /// Those that can be closed now, the one that leaves at the end.
    fn leave(&mut self, endpoint: Open) -> Vec<Open> {
        self.open -= 1;
        self.kept.push(endpoint);
        if self.open > 0 {
            return Vec::new();
        }
        std::mem::take(&mut self.kept)
    }
}
