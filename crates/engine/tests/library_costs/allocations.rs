//! What allocates nothing: posts to a rail over libfabric and its polls; starts of a prepared transfer.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use farreach::{Buffer, Engine, PageMap, Rights, Settings, Shared, TransferList};
use farreach_memory::Buffers;
use farreach_rail::{Event, Extent, Rail, RemoteSegment, RemoteSegments, WorkRequest};
use farreach_sim::request::{Refused, Request, post};
use farreach_testkit::{CountingAllocator, allocations, allocations_of_all, in_own_process};

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

/// Starts a prepared write of so many pages again and again over the rail `shm`, eight at a time.
fn allocations_of_starts(segments: u64) -> u64 {
    const SOON: Duration = Duration::from_secs(20);
    // A heartbeat or a note of a socket would be counted.
    let settings = || Settings::new().rails(["shm"]).heartbeat(Duration::MAX);
    let [a, b] = [(); 2].map(|()| Engine::with(settings()).unwrap());
    let mut connecting = a.connect(b.listen("127.0.0.1:0").unwrap()).unwrap();
    let mut accepting = b.accept();
    let (a_to_b, b_to_a) = (connecting.wait(SOON).unwrap(), accepting.wait(SOON).unwrap());
    let len = (2 * segments * PAGE) as usize;
    let grant = b_to_a.grant(b.allocate(len).wait(SOON).unwrap(), Rights::WRITE).wait(SOON).unwrap();
    let remote = a_to_b.remote(grant.token()).wait(SOON).unwrap();
    let mut list = TransferList::new();
    let source = a.allocate(len).wait(SOON).unwrap().share();
    // Every second page, so that none are joined.
    let pages = || (0..segments as u32).map(|page| 2 * page);
    list.push_pages(source, &PageMap::of(PAGE).from(pages()).to(pages()), &remote);
    let prepared = a_to_b.prepare_write(list, None).wait(SOON).unwrap();
    let all = prepared.all().unwrap();
    let mut running = Vec::with_capacity(8);
    let mut run = |rounds: usize| {
        for _ in 0..rounds {
            running.extend((0..8).map(|_| prepared.start(&all)));
            for mut start in running.drain(..) {
                start.wait(SOON).unwrap();
            }
        }
    };
    // The first starts fill the pools. The first time that a thread parks fills others, and when that is
    // depends on the load of the machine.
    run(COUNT / 8);
    let counted = (0..3).map(|_| allocations_of_all(|| run(COUNT / 8))).min().unwrap_or(u64::MAX);
    drop(running);
    prepared.finish().wait(SOON).unwrap();
    counted
}

#[test]
#[ignore = "needs a process of its own: cargo xtask test runs it"]
fn a_thousand_starts_of_a_prepared_transfer_allocate_nothing() {
    in_own_process(&[], || {
        for segments in [1, 64, 4_096] {
            assert_eq!(allocations_of_starts(segments), 0, "{segments} segments");
        }
    });
}
