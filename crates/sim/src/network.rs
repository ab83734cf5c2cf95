//! The network, as a test holds it.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use farreach_rail::LinkKey;

use super::end::CardState;
use super::world::World;
use super::{SimSettings, Violation};

/// Hosts, their cards, and all that is between them. Clones are the same network.
///
/// What goes wrong by chance ([`Odds`](super::Odds)) can also be called for, by the methods below. The [module](super) shows how to drive it.
///
/// ```
/// use farreach_sim::{SimNetwork, SimSettings};
///
/// let network = SimNetwork::new(SimSettings::new(7));
/// network.advance_to(1_000);
/// assert_eq!((network.now(), network.next_event_at()), (1_000, None));
/// ```
#[derive(Clone)]
pub struct SimNetwork {
    world: Arc<Mutex<World>>,
}

/// Names a card of a network. One that comes back after its host was killed has another name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CardId(pub u32);

impl CardId {
    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for CardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl SimNetwork {
    /// One whose time stands still until it is advanced.
    pub fn new(settings: SimSettings) -> Self {
        Self { world: Arc::new(Mutex::new(World::new(settings, None))) }
    }

    /// One whose time is the clock's, from now on.
    pub fn real_time(settings: SimSettings) -> Self {
        Self { world: Arc::new(Mutex::new(World::new(settings, Some(Instant::now())))) }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, World> {
        // A test that panics is over; what is asked for then is what it has left.
        let mut world = self.world.lock().unwrap_or_else(PoisonError::into_inner);
        world.catch_up();
        world
    }

    /// The seed that replays it.
    pub fn seed(&self) -> u64 {
        self.lock().settings.seed
    }

    /// What time it is.
    pub fn now(&self) -> u64 {
        self.lock().now_ns
    }

    /// Lets time go on, and everything happen that is due until then. It does not go back.
    pub fn advance_to(&self, at_ns: u64) {
        self.lock().advance_to(at_ns);
    }

    /// When something happens next, always later than now; none where nothing will, unless it is asked for. What is due and only waits for a poll does not
    /// count: [`waits_for_poll`](Self::waits_for_poll) tells of that, and a poll may bring about more.
    pub fn next_event_at(&self) -> Option<u64> {
        self.lock().next_event_at()
    }

    /// Whether a poll of some card would tell or do something now: of a host that runs, that is.
    pub fn waits_for_poll(&self) -> bool {
        let world = self.lock();
        world.cards.iter().any(|card| {
            let is_running = world.hosts[card.host].stopped_until_ns <= world.now_ns;
            let has_something = !card.ready.is_empty() || !card.inbox.is_empty();
            card.state == CardState::Alive && is_running && has_something
        })
    }

    /// What whoever uses the cards has done wrong so far.
    pub fn violations(&self) -> Vec<Violation> {
        self.lock().record.violations().to_vec()
    }

    /// A digest of all that has happened: equal ones are equal histories.
    pub fn history(&self) -> u64 {
        self.lock().record.digest()
    }

    /// How often links were killed, cards cut off, queues filled and so on.
    pub fn counts(&self) -> Vec<(&'static str, u64)> {
        self.lock().record.counts().collect()
    }

    /// The last things that happened, as many as [`SimSettings::notes_max`] says: time, what, who and a number.
    pub fn notes(&self) -> Vec<String> {
        self.lock().record.notes()
    }

    /// Requests and keys of cards that were dropped without proof that they have stopped. Their memory is kept.
    pub fn leaked(&self) -> usize {
        self.lock().leaked
    }

    /// The end of a link that a card has made last.
    pub fn newest_link(&self, card: CardId) -> Option<LinkKey> {
        let world = self.lock();
        let place = world.ends.iter().rposition(|end| end.card == card.index())?;
        Some(LinkKey(place as u64))
    }

    /// The next request over a link takes so much longer: where the card keeps the order so do those behind it, elsewhere they overtake
    /// it.
    pub fn delay_next(&self, link: LinkKey, by_ns: u64) {
        let mut world = self.lock();
        if let Some(end) = world.ends.get_mut(link.0 as usize) {
            end.next_delay_ns = by_ns;
        }
    }

    /// A card has no room for the next requests, so many of them.
    pub fn refuse_posts(&self, card: CardId, count: u32) {
        self.lock().cards[card.index()].refusals_left = count;
    }

    /// The next polls of a card fail, so many of them. Nothing is lost by it.
    pub fn fail_polls(&self, card: CardId, count: u32) {
        self.lock().cards[card.index()].failing_polls_left = count;
    }

    /// A card has no room for so long.
    pub fn fill_queue(&self, card: CardId, for_ns: u64) {
        self.lock().fill_queue(card.index(), for_ns);
    }

    /// A link dies, in both directions. What has landed has landed.
    pub fn kill_link(&self, link: LinkKey) {
        let mut world = self.lock();
        if (link.0 as usize) < world.ends.len() {
            world.kill_link(link.0 as usize);
        }
    }

    /// A card loses its cable: all its links die, and new ones do not work until it is [mended](Self::mend_card).
    pub fn fail_card(&self, card: CardId) {
        self.lock().cut_cable(card.index());
    }

    /// A card gets its cable back. Links that died stay dead.
    pub fn mend_card(&self, card: CardId) {
        self.lock().mend_cable(card.index());
    }

    /// The next reset of a card fails, and it is of no use any more. What was in flight is not proven to have stopped.
    pub fn break_card(&self, card: CardId) {
        self.lock().cards[card.index()].next_reset_fails = true;
    }

    /// A host is killed: its cards, requests and memory are gone from one moment to the next. A new provider on it starts it again.
    ///
    /// What its engine had is to be dropped by the caller, then or later: its providers refuse everything, except that what ends something says that
    /// it is ended.
    pub fn kill_host(&self, host: u32) {
        let mut world = self.lock();
        if let Some(host) = world.hosts.iter().position(|there| there.number == host) {
            world.kill_host(host);
        }
    }

    /// Whether a host was killed, and not started again.
    pub fn is_killed(&self, host: u32) -> bool {
        self.lock().hosts.iter().any(|there| there.number == host && there.is_killed)
    }

    /// A host does nothing for so long: it polls in vain. Its cards still serve peers, if they are of a kind that does so by itself.
    pub fn stop_host(&self, host: u32, for_ns: u64) {
        let mut world = self.lock();
        if let Some(host) = world.hosts.iter().position(|there| there.number == host) {
            world.stop_host(host, Some(for_ns));
        }
    }

    /// Whether a host is stopped now. Whoever drives engines does not step this one meanwhile.
    pub fn is_stopped(&self, host: u32) -> bool {
        let world = self.lock();
        world.hosts.iter().any(|there| there.number == host && there.stopped_until_ns > world.now_ns)
    }

    /// Whether a card can still be used: its host was not killed, and no reset of it has failed.
    pub fn is_usable(&self, card: CardId) -> bool {
        self.lock().cards[card.index()].state == CardState::Alive
    }

    /// From now on nothing goes wrong by itself, cables are back, and stopped hosts go on. What died stays dead.
    pub fn calm(&self) {
        self.lock().calm();
    }
}

impl fmt::Debug for SimNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let world = self.lock();
        f.debug_struct("SimNetwork")
            .field("seed", &world.settings.seed)
            .field("now_ns", &world.now_ns)
            .finish_non_exhaustive()
    }
}
