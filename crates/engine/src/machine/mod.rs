//! What an engine does: peers, links, transfers, counters, grants and messages, without thread, clock or socket.
//!
//! Time is a number that the caller passes in. Frames of peers come in by [`Machine::frame`], and what is to be sent goes out by
//! [`Machine::output`]; rails are [providers](crate::provider), polled and posted to from here only. So a simulation can own all of
//! them, and drive the same code through a hundred thousand histories.

#[cfg(test)]
mod census;
mod counter;
mod dead;
mod frame;
mod grant;
mod heart;
mod link;
mod lose;
mod message;
mod peer;
mod rail;
mod reset;
mod sequence;
mod transfer;
mod watch;
mod word;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use farreach_core::credit::Turns;
use farreach_core::wire::{Frame, Hello};
use farreach_memory::Memory;

use counter::CounterDesk;
use grant::OwnGrant;
use message::Pool;
use peer::Peer;
use rail::Rail;

#[cfg(test)]
pub(crate) use link::pairs_of;
pub(crate) use grant::{GrantMade, RevokeAnswer};
pub(crate) use message::HEADER;
pub(crate) use transfer::{Direction, Held, Order, TransferAnswer, TransferFault};
pub(crate) use watch::{CounterCell, PeerCell, Watch};
pub(crate) use word::{WordOrder, WordRequest};

use crate::Rights;
use crate::provider::{Event, Properties, Provider, ProviderError};

/// One peer of this engine's, for good: a peer that comes again is another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PeerKey(pub(crate) u32);

/// Times, in nanoseconds, and bounds.
#[derive(Debug, Clone)]
pub(crate) struct Tuning {
    /// How often a peer hears from us at least.
    pub(crate) heartbeat: u64,
    /// A peer that is silent for so long is lost.
    pub(crate) silence: u64,
    /// A link on which nothing has moved for so long, while its peer is well, is lost.
    pub(crate) stall: u64,
    /// How long what is in flight on a failed link may take to come back, before the rail is reset.
    pub(crate) drain: u64,
    /// How long a failed link is left alone.
    pub(crate) cool_down: u64,
    /// Messages that a peer may send before the user takes them.
    pub(crate) messages: u32,
    /// The longest message of the user's.
    pub(crate) message_max: usize,
}

/// What is to be done outside.
#[derive(Debug)]
pub(crate) enum Output {
    /// To be sent to a peer.
    Frame(PeerKey, Frame),
    /// The connection to a peer is to be closed.
    Close(PeerKey),
}

/// Whether the process that said this hello runs no more.
pub(crate) type IsGone = Box<dyn Fn(&Hello) -> bool + Send>;

/// See the [module](self).
pub(crate) struct Machine {
    rails: Vec<Rail>,
    /// By their keys, which are never used again.
    peers: Vec<Option<Box<Peer>>>,
    turns: Turns,
    /// Who has messages to be posted.
    talkers: VecDeque<PeerKey>,
    counters: CounterDesk,
    grants: HashMap<u64, OwnGrant>,
    next_grant: u64,
    /// What messages are marked with, and whose they are.
    marks: HashMap<u32, (PeerKey, usize)>,
    next_mark: u32,
    pool: Pool,
    /// Lists of buffers that came back: used again, so that posting allocates nothing.
    lists: Vec<Vec<farreach_memory::Buffer>>,
    /// Links that a poll has found to be of no use any more.
    failing: Vec<(PeerKey, usize, ProviderError)>,
    outputs: VecDeque<Output>,
    hello: Hello,
    tuning: Tuning,
    is_gone: IsGone,
    now: u64,
    /// When timers were last looked at.
    tended_at: u64,
}

/// Bytes that one peer may post before it is the next one's turn.
const TURN_BYTES: u32 = 1 << 20;
/// Operations that one step posts at most.
const POSTS_PER_STEP: usize = 64;
/// How often timers are looked at, at most.
const TEND_EVERY: u64 = 1_000_000;

impl Machine {
    pub(crate) fn new(
        providers: Vec<Box<dyn Provider>>,
        mut hello: Hello,
        tuning: Tuning,
        is_gone: IsGone,
    ) -> Result<Self, ProviderError> {
        let mut rails: Vec<Rail> = providers.into_iter().map(Rail::new).collect();
        hello.rails = rails.iter().map(|rail| rail.properties().kind.clone()).collect();
        hello.messages = tuning.messages;
        let pool = Pool::new(&mut rails, &tuning)?;
        Ok(Self {
            rails,
            peers: Vec::new(),
            turns: Turns::new(TURN_BYTES),
            talkers: VecDeque::new(),
            counters: CounterDesk::default(),
            grants: HashMap::new(),
            next_grant: 1,
            marks: HashMap::new(),
            next_mark: 1,
            pool,
            lists: Vec::new(),
            failing: Vec::new(),
            outputs: VecDeque::new(),
            hello,
            tuning,
            is_gone,
            now: 0,
            tended_at: 0,
        })
    }

