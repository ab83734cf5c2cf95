//! Takes completions from the device and returns the buffers of their work requests.
//!
//! Invariant: one thread at a time polls a completion queue, and each work request is returned
//! exactly once.

use std::fmt;
use std::ptr::NonNull;

use farreach_verbs_sys as sys;
use parking_lot::MutexGuard;

use super::completion::WorkCompletion;
use super::registry::{Source, Table};
use super::{CompletionQueue, registry::Registry};
use crate::error::Error;
use crate::qp::queue::{Queue, WorkRequestId};

/// The number of completions taken from the device at once.
const BATCH: usize = 32;

/// The exclusive right to poll a completion queue.
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

/// The state of a completion queue between polls.
pub(crate) struct PollState {
    table: Table,
    batch: [sys::ibv_wc; BATCH],
    /// The range of the batch that was not fully returned yet.
    next: usize,
    filled: usize,
}

impl PollState {
    pub(crate) fn new() -> Self {
        let batch = [sys::ibv_wc::default(); BATCH];
        Self { table: Table::new(), batch, next: 0, filled: 0 }
    }
}

impl CompletionQueue {
    /// Returns the right to poll. Blocks while another thread has it.
    #[doc(alias = "ibv_poll_cq")]
    pub fn poller(&self) -> Poller<'_> {
        // A panic while polling leaves the remaining completions in place, so there is nothing to
        // poison.
        Poller { cq: self, state: self.poll_state().lock() }
    }
}

impl Poller<'_> {
    /// Takes completions without waiting: `ibv_poll_cq(3)`. It takes a limited number at once;
    /// completions that the caller does not consume are returned by the next call.
    ///
    /// Every work request is returned exactly once. One without a completion of its own is returned
    /// before the next signalled one. A failed poll returns nothing.
    #[inline]
    pub fn poll(&mut self) -> Result<Completions<'_>, Error> {
        self.fetch()?;
        let PollState { table, batch, next, filled } = &mut *self.state;
        Ok(Completions { batch: &batch[..*filled], next, table, registry: self.cq.registry(), recent: None })
    }

    /// Returns `true` if [`poll`](Self::poll) may have completions. They stay until it is called.
    ///
    /// ```no_run
    /// # use farreach_verbs::cq::CompletionQueue;
    /// # fn may_sleep(cq: &CompletionQueue) -> Result<bool, farreach_verbs::Error> {
    /// cq.req_notify(false)?;
    /// // Completions before arming raise no event.
    /// let is_idle = !cq.poller().has_completions()?;
    /// # Ok(is_idle)
    /// # }
    /// ```
    pub fn has_completions(&mut self) -> Result<bool, Error> {
        self.fetch()
    }

    /// Takes a batch from the device if the last one is used up. Returns `true` if there are
    /// completions.
    #[inline]
    pub(super) fn fetch(&mut self) -> Result<bool, Error> {
        let PollState { table, batch, next, filled } = &mut *self.state;
        if *next == *filled {
            table.forget_earlier();
            table.follow(self.cq.registry());
            (*next, *filled) = (0, 0);
            // SAFETY: the rings track the work requests: every work request of a queue in the table
            // stays in its ring until its completion is taken here. Other completions belong to the
            // raw API.
            *filled = unsafe { self.cq.poll_raw(batch) }?;
        }
        Ok(*filled > 0)
    }

    /// Returns the completion queue.
    pub fn cq(&self) -> &CompletionQueue {
        self.cq
    }
}

/// An iterator over completed work requests.
///
/// ```no_run
/// # use farreach_verbs::cq::CompletionQueue;
/// # fn serve(cq: &CompletionQueue) -> Result<(), farreach_verbs::Error> {
/// let mut poller = cq.poller();
/// let mut completions = poller.poll()?;
/// if let Some(first) = completions.next() {
///     println!("{} is done", first.tag());
/// }
/// // The rest is returned by the next poll.
/// # Ok(())
/// # }
/// ```
pub struct Completions<'poller> {
    batch: &'poller [sys::ibv_wc],
    next: &'poller mut usize,
    table: &'poller mut Table,
    registry: &'poller Registry,
    /// The queue of the last completion, which is likely that of the next one too.
    recent: Option<&'poller Queue>,
}

impl fmt::Debug for Completions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Completions").field("left", &(self.batch.len() - *self.next)).finish_non_exhaustive()
    }
}

impl<'poller> Iterator for Completions<'poller> {
    type Item = WorkCompletion<'poller>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let wc = self.batch.get(*self.next)?;
            let id = WorkRequestId::from_raw(wc.wr_id);
            let queue = match self.recent {
                Some(recent) if recent.number == id.queue => Some(recent),
                _ => match self.find(id.queue) {
                    Some(Source::Queue(queue)) => Some(&**queue),
                    Some(Source::Shared(queue)) => {
                        if let Some(request) = queue.take(&mut queue.lock(), id.number) {
                            *self.next += 1;
                            return Some(WorkCompletion { request, wc, is_own: true });
                        }
                        None
                    }
                    None => None,
                },
            };
            if let Some(queue) = queue {
                self.recent = Some(queue);
                if let Some((number, request)) = queue.ring.retire_up_to(id.number) {
                    // A completion stands for all work requests up to its own. The earlier ones
                    // succeeded: a failed one would have a completion of its own.
                    let is_own = number == id.number;
                    if is_own {
                        *self.next += 1;
                        if wc.status != sys::IBV_WC_SUCCESS {
                            request.fail();
                        }
                    }
                    return Some(WorkCompletion { request, wc, is_own });
                }
            }
            // A completion of a queue that is gone, or of the raw API, has no work request here.
            *self.next += 1;
        }
    }
}

impl<'poller> Completions<'poller> {
    #[inline]
    fn find(&mut self, queue: u32) -> Option<&'poller Source> {
        let source = match self.table.find(queue) {
            Some(source) => source,
            None => self.find_new(queue)?,
        };
        // SAFETY: the table keeps the source until the next batch is taken, which requires the
        // poller that is borrowed for `'poller`.
        Some(unsafe { source.as_ref() })
    }

    /// Looks again in the registry: a queue pair may have been created, and have completed, after
    /// the table was copied.
    #[cold]
    fn find_new(&mut self, queue: u32) -> Option<NonNull<Source>> {
        self.table.follow(self.registry);
        self.table.find(queue)
    }
}
