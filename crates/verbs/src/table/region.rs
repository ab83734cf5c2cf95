//! Tests regions and windows: memory stays while a device, a peer or a window may access it.

use std::sync::Arc;

use farreach_memory::{Exposed, leaked_bytes};
use farreach_verbs_sys as sys;

use super::leaking;
use super::script::{
    Bench, LEN, Watch, complete, complete_with, fail_post_in_doubt, refuse_post_after, refusing_dealloc,
    refusing_dereg, watched,
};
use crate::leak::leaked;
use crate::mr::AccessFlags;
use crate::mw::WindowType;
use crate::region::ExposedRegion;
use crate::wr::{Refusal, SendRequest};

fn region(bench: &Bench) -> (Arc<ExposedRegion>, Watch) {
    let (slice, watch) = watched();
    (Arc::new(bench.pd.expose(slice, AccessFlags::MW_BIND).unwrap()), watch)
}

fn bind(bench: &Bench) {
    complete(1);
    assert_eq!(bench.cq.poller().poll().unwrap().count(), 1);
}

#[test]
fn a_window_keeps_its_region_until_it_is_bound_elsewhere_or_revoked() {
    let bench = Bench::new(16);
    let qp = bench.queue_pair(4);
    let window = bench.pd.alloc_mw(WindowType::Two).unwrap();
    let ((first, of_first), (second, of_second)) = (region(&bench), region(&bench));
    qp.post_send(SendRequest::bind(&window, &first, 0..64, AccessFlags::REMOTE_WRITE)).unwrap();
    drop(first);
    assert!(of_first.is_kept(), "the binding is in flight");
    bind(&bench);
    assert!(of_first.is_kept(), "the window leads to it");

    qp.post_send(SendRequest::bind(&window, &second, 0..64, AccessFlags::REMOTE_WRITE)).unwrap();
    drop(second);
    assert!(of_first.is_kept(), "the window may lead to it until the new binding completes");
    bind(&bench);
    assert!(!of_first.is_kept() && of_second.is_kept());
    window.revoke().unwrap();
    assert!(!of_second.is_kept());
}

#[test]
fn a_binding_that_fails_leaves_the_window_where_it_may_have_been() {
    let bench = Bench::new(16);
    let qp = bench.queue_pair(4);
    let bind = |window: &_, region: &_| SendRequest::bind(window, region, 0..64, AccessFlags::REMOTE_WRITE);
    let window = bench.pd.alloc_mw(WindowType::Two).unwrap();
    let ((first, of_first), (second, _)) = (region(&bench), region(&bench));
    let binder = bench.queue_pair(4);
    binder.post_send(bind(&window, &first)).unwrap();
    drop(first);
    self::bind(&bench);
    binder.post_send(bind(&window, &second)).unwrap();
    complete_with(1, sys::IBV_WC_MW_BIND_ERR);
    assert_eq!(bench.cq.poller().poll().unwrap().count(), 1);
    assert!(of_first.is_kept(), "the window may still lead to it");
    qp.post_send(bind(&window, &second)).expect("the binding of the other queue pair has ended");
    self::bind(&bench);
    assert!(of_first.is_kept());
    window.revoke().unwrap();
    assert!(!of_first.is_kept());
}

#[test]
fn a_window_is_bound_by_one_queue_at_a_time() {
    let bench = Bench::new(16);
    let (first, second) = (bench.queue_pair(4), bench.queue_pair(4));
    let window = bench.pd.alloc_mw(WindowType::Two).unwrap();
    let (region, _watch) = region(&bench);
    let request = || SendRequest::bind(&window, &region, 0..64, AccessFlags::REMOTE_WRITE);
    first.post_send(request()).unwrap();
    first.post_send(request()).expect("one queue binds in order");
    for _ in 0..2 {
        let error = second.post_send(request()).unwrap_err();
        assert!(matches!(error.reason, Refusal::WindowBusy), "{error}");
        bind(&bench);
    }
    second.post_send(request()).unwrap();
}

#[test]
fn a_binding_that_is_refused_changes_nothing() {
    let bench = Bench::new(16);
    let qp = bench.queue_pair(4);
    let window = bench.pd.alloc_mw(WindowType::Two).unwrap();
    let (region, watch) = region(&bench);
    refuse_post_after(0);
    let request = SendRequest::bind(&window, &region, 0..64, AccessFlags::REMOTE_WRITE);
    let error = qp.post_send(request).unwrap_err();
    assert!(matches!(error.reason, Refusal::Engine(_)), "{error}");
    assert_eq!((qp.in_flight(), window.remote()), ((0, 0), None));
    drop((error, region));
    assert!(!watch.is_kept());
}

#[test]
fn a_window_that_is_not_deallocated_keeps_its_region_for_good() {
    let _leaking = leaking();
    let bench = Bench::new(16);
    let qp = bench.queue_pair(4);
    let window = bench.pd.alloc_mw(WindowType::Two).unwrap();
    let (region, watch) = region(&bench);
    qp.post_send(SendRequest::bind(&window, &region, 0..64, AccessFlags::REMOTE_WRITE)).unwrap();
    bind(&bench);
    let counted = leaked().memory_windows;
    refusing_dealloc(|| drop((window, region)));
    assert!(watch.is_kept());
    assert_eq!(leaked().memory_windows, counted + 1);
}

