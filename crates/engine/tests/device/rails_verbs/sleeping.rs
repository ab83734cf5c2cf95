//! Sleeping until there is something to poll for.

use std::os::fd::AsRawFd;
use std::time::Duration;

use farreach_rail::Rail;
use farreach_testkit::on_host_a;

use crate::rails_verbs::pair::{Pair, Side, send, tell};

/// Returns whether the rail's descriptor becomes readable within a time.
fn is_woken(side: &Side, within: Duration) -> bool {
    let fd = side.rail.wait_fd().expect("there is one").as_raw_fd();
    let mut polled = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: the descriptor is open, and the structure is valid for reads and writes.
    let count = unsafe { libc::poll(&raw mut polled, 1, within.as_millis() as i32) };
    assert!(count >= 0, "{}", std::io::Error::last_os_error());
    count == 1
}

const SOON: Duration = Duration::from_secs(10);
const WHILE: Duration = Duration::from_millis(50);

/// Polls until the rail may sleep.
fn fall_asleep(side: &mut Side) {
    while !side.rail.may_sleep().expect("it may be asked") {
        side.poll();
    }
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_sleeper_is_woken_by_whatever_there_is_to_poll_for() {
    on_host_a(|| {
        let mut pair = Pair::new();
        fall_asleep(&mut pair.b);
        assert!(!is_woken(&pair.b, WHILE), "there is nothing");
        // A message, an immediate, and the completion of an own request.
        let slice = pair.a.filled(1, 64);
        pair.a.post(1, send(slice));
        assert!(is_woken(&pair.b, SOON));
        pair.message();
        fall_asleep(&mut pair.b);
        pair.a.post(2, tell(3));
        assert!(is_woken(&pair.b, SOON));
        pair.immediate();
        pair.well_done();
        pair.well_done();
        fall_asleep(&mut pair.a);
        pair.a.post(3, tell(4));
        assert!(is_woken(&pair.a, SOON));
        pair.well_done();
        pair.immediate();
        pair.finish();
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn no_wake_up_is_lost_whenever_something_comes() {
    on_host_a(|| {
        let mut pair = Pair::new();
        for number in 0..300 {
            pair.a.post(1, tell(number));
            // Some arrive before `may_sleep`, some between it and the sleep.
            for _ in 0..number % 7 {
                pair.a.poll();
            }
            loop {
                if pair.b.rail.may_sleep().unwrap() {
                    assert!(is_woken(&pair.b, SOON), "immediate {number}");
                }
                pair.b.poll();
                if let Some((_, immediate)) = pair.b.told.immediates.pop_front() {
                    assert_eq!(immediate, number);
                    break;
                }
            }
            pair.well_done();
        }
        pair.finish();
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn what_waits_to_be_told_keeps_awake() {
    on_host_a(|| {
        let mut pair = Pair::new();
        fall_asleep(&mut pair.a);
        pair.b.rail.close_link(pair.b.link);
        pair.a.post(1, tell(1));
        pair.a.rail.close_link(pair.a.link);
        assert_eq!(pair.a.rail.may_sleep(), Ok(false), "a request comes back");
        pair.done();
        fall_asleep(&mut pair.a);
        assert!(!is_woken(&pair.a, WHILE));
        pair.finish();
    });
}
