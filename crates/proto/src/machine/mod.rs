//! The state machine of an engine: peers, links, transfers, counters, grants and messages, without
//! threads, clocks or sockets.
//!
//! The caller passes in the [time](crate::time). Frames of peers come in through
//! [`Machine::handle_frame`], and frames to send go out through [`Machine::poll_output`]. Work for
//! [rails](crate::rail) goes out through [`Machine::poll_control`] and [`Machine::poll_post`], and
//! its results come in through `handle_…`; the carrier of the crate `rail` does both, and owns the
//! memory. Answers to the caller's requests go out through [`Machine::poll_event`]. A simulation
//! can therefore own all of these, and run the same code through a hundred thousand histories.
//!
//! The driver of a machine carries its frames, does its work and supplies the time. In this
//! example, two machines that have no rail in common part at once:
//!
//! ```
//! use farreach_proto::lost::LostReason;
//! use farreach_proto::machine::{Budgets, Event, Machine, Output, PeerChange, Tuning};
//! use farreach_proto::time::Time;
//! use farreach_proto::wire::Hello;
//!
//! const MS: u64 = 1_000_000;
//! let tuning = Tuning {
//!     heartbeat: 100 * MS,
//!     idle_heartbeat: 10_000 * MS,
//!     silence: 1000 * MS,
//!     stall: 500 * MS,
//!     drain: 500 * MS,
//!     cool_down: 100 * MS,
//!     messages: 16,
//!     message_max: 4096,
//!     budgets: Budgets::default(),
//! };
//! let [mut here, mut there] =
//!     [1, 2].map(|life| Machine::new(Vec::new(), Hello::new(life.into()), tuning.clone(), [life; 32]));
//! let (_peer, peer_there) = (here.add_peer(true, Time::ZERO), there.add_peer(false, Time::ZERO));
//! while let Some(Output::Frame(_, frame)) = here.poll_output() {
//!     there.handle_frame(peer_there, frame, Time::from_nanos(MS));
//! }
//! let mut events = std::iter::from_fn(|| there.poll_event());
//! assert!(events.any(|event| {
//!     matches!(event, Event::Peer(_, PeerChange::Lost(LostReason::NoCommonRail { .. })))
//! }));
//! ```

mod admission;
mod atomic;
mod bound_keys;
mod budget;
mod census;
mod check;
mod confirmations;
mod counter;
mod dead_rail;
mod deadlines;
mod event;
mod frame;
mod grant;
mod header;
mod id_map;
mod in_flight;
mod links;
mod looking;
mod lose;
mod marks;
mod message;
mod names;
mod openings;
mod own_grants;
mod peer;
mod peer_map;
mod peer_timers;
mod peers;
mod publications;
mod publish;
mod rail;
mod request;
mod reset;
mod share_counter;
mod shared_counters;
mod short;
#[cfg(test)]
mod tests;
mod timers;
mod transfer;
mod turns;
mod work;

use std::collections::{BTreeMap, VecDeque};

use crate::counter::{CounterId, LinkId};
use crate::time::Time;
use crate::wire::{BoundKey, Frame, Hello};

use confirmations::Confirmations;
use counter::CounterDesk;
use deadlines::Deadlines;
use in_flight::InFlightTable;
use looking::Looking;
use marks::Marks;
use names::Names;
use openings::Openings;
use own_grants::OwnGrants;
use peer::{LinkTimes, Peer};
use peers::Peers;
use publications::Publications;
use rail::RailState;
use shared_counters::SharedCounters;
use timers::{INTERVAL, Timers};
use turns::Turns;

pub use budget::{Budgets, NAME_MAX};
pub use census::Census;
pub use event::{Event, OpenedMemory, PeerChange, TransferEnd, TransferFault};
pub use grant::RemoteKeys;
pub use header::MessageHeader;
pub use id_map::IdMap;
pub use links::pairs_of;
pub use names::Seed;
pub use rail::RailInfo;
pub use request::{AtomicOperation, Direction, GrantRange, NewAtomic, NewTransfer, OpId, PeerKey, Regions};
pub use short::{ShortRequest, ShortTransfer};
pub use work::{Content, Control, KeysEnded, LinkEnd, Opening, Post};

use crate::rail::{LinkKey, Properties, RailError};

/// Times, in nanoseconds, and limits.
#[derive(Debug, Clone)]
pub struct Tuning {
    /// The interval of pings to a peer that something waits for.
    pub heartbeat: u64,
    /// The interval of pings to a peer that nothing waits for.
    pub idle_heartbeat: u64,
    /// The silence after which a peer that something waits for is lost. It is longer than
    /// `heartbeat`.
    pub silence: u64,
    /// The time without progress after which a link is lost, while its peer still answers.
    pub stall: u64,
    /// The time that operations in flight on a failed link have to come back, before the rail is
    /// reset.
    pub drain: u64,
    /// The time after which a failed link is offered again.
    pub cool_down: u64,
    /// The number of messages that a peer may send before the application takes them.
    pub messages: u32,
    /// The maximum length of a message of the application, in bytes.
    pub message_max: usize,
    /// How much a peer may ask for.
    pub budgets: Budgets,
}

