//! A sender and a receiver over links that delay, reorder, refuse and fail, driven by a seed. Every
//! page arrives, is counted once, and never before its bytes are there.

use std::collections::VecDeque;

use farreach_proto::counter::{CounterId, Counters, LinkId};
use farreach_proto::outbox::{LinkSettings, Outbox, Posted};
use farreach_proto::plan::{Limits, Pages, Plan};
use farreach_proto::priority::Priority;
use farreach_proto::rail::Scope;
use farreach_proto::wire::Frame;

/// SplitMix64: a seed gives the same history on every machine.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// Returns `true` once in `times` on average.
    fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }
}

struct Link {
    id: LinkId,
    is_ordered: bool,
    is_alive: bool,
    sent: VecDeque<Posted>,
    /// Landed, and not completed at the sender yet.
    landed: Vec<Posted>,
}

fn link(chance: &mut Chance, index: u64, page_len: usize) -> (Link, LinkSettings) {
    let (id, is_ordered) = (LinkId(index), chance.once_in(2));
    let limits = Limits {
        // Links split pages that are longer.
        bytes: match chance.once_in(2) {
            true => (page_len + chance.below(3 * page_len)) as u64,
            false => 1 + chance.below(page_len) as u64,
        },
        pieces: 1 + chance.below(4),
        targets: 1 + chance.below(2),
        pages: 1 + chance.below(5) as u32,
        is_ordered,
    };
    let (window, weight) = (1 + chance.below(6) as u32, 1 + chance.below(5) as u32);
    let link = Link { id, is_ordered, is_alive: true, sent: VecDeque::new(), landed: Vec::new() };
    (link, LinkSettings { id, limits, window, weight, scope: Scope::Network })
}

