//! What an engine does: peers, links, transfers, counters, grants and messages, without thread, clock or socket.
//!
//! Time is a number that the caller passes in. Frames of peers come in by [`Machine::handle_frame`], and what is to be sent goes out by
//! [`Machine::poll_output`]. What is to be done with [rails](crate::rail) goes out by [`Machine::poll_control`] and [`Machine::poll_post`], and what rails tell comes in by
//! `handle_…`; the carrier of the crate `rail` does both, and has the memory. What is to be told to whoever has asked goes out by
//! [`Machine::poll_event`]. So a simulation can own all of them, and drive the same code through a hundred thousand histories.
//!
//! Whoever drives a machine carries its frames, does its work and tells the time. Two that have no rail in common part at once:
//!
//! ```
//! use farreach_proto::lost::LostReason;
//! use farreach_proto::machine::{Event, Machine, Output, PeerChange, Tuning};
//! use farreach_proto::wire::Hello;
//!
//! const MS: u64 = 1_000_000;
//! let tuning = Tuning {
//!     heartbeat: 100 * MS,
//!     silence: 1000 * MS,
//!     stall: 500 * MS,
//!     drain: 500 * MS,
//!     cool_down: 100 * MS,
//!     messages: 16,
//!     message_max: 4096,
//! };
//! let [mut here, mut there] = [1, 2].map(|life| Machine::new(Vec::new(), Hello::new(life), tuning.clone()));
//! let (_peer, peer_there) = (here.add_peer(true, 0), there.add_peer(false, 0));
//! while let Some(Output::Frame(_, frame)) = here.poll_output() {
//!     there.handle_frame(peer_there, frame, MS);
//! }
//! let mut events = std::iter::from_fn(|| there.poll_event());
//! assert!(events.any(|event| {
//!     matches!(event, Event::Peer(_, PeerChange::Lost(LostReason::NoCommonRail { .. })))
//! }));
//! ```

mod atomic;
mod census;
mod counter;
mod dead_rail;
mod event;
mod frame;
mod grant;
mod id_map;
mod in_flight;
mod keep_alive;
mod links;
mod looking;
mod lose;
mod marks;
mod message;
mod own_grants;
mod peer;
mod peers;
mod rail;
mod reset;
#[cfg(test)]
mod tests;
mod timers;
mod transfer;
mod turns;
mod work;

use std::collections::VecDeque;

use crate::counter::CounterId;
use crate::wire::{Frame, Hello};

use counter::CounterDesk;
use in_flight::InFlightTable;
use looking::Looking;
use marks::Marks;
use own_grants::OwnGrants;
use peer::{LinkTimes, Peer};
use peers::Peers;
use rail::RailState;
use timers::Timers;
use turns::Turns;

pub use atomic::{AtomicOperation, NewAtomic};
pub use census::Census;
pub use event::{Event, OpId, PeerChange};
pub use grant::RemoteKeys;
pub use id_map::IdMap;
pub use links::pairs_of;
pub use message::HEADER;
pub use peers::PeerKey;
pub use rail::RailInfo;
pub use transfer::{Direction, NewTransfer, TransferEnd, TransferFault};
pub use work::{Content, Control, KeysEnded, LinkEnd, Opening, Post};

use crate::rail::{LinkKey, Properties, RailError};

/// Times, in nanoseconds, and bounds.
#[derive(Debug, Clone)]
pub struct Tuning {
    /// How often a peer hears from us at least.
    pub heartbeat: u64,
    /// A peer that is silent for so long is lost.
    pub silence: u64,
    /// A link on which nothing has moved for so long, while its peer is well, is lost.
    pub stall: u64,
    /// How long what is in flight on a failed link may take to come back, before the rail is reset.
    pub drain: u64,
    /// How long a failed link is left alone.
    pub cool_down: u64,
    /// Messages that a peer may send before the user takes them.
    pub messages: u32,
    /// The longest message of the user's.
    pub message_max: usize,
}

impl Tuning {
    fn link_times(&self) -> LinkTimes {
        LinkTimes { stall: self.stall, drain: self.drain }
    }
}

/// What is to be done outside.
#[derive(Debug)]
pub enum Output {
    /// To be sent to a peer.
    Frame(PeerKey, Frame),
    /// The connection to a peer is to be closed.
    Close(PeerKey),
}

/// See the [module](self).
pub struct Machine {
    rails: Vec<RailState>,
    peers: Peers,
    turns: Turns,
    counters: CounterDesk,
    grants: OwnGrants,
    marks: Marks,
    in_flight: InFlightTable,
    control: VecDeque<Control>,
    outputs: VecDeque<Output>,
    events: VecDeque<Event>,
    hello: Hello,
    tuning: Tuning,
    now: u64,
    timers: Timers,
    looking: Looking,
    /// Whose messages came in this step: they are told that these are held.
    heard_from: Vec<PeerKey>,
    /// Who hears when all peers are gone.
    closing: Vec<OpId>,
}

