//! Tests of windows, bound and revoked by the safe API.

use std::sync::Arc;
use std::time::{Duration, Instant};

use farreach_testkit::{on_host_a, pattern};
use farreach_verbs::cq::{WorkKind, WorkStatus};
use farreach_verbs::leak::leaked;
use farreach_verbs::mr::AccessFlags;
use farreach_verbs::mw::{MemoryWindow, WindowType};
use farreach_verbs::region::ExposedRegion;
use farreach_verbs::wr::{RecvRequest, Refusal, RemoteRange, SendRequest};

use super::pair::{Pair, bytes, everything, next, open};

/// Bytes 1024..2048 of a region of `b`, accessible to `a` by a window.
struct Lent {
    pair: Pair,
    region: Arc<ExposedRegion>,
    window: MemoryWindow,
}

const PART: std::ops::Range<usize> = 1024..2048;

impl Lent {
    fn new(kind: WindowType) -> Self {
        let pair = Pair::rc();
        let region = Arc::new(pair.exposed_for(5, 4096, AccessFlags::MW_BIND));
        let window = pair.pd.alloc_mw(kind).unwrap();
        let lent = Self { pair, region, window };
        lent.bind();
        lent
    }

    fn bind(&self) {
        let bind = SendRequest::bind(&self.window, &self.region, PART, AccessFlags::REMOTE_WRITE).tag(3);
        self.pair.b.post_send(bind).unwrap();
        let bound = next(&self.pair.cq_b);
        assert_eq!((bound.tag, bound.kind), (3, WorkKind::BindWindow));
        bound.outcome.unwrap();
    }

    fn remote(&self) -> RemoteRange {
        self.window.remote().expect("it is bound")
    }

    /// Returns the result of a write by `a`.
    fn write(&self, seed: u8, to: RemoteRange) -> Result<(), WorkStatus> {
        self.pair.a.post_send(SendRequest::write(self.pair.filled(seed, 1024), to)).unwrap();
        let done = next(&self.pair.cq_a);
        assert_eq!(done.buffers.len(), 1024, "the buffer is returned in any case");
        done.outcome.map(|_| ()).map_err(|failure| failure.status)
    }

    /// Checks that a write through the window changes its part and nothing else.
    fn lands(&self, seed: u8) {
        let mut expected = bytes(&self.region);
        self.write(seed, self.remote()).unwrap();
        expected[PART].copy_from_slice(&pattern(seed, 1024));
        assert_eq!(bytes(&self.region), expected);
    }

    /// Checks that a write by this key fails and changes nothing.
    fn bounces(&self, to: RemoteRange) {
        let before = bytes(&self.region);
        assert_eq!(self.write(77, to), Err(WorkStatus::RemoteAccess));
        assert_eq!(bytes(&self.region), before);
    }

