//! Posting and completing allocate nothing: all places of an endpoint's tables are there from the beginning.

#[allow(dead_code)] // the suite uses all of it
#[path = "suite/pair.rs"]
mod pair;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::{Duration, Instant};

use farreach_fabric::{Event, TransmitRequest};
use pair::{A, B, Pair, Provider, vouched};

/// Counts what this thread allocates. libfabric's own memory does not come this way.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: the system's allocator does everything; a number is counted beside it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: passed on to the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) };
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const COUNT: usize = 1000;

/// Writes a page so often, from one slice that goes out and comes home; how many allocations that took.
fn allocations(provider: &Provider) -> usize {
    let pair = Pair::open(provider);
    let region = pair[B].expose(4096);
    let (peer, place) = (pair[A].peer(), vouched(region.remote()));
    let mut slice = Some(pair[A].slice(&[7; 4096]));
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut done = 0;
    let mut before = 0;
    while done < 2 * COUNT {
        // The first half connects, and fills what is kept for later.
        if done == COUNT {
            before = ALLOCATIONS.get();
        }
        if let Some(page) = slice.take() {
            let request = TransmitRequest::write(page, &peer, place);
            if let Err(refused) = pair[A].endpoint.post(request) {
                slice = refused.request.into_buffers().into_slice().ok();
            }
        }
        for event in pair[A].cq.poller().poll().unwrap() {
            let Event::Completed(completion) = event else { panic!("{event:?}") };
            completion.outcome().as_ref().unwrap();
            slice = completion.into_buffers().into_slice().ok();
            done += 1;
        }
        pair[B].cq.poller().poll().unwrap().for_each(drop);
        assert!(Instant::now() < deadline, "{done} writes");
    }
    ALLOCATIONS.get() - before
}

const TCP: Provider = Provider {
    names: ["tcp;ofi_rxm", "tcp"],
    node: Some(|| "127.0.0.1".to_owned()),
    has_atomics: false,
    has_descriptor: true,
    delivers_unpolled: false,
    wrong_key_lands: [false; 2],
    drop_orders_step: 1,
    endpoints_max: 2,
};

#[test]
#[ignore = "needs libfabric: cargo xtask test runs it"]
fn a_thousand_writes_allocate_nothing() {
    assert_eq!(allocations(&TCP), 0);
    assert_eq!(allocations(&Provider { names: ["shm", "shm"], node: None, ..TCP }), 0);
}
