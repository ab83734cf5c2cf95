//! The hosts of a scenario, what may happen to them next, and the digest of their state.

use std::collections::VecDeque;
use std::fmt::{self, Write as _};

use farreach_memory::Memory;
use farreach_proto::lost::LostReason;
use farreach_proto::machine::{Budgets, Machine, Output, PeerKey, Tuning};
use farreach_proto::wire::{Frame, Hello};
use farreach_rail::{Carrier, Rail};

use super::choices::Chooses;
use super::scenario::{Call, Loss, MS, STALL, Scenario};
use super::user::Things;
use crate::answers::{Answers, PeerView};
use crate::choose::Pending;
use crate::{CardId, Odds, SimNetwork, SimRail, SimSettings};
use farreach_proto::time::Time;

/// The maximum number of rounds until nothing happens any more.
const ROUNDS_MAX: usize = 10_000;

/// The time that the end of a scenario waits for whatever takes time.
const ENDS_WITHIN: u64 = 60_000 * MS;

/// A scenario in one order.
pub(super) struct World {
    pub(super) scenario: Scenario,
    pub(super) network: SimNetwork,
    pub(super) now: u64,
    pub(super) hosts: Vec<Host>,
    /// The control connections: first the packets to the owner, then those to the writer.
    wires: Vec<[Wire; 2]>,
    /// The number of calls that each user has made.
    calls: Vec<usize>,
    has_failed: Vec<bool>,
    moments: usize,
    is_at_rest: bool,
    /// What the users have.
    pub(super) things: Things,
    /// What has happened, if somebody wants to read it.
    log: Option<Vec<String>>,
}

pub(super) struct Host {
    pub(super) machine: Machine,
    pub(super) carrier: Carrier,
    pub(super) answers: Answers,
    pub(super) cards: Vec<CardId>,
    pub(super) peers: Vec<(PeerKey, std::rc::Rc<PeerView>)>,
    /// Whether a step may change something.
    is_due: bool,
    pub(super) is_stopped: bool,
}

/// One direction of a control connection.
#[derive(Default)]
struct Wire {
    packets: VecDeque<Packet>,
    is_closed: bool,
}

#[derive(Debug)]
enum Packet {
    Frame(Frame),
    Closed,
}

/// Something that may happen next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// The cards do something that they have begun, in one of the ways in which it may happen.
    Network(Pending, u8),
    /// A packet arrives.
    Deliver { connection: usize, to: usize },
    /// A host polls its cards, posts, does control work and runs its timers.
    Step(usize),
    /// A user makes its next call.
    Call(usize),
    /// Something fails, in one of the ways in which it may.
    Lose(usize, u8),
    /// Time advances to the next moment.
    Time,
    /// Nothing fails any more, and only the time that everything takes passes.
    Rest,
}

fn tuning() -> Tuning {
    Tuning {
        heartbeat: 1_000 * MS,
        idle_heartbeat: 10_000 * MS,
        // No peer is lost because time advances before it has answered.
        silence: 10 * ENDS_WITHIN,
        stall: STALL,
        drain: 5 * MS,
        cool_down: 50 * MS,
        messages: 1,
        message_max: 16,
        budgets: Budgets::default(),
    }
}

