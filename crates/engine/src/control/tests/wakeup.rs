//! Tests of what ends a sleep.

use std::io::pipe;
use std::os::fd::AsFd;
use std::thread;

use super::*;
use crate::progress::Wakeup as _;

/// Much shorter than a sleep that nothing ends, and much longer than one that is ended.
const SHORT: Duration = Duration::from_secs(5);

fn sleep(control: &mut Control) -> Duration {
    let begun = Instant::now();
    control.sleep(Some(2 * SHORT)).unwrap();
    begun.elapsed()
}

#[test]
fn a_ring_ends_a_sleep_each_time() {
    let mut control = Control::new(&ControlBudgets::default()).unwrap();
    for _ in 0..3 {
        let wakeup = control.wakeup();
        let ringer = thread::spawn(move || {
            thread::sleep(Duration::from_millis(20));
            wakeup.wake();
        });
        assert!(sleep(&mut control) < SHORT);
        ringer.join().unwrap();
    }
}

#[test]
fn a_ring_before_ends_one_sleep_and_no_more() {
    let mut control = Control::new(&ControlBudgets::default()).unwrap();
    control.wakeup().wake();
    control.wakeup().wake();
    assert!(sleep(&mut control) < SHORT);
    let begun = Instant::now();
    control.sleep(Some(Duration::from_millis(30))).unwrap();
    assert!(begun.elapsed() >= Duration::from_millis(30), "several wakeups have the effect of one");
}

#[test]
fn rings_and_sleeps_in_any_order_lose_none() {
    const WAKEUPS: u32 = 20_000;
    let mut control = Control::new(&ControlBudgets::default()).unwrap();
    let (wakeup, woken) = (control.wakeup(), std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0)));
    let counter = std::sync::Arc::clone(&woken);
    let ringer = thread::spawn(move || {
        for number in 1..=WAKEUPS {
            counter.store(number, std::sync::atomic::Ordering::Release);
            wakeup.wake();
        }
    });
    while woken.load(std::sync::atomic::Ordering::Acquire) < WAKEUPS {
        assert!(sleep(&mut control) < SHORT, "a wakeup was lost");
    }
    ringer.join().unwrap();
}

#[test]
fn what_is_watched_ends_sleeps_while_it_is_readable() {
    let mut control = Control::new(&ControlBudgets::default()).unwrap();
    let (mut reader, mut writer) = pipe().unwrap();
    control.watch(reader.as_fd()).unwrap();
    writer.write_all(b"x").unwrap();
    for _ in 0..2 {
        assert!(sleep(&mut control) < SHORT);
        assert_eq!(control.poll(Instant::now(), &mut |event| panic!("{event:?}")).unwrap(), 0);
    }
    std::io::Read::read_exact(&mut reader, &mut [0]).unwrap();
    control.sleep(Some(Duration::ZERO)).unwrap();
    control.poll(Instant::now(), &mut |event| panic!("{event:?}")).unwrap();
    writer.write_all(b"x").unwrap();
    control.unwatch(reader.as_fd()).unwrap();
    let begun = Instant::now();
    control.sleep(Some(Duration::from_millis(30))).unwrap();
    assert!(begun.elapsed() >= Duration::from_millis(30));
}

#[test]
fn a_connection_ends_a_sleep() {
    let ((mut caller, to), (mut called, from)) = pair();
    called.control.poll(Instant::now(), &mut |_| {}).unwrap();
    let peer = thread::spawn(move || {
        thread::sleep(Duration::from_millis(20));
        caller.control.send(to, &Frame::Goodbye).unwrap();
        caller.control.flush();
        caller
    });
    assert!(sleep(&mut called.control) < SHORT);
    called.poll();
    assert_eq!(called.frames(from), [&Frame::Goodbye]);
    peer.join().unwrap();
}
