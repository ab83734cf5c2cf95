//! Executes each operation once, between two queue pairs of this process, and checks its effect.
//!
//! ```console
//! $ ops
//! ```
//!
//! It prints one line for each: `NAME ok`, `NAME unsupported: why` or `NAME FAILED: why`. Every
//! operation has its own pair of queue pairs, because a failure ends the connection.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program")]

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use common::{Done, Failure, check, deadline, fill, is_filled, open, wait};
use farreach_memory::Slice;
use farreach_verbs::Error;
use farreach_verbs::attributes::AtomicCapability;
use farreach_verbs::cq::{CompletionQueue, Wait, WorkStatus};
use farreach_verbs::imm::ImmediateData;
use farreach_verbs::mr::AccessFlags;
use farreach_verbs::mw::{MemoryWindow, WindowType};
use farreach_verbs::pd::ProtectionDomain;
use farreach_verbs::qp::{QueuePair, QueuePairBuilder, QueuePairType, SendOperations};
use farreach_verbs::region::ExposedRegion;
use farreach_verbs::wr::{Flush, FlushLevel, FlushPlacement, RecvRequest, RemoteRange, SendRequest};

mod common;

const BYTES: usize = 512;
const OLD: u32 = 1; // initially in the peer's memory
const NEW: u32 = 2; // sent
const IMMEDIATE: ImmediateData = ImmediateData(0x0102_0304);

