//! Runs a machine and its carrier over a rail that completes everything at once, so that the
//! instructions of an operation can be counted: `cargo xtask bench growth`.
//!
//! `growth KIND COUNT OPERATIONS`: one machine with COUNT of something, and so many operations. The
//! peers are frames that this program writes itself.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a program for developers")]
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use farreach_memory::{Buffers, Exposed, Memory, Shared};
use farreach_proto::counter::LinkId;
use farreach_proto::ids::GrantId;
use farreach_proto::machine::{
    Budgets, Direction, Event as Answer, GrantRange, Machine, NewTransfer, OpId, Output, PeerKey, Regions,
    Tuning,
};
use farreach_proto::plan::{Limits, Pages, Plan, Side};
use farreach_proto::priority::Priority;
use farreach_proto::rights::Rights;
use farreach_proto::segments::{Segment, Segments};
use farreach_proto::time::Time;
use farreach_proto::wire::{Frame, GrantOffer, Hello, LinkOffer};
use farreach_rail::{
    Carrier, EndedKeys, Event, Held, Key, KeyId, LinkKey, Proof, Properties, Rail, RailError, Refusal,
    RevokeAnswer, Scope, WorkRequest,
};

const MS: u64 = 1_000_000;

/// The time that an operation takes, in nanoseconds.
const STEP: u64 = 10_000;

/// The bytes of a page.
const PAGE: u64 = 64;

/// The bytes of this side's memory, and of the memory that a peer grants.
const MEMORY: u64 = 1 << 20;
const GRANT: u64 = 1 << 30;

/// A rail whose work requests complete with the next poll, except for the last `kept` ones.
#[derive(Debug)]
struct NullRail {
    properties: Properties,
    links: u64,
    keys: u64,
    posted: VecDeque<(u64, Buffers)>,
    kept: usize,
    /// So that it counts as one that wakes its driver.
    fd: File,
}

impl Rail for NullRail {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn open_link(&mut self, _peer: PeerKey) -> Result<(LinkKey, Vec<u8>), RailError> {
        self.links += 1;
        Ok((LinkKey(self.links), Vec::new()))
    }

    fn connect(&mut self, _link: LinkKey, _peer_end: &[u8]) -> Result<(), RailError> {
        Ok(())
    }

    fn close_link(&mut self, _link: LinkKey) {}

    fn reset(&mut self) -> Result<(), RailError> {
        Ok(())
    }

    fn register(&mut self, _memory: &Memory) -> Result<(), RailError> {
        Ok(())
    }

    fn make_key(
        &mut self,
        _peer: PeerKey,
        _memory: &Arc<Exposed>,
        _rights: Rights,
    ) -> Result<Key, RailError> {
        self.keys += 1;
        Ok(Key { id: KeyId(self.keys), address: 0, key: self.keys })
    }

    fn end_key(&mut self, _key: KeyId) -> Result<(), RailError> {
        Ok(())
    }

    fn post(
        &mut self,
        _link: LinkKey,
        tag: u64,
        _request: WorkRequest<'_>,
        buffers: Buffers,
    ) -> Result<(), (Refusal, Buffers)> {
        self.posted.push_back((tag, buffers));
        Ok(())
    }

    fn poll(&mut self, sink: &mut dyn FnMut(Event<'_>)) -> Result<usize, RailError> {
        let count = self.posted.len().saturating_sub(self.kept).min(64);
        for (tag, buffers) in self.posted.drain(..count) {
            sink(Event::Completed { tag, buffers, outcome: Ok(()) });
        }
        Ok(count)
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.fd.as_fd())
    }

    fn may_sleep(&mut self) -> Result<bool, RailError> {
        Ok(self.posted.is_empty())
    }

    fn in_flight(&self) -> usize {
        self.posted.len()
    }
}

fn properties(window: u32) -> Properties {
    Properties {
        name: "null".to_owned(),
        native: "null".to_owned(),
        kind: "null".to_owned(),
        scope: Scope::Network,
        is_rdma: false,
        limits: Limits { bytes: 1 << 30, pieces: 4, targets: 1, pages: 1024, is_ordered: true },
        window,
        message_max: 8192,
        performs_max: 0,
        has_atomics: true,
        writes_prove: Proof::Delivered,
        immediates_name_link: true,
        links_end_alone: true,
        ended_keys: EndedKeys::StopAll,
        keys_are_bound: false,
        rate_bps: 1_000_000_000,
    }
}

/// A machine with its carrier, and the time.
struct Host {
    machine: Machine,
    carrier: Carrier,
    memory: Shared,
    now: u64,
    operations: u64,
    done: u64,
    offered: Option<LinkId>,
    revoked: Option<Exposed>,
}

