//! Posting and completing allocate nothing: all places of an endpoint's tables are allocated when
//! it is opened.

use std::time::{Duration, Instant};

use crate::pair::{A, B, Pair, Provider, vouched};
use farreach_fabric::{Event, ExposedRegion, TransmitRequest};
use farreach_memory::Slice;
use farreach_testkit::{CountingAllocator, allocations};

#[global_allocator]
static COUNTING: CountingAllocator = CountingAllocator;

const COUNT: usize = 1000;

/// Writes one slice again and again, to the same page of the other side.
struct Writer {
    pair: Pair,
    region: ExposedRegion,
    slice: Option<Slice>,
}

impl Writer {
    fn new(provider: &Provider) -> Self {
        let pair = Pair::open(provider);
        let (region, slice) = (pair[B].expose(4096), Some(pair[A].slice(&[7; 4096])));
        Self { pair, region, slice }
    }

    fn write(&mut self, count: usize) {
        let (pair, deadline) = (&self.pair, Instant::now() + Duration::from_secs(20));
        let (peer, place) = (pair[A].peer(), vouched(self.region.remote()));
        let mut done = 0;
        while done < count {
            if let Some(page) = self.slice.take() {
                let request = TransmitRequest::write(page, &peer, place);
                if let Err(refused) = pair[A].endpoint.post(request) {
                    self.slice = refused.request.into_buffers().into_slice().ok();
                }
            }
            for event in pair[A].cq.poller().poll().unwrap() {
                let Event::Completed(completion) = event else { panic!("{event:?}") };
                completion.outcome().as_ref().unwrap();
                self.slice = completion.into_buffers().into_slice().ok();
                done += 1;
            }
            pair[B].cq.poller().poll().unwrap().for_each(drop);
            assert!(Instant::now() < deadline, "{done} writes");
        }
    }
}

fn allocations_of_writes(provider: &Provider) -> u64 {
    let mut writer = Writer::new(provider);
    // The first ones connect, and fill caches.
    writer.write(COUNT);
    allocations(|| writer.write(COUNT))
}

const TCP: Provider = Provider {
    names: ["tcp;ofi_rxm", "tcp"],
    node: Some(|| "127.0.0.1".to_owned()),
    has_atomics: false,
    has_descriptor: [true, true],
    delivers_unpolled: false,
    wrong_key_lands: [false; 2],
    drop_orders_step: 1,
    endpoints_max: 2,
};

#[test]
#[ignore = "needs libfabric: cargo xtask test runs it"]
fn a_thousand_writes_allocate_nothing() {
    assert_eq!(allocations_of_writes(&TCP), 0);
    assert_eq!(allocations_of_writes(&Provider { names: ["shm", "shm"], node: None, ..TCP }), 0);
}