type Operation = (&'static str, fn() -> Result<(), Outcome>);

const OPERATIONS: [Operation; 12] = [
    ("SEND", || send(false)),
    ("SEND+IMM", || send(true)),
    ("SEND+INV", send_invalidate),
    ("WRITE", || write(false)),
    ("WRITE+IMM", || write(true)),
    ("READ", read),
    ("CAS", || atomic(|into, word| SendRequest::compare_swap(into, word, 40, 7), 7)),
    ("FAA", || atomic(|into, word| SendRequest::fetch_add(into, word, 2), 42)),
    ("ATOMIC WRITE", atomic_write),
    ("FLUSH", flush),
    ("BIND", bind),
    ("LOCAL INV", local_invalidate),
];

/// The reason why an operation had no effect.
enum Outcome {
    Unsupported(String),
    Failed(Failure),
}

impl<E: Into<Failure>> From<E> for Outcome {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

fn main() -> ExitCode {
    common::run("usage: ops", &[], |arguments| {
        arguments.none()?;
        let failed = OPERATIONS.iter().filter(|operation| !show(operation)).count();
        if failed == 0 {
            return Ok(());
        }
        Err(Failure::new(format!("{failed} operations failed"), "see the lines above", "check dmesg"))
    })
}

/// Executes an operation and prints the result. Returns `false` on failure.
fn show((name, operation): &Operation) -> bool {
    match operation() {
        Ok(()) => println!("{name} ok"),
        Err(Outcome::Unsupported(why)) => println!("{name} unsupported: {why}"),
        Err(Outcome::Failed(failure)) => {
            println!("{name} FAILED: {}; {}", failure.error, failure.cause);
            return false;
        }
    }
    true
}

/// Sends a message into a buffer of the receiver.
fn send(with_immediate: bool) -> Result<(), Outcome> {
    let pair = Pair::new(SendOperations::empty())?;
    pair.b.post_recv(RecvRequest::new(pair.slice(OLD)?))?;
    let request = SendRequest::send(pair.slice(NEW)?);
    pair.do_it(if with_immediate { request.immediate(IMMEDIATE) } else { request })?;
    let Done { success, buffers, .. } = wait(&pair.cq_b)?;
    let slice = buffers.into_slice().expect("it was one slice");
    check(is_filled(&slice, NEW) && success.byte_len as usize == BYTES, "the message")?;
    Ok(check(success.immediate == with_immediate.then_some(IMMEDIATE), "the immediate data")?)
}

/// Sends a message that invalidates a key of the receiver, which then gives no access.
fn send_invalidate() -> Result<(), Outcome> {
    let lent = Lent::new()?;
    let pair = &lent.pair;
    pair.b.post_recv(RecvRequest::new(pair.slice(OLD)?))?;
    pair.do_it(SendRequest::send_invalidate(pair.slice(NEW)?, lent.remote()?.key()))?;
    let message = wait(&pair.cq_b)?.buffers.into_slice().expect("it was one slice");
    check(is_filled(&message, NEW), "the message")?;
    lent.is_out_of_reach()
}

/// Binds a window: a part of a region under a key of its own. The region itself gives peers no
/// access.
fn bind() -> Result<(), Outcome> {
    let lent = Lent::new()?;
    lent.pair.do_it(SendRequest::write(lent.pair.slice(NEW)?, lent.remote()?))?;
    Ok(check_written(&lent.region)?)
}

/// The owner invalidates the key itself.
fn local_invalidate() -> Result<(), Outcome> {
    let lent = Lent::new()?;
    lent.pair.b.post_send(SendRequest::local_invalidate(lent.remote()?.key()))?;
    wait(&lent.pair.cq_b)?;
    lent.is_out_of_reach()
}

/// Writes to the peer's memory. The peer gets no completion, unless immediate data consumes one of
/// its receives.
fn write(with_immediate: bool) -> Result<(), Outcome> {
    let pair = Pair::new(SendOperations::empty())?;
    let region = pair.region()?;
    let request = SendRequest::write(pair.slice(NEW)?, region.remote());
    pair.b.post_recv(RecvRequest::empty())?;
    pair.do_it(if with_immediate { request.immediate(IMMEDIATE) } else { request })?;
    if with_immediate {
        check(wait(&pair.cq_b)?.success.immediate == Some(IMMEDIATE), "the immediate data")?;
    }
    Ok(check_written(&region)?)
}

fn read() -> Result<(), Outcome> {
    let pair = Pair::new(SendOperations::empty())?;
    let region = pair.region()?;
    let done = pair.do_it(SendRequest::read(pair.slice(NEW)?, region.remote()))?;
    Ok(check(done.buffers.into_slice().is_ok_and(|slice| is_filled(&slice, OLD)), "the read bytes")?)
}

/// Executes an atomic on a word with the value 40. The old value is returned, and the word has a
/// new value.
fn atomic(request: fn(Slice, RemoteRange) -> SendRequest, becomes: u64) -> Result<(), Outcome> {
    let pair = Pair::new(SendOperations::empty())?;
    if pair.pd.context().query_device()?.atomic == AtomicCapability::None {
        return Err(Outcome::Unsupported("the device has no atomic operations".to_owned()));
    }
    let region = pair.region()?;
    region.bytes().atomic_at(0).store(40, Ordering::Relaxed);
    let done = pair.do_it(request(pair.pd.allocate(8)?, region.remote().get(0, 8).expect("it is longer")))?;
    let was = done.buffers.into_slice().expect("it was one slice");
    check(*was == 40_u64.to_ne_bytes(), "the old value")?;
    Ok(check(region.bytes().atomic_at(0).load(Ordering::Relaxed) == becomes, "the peer's word")?)
}

/// Writes eight bytes atomically.
fn atomic_write() -> Result<(), Outcome> {
    let pair = Pair::new(SendOperations::ATOMIC_WRITE)?;
    let region = pair.region()?;
    pair.do_it(SendRequest::atomic_write(
        region.remote().get(0, 8).expect("it is longer"),
        0x1122_3344_5566_7788,
    ))?;
    Ok(check(
        region.bytes().atomic_at(0).load(Ordering::Relaxed) == 0x1122_3344_5566_7788,
        "the peer's word",
    )?)
}

/// Flushes: bytes written before are visible to all when it completes.
fn flush() -> Result<(), Outcome> {
    let pair = Pair::new(SendOperations::FLUSH | SendOperations::RDMA_WRITE)?;
    let region = pair.region()?;
    pair.do_it(SendRequest::write(pair.slice(NEW)?, region.remote()))?;
    let whole = Flush { placement: FlushPlacement::Global, level: FlushLevel::Range };
    pair.do_it(SendRequest::flush(region.remote(), whole))?;
    Ok(check_written(&region)?)
}

fn check_written(region: &ExposedRegion) -> Result<(), Failure> {
    check(holds(region, NEW), "the peer's memory")
}

fn holds(region: &ExposedRegion, message: u32) -> bool {
    let mut bytes = [0; BYTES];
    region.bytes().read_at(0, &mut bytes);
    is_filled(&bytes, message)
}

/// Two connected queue pairs: `a` is the initiator, `b` the target.
struct Pair {
    a: QueuePair,
    b: QueuePair,
    cq_a: CompletionQueue,
    cq_b: CompletionQueue,
    pd: ProtectionDomain,
    access: AccessFlags,
}

impl Pair {
    /// The newer operations must be requested when a queue pair is created. A device that lacks one
    /// then returns an error.
    fn new(operations: SendOperations) -> Result<Self, Outcome> {
        let (context, mut parameters) = open(None)?;
        let (pd, cq_a, cq_b) = (context.alloc_pd()?, context.create_cq(8)?, context.create_cq(8)?);
        let build = |cq: &CompletionQueue| {
            let builder = QueuePairBuilder::new(QueuePairType::Rc, cq, cq).max_send_wr(4).max_recv_wr(4);
            let builder = if operations.is_empty() { builder } else { builder.send_operations(operations) };
            builder.build(&pd).map_err(|error| match error {
                Error::Unsupported { why, .. } => Outcome::Unsupported(why.to_owned()),
                other => Outcome::Failed(other.into()),
            })
        };
        let (a, b) = (build(&cq_a)?, build(&cq_b)?);
        let mut access = AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC;
        access.set(AccessFlags::FLUSH_GLOBAL, operations.contains(SendOperations::FLUSH));
        parameters.access = access;
        let (at_a, at_b) = (a.to_init(&parameters)?, b.to_init(&parameters)?);
        a.connect(&parameters, &at_a, &at_b)?;
        b.connect(&parameters, &at_b, &at_a)?;
        Ok(Self { a, b, cq_a, cq_b, pd, access })
    }

    fn slice(&self, message: u32) -> Result<Slice, Failure> {
        let mut slice = self.pd.allocate(BYTES)?;
        fill(&mut slice, message);
        Ok(slice)
    }

    /// Exposes memory of `b` that `a` may access.
    fn region(&self) -> Result<ExposedRegion, Failure> {
        Ok(self.pd.expose(self.slice(OLD)?, self.access).map_err(|(error, _slice)| error)?)
    }

    /// Posts a work request to `a`, and waits for its completion.
    fn do_it(&self, request: SendRequest) -> Result<Done, Failure> {
        self.a.post_send(request)?;
        wait(&self.cq_a)
    }
}

/// Memory of `b` that `a` may write to by a window only.
struct Lent {
    pair: Pair,
    region: Arc<ExposedRegion>,
    window: MemoryWindow,
}

impl Lent {
    fn new() -> Result<Self, Outcome> {
        let pair = Pair::new(SendOperations::empty())?;
        if pair.pd.context().query_device()?.max_mw == 0 {
            return Err(Outcome::Unsupported("the device has no memory windows".to_owned()));
        }
        let region =
            pair.pd.expose(pair.slice(OLD)?, AccessFlags::MW_BIND).map_err(|(error, _slice)| error)?;
        let (region, window) = (Arc::new(region), pair.pd.alloc_mw(WindowType::Two)?);
        pair.b.post_send(SendRequest::bind(&window, &region, 0..BYTES, AccessFlags::REMOTE_WRITE))?;
        wait(&pair.cq_b)?;
        Ok(Self { pair, region, window })
    }

    /// Returns the range that `b` would send to `a`.
    fn remote(&self) -> Result<RemoteRange, Failure> {
        let unbound = || Failure::new("the window is not bound", "its binding was lost", "bind it again");
        self.window.remote().ok_or_else(unbound)
    }

    /// Checks that a write by the bound key fails with an access error, and changes nothing.
    fn is_out_of_reach(&self) -> Result<(), Outcome> {
        self.pair.a.post_send(SendRequest::write(self.pair.slice(NEW)?, self.remote()?))?;
        let mut poller = self.pair.cq_a.poller();
        let mut completions = poller.wait(Wait::Busy, Some(deadline()))?;
        let completion = completions.next().ok_or_else(|| Failure::timed_out("completion"))?;
        match completion.outcome() {
            Err(failure) if failure.status == WorkStatus::RemoteAccess => {}
            Err(failure) => return Err(failure.into()),
            Ok(_) => {
                let error = "a write by an invalidated key succeeded";
                return Err(Failure::new(error, "the key is still valid", "check dmesg").into());
            }
        }
        Ok(check(holds(&self.region, OLD), "memory without a valid key")?)
    }
}
