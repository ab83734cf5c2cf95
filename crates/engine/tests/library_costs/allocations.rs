//! Posting to a rail over libfabric and polling it allocate nothing.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use farreach::{Buffer, Shared};
use farreach_memory::Buffers;
use farreach_rail::{Event, Extent, Rail, RemoteSegment, RemoteSegments, WorkRequest};
use farreach_sim::request::{Refused, Request, post};
use farreach_testkit::{CountingAllocator, allocations};

use crate::pair::{A, B, Granted, Pair, Place};

#[global_allocator]
static COUNTING: CountingAllocator = CountingAllocator;

const COUNT: usize = 1000;
const PAGE: u64 = 4096;
const PLACES: [Extent; 4] = [place(0), place(3), place(6), place(9)];

const fn place(page: u64) -> Extent {
    Extent { offset: page * PAGE, len: PAGE }
}

/// Writes lists of pages to pages of the other side, one list at a time, and uses the same list
/// again.
struct Writer {
    pair: Pair,
    granted: Granted,
    page: Shared,
    list: Option<Vec<Buffer>>,
}

impl Writer {
    fn new(place: &Place) -> Self {
        let mut pair = Pair::open(place);
        let granted = pair.expose(B, 16 * PAGE as usize);
        let page = pair.slice(A, &[7; PAGE as usize]).share();
        Self { pair, granted, page, list: Some(Vec::with_capacity(4)) }
    }

    /// Four pages to four places, one page to one place, or no page at all, in turn.
    fn request(&self, number: usize, mut list: Vec<Buffer>) -> Request<'static> {
        let (address, key) = (self.granted.key.address, self.granted.key.key);
        let (immediate, pages) = (Some(number as u32), [0, 1, PLACES.len()][number % 3]);
        list.extend((0..pages).map(|_| Buffer::from(self.page.clone())));
        let pieces = Buffers::List(list);
        match pages {
            0 | 1 => {
                let target = RemoteSegment { address, key, len: pages as u64 * PAGE };
                (WorkRequest::Write { target, immediate }, pieces)
            }
            _ => {
                let targets = RemoteSegments::new(address, key, &PLACES).unwrap();
                (WorkRequest::WriteScattered { targets, immediate }, pieces)
            }
        }
    }

    fn write(&mut self, count: usize) {
        let deadline = Instant::now() + Duration::from_secs(20);
        let (mut done, mut immediates) = (0, 0);
        let mut waiting = None;
        while done < count || immediates < count {
            if let Some(list) = self.list.take() {
                waiting = Some(self.request(done, list));
            }
            if let Some(request) = waiting.take().filter(|_| done < count) {
                let [source, _] = &mut self.pair.rails;
                if let Err(Refused { request, .. }) = post(source, self.pair.links[A], 1, request) {
                    waiting = Some(request);
                }
            }
            let [source, target] = &mut self.pair.rails;
            let list = &mut self.list;
            source
                .poll(&mut |event| {
                    let Event::Completed { buffers, outcome, .. } = event else { panic!("{event:?}") };
                    outcome.unwrap();
                    done += 1;
                    let mut buffers = buffers.into_list();
                    buffers.clear();
                    *list = Some(buffers);
                })
                .unwrap();
            target
                .poll(&mut |event| immediates += usize::from(matches!(event, Event::Immediate { .. })))
                .unwrap();
            assert!(Instant::now() < deadline, "{done} writes, {immediates} immediates");
        }
    }
}

fn allocations_of_writes(place: &Place) -> u64 {
    let mut writer = Writer::new(place);
    // The first writes connect, and fill the pools.
    writer.write(COUNT);
    allocations(|| writer.write(COUNT))
}

#[test]
#[ignore = "needs libfabric: cargo xtask test runs it"]
fn a_thousand_requests_allocate_nothing() {
    let tcp = Place {
        name: "tcp",
        bind: Some(|| Ipv4Addr::LOCALHOST.into()),
        has_atomics: [true, false],
        is_rdma: false,
        has_descriptor: [true, true],
    };
    assert_eq!(allocations_of_writes(&tcp), 0);
}