impl Tuning {
    fn link_times(&self) -> LinkTimes {
        LinkTimes { stall: self.stall, drain: self.drain }
    }
}

/// A request to the driver about a control connection.
#[derive(Debug)]
pub enum Output {
    /// Sends a frame to a peer.
    Frame(PeerKey, Frame),
    /// Closes the connection to a peer.
    Close(PeerKey),
}

/// The state machine of an engine. See the [module](self).
pub struct Machine {
    rails: Vec<RailState>,
    peers: Peers,
    turns: Turns,
    counters: CounterDesk,
    shared_counters: SharedCounters,
    grants: OwnGrants,
    publications: Publications,
    marks: Marks,
    names: Names,
    in_flight: InFlightTable,
    control: VecDeque<Control>,
    openings: Openings,
    /// Peers whose `Settle` frames are answered when all control work is done.
    settling: Vec<PeerKey>,
    outputs: VecDeque<Output>,
    events: VecDeque<Event>,
    hello: Hello,
    tuning: Tuning,
    now: Time,
    timers: Timers,
    /// The deadlines of transfers.
    deadlines: Deadlines,
    /// Until when pages that are not urgent have less in flight, because some were urgent.
    urgent_until: Time,
    looking: Looking,
    /// Keys that were bound in this step. The peers get them at its end.
    bound: BTreeMap<(PeerKey, LinkId), Vec<BoundKey>>,
    confirmations: Confirmations,
    /// Operations to complete when all peers are gone.
    closing: Vec<OpId>,
}

impl Machine {
    /// Creates a machine without peers over these rails. `hello` is the first frame to each peer.
    /// Ids and marks are drawn from the seed: it must be random and secret, except in a simulation.
    pub fn new(rails: Vec<RailInfo>, mut hello: Hello, tuning: Tuning, seed: Seed) -> Self {
        let rails: Vec<RailState> = rails.into_iter().map(RailState::new).collect();
        hello.rails = rails.iter().map(|rail| rail.properties().kind.clone()).collect();
        hello.messages = tuning.messages;
        // An honest peer keeps to these, and tells its own user instead of being lost.
        (hello.grants, hello.counters) = (tuning.budgets.grants, tuning.budgets.counters);
        Self {
            rails,
            peers: Peers::default(),
            turns: Turns::default(),
            counters: CounterDesk::default(),
            shared_counters: SharedCounters::default(),
            grants: OwnGrants::default(),
            publications: Publications::default(),
            marks: Marks::default(),
            names: Names::new(seed),
            in_flight: InFlightTable::default(),
            control: VecDeque::new(),
            openings: Openings::default(),
            settling: Vec::new(),
            outputs: VecDeque::new(),
            events: VecDeque::new(),
            hello,
            timers: Timers::new(),
            deadlines: Deadlines::default(),
            urgent_until: Time::ZERO,
            looking: Looking::default(),
            bound: BTreeMap::new(),
            confirmations: Confirmations::default(),
            closing: Vec::new(),
            tuning,
            now: Time::ZERO,
        }
    }

    /// Adds a peer with an established connection. `is_initiator`: this side made the connection.
    pub fn add_peer(&mut self, is_initiator: bool, now: Time) -> PeerKey {
        self.now = now;
        let key = self.peers.add(Peer::new(is_initiator, &self.tuning, &mut self.names, now));
        // A peer that never sends its hello is pinged, and lost in the end.
        self.touch(key);
        self.send(key, Frame::Hello(self.hello.clone()));
        key
    }

    /// Returns the time of the last call that had one.
    pub fn time(&self) -> Time {
        self.now
    }

    /// Begins a step. The driver polls the rails next.
    pub fn begin_step(&mut self, now: Time) {
        self.now = now;
        // It counts steps between two ends of links.
        self.openings.begin_step();
    }

    /// Ends the polling of rails. The driver posts next, as far as there is room.
    pub fn end_polls(&mut self) {
        // Once for all messages that were polled: one frame instead of one for each.
        self.confirm_messages();
        self.tell_bound_keys();
        // Polling may have made room, or a link ready, for peers that could not post before.
        self.turns.ask_all_senders();
    }

    /// Ends a step after posting. Runs the timers that are due.
    pub fn end_step(&mut self) {
        // After the completions of this step: what is done at its deadline is done.
        self.abort_late();
        // After posting: a post moves the timer of its peer.
        if self.timers.are_due(self.now) {
            self.run_timers();
        }
    }

