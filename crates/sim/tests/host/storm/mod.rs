//! Several hosts that use their cards correctly, with all faults: every buffer comes back once, no
//! report is wrong, and memory that was given back keeps its content.

mod check;
mod host;
mod recover;

use std::sync::atomic::{AtomicUsize, Ordering};

use farreach_memory::Slice;
use farreach_rail::{LinkKey, Proof, RemoteSegment, WorkRequest};
use farreach_sim::request::{Request, post};
use farreach_sim::{SimCard, SimNetwork, SimSettings};
use farreach_testkit::for_each_seed;

use crate::pair::Told;
use host::{Grant, Host, PLACE_LEN, PLACES, Revoked};

/// Other tests show that each violation is detected. This one shows that there are none, whatever
/// happens.
#[test]
fn careful_hosts_get_along_in_any_weather() {
    let seen = SEEN.map(|_| AtomicUsize::new(0));
    let count = for_each_seed(500, |seed| {
        for (seen, more) in seen.iter().zip(run(seed).seen) {
            seen.fetch_add(more, Ordering::Relaxed);
        }
    });
    // A storm in which an event never happens proves nothing about it.
    for (name, seen) in SEEN.iter().zip(seen) {
        assert!(count < 500 || seen.into_inner() > 10, "too few were seen: {name}");
    }
}

/// Events that must have happened in many histories.
const SEEN: [&str; 9] = [
    "done",
    "failed",
    "gone with their host",
    "lost with their card",
    "told",
    "by a dead key",
    "links",
    "hosts and cards started again",
    "given back",
];

pub(crate) struct Outcome {
    pub(crate) history: u64,
    seen: [usize; SEEN.len()],
}

/// Runs one history: a storm, the calm after it, and the final checks.
pub(crate) fn run(seed: u64) -> Outcome {
    let mut storm = Storm::new(seed);
    let steps = 100 + storm.chance.below(300);
    for _ in 0..steps {
        storm.step(true);
    }
    storm.end();
    let count = |is: fn(&Asked) -> bool| storm.asked.iter().filter(|asked| is(asked)).count();
    let seen = [
        count(|asked| asked.state == State::Done),
        count(|asked| asked.state == State::Failed),
        count(|asked| asked.state == State::Gone),
        count(|asked| asked.state == State::Lost),
        count(|asked| asked.is_told),
        count(|asked| asked.is_stale),
        storm.links.len(),
        storm.next_life as usize - storm.hosts.len() * storm.kinds.len(),
        storm.given_back.len(),
    ];
    Outcome { history: storm.network.history(), seen }
}

/// SplitMix64, separate from the network's own generator: the requests of hosts do not depend on
/// the faults.
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

    fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }
}

/// Names one life of a card: a host, a rail, and the generation of its card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    host: usize,
    rail: usize,
    life: u64,
}

#[derive(Debug)]
struct Link {
    ends: [(Place, LinkKey); 2],
    is_up: bool,
}

/// A work request. Its number is its tag and its immediate.
#[derive(Debug)]
struct Asked {
    what: What,
    link: usize,
    /// The end of the link that posts it.
    side: usize,
    grant: u64,
    place: usize,
    is_stale: bool,
    at_ns: u64,
    state: State,
    is_told: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Write { has_immediate: bool },
    Read { expected: u8 },
    Send,
    Add,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    InFlight,
    Done,
    Failed,
    /// Gone with its host.
    Gone,
    /// Lost with a card that could not be reset: it may still be in flight.
    Lost,
}

struct Storm {
    seed: u64,
    network: SimNetwork,
    chance: Chance,
    kinds: Vec<SimCard>,
    hosts: Vec<Host>,
    links: Vec<Link>,
    asked: Vec<Asked>,
    /// Work requests before this one are no longer in flight.
    oldest: usize,
    revoked: Vec<Revoked>,
    given_back: Vec<Slice>,
    next_life: u64,
    next_grant: u64,
}

impl Storm {
    fn new(seed: u64) -> Self {
        let mut chance = Chance(seed);
        let mut settings = SimSettings::stormy(seed);
        settings.notes_max = 200;
        if chance.once_in(2) {
            settings.odds.host_killed = 100 + chance.below(1000) as u32;
        }
        let kinds = (0..1 + chance.below(2)).map(|_| kind(&mut chance)).collect();
        let mut storm = Self {
            seed,
            network: SimNetwork::new(settings),
            chance,
            kinds,
            hosts: Vec::new(),
            links: Vec::new(),
            asked: Vec::new(),
            oldest: 0,
            revoked: Vec::new(),
            given_back: Vec::new(),
            next_life: 0,
            next_grant: 0,
        };
        let count = 2 + storm.chance.below(2);
        for number in 0..count {
            let host = storm.start_host(number);
            storm.hosts.push(host);
        }
        storm
    }

    /// Runs one step of all hosts. During the storm, some post.
    fn step(&mut self, asks: bool) {
        for host in 0..self.hosts.len() {
            self.look_after(host, asks);
        }
        self.hear_all();
        self.take_back_what_is_proven();
        if asks {
            self.link_up();
            for _ in 0..self.chance.below(4) {
                self.ask();
            }
        }
        self.give_up_what_hangs();
        let soon_ns = self.network.now() + 200_000;
        let next_ns = self.network.next_event_at().map_or(soon_ns, |at_ns| at_ns.min(soon_ns));
        self.network.advance_to(next_ns);
    }

    /// Polls the cards of all hosts, except stopped ones.
    fn hear_all(&mut self) {
        for host in 0..self.hosts.len() {
            for rail in 0..self.hosts[host].rails.len() {
                let mut told = Vec::new();
                let place = self.hosts[host].rails[rail].place;
                // A failed poll is repeated in the next step.
                while self.hosts[host].rails[rail].poll(&mut told).is_ok_and(|count| count > 0) {}
                for told in told {
                    self.hear(place, told);
                }
            }
        }
    }

