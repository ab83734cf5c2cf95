//! How a network behaves.

use std::ops::RangeInclusive;

use super::chance::Chance;

/// How a simulated network behaves. The same settings, asked for the same things at the same times, give the same history.
///
/// ```
/// use farreach_sim::SimSettings;
///
/// let settings = SimSettings { delay_ns: 1_000..=1_000, ..SimSettings::new(7) };
/// assert_eq!(settings.odds.link_dies, 0, "nothing fails unless it is told to");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SimSettings {
    /// What all chance comes from.
    pub seed: u64,
    /// How long each step of a request takes: until its card reads the bytes, until they land, until the answer is back.
    pub delay_ns: RangeInclusive<u64>,
    /// How much longer one takes when [`Odds::long_delay`] comes up.
    pub long_delay_ns: RangeInclusive<u64>,
    /// How long a card that tells of dead peers tries before it does.
    pub dead_after_ns: RangeInclusive<u64>,
    /// How long a card without a cable, a stopped host or a full queue stays so.
    pub outage_ns: RangeInclusive<u64>,
    /// The bytes of a request move in at most so many parts.
    pub parts_max: u8,
    /// So many events at most are told by one poll.
    pub poll_max: usize,
    /// How often something goes wrong.
    pub odds: Odds,
    /// So many of the last things that happened are kept for [`SimNetwork::notes`](super::SimNetwork::notes).
    pub notes_max: usize,
}

impl SimSettings {
    /// A network on which requests take their time, and nothing else goes wrong by itself.
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

    /// A network on which everything goes wrong that can. The seed decides also what, and how often: many runs with some kinds of
    /// failure each find more than one with all of them.
    ///
    /// Hosts are killed only where the caller asks for it by [`Odds::host_killed`], because he must start them again.
    ///
    /// ```
    /// use farreach_sim::SimSettings;
    ///
    /// assert_eq!(SimSettings::stormy(7), SimSettings::stormy(7));
    /// assert_ne!(SimSettings::stormy(7).odds, SimSettings::stormy(8).odds);
    /// ```
    pub fn stormy(seed: u64) -> Self {
        // Another stream than the network's own, or the first delays would say what the odds are.
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

/// How often something goes wrong: once in so many times, and 0 is never.
///
/// Links, cards, queues and hosts fail some time after a post that draws it. Each of these can also be called for by name, at
/// [`SimNetwork`](super::SimNetwork).
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
    /// A post finds no room, though there is some.
    pub post_refused: u32,
    /// A poll fails, and tells nothing.
    pub poll_fails: u32,
    /// A card takes nothing for a while.
    pub queue_fills: u32,
    /// A link dies.
    pub link_dies: u32,
    /// A card loses its cable for a while, and with it all links.
    pub card_fails: u32,
    /// A host stops for a while.
    pub host_stops: u32,
    /// A host is killed.
    pub host_killed: u32,
    /// A link, a connection, a registration or a key cannot be made.
    pub setup_fails: u32,
    /// A key cannot be ended.
    pub end_key_fails: u32,
    /// A reset fails, and the card is of no use any more.
    pub reset_fails: u32,
}