struct World {
    seed: u64,
    chance: Chance,
    page_len: usize,
    source: Vec<u8>,
    memory: Vec<u8>,
    expected: Vec<u8>,
    places: Vec<usize>,
    links: Vec<Link>,
    outbox: Outbox,
    counters: Counters,
    counter: CounterId,
    to_receiver: VecDeque<Frame>,
    to_sender: VecDeque<Frame>,
    next_link: u64,
    losses: usize,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut chance = Chance(seed);
        let (page_len, pages) = (1 + chance.below(40), 1 + chance.below(60));
        let link_count = 1 + chance.below(3);
        let mut to: Vec<u32> = (0..pages as u32 * 2).collect();
        for index in (1..to.len()).rev() {
            to.swap(index, chance.below(index + 1));
        }
        // Sometimes in order, so that adjacent pages are joined.
        if chance.once_in(2) {
            to.sort_unstable();
        }
        to.truncate(pages);
        let from: Vec<u32> = (0..pages as u32).collect();
        let len = pages * 2 * page_len;
        let source: Vec<u8> = (0..len).map(|_| chance.next() as u8 | 1).collect();
        let mut expected = vec![0; len];
        let mut places = Vec::new();
        for (from, to) in from.iter().zip(&to) {
            let (from, to) = (*from as usize * page_len, *to as usize * page_len);
            expected[to..to + page_len].copy_from_slice(&source[from..from + page_len]);
            places.push(to);
        }
        let (links, settings): (Vec<_>, Vec<_>) =
            (0..link_count).map(|index| link(&mut chance, index as u64, page_len)).unzip();
        let mut counters = Counters::new();
        let counter = counters.open().unwrap();
        let mut outbox = Outbox::new(settings);
        let stride = page_len as u64;
        let plan = Plan::new(
            stride,
            (Pages { indices: from.into(), stride, offset: 0 }, len as u64),
            (Pages { indices: to.into(), stride, offset: 0 }, len as u64),
        );
        outbox.submit(plan.unwrap(), Some(counter), Scope::Network, Priority::Normal);
        Self {
            seed,
            chance,
            page_len,
            source,
            memory: vec![0; len],
            expected,
            places,
            next_link: links.len() as u64,
            links,
            outbox,
            counters,
            counter,
            to_receiver: VecDeque::new(),
            to_sender: VecDeque::new(),
            losses: 0,
        }
    }

    fn run(mut self) -> usize {
        for step in 0.. {
            assert!(step < 200_000, "seed {}: it does not end", self.seed);
            if self.outbox.is_idle() && self.to_receiver.is_empty() {
                break;
            }
            self.step();
            self.check();
        }
        let pages = self.places.len() as u64;
        assert_eq!(self.counters.reached(self.counter), Some(pages), "seed {}: counted", self.seed);
        assert_eq!(self.memory, self.expected, "seed {}: the bytes", self.seed);
        assert_eq!(self.outbox.in_flight(), 0, "seed {}: slots", self.seed);
        assert!(
            self.outbox.finished().is_some() && self.outbox.finished().is_none(),
            "seed {}: done once",
            self.seed
        );
        self.losses
    }

    fn step(&mut self) {
        let link = self.chance.below(self.links.len());
        match self.chance.below(12) {
            0..=3 => self.post(),
            4..=6 => self.land(link),
            7..=8 => self.tell(link),
            9 => self.control(),
            10 if self.links[link].is_alive && self.losses < 6 && self.chance.once_in(8) => self.lose(link),
            10 => {}
            _ if !self.links[link].is_alive => self.restore(link),
            _ => {}
        }
    }

    fn post(&mut self) {
        let Some(post) = self.outbox.next_post() else { return };
        assert!(self.links[post.link()].is_alive, "seed {}: a dead link", self.seed);
        if self.chance.once_in(5) {
            self.outbox.refuse(post);
            return;
        }
        self.links[post.link()].sent.push_back(post);
    }

    /// Lets the bytes of one operation arrive, with its immediate.
    fn land(&mut self, link: usize) {
        let count = self.links[link].sent.len();
        if count == 0 {
            return;
        }
        let place = if self.links[link].is_ordered { 0 } else { self.chance.below(count) };
        let sent = self.links[link].sent.remove(place).expect("the place is within the queue");
        let bytes: Vec<u8> = sent
            .operation()
            .pieces
            .iter()
            .flat_map(|piece| {
                self.source[piece.offset as usize..(piece.offset + piece.len) as usize].to_vec()
            })
            .collect();
        let mut rest = &bytes[..];
        for target in &sent.operation().targets {
            let (now, later) = rest.split_at(target.len as usize);
            self.memory[target.offset as usize..(target.offset + target.len) as usize].copy_from_slice(now);
            rest = later;
        }
        if let Some(immediate) = sent.immediate() {
            self.counters.arrive(self.links[link].id, immediate);
        }
        self.links[link].landed.push(sent);
    }

    /// Completes an operation at the sender.
    fn tell(&mut self, link: usize) {
        let count = self.links[link].landed.len();
        if count > 0 {
            let place = self.chance.below(count);
            let posted = self.links[link].landed.swap_remove(place);
            let frames = self.outbox.complete(posted);
            self.to_receiver.extend(frames);
        }
    }

    fn control(&mut self) {
        match self.to_receiver.pop_front() {
            Some(Frame::Settle { link, counter }) => {
                let pages = self.counters.settle(link, counter).expect("the counter is open");
                self.counters.permit_add(counter, self.losses as u64);
                self.to_sender.push_back(Frame::Settled { link, counter, pages });
            }
            Some(Frame::Add { counter, pages }) => {
                self.counters.add(counter, pages).expect("the counter is open");
            }
            Some(other) => panic!("seed {}: {other:?}", self.seed),
            None => {}
        }
        if let Some(Frame::Settled { link, counter, pages }) = self.to_sender.pop_front() {
            let frames = self.outbox.settled(link, counter, pages);
            self.to_receiver.extend(frames);
        }
    }

    /// Lets some operations in flight arrive without a completion at the sender.
    fn lose(&mut self, link: usize) {
        self.losses += 1;
        for _ in 0..self.chance.below(4) {
            self.land(link);
        }
        let lost = &mut self.links[link];
        let under_way: Vec<Posted> = lost.sent.drain(..).chain(lost.landed.drain(..)).collect();
        lost.is_alive = false;
        let frames = self.outbox.lose(link, under_way);
        self.to_receiver.extend(frames);
    }

    fn restore(&mut self, link: usize) {
        let id = LinkId(self.next_link);
        self.next_link += 1;
        (self.links[link].is_alive, self.links[link].id) = (true, id);
        self.outbox.restore(link, id);
    }

    /// Checks that no more pages are counted than have arrived.
    fn check(&self) {
        let there = self.places.iter().filter(|place| {
            let range = **place..**place + self.page_len;
            self.memory[range.clone()] == self.expected[range]
        });
        let (there, counted) =
            (there.count() as u64, self.counters.reached(self.counter).expect("the counter is open"));
        assert!(counted <= there, "seed {}: {counted} counted, {there} there", self.seed);
    }
}