impl Host {
    fn new(in_flight: usize) -> Self {
        let kept = in_flight.saturating_sub(1);
        let properties = properties(in_flight as u32 + 64);
        let rail = NullRail {
            properties,
            links: 0,
            keys: 0,
            posted: VecDeque::new(),
            kept,
            fd: File::open("/dev/null").unwrap(),
        };
        let carrier = Carrier::new(vec![Box::new(rail)], 4096).unwrap();
        let tuning = Tuning {
            heartbeat: 500 * MS,
            idle_heartbeat: 10_000 * MS,
            silence: 3_600_000 * MS,
            stall: 3_600_000 * MS,
            drain: 500 * MS,
            cool_down: 100 * MS,
            messages: 16,
            message_max: 4096,
            budgets: Budgets { rails: 8, grants: 1 << 20, counters: 1 << 20, resets: 8 },
        };
        let machine = Machine::new(carrier.infos(), Hello::new(1), tuning, [7; 32]);
        let memory = Memory::allocate(MEMORY as usize).unwrap().share();
        Self { machine, carrier, memory, now: 0, operations: 0, done: 0, offered: None, revoked: None }
    }

    /// Adds a peer with a link, which has granted this side so much memory.
    fn peer(&mut self, grants: u64) -> PeerKey {
        let key = self.machine.add_peer(true, Time::from_nanos(self.now));
        let mut hello = Hello::new(2);
        (hello.rails, hello.messages) = (vec!["null".to_owned()], 16);
        (hello.grants, hello.counters) = (1 << 20, 1 << 20);
        self.machine.handle_frame(key, Frame::Hello(hello), Time::from_nanos(self.now));
        // Links are opened in turn, with steps between.
        let link = loop {
            self.step();
            if let Some(link) = self.offered.take() {
                break link;
            }
        };
        let answer = LinkOffer { link, from: 0, to: 0, address: Vec::new() };
        self.machine.handle_frame(key, Frame::Link(answer), Time::from_nanos(self.now));
        self.step();
        let ready = Frame::LinkReady { link, mark: 9, needs_names: false, binds_keys: false };
        self.machine.handle_frame(key, ready, Time::from_nanos(self.now));
        for number in 0..grants {
            let offer = GrantOffer {
                grant: GrantId::from_raw(number),
                len: GRANT,
                rights: 7,
                scope: Scope::Network,
                keys: vec![Some((0, number))],
            };
            self.machine.handle_frame(key, Frame::Grant(offer), Time::from_nanos(self.now));
        }
        self.step();
        key
    }

    fn step(&mut self) {
        self.now += STEP;
        self.carrier.step(&mut self.machine, Time::from_nanos(self.now));
        while let Some(output) = self.machine.poll_output() {
            if let Output::Frame(_, Frame::Link(offer)) = output {
                self.offered = Some(offer.link);
            }
        }
        while let Some(answer) = self.machine.poll_event() {
            if let Answer::Transfer(op, end) = answer {
                let ended = self.carrier.transfer_ended(op, end);
                ended.outcome.expect("it succeeds");
                self.done += 1;
            } else if let Answer::Revoked(op, revoked) = answer {
                match self.carrier.revoked(op, revoked) {
                    RevokeAnswer::Back(memory) => self.revoked = Some(memory),
                    RevokeAnswer::NotYet(why) => panic!("it is not back: {why}"),
                }
            }
        }
    }

    /// Runs until no more than so many transfers are in flight.
    fn finish(&mut self, in_flight: usize) {
        while self.operations - self.done > in_flight as u64 {
            self.step();
        }
    }

    /// Writes pages to a grant of a peer.
    fn write(&mut self, peer: PeerKey, grant: u64, pages: u64) {
        self.operations += 1;
        let op = OpId(self.operations);
        // No two pages are neighbours, so none are joined.
        let of = |indices, len| (Pages { indices, stride: PAGE, offset: 0 }, len);
        let source = (0..pages as u32).map(|page| 2 * (page % 4096)).collect();
        let destination = (0..pages as u32).map(|page| 2 * page).collect();
        let plan = Plan::new(PAGE, of(source, MEMORY), of(destination, GRANT)).unwrap();
        self.carrier.hold(op, Held::Shared(self.memory.get(..).expect("all of it")));
        let range = GrantRange { grant: GrantId::from_raw(grant), base: 0, len: GRANT };
        self.submit(op, peer, plan, range.into());
    }

