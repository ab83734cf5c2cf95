//! Tests every operation with every flag and every kind of buffer: it works, byte by byte, or the
//! library refuses it.
//!
//! Each buffer looks like a scatter-gather element that names a slice which is in no work request.
//! Soft-RoCE uses the bytes of a READ posted inline as such an element, and would write there.

use std::sync::Arc;

use farreach_memory::{Buffer, Memory, Slice};
use farreach_testkit::{on_host_a, pattern, wait_for};
use farreach_verbs::cq::WorkStatus;
use farreach_verbs::mr::AccessFlags;
use farreach_verbs::mw::{MemoryWindow, WindowType};
use farreach_verbs::qp::{QueuePair, QueuePairType};
use farreach_verbs::region::ExposedRegion;
use farreach_verbs::wr::{
    Buffers, Flush, FlushLevel, FlushPlacement, RecvRequest, Refusal, SendFlags, SendRequest,
};

use super::pair::{Done, Pair, bytes, next};

#[derive(Debug, Clone, Copy, PartialEq)]
enum What {
    Send,
    SendImmediate,
    SendInvalidate,
    Write,
    WriteImmediate,
    Read,
    CompareSwap,
    FetchAdd,
    AtomicWrite,
    Flush,
    Bind,
    LocalInvalidate,
}
use What::*;

const ALL: [What; 12] = [
    Send,
    SendImmediate,
    SendInvalidate,
    Write,
    WriteImmediate,
    Read,
    CompareSwap,
    FetchAdd,
    AtomicWrite,
    Flush,
    Bind,
    LocalInvalidate,
];

#[derive(Debug, Clone, Copy, PartialEq)]
enum Of {
    Slice,
    Lent,
    Shared,
    List,
    Unregistered,
}

const KINDS: [Of; 5] = [Of::Slice, Of::Lent, Of::Shared, Of::List, Of::Unregistered];

#[derive(Debug, Clone, Copy, PartialEq)]
enum Answer {
    Works,
    Flag,
    Unsupported,
    SharedDestination,
    NotRegistered,
}

/// The size of one scatter-gather element, in bytes.
const LEN: usize = 16;
/// The word of the region that atomics change, and its value after a swap.
const WORD: std::ops::Range<usize> = 32..40;
const SWAPPED: u64 = 0x1234_5678_9abc_def0;

impl What {
    fn has_buffers(self) -> bool {
        !matches!(self, AtomicWrite | Flush | Bind | LocalInvalidate)
    }

    fn is_atomic(self) -> bool {
        matches!(self, CompareSwap | FetchAdd)
    }

    /// Returns the flags that the specification and ibv_post_send(3) allow.
    fn takes(self, kind: QueuePairType) -> SendFlags {
        let fence = if kind == QueuePairType::Rc { SendFlags::FENCE } else { SendFlags::empty() };
        SendFlags::SIGNALED
            | fence
            | match self {
                Send | SendImmediate | SendInvalidate | WriteImmediate => {
                    SendFlags::INLINE | SendFlags::SOLICITED
                }
                Write => SendFlags::INLINE,
                _ => SendFlags::empty(),
            }
    }

    fn is_of(self, kind: QueuePairType) -> bool {
        // Neither queue pair was created for ATOMIC WRITE or FLUSH.
        let is_reliable = matches!(self, Read | CompareSwap | FetchAdd | SendInvalidate);
        !matches!(self, AtomicWrite | Flush) && (kind == QueuePairType::Rc || !is_reliable)
    }

    fn expected(self, kind: QueuePairType, flags: SendFlags, of: Of) -> Answer {
        let is_written = self == Read;
        match of {
            Of::Unregistered if self.has_buffers() && !flags.contains(SendFlags::INLINE) => {
                Answer::NotRegistered
            }
            _ if !self.takes(QueuePairType::Rc).contains(flags) => Answer::Flag,
            Of::Shared if is_written => Answer::SharedDestination,
            _ if matches!(self, AtomicWrite | Flush) => Answer::Unsupported,
            _ if !self.takes(kind).contains(flags) => Answer::Flag,
            _ if !self.is_of(kind) => Answer::Unsupported,
            _ => Answer::Works,
        }
    }
}

struct Bench {
    pair: Pair,
    region: ExposedRegion,
    /// A slice that no work request may access.
    victim: Slice,
    /// A region for windows, at either side.
    lendable: Arc<ExposedRegion>,
    /// `true` if a receive is posted at `b`.
    is_expecting: bool,
}

impl Bench {
    fn new(kind: QueuePairType) -> Self {
        let pair = Pair::of_type(kind);
        let (region, victim) = (pair.exposed(1, 64), pair.filled(2, 4096));
        let lendable = Arc::new(pair.exposed_for(3, 4096, AccessFlags::MW_BIND));
        Self { pair, region, victim, lendable, is_expecting: false }
    }

    fn word(&self) -> u64 {
        u64::from_ne_bytes(bytes(&self.region)[WORD].try_into().unwrap())
    }

