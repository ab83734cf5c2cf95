//! Completion queues, their pollers, and the channels that signal completions.

mod channel;
mod completion;
mod poller;
mod registry;
mod wait;

use std::ffi::c_int;
use std::fmt;
use std::ptr::null_mut;
use std::sync::Arc;

use farreach_verbs_sys as sys;
use farreach_verbs_sys::Ibverbs;
use parking_lot::Mutex;

pub use channel::CompletionChannel;
use channel::Ledger;
pub use completion::{Failure, Success, WorkCompletion, WorkKind, WorkStatus};
use poller::PollState;
pub use poller::{Completions, Poller};
pub(crate) use registry::{Registry, Source};
pub use wait::Wait;

use crate::context::Context;
use crate::error::{Errno, Error};
use crate::handle::{Destroy, Owned};
use crate::leak;
use crate::limits::{CreationRefused, Excess};

/// A completion queue, in which the device reports completed work requests.
///
/// It is cheap to clone. It is destroyed when the last clone, and every queue pair on it, is gone.
///
/// ```no_run
/// # use farreach_verbs::device::DeviceList;
/// use farreach_verbs::cq::CompletionQueueBuilder;
///
/// # let context = DeviceList::get()?.iter().next().unwrap().open()?;
/// let channel = context.create_comp_channel()?;
/// let cq = CompletionQueueBuilder::new(256).channel(&channel).build(&context)?;
/// cq.req_notify(false)?;
/// println!("{} completions fit", cq.depth());
/// # Ok::<(), farreach_verbs::Error>(())
/// ```
#[doc(alias = "ibv_cq")]
#[doc(alias = "ibv_destroy_cq")]
#[derive(Clone)]
pub struct CompletionQueue(Arc<Inner>);

pub(crate) struct Inner {
    cq: Owned<sys::ibv_cq, Parents>,
    is_extended: bool,
    /// The queues whose work requests complete here.
    registry: Registry,
    polling: Mutex<PollState>,
}

/// The objects that a completion queue depends on.
struct Parents {
    context: Context,
    channel: Option<CompletionChannel>,
    /// Counts events that were taken from the channel and not acknowledged. The C object points to
    /// it.
    ledger: Arc<Ledger>,
}

/// Configures and creates a [`CompletionQueue`].
///
/// ```no_run
/// # use farreach_verbs::device::DeviceList;
/// use farreach_verbs::cq::CompletionQueueBuilder;
///
/// # let context = DeviceList::get()?.iter().next().unwrap().open()?;
/// let last = context.completion_vector_count() - 1;
/// let cq = CompletionQueueBuilder::new(64).vector(last).build(&context)?;
/// # Ok::<(), farreach_verbs::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct CompletionQueueBuilder {
    depth: u32,
    vector: u32,
    channel: Option<CompletionChannel>,
}

impl CompletionQueueBuilder {
    /// Configures a queue that holds at least `depth` completions, on the first completion vector,
    /// without a channel.
    pub fn new(depth: u32) -> Self {
        Self { depth, vector: 0, channel: None }
    }

    /// Sets the completion vector that raises the queue's events. It must be below
    /// [`Context::completion_vector_count`].
    #[must_use]
    pub fn vector(mut self, vector: u32) -> Self {
        self.vector = vector;
        self
    }

    /// Sets the channel for the queue's events.
    #[must_use]
    pub fn channel(mut self, channel: &CompletionChannel) -> Self {
        self.channel = Some(channel.clone());
        self
    }

    /// Creates the queue: `ibv_create_cq_ex(3)`, or `ibv_create_cq(3)` if the provider has only
    /// that.
    #[doc(alias = "ibv_create_cq")]
    #[doc(alias = "ibv_create_cq_ex")]
    pub fn build(&self, context: &Context) -> Result<CompletionQueue, Error> {
        let (cq, is_extended) = self.create(context)?;
        let inner = Arc::new(Inner {
            cq,
            is_extended,
            registry: Registry::default(),
            polling: Mutex::new(PollState::new()),
        });
        inner.cq.parents().ledger.belongs_to(&inner);
        if let Some(channel) = &self.channel {
            channel.add_queue();
        }
        Ok(CompletionQueue(inner))
    }

