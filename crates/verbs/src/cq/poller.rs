//! Polling: completions in, buffers out.

use std::fmt;
use std::ptr::NonNull;

use farreach_verbs_sys as sys;
use parking_lot::MutexGuard;

use super::completion::WorkCompletion;
use super::registry::{Source, Table};
use super::{CompletionQueue, registry::Registry};
use crate::error::Error;
use crate::qp::queue::{Queue, WorkRequestId};

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
    /// The completions of the batch that were not handed out whole yet.
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
    /// The right to poll; waits until no other thread has it.
    #[doc(alias = "ibv_poll_cq")]
    pub fn poller(&self) -> Poller<'_> {
        // A panic while polling leaves the completions that were not handed out where they are: there is nothing to poison.
        Poller { cq: self, state: self.poll_state().lock() }
    }
}

impl Poller<'_> {
    /// Takes what has completed, without waiting: `ibv_poll_cq(3)`. A budget of some dozens at a time; what the caller leaves comes
    /// with the next call.
    ///
    /// Every request comes back exactly once. One without a completion of its own comes before the signalled one that
    /// follows it. A failed poll gives nothing back.
    #[inline]
    pub fn poll(&mut self) -> Result<Completions<'_>, Error> {
        self.fetch()?;
        let PollState { table, batch, next, filled } = &mut *self.state;
        Ok(Completions { batch: &batch[..*filled], next, table, registry: self.cq.registry(), recent: None })
    }

    /// Whether there may be something to [poll](Self::poll) for. What it has seen waits for that.
    ///
    /// ```no_run
    /// # use farreach_verbs::cq::CompletionQueue;
    /// # fn may_sleep(cq: &CompletionQueue) -> Result<bool, farreach_verbs::Error> {
    /// cq.req_notify(false)?;
    /// // What completed before arming raises no event.
    /// let is_idle = !cq.poller().has_completions()?;
    /// # Ok(is_idle)
    /// # }
    /// ```
    pub fn has_completions(&mut self) -> Result<bool, Error> {
        self.fetch()
    }

    /// Takes a batch from the device, if there is nothing left of the last one. Whether there is something now.
    #[inline]
    pub(super) fn fetch(&mut self) -> Result<bool, Error> {
        let PollState { table, batch, next, filled } = &mut *self.state;
        if *next == *filled {
            table.forget_earlier();
            table.follow(self.cq.registry());
            (*next, *filled) = (0, 0);
            // SAFETY: this is the account: every request of a queue on the table is in its ring until its completion
            // is taken here, and what is of nobody's was posted by the raw API.
            *filled = unsafe { self.cq.poll_raw(batch) }?;
        }
        Ok(*filled > 0)
    }

    /// The completion queue.
    pub fn cq(&self) -> &CompletionQueue {
        self.cq
    }
}

/// What has completed, one request at a time.
///
/// ```no_run
/// # use farreach_verbs::cq::CompletionQueue;
/// # fn serve(cq: &CompletionQueue) -> Result<(), farreach_verbs::Error> {
/// let mut poller = cq.poller();
/// let mut completions = poller.poll()?;
/// if let Some(first) = completions.next() {
///     println!("{} is done", first.tag());
/// }
/// // Those that were not taken come with the next poll.
/// # Ok(())
/// # }
/// ```
pub struct Completions<'poller> {
    batch: &'poller [sys::ibv_wc],
    next: &'poller mut usize,
    table: &'poller mut Table,
    registry: &'poller Registry,
    /// Whose the last completion was: likely, whose the next one is.
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
                    // A completion stands for all requests up to its own. Those before it went well: had one failed,
                    // it would have a completion of its own.
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
            // Of a queue that is gone, or of the raw API: nobody's here.
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
        // SAFETY: the table keeps it until the next batch is taken, which nobody can do before `'poller` is over.
        Some(unsafe { source.as_ref() })
    }

    /// A queue pair may have been made, and have completed, after the table was copied.
    #[cold]
    fn find_new(&mut self, queue: u32) -> Option<NonNull<Source>> {
        self.table.follow(self.registry);
        self.table.find(queue)
    }
}
