//! Completion queues, and the channels that wake who waits for them.

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

/// A completion queue: where the device tells what became of work requests.
///
/// Cheap to clone; it is destroyed when the last clone, and every queue pair on it, is gone.
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
    /// Whose requests complete here.
    registry: Registry,
    polling: Mutex<PollState>,
}

/// What a completion queue stands on.
struct Parents {
    context: Context,
    channel: Option<CompletionChannel>,
    /// Events that were taken from the channel and not acknowledged. The C object points to it.
    ledger: Arc<Ledger>,
}

/// What a completion queue shall be like.
///
/// ```no_run
/// # use farreach_verbs::device::DeviceList;
/// use farreach_verbs::cq::CompletionQueueBuilder;
///
/// # let context = DeviceList::get()?.iter().next().unwrap().open()?;
/// let cq = CompletionQueueBuilder::new(64).vector(context.completion_vector_count() - 1).build(&context)?;
/// # Ok::<(), farreach_verbs::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct CompletionQueueBuilder {
    depth: u32,
    vector: u32,
    channel: Option<CompletionChannel>,
}

impl CompletionQueueBuilder {
    /// A queue that holds at least `depth` completions, on the first completion vector, without a channel.
    pub fn new(depth: u32) -> Self {
        Self { depth, vector: 0, channel: None }
    }

    /// Which of the device's completion vectors raises the queue's events:
    /// below [`Context::completion_vector_count`].
    #[must_use]
    pub fn vector(mut self, vector: u32) -> Self {
        self.vector = vector;
        self
    }

    /// The channel that its events go to.
    #[must_use]
    pub fn channel(mut self, channel: &CompletionChannel) -> Self {
        self.channel = Some(channel.clone());
        self
    }

    /// Creates the queue: `ibv_create_cq_ex(3)`, or `ibv_create_cq(3)` where the provider has only that.
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

    /// The C object, and whether it is an extended one.
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
        // C counts with a sign; what does not fit is more than any device has.
        let number = |value: u32| c_int::try_from(value).unwrap_or(c_int::MAX);
        let (depth, vector) = (number(self.depth), number(self.vector));
        let lib = context.lib();
        let end = (leak::Kind::CompletionQueue, Destroy::Exported(Ibverbs::ibv_destroy_cq));
        // SAFETY: a `Context` is open, and the channel is null or lives on the same one: `check_same` has seen to that. The queue is made
        // here, on both, and holds them, and the ledger that it points to.
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
    /// Creates a completion queue without a channel: a [`CompletionQueueBuilder`] says more.
    pub fn create_cq(&self, depth: u32) -> Result<CompletionQueue, Error> {
        CompletionQueueBuilder::new(depth).build(self)
    }
}

impl CompletionQueue {
    /// How many completions it holds: at least as many as were asked for.
    pub fn depth(&self) -> u32 {
        u32::try_from(self.0.cq.cqe()).unwrap_or(0)
    }

    /// The open device that it is on.
    pub fn context(&self) -> &Context {
        &self.0.cq.parents().context
    }

    /// The channel that its events go to.
    pub fn channel(&self) -> Option<&CompletionChannel> {
        self.0.cq.parents().channel.as_ref()
    }

    /// The kernel's number for it within its context: what [`AsyncEvent`](crate::event::AsyncEvent)s name it by.
    pub fn handle(&self) -> u32 {
        self.0.cq.handle()
    }

    /// The C object. It lives as long as this does.
    #[inline]
    pub fn as_raw(&self) -> *mut sys::ibv_cq {
        self.0.cq.as_ptr()
    }

    /// The C object in its extended form, whose completions are read one field at a time; none where the provider has no such
    /// queues. The fields of `IBV_WC_STANDARD_FLAGS` can be read.
    #[doc(alias = "ibv_start_poll")]
    #[inline]
    pub fn as_raw_ex(&self) -> Option<*mut sys::ibv_cq_ex> {
        self.0.is_extended.then(|| self.as_raw().cast())
    }

    /// Takes completions out of the queue: `ibv_poll_cq(3)`. How many, from the front of `completions`.
    ///
    /// # Safety
    ///
    /// A completion is what proves that a request's memory is free, and only who takes it knows. The caller posted the
    /// requests of every queue pair on this queue himself, and keeps their account.
    #[doc(alias = "ibv_poll_cq")]
    #[inline]
    pub unsafe fn poll_raw(&self, completions: &mut [sys::ibv_wc]) -> Result<usize, Error> {
        let room = c_int::try_from(completions.len()).unwrap_or(c_int::MAX);
        // SAFETY: the queue lives as long as `self`, and `completions` has room for as many as are asked for.
        let count = unsafe { sys::ibv_poll_cq(self.as_raw(), room, completions.as_mut_ptr()) };
        usize::try_from(count).map_err(|_| self.poll_error(count))
    }

    #[cold]
    fn poll_error(&self, answer: c_int) -> Error {
        // Providers answer -1 or minus an errno; `errno` itself is not always set.
        let errno = if answer == -1 { libc::EIO } else { -answer };
        Error::call("ibv_poll_cq", self.context().device().name(), errno)
    }

    /// Asks for one event on the channel at the next completion, or at the next one that its sender marked as solicited (an error
    /// counts as such): `ibv_req_notify_cq(3)`.
    ///
    /// A completion that came before raises no event: arm, then poll once more, then sleep.
    #[doc(alias = "ibv_req_notify_cq")]
    pub fn req_notify(&self, solicited_only: bool) -> Result<(), Error> {
        match self.0.cq.req_notify(solicited_only) {
            0 => Ok(()),
            errno => Err(Error::call("ibv_req_notify_cq", self.context().device().name(), errno)),
        }
    }

    /// Changes how many completions it holds: `ibv_resize_cq(3)`. Those in it stay. Not to fewer than the queues on it need.
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

    /// Lets it know of a queue whose requests complete here, if it has room for them.
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
    /// Whether both are the same queue.
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
        // Destroying, which follows, waits until every event that was taken is acknowledged.
        // SAFETY: the ledger is the queue's, which lives until its handle is dropped.
        unsafe { ledger.close(self.cq.lib(), self.cq.as_ptr()) };
    }
}
