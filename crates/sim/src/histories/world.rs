//! The state of a history, and its schedule of events.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};

use farreach_memory::{Exposed, Slice};

use super::chance::Chance;
use super::liar::Liar;
use super::messages::Flush;
use super::partition::Partition;
use super::party::{Connection, Host};
use super::publications::{Opening, Published};
use super::scenario::{Fault, Scenario};
use super::shared_counters::{CounterOpening, Shared};
use super::thing::{Change, Count, Grant, Source, Transfer};
use crate::answers::Answer;
use crate::{CardId, SimNetwork};
use farreach_proto::time::Time;

/// A history in progress.
pub(super) struct World {
    pub(super) seed: u64,
    pub(super) scenario: Scenario,
    pub(super) chance: Chance,
    pub(super) network: SimNetwork,
    pub(super) now: u64,
    agenda: BinaryHeap<Reverse<(u64, u64, What)>>,
    scheduled: u64,
    pub(super) hosts: Vec<Host>,
    /// The host of each card, and its life.
    pub(super) homes: HashMap<CardId, (usize, u64)>,
    pub(super) liar: Option<Liar>,
    pub(super) partitions: Vec<Partition>,
    pub(super) connections: Vec<Connection>,
    pub(super) grants: Vec<Grant>,
    pub(super) published: Vec<Published>,
    /// Requests to open publications, which are not answered.
    pub(super) openings: Vec<Opening>,
    pub(super) shared: Vec<Shared>,
    /// Requests to open shared counters, which are not answered.
    pub(super) counter_openings: Vec<CounterOpening>,
    pub(super) flushes: Vec<Flush>,
    /// The bytes of the last frame.
    pub(super) frame_bytes: Vec<u8>,
    /// Requests of hosts to close all peers, which are not answered.
    pub(super) closings: Vec<(usize, Answer<()>)>,
    pub(super) counts: Vec<Count>,
    pub(super) transfers: Vec<Transfer>,
    pub(super) changes: Vec<Change>,
    pub(super) sources: Vec<Source>,
    /// Memory that came back, with the byte that it was overwritten with: it must stay so.
    pub(super) kept: Vec<(usize, Slice, u8)>,
    /// Memory that came back without a proof.
    pub(super) unproven: Vec<(usize, Exposed)>,
    /// Whether users still make requests, and faults occur.
    pub(super) is_storm: bool,
    pub(super) next_number: u64,
    pub(super) tally: BTreeMap<&'static str, u64>,
    pub(super) digest: u64,
    /// The maximum number of bytes that a machine kept for the liar.
    pub(super) most_kept: usize,
    /// The number of violations of cards that were looked at.
    pub(super) violations_seen: usize,
    /// Events with their times, if a log was asked for.
    pub(super) log: Option<Vec<(u64, String)>>,
}

/// Something that is due at some time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum What {
    /// The next packet reaches an end of a connection.
    Deliver {
        connection: usize,
        end: usize,
    },
    /// An engine learns of a connection.
    Introduce {
        connection: usize,
        end: usize,
    },
    Step {
        host: usize,
    },
    /// A user makes a request.
    Wish,
    /// A transfer has exceeded its user's time limit.
    GiveUp {
        number: u64,
    },
    Fault {
        place: usize,
    },
    Restart {
        host: usize,
    },
    /// The process of a host in which a call does not return is killed.
    KillHung {
        host: usize,
        life: u64,
    },
    /// The liar sends or posts something.
    Lie,
    /// The liar sends a frame that it has held back.
    SayLate {
        place: usize,
    },
    /// The check that every wait ends in time.
    Audit,
}

/// The interval of that check, in nanoseconds.
const AUDIT_EVERY: u64 = 4_000_000;

/// Logs an event, if a log was asked for. The numbers become part of the history's digest.
macro_rules! tell {
    ($world:expr, $what:literal $(, $number:expr)*) => {{
        let world: &mut $crate::histories::world::World = $world;
        world.note($what, &[$($number as u64),*]);
    }};
}
pub(super) use tell;