impl Machine {
    /// A machine without peers, over these rails. `hello` is what each peer is told first.
    pub fn new(rails: Vec<RailInfo>, mut hello: Hello, tuning: Tuning) -> Self {
        let rails: Vec<RailState> = rails.into_iter().map(RailState::new).collect();
        hello.rails = rails.iter().map(|rail| rail.properties().kind.clone()).collect();
        hello.messages = tuning.messages;
        Self {
            rails,
            peers: Peers::default(),
            turns: Turns::default(),
            counters: CounterDesk::default(),
            grants: OwnGrants::default(),
            marks: Marks::default(),
            in_flight: InFlightTable::default(),
            control: VecDeque::new(),
            outputs: VecDeque::new(),
            events: VecDeque::new(),
            hello,
            timers: Timers::new(tuning.heartbeat),
            looking: Looking::default(),
            heard_from: Vec::new(),
            closing: Vec::new(),
            tuning,
            now: 0,
        }
    }

    /// A connection to a peer stands. `is_initiator`: we have made it.
    pub fn add_peer(&mut self, is_initiator: bool, now: u64) -> PeerKey {
        self.now = now;
        let key = self.peers.add(Peer::new(is_initiator, &self.tuning, now));
        self.send(key, Frame::Hello(self.hello.clone()));
        key
    }

    /// A step begins: rails are asked next what has happened.
    pub fn begin_step(&mut self, now: u64) {
        self.now = now;
    }

    /// All rails were asked: what there is room for is posted next.
    pub fn end_polls(&mut self) {
        self.tell_held();
        self.turns.ask_all_senders();
    }

    /// What there was room for was posted. Looks at the time, and ends the step in which something `happened` or not.
    pub fn end_step(&mut self, happened: bool) {
        if happened {
            self.mark_dirty();
        }
        if self.timers.are_due(self.now) {
            self.run_timers();
        }
    }

    /// What is to be done outside, one thing at a time.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When the next step is due, though nothing happens until then.
    pub fn poll_timeout(&self) -> u64 {
        self.timers.next_step(&self.tuning, self.now)
    }

    /// The rails, in order.
    pub fn rails(&self) -> impl Iterator<Item = &Properties> {
        self.rails.iter().map(RailState::properties)
    }

    /// How often rails were reset.
    pub fn resets(&self) -> u64 {
        self.rails.iter().map(|rail| rail.generation()).sum()
    }

    /// Whether a rail is of use.
    pub fn is_rail_alive(&self, rail: usize) -> bool {
        self.rails[rail].death().is_none()
    }

    /// A link is of no use any more, as its rail has found.
    pub fn handle_link_down(&mut self, rail: usize, link: LinkKey, reason: &RailError) {
        if let Some((peer, index)) = self.rails[rail].owner(link) {
            self.fail_link(peer, index, reason);
        }
    }

    /// Something has begun that takes time: timers are looked at soon.
    fn mark_dirty(&mut self) {
        self.timers.mark_dirty(self.now);
    }

    /// What takes time: keep-alives, links that fail or come back, grants that are wanted back, peers that are gone.
    fn run_timers(&mut self) {
        self.timers.begin(self.tuning.heartbeat);
        for key in self.peers.keys() {
            self.run_peer_timers(key);
            if let Some(peer) = self.peers.get(key) {
                self.timers.note(peer.is_active());
                self.timers.note_heartbeat(peer.heartbeat);
            }
        }
        self.run_resets();
        self.run_revokes();
        self.timers.end(self.now);
    }

    /// What is to be told, one thing at a time.
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

    /// A counter has risen. Pages arrive one by one, and who waits for them hears of them together.
    fn report_reached(&mut self, counter: CounterId, reached: u64) {
        match self.events.back_mut() {
            Some(Event::Reached(last, value)) if *last == counter => *value = reached,
            _ => self.report(Event::Reached(counter, reached)),
        }
    }

    fn peer(&mut self, key: PeerKey) -> Option<&mut Peer> {
        self.peers.get_mut(key)
    }

    fn send(&mut self, key: PeerKey, frame: Frame) {
        let now = self.now;
        if let Some(peer) = self.peer(key) {
            peer.spoke_at = now;
        }
        self.outputs.push_back(Output::Frame(key, frame));
    }

    fn send_all(&mut self, key: PeerKey, frames: Vec<Frame>) {
        for frame in frames {
            self.send(key, frame);
        }
    }

    /// Whether nothing is in flight, and nothing is asked for.
    pub fn is_idle(&self) -> bool {
        self.peers.iter().all(|peer| peer.links.in_flight() == 0 && peer.is_idle())
    }
}

impl std::fmt::Debug for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Machine").field("rails", &self.rails.len()).finish_non_exhaustive()
    }
}
