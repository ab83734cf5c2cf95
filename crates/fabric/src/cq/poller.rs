//! Polling: completions in, buffers out.

use std::ffi::{CStr, c_char};
use std::fmt;
use std::sync::{MutexGuard, PoisonError};

use farreach_fabric_sys as sys;

use super::completion::{Completion, Event, Failure, Proof, Success, Written};
use super::registry::Copied;
use super::{CompletionQueue, Registry};
use crate::Error;
use crate::ep::slots::InFlight;

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
    /// An error that was read and not handed out yet.
    failed: Option<Event>,
}

// SAFETY: the pointers in the entries are only compared, and the state is used under a lock.
unsafe impl Send for PollState {}

impl PollState {
    pub(crate) fn new() -> Self {
        // SAFETY: integers and pointers only, for which zero is a value.
        let batch = unsafe { std::mem::zeroed() };
        Self { tables: Copied::default(), batch, next: 0, filled: 0, failed: None }
    }

    fn is_empty(&self) -> bool {
        self.next == self.filled && self.failed.is_none()
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
    pub fn poll(&mut self) -> Result<Events<'_>, Error> {
        self.fill()?;
        Ok(Events { state: &mut self.state, registry: self.cq.registry() })
    }

    /// The completion queue.
    pub fn cq(&self) -> &CompletionQueue {
        self.cq
    }

    /// Reads where nothing is left from before; whether there is something.
    pub(super) fn fill(&mut self) -> Result<bool, Error> {
        let state = &mut *self.state;
        if !state.is_empty() {
            return Ok(true);
        }
        let registry = self.cq.registry();
        let dying = registry.dying();
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
        let mut failure = Failure {
            operation: None,
            // Some providers write it negated.
            errno: entry.err.saturating_abs(),
            text: library.strerror(entry.err.saturating_abs()),
            provider_errno: entry.prov_errno,
            provider_text: self.provider_text(&entry),
            message_len: (entry.err == sys::FI_ETRUNC && entry.olen > 0).then(|| entry.len + entry.olen),
        };
        let state = &mut *self.state;
        state.failed = match find(&mut state.tables, self.cq.registry(), entry.op_context) {
            Owner::InFlight(operation) => {
                failure.operation = Some(operation.kind);
                Some(Event::Completed(completed(operation, Err(failure))))
            }
            Owner::Gone => None,
            Owner::Nobody => Some(Event::Stray(failure)),
        };
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
    state: &'poller mut PollState,
    registry: &'poller Registry,
}

impl fmt::Debug for Events<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let left = self.state.filled - self.state.next;
        f.debug_struct("Events").field("left", &left).finish_non_exhaustive()
    }
}

impl Iterator for Events<'_> {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        if let Some(failed) = self.state.failed.take() {
            return Some(failed);
        }
        while self.state.next < self.state.filled {
            let entry = self.state.batch[self.state.next];
            self.state.next += 1;
            if let Some(event) = self.look(&entry) {
                return Some(event);
            }
        }
        None
    }
}

impl Events<'_> {
    fn look(&mut self, entry: &sys::fi_cq_data_entry) -> Option<Event> {
        let has = |flag: u64| entry.flags & flag != 0;
        // One provider sets FI_REMOTE_CQ_DATA on the sender's own completion too, and another one nothing but it at the target.
        let is_ours =
            has(sys::FI_RECV | sys::FI_SEND | sys::FI_WRITE | sys::FI_READ) && !has(sys::FI_REMOTE_WRITE);
        if has(sys::FI_REMOTE_CQ_DATA) && !is_ours {
            return Some(Event::Written(Written { immediate: entry.data, len: entry.len }));
        }
        match find(&mut self.state.tables, self.registry, entry.op_context) {
            Owner::InFlight(operation) => {
                let comes_here = operation.kind.writes_buffers();
                let proof = if comes_here || operation.is_delivery { Proof::Delivered } else { Proof::Sent };
                let immediate = (has(sys::FI_RECV) && has(sys::FI_REMOTE_CQ_DATA)).then_some(entry.data);
                let success = Success { len: entry.len, immediate, proof };
                Some(Event::Completed(completed(operation, Ok(success))))
            }
            // Late, or not ours to know of.
            Owner::Gone | Owner::Nobody => None,
        }
    }
}

/// Whose completion it is.
enum Owner {
    InFlight(InFlight),
    /// An endpoint's that is closed, or an operation's that is done.
    Gone,
    Nobody,
}

fn find(tables: &mut Copied, registry: &Registry, context: *mut std::ffi::c_void) -> Owner {
    if tables.find(context).is_none() {
        // An endpoint may have been made, and have completed something, after the tables were copied.
        tables.follow(registry);
    }
    match tables.find(context) {
        Some((table, number)) => table.take(number).map_or(Owner::Gone, Owner::InFlight),
        None => Owner::Nobody,
    }
}

fn completed(operation: InFlight, outcome: Result<Success, Failure>) -> Completion {
    let InFlight { tag, kind, peer, buffers, .. } = operation;
    Completion { tag, kind, peer, outcome, buffers }
}
