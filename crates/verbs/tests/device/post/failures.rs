//! Tests every operation on a peer's memory, and every way in which it can fail there.

use std::sync::Arc;

use farreach_testkit::{on_host_a, pattern};
use farreach_verbs::cq::WorkStatus;
use farreach_verbs::mr::{AccessFlags, RemoteKey};
use farreach_verbs::mw::WindowType;
use farreach_verbs::pd::ProtectionDomain;
use farreach_verbs::qp::{QueuePairState, SendOperations};
use farreach_verbs::region::ExposedRegion;
use farreach_verbs::wr::{Flush, FlushLevel, FlushPlacement, RecvRequest, RemoteRange, SendRequest};

use super::pair::{Pair, bytes, everything, next, open};
use super::send::fails_with;

/// An operation on eight bytes of a peer's memory, and the access right that it needs.
struct Remote {
    name: &'static str,
    right: AccessFlags,
    request: fn(&Pair, RemoteRange) -> SendRequest,
    /// `true` if only the newer kernel supports it.
    is_new: bool,
}

const OPERATIONS: [Remote; 7] = [
    Remote {
        name: "WRITE",
        right: AccessFlags::REMOTE_WRITE,
        request: |pair, remote| SendRequest::write(pair.filled(4, 8), remote),
        is_new: false,
    },
    Remote {
        name: "WRITE with immediate",
        right: AccessFlags::REMOTE_WRITE,
        request: |pair, remote| {
            // A receive is posted for its immediate, so that is not the cause of the failure.
            pair.b.post_recv(RecvRequest::empty()).unwrap();
            SendRequest::write(pair.filled(4, 8), remote).immediate(5)
        },
        is_new: false,
    },
    Remote {
        name: "READ",
        right: AccessFlags::REMOTE_READ,
        request: |pair, remote| SendRequest::read(pair.filled(4, 8), remote),
        is_new: false,
    },
    Remote {
        name: "compare and swap",
        right: AccessFlags::REMOTE_ATOMIC,
        request: |pair, remote| SendRequest::compare_swap(pair.filled(4, 8), remote, 0, 1),
        is_new: false,
    },
    Remote {
        name: "fetch and add",
        right: AccessFlags::REMOTE_ATOMIC,
        request: |pair, remote| SendRequest::fetch_add(pair.filled(4, 8), remote, 1),
        is_new: false,
    },
    Remote {
        name: "ATOMIC WRITE",
        // Despite its name, it needs the right to write.
        right: AccessFlags::REMOTE_WRITE,
        request: |_, remote| SendRequest::atomic_write(remote, 1),
        is_new: true,
    },
    Remote {
        name: "FLUSH",
        right: AccessFlags::FLUSH_GLOBAL,
        request: |_, remote| {
            let flush = Flush { placement: FlushPlacement::Global, level: FlushLevel::Range };
            SendRequest::flush(remote, flush)
        },
        is_new: true,
    },
];

/// Returns `true` for Debian 12's kernel, which has neither ATOMIC WRITE nor FLUSH.
fn is_old_kernel() -> bool {
    std::env::var("FARREACH_KERNEL").is_ok_and(|version| version.starts_with("6.1."))
}

fn rights() -> AccessFlags {
    if is_old_kernel() { everything() } else { everything() | AccessFlags::FLUSH_GLOBAL }
}

/// The error in an operation.
struct Wrong {
    /// The access that the serving queue pair permits.
    of_queue_pair: fn(&Remote) -> AccessFlags,
    /// The access that the region permits.
    of_region: fn(&Remote) -> AccessFlags,
    /// Returns the target, from the region's first eight bytes.
    aim: fn(RemoteRange) -> RemoteRange,
}

/// No error.
const RIGHT: Wrong = Wrong { of_queue_pair: |_| rights(), of_region: |_| rights(), aim: |word| word };

