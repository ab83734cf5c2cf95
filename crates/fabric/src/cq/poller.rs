//! Polling: completions in, buffers out.

use std::ffi::{CStr, c_char};
use std::fmt;
use std::ptr;
use std::sync::{MutexGuard, PoisonError};

use farreach_fabric_sys as sys;

use super::completion::{Completion, Event, Failure, Written};
use super::registry::Copied;
use super::{CompletionQueue, Registry};
use crate::Error;
use crate::ep::slots::Found;

/// Completions that are taken from the provider at once.
const BATCH: usize = 32;

/// A longer text of a provider's is cut.
const TEXT_MAX: usize = 256;

/// The right to poll a completion queue: one thread at a time has it.
///
/// ```no_run
/// # use farreach_fabric::CompletionQueue;
/// # fn drain(cq: &CompletionQueue) -> Result<(), farreach_fabric::Error> {
/// let mut poller = cq.poller();
/// let count = poller.poll()?.count();
/// println!("{count} things have happened");
/// # Ok(())
/// # }
/// ```
pub struct Poller<'cq> {
    cq: &'cq CompletionQueue,
    state: MutexGuard<'cq, PollState>,
}

/// What a completion queue keeps from one poll to the next.
pub(crate) struct PollState {
    tables: Copied,
    batch: [sys::fi_cq_data_entry; BATCH],
    /// The entries of the batch that were not looked at yet.
    next: usize,
    filled: usize,
    /// An error that was read and not handed out yet: that of the only entry of the batch, which has immediate data, so that who looks at
    /// entries sees at once that it is special.
    failed: Option<Box<Failure>>,
}

// SAFETY: the pointers in the entries are only compared, and the state is used under a lock.
unsafe impl Send for PollState {}

impl PollState {
    pub(crate) fn new() -> Self {
        // SAFETY: integers and pointers only, for which zero is a value.
        let batch = unsafe { std::mem::zeroed() };
        Self { tables: Copied::new(), batch, next: 0, filled: 0, failed: None }
    }

    fn is_empty(&self) -> bool {
        self.next == self.filled
    }
}

impl CompletionQueue {
    /// The right to poll; waits until no other thread has it.
    #[doc(alias = "fi_cq_read")]
    pub fn poller(&self) -> Poller<'_> {
        // A panic while polling leaves the completions that were not handed out where they are.
        let state = self.0.polling.lock().unwrap_or_else(PoisonError::into_inner);
        Poller { cq: self, state }
    }
}

impl Poller<'_> {
    /// Takes what has happened, without waiting: `fi_cq_read(3)`. It also keeps the provider moving. A budget of some dozens at a
    /// time; what the caller leaves comes with the next call.
    ///
    /// Every operation comes back exactly once. A failed poll gives nothing back.
    #[doc(alias = "fi_cq_readerr")]
    #[inline]
    pub fn poll(&mut self) -> Result<Events<'_>, Error> {
        self.fill()?;
        let PollState { tables, batch, next, filled, failed } = &mut *self.state;
        Ok(Events { batch: &batch[..*filled], next, failed, tables, registry: self.cq.registry() })
    }

    /// The completion queue.
    pub fn cq(&self) -> &CompletionQueue {
        self.cq
    }

    /// Reads where nothing is left from before; whether there is something.
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
        // SAFETY: the queue lives and is of this format, and there is room for so many entries.
        let count = unsafe { sys::fi_cq_read(self.cq.as_raw(), state.batch.as_mut_ptr().cast(), BATCH) };
        // The answers are small numbers, whose type is wider than that of the other functions' errors.
        match count as i32 {
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
        // SAFETY: integers and pointers only, for which zero is a value. No buffer of ours for the error's data: the
        // provider's own then holds until the next read.
        let mut entry: sys::fi_cq_err_entry_2 = unsafe { std::mem::zeroed() };
        // SAFETY: the queue lives, and the entry is of the largest size that any release writes.
        let count = unsafe { sys::fi_cq_readerr(self.cq.as_raw(), (&raw mut entry).cast(), 0) };
        let library = self.cq.domain().library();
        match count as i32 {
            status if status == -sys::FI_EAGAIN || status == 0 => return Ok(()),
            status if status < 0 => return Err(library.error("fi_cq_readerr", status)),
            _ => {}
        }
        let entry = entry.base;
        let failure = Failure {
            // Whoever takes the operation knows.
            operation: None,
            // Some providers write it negated.
            errno: entry.err.saturating_abs(),
            text: library.strerror(entry.err.saturating_abs()),
            provider_errno: entry.prov_errno,
            provider_text: self.provider_text(&entry),
            message_len: (entry.err == sys::FI_ETRUNC && entry.olen > 0).then(|| entry.len + entry.olen),
        };
        let state = &mut *self.state;
        state.failed = Some(Box::new(failure));
        state.batch[0] = sys::fi_cq_data_entry {
            op_context: entry.op_context,
            flags: sys::FI_REMOTE_CQ_DATA,
            len: 0,
            buf: ptr::null_mut(),
            data: 0,
        };
        state.filled = 1;
        Ok(())
    }

    /// The provider's own words: `fi_cq_strerror(3)`.
    fn provider_text(&self, entry: &sys::fi_cq_err_entry) -> String {
        let mut buffer = [0 as c_char; TEXT_MAX];
        // SAFETY: the queue lives, the error's data is the provider's and was just read, and there is room for so many bytes.
        let text = unsafe {
            sys::fi_cq_strerror(
                self.cq.as_raw(),
                entry.prov_errno,
                entry.err_data,
                buffer.as_mut_ptr(),
                buffer.len(),
            )
        };
        if text.is_null() {
            return String::new();
        }
        // SAFETY: not null, so it is a NUL-terminated text: a static one, or in our buffer.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }
}

impl fmt::Debug for Poller<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Poller").field("cq", self.cq).finish_non_exhaustive()
    }
}

/// What has happened, one thing at a time.
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
                // What is late, or not ours to know of, is passed over.
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
                (None, Some(failure)) => return Some(Event::Stray(failure)),
                (None, None) => {}
            }
        }
    }
}

impl<'poller> Events<'poller> {
    /// The place that an entry tells of.
    #[inline(always)]
    fn find(&mut self, entry: &sys::fi_cq_data_entry) -> Option<Found<'poller>> {
        // SAFETY: earlier copies are forgotten when the poller fills the next batch, which it cannot before `'poller` is over.
        unsafe { self.tables.find(self.registry, entry.op_context) }
    }
}

/// Whether a completion with immediate data tells of a peer's write. One provider sets FI_REMOTE_CQ_DATA on the sender's own completion
/// too, and another one nothing but it at the target.
#[inline]
fn is_by_peer(entry: &sys::fi_cq_data_entry) -> bool {
    let is_own = entry.flags & (sys::FI_RECV | sys::FI_SEND | sys::FI_WRITE | sys::FI_READ) != 0;
    !is_own || entry.flags & sys::FI_REMOTE_WRITE != 0
}
