//! The test's handle on the network.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use farreach_rail::{LinkKey, PeerKey};

use super::end::{CardState, EndState};
use super::world::World;
use super::{CardId, SimSettings, Violation};

/// Hosts, their cards, and everything between them. Clones refer to the same network.
///
/// Faults that occur by chance ([`Odds`](super::Odds)) can also be injected by the methods below.
/// The [crate documentation](super) shows how to drive a network.
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

impl SimNetwork {
    /// Creates a network whose time stands still until it is advanced.
    pub fn new(settings: SimSettings) -> Self {
        Self { world: Arc::new(Mutex::new(World::new(settings, None))) }
    }

    /// Creates a network that follows the real clock from now on.
    pub fn real_time(settings: SimSettings) -> Self {
        Self { world: Arc::new(Mutex::new(World::new(settings, Some(Instant::now())))) }
    }

    /// Creates a network in which nothing is left to chance, and the caller chooses [what happens
    /// next](Self::pending).
    #[cfg(test)]
    pub(crate) fn chosen(settings: SimSettings) -> Self {
        let network = Self::new(settings);
        network.lock().chance.set_coins([]);
        network
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, World> {
        // After a panic the state is only read for the report, so a poisoned lock is acceptable.
        let mut world = self.world.lock().unwrap_or_else(PoisonError::into_inner);
        world.catch_up();
        world
    }

    /// Returns the seed that replays the history.
    pub fn seed(&self) -> u64 {
        self.lock().settings.seed
    }

    /// Returns the current time in nanoseconds.
    pub fn now(&self) -> u64 {
        self.lock().now_ns
    }

    /// Advances the time, and runs everything that is due until then. Time never goes back.
    pub fn advance_to(&self, at_ns: u64) {
        self.lock().advance_to(at_ns);
    }

    /// Returns the time of the next event, which is always later than now. Returns `None` if
    /// nothing will happen by itself. Actions that are due and only wait for a poll do not count:
    /// [`waits_for_poll`](Self::waits_for_poll) reports those, and a poll may schedule more.
    pub fn next_event_at(&self) -> Option<u64> {
        self.lock().next_event_at()
    }

    /// Returns `true` if a poll of some card of a running host would report or do something now.
    pub fn waits_for_poll(&self) -> bool {
        let world = self.lock();
        (0..world.cards.len()).any(|card| world.has_for_poll(card))
    }

    /// Returns the violations of the cards' users so far.
    pub fn violations(&self) -> Vec<Violation> {
        self.lock().record.violations().to_vec()
    }

    /// Returns a digest of the history: equal digests are equal histories.
    pub fn history(&self) -> u64 {
        self.lock().record.digest()
    }

    /// Returns how often links were killed, cards cut off, queues filled and so on.
    pub fn counts(&self) -> Vec<(&'static str, u64)> {
        self.lock().record.counts().collect()
    }

    /// Returns the latest events, at most [`SimSettings::notes_max`]: time, event, subject and a
    /// number.
    pub fn notes(&self) -> Vec<String> {
        self.lock().record.notes()
    }

    /// Returns how often cards have registered an allocation. A card that has registered it before does
    /// not do so again.
    pub fn registrations(&self) -> u64 {
        self.lock().registrations
    }

    /// Returns whether a card could not be reset, so that nothing stops its operations.
    pub fn has_lost_card(&self) -> bool {
        self.lock().cards.iter().any(|card| card.state == CardState::Lost)
    }

    /// Returns the number of operations and keys of dropped cards without proof that they have
    /// stopped. Their memory is kept.
    pub fn leaked(&self) -> usize {
        self.lock().leaked
    }

    /// Returns the newest end of a link on a card.
    pub fn newest_link(&self, card: CardId) -> Option<LinkKey> {
        let world = self.lock();
        let place = world.ends.iter().rposition(|end| end.card == card.index())?;
        Some(LinkKey(place as u64))
    }

    /// Returns the links of a card that are connected.
    pub fn links_of(&self, card: CardId) -> Vec<LinkKey> {
        let world = self.lock();
        let ends = world.cards[card.index()].ends.iter();
        let connected = ends.filter(|end| world.ends[**end].state == EndState::Connected);
        connected.map(|end| LinkKey(*end as u64)).collect()
    }

    /// Returns the peer that a link was opened for.
    pub fn owner_of(&self, link: LinkKey) -> Option<PeerKey> {
        self.lock().ends.get(link.0 as usize).map(|end| end.owner)
    }

    /// Delays the next work request over a link. On an ordered card the later ones are delayed with
    /// it; on others they overtake it.
    pub fn delay_next(&self, link: LinkKey, by_ns: u64) {
        let mut world = self.lock();
        if let Some(end) = world.ends.get_mut(link.0 as usize) {
            end.next_delay_ns = by_ns;
        }
    }

    /// Makes a card refuse the next `count` work requests for want of room.
    pub fn refuse_posts(&self, card: CardId, count: u32) {
        self.lock().cards[card.index()].refusals_left = count;
    }

    /// Makes the next `count` polls of a card fail. Nothing is lost.
    pub fn fail_polls(&self, card: CardId, count: u32) {
        self.lock().cards[card.index()].failing_polls_left = count;
    }

    /// Makes a card refuse work requests for so long.
    pub fn fill_queue(&self, card: CardId, for_ns: u64) {
        self.lock().fill_queue(card.index(), for_ns);
    }

    /// Kills a link, in both directions. Bytes that have landed stay.
    pub fn kill_link(&self, link: LinkKey) {
        let mut world = self.lock();
        if (link.0 as usize) < world.ends.len() {
            world.kill_link(link.0 as usize);
        }
    }

    /// Cuts the cable of a card: all its links fail, and new ones do not work until it is
    /// [mended](Self::mend_card).
    pub fn fail_card(&self, card: CardId) {
        self.lock().cut_cable(card.index());
    }

    /// Reconnects the cable of a card. Links that failed stay dead.
    pub fn mend_card(&self, card: CardId) {
        self.lock().mend_cable(card.index());
    }

    /// Makes the next reset of a card fail. The card can then no longer be used, and operations in
    /// flight are not proven to have stopped.
    pub fn break_card(&self, card: CardId) {
        self.lock().cards[card.index()].next_reset_fails = true;
    }

    /// Kills a host: its cards, work requests and memory are gone at once. A new rail on it
    /// restarts it.
    ///
    /// The caller must drop the engine of the host, then or later. Its rails refuse everything,
    /// except that calls which end something succeed.
    pub fn kill_host(&self, host: u32) {
        let mut world = self.lock();
        if let Some(host) = world.hosts.iter().position(|there| there.number == host) {
            world.kill_host(host);
        }
    }

    /// Returns `true` if a host was killed and not restarted.
    pub fn is_killed(&self, host: u32) -> bool {
        self.lock().hosts.iter().any(|there| there.number == host && there.is_killed)
    }

    /// Stops a host for so long: its polls report nothing. Its cards still serve peers, if they are
    /// of a kind that works without polls.
    pub fn stop_host(&self, host: u32, for_ns: u64) {
        let mut world = self.lock();
        if let Some(host) = world.hosts.iter().position(|there| there.number == host) {
            world.stop_host(host, Some(for_ns));
        }
    }

    /// Returns `true` if a host is stopped now. The driver must not step its engine meanwhile.
    pub fn is_stopped(&self, host: u32) -> bool {
        let world = self.lock();
        world.hosts.iter().any(|there| there.number == host && there.stopped_until_ns > world.now_ns)
    }

    /// Returns `true` if a card can still be used: its host was not killed, and no reset of it has
    /// failed.
    pub fn is_usable(&self, card: CardId) -> bool {
        self.lock().cards[card.index()].state == CardState::Alive
    }

    /// Ends faults by chance, reconnects cables, and resumes stopped hosts. Links that failed stay
    /// dead.
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