/// Ends the history with a failure: a guarantee does not hold.
macro_rules! broken {
    ($world:expr, $($text:tt)*) => {{
        let what = format!($($text)*);
        $world.end_badly(&what)
    }};
}
pub(super) use broken;

impl World {
    /// Begins a history with the hosts of a seed. `chance` chooses what users do, and `of_liar` what the liar
    /// does.
    pub(super) fn new(seed: u64, chance: Chance, of_liar: Chance, is_logged: bool) -> Self {
        let mut scenario = Scenario::new(seed);
        if is_logged {
            scenario.network.notes_max = 20_000;
        }
        let network = SimNetwork::new(scenario.network.clone());
        let hosts = scenario.hosts.iter().map(|_| Host::default()).collect();
        let liar = scenario.lying.clone().map(|lying| Liar::new(lying, of_liar));
        Self {
            seed,
            chance,
            scenario,
            network,
            now: 0,
            agenda: BinaryHeap::new(),
            scheduled: 0,
            hosts,
            homes: HashMap::new(),
            liar,
            partitions: Vec::new(),
            connections: Vec::new(),
            grants: Vec::new(),
            published: Vec::new(),
            openings: Vec::new(),
            shared: Vec::new(),
            counter_openings: Vec::new(),
            flushes: Vec::new(),
            frame_bytes: Vec::new(),
            closings: Vec::new(),
            counts: Vec::new(),
            transfers: Vec::new(),
            changes: Vec::new(),
            sources: Vec::new(),
            kept: Vec::new(),
            unproven: Vec::new(),
            is_storm: true,
            next_number: 0,
            tally: BTreeMap::new(),
            digest: seed,
            most_kept: 0,
            violations_seen: 0,
            log: is_logged.then(Vec::new),
        }
    }

    /// Runs the time of requests and faults.
    pub(super) fn storm(&mut self) {
        for host in 0..self.hosts.len() {
            self.start(host);
        }
        for (place, (at, _)) in self.scenario.faults.clone().into_iter().enumerate() {
            self.schedule(at, What::Fault { place });
        }
        self.schedule(1, What::Wish);
        if self.liar.is_some() {
            self.schedule(1, What::Lie);
        }
        self.schedule(AUDIT_EVERY, What::Audit);
        let end = self.scenario.storm_ns;
        self.run_until(end, |world| world.chance.is_spent());
    }

    pub(super) fn schedule(&mut self, at: u64, what: What) {
        self.scheduled += 1;
        self.agenda.push(Reverse((at.max(self.now), self.scheduled, what)));
    }

    /// Advances until a condition holds or a time is reached. Returns `true` if it holds.
    pub(super) fn run_until(&mut self, end: u64, is_so: impl Fn(&mut Self) -> bool) -> bool {
        loop {
            if is_so(self) {
                return true;
            }
            let due = self.agenda.peek().map(|Reverse((at, ..))| *at);
            let on_network = self.network.next_event_at();
            let next = due.into_iter().chain(on_network).min().unwrap_or(u64::MAX);
            if next > end {
                self.now = end;
                self.network.advance_to(end);
                return is_so(self);
            }
            self.now = next;
            self.network.advance_to(next);
            if on_network == Some(next) {
                self.rouse();
            }
            while let Some(Reverse((_, _, what))) = self.agenda.pop_if_due(next) {
                self.happen(what);
            }
        }
    }

    /// Schedules steps of all hosts a little later, because something happened on the network.
    fn rouse(&mut self) {
        for host in 0..self.hosts.len() {
            let at = self.now + self.chance.below(self.scenario.poll_gap_ns);
            self.step_by(host, at);
        }
    }

    /// Schedules a step of a host at this time, or earlier.
    pub(super) fn step_by(&mut self, host: usize, at: u64) {
        let there = &mut self.hosts[host];
        // Packets that arrived meanwhile are read first.
        let at = if there.is_stopped(at) { there.stopped_until + 1 } else { at };
        if there.is_alive() && at < there.step_at {
            there.step_at = at;
            self.schedule(at, What::Step { host });
        }
    }

