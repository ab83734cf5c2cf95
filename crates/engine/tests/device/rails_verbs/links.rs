//! Opening and connecting links, and many of them.

use farreach::rails::verbs::{VerbsRail, VerbsSettings};
use farreach_rail::{LinkKey, Proof, Rail, Refusal};
use farreach_testkit::{does_long_tests, on_host_a, pattern};

use crate::rails_verbs::pair::{Pair, Side, own_rail, send, tell, write};

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_rail_says_what_it_is() {
    on_host_a(|| {
        let side = Side::open(&own_rail(), &VerbsSettings::default());
        let properties = side.rail.properties();
        assert_eq!(properties.name, own_rail().name());
        assert_eq!(properties.kind, "reliable connection, RoCE v2");
        assert!(properties.is_rdma && properties.limits.is_usable() && properties.limits.is_ordered);
        assert_eq!((properties.limits.targets, properties.window), (1, 128));
        assert_eq!(properties.writes_prove, Proof::Delivered);
        assert!(properties.rate_bps > 1_000_000, "{properties:?}");
        assert!(side.rail.wait_fd().is_some());
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn an_end_that_makes_no_sense_is_refused_and_the_right_one_connects_once() {
    on_host_a(|| {
        let mut pair = Pair::new();
        let (link, _) = pair.a.rail.open_link(farreach_rail::PeerKey(0)).unwrap();
        let (far, end) = pair.b.rail.open_link(farreach_rail::PeerKey(0)).unwrap();
        for wrong in [&b""[..], &end[..end.len() - 1], &[0xff; 64]] {
            let error = pair.a.rail.connect(link, wrong).unwrap_err();
            assert!(error.cause.contains("is not valid"), "{error}");
        }
        pair.a.link = link;
        let refused = pair.a.refused(tell(1));
        assert!(
            matches!(&refused.reason, Refusal::LinkDown(reason) if reason.cause.contains("not connected"))
        );
        pair.a.rail.connect(link, &end).unwrap();
        let error = pair.a.rail.connect(link, &end).unwrap_err();
        assert!(error.cause.contains("already"), "{error}");
        let error = pair.a.rail.connect(LinkKey(12345), &end).unwrap_err();
        assert!(error.cause.contains("closed"), "{error}");
        pair.a.rail.close_link(link);
        pair.b.rail.close_link(far);
        pair.finish();
    });
}

/// The first completion queue has room for one link, the next ones for two, four and eight.
#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn many_links_share_a_few_queues_and_each_knows_its_own() {
    on_host_a(|| {
        let count: u32 = if does_long_tests() { 60 } else { 12 };
        let settings = VerbsSettings { links_at_first: 1, window: 16, ..Default::default() };
        let mut pair = Pair::with(&settings);
        let granted = pair.b.granted(0, count as usize * 8);
        let links: Vec<_> = (0..count).map(|_| pair.link()).collect();
        for (number, (at_a, _)) in (0..count).zip(&links) {
            pair.a.link = *at_a;
            let slice = pair.a.filled(number as u8, 8);
            pair.a.post(number.into(), write(slice, granted.part(u64::from(number) * 8, 8)));
            pair.a.post(number.into(), tell(number));
        }
        let mut immediates: Vec<_> = (0..count).map(|_| pair.immediate()).collect();
        immediates.sort_by_key(|(_, number)| *number);
        for ((number, (_, at_b)), immediate) in (0..count).zip(&links).zip(immediates) {
            assert_eq!(immediate, (*at_b, number));
        }
        let mut done: Vec<_> = (0..2 * count).map(|_| pair.well_done()).collect();
        done.sort_by_key(|done| done.tag);
        for (place, done) in done.iter().enumerate() {
            assert_eq!(done.tag, place as u64 / 2, "each comes back once");
        }
        let expected: Vec<u8> = (0..count).flat_map(|number| pattern(number as u8, 8)).collect();
        assert_eq!(granted.bytes(), expected);

        // Every other link ends, without an effect on the others.
        for (at_a, at_b) in links.iter().step_by(2) {
            pair.a.rail.close_link(*at_a);
            pair.b.rail.close_link(*at_b);
        }
        for (at_a, at_b) in links.iter().skip(1).step_by(2) {
            pair.a.link = *at_a;
            let slice = pair.a.filled(1, 8);
            pair.a.post(1, send(slice));
            assert_eq!(pair.message(), (*at_b, pattern(1, 8)));
            pair.well_done();
        }
        pair.finish();
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_card_with_too_little_room_for_a_link_says_so_when_the_rail_is_opened() {
    on_host_a(|| {
        let opened = |settings: &VerbsSettings| VerbsRail::open(&own_rail(), settings).map(drop);
        let error = opened(&VerbsSettings { window: 1 << 20, ..Default::default() }).unwrap_err();
        assert!(error.cause.contains("completions"), "{error}");
        let error = opened(&VerbsSettings { receives: 1 << 28, ..Default::default() }).unwrap_err();
        assert!(error.cause.contains("max_wr"), "{error}");
        assert!(!error.fix.is_empty());
    });
}