#[test]
fn a_binding_in_doubt_keeps_its_window_and_its_region() {
    let bench = Bench::new(16);
    let qp = bench.queue_pair(4);
    let window = bench.pd.alloc_mw(WindowType::Two).unwrap();
    let (region, watch) = region(&bench);
    fail_post_in_doubt();
    let request = SendRequest::bind(&window, &region, 0..64, AccessFlags::REMOTE_WRITE);
    let error = qp.post_send(request).unwrap_err();
    assert!(matches!(error.reason, Refusal::InDoubt(_)), "{error}");
    drop((error, region, window));
    assert!(watch.is_kept(), "the window may lead to it");
    drop(qp);
    assert!(!watch.is_kept());
}

#[test]
fn memory_that_is_not_deregistered_stays_mapped_and_is_counted() {
    let _leaking = leaking();
    let bench = Bench::new(16);
    let (slice, watch) = bench.memory();
    let (bytes, regions) = (leaked_bytes(), leaked().memory_regions);
    refusing_dereg(|| drop(slice));
    assert!(watch.is_kept());
    assert_eq!((leaked_bytes() - bytes, leaked().memory_regions - regions), (LEN, 1));
    let (slice, watch) = bench.memory();
    drop(slice);
    assert!(!watch.is_kept());
    assert_eq!(leaked_bytes() - bytes, LEN);
}

#[test]
fn what_a_peer_may_reach_stays_mapped_until_its_key_is_dead() {
    let _leaking = leaking();
    let bench = Bench::new(16);
    for is_dropped in [true, false] {
        let (slice, watch) = watched();
        let region = bench.pd.expose(slice, AccessFlags::REMOTE_WRITE).unwrap();
        refusing_dereg(|| match is_dropped {
            true => drop(region),
            false => {
                let (_, exposed) = region.revoke().unwrap_err();
                exposed.write_at(0, b"copying access is left");
                exposed.try_into_slice().unwrap_err();
            }
        });
        assert!(watch.is_kept());
    }
    let (slice, watch) = watched();
    let region = bench.pd.expose(slice, AccessFlags::REMOTE_WRITE).unwrap();
    region.bytes().write_at(0, b"by a peer");
    let slice = region.revoke().unwrap();
    assert_eq!(&slice[..9], b"by a peer");
    drop(slice);
    assert!(!watch.is_kept());
}

#[test]
fn nothing_changes_shared_memory() {
    let bench = Bench::new(16);
    let qp = bench.queue_pair(4);
    let shared = watched().0.share();
    let exposed = Exposed::from(shared.clone());
    for changes in [AccessFlags::REMOTE_WRITE, AccessFlags::REMOTE_ATOMIC, AccessFlags::LOCAL_WRITE] {
        let error = bench.pd.expose_also(&exposed, AccessFlags::REMOTE_READ | changes).unwrap_err();
        assert!(error.to_string().contains("for reading only"), "{error}");
    }
    bench.pd.expose_also(&exposed, AccessFlags::REMOTE_READ).unwrap().end().unwrap();
    let region = Arc::new(bench.pd.expose_also(&exposed, AccessFlags::MW_BIND).unwrap());
    let window = bench.pd.alloc_mw(WindowType::Two).unwrap();
    let request = |access| SendRequest::bind(&window, &region, 0..64, access);
    for changes in [AccessFlags::REMOTE_WRITE, AccessFlags::REMOTE_ATOMIC] {
        let refused = qp.post_send(request(AccessFlags::REMOTE_READ | changes)).unwrap_err();
        assert!(matches!(refused.reason, Refusal::Unsupported(_)), "{:?}", refused.reason);
    }
    qp.post_send(request(AccessFlags::REMOTE_READ)).unwrap();
    bind(&bench);
    drop((exposed, region));
    let shared = shared.try_unshare().expect_err("a window leads to it");
    window.revoke().unwrap();
    shared.try_unshare().unwrap();
}

#[test]
fn memory_that_has_another_key_does_not_become_a_slice() {
    let bench = Bench::new(16);
    let region = bench.pd.expose(watched().0, AccessFlags::REMOTE_WRITE).unwrap();
    let other = bench.pd.expose_also(region.bytes(), AccessFlags::REMOTE_READ).unwrap();
    let (error, exposed) = region.revoke().unwrap_err();
    assert!(error.to_string().contains("1 other key"), "{error}");
    other.end().unwrap();
    exposed.try_into_slice().unwrap();
}

#[test]
fn exposed_memory_stays_until_each_of_its_keys_is_dead() {
    let _leaking = leaking();
    let bench = Bench::new(16);
    let key = |memory: &Exposed| bench.pd.expose_also(memory, AccessFlags::REMOTE_WRITE).unwrap();
    let (slice, watch) = watched();
    let memory = slice.expose();
    let (ended, dropped) = (key(&memory), key(&memory));
    assert_eq!(ended.remote().len(), LEN as u64);
    drop(memory);
    ended.end().unwrap();
    assert!(watch.is_kept(), "another key leads to it");
    drop(dropped);
    assert!(!watch.is_kept());

    for is_dropped in [true, false] {
        let (slice, watch) = watched();
        let memory = slice.expose();
        let (lasting, other) = (key(&memory), key(&memory));
        let counted = leaked().memory_regions;
        refusing_dereg(|| match is_dropped {
            true => drop(lasting),
            false => assert!(lasting.end().is_err()),
        });
        assert_eq!(leaked().memory_regions, counted + 1);
        other.end().unwrap();
        let memory = memory.try_into_slice().expect_err("a key to it lives");
        drop(memory);
        assert!(watch.is_kept());
    }
}