    /// Checks that nothing holds the memory any more.
    fn gives_back(self) {
        let Self { pair, region, window } = self;
        let before = leaked();
        drop((pair, window));
        let region = Arc::try_unwrap(region).expect("the window has released it");
        assert_eq!(region.revoke().unwrap().len(), 4096);
        assert_eq!(leaked(), before);
    }
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_write_after_send_with_invalidate_bounces() {
    on_host_a(|| {
        let lent = Lent::new(WindowType::Two);
        lent.lands(8);
        let key = lent.remote().key();
        lent.pair.b.post_recv(RecvRequest::new(lent.pair.filled(0, 64))).unwrap();
        lent.pair.a.post_send(SendRequest::send_invalidate(lent.pair.filled(1, 64), key)).unwrap();
        next(&lent.pair.cq_a).outcome.unwrap();
        let told = next(&lent.pair.cq_b).outcome.unwrap();
        assert_eq!(told.byte_len, 64);
        // Soft-RoCE reports it by the kernel's bit, which has another meaning in user space: see
        // docs/GUEST.md.
        assert!(told.invalidated.is_none_or(|ended| ended == key), "{told:?}");
        lent.bounces(lent.remote());
        lent.gives_back();
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_write_after_the_window_was_revoked_bounces() {
    on_host_a(|| {
        for kind in [WindowType::One, WindowType::Two] {
            let lent = Lent::new(kind);
            lent.lands(9);
            let remote = lent.remote();
            lent.window.revoke().unwrap();
            lent.window.revoke().expect("a second time does nothing");
            assert_eq!(lent.window.remote(), None);
            lent.bounces(remote);
            let again = SendRequest::bind(&lent.window, &lent.region, PART, AccessFlags::REMOTE_WRITE);
            assert!(matches!(lent.pair.b.post_send(again).unwrap_err().reason, Refusal::Engine(_)));
            lent.gives_back();
        }
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_window_that_is_invalidated_can_be_bound_anew_under_another_key() {
    on_host_a(|| {
        let lent = Lent::new(WindowType::Two);
        lent.lands(1);
        let first = lent.remote();
        lent.pair.b.post_send(SendRequest::local_invalidate(first.key())).unwrap();
        let ended = next(&lent.pair.cq_b);
        assert_eq!(ended.kind, WorkKind::LocalInvalidate);
        ended.outcome.unwrap();
        lent.bind();
        assert_ne!(lent.remote().key(), first.key());
        lent.lands(2);
        lent.bounces(first);
        lent.gives_back();
    });
}

/// Soft-RoCE would wait 50 s for the window, and then destroy the queue pair with the window bound.
#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_window_ends_with_the_queue_pair_that_bound_it() {
    on_host_a(|| {
        let Lent { pair, region, window } = Lent::new(WindowType::Two);
        let begin = Instant::now();
        drop(pair);
        let taken = begin.elapsed();
        assert!(taken < Duration::from_secs(20), "{taken:?}");
        assert_eq!(window.remote(), None);
        assert_eq!(Arc::strong_count(&region), 1, "the window has released it");
        assert_eq!(leaked().total(), 0);
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_window_that_another_queue_pair_has_bound_since_stays() {
    on_host_a(|| {
        let first = Lent::new(WindowType::Two);
        first.pair.b.post_send(SendRequest::local_invalidate(first.remote().key())).unwrap();
        next(&first.pair.cq_b).outcome.unwrap();
        let Lent { pair, region, window } = first;
        let second =
            Lent { pair: Pair::in_domain(&pair.pd, everything(), |builder| builder), region, window };
        second.bind();
        drop(pair);
        second.lands(6);
        second.gives_back();
    });
}

/// The order in which a device serves two queue pairs is undefined, and so would be the target of
/// the window.
#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_window_is_bound_by_one_queue_pair_at_a_time() {
    on_host_a(|| {
        for kind in [WindowType::One, WindowType::Two] {
            let first = Pair::rc();
            let second = Pair::in_domain(&first.pd, everything(), |builder| builder);
            let region = Arc::new(first.exposed_for(5, 4096, AccessFlags::MW_BIND));
            let window = first.pd.alloc_mw(kind).unwrap();
            let bind = || SendRequest::bind(&window, &region, PART, AccessFlags::REMOTE_WRITE);
            first.b.post_send(bind()).unwrap();
            let error = second.b.post_send(bind()).unwrap_err();
            assert!(matches!(error.reason, Refusal::WindowBusy), "{error}");
            next(&first.cq_b).outcome.unwrap();
            if kind == WindowType::Two {
                first.b.post_send(SendRequest::local_invalidate(window.rkey())).unwrap();
                next(&first.cq_b).outcome.unwrap();
            }
            second.b.post_send(bind()).unwrap();
            next(&second.cq_b).outcome.unwrap();
            window.revoke().unwrap();
        }
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_window_gives_no_more_rights_than_it_was_bound_for() {
    on_host_a(|| {
        let lent = Lent::new(WindowType::Two);
        lent.pair.a.post_send(SendRequest::read(lent.pair.filled(3, 64), lent.remote())).unwrap();
        let read = next(&lent.pair.cq_a);
        assert_eq!(read.outcome.unwrap_err().status, WorkStatus::RemoteAccess, "it is for writing only");
        assert_eq!(*read.buffers.into_slice().unwrap(), *pattern(3, 64));
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_binding_that_cannot_work_is_refused() {
    on_host_a(|| {
        let pair = Pair::rc();
        let region = Arc::new(pair.exposed_for(0, 4096, AccessFlags::MW_BIND));
        let window = pair.pd.alloc_mw(WindowType::Two).unwrap();
        let reason = |request: SendRequest| pair.b.post_send(request).unwrap_err().reason;
        let bind = |range| SendRequest::bind(&window, &region, range, AccessFlags::REMOTE_WRITE);
        assert!(matches!(reason(bind(4000..5000)), Refusal::OutOfBounds { len: 1000, .. }));
        assert!(matches!(reason(bind(8..8)), Refusal::OutOfBounds { len: 0, .. }));
        let stranger = open().alloc_pd().unwrap().alloc_mw(WindowType::Two).unwrap();
        let bound_elsewhere = SendRequest::bind(&stranger, &region, 0..8, AccessFlags::REMOTE_WRITE);
        assert!(matches!(reason(bound_elsewhere), Refusal::OtherDomain));
        // A region that windows may not be bound to: the device refuses it.
        let plain = Arc::new(pair.exposed_for(0, 64, AccessFlags::REMOTE_WRITE));
        pair.b.post_send(SendRequest::bind(&window, &plain, 0..64, AccessFlags::REMOTE_WRITE)).unwrap();
        let failure = next(&pair.cq_b).outcome.unwrap_err();
        // Soft-RoCE fails the queue pair, and flushes the work request like later ones.
        assert!(matches!(failure.status, WorkStatus::WindowBind | WorkStatus::Flushed), "{failure}");
    });
}