    /// Returns the C object, and whether it is an extended one.
    fn create(&self, context: &Context) -> Result<(Owned<sys::ibv_cq, Parents>, bool), Error> {
        if let Some(channel) = &self.channel {
            context.check_same(channel.context(), "completion channel")?;
        }
        let ledger = Arc::new(Ledger::default());
        let cq_context = Arc::as_ptr(&ledger).cast_mut().cast();
        let channel = self.channel.as_ref().map_or(null_mut(), CompletionChannel::as_raw);
        let mut attr = sys::ibv_cq_init_attr_ex {
            cqe: self.depth,
            cq_context,
            channel,
            comp_vector: self.vector,
            wc_flags: u64::from(sys::IBV_WC_STANDARD_FLAGS),
            ..Default::default()
        };
        // C uses signed numbers. A number that does not fit exceeds the limit of any device.
        let number = |value: u32| c_int::try_from(value).unwrap_or(c_int::MAX);
        let (depth, vector) = (number(self.depth), number(self.vector));
        let lib = context.lib();
        let end = (leak::Kind::CompletionQueue, Destroy::Exported(Ibverbs::ibv_destroy_cq));
        // SAFETY: a `Context` is open, and the channel is null or belongs to the same one
        // (`check_same`). The queue is created here, on both, and holds them and the ledger that it
        // points to.
        let (cq, is_extended) = unsafe {
            let extended = sys::ibv_cq_ex_to_cq(sys::ibv_create_cq_ex(context.as_raw(), &raw mut attr));
            let is_extended = !extended.is_null();
            let cq = match is_extended {
                true => extended,
                false => lib.ibv_create_cq(context.as_raw(), depth, cq_context, channel, vector)?,
            };
            let parents = || Parents {
                context: context.clone(),
                channel: self.channel.clone(),
                ledger: Arc::clone(&ledger),
            };
            (Owned::new(cq, lib, end, parents), is_extended)
        };
        Ok((cq.ok_or_else(|| self.refused(context))?, is_extended))
    }

    fn refused(&self, context: &Context) -> Error {
        let error = context.failed("ibv_create_cq");
        let Ok(limits) = context.query_device() else { return error };
        let excesses = Excess::among([
            ("cqe", self.depth, limits.max_cqe),
            ("comp_vector", self.vector, context.completion_vector_count().saturating_sub(1)),
        ]);
        refused("ibv_create_cq", context, error.errno(), excesses)
    }
}

impl Context {
    /// Creates a completion queue without a channel. A [`CompletionQueueBuilder`] has more options.
    pub fn create_cq(&self, depth: u32) -> Result<CompletionQueue, Error> {
        CompletionQueueBuilder::new(depth).build(self)
    }
}

impl CompletionQueue {
    /// Returns the number of completions that the queue holds, which is at least the requested
    /// number.
    pub fn depth(&self) -> u32 {
        u32::try_from(self.0.cq.cqe()).unwrap_or(0)
    }

    /// Returns the open device.
    pub fn context(&self) -> &Context {
        &self.0.cq.parents().context
    }

    /// Returns the channel of the queue's events.
    pub fn channel(&self) -> Option<&CompletionChannel> {
        self.0.cq.parents().channel.as_ref()
    }

    /// Returns the kernel's handle of the queue within its context.
    /// [`AsyncEvent`](crate::event::AsyncEvent)s contain it.
    pub fn handle(&self) -> u32 {
        self.0.cq.handle()
    }

    /// Returns the C object. It is valid while `self` or a clone lives.
    #[inline]
    pub fn as_raw(&self) -> *mut sys::ibv_cq {
        self.0.cq.as_ptr()
    }

    /// Returns the C object in its extended form, whose completions are read one field at a time.
    /// `None` if the provider does not support that. The fields of `IBV_WC_STANDARD_FLAGS` can be
    /// read.
    #[doc(alias = "ibv_start_poll")]
    #[inline]
    pub fn as_raw_ex(&self) -> Option<*mut sys::ibv_cq_ex> {
        self.0.is_extended.then(|| self.as_raw().cast())
    }

