//! Polling: completions in, buffers out.

use std::fmt;
use std::marker::PhantomData;
use std::sync::{MutexGuard, PoisonError};

use farreach_verbs_sys as sys;

use super::completion::{Failure, Success, WorkCompletion, WorkStatus};
use super::registry::{Source, Table};
use super::{CompletionQueue, registry::Registry};
use crate::error::Error;
use crate::qp::queue::{InFlight, WorkRequestId};

/// Completions that are taken from the device at once.
const BATCH: usize = 32;

/// The right to poll a completion queue: one thread at a time has it.
///
/// ```no_run
/// # use farreach_verbs::cq::CompletionQueue;
/// # fn drain(cq: &CompletionQueue) -> Result<(), farreach_verbs::Error> {
/// let mut poller = cq.poller();
/// let count = poller.poll()?.count();
/// println!("{count} requests are done");
/// # Ok(())
/// # }
/// ```
pub struct Poller<'cq> {
    cq: &'cq CompletionQueue,
    state: MutexGuard<'cq, PollState>,
}

impl fmt::Debug for Poller<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Poller").field("cq", self.cq).finish_non_exhaustive()
    }
}

/// What a completion queue keeps from one poll to the next.
pub(crate) struct PollState {
    table: Table,
    batch: [sys::ibv_wc; BATCH],
    /// The completions of the batch that were not looked at yet.
    next: usize,
    filled: usize,
    retiring: Option<Retiring>,
}

/// A completion of a queue that completes in order: it stands for all requests up to its own.
#[derive(Clone, Copy)]
struct Retiring {
    place: usize,
    last: u32,
    completion: usize,
}

impl PollState {
    pub(crate) fn new() -> Self {
        let batch = [sys::ibv_wc::default(); BATCH];
        Self { table: Table::default(), batch, next: 0, filled: 0, retiring: None }
    }
}

impl CompletionQueue {
    /// The right to poll; waits until no other thread has it.
    #[doc(alias = "ibv_poll_cq")]
    pub fn poller(&self) -> Poller<'_> {
        // A panic while polling leaves the completions that were not handed out where they are.
        let state = self.poll_state().lock().unwrap_or_else(PoisonError::into_inner);
        Poller { cq: self, state }
    }
}

impl Poller<'_> {
    /// Takes what has completed, without waiting: `ibv_poll_cq(3)`. A budget of some dozens at a time; what the caller leaves comes
    /// with the next call.
    ///
    /// Every request comes back exactly once. One without a completion of its own comes before the signalled one that
    /// follows it. A failed poll gives nothing back.
    pub fn poll(&mut self) -> Result<Completions<'_>, Error> {
        let state = &mut *self.state;
        if state.retiring.is_none() && state.next == state.filled {
            state.table.follow(self.cq.registry());
            (state.next, state.filled) = (0, 0);
            // SAFETY: this is the account: every request of a queue on the table is in its ring until its completion
            // is taken here, and what is of nobody's was posted by the raw door.
            state.filled = unsafe { self.cq.poll_raw(&mut state.batch) }?;
        }
        Ok(Completions { state, registry: self.cq.registry() })
    }

    /// The completion queue.
    pub fn cq(&self) -> &CompletionQueue {
        self.cq
    }
}

/// What has completed, one request at a time.
pub struct Completions<'poller> {
    state: &'poller mut PollState,
    registry: &'poller Registry,
}

impl fmt::Debug for Completions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let left = self.state.filled - self.state.next;
        f.debug_struct("Completions").field("left", &left).finish_non_exhaustive()
    }
}

impl<'poller> Iterator for Completions<'poller> {
    type Item = WorkCompletion<'poller>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(retiring) = self.state.retiring
                && let Some(completion) = self.retire(retiring)
            {
                return Some(completion);
            }
            if self.state.next == self.state.filled {
                return None;
            }
            let index = self.state.next;
            self.state.next += 1;
            if let Some(completion) = self.take(index) {
                return Some(completion);
            }
        }
    }
}

impl<'poller> Completions<'poller> {
    /// Looks whose completion it is. One of a queue that is gone, or of the raw door, is nobody's here.
    fn take(&mut self, index: usize) -> Option<WorkCompletion<'poller>> {
        let id = WorkRequestId::from_raw(self.state.batch[index].wr_id);
        let place = self.find(id.queue)?;
        match self.state.table.get(place)? {
            Source::Queue(queue) => {
                if queue.ring.retirer().is_in_flight(id.number) {
                    self.state.retiring = Some(Retiring { place, last: id.number, completion: index });
                }
                None
            }
            Source::Shared(queue) => {
                let request = queue.lock().take(id.number)?;
                Some(completed(request, &self.state.batch[index]))
            }
        }
    }

    /// A queue pair may have been made, and have completed, after the table was copied.
    fn find(&mut self, queue: u32) -> Option<usize> {
        if let Some(place) = self.state.table.find(queue) {
            return Some(place);
        }
        self.state.table.follow(self.registry);
        self.state.table.find(queue)
    }

    /// The next request that this completion stands for. Those before its own went well: had one failed, it would have a completion
    /// of its own.
    fn retire(&mut self, retiring: Retiring) -> Option<WorkCompletion<'poller>> {
        let Some(Source::Queue(queue)) = self.state.table.get(retiring.place) else {
            self.state.retiring = None;
            return None;
        };
        // Nothing is left where the queue pair was destroyed meanwhile, which took its requests back.
        let retired = queue.ring.retirer().retire_next();
        let completion = &self.state.batch[retiring.completion];
        match retired {
            Some((number, request)) if number != retiring.last => Some(earlier(request, completion)),
            Some((_, request)) => {
                let completed = completed(request, completion);
                self.state.retiring = None;
                Some(completed)
            }
            None => {
                self.state.retiring = None;
                None
            }
        }
    }
}

fn completed<'poller>(request: InFlight, wc: &sys::ibv_wc) -> WorkCompletion<'poller> {
    let outcome = if wc.status == sys::IBV_WC_SUCCESS {
        // SAFETY: it went well.
        Ok(unsafe { Success::from_raw(wc) })
    } else {
        Err(Failure { status: WorkStatus::from_raw(wc.status), vendor_error: wc.vendor_err })
    };
    with_outcome(request, wc, outcome)
}

fn earlier<'poller>(request: InFlight, wc: &sys::ibv_wc) -> WorkCompletion<'poller> {
    with_outcome(request, wc, Ok(Success::default()))
}

fn with_outcome<'poller>(
    request: InFlight,
    wc: &sys::ibv_wc,
    outcome: Result<Success, Failure>,
) -> WorkCompletion<'poller> {
    let InFlight { tag, kind, buffers, .. } = request;
    WorkCompletion { tag, kind, qp_num: wc.qp_num, outcome, buffers, _poller: PhantomData }
}