#[test]
fn every_page_arrives_and_is_counted_once_whatever_link_is_lost() {
    let losses: usize = (0..3000).map(|seed| World::new(seed).run()).sum();
    assert!(losses > 1000, "links were lost {losses} times");
}

/// Bytes that were in flight on a lost link may land until the receiver has stopped them, and would
/// overwrite later writes.
#[test]
fn what_nobody_counts_is_done_only_when_the_receiver_has_stopped_the_lost_link() {
    let link = |id| {
        let limits = Limits { bytes: 8, pieces: 1, targets: 1, pages: 1, is_ordered: false };
        LinkSettings { id: LinkId(id), limits, window: 1, weight: 1, scope: Scope::Network }
    };
    let mut outbox = Outbox::new(vec![link(1), link(2)]);
    let pages = || (Pages { indices: [0].into(), stride: 8, offset: 0 }, 8);
    let transfer =
        outbox.submit(Plan::new(8, pages(), pages()).unwrap(), None, Scope::Network, Priority::Normal);
    let first = outbox.next_post().unwrap();
    let link = first.link();
    let asked = outbox.lose(link, [first]);
    let first = LinkId(1 + link as u64);
    assert_eq!(asked, [Frame::Settle { link: first, counter: CounterId::NONE }]);
    let again = outbox.next_post().unwrap();
    let link = again.link();
    assert_ne!(LinkId(1 + link as u64), first);
    // The second link is lost as well, while the page is resent.
    let asked = outbox.lose(link, [again]);
    let next = LinkId(1 + link as u64);
    assert_eq!(asked, [Frame::Settle { link: next, counter: CounterId::NONE }]);
    outbox.restore(0, LinkId(3));
    let last = outbox.next_post().unwrap();
    assert_eq!(outbox.complete(last), []);
    for link in [first, next] {
        assert_eq!(outbox.finished(), None, "its bytes may land yet");
        assert_eq!(outbox.settled(link, CounterId::NONE, 0), []);
    }
    assert_eq!(outbox.finished().map(|it| (it.transfer, it.is_whole)), Some((transfer, true)));
    assert!(outbox.is_idle());
}

#[test]
fn operations_that_are_done_are_not_kept_without_bound() {
    let limits = Limits { bytes: 64, pieces: 1, targets: 1, pages: 1, is_ordered: true };
    let link = |id| LinkSettings { id: LinkId(id), limits, window: 2, weight: 1, scope: Scope::Network };
    let mut outbox = Outbox::new(vec![link(0), link(1)]);
    let counter = Counters::new().open().unwrap();
    let pages = || (Pages { indices: [0, 2].into(), stride: 64, offset: 0 }, 256);
    let (mut notifications, mut early) = (0, 0);
    for transfer in 0..10_000 {
        outbox.submit(
            Plan::new(64, pages(), pages()).unwrap(),
            Some(counter),
            Scope::Network,
            Priority::Normal,
        );
        while let Some(posted) = outbox.next_post() {
            notifications += usize::from(posted.operation().bytes == 0);
            assert!(outbox.complete(posted).is_empty());
        }
        assert!(outbox.finished().is_some_and(|finished| finished.is_whole));
        if transfer == 100 {
            early = outbox.memory();
        }
    }
    assert!(notifications > 1000, "pages go over both links: {notifications}");
    assert_eq!(outbox.memory(), early);
}