impl World {
    pub(super) fn new(scenario: &Scenario, is_logged: bool) -> Self {
        let odds = Odds { key_not_mapped: scenario.maps_nothing.into(), ..Odds::default() };
        let (parts_max, notes_max) = (scenario.parts, 0);
        let settings = SimSettings {
            delay_ns: 0..=0,
            parts_max,
            notes_max,
            poll_max: usize::MAX,
            odds,
            ..SimSettings::new(7)
        };
        let network = SimNetwork::chosen(settings);
        let writers = scenario.hosts.len() - 1;
        let mut hosts: Vec<Host> = (0..=writers).map(|host| Host::new(&network, scenario, host)).collect();
        for writer in 1..=writers {
            let key = hosts[writer].machine.add_peer(true, Time::ZERO);
            let own = hosts[0].machine.add_peer(false, Time::ZERO);
            let (theirs, ours) = (hosts[writer].answers.add_peer(key), hosts[0].answers.add_peer(own));
            hosts[writer].peers.push((key, theirs));
            hosts[0].peers.push((own, ours));
        }
        let things = Things::new(&mut hosts);
        let mut world = Self {
            network,
            now: 0,
            hosts,
            wires: (0..writers).map(|_| Default::default()).collect(),
            calls: vec![0; scenario.users.len()],
            has_failed: vec![false; scenario.losses.len()],
            moments: 0,
            is_at_rest: false,
            things,
            log: is_logged.then(Vec::new),
            scenario: scenario.clone(),
        };
        (0..=writers).for_each(|host| world.after(host));
        // Ends of links are created one in several steps.
        for _ in 0..10 {
            (0..=writers).for_each(|host| world.hosts[host].is_due = true);
            world.settle();
        }
        for (host, call) in scenario.before.clone() {
            assert!(world.is_ready(host, call), "{call:?} is not possible");
            world.call(host, call);
            world.after(host);
            world.settle();
        }
        for (host, call) in scenario.sent.clone() {
            world.call(host, call);
            world.happen_unchecked(Event::Step(host));
            world.network.depart(true);
        }
        if scenario.is_lost_first {
            // The answers are lost, and bytes that have left arrive, if they may.
            (0..scenario.losses.len()).for_each(|loss| world.lose(loss, world.ways_to_lose(loss) - 1));
        }
        if scenario.is_late {
            world.settle_but_landing();
        }
        world
    }

