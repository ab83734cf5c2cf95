//! Settings of a simulated network.

use std::ops::RangeInclusive;

use super::chance::Chance;

/// Settings of a simulated network. The same settings and the same calls at the same times give the
/// same history.
///
/// ```
/// use farreach_sim::SimSettings;
///
/// let settings = SimSettings { delay_ns: 1_000..=1_000, ..SimSettings::new(7) };
/// assert_eq!(settings.odds.link_dies, 0, "nothing fails by default");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SimSettings {
    /// The seed of all random decisions.
    pub seed: u64,
    /// The duration of each step of a work request: until its card reads the bytes, until they
    /// land, until the answer is back.
    pub delay_ns: RangeInclusive<u64>,
    /// The additional duration when [`Odds::long_delay`] is drawn.
    pub long_delay_ns: RangeInclusive<u64>,
    /// The time for which a card retries before it reports a dead peer, if it is of a kind that
    /// does.
    pub dead_after_ns: RangeInclusive<u64>,
    /// The duration of an outage: a card without a cable, a stopped host, a full queue.
    pub outage_ns: RangeInclusive<u64>,
    /// The maximum number of parts in which the bytes of a work request move.
    pub parts_max: u8,
    /// The maximum number of events that one poll reports.
    pub poll_max: usize,
    /// The probabilities of faults.
    pub odds: Odds,
    /// The number of latest events kept for [`SimNetwork::notes`](super::SimNetwork::notes).
    pub notes_max: usize,
}

impl SimSettings {
    /// Creates settings of a network with delays, in which nothing fails by itself.
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            delay_ns: 500..=20_000,
            long_delay_ns: 100_000..=2_000_000,
            dead_after_ns: 200_000..=5_000_000,
            outage_ns: 100_000..=20_000_000,
            parts_max: 3,
            poll_max: 32,
            odds: Odds::default(),
            notes_max: 0,
        }
    }

    /// Creates settings of a network in which everything fails that can. The seed also determines
    /// which faults occur, and how often: many runs with a few kinds of faults each find more than
    /// one run with all of them.
    ///
    /// Hosts are killed only if the caller sets [`Odds::host_killed`], because the caller must
    /// restart them.
    ///
    /// ```
    /// use farreach_sim::SimSettings;
    ///
    /// assert_eq!(SimSettings::stormy(7), SimSettings::stormy(7));
    /// assert_ne!(SimSettings::stormy(7).odds, SimSettings::stormy(8).odds);
    /// ```
    pub fn stormy(seed: u64) -> Self {
        // Uses another stream than the network's own, or the first delays would be correlated with
        // the odds.
        let mut chance = Chance::new(!seed);
        let mut odds = |often: u64, rarely: u64| match chance.coin() {
            true => (often + chance.below(rarely - often)) as u32,
            false => 0,
        };
        let odds = Odds {
            long_delay: odds(5, 100),
            post_refused: odds(5, 100),
            poll_fails: odds(5, 100),
            queue_fills: odds(50, 1000),
            link_dies: odds(20, 1000),
            card_fails: odds(100, 2000),
            host_stops: odds(100, 2000),
            host_killed: 0,
            setup_fails: odds(10, 100),
            end_key_fails: odds(20, 200),
            reset_fails: odds(20, 200),
            key_not_mapped: odds(5, 100),
        };
        let delay_max = [1_000, 20_000, 500_000][chance.below(3) as usize];
        Self {
            delay_ns: 1..=delay_max,
            parts_max: 1 + chance.below(4) as u8,
            poll_max: 1 + chance.below(32) as usize,
            odds,
            ..Self::new(seed)
        }
    }
}

/// Probabilities of faults: each occurs once in so many times; 0 is never.
///
/// Links, cards, queues and hosts fail some time after a post that draws the fault. Each fault can
/// also be injected by a method of [`SimNetwork`](super::SimNetwork).
///
/// ```
/// use farreach_sim::Odds;
///
/// let odds = Odds { post_refused: 10, ..Odds::default() };
/// assert_eq!(odds.poll_fails, 0);
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Odds {
    /// A step takes [longer](SimSettings::long_delay_ns).
    pub long_delay: u32,
    /// A post finds no room, although there is some.
    pub post_refused: u32,
    /// A poll fails, and reports nothing.
    pub poll_fails: u32,
    /// A card accepts nothing for a while.
    pub queue_fills: u32,
    /// A link fails.
    pub link_dies: u32,
    /// A card loses its cable for a while, and with it all links.
    pub card_fails: u32,
    /// A host stops for a while.
    pub host_stops: u32,
    /// A host is killed.
    pub host_killed: u32,
    /// A link, a connection, a registration or a key cannot be created.
    pub setup_fails: u32,
    /// A key cannot be ended.
    pub end_key_fails: u32,
    /// A reset fails, and the card can no longer be used.
    pub reset_fails: u32,
    /// The peer cannot map the memory of a key within the host, for one link.
    pub key_not_mapped: u32,
}