    fn happen(&mut self, what: What) {
        match what {
            What::Deliver { connection, end } => self.deliver(connection, end),
            What::Introduce { connection, end } => self.introduce(connection, end),
            What::Step { host } => self.step(host),
            What::Wish => self.wish(),
            What::GiveUp { number } => self.give_up(number),
            What::Fault { place } => self.strike(self.scenario.faults[place].1),
            What::Restart { host } if self.is_retired(host) => {}
            What::Restart { host } => self.start(host),
            What::KillHung { host, life } => self.kill_hung(host, life),
            What::Lie => self.lie(),
            What::SayLate { place } => self.say_late(place),
            What::Audit => {
                self.audit();
                self.schedule(self.now + AUDIT_EVERY, What::Audit);
            }
        }
    }

    fn step(&mut self, host: usize) {
        let there = &mut self.hosts[host];
        if there.step_at != self.now || !there.is_alive() {
            return;
        }
        if there.is_stopped(self.now) {
            let at = there.stopped_until + 1;
            there.step_at = at;
            self.schedule(at, What::Step { host });
            return;
        }
        let now = self.now;
        let happened = there.step(now);
        self.end_opening(host);
        if !happened {
            self.hosts[host].machine().note_idle();
        }
        let next = match happened {
            true => now + 1 + self.chance.below(self.scenario.poll_gap_ns),
            false => self.hosts[host].machine().poll_timeout().to_nanos(),
        };
        self.hosts[host].step_at = next;
        self.schedule(next, What::Step { host });
        self.observe(host);
    }

    /// Lets the creation of an end of a link have taken some time.
    fn end_opening(&mut self, host: usize) {
        if self.hosts[host].machine().is_opening() {
            let took = self.chance.below(self.scenario.opening_ns);
            let now = self.now;
            self.hosts[host].machine().end_opening(Time::from_nanos(now + took));
        }
    }

    pub(super) fn count(&mut self, what: &'static str, more: u64) {
        *self.tally.entry(what).or_default() += more;
    }

    pub(super) fn note(&mut self, what: &'static str, numbers: &[u64]) {
        let first = what.bytes().fold(self.now, |sum, byte| sum.rotate_left(7) ^ u64::from(byte));
        for number in [first].iter().chain(numbers) {
            self.digest = (self.digest.rotate_left(5) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
        self.log(|| format!("{what} {numbers:?}"));
    }

    /// Logs a line without numbers, if a log was asked for.
    pub(super) fn log(&mut self, line: impl FnOnce() -> String) {
        if let Some(log) = &mut self.log {
            log.push((self.now, line()));
        }
    }

    pub(super) fn end_badly(&self, what: &str) -> ! {
        panic!("seed {}, at {:.6} ms: {what}", self.seed, self.now as f64 / 1e6);
    }
}

impl Drop for World {
    /// Prints the log, also after a failure.
    fn drop(&mut self) {
        let Some(mut log) = self.log.take() else { return };
        let time = |note: &String| note.trim().split(' ').next().and_then(|time| time.parse().ok());
        let on_network = self.network.notes().into_iter();
        log.extend(on_network.map(|note| (time(&note).unwrap_or(0), format!("    {}", note.trim()))));
        log.sort_by_key(|(at, _)| *at);
        super::print(&format!("{:#?}", self.scenario));
        for (at, line) in log {
            super::print(&format!("{:>12.6} ms  {line}", at as f64 / 1e6));
        }
    }
}

/// A heap whose first element is taken only when its time has come.
trait PopIfDue<T> {
    fn pop_if_due(&mut self, now: u64) -> Option<T>;
}

impl PopIfDue<Reverse<(u64, u64, What)>> for BinaryHeap<Reverse<(u64, u64, What)>> {
    fn pop_if_due(&mut self, now: u64) -> Option<Reverse<(u64, u64, What)>> {
        if self.peek().is_some_and(|Reverse((at, ..))| *at <= now) { self.pop() } else { None }
    }
}

impl Fault {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::StopShortly => "hosts stopped shortly",
            Self::StopLong => "hosts stopped for long",
            Self::Kill => "engines killed",
            Self::Crash => "hosts without power",
            Self::Hang => "hosts in a call that does not return",
            Self::PartShortly => "partitions for a short time",
            Self::PartLong => "partitions for long",
        }
    }
}
