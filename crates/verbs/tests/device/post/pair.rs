//! Two connected queue pairs of one process, and their completions.

use farreach_memory::Slice;
use farreach_testkit::{Device, pattern, wait_for};
use farreach_verbs::context::Context;
use farreach_verbs::cq::{CompletionQueue, CompletionQueueBuilder, Failure, Success, WorkKind};
use farreach_verbs::device::DeviceList;
use farreach_verbs::mr::AccessFlags;
use farreach_verbs::pd::ProtectionDomain;
use farreach_verbs::qp::state::ConnectionParameters;
use farreach_verbs::qp::{QueuePair, QueuePairBuilder, QueuePairType};
use farreach_verbs::region::ExposedRegion;
use farreach_verbs::wr::Buffers;

/// Both sides of a connection: `a` is the initiator, `b` the target.
pub(crate) struct Pair {
    pub(crate) a: QueuePair,
    pub(crate) b: QueuePair,
    pub(crate) cq_a: CompletionQueue,
    pub(crate) cq_b: CompletionQueue,
    pub(crate) pd: ProtectionDomain,
}

/// Small, so that a test can fill it.
pub(crate) const DEPTH: u32 = 8;

/// The depth of a completion queue: for a queue pair, and for a shared receive queue that serves
/// 64.
const COMPLETIONS: u32 = 64 + 2 * DEPTH;

/// Returns every access that a peer can have.
pub(crate) fn everything() -> AccessFlags {
    AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC
}

impl Pair {
    pub(crate) fn rc() -> Self {
        Self::with(|builder| builder)
    }

    /// Creates two RC queue pairs, each configured by `shape`.
    pub(crate) fn with(shape: impl Fn(QueuePairBuilder) -> QueuePairBuilder) -> Self {
        let context = open();
        let pd = context.alloc_pd().expect("a protection domain");
        Self::in_domain(&pd, everything(), shape)
    }

    /// Creates queue pairs of another type than RC.
    pub(crate) fn of_type(kind: QueuePairType) -> Self {
        let pd = open().alloc_pd().expect("a protection domain");
        let cq = || pd.context().create_cq(COMPLETIONS).expect("a completion queue");
        Self::typed(&pd, everything(), [cq(), cq()], |cq| builder_of(kind, cq))
    }

    /// Creates queue pairs with send queues of this depth.
    pub(crate) fn deep(depth: u32) -> Self {
        let pd = open().alloc_pd().expect("a protection domain");
        let cq = || pd.context().create_cq(depth + DEPTH).expect("a completion queue");
        Self::on_queues(&pd, everything(), [cq(), cq()], |builder| builder.max_send_wr(depth))
    }

    /// Creates queue pairs with a channel for each completion queue.
    pub(crate) fn with_channels() -> Self {
        let pd = open().alloc_pd().expect("a protection domain");
        let cq = || {
            let channel = pd.context().create_comp_channel().expect("a channel");
            let builder = CompletionQueueBuilder::new(2 * DEPTH).channel(&channel);
            builder.build(pd.context()).expect("a completion queue")
        };
        Self::on_queues(&pd, everything(), [cq(), cq()], |builder| builder)
    }

    /// Creates queue pairs in a domain of the caller. `access` is the access of each to the other.
    pub(crate) fn in_domain(
        pd: &ProtectionDomain,
        access: AccessFlags,
        shape: impl Fn(QueuePairBuilder) -> QueuePairBuilder,
    ) -> Self {
        let cq = || pd.context().create_cq(COMPLETIONS).expect("a completion queue");
        Self::on_queues(pd, access, [cq(), cq()], shape)
    }

    fn on_queues(
        pd: &ProtectionDomain,
        access: AccessFlags,
        [cq_a, cq_b]: [CompletionQueue; 2],
        shape: impl Fn(QueuePairBuilder) -> QueuePairBuilder,
    ) -> Self {
        Self::typed(pd, access, [cq_a, cq_b], |cq| shape(builder(cq)))
    }

