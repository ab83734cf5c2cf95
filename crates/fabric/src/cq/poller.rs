//! Polling: completions in, buffers out.

use std::fmt;
use std::sync::{MutexGuard, PoisonError};

use farreach_fabric_sys as sys;

use super::completion::{Completion, Event, Failure, Written};
use super::registry::Copied;
use super::{CompletionQueue, Registry};
use crate::Error;
use crate::ep::slots::Found;
use crate::handle::NO_ENTRY;

/// The maximum number of completions that are read from the provider at once.
const BATCH: usize = 32;

/// The right to poll a completion queue. One thread at a time has it.
///
/// ```no_run
/// # use farreach_fabric::CompletionQueue;
/// # fn drain(cq: &CompletionQueue) -> Result<(), farreach_fabric::Error> {
/// let mut poller = cq.poller();
/// let count = poller.poll()?.count();
/// println!("{count} events");
/// # Ok(())
/// # }
/// ```
pub struct Poller<'cq> {
    cq: &'cq CompletionQueue,
    state: MutexGuard<'cq, PollState>,
}

/// The state of a completion queue between two polls.
pub(crate) struct PollState {
    tables: Copied,
    batch: [sys::fi_cq_data_entry; BATCH],
    /// The index of the next entry of the batch, and the number of entries.
    next: usize,
    filled: usize,
    /// An error that was read and not returned yet. It belongs to the only entry of the batch,
    /// which is flagged as having immediate data, so that the common path needs no further check.
    failed: Option<Box<Failure>>,
}

// SAFETY: of its fields only the entries are not `Send` by themselves, for their pointers: these
// are compared, and never dereferenced.
unsafe impl Send for PollState {}

impl PollState {
    pub(crate) fn new() -> Self {
        Self { tables: Copied::new(), batch: [NO_ENTRY; BATCH], next: 0, filled: 0, failed: None }
    }

    fn is_empty(&self) -> bool {
        self.next == self.filled
    }
}

impl CompletionQueue {
    /// Returns the right to poll. Blocks until no other thread has it.
    #[doc(alias = "fi_cq_read")]
    pub fn poller(&self) -> Poller<'_> {
        // A panic while polling leaves the completions that were not returned where they are.
        let state = self.0.polling.lock().unwrap_or_else(PoisonError::into_inner);
        Poller { cq: self, state }
    }
}

impl Poller<'_> {
    /// Takes events, without waiting: `fi_cq_read(3)`. It also lets the provider make progress. It
    /// returns some dozens at a time; events that the caller leaves come with the next call.
    ///
    /// Every operation comes back exactly once. A failed poll returns nothing.
    #[doc(alias = "fi_cq_readerr")]
    #[inline]
    pub fn poll(&mut self) -> Result<Events<'_>, Error> {
        self.fill()?;
        let PollState { tables, batch, next, filled, failed } = &mut *self.state;
        Ok(Events { batch: &batch[..*filled], next, failed, tables, registry: self.cq.registry() })
    }

    /// Returns the completion queue.
    pub fn cq(&self) -> &CompletionQueue {
        self.cq
    }

    /// Reads, unless entries are left from before. Returns `true` if there are entries.
    #[inline]
    pub(super) fn fill(&mut self) -> Result<bool, Error> {
        let state = &mut *self.state;
        if !state.is_empty() {
            return Ok(true);
        }
        let registry = self.cq.registry();
        let dying = registry.dying();
        state.tables.forget_earlier();
        state.tables.follow(registry);
        (state.next, state.filled) = (0, 0);
        // Held until the error of an operation is read, too.
        let _moving = self.cq.moving()?;
        match self.cq.handle().read(&mut state.batch) {
            status if status == -sys::FI_EAGAIN => {
                registry.bury(dying);
                Ok(false)
            }
            status if status == -sys::FI_EAVAIL => {
                self.read_error()?;
                Ok(!self.state.is_empty())
            }
            status if status < 0 => Err(self.cq.domain().library().error("fi_cq_read", status)),
            count => {
                state.filled = (count as usize).min(BATCH);
                Ok(true)
            }
        }
    }

    /// Takes the error at the head of the queue.
    #[cold]
    fn read_error(&mut self) -> Result<(), Error> {
        // SAFETY: only a poller reads the queue, and `self.state` is the lock that allows one
        // thread at a time.
        let Some((entry, provider_text)) = (unsafe { self.cq.handle().read_error() })? else { return Ok(()) };
        let library = self.cq.domain().library();
        let failure = Failure {
            // Set when the operation is found.
            operation: None,
            // Some providers write it negated.
            errno: entry.err.saturating_abs(),
            text: library.strerror(entry.err.saturating_abs()),
            provider_errno: entry.prov_errno,
            provider_text,
            message_len: (entry.err == sys::FI_ETRUNC && entry.olen > 0).then(|| entry.len + entry.olen),
        };
        let state = &mut *self.state;
        state.failed = Some(Box::new(failure));
        state.batch[0] =
            sys::fi_cq_data_entry { op_context: entry.op_context, flags: sys::FI_REMOTE_CQ_DATA, ..NO_ENTRY };
        state.filled = 1;
        Ok(())
    }
}

