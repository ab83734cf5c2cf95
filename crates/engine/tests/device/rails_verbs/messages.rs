//! Messages, and the receive buffers for them.

use farreach::rails::verbs::VerbsSettings;
use farreach_memory::Buffers;
use farreach_rail::{Rail, Refusal};
use farreach_testkit::{on_host_a, pattern};

use crate::rails_verbs::pair::{Pair, Side, own_rail, send, tell};

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn messages_go_both_ways_and_name_their_link() {
    on_host_a(|| {
        let mut pair = Pair::new();
        let (hello, answer) = (pair.a.filled(1, 100), pair.b.filled(2, 33));
        pair.a.post(1, send(hello));
        pair.b.post(2, send(answer));
        assert_eq!(pair.message(), (pair.b.link, pattern(1, 100)));
        let heard = pair.until("answer", |pair| pair.a.told.messages.pop_front());
        assert_eq!(heard, (pair.a.link, pattern(2, 33)));
        assert_eq!(pair.well_done().tag, 1);
        let sent = pair.until("end of the answer", |pair| pair.b.told.done.pop_front());
        assert_eq!((sent.tag, sent.outcome), (2, Ok(())));
        pair.finish();
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn the_longest_message_arrives_and_a_longer_one_is_refused() {
    on_host_a(|| {
        let mut pair = Pair::new();
        let longest = pair.a.rail.properties().message_max;
        let (slice, longer) = (pair.a.filled(1, longest), pair.a.filled(1, longest + 1));
        pair.a.post(1, send(slice));
        assert!(pair.message().1 == pattern(1, longest));
        pair.well_done();
        let refused = pair.a.refused(send(longer));
        assert!(matches!(&refused.reason, Refusal::Never(reason) if reason.cause.contains("4097 bytes")));
        pair.a.post(2, send(Buffers::None));
        assert_eq!(pair.message(), (pair.b.link, Vec::new()));
        pair.well_done();
        pair.finish();
    });
}

/// A message that is too long for the receiver would end the link.
#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn the_side_with_less_room_says_how_long_a_message_is() {
    on_host_a(|| {
        let (rail, small) = (own_rail(), VerbsSettings { message_max: 512, ..Default::default() });
        let (a, b) = (Side::open(&rail, &VerbsSettings::default()), Side::open(&rail, &small));
        let mut pair = Pair { a, b };
        (pair.a.link, pair.b.link) = pair.link();
        let (fits, long) = (pair.a.filled(1, 512), pair.a.filled(1, 513));
        assert!(matches!(pair.a.refused(send(long)).reason, Refusal::Never(_)));
        pair.a.post(1, send(fits));
        assert_eq!(pair.message().1, pattern(1, 512));
        pair.well_done();
        pair.finish();
    });
}

/// Polling posts receive buffers. A sender that finds none waits.
#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn more_messages_and_immediates_than_there_is_room_for_arrive_in_order() {
    on_host_a(|| {
        let mut pair = Pair::with(&VerbsSettings { receives: 4, ..Default::default() });
        for number in 0..100 {
            let slice = pair.a.filled(number, 64);
            let request = if number % 2 == 0 { send(slice) } else { tell(number.into()) };
            pair.a.post(number.into(), request);
        }
        // Side b does not poll yet.
        for _ in 0..1000 {
            pair.a.poll();
        }
        for number in 0..100 {
            match number % 2 {
                0 => assert_eq!(pair.message().1, pattern(number, 64), "message {number}"),
                _ => assert_eq!(pair.immediate().1, number.into()),
            }
        }
        for tag in 0..100 {
            assert_eq!(pair.well_done().tag, tag);
        }
        pair.finish();
    });
}