    /// Returns the next request about a control connection.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Returns the time at which the next step is due even if nothing happens before.
    pub fn poll_timeout(&self) -> Time {
        // Timers are coarse, so that a driver that sleeps is not woken for each of them.
        let Tuning { heartbeat, drain, cool_down, .. } = self.tuning;
        let coarse = heartbeat.min(drain).min(cool_down) / 16;
        let timers = self.timers.next().max(self.now.saturating_add(INTERVAL.max(coarse)));
        let others = [self.openings.next_at(), self.confirmations.next_at(), self.deadlines.next_at()];
        others.into_iter().flatten().fold(timers, |first, at| first.min(at.max(self.now)))
    }

    /// Iterates over the rails, in order.
    pub fn rails(&self) -> impl Iterator<Item = &Properties> {
        self.rails.iter().map(RailState::properties)
    }

    /// Returns how often rails were reset.
    pub fn resets(&self) -> u64 {
        self.rails.iter().map(|rail| rail.generation()).sum()
    }

    /// Returns `true` if a rail can be used.
    pub fn is_rail_alive(&self, rail: usize) -> bool {
        self.rails[rail].death().is_none()
    }

    /// Handles a link that its rail reports as failed.
    pub fn handle_link_down(&mut self, rail: usize, link: LinkKey, reason: &RailError) {
        if let Some((peer, index)) = self.rails[rail].owner(link) {
            self.fail_link(peer, index, reason);
        }
    }

    /// Lets the timers of a peer run soon, because something has begun that takes time.
    #[inline]
    fn touch(&mut self, key: PeerKey) {
        // Not at once: more may begin in this step, and one run is for all of it.
        self.schedule(key, INTERVAL);
    }

    /// Lets the timers of a peer run within a heartbeat interval, because something waits for it.
    #[inline]
    fn expect(&mut self, key: PeerKey) {
        self.schedule(key, self.tuning.heartbeat);
    }

    /// Lets the timers of a peer run within this time.
    #[inline]
    fn schedule(&mut self, key: PeerKey, within: u64) {
        let at = self.now.saturating_add(within);
        if let Some(peer) = self.peers.get_mut(key) {
            self.timers.schedule(key, &mut peer.due_at, at);
        }
    }

    /// Lets resets and revocations be looked at soon.
    fn touch_common(&mut self) {
        self.timers.schedule_common(self.now.saturating_add(INTERVAL));
    }

    /// Runs everything that depends on time and is due: pings, links that fail or come back,
    /// lost peers, resets, grants being revoked.
    fn run_timers(&mut self) {
        let (now, times) = (self.now, self.tuning.link_times());
        // A peer is due again later than now, so this ends.
        while let Some(key) = self.timers.take_due(now) {
            self.peers[key].due_at = Time::NEVER;
            self.run_peer_timers(key);
            // A lost peer is forgotten by its timers.
            let Some(peer) = self.peers.get_mut(key) else { continue };
            let rails = &self.rails;
            let at = peer.next_due(now, &self.tuning, &times, |rail| rails[rail].must_be_polled());
            self.timers.schedule(key, &mut peer.due_at, at.max(now.saturating_add(INTERVAL)));
        }
        if self.timers.take_common(now) {
            // Resets before revocations, which may wait for one.
            self.run_resets();
            self.run_revokes();
        }
    }

    /// Returns the next event.
    #[inline]
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn report(&mut self, event: Event) {
        self.events.push_back(event);
    }

    fn report_peer(&mut self, key: PeerKey, change: PeerChange) {
        self.report(Event::Peer(key, change));
    }

    /// Reports the new value of a counter. Pages arrive one by one; consecutive events of one
    /// counter are merged, so that a waiter is woken once.
    fn report_reached(&mut self, counter: CounterId, reached: u64) {
        match self.events.back_mut() {
            // The value only grows, so the last one is all that a waiter needs.
            Some(Event::Reached(last, value)) if *last == counter => *value = reached,
            _ => self.report(Event::Reached(counter, reached)),
        }
    }

    fn peer(&mut self, key: PeerKey) -> Option<&mut Peer> {
        self.peers.get_mut(key)
    }

    fn send(&mut self, key: PeerKey, frame: Frame) {
        self.outputs.push_back(Output::Frame(key, frame));
    }

    fn send_all(&mut self, key: PeerKey, frames: Vec<Frame>) {
        for frame in frames {
            self.send(key, frame);
        }
    }

    /// Returns `true` if an operation is in flight.
    #[inline]
    pub fn has_in_flight(&self) -> bool {
        self.in_flight.len() > 0
    }

    /// Returns `true` if nothing is in flight, and no request is open.
    pub fn is_idle(&self) -> bool {
        self.peers.iter().all(|peer| peer.links.in_flight() == 0 && peer.is_idle())
    }
}

impl std::fmt::Debug for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Machine").field("rails", &self.rails.len()).finish_non_exhaustive()
    }
}