    /// A connection to a peer stands. `is_initiator`: we have made it.
    pub(crate) fn add_peer(&mut self, is_initiator: bool, now: u64) -> (PeerKey, Arc<PeerCell>) {
        self.now = now;
        let key = PeerKey(self.peers.len() as u32);
        let cell = Arc::new(PeerCell::default());
        let peer = Peer::new(Arc::clone(&cell), is_initiator, &self.tuning, now);
        self.peers.push(Some(Box::new(peer)));
        self.send(key, Frame::Hello(self.hello.clone()));
        (key, cell)
    }

    /// One step: asks the rails what has happened, posts what there is room for, and looks at the time. Whether anything happened.
    pub(crate) fn step(&mut self, now: u64) -> bool {
        self.now = now;
        let mut happened = false;
        for rail in 0..self.rails.len() {
            happened |= self.poll_rail(rail);
        }
        happened |= self.post_messages();
        happened |= self.post_pages();
        if now >= self.tended_at + TEND_EVERY {
            self.tended_at = now;
            self.tend();
        }
        happened
    }

    /// What is to be done outside, one thing at a time.
    pub(crate) fn output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When the next step is due, though nothing happens until then.
    pub(crate) fn next_deadline(&self) -> u64 {
        // Half of the shortest time of all, where anybody is there; timers are few and coarse.
        let shortest =
            self.tuning.heartbeat.min(self.tuning.drain).min(self.tuning.cool_down).max(TEND_EVERY);
        let is_busy = self.peers.iter().flatten().any(|peer| peer.is_unsettled());
        let step = if is_busy { TEND_EVERY.max(shortest / 16) } else { shortest / 2 };
        self.now + step
    }

    /// The rails, in order.
    pub(crate) fn rails(&self) -> impl Iterator<Item = &Properties> {
        self.rails.iter().map(Rail::properties)
    }

    /// The providers, in order: to be slept on.
    pub(crate) fn providers(&mut self) -> impl Iterator<Item = &mut dyn Provider> {
        self.rails.iter_mut().map(Rail::provider)
    }

    /// Registers memory with every rail.
    pub(crate) fn register(&mut self, memory: &Memory) -> Result<(), ProviderError> {
        self.rails.iter_mut().try_for_each(|rail| rail.provider().register(memory))
    }

    fn poll_rail(&mut self, rail: usize) -> bool {
        if self.rails[rail].dead.is_some() {
            return false;
        }
        let mut provider = self.rails[rail].take();
        let polled = provider.poll(&mut |event| self.on_event(rail, event));
        self.rails[rail].put_back(provider);
        for (peer, index, error) in std::mem::take(&mut self.failing) {
            self.fail_link(peer, index, &error.to_string(), true);
        }
        match polled {
            Ok(count) => count > 0,
            // It proves nothing, and may go better the next time; the links' own deadlines see to the rest.
            Err(_) => false,
        }
    }

    fn on_event(&mut self, rail: usize, event: Event<'_>) {
        match event {
            Event::Completed { link, tag, buffers, outcome } => {
                self.on_completed(rail, link, tag, buffers, outcome);
            }
            Event::Tick { link, immediate } => self.on_tick(rail, link, immediate),
            Event::Message { bytes, .. } => self.on_message(bytes),
            Event::LinkDown { link, reason } => {
                if let Some(&(peer, index)) = self.rails[rail].links.get(&link) {
                    self.failing.push((peer, index, reason));
                }
            }
        }
    }

    /// What takes time: hearts, links that fail or come back, grants that are wanted back, peers that are gone.
    fn tend(&mut self) {
        for index in 0..self.peers.len() {
            if self.peers[index].is_some() {
                self.tend_peer(PeerKey(index as u32));
            }
        }
        self.tend_resets();
        self.tend_revokes();
    }

    fn peer(&mut self, key: PeerKey) -> Option<&mut Peer> {
        self.peers.get_mut(key.0 as usize)?.as_deref_mut()
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

    /// Whether nothing is under way or kept: for tests.
    pub(crate) fn is_idle(&self) -> bool {
        self.peers.iter().flatten().all(|peer| peer.in_flight() == 0 && peer.is_idle())
    }
}

impl std::fmt::Debug for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Machine").field("rails", &self.rails.len()).finish_non_exhaustive()
    }
}
