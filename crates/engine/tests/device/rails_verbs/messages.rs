//! Messages, and the receive buffers for them.

use farreach::rails::verbs::VerbsSettings;
use farreach_rail::Refusal;
use farreach_testkit::{on_host_a, pattern};

use crate::rails_verbs::pair::{Pair, Side, own_rail, send, tell};

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
