//! Messages.

use std::thread;
use std::time::Duration;

use farreach::ErrorKind;

use super::pair::{Pair, RailUnderTest, SOON};

pub(crate) fn messages_arrive_in_order_each_once(provider: &RailUnderTest) {
    let pair = Pair::new(provider);
    let sender = pair.a_to_b.clone();
    let sending = thread::spawn(move || {
        for number in 0..500_u32 {
            sender.send(number.to_le_bytes()).wait(SOON).unwrap();
        }
    });
    for number in 0..500_u32 {
        assert_eq!(pair.b_to_a.recv().wait(SOON).unwrap(), number.to_le_bytes());
    }
    sending.join().unwrap();
    // The other direction, one at a time.
    for number in 0..100_u32 {
        pair.b_to_a.send(number.to_le_bytes()).wait(SOON).unwrap();
        assert_eq!(pair.a_to_b.recv().wait(SOON).unwrap(), number.to_le_bytes());
    }
    let nothing = pair.b_to_a.recv().wait(Duration::from_millis(50));
    assert_eq!(nothing.unwrap_err().kind(), ErrorKind::TimedOut);
}

pub(crate) fn an_empty_one_and_the_longest_arrive_and_a_longer_one_is_refused(provider: &RailUnderTest) {
    let pair = Pair::new(provider);
    for len in [0, 1, 7, 4096] {
        let message = vec![len as u8; len];
        pair.a_to_b.send(message.clone()).wait(SOON).unwrap();
        assert_eq!(pair.b_to_a.recv().wait(SOON).unwrap(), message);
    }
    let refused = pair.a_to_b.send(vec![0; 4097]).wait(SOON);
    let refused = refused.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Argument);
    assert_eq!(refused.to_string(), "a message of 4097 bytes exceeds the maximum of 4096 bytes");
}

pub(crate) fn a_sender_waits_for_one_who_does_not_take_them(provider: &RailUnderTest) {
    let pair = Pair::new(provider);
    let room = 64_u32;
    for number in 0..room {
        pair.a_to_b.send(number.to_le_bytes()).wait(SOON).unwrap();
    }
    let waits = pair.a_to_b.send(room.to_le_bytes()).wait(Duration::from_millis(200));
    assert_eq!(waits.unwrap_err().kind(), ErrorKind::TimedOut);
    // All of them arrive, including the one that had no room at first.
    for number in 0..=room {
        assert_eq!(pair.b_to_a.recv().wait(SOON).unwrap(), number.to_le_bytes());
    }
}