    /// Writes a line for the reader of a failed order.
    pub(super) fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(log) = &mut self.log {
            log.push(line());
        }
    }

    /// Lets everything happen that happens by itself without time, in one order.
    fn settle(&mut self) {
        for _ in 0..ROUNDS_MAX {
            let Some(event) = self.own_events().first().copied() else { return };
            self.happen_unchecked(event);
        }
        self.fail("nothing comes to rest");
    }

    /// As [`settle`](Self::settle), but no bytes land.
    fn settle_but_landing(&mut self) {
        let is_landing = |event: &Event| matches!(event, Event::Network(pending, _) if pending.lands());
        while let Some(event) = self.own_events().into_iter().find(|event| !is_landing(event)) {
            self.happen_unchecked(event);
        }
    }

    /// Returns everything that may happen now without a user, a failure or time.
    fn own_events(&self) -> Vec<Event> {
        let mut events = Vec::new();
        for pending in self.network.pending() {
            events.extend((0..pending.ways).map(|way| Event::Network(pending, way)));
        }
        for (connection, wires) in self.wires.iter().enumerate() {
            let is_stopped = self.hosts[connection + 1].is_stopped;
            let arriving = (0..2).filter(|to| !(wires[*to].packets.is_empty() || *to == 1 && is_stopped));
            events.extend(arriving.map(|to| Event::Deliver { connection, to }));
        }
        let steps = (0..self.hosts.len()).filter(|host| self.must_step(*host));
        events.extend(steps.map(Event::Step));
        events
    }

    /// Returns whether a step of a host may change something.
    fn must_step(&self, host: usize) -> bool {
        let there = &self.hosts[host];
        !there.is_stopped && (there.is_due || self.network.has_for_poll(&there.cards))
    }

    fn happen_unchecked(&mut self, event: Event) {
        match event {
            Event::Network(pending, way) => self.network.perform_pending(pending, way),
            Event::Deliver { connection, to } => self.deliver(connection, to),
            Event::Step(host) => {
                let (there, now) = (&mut self.hosts[host], self.now);
                // What happens now may give the next step something to do.
                there.is_due = there.carrier.step(&mut there.machine, Time::from_nanos(now));
                self.collect(host);
                self.network.depart(false);
            }
            Event::Call(user) => {
                let (host, call) = self.next_call(user).expect("a user has a call");
                self.calls[user] += 1;
                self.call(host, call);
                self.after(host);
            }
            Event::Lose(loss, way) => self.lose(loss, way),
            Event::Rest => self.is_at_rest = true,
            Event::Time => {
                self.now = self.scenario.moments[self.moments];
                self.moments += 1;
                self.hosts.iter_mut().for_each(|host| host.is_due = true);
            }
        }
    }

    fn deliver(&mut self, connection: usize, to: usize) {
        let host = if to == 0 { 0 } else { connection + 1 };
        let there = &mut self.hosts[host];
        let key = there.peers[if to == 0 { connection } else { 0 }].0;
        let packet = self.wires[connection][to].packets.pop_front().expect("a packet arrives");
        match packet {
            Packet::Frame(frame) => there.machine.handle_frame(key, frame, Time::from_nanos(self.now)),
            Packet::Closed => {
                // Pages may have come before it.
                there.carrier.catch_up(&mut there.machine, Time::from_nanos(self.now));
                let (cause, fix) = ("the connection was closed".to_owned(), String::new());
                let reason = LostReason::Disconnected { cause, fix };
                there.machine.handle_disconnected(key, reason, Time::from_nanos(self.now));
            }
        }
        self.after(host);
    }

    /// Sends what a machine has to send, and delivers its events: both keep their order, and nobody acts
    /// upon them before the next event.
    fn collect(&mut self, host: usize) {
        let there = &mut self.hosts[host];
        while let Some(output) = there.machine.poll_output() {
            let (key, packet) = match output {
                Output::Frame(key, frame) => (key, Packet::Frame(frame)),
                Output::Close(key) => (key, Packet::Closed),
            };
            let connection = if host == 0 { key.0 as usize } else { host - 1 };
            let wire = &mut self.wires[connection][usize::from(host == 0)];
            let is_last = matches!(packet, Packet::Closed);
            if !wire.is_closed {
                wire.packets.push_back(packet);
            }
            wire.is_closed |= is_last;
        }
        while let Some(event) = there.machine.poll_event() {
            there.answers.tell(event, &mut there.carrier);
        }
        self.collect_answers(host);
    }

    /// As [`collect`](Self::collect), after which a step may change something. One that changes nothing is left
    /// out.
    pub(super) fn after(&mut self, host: usize) {
        self.collect(host);
        let there = &mut self.hosts[host];
        there.is_due |= there.machine.has_work();
    }

    /// Sends a frame of a writer that its machine did not send.
    pub(super) fn say(&mut self, writer: usize, frame: Frame) {
        let wire = &mut self.wires[writer - 1][0];
        if !wire.is_closed {
            wire.packets.push_back(Packet::Frame(frame));
        }
    }

    fn lose(&mut self, loss: usize, way: u8) {
        self.has_failed[loss] = true;
        match self.scenario.losses[loss] {
            Loss::Link(writer, card) => {
                let link = self.network.links_of(self.hosts[writer].cards[card])[0];
                self.network.fail_link(link, way);
            }
            Loss::Peer(writer) => self.lose_peer(writer),
            Loss::Stopped(writer) => {
                self.hosts[writer].is_stopped = true;
                self.network.stop_host(writer as u32, u64::MAX / 2);
                self.lose_peer(writer);
            }
        }
    }

    fn lose_peer(&mut self, writer: usize) {
        self.things.is_lost[writer] = true;
        for wire in &mut self.wires[writer - 1] {
            if !std::mem::replace(&mut wire.is_closed, true) {
                wire.packets.push_back(Packet::Closed);
            }
        }
    }

    /// Lets hosts that were stopped go on.
    pub(super) fn resume(&mut self) {
        self.network.calm();
        self.hosts.iter_mut().for_each(|host| host.is_stopped = false);
    }

    /// Returns the ways in which something may fail now.
    fn ways_to_lose(&self, loss: usize) -> u8 {
        match self.scenario.losses[loss] {
            _ if self.has_failed[loss] => 0,
            Loss::Link(writer, card) => {
                let links = self.network.links_of(self.hosts[writer].cards[card]);
                links.first().map_or(0, |link| self.network.ways_to_fail(*link))
            }
            Loss::Peer(_) | Loss::Stopped(_) => 1,
        }
    }

    fn next_call(&self, user: usize) -> Option<(usize, Call)> {
        let (host, calls) = &self.scenario.users[user];
        Some((*host, *calls.get(self.calls[user])?))
    }

    /// Lets time pass until everything that was begun has ended.
    pub(super) fn wait_for_the_end(&mut self) {
        let (mut wait, until) = (self.tuning_step(), self.now + ENDS_WITHIN);
        while self.now < until {
            self.settle();
            if self.unfinished().is_none() {
                return;
            }
            self.now += wait;
            wait += wait / 2;
            self.hosts.iter_mut().for_each(|host| host.is_due = true);
        }
        let what = self.unfinished().unwrap_or_default();
        self.fail(&format!("it waits for ever: {what}"));
    }

    fn tuning_step(&self) -> u64 {
        tuning().drain
    }

    /// Ends with a failure.
    pub(super) fn fail(&self, what: &str) -> ! {
        let name = &self.scenario.name;
        panic!("{name}: {what}");
    }
}