/// Makes every operation fail. Every failure ends the connection, so each has one of its own.
fn each_fails(wrong: &Wrong, status: WorkStatus) {
    let pd = open().alloc_pd().unwrap();
    let newer = SendOperations::ATOMIC_WRITE | SendOperations::FLUSH | SendOperations::RDMA_WRITE;
    for operation in OPERATIONS.iter().filter(|operation| !(operation.is_new && is_old_kernel())) {
        let pair = Pair::in_domain(&pd, (wrong.of_queue_pair)(operation), |builder| match operation.is_new {
            true => builder.send_operations(newer),
            false => builder,
        });
        let region = pair.exposed_for(3, 64, (wrong.of_region)(operation));
        let before = bytes(&region);
        let request = (operation.request)(&pair, (wrong.aim)(first_word(&region)));
        fails_with(&pair, request, status, operation.name);
        assert_eq!(bytes(&region), before, "{}: nothing has changed", operation.name);
    }
}

/// Returns a key that was never given out.
fn forged(key: RemoteKey) -> RemoteKey {
    RemoteKey(key.0 ^ 0x55)
}

fn first_word(region: &ExposedRegion) -> RemoteRange {
    region.remote().get(0, 8).unwrap()
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_wrong_key_fails_every_operation() {
    on_host_a(|| {
        let aim = |word: RemoteRange| RemoteRange::new(word.address(), word.len(), forged(word.key()));
        each_fails(&Wrong { aim, ..RIGHT }, WorkStatus::RemoteAccess);
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn what_lies_beyond_the_end_fails_every_operation() {
    on_host_a(|| {
        let aim = |word: RemoteRange| RemoteRange::new(word.address() + 64, word.len(), word.key());
        each_fails(&Wrong { aim, ..RIGHT }, WorkStatus::RemoteAccess);
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_missing_right_fails_every_operation() {
    on_host_a(|| {
        let of_region = |operation: &Remote| rights() & !operation.right;
        each_fails(&Wrong { of_region, ..RIGHT }, WorkStatus::RemoteAccess);
    });
}

/// The region permits the operation; the serving queue pair does not.
#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_queue_pair_without_the_right_fails_every_operation() {
    on_host_a(|| {
        let of_queue_pair = |operation: &Remote| rights() & !operation.right;
        each_fails(&Wrong { of_queue_pair, ..RIGHT }, WorkStatus::RemoteInvalid);
    });
}

/// The name of a message, and a function that makes it.
type Message = (&'static str, fn(&Pair, &ExposedRegion) -> SendRequest);

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_receiver_that_is_not_ready_fails_every_kind_of_message() {
    on_host_a(|| {
        let messages: [Message; 4] = [
            ("SEND", |pair, _| SendRequest::send(pair.filled(1, 8))),
            ("SEND with immediate", |pair, _| SendRequest::send(pair.filled(1, 8)).immediate(1)),
            ("SEND with invalidate", |pair, region| {
                SendRequest::send_invalidate(pair.filled(1, 8), region.remote().key())
            }),
            ("WRITE with immediate", |pair, region| {
                SendRequest::write(pair.filled(1, 8), first_word(region)).immediate(1)
            }),
        ];
        for (name, message) in messages {
            let pair = Pair::rc();
            let region = pair.exposed(3, 64);
            let request = message(&pair, &region);
            fails_with(&pair, request, WorkStatus::ReceiverNotReady, name);
        }
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_room_that_is_too_short_fails_every_kind_of_send() {
    on_host_a(|| {
        let messages: [Message; 3] = [
            ("SEND", |pair, _| SendRequest::send(pair.filled(1, 64))),
            ("SEND with immediate", |pair, _| SendRequest::send(pair.filled(1, 64)).immediate(1)),
            ("SEND with invalidate", |pair, region| {
                SendRequest::send_invalidate(pair.filled(1, 64), region.remote().key())
            }),
        ];
        for (name, message) in messages {
            let pair = Pair::rc();
            let region = pair.exposed(3, 64);
            pair.b.post_recv(RecvRequest::new(pair.filled(0, 16))).unwrap();
            pair.a.post_send(message(&pair, &region)).unwrap();
            // The standard requires the first of each; Soft-RoCE returns the second.
            let sent = next(&pair.cq_a).outcome.unwrap_err().status;
            assert!(
                matches!(sent, WorkStatus::RemoteInvalid | WorkStatus::RemoteOperation),
                "{name}: {sent}"
            );
            let received = next(&pair.cq_b);
            let status = received.outcome.unwrap_err().status;
            assert!(
                matches!(status, WorkStatus::LocalLength | WorkStatus::LocalQueuePair),
                "{name}: {status}"
            );
            assert_eq!(received.buffers.len(), 16, "{name}: the buffer is back");
        }
    });
}

/// Posts a work request to `b` that fails locally, with this status if the device follows the
/// standard. Soft-RoCE fails the queue pair, and flushes the work request like later ones.
#[track_caller]
fn fails_at_home(pair: &Pair, request: SendRequest, status: WorkStatus) {
    pair.b.post_send(request.tag(1)).unwrap();
    let done = next(&pair.cq_b);
    assert_eq!(done.tag, 1);
    let failure = done.outcome.unwrap_err();
    assert!([status, WorkStatus::Flushed].contains(&failure.status), "{failure}");
    assert_eq!(pair.b.state().unwrap(), QueuePairState::Error, "{failure}");
}

/// Returns the result of a write of 64 bytes by other queue pairs of the domain.
fn write_by_others(pd: &ProtectionDomain, to: RemoteRange) -> Result<(), WorkStatus> {
    let others = Pair::in_domain(pd, everything(), |builder| builder);
    others.a.post_send(SendRequest::write(others.filled(4, 64), to)).unwrap();
    next(&others.cq_a).outcome.map(|_| ()).map_err(|failure| failure.status)
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_window_over_a_region_that_allows_none_opens_nothing() {
    on_host_a(|| {
        for kind in [WindowType::One, WindowType::Two] {
            let pair = Pair::rc();
            let window = pair.pd.alloc_mw(kind).unwrap();
            let region = Arc::new(pair.exposed(3, 64));
            let bind = SendRequest::bind(&window, &region, 0..64, AccessFlags::REMOTE_WRITE);
            fails_at_home(&pair, bind, WorkStatus::WindowBind);
            let by_window = RemoteRange::new(region.remote().address(), 64, window.rkey());
            assert_eq!(write_by_others(&pair.pd, by_window), Err(WorkStatus::RemoteAccess), "{kind}");
            assert_eq!(bytes(&region), pattern(3, 64), "{kind}");
        }
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn the_end_of_a_wrong_key_fails_and_the_right_one_works_on() {
    on_host_a(|| {
        let pair = Pair::rc();
        let region = pair.exposed(3, 64);
        let wrong = SendRequest::local_invalidate(forged(region.remote().key()));
        fails_at_home(&pair, wrong, WorkStatus::LocalQueuePair);
        write_by_others(&pair.pd, region.remote()).unwrap();
        assert_eq!(bytes(&region), pattern(4, 64));
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_message_that_ends_a_wrong_key_fails_and_the_right_one_works_on() {
    on_host_a(|| {
        let pair = Pair::rc();
        let region = pair.exposed(3, 64);
        pair.b.post_recv(RecvRequest::new(pair.filled(0, 16))).unwrap();
        let wrong = forged(region.remote().key());
        pair.a.post_send(SendRequest::send_invalidate(pair.filled(1, 8), wrong)).unwrap();
        // Soft-RoCE checks the key after it has acknowledged the message: its sender gets the error
        // with the next one.
        let sent = next(&pair.cq_a).outcome.map_err(|failure| failure.status);
        assert!(
            matches!(sent, Ok(_) | Err(WorkStatus::RemoteInvalid | WorkStatus::RemoteAccess)),
            "{sent:?}"
        );
        let received = next(&pair.cq_b);
        assert_eq!(received.outcome.unwrap_err().status, WorkStatus::RemoteInvalid);
        assert_eq!(received.buffers.len(), 16, "the buffer is back");
        assert_eq!(pair.b.state().unwrap(), QueuePairState::Error);
        write_by_others(&pair.pd, region.remote()).unwrap();
        assert_eq!(bytes(&region), pattern(4, 64));
    });
}