    fn hear(&mut self, place: Place, told: Told) {
        match told {
            Told::Completed { tag, buffers, outcome } => {
                self.check_completed(place, tag, &buffers, outcome.is_ok());
                self.hosts[place.host].rails[place.rail].keep(buffers);
                if outcome.is_err() {
                    self.fail_link(self.asked[tag as usize].link);
                }
            }
            Told::Immediate { link, bits } => self.check_immediate(place, link, bits),
            Told::Message { link, bytes } => self.check_message(place, link, &bytes),
            Told::LinkDown { link } => {
                let is_it = |there: &Link| there.ends.contains(&(place, link));
                let link = self.links.iter().position(is_it).expect("the link belongs to this card");
                self.fail_link(link);
            }
        }
    }

    /// Posts a work request over some link that is up.
    fn ask(&mut self) {
        let up: Vec<usize> = (0..self.links.len()).filter(|link| self.links[*link].is_up).collect();
        if up.is_empty() {
            return;
        }
        let (link, side) = (up[self.chance.below(up.len())], self.chance.below(2));
        let [(from, key), (to, _)] = [side, 1 - side].map(|side| self.links[link].ends[side]);
        let window = self.kinds[from.rail].properties.window as usize;
        let in_flight = self.asked[self.oldest..]
            .iter()
            .filter(|asked| asked.state == State::InFlight && (asked.link, asked.side) == (link, side));
        if in_flight.count() >= window || self.network.is_stopped(from.host as u32) {
            return;
        }
        let Some((asked, request)) = self.choose(from, to, link, side) else { return };
        let tag = self.asked.len() as u64;
        match post(&mut self.hosts[from.host].rails[from.rail].rail, key, tag, request) {
            Ok(()) => self.asked.push(asked),
            // There may be no room; the buffer is back.
            Err(refused) => {
                let (_, buffers) = refused.request;
                self.hosts[from.host].rails[from.rail].keep(buffers);
            }
        }
    }

    fn choose(
        &mut self,
        from: Place,
        to: Place,
        link: usize,
        side: usize,
    ) -> Option<(Asked, Request<'static>)> {
        let has_atomics = self.kinds[from.rail].properties.has_atomics;
        let what = match self.chance.below(10) {
            0..=3 => What::Write { has_immediate: true },
            4..=5 => What::Write { has_immediate: false },
            6..=7 => What::Read { expected: 0 },
            8 if has_atomics => What::Add,
            _ => What::Send,
        };
        let tag = self.asked.len() as u32;
        let (mut what, mut place, mut is_stale) = (what, 0, false);
        let grant = match self.hosts[to.host].rails[to.rail].stale.as_ref() {
            // Some hosts do not know yet that the key was ended.
            Some(stale) if self.chance.once_in(20) && what != What::Send => {
                is_stale = true;
                stale.clone()
            }
            _ => self.hosts[to.host].rails[to.rail].grant.clone(),
        };
        match &mut what {
            What::Write { .. } | What::Add if is_stale => {}
            What::Write { .. } | What::Add => place = self.hosts[to.host].rails[to.rail].take_place()?,
            What::Read { expected } => (place, *expected) = self.known_place(to, &grant),
            What::Send => {}
        }
        let mut slice = self.hosts[from.host].rails[from.rail].take_slice(what == What::Add)?;
        if matches!(what, What::Write { .. } | What::Send) {
            slice.fill(byte_of(tag));
        }
        let len = if what == What::Add { 8 } else { PLACE_LEN as u64 };
        let address = grant.key.address + (place * PLACE_LEN) as u64;
        let target = RemoteSegment { address, key: grant.key.key, len };
        let request = match what {
            What::Write { has_immediate } => {
                (WorkRequest::Write { target, immediate: has_immediate.then_some(tag) }, slice.into())
            }
            What::Read { .. } => (WorkRequest::Read { target }, slice.into()),
            What::Send => {
                slice[..4].copy_from_slice(&tag.to_ne_bytes());
                (WorkRequest::Send, slice.into())
            }
            What::Add => (WorkRequest::FetchAdd { target, add: 1 + u64::from(tag) }, slice.into()),
        };
        let at_ns = self.network.now();
        let state = State::InFlight;
        let (grant, is_told) = (grant.id, false);
        Some((Asked { what, link, side, grant, place, is_stale, at_ns, state, is_told }, request))
    }

    /// Returns a place whose bytes are known to have arrived, or one that was never written to.
    fn known_place(&mut self, to: Place, grant: &Grant) -> (usize, u8) {
        let is_proven = self.kinds[to.rail].properties.writes_prove == Proof::Delivered;
        let known = self.asked.iter().enumerate().rev().find(|(_, asked)| {
            let is_there = asked.is_told || (is_proven && asked.state == State::Done);
            asked.grant == grant.id && matches!(asked.what, What::Write { .. }) && is_there && !asked.is_stale
        });
        known.map_or((PLACES, 0), |(tag, asked)| (asked.place, byte_of(tag as u32)))
    }
}

/// Returns the byte that a work request writes: never 0, which was there before.
fn byte_of(tag: u32) -> u8 {
    (tag % 255) as u8 + 1
}

fn kind(chance: &mut Chance) -> SimCard {
    let kinds = SimCard::kinds();
    let mut card = kinds[chance.below(kinds.len())].clone();
    card.properties.window = 1 + chance.below(20) as u32;
    card.receives = 1 + chance.below(20);
    card.queue_len = 1 + chance.below(40);
    card.properties.writes_prove = [Proof::Sent, Proof::Delivered][chance.below(2)];
    card
}
