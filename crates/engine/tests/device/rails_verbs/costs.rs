//! The cost of a request besides the card's work: allocations.

use farreach::Slice;
use farreach::rails::verbs::VerbsSettings;
use farreach_memory::Buffers;
use farreach_rail::{Event, Rail, Refusal, WorkRequest};
use farreach_sim::request::post;
use farreach_testkit::{CountingAllocator, allocations, on_host_a};

use crate::rails_verbs::pair::{Granted, Pair, Side};

#[global_allocator]
static COUNTING: CountingAllocator = CountingAllocator;

const WINDOW: usize = 30;
const ROUNDS: usize = 30;

/// Buffers that are used again: a third for messages, a third for writes, a third for writes with
/// an immediate.
struct Round {
    free: Vec<Slice>,
    done: usize,
    arrived: usize,
}

impl Round {
    fn post(&mut self, a: &mut Side, granted: &Granted) {
        for (tag, slice) in self.free.drain(..).enumerate() {
            let (pieces, target) = (Buffers::from(slice), granted.part(0, 64));
            let request = match tag % 3 {
                0 => (WorkRequest::Send, pieces),
                1 => (WorkRequest::Write { target, immediate: None }, pieces),
                _ => (WorkRequest::Write { target, immediate: Some(7) }, pieces),
            };
            post(&mut a.rail, a.link, tag as u64, request).expect("there is room");
        }
    }

    fn complete(&mut self, pair: &mut Pair) {
        let arrived = self.arrived + WINDOW / 3 * 2;
        while self.free.len() < WINDOW || self.arrived < arrived {
            let (free, done) = (&mut self.free, &mut self.done);
            let told = pair.a.rail.poll(&mut |event| match event {
                Event::Completed { buffers, outcome: Ok(()), .. } => {
                    free.push(buffers.into_slice().expect("one slice"));
                    *done += 1;
                }
                other => panic!("{other:?}"),
            });
            told.expect("polling");
            let arrived = &mut self.arrived;
            let told = pair.b.rail.poll(&mut |event| match event {
                Event::Message { bytes, .. } if bytes.len() == 64 => *arrived += 1,
                Event::Immediate { bits: 7, .. } => *arrived += 1,
                other => panic!("{other:?}"),
            });
            told.expect("polling");
        }
    }
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_full_link_hands_back_without_an_allocation() {
    on_host_a(|| {
        let mut pair = Pair::with(&VerbsSettings { window: 1, ..Default::default() });
        let (first, second) = (pair.a.filled(1, 64), pair.a.filled(2, 64));
        pair.a.post(1, (WorkRequest::Send, first.into()));
        let mut request = Some((WorkRequest::Send, second.into()));
        let counted = allocations(|| {
            for _ in 0..100 {
                let refused = post(&mut pair.a.rail, pair.a.link, 2, request.take().unwrap()).unwrap_err();
                assert!(matches!(refused.reason, Refusal::Full));
                request = Some(refused.request);
            }
        });
        assert_eq!(counted, 0);
        pair.message();
        pair.well_done();
        pair.finish();
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn requests_and_what_they_bring_about_allocate_nothing() {
    on_host_a(|| {
        let mut pair = Pair::new();
        let granted = pair.b.granted(0, 64);
        let mut whole = pair.a.filled(1, WINDOW * 64);
        let free = (0..WINDOW).map(|_| whole.split_to(64)).collect();
        let mut round = Round { free, done: 0, arrived: 0 };
        // In the first round, the pollers learn the links.
        round.post(&mut pair.a, &granted);
        round.complete(&mut pair);
        let counted = allocations(|| {
            for _ in 0..ROUNDS {
                round.post(&mut pair.a, &granted);
                round.complete(&mut pair);
            }
        });
        assert_eq!(round.done, WINDOW * (ROUNDS + 1));
        assert_eq!(counted, 0);
        pair.finish();
    });
}
