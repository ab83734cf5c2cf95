//! What an engine does: peers, links, transfers, counters, grants and messages, without thread, clock or socket.
//!
//! Time is a number that the caller passes in. Frames of peers come in by [`Machine::frame`], and what is to be sent goes out by
//! [`Machine::output`]; rails are [providers](crate::provider), polled and posted to from here only. So a simulation can own all of
//! them, and drive the same code through a hundred thousand histories.

mod blind;
#[cfg(test)]
mod census;
mod counter;
mod dead;
mod frame;
mod grant;
mod heart;
mod link;
mod lose;
mod memory;
mod message;
mod numbers;
mod peer;
mod rail;
mod reset;
#[cfg(test)]
mod tests;
mod transfer;
mod watch;
mod word;

use std::collections::VecDeque;
use std::sync::Arc;

use farreach_core::credit::Turns;
use farreach_core::wire::{Frame, Hello};
use farreach_memory::Memory;

use counter::CounterDesk;
use grant::OwnGrant;
use message::Pool;
use numbers::NumberMap;
use peer::Peer;
use rail::Rail;

pub(crate) use grant::RevokeAnswer;
#[cfg(test)]
pub(crate) use link::pairs_of;
pub(crate) use message::HEADER;
#[cfg(test)]
pub(crate) use tests::plain_hello;
pub(crate) use transfer::{Direction, Held, Order, TransferAnswer, TransferFault};
pub(crate) use watch::{CounterCell, PeerCell, Watch, Watcher};
pub(crate) use word::{WordOrder, WordRequest};

use crate::Rights;
use crate::helm::Promise;
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

/// See the [module](self).
pub(crate) struct Machine {
    rails: Vec<Rail>,
    /// By their keys, which are never used again.
    peers: Vec<Option<Box<Peer>>>,
    turns: Turns,
    /// Who has messages to be posted.
    talkers: VecDeque<PeerKey>,
    counters: CounterDesk,
    grants: NumberMap<u64, OwnGrant>,
    next_grant: u64,
    /// Those that are wanted back, in turn; some may be back already.
    revoking: VecDeque<u64>,
    /// What messages are marked with, and whose they are.
    marks: NumberMap<u32, (PeerKey, usize)>,
    next_mark: u32,
    pool: Pool,
    /// Lists of buffers that came back: used again, so that posting allocates nothing.
    lists: Vec<Vec<farreach_memory::Buffer>>,
    /// Links that a poll has found to be of no use any more.
    failing: Vec<(PeerKey, usize, ProviderError)>,
    outputs: VecDeque<Output>,
    hello: Hello,
    tuning: Tuning,
    now: u64,
    /// When timers are looked at again, and whether nothing but hearts was found when they last were.
    tend_at: u64,
    is_calm: bool,
    /// When something last came or went on a rail that cannot wake anybody, and until when to look there.
    moved_at: u64,
    look_until: u64,
    /// Of ours and of what the peers that are there want to hear.
    shortest_heartbeat: u64,
    /// Whose messages came in this step: they are told that these are held.
    heard_from: Vec<PeerKey>,
    /// Who hears when all peers are gone.
    closing: Option<Promise<()>>,
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
            grants: NumberMap::default(),
            next_grant: 1,
            revoking: VecDeque::new(),
            marks: NumberMap::default(),
            next_mark: 1,
            pool,
            lists: Vec::new(),
            failing: Vec::new(),
            outputs: VecDeque::new(),
            hello,
            shortest_heartbeat: tuning.heartbeat,
            heard_from: Vec::new(),
            closing: None,
            tuning,
            now: 0,
            tend_at: 0,
            is_calm: false,
            moved_at: 0,
            look_until: 0,
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
        self.tell_held();
        happened |= self.post_messages();
        happened |= self.post_pages();
        if happened {
            self.stir();
        }
        if now >= self.tend_at {
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
            self.shortest_heartbeat.min(self.tuning.drain).min(self.tuning.cool_down).max(TEND_EVERY);
        let step = if self.is_calm { shortest / 2 } else { TEND_EVERY.max(shortest / 16) };
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

    /// How often rails were reset.
    pub(crate) fn resets(&self) -> u64 {
        self.rails.iter().map(|rail| rail.generation).sum()
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
            self.fail_link(peer, index, &error);
        }
        match polled {
            Ok(0) => false,
            Ok(_) => {
                self.moved(rail);
                true
            }
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

    /// Something has begun that takes time: timers are looked at soon.
    fn stir(&mut self) {
        self.is_calm = false;
        self.tend_at = self.tend_at.min(self.now + TEND_EVERY);
    }

    /// What takes time: hearts, links that fail or come back, grants that are wanted back, peers that are gone.
    fn tend(&mut self) {
        // What is found to be under way below changes it.
        self.is_calm = true;
        self.shortest_heartbeat = self.tuning.heartbeat;
        for index in 0..self.peers.len() {
            if self.peers[index].is_some() {
                self.tend_peer(PeerKey(index as u32));
            }
            if let Some(peer) = &self.peers[index] {
                self.is_calm &= !peer.is_unsettled();
                self.shortest_heartbeat = self.shortest_heartbeat.min(peer.heartbeat);
            }
        }
        self.tend_resets();
        self.tend_revokes();
        // With some thousand peers it takes a while; while they are all idle, hearts need no better clock.
        let every = if self.is_calm { TEND_EVERY.max(self.shortest_heartbeat / 8) } else { TEND_EVERY };
        self.tend_at = self.now + every;
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
    #[cfg(test)]
    pub(crate) fn is_idle(&self) -> bool {
        self.peers.iter().flatten().all(|peer| peer.in_flight() == 0 && peer.is_idle())
    }
}

impl std::fmt::Debug for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Machine").field("rails", &self.rails.len()).finish_non_exhaustive()
    }
}