impl Chooses for World {
    type Event = Event;

    fn events(&self) -> Vec<Event> {
        if self.is_at_rest {
            return Vec::new();
        }
        let mut events = self.own_events();
        for user in 0..self.calls.len() {
            if self.next_call(user).is_some_and(|(host, call)| self.is_ready(host, call)) {
                events.push(Event::Call(user));
            }
        }
        let is_quiet = events.is_empty();
        for loss in 0..self.has_failed.len() {
            events.extend((0..self.ways_to_lose(loss)).map(|way| Event::Lose(loss, way)));
        }
        if self.moments < self.scenario.moments.len() {
            events.push(Event::Time);
        }
        if is_quiet && !events.is_empty() {
            events.push(Event::Rest);
        }
        events
    }

    fn happen(&mut self, event: Event) {
        self.note(|| format!("{event:?}"));
        self.happen_unchecked(event);
        self.check();
    }

    fn digest(&self) -> u64 {
        let mut digest = Digest(0);
        let written = self.write_state(&mut digest);
        written.expect("a digest takes everything");
        digest.0
    }

    fn end(&mut self) {
        self.wait_for_the_end();
        self.check();
        self.check_end();
        self.leave();
        self.wait_for_the_end();
        self.check();
        self.check_left_behind();
    }
}

impl World {
    fn write_state(&self, into: &mut Digest) -> fmt::Result {
        for host in &self.hosts {
            host.machine.write_state(into)?;
            host.carrier.write_state(into)?;
            write!(into, "{}", host.is_due)?;
        }
        for wire in self.wires.iter().flatten() {
            write!(into, "{:?}{}", wire.packets, wire.is_closed)?;
        }
        write!(into, "{} {:?} {:?} {}", self.now, self.calls, self.has_failed, self.moments)?;
        write!(into, "{}", self.is_at_rest)?;
        self.network.write_state(into)?;
        self.things.write_state(into)
    }
}

impl Drop for World {
    /// Prints what has happened, if somebody wants to read it.
    fn drop(&mut self) {
        for line in self.log.take().unwrap_or_default() {
            super::print(&line);
        }
    }
}

impl Host {
    fn new(network: &SimNetwork, scenario: &Scenario, host: usize) -> Self {
        let cards = scenario.hosts[host].clone().into_iter();
        let rails: Vec<SimRail> = cards.map(|card| SimRail::new(network, host as u32, card)).collect();
        let cards = rails.iter().map(SimRail::id).collect();
        let rails = rails.into_iter().map(|rail| Box::new(rail) as Box<dyn Rail>).collect();
        let carrier = Carrier::new(rails, tuning().message_max).expect("a simulated card has room");
        let hello = Hello::new(host as u64);
        let mut infos = carrier.infos();
        // A step follows whatever a card has for a poll, as if each had a descriptor to wait for.
        infos.iter_mut().for_each(|info| info.must_be_polled = false);
        let machine = Machine::new(infos, hello, tuning(), [host as u8; 32]);
        Self {
            machine,
            carrier,
            answers: Answers::default(),
            cards,
            peers: Vec::new(),
            is_due: true,
            is_stopped: false,
        }
    }

    /// Allocates memory of a user that the cards may access.
    pub(super) fn allocate(&mut self, len: usize) -> farreach_memory::Slice {
        let slice = Memory::allocate(len).expect("memory is available");
        self.carrier.register(slice.memory()).expect("a simulated card has room");
        slice
    }
}

/// A digest of text.
struct Digest(u64);

impl Digest {
    fn add(&mut self, word: u64) {
        // The multiplier is the golden ratio in 64 bits.
        let mixed = (self.0.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 32);
    }
}

impl fmt::Write for Digest {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let (words, rest) = text.as_bytes().as_chunks();
        words.iter().for_each(|word| self.add(u64::from_le_bytes(*word)));
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        self.add(u64::from_le_bytes(last));
        Ok(())
    }
}