    fn typed(
        pd: &ProtectionDomain,
        access: AccessFlags,
        [cq_a, cq_b]: [CompletionQueue; 2],
        builder: impl Fn(&CompletionQueue) -> QueuePairBuilder,
    ) -> Self {
        let build = |cq: &CompletionQueue| builder(cq).build(pd).expect("a queue pair");
        let (a, b) = (build(&cq_a), build(&cq_b));
        connect(&a, &b, access);
        Self { a, b, cq_a, cq_b, pd: pd.clone() }
    }

    /// Creates an unconnected queue pair.
    pub(crate) fn unconnected(&self) -> QueuePair {
        builder(&self.cq_a).build(&self.pd).expect("a queue pair")
    }

    /// Returns a registered slice filled with a pattern.
    pub(crate) fn filled(&self, seed: u8, len: usize) -> Slice {
        let mut slice = self.pd.allocate(len).expect("memory");
        slice.copy_from_slice(&pattern(seed, len));
        slice
    }

    /// Returns memory that the peer may access in every way.
    pub(crate) fn exposed(&self, seed: u8, len: usize) -> ExposedRegion {
        self.exposed_for(seed, len, everything())
    }

    pub(crate) fn exposed_for(&self, seed: u8, len: usize, access: AccessFlags) -> ExposedRegion {
        self.pd.expose(self.filled(seed, len), access).map_err(|(error, _)| error).expect("a region")
    }
}

/// Opens the device of this guest.
pub(crate) fn open() -> Context {
    let name = Device::find().name;
    let devices = DeviceList::get().expect("libibverbs");
    devices.find(&name).expect("the device is listed").open().expect("it opens")
}

fn builder(cq: &CompletionQueue) -> QueuePairBuilder {
    builder_of(QueuePairType::Rc, cq)
}

fn builder_of(kind: QueuePairType, cq: &CompletionQueue) -> QueuePairBuilder {
    QueuePairBuilder::new(kind, cq, cq)
        .max_send_wr(DEPTH)
        .max_recv_wr(DEPTH)
        .max_send_sge(4)
        .max_recv_sge(4)
        .max_inline_data(64)
}

fn connect(a: &QueuePair, b: &QueuePair, access: AccessFlags) {
    let mut parameters = ConnectionParameters::choose(a.context(), 1, None).expect("a port");
    parameters.access = access;
    // A peer that is not ready is reported soon.
    (parameters.rnr_retry, parameters.min_rnr_timer) = (1, 1);
    let at_a = a.to_init(&parameters).expect("INIT");
    let at_b = b.to_init(&parameters).expect("INIT");
    a.connect(&parameters, &at_a, &at_b).expect("RTS");
    b.connect(&parameters, &at_b, &at_a).expect("RTS");
}

/// A completion that does not depend on its poller.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) tag: u64,
    pub(crate) kind: WorkKind,
    pub(crate) outcome: Result<Success, Failure>,
    pub(crate) buffers: Buffers,
}

/// Waits for the next completion.
pub(crate) fn next(cq: &CompletionQueue) -> Done {
    wait_for("a completion", || {
        let mut poller = cq.poller();
        let completion = poller.poll().expect("polling").next()?;
        let (tag, kind, outcome) = (completion.tag(), completion.kind(), completion.outcome());
        Some(Done { tag, kind, outcome, buffers: completion.into_buffers() })
    })
}

/// Waits for `count` completions.
pub(crate) fn take(cq: &CompletionQueue, count: usize) -> Vec<Done> {
    (0..count).map(|_| next(cq)).collect()
}

/// Returns a copy of an exposed region.
pub(crate) fn bytes(region: &ExposedRegion) -> Vec<u8> {
    let mut copy = vec![0; region.bytes().len()];
    region.bytes().read_at(0, &mut copy);
    copy
}
