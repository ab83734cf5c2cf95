//! Completion channels, and the acknowledgement of their events.

use std::ffi::c_void;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use farreach_verbs_sys as sys;
use farreach_verbs_sys::Ibverbs;

use super::CompletionQueue;
use crate::context::Context;
use crate::error::Error;
use crate::fd;
use crate::handle::Owned;

/// The number of events of a queue that are acknowledged at once. Acknowledging takes a lock of the
/// queue.
const ACKNOWLEDGED_AT_ONCE: u32 = 64;

/// A descriptor that becomes readable when an [armed](CompletionQueue::req_notify) queue has a
/// completion.
///
/// It is cheap to clone. It is destroyed when the last clone, and every queue on it, is gone. Its
/// descriptor is non-blocking: pass it to `poll(2)`, epoll or a runtime, or call
/// [`wait_event`](Self::wait_event).
///
/// This library acknowledges every event: in batches, and before its queue is destroyed.
///
/// ```no_run
/// # use farreach_verbs::device::DeviceList;
/// use std::time::Duration;
/// use farreach_verbs::cq::CompletionQueueBuilder;
///
/// # let context = DeviceList::get()?.iter().next().unwrap().open()?;
/// let channel = context.create_comp_channel()?;
/// let cq = CompletionQueueBuilder::new(64).channel(&channel).build(&context)?;
/// cq.req_notify(false)?;
/// // Poll once more here: completions before arming raise no event.
/// match channel.wait_event(Some(Duration::from_secs(1)))? {
///     Some(queue) => assert_eq!(queue, cq),
///     None => println!("nothing within a second"),
/// }
/// # Ok::<(), farreach_verbs::Error>(())
/// ```
#[doc(alias = "ibv_comp_channel")]
#[doc(alias = "ibv_destroy_comp_channel")]
#[derive(Clone)]
pub struct CompletionChannel(Arc<ChannelInner>);

struct ChannelInner {
    channel: Owned<sys::ibv_comp_channel, Context>,
    /// The number of queues on the channel.
    queues: AtomicUsize,
}

impl Context {
    /// Creates a completion channel: `ibv_create_comp_channel(3)`.
    #[doc(alias = "ibv_create_comp_channel")]
    pub fn create_comp_channel(&self) -> Result<CompletionChannel, Error> {
        let channel =
            Owned::create_comp_channel(self)?.ok_or_else(|| self.failed("ibv_create_comp_channel"))?;
        let channel = CompletionChannel(Arc::new(ChannelInner { channel, queues: AtomicUsize::new(0) }));
        fd::set_nonblocking(channel.as_fd()).map_err(|error| channel.failed("fcntl", &error))?;
        Ok(channel)
    }
}

impl CompletionChannel {
    /// Returns the open device.
    pub fn context(&self) -> &Context {
        self.0.channel.parents()
    }

    /// Returns the C object. It is valid while `self` or a clone lives.
    pub fn as_raw(&self) -> *mut sys::ibv_comp_channel {
        self.0.channel.as_ptr()
    }

    /// Takes the next event without waiting: `ibv_get_cq_event(3)`. Returns the queue that raised
    /// it, which is no longer armed, or `None` if there is no event.
    #[doc(alias = "ibv_get_cq_event")]
    #[doc(alias = "ibv_ack_cq_events")]
    pub fn get_event(&self) -> Result<Option<CompletionQueue>, Error> {
        // Events of a queue that is being destroyed are skipped. The loop ends: each iteration
        // takes an event, and such a queue raises no more.
        loop {
            let (mut cq, mut ledger) = (null_mut(), null_mut());
            // SAFETY: the channel lives as long as `self`, and both pointers lead to local
            // variables.
            let status = unsafe { self.lib().ibv_get_cq_event(self.as_raw(), &raw mut cq, &raw mut ledger) }?;
            if status != 0 {
                let error = io::Error::last_os_error();
                return match error.kind() {
                    io::ErrorKind::WouldBlock => Ok(None),
                    _ => Err(self.failed("ibv_get_cq_event", &error)),
                };
            }
            // SAFETY: the event was just taken. `CompletionQueueBuilder` creates all queues on this
            // channel, each with a pointer to its ledger.
            if let Some(queue) = unsafe { Ledger::note(self.lib(), cq, ledger) } {
                return Ok(Some(queue));
            }
        }
    }