    /// Writes segments of different lengths to so many grants of a peer, each of which is one region.
    fn write_segments(&mut self, peer: PeerKey, grants: u64, segments: u64) {
        self.operations += 1;
        let op = OpId(self.operations);
        let segment = |number: u64| Segment {
            own: 2 * PAGE * (number % 4096),
            remote: 2 * PAGE * number,
            len: PAGE - number % 8,
            region: (number * grants / segments) as u32,
        };
        let list: Vec<Segment> = (0..segments).map(segment).collect();
        let lens = vec![GRANT; grants as usize];
        let plan = Plan::of_segments(Segments::new(list, &lens, Side::Source).unwrap());
        self.carrier.hold(op, Held::Shared(self.memory.get(..).expect("all of it")));
        let ranges: Vec<_> = (0..grants)
            .map(|grant| GrantRange { grant: GrantId::from_raw(grant), base: 0, len: GRANT })
            .collect();
        self.submit(op, peer, plan, Regions::List(ranges.into()));
    }

    fn submit(&mut self, op: OpId, peer: PeerKey, plan: Plan, regions: Regions) {
        let (direction, priority, deadline) = (Direction::Write, Priority::Normal, None);
        let new = NewTransfer { op, peer, direction, plan, regions, counter: None, priority, deadline };
        self.machine.submit(new, Time::from_nanos(self.now)).expect("it is begun");
    }
}

/// Writes to so many peers in turn.
fn peers(count: u64, operations: u64) {
    let mut host = Host::new(1);
    let peers: Vec<PeerKey> = (0..count).map(|_| host.peer(1)).collect();
    for operation in 0..operations {
        host.write(peers[(operation % count) as usize], 0, 1);
        host.finish(0);
    }
}

/// Writes with so many writes in flight.
fn in_flight(count: u64, operations: u64) {
    let mut host = Host::new(count as usize);
    let peer = host.peer(1);
    for _ in 0..count + operations {
        host.write(peer, 0, 1);
        host.finish(count as usize - 1);
    }
}

/// Writes pages of transfers that have so many.
fn pages(count: u64, operations: u64) {
    let mut host = Host::new(1);
    let peer = host.peer(1);
    for _ in 0..operations.div_ceil(count) {
        host.write(peer, 0, count);
        host.finish(0);
    }
}

/// Writes segments of transfers that have so many.
fn segments(count: u64, operations: u64) {
    let mut host = Host::new(1);
    let peer = host.peer(1);
    for _ in 0..operations.div_ceil(count) {
        host.write_segments(peer, 1, count);
        host.finish(0);
    }
}

/// Writes segments of transfers to so many grants, one for each.
fn regions(count: u64, operations: u64) {
    let mut host = Host::new(1);
    let peer = host.peer(count);
    for _ in 0..operations.div_ceil(count) {
        host.write_segments(peer, count, count);
        host.finish(0);
    }
}

/// Writes to one of so many grants of a peer.
fn granted(count: u64, operations: u64) {
    let mut host = Host::new(1);
    let peer = host.peer(count);
    for operation in 0..operations {
        host.write(peer, operation * 7919 % count, 1);
        host.finish(0);
    }
}

/// Grants memory and revokes it, while so much is granted already.
fn grants(count: u64, operations: u64) {
    let mut host = Host::new(1);
    let peer = host.peer(0);
    let mut memory = Memory::allocate(8 * (count as usize + 1)).unwrap();
    for _ in 0..count {
        let part = memory.split_to(8).expose();
        let now = host.now;
        host.carrier
            .grant(&mut host.machine, peer, part, Rights::all(), Time::from_nanos(now))
            .expect("it is granted");
    }
    let mut part = memory.expose();
    for operation in 0..operations {
        let (now, op) = (host.now, OpId(operation));
        let granted = host.carrier.grant(&mut host.machine, peer, part, Rights::all(), Time::from_nanos(now));
        let id = granted.expect("it is granted").id;
        host.machine.revoke(Some(op), id, Time::NEVER, Time::from_nanos(now));
        host.machine.handle_frame(peer, Frame::Revoked { grant: id }, Time::from_nanos(now));
        part = loop {
            host.step();
            if let Some(answer) = host.revoked.take() {
                break answer;
            }
        };
    }
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [kind, count, operations] = &words[..] else { panic!("growth KIND COUNT OPERATIONS") };
    let (count, operations) = (count.parse().unwrap(), operations.parse().unwrap());
    match kind.as_str() {
        "peers" => peers(count, operations),
        "in-flight" => in_flight(count, operations),
        "pages" => pages(count, operations),
        "segments" => segments(count, operations),
        "regions" => regions(count, operations),
        "granted" => granted(count, operations),
        "grants" => grants(count, operations),
        other => panic!("there is no kind {other}"),
    }
}