impl fmt::Debug for Poller<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Poller").field("cq", self.cq).finish_non_exhaustive()
    }
}

/// Iterates over events.
pub struct Events<'poller> {
    batch: &'poller [sys::fi_cq_data_entry],
    next: &'poller mut usize,
    failed: &'poller mut Option<Box<Failure>>,
    tables: &'poller mut Copied,
    registry: &'poller Registry,
}

impl fmt::Debug for Events<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let left = self.batch.len() - *self.next;
        f.debug_struct("Events").field("left", &left).finish_non_exhaustive()
    }
}

impl<'poller> Iterator for Events<'poller> {
    type Item = Event<'poller>;

    #[inline(always)]
    fn next(&mut self) -> Option<Event<'poller>> {
        loop {
            let entry = self.batch.get(*self.next)?;
            *self.next += 1;
            if entry.flags & sys::FI_REMOTE_CQ_DATA == 0 {
                // Late entries and those of other users are skipped.
                if let Some(operation) = self.find(entry).and_then(Found::take) {
                    return Some(Event::Completed(Completion::new(operation, entry, None)));
                }
                continue;
            }
            let failure = self.failed.take();
            if failure.is_none() && is_by_peer(entry) {
                return Some(Event::Written(Written { immediate: entry.data, len: entry.len }));
            }
            match (self.find(entry), failure) {
                (Some(found), failure) => {
                    if let Some(operation) = found.take() {
                        return Some(Event::Completed(Completion::new(operation, entry, failure)));
                    }
                }
                (None, Some(failure)) => return Some(Event::Unattributed(failure)),
                (None, None) => {}
            }
        }
    }
}

impl<'poller> Events<'poller> {
    /// Returns the place that an entry refers to.
    #[inline(always)]
    fn find(&mut self, entry: &sys::fi_cq_data_entry) -> Option<Found<'poller>> {
        // SAFETY: only `Poller::fill` drops earlier copies, and the tables are dropped with the
        // queue. Both need the poller, which is borrowed exclusively for `'poller`, as long as the
        // result lives.
        unsafe { self.tables.find(self.registry, entry.op_context) }
    }
}

/// Returns `true` if a completion with immediate data reports a peer's write. One provider also
/// sets FI_REMOTE_CQ_DATA on the sender's own completion, and another one sets nothing else at the
/// target.
#[inline]
fn is_by_peer(entry: &sys::fi_cq_data_entry) -> bool {
    let is_own = entry.flags & (sys::FI_RECV | sys::FI_SEND | sys::FI_WRITE | sys::FI_READ) != 0;
    !is_own || entry.flags & sys::FI_REMOTE_WRITE != 0
}