    /// Returns an element that names the victim.
    fn decoy(&self) -> [u8; LEN] {
        let key = self.victim.local_key(self.pair.pd.id()).unwrap() as u32;
        let mut element = [0; LEN];
        element[..8].copy_from_slice(&(self.victim.address().as_ptr().addr() as u64).to_ne_bytes());
        element[8..12].copy_from_slice(&(LEN as u32).to_ne_bytes());
        element[12..].copy_from_slice(&key.to_ne_bytes());
        element
    }

    fn buffers(&self, what: What, of: Of) -> Buffers {
        if !what.has_buffers() {
            return Buffers::None;
        }
        let mut slice = match of {
            Of::Unregistered => Memory::allocate(LEN).unwrap(),
            _ => self.pair.filled(0, LEN),
        };
        slice.copy_from_slice(&self.decoy());
        if what.is_atomic() {
            // Only the address part: atomics need a buffer of one word.
            drop(slice.split_off(8));
        }
        match of {
            Of::Slice | Of::Unregistered => slice.into(),
            Of::Lent => slice.lend().get(..).unwrap().into(),
            Of::Shared => slice.share().into(),
            Of::List => {
                let rest = slice.split_off(8);
                vec![Buffer::from(slice), Buffer::from(rest)].into()
            }
        }
    }

    /// Returns the work request, and its window if it has one.
    fn request(&self, what: What, of: Of) -> (SendRequest, Option<MemoryWindow>) {
        let remote = self.region.remote().get(0, LEN as u64).unwrap();
        let word = self.region.remote().get(32, 8).unwrap();
        let buffers = self.buffers(what, of);
        let slice = |buffers: Buffers| buffers.into_slice().expect("atomics are tried with slices only");
        let lent = |side| {
            let window = self.pair.pd.alloc_mw(WindowType::Two).unwrap();
            self.bind(side, &window);
            window
        };
        let request = match what {
            Send => SendRequest::send(buffers),
            SendImmediate => SendRequest::send(buffers).immediate(5),
            SendInvalidate => {
                let window = lent(&self.pair.b);
                let request = SendRequest::send_invalidate(buffers, window.rkey());
                return (request, Some(window));
            }
            Write => SendRequest::write(buffers, remote),
            WriteImmediate => SendRequest::write(buffers, remote).immediate(5),
            Read => SendRequest::read_into(buffers, remote),
            CompareSwap => SendRequest::compare_swap(slice(buffers), word, self.word(), SWAPPED),
            FetchAdd => SendRequest::fetch_add(slice(buffers), word, 1),
            AtomicWrite => SendRequest::atomic_write(word, 1),
            Flush => {
                let how = Flush { placement: FlushPlacement::Global, level: FlushLevel::Range };
                SendRequest::flush(remote, how)
            }
            Bind => {
                let window = self.pair.pd.alloc_mw(WindowType::Two).unwrap();
                let request = SendRequest::bind(&window, &self.lendable, 0..64, AccessFlags::REMOTE_WRITE);
                return (request, Some(window));
            }
            LocalInvalidate => {
                let window = lent(&self.pair.a);
                return (SendRequest::local_invalidate(window.rkey()), Some(window));
            }
        };
        (request, None)
    }

    fn bind(&self, side: &QueuePair, window: &MemoryWindow) {
        let request = SendRequest::bind(window, &self.lendable, 0..64, AccessFlags::REMOTE_WRITE);
        side.post_send(request).unwrap();
        let cq = if std::ptr::eq(side, &self.pair.a) { &self.pair.cq_a } else { &self.pair.cq_b };
        next(cq).outcome.unwrap();
    }

    /// Tries a combination. If it works, checks every byte.
    fn attempt(&mut self, what: What, flags: SendFlags, of: Of) -> Answer {
        let is_received = matches!(what, Send | SendImmediate | SendInvalidate | WriteImmediate);
        if is_received && !self.is_expecting {
            self.pair.b.post_recv(RecvRequest::new(self.pair.filled(9, LEN))).unwrap();
            self.is_expecting = true;
        }
        let (request, _window) = self.request(what, of);
        let request = with(request, flags).tag(1);
        let (in_region, in_buffers) = self.effect(what, bytes(&self.region));
        let len = request.buffers().len();
        if let Err(error) = self.pair.a.post_send(request) {
            assert_eq!(error.request.buffers().len(), len, "it is returned whole");
            return match error.reason {
                Refusal::Flag { .. } => Answer::Flag,
                Refusal::Unsupported(_) => Answer::Unsupported,
                Refusal::SharedDestination => Answer::SharedDestination,
                Refusal::NotRegistered => Answer::NotRegistered,
                reason => panic!("{reason}"),
            };
        }
        let done = self.finish(flags);
        if is_received {
            let received = next(&self.pair.cq_b);
            received.outcome.unwrap();
            let expected = if what == WriteImmediate { pattern(9, LEN) } else { self.decoy().to_vec() };
            assert_eq!(*received.buffers.into_slice().unwrap(), expected);
            self.is_expecting = false;
        }
        if self.pair.a.kind() == QueuePairType::Uc {
            // An unreliable write completes when it is sent, which may be before it arrives.
            wait_for("the bytes of a write", || (bytes(&self.region) == in_region).then_some(()));
        }
        assert_eq!(bytes(&self.region), in_region);
        assert_eq!(content(done.buffers), in_buffers[..len]);
        Answer::Works
    }

