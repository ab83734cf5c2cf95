//! No order is assumed: over a layer that shuffles and delays, a receiver never reads a page before
//! it has arrived.
//!
//! The layer wraps the endpoint of a real provider. It takes the writes of the program's own plan,
//! delays each, posts them in another order, and returns completions in another one. Arrivals are
//! counted by the program's own code, too.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use farreach_fabric::{Event, ExposedRegion, Proof, RemoteRegion, TransmitRequest};
use rand_mt::Mt64;

use crate::arrivals::Arrivals;
use crate::message::{Fill, Region};
use crate::plan::{Order, PageWrite, Plan};
use crate::suite::pair::{A, B, Pair, Provider, copy, pattern, vouched};

const PAGE: u64 = 4096;
const PAGES: u32 = 16;
/// The number of requests in a run. Each is shuffled differently.
const ROUNDS: u32 = 40;

fn tcp() -> Provider {
    let node = || "127.0.0.1".to_owned();
    Provider {
        names: ["tcp;ofi_rxm", "tcp"],
        node: Some(node),
        has_atomics: false,
        has_descriptor: [true, true],
        delivers_unpolled: false,
        wrong_key_lands: [false; 2],
        drop_orders_step: 1,
        endpoints_max: 2,
    }
}

fn shm() -> Provider {
    Provider { names: ["shm", "shm"], node: None, ..tcp() }
}

/// Posts writes late and in another order, and reports them in another order.
struct Shuffler {
    random: Mt64,
    held: Vec<(Instant, TransmitRequest)>,
    done: Vec<u64>,
}

impl Shuffler {
    fn new(seed: u64) -> Self {
        Self { random: Mt64::new(seed), held: Vec::new(), done: Vec::new() }
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.random.next_u64() % bound as u64) as usize
    }

    /// Takes a write, for later.
    fn post(&mut self, request: TransmitRequest) {
        let delay = Duration::from_micros(self.random.next_u64() % 3000);
        let place = self.below(self.held.len() + 1);
        self.held.insert(place, (Instant::now() + delay, request));
    }

    /// Posts the writes that are due, and takes completions.
    fn progress(&mut self, pair: &mut Pair) {
        let now = Instant::now();
        let due: Vec<_> = self.held.extract_if(.., |(when, _)| *when <= now).collect();
        for (_, request) in due {
            pair.post(A, request);
        }
        let mut poller = pair[A].cq.poller();
        let events: Vec<_> = poller.poll().unwrap().collect();
        for event in events {
            let Event::Completed(completion) = event else { panic!("{event:?}") };
            assert_eq!(completion.outcome().as_ref().unwrap().proof, Proof::Sent);
            let place = self.below(self.done.len() + 1);
            self.done.insert(place, completion.tag());
        }
    }
}

/// Runs one request. Returns the number of pages that were wrong when the receiver considered them
/// arrived.
fn round(pair: &mut Pair, regions: &[ExposedRegion; 2], number: u32, order: Order) -> usize {
    let mut shuffler = Shuffler::new(u64::from(number));
    let pages: Vec<u32> = (0..PAGES).map(|page| page * 3 % 64).collect();
    let fill = Fill { number, seed: u64::from(number), page_size: PAGE, pages };
    let described = [&regions[0], &regions[1]].map(|region| {
        let remote = region.remote();
        Region { address: remote.address(), len: remote.len(), key: remote.key() }
    });
    let plan = Plan::new(&fill, &described, order).unwrap();
    for region in regions {
        region.bytes().write_at(0, &vec![0; region.bytes().len()]);
    }
    let remotes: [RemoteRegion; 2] = [vouched(regions[0].remote()), vouched(regions[1].remote())];
    let peer = pair[A].peer();
    for (index, write) in plan.writes.iter().enumerate() {
        let slice = pair[A].slice(&bytes(number, write));
        let request =
            TransmitRequest::write(slice, &peer, remotes[write.region].get(write.offset, PAGE).unwrap());
        let request = if write.is_told { request.immediate(u64::from(number)) } else { request };
        shuffler.post(request.tag(index as u64));
    }
    let mut arrivals = Arrivals::of(number);
    arrivals.accepted(number, plan.told);
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut told = VecDeque::new();
    while !arrivals.are_complete() {
        assert!(Instant::now() < deadline, "not complete in time: {arrivals:?}");
        shuffler.progress(pair);
        told.extend(pair[B].cq.poller().poll().unwrap().map(Event::into_owned));
        while let Some(event) = told.pop_front() {
            let Event::Written(written) = event else { panic!("{event:?}") };
            arrivals.written(written.immediate);
        }
    }
    let is_wrong = |write: &&PageWrite| {
        copy(&regions[write.region], write.offset as usize, PAGE as usize) != bytes(number, write)
    };
    let wrong = plan.writes.iter().filter(is_wrong).count();
    // The rest, so that the next round starts clean.
    while shuffler.done.len() < plan.writes.len() {
        assert!(Instant::now() < deadline, "{} of {} done", shuffler.done.len(), plan.writes.len());
        shuffler.progress(pair);
        pair[B].cq.poller().poll().unwrap().for_each(drop);
    }
    shuffler.done.sort_unstable();
    shuffler.done.dedup();
    assert_eq!(shuffler.done.len(), plan.writes.len(), "each write is done exactly once");
    wrong
}

fn bytes(number: u32, write: &PageWrite) -> Vec<u8> {
    pattern(u64::from(number) * 31 + write.source.start as u64 / PAGE + 1, PAGE as usize)
}

fn run(provider: &Provider, order: Order) -> usize {
    let mut pair = Pair::open(provider);
    let regions = [pair[B].expose(64 * PAGE as usize), pair[B].expose(64 * PAGE as usize)];
    (1..=ROUNDS).map(|number| round(&mut pair, &regions, number, order)).sum()
}

const UNORDERED: Order = Order { write_size_max: None };
const ORDERED: Order = Order { write_size_max: Some(usize::MAX) };

#[test]
#[ignore = "needs libfabric: cargo xtask test runs it"]
fn over_tcp_a_page_is_there_when_it_is_counted_whatever_the_order() {
    assert_eq!(run(&tcp(), UNORDERED), 0);
}

#[test]
#[ignore = "needs libfabric: cargo xtask test runs it"]
fn over_shm_a_page_is_there_when_it_is_counted_whatever_the_order() {
    assert_eq!(run(&shm(), UNORDERED), 0);
}

#[test]
#[ignore = "needs libfabric: cargo xtask test runs it"]
fn a_plan_that_trusts_an_order_that_is_not_there_is_caught() {
    let wrong = run(&tcp(), ORDERED);
    assert!(wrong > 0, "the shuffling layer would let a wrong plan pass");
}