    /// Takes completions from the queue: `ibv_poll_cq(3)`. Returns the number of completions, which
    /// are at the front of `completions`.
    ///
    /// # Safety
    ///
    /// A completion proves that the memory of a work request is free, and only the caller learns of
    /// it. So the caller must have posted all work requests of every queue pair on this queue by
    /// the raw API, and must track them.
    #[doc(alias = "ibv_poll_cq")]
    #[inline]
    pub unsafe fn poll_raw(&self, completions: &mut [sys::ibv_wc]) -> Result<usize, Error> {
        let room = c_int::try_from(completions.len()).unwrap_or(c_int::MAX);
        // SAFETY: the queue lives as long as `self`, and `completions` has room for `room` entries.
        let count = unsafe { sys::ibv_poll_cq(self.as_raw(), room, completions.as_mut_ptr()) };
        usize::try_from(count).map_err(|_| self.poll_error(count))
    }

    #[cold]
    fn poll_error(&self, answer: c_int) -> Error {
        // Providers return -1 or a negative errno; `errno` itself is not always set.
        let errno = if answer == -1 { libc::EIO } else { -answer };
        Error::call("ibv_poll_cq", self.context().device().name(), errno)
    }

    /// Requests one event on the channel for the next completion, or for the next solicited one (an
    /// error counts as solicited): `ibv_req_notify_cq(3)`.
    ///
    /// Earlier completions raise no event: arm the queue, poll once more, then sleep.
    #[doc(alias = "ibv_req_notify_cq")]
    pub fn req_notify(&self, solicited_only: bool) -> Result<(), Error> {
        match self.0.cq.req_notify(solicited_only) {
            0 => Ok(()),
            errno => Err(Error::call("ibv_req_notify_cq", self.context().device().name(), errno)),
        }
    }

    /// Changes the number of completions that the queue holds: `ibv_resize_cq(3)`. Pending
    /// completions stay. It cannot be lower than its queues need.
    #[doc(alias = "ibv_resize_cq")]
    pub fn resize(&self, depth: u32) -> Result<(), Error> {
        let context = self.context();
        let needed = self.registry().credits();
        if needed > depth.into() {
            return Err(self.overcommitted(depth, needed));
        }
        let number = c_int::try_from(depth).unwrap_or(c_int::MAX);
        match self.0.cq.resize(number)? {
            0 => Ok(()),
            errno => {
                let error = Error::call("ibv_resize_cq", context.device().name(), errno);
                let Ok(limits) = context.query_device() else { return Err(error) };
                let excesses = Excess::among([("cqe", depth, limits.max_cqe)]);
                Err(refused("ibv_resize_cq", context, error.errno(), excesses))
            }
        }
    }

    /// Registers a queue whose work requests complete here, if there is room for its completions.
    pub(crate) fn attach(&self, source: Source) -> Result<(), Error> {
        let depth = self.depth();
        self.registry().add(source, depth).map_err(|needed| self.overcommitted(depth, needed))
    }

    fn overcommitted(&self, depth: u32, needed: u64) -> Error {
        Error::Overcommitted { subject: self.context().device().name().to_owned(), depth, needed }
    }

    pub(crate) fn registry(&self) -> &Registry {
        &self.0.registry
    }

    fn poll_state(&self) -> &Mutex<PollState> {
        &self.0.polling
    }

    pub(crate) fn from_inner(inner: Arc<Inner>) -> Self {
        Self(inner)
    }
}

fn refused(operation: &'static str, context: &Context, errno: Option<Errno>, excesses: Vec<Excess>) -> Error {
    Error::Creation(Box::new(CreationRefused {
        operation,
        device: context.device().name().to_owned(),
        errno: errno.unwrap_or(Errno(0)),
        excesses,
        inline: None,
    }))
}

impl PartialEq for CompletionQueue {
    /// Returns `true` if both are the same queue.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for CompletionQueue {}

impl fmt::Debug for CompletionQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionQueue")
            .field("device", &self.context().device().name())
            .field("handle", &self.handle())
            .field("depth", &self.depth())
            .finish_non_exhaustive()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let Parents { channel, ledger, .. } = self.cq.parents();
        if let Some(channel) = channel {
            channel.remove_queue();
        }
        // The destruction that follows waits until every taken event is acknowledged.
        // SAFETY: the ledger belongs to the queue, which lives until its handle is dropped.
        unsafe { ledger.close(self.cq.lib(), self.cq.as_ptr()) };
    }
}