    /// Soft-RoCE does not support an operation that the specification has for this type: the queue
    /// pair fails, and the work request is returned. It is the last one.
    fn fails(&self, what: What) {
        let (request, _window) = self.request(what, Of::Slice);
        self.pair.a.post_send(request.tag(1)).unwrap();
        let done = next(&self.pair.cq_a);
        let status = done.outcome.unwrap_err().status;
        // Linux 6.1 reports an invalid operation for the queue pair, later kernels a flush.
        assert!(matches!(status, WorkStatus::Flushed | WorkStatus::LocalQueuePair), "{status:?}");
        assert_eq!(done.tag, 1);
    }

    /// Waits for the posted work request, and returns its completion.
    fn finish(&self, flags: SendFlags) -> Done {
        let is_signaled = flags.contains(SendFlags::SIGNALED);
        if !is_signaled {
            // It is returned with the next signalled one: this one, which has no effect.
            let nowhere = self.region.remote().get(0, 0).unwrap();
            self.pair.a.post_send(SendRequest::write(Buffers::None, nowhere).tag(2)).unwrap();
        }
        let done = next(&self.pair.cq_a);
        assert_eq!(done.tag, 1);
        if let Err(failure) = &done.outcome {
            panic!("{failure}");
        }
        if !is_signaled {
            let other = next(&self.pair.cq_a);
            assert_eq!(other.tag, 2);
            other.outcome.unwrap();
        }
        done
    }

    /// Returns the expected contents of the region and the buffers.
    fn effect(&self, what: What, mut region: Vec<u8>) -> (Vec<u8>, Vec<u8>) {
        let word = self.word();
        let mut buffers = self.decoy().to_vec();
        match what {
            Write | WriteImmediate => region[..LEN].copy_from_slice(&buffers),
            Read => buffers.copy_from_slice(&region[..LEN]),
            CompareSwap | FetchAdd => {
                buffers[..8].copy_from_slice(&region[WORD]);
                let changed = if what == FetchAdd { word.wrapping_add(1) } else { SWAPPED };
                region[WORD].copy_from_slice(&changed.to_ne_bytes());
            }
            _ => {}
        }
        (region, buffers)
    }
}

fn with(mut request: SendRequest, flags: SendFlags) -> SendRequest {
    if !flags.contains(SendFlags::SIGNALED) {
        request = request.unsignaled();
    }
    if flags.contains(SendFlags::FENCE) {
        request = request.fenced();
    }
    if flags.contains(SendFlags::SOLICITED) {
        request = request.solicited();
    }
    if flags.contains(SendFlags::INLINE) {
        request = request.inline();
    }
    request
}

fn content(buffers: Buffers) -> Vec<u8> {
    let mut content = Vec::new();
    for buffer in buffers.into_list() {
        match buffer {
            Buffer::Lent(part) => {
                content.extend_from_slice(&part.try_reclaim().expect("no other part is left"))
            }
            other => content.extend_from_slice(other.bytes().expect("it is not lent")),
        }
    }
    content
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
#[expect(clippy::print_stdout, reason = "on failure, the last line shows the combination")]
fn every_combination_works_or_is_refused() {
    on_host_a(|| {
        let (mut works, mut refused) = (0, 0);
        for kind in [QueuePairType::Rc, QueuePairType::Uc] {
            let mut bench = Bench::new(kind);
            let untouched = bench.victim.to_vec();
            for what in ALL {
                if (kind, what) == (QueuePairType::Uc, LocalInvalidate) {
                    bench.fails(what);
                    break;
                }
                let kinds = if what.has_buffers() && !what.is_atomic() { &KINDS[..] } else { &[Of::Slice] };
                for (of, flags) in kinds.iter().flat_map(|of| (0..16).map(move |flags| (*of, flags))) {
                    let flags = flags_of(flags);
                    let combination = format!("{kind} {what:?} {flags:?} {of:?}");
                    println!("{combination}");
                    let answer = bench.attempt(what, flags, of);
                    assert_eq!(answer, what.expected(kind, flags, of), "{combination}");
                    assert_eq!(*bench.victim, untouched, "{combination}");
                    *(if answer == Answer::Works { &mut works } else { &mut refused }) += 1;
                }
            }
        }
        println!("{works} combinations work, {refused} are refused");
        assert!(works > 100 && refused > 100);
    });
}

/// Returns the set of flags of this number.
fn flags_of(number: u32) -> SendFlags {
    let all = [SendFlags::SIGNALED, SendFlags::FENCE, SendFlags::SOLICITED, SendFlags::INLINE];
    all.into_iter().enumerate().filter(|(bit, _)| number >> bit & 1 == 1).map(|(_, flag)| flag).collect()
}