    /// Like [`get_event`](Self::get_event), but waits for an event, for at most `timeout`. `None`
    /// waits without limit.
    pub fn wait_event(&self, timeout: Option<Duration>) -> Result<Option<CompletionQueue>, Error> {
        // A deadline beyond the range of the clock never comes.
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            if let Some(queue) = self.get_event()? {
                return Ok(Some(queue));
            }
            // Another thread may have taken the event that woke this one, so this loops.
            if !fd::wait_readable(self.as_fd(), deadline).map_err(|error| self.failed("poll", &error))? {
                return Ok(None);
            }
        }
    }

    /// Returns the number of queues on the channel.
    pub(super) fn queue_count(&self) -> usize {
        self.0.queues.load(Ordering::Relaxed)
    }

    pub(super) fn add_queue(&self) {
        self.0.queues.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn remove_queue(&self) {
        self.0.queues.fetch_sub(1, Ordering::Relaxed);
    }

    fn lib(&self) -> &'static Ibverbs {
        self.context().lib()
    }

    fn failed(&self, operation: &'static str, error: &io::Error) -> Error {
        Error::call(operation, self.context().device().name(), error.raw_os_error().unwrap_or(0))
    }
}

impl AsFd for CompletionChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.channel.fd()
    }
}

impl fmt::Debug for CompletionChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionChannel")
            .field("device", &self.context().device().name())
            .field("fd", &self.as_fd())
            .finish_non_exhaustive()
    }
}

/// Counts the events of a queue that were taken and not acknowledged. The `cq_context` of the C
/// object points to it.
///
/// Destroying a queue waits until every taken event is acknowledged, whichever thread took it. So a
/// queue closes its ledger before it is destroyed, and a thread that takes an event afterwards
/// acknowledges it at once.
#[derive(Default)]
pub(super) struct Ledger {
    account: Mutex<Account>,
    queue: OnceLock<Weak<super::Inner>>,
}

#[derive(Default)]
struct Account {
    unacknowledged: u32,
    is_closed: bool,
}

impl Ledger {
    pub(super) fn belongs_to(&self, queue: &Arc<super::Inner>) {
        // Set once, before the queue is returned and can be armed.
        let _ = self.queue.set(Arc::downgrade(queue));
    }

    /// Counts an event that was taken from the channel. Returns its queue, or `None` if that is
    /// being destroyed.
    ///
    /// # Safety
    ///
    /// The event was just taken, and the `cq_context` of its queue is the pointer of an `Arc` of
    /// its ledger.
    unsafe fn note(lib: &Ibverbs, cq: *mut sys::ibv_cq, ledger: *mut c_void) -> Option<CompletionQueue> {
        let ledger = ledger.cast_const().cast::<Self>();
        // SAFETY: the pointer comes from an `Arc`, which the queue holds. The queue is not
        // destroyed yet: that waits until this event is acknowledged.
        let ledger = unsafe {
            Arc::increment_strong_count(ledger);
            Arc::from_raw(ledger)
        };
        let mut account = ledger.lock();
        account.unacknowledged += 1;
        if account.is_closed || account.unacknowledged >= ACKNOWLEDGED_AT_ONCE {
            // SAFETY: the event belongs to this queue, whose ledger this is, and is not
            // acknowledged, so the queue lives.
            unsafe { account.acknowledge(lib, cq) };
        }
        let is_closed = account.is_closed;
        drop(account);
        if is_closed { None } else { ledger.queue.get()?.upgrade().map(CompletionQueue::from_inner) }
    }

    /// Acknowledges all taken events. Threads that take further events acknowledge them at once.
    ///
    /// # Safety
    ///
    /// The queue lives, and this is its ledger.
    pub(super) unsafe fn close(&self, lib: &Ibverbs, cq: *mut sys::ibv_cq) {
        let mut account = self.lock();
        account.is_closed = true;
        // SAFETY: the caller guarantees that the queue lives.
        unsafe { account.acknowledge(lib, cq) };
    }

    fn lock(&self) -> MutexGuard<'_, Account> {
        self.account.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Account {
    /// Acknowledges the counted events.
    ///
    /// # Safety
    ///
    /// The queue lives, and this is its account.
    unsafe fn acknowledge(&mut self, lib: &Ibverbs, cq: *mut sys::ibv_cq) {
        if self.unacknowledged > 0 {
            // A library that has ibv_create_cq has this function too.
            // SAFETY: the caller guarantees that the queue lives. `note` has counted each taken
            // event, and the count is reset here, so none is acknowledged twice.
            let _ = unsafe { lib.ibv_ack_cq_events(cq, self.unacknowledged) };
            self.unacknowledged = 0;
        }
    }
}
