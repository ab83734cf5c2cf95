//! Every operation on a peer's memory, and every way in which it can fail there.

use farreach_testkit::on_host_a;
use farreach_verbs::cq::WorkStatus;
use farreach_verbs::mr::{AccessFlags, RemoteKey};
use farreach_verbs::qp::SendOperations;
use farreach_verbs::region::ExposedRegion;
use farreach_verbs::wr::{Flush, FlushLevel, FlushPlacement, RecvRequest, RemoteRange, SendRequest};

use crate::pair::{Pair, bytes, everything, next, open};
use crate::send::fails_with;

/// An operation on eight bytes of a peer's memory, and the right that it needs there.
struct Remote {
    name: &'static str,
    right: AccessFlags,
    request: fn(&Pair, RemoteRange) -> SendRequest,
    /// Whether only the newer kernel has it.
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
            // There is room for its immediate: that is not why it fails.
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
        // It is a write, for all its name.
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

/// Debian 12's kernel has neither ATOMIC WRITE nor FLUSH.
fn is_old_kernel() -> bool {
    std::env::var("FARREACH_KERNEL").is_ok_and(|version| version.starts_with("6.1."))
}

fn rights() -> AccessFlags {
    if is_old_kernel() { everything() } else { everything() | AccessFlags::FLUSH_GLOBAL }
}

/// Lets every operation fail at a region with these rights, towards what `aim` makes of its first eight bytes. Every failure ends the
/// connection, so that each has one of its own.
fn each_fails(
    rights_for: impl Fn(&Remote) -> AccessFlags,
    aim: impl Fn(RemoteRange) -> RemoteRange,
    status: WorkStatus,
) {
    let pd = open().alloc_pd().unwrap();
    let newer = SendOperations::ATOMIC_WRITE | SendOperations::FLUSH | SendOperations::RDMA_WRITE;
    for operation in OPERATIONS.iter().filter(|operation| !(operation.is_new && is_old_kernel())) {
        let pair = Pair::in_domain(&pd, rights(), |builder| match operation.is_new {
            true => builder.send_operations(newer),
            false => builder,
        });
        let region = pair.exposed_for(3, 64, rights_for(operation));
        let before = bytes(&region);
        let request = (operation.request)(&pair, aim(first_word(&region)));
        fails_with(&pair, request, status, operation.name);
        assert_eq!(bytes(&region), before, "{}: nothing has changed", operation.name);
    }
}

fn first_word(region: &ExposedRegion) -> RemoteRange {
    region.remote().get(0, 8).unwrap()
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_wrong_key_fails_every_operation() {
    on_host_a(|| {
        let forged =
            |word: RemoteRange| RemoteRange::new(word.address(), word.len(), RemoteKey(word.key().0 ^ 0x55));
        each_fails(|_| rights(), forged, WorkStatus::RemoteAccess);
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn what_lies_beyond_the_end_fails_every_operation() {
    on_host_a(|| {
        let beyond = |word: RemoteRange| RemoteRange::new(word.address() + 64, word.len(), word.key());
        each_fails(|_| rights(), beyond, WorkStatus::RemoteAccess);
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_missing_right_fails_every_operation() {
    on_host_a(|| {
        each_fails(|operation| rights() & !operation.right, |word| word, WorkStatus::RemoteAccess);
    });
}

/// A message's name, and how it is made.
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
            // The standard names the first of each; Soft-RoCE answers with the second.
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
