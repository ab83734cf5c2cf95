//! Tests of the three ways to wait for events.

use std::os::fd::{AsFd, AsRawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use farreach_testkit::{WAIT_MAX, on_host_a};
use farreach_verbs::cm::{CmId, Error, EventChannel, EventKind, PortSpace};

use super::rig::{Watchdog, any_port, connect, deadline, expect, listener};

/// Returns an id that will soon have an event.
fn resolving(channel: &EventChannel) -> CmId {
    let id = channel.create_id(PortSpace::Tcp).unwrap();
    id.resolve_addr(None, any_port(), deadline()).unwrap();
    id
}

fn is_readable(fd: &impl AsFd, timeout_ms: i32) -> bool {
    let mut polled = libc::pollfd { fd: fd.as_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: the call gets one descriptor, which is open.
    let ready = unsafe { libc::poll(&raw mut polled, 1, timeout_ms) };
    assert!(ready >= 0, "{}", std::io::Error::last_os_error());
    ready == 1
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_wait_ends_at_its_deadline() {
    on_host_a(|| {
        let _watchdog = Watchdog::new();
        let channel = EventChannel::new().unwrap();
        let (start, limit) = (Instant::now(), Duration::from_millis(200));
        let error = channel.wait_event(start + limit).unwrap_err();
        assert!(matches!(error, Error::TimedOut { .. }), "{error}");
        assert!(start.elapsed() >= limit && start.elapsed() < WAIT_MAX, "{:?}", start.elapsed());
        let (listener, _) = listener();
        let error = listener.wait_request(Instant::now()).unwrap_err();
        assert!(error.to_string().starts_with("no request from the id at "), "{error}");
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn without_blocking_poll_tells_when_there_is_an_event() {
    on_host_a(|| {
        let _watchdog = Watchdog::new();
        let channel = EventChannel::new().unwrap();
        assert!(channel.get_event().unwrap().is_none(), "at once");
        assert!(!is_readable(&channel, 0));
        let id = resolving(&channel);
        assert!(is_readable(&channel, WAIT_MAX.as_millis() as i32));
        assert_eq!(channel.get_event().unwrap().expect("it was readable").id(), &id);
        assert!(!is_readable(&channel, 0));

        let (listener, address) = listener();
        assert!(listener.get_request().unwrap().is_none());
        let client = thread::spawn(move || connect(address, b"").map(drop));
        assert!(is_readable(&listener, WAIT_MAX.as_millis() as i32));
        drop(listener.get_request().unwrap().expect("it was readable"));
        assert!(client.join().unwrap().is_err());
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_thread_of_its_own_hands_events_over_and_ends_when_told() {
    on_host_a(|| {
        let _watchdog = Watchdog::new();
        let channel = EventChannel::new().unwrap();
        let (sender, events) = mpsc::channel();
        let thread = channel.spawn(move |event| drop(sender.send(event))).unwrap();
        let ids = [(); 3].map(|()| resolving(&channel));
        for _ in &ids {
            let event = events.recv_timeout(WAIT_MAX).unwrap();
            assert_eq!(event.kind(), EventKind::AddressResolved);
            assert!(ids.contains(event.id()));
        }
        assert!(thread.is_running());
        thread.stop().unwrap();
        assert!(events.recv().is_err(), "the closure was dropped");
        let id = resolving(&channel);
        assert_eq!(expect(&channel, EventKind::AddressResolved).id(), &id, "the channel still works");
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_thread_ends_when_dropped_also_by_its_own_closure() {
    on_host_a(|| {
        let _watchdog = Watchdog::new();
        let channel = EventChannel::new().unwrap();
        drop(channel.spawn(|_| ()).unwrap());

        let (hand_over, handed) = mpsc::channel();
        let (done, ended) = mpsc::channel::<()>();
        let thread = channel
            .spawn(move |_| {
                let itself: farreach_verbs::cm::EventThread = handed.recv().unwrap();
                drop(itself);
                done.send(()).unwrap();
            })
            .unwrap();
        hand_over.send(thread).unwrap();
        let _id = resolving(&channel);
        ended.recv_timeout(WAIT_MAX).unwrap();
        // The closure, and with it the sender, is dropped when the thread has ended.
        assert_eq!(ended.recv_timeout(WAIT_MAX), Err(mpsc::RecvTimeoutError::Disconnected));
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_panic_of_the_closure_is_not_lost() {
    on_host_a(|| {
        let _watchdog = Watchdog::new();
        let channel = EventChannel::new().unwrap();
        let thread = channel.spawn(|_| panic!("the closure's own")).unwrap();
        let _id = resolving(&channel);
        farreach_testkit::wait_for("end of the thread", || (!thread.is_running()).then_some(()));
        let panic = catch_unwind(AssertUnwindSafe(|| thread.stop())).unwrap_err();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"the closure's own"));
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn each_event_goes_to_one_of_those_who_wait() {
    on_host_a(|| {
        let _watchdog = Watchdog::new();
        let channel = EventChannel::new().unwrap();
        let (sender, events) = mpsc::channel();
        let threads = [(); 3].map(|()| {
            let sender = sender.clone();
            channel.spawn(move |event| sender.send(event.id().clone()).unwrap()).unwrap()
        });
        let ids: Vec<CmId> = (0..16).map(|_| resolving(&channel)).collect();
        let mut seen: Vec<CmId> = ids.iter().map(|_| events.recv_timeout(WAIT_MAX).unwrap()).collect();
        for thread in threads {
            thread.stop().unwrap();
        }
        drop(sender);
        assert!(events.recv().is_err(), "none came twice");
        for id in &ids {
            let place = seen.iter().position(|found| found == id).expect("every id's event came");
            seen.swap_remove(place);
        }
    });
}
