//! The callers' sides of the starts of a prepared transfer, used again when they have ended.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use farreach_proto::machine::{OpId, PeerKey};
use farreach_rail::{Held, TransferAnswer};

use crate::TransferError;
use crate::hung_call::Timeout;
use crate::pending::Answer;
use crate::progress::{Listener, oneshot};
use crate::transfer::{TransferInFlight, Transferred};
use crate::watch::PeerCell;

/// The maximum number that is kept.
const KEPT_MAX: usize = 1024;

/// Starts that have ended. A start that takes one of them allocates nothing.
#[derive(Default)]
pub(crate) struct StartPool {
    ended: Mutex<Ended>,
}

/// The boxes themselves are used again.
type Ended = Vec<Box<Start>>;

/// A start, as its caller waits for it. The memory stays with the prepared transfer.
pub(crate) struct Start {
    transfer: TransferInFlight<fn(Option<Held>) -> Option<()>>,
    /// `None` while it is kept.
    pool: Option<Arc<StartPool>>,
}

impl StartPool {
    /// Returns a start of an operation with this peer, and the sender of its answer. All starts of a
    /// pool are of one peer.
    pub(crate) fn start(
        self: &Arc<Self>,
        peer: PeerKey,
        cell: &Arc<PeerCell>,
        op: OpId,
    ) -> (Box<Start>, oneshot::Sender<TransferAnswer>) {
        let ended = self.lock().pop();
        if let Some(mut start) = ended
            // The leader may be about to drop the sender of the last answer. Such a start is not
            // used again.
            && let Some(sender) = start.transfer.renew(op)
        {
            start.pool = Some(Arc::clone(self));
            return (start, sender);
        }
        let (sender, receiver) = oneshot::channel();
        // The engine has released the memory.
        let restore: fn(Option<Held>) -> Option<()> = |_| Some(());
        let transfer = TransferInFlight::new(receiver, peer, cell, op, restore);
        (Box::new(Start { transfer, pool: Some(Arc::clone(self)) }), sender)
    }

    fn keep(&self, start: Box<Start>) {
        let mut ended = self.lock();
        // What is beyond the limit is freed, so that a burst does not keep its memory.
        if ended.len() < KEPT_MAX {
            ended.push(start);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Ended> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for StartPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StartPool").finish_non_exhaustive()
    }
}

impl Answer<Result<Transferred<()>, TransferError<()>>> for Start {
    fn is_ready(&self) -> bool {
        self.transfer.is_ready()
    }

    fn listen(&self, listener: &Listener) {
        self.transfer.listen(listener);
    }

    fn take(&mut self) -> Option<Result<Transferred<()>, TransferError<()>>> {
        self.transfer.take()
    }

    fn timed_out(&mut self, timeout: &Timeout) -> Result<Transferred<()>, TransferError<()>> {
        self.transfer.timed_out(timeout)
    }

    fn ended(&mut self) -> Result<Transferred<()>, TransferError<()>> {
        self.transfer.ended()
    }

    fn operation(&self) -> Option<(PeerKey, OpId)> {
        self.transfer.operation()
    }

    fn recycle(mut self: Box<Self>) {
        // The leader still has the sender of one that has not ended.
        if self.transfer.is_ready()
            // What the pool keeps must not keep the pool.
            && let Some(pool) = self.pool.take()
        {
            pool.keep(self);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn one_that_has_ended_is_used_again_and_one_that_runs_is_not() {
        let pool = Arc::new(StartPool::default());
        let start = |op| pool.start(PeerKey(0), &Arc::default(), OpId(op));
        let (first, sender) = start(1);
        first.recycle();
        let (second, second_sender) = start(2);
        // Each is closed, with an answer that nobody takes.
        drop((sender, second_sender));
        assert!(second.is_ready());
        let place: *const Start = &*second;
        second.recycle();
        let (third, _sender) = start(3);
        assert!(std::ptr::eq(place, &*third), "the second one");
        assert!(!third.is_ready());
        assert_eq!(third.operation(), Some((PeerKey(0), OpId(3))));
        drop(third);
        assert_eq!(Arc::strong_count(&pool), 1, "what is kept does not keep it");
    }
}
