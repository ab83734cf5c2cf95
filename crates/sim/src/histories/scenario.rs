//! The scenario of a seed: hosts, cards, time limits and odds.

use std::ops::RangeInclusive;

use farreach_proto::machine::{Budgets, MessageHeader, Tuning};
use farreach_proto::wire::fields::Kind;

use super::chance::Chance;
use crate::{Odds, SimCard, SimSettings};

const MS: u64 = 1_000_000;

/// The maximum length of a message in bytes.
const MESSAGE_MAX: usize = 48;

/// A scenario, before anything has happened.
#[derive(Debug)]
pub(super) struct Scenario {
    /// The cards of each host.
    pub(super) hosts: Vec<Vec<SimCard>>,
    pub(super) tuning: Tuning,
    pub(super) network: SimSettings,
    /// The time for which users make requests and faults occur.
    pub(super) storm_ns: u64,
    /// The average time between two requests of users.
    pub(super) wish_gap_ns: u64,
    /// The maximum time from an event on a card to the poll that finds it.
    pub(super) poll_gap_ns: u64,
    /// The maximum time that a library takes to create an end of a link.
    pub(super) opening_ns: u64,
    /// The delay of the control connection.
    pub(super) control_ns: RangeInclusive<u64>,
    /// The times at which hosts stop and are killed.
    pub(super) faults: Vec<(u64, Fault)>,
    /// The weight of each kind of [request](super::user).
    pub(super) habits: [u32; WISHES],
    /// Pages are written again at once, once in so many times.
    pub(super) rewrite_once_in: u64,
    /// The lengths of pages in bytes: few different ones, so that sources fit many grants.
    pub(super) page_lens: Vec<usize>,
    /// Whether the certificates of hosts have names.
    pub(super) has_names: bool,
    /// The host that lies, if there is one.
    pub(super) lying: Option<Lying>,
}

/// How a host lies.
#[derive(Debug, Clone)]
pub(super) struct Lying {
    pub(super) host: usize,
    /// It is honest before this time.
    pub(super) begins_ns: u64,
    /// The only kind of frames that it lies about; `None` for all.
    pub(super) topic: Option<Kind>,
    /// Frames are dropped, repeated, delayed and altered once in so many times; 0 is never.
    pub(super) drops: u64,
    pub(super) repeats: u64,
    pub(super) delays: u64,
    pub(super) alters: u64,
    /// Frames are invented after a frame, and after each gap, once in so many times.
    pub(super) invents: u64,
    /// Work requests are forged after each gap, once in so many times.
    pub(super) forges: u64,
    pub(super) gap_ns: u64,
    /// The kind of frames that it floods others with.
    pub(super) flood: u64,
    /// Whether it uses the addresses of ends that were opened for others. If not, it knows the keys
    /// and marks that others were given. Whoever has both is that peer, for any card.
    pub(super) steals_addresses: bool,
}

/// The number of kinds of user requests.
pub(super) const WISHES: usize = 18;

/// A fault of a whole host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// Stops for so short a time that no peer loses it.
    StopShortly,
    /// Stops for so long that every peer loses it.
    StopLong,
    /// Its process ends, and the system closes its connections.
    Kill,
    /// It loses power: no connection is closed.
    Crash,
    /// A call into a library does not return. Later its process is killed.
    Hang,
    /// The control connections of two hosts are silent for so short a time that neither loses the
    /// other. Their links work.
    PartShortly,
    /// As before, for so long that one or both lose the other.
    PartLong,
}

impl Scenario {
    pub(super) fn new(seed: u64) -> Self {
        let mut chance = Chance::new(seed);
        let hosts = hosts(&mut chance);
        let storm_ns = chance.within(5..=60) * MS;
        let mut scenario = Self {
            hosts,
            tuning: tuning(&mut chance),
            network: network(&mut chance, seed),
            storm_ns,
            wish_gap_ns: *pick(&mut chance, &[30_000, 100_000, 300_000, 600_000]),
            poll_gap_ns: *pick(&mut chance, &[1, 2_000, 20_000, 100_000]),
            opening_ns: *pick(&mut chance, &[1, 10_000, 200_000]),
            control_ns: 1_000..=*pick(&mut chance, &[2_000, 50_000, 500_000]),
            faults: faults(&mut chance, storm_ns),
            habits: habits(&mut chance),
            rewrite_once_in: *pick(&mut chance, &[1, 2, 8]),
            page_lens: (0..chance.within(1..=2))
                .map(|_| *pick(&mut chance, &[8, 16, 40, 64, 128, 256, 1024]))
                .collect(),
            has_names: chance.once_in(2),
            lying: None,
        };
        match chance.below(24) {
            0..3 => scenario.make_late(&mut chance),
            3..11 => scenario.make_lying(&mut chance),
            _ => {}
        }
        scenario
    }

    /// Makes a scenario in which one host lies to at least two others.
    fn make_lying(&mut self, chance: &mut Chance) {
        while self.hosts.len() < 3 {
            let like = pick(chance, &self.hosts).clone();
            self.hosts.push(like);
        }
        // Lies hide behind faults of the network.
        if !chance.once_in(3) {
            self.network.odds = Odds::default();
        }
        self.tuning.budgets = Budgets { rails: 8, grants: 64, counters: 64, ..self.tuning.budgets };
        let is_separated = self.is_separated();
        let mut once_in = |most: u64| if chance.once_in(2) { 1 + chance.below(most) } else { 0 };
        let [drops, repeats, delays, alters, invents, forges] = [12, 12, 12, 12, 8, 4].map(&mut once_in);
        self.lying = Some(Lying {
            host: chance.index(self.hosts.len()),
            begins_ns: chance.below(self.storm_ns / 2),
            topic: chance.once_in(2).then(|| *pick(chance, Kind::ALL)),
            drops,
            repeats,
            delays,
            alters,
            invents,
            forges,
            gap_ns: *pick(chance, &[20_000, 100_000, 500_000]),
            flood: chance.below(7),
            steals_addresses: is_separated && chance.once_in(2),
        });
    }

    /// Returns `true` if every card separates its peers.
    pub(super) fn is_separated(&self) -> bool {
        let is_separating = |card: &SimCard| card.separates_peers && card.properties.immediates_name_link;
        self.hosts.iter().flatten().all(is_separating)
    }

    /// Makes a scenario in which links fail while bytes land late, while they are resent over
    /// others, reported and overwritten.
    fn make_late(&mut self, chance: &mut Chance) {
        let kind = match chance.below(6) {
            0 => SimCard::tcp(),
            1 | 2 => SimCard::isolated(),
            _ => SimCard::efa(),
        };
        self.hosts = (0..2).map(|_| (0..chance.within(2..=3)).map(|_| kind.clone()).collect()).collect();
        let network = &mut self.network;
        let link_dies = chance.within(10..=60) as u32;
        network.odds = Odds { long_delay: chance.within(8..=20) as u32, link_dies, ..Odds::default() };
        network.delay_ns = 1..=*pick(chance, &[1_000, 10_000]);
        (network.long_delay_ns, network.dead_after_ns) = (MS..=6 * MS, 100_000..=MS);
        (self.wish_gap_ns, self.control_ns) = (60_000, 1_000..=5_000);
        self.poll_gap_ns = *pick(chance, &[2_000, 2_000, 100_000]);
        (self.tuning.drain, self.tuning.cool_down) = (4 * MS, MS);
        (self.faults, self.rewrite_once_in, self.page_lens) = (Vec::new(), 1, vec![256]);
        // Users write, and abort nothing.
        self.habits = [6, 4, 4, 60, 0, 4, 0, 0, 0, 1, 0, 0, 4, 3, 1, 0, 0, 1];
    }

    /// A margin for everything that takes no time of its own: timers run only now and then.
    pub(super) fn slack_ns(&self) -> u64 {
        8 * MS + 4 * self.control_ns.end() + 4 * self.poll_gap_ns
    }

    /// Returns the silence below which a peer must not be lost.
    pub(super) fn forgiven_ns(&self) -> u64 {
        let lag = 2 * self.tuning.heartbeat + 2 * self.control_ns.end() + self.poll_gap_ns + 2 * MS;
        self.tuning.silence.saturating_sub(lag)
    }

    /// Returns the time within which everything that was begun ends once faults have stopped: a
    /// link without progress is detected, its rails are reset one after the other, and a new link
    /// is made.
    pub(super) fn settled_within_ns(&self) -> u64 {
        let Tuning { idle_heartbeat, silence, stall, drain, cool_down, .. } = self.tuning;
        let late = self.network.long_delay_ns.end();
        2 * idle_heartbeat + silence + 3 * stall + 12 * drain + 12 * cool_down + late + 4 * self.slack_ns()
    }
}

fn pick<'a, T>(chance: &mut Chance, choices: &'a [T]) -> &'a T {
    &choices[chance.index(choices.len())]
}

fn hosts(chance: &mut Chance) -> Vec<Vec<SimCard>> {
    let [rc, tcp, efa, isolated] = SimCard::kinds();
    let offered = [rc, SimCard::windows(), tcp, efa, isolated, SimCard::shared()];
    let mut kinds: Vec<SimCard> = (0..chance.within(1..=2)).map(|_| pick(chance, &offered).clone()).collect();
    // All hosts have both scopes.
    let has_both = chance.once_in(8);
    if has_both {
        let networks = &offered[..offered.len() - 1];
        kinds = vec![pick(chance, networks).clone(), SimCard::shared()];
    }
    let count = *pick(chance, &[2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 4, 4, 5, 6, 8]);
    let cards = |chance: &mut Chance| {
        let more = *pick(chance, &[0, 0, 1, 1, 2]);
        // The first card is of the same kind everywhere, so that all hosts can reach each other.
        let mut cards = vec![personality(chance, kinds[0].clone())];
        if has_both {
            cards.push(personality(chance, kinds[1].clone()));
        }
        for _ in 0..more {
            let kind = pick(chance, &kinds).clone();
            cards.push(personality(chance, kind));
        }
        let first = chance.index(cards.len());
        cards.swap(0, first);
        cards
    };
    (0..count).map(|_| cards(chance)).collect()
}

/// Varies the limits of a card.
fn personality(chance: &mut Chance, mut card: SimCard) -> SimCard {
    let properties = &mut card.properties;
    properties.window = *pick(chance, &[1, 2, 4, 9, 12, 16, 64]);
    properties.rate_bps = *pick(chance, &[1, 1_000_000_000, 100_000_000_000]);
    properties.has_atomics &= !chance.once_in(5);
    // As much as a message of the application needs.
    properties.message_max = MESSAGE_MAX + MessageHeader::LEN;
    let limits = &mut properties.limits;
    limits.pieces = *pick(chance, &[1, 2, 4, 16]);
    limits.pages = *pick(chance, &[1, 5, 64, 1024]);
    if chance.once_in(3) {
        limits.bytes = *pick(chance, &[48, 200, 1000]);
    }
    card.receives = *pick(chance, &[2, 8, 64]);
    card.queue_len = *pick(chance, &[4, 32, 512]);
    card
}

fn tuning(chance: &mut Chance) -> Tuning {
    let heartbeat = chance.within(2..=3) * MS;
    let silence = chance.within(14..=22) * MS;
    Tuning {
        heartbeat,
        idle_heartbeat: heartbeat * *pick(chance, &[1, 4]),
        silence,
        stall: silence + heartbeat + chance.within(1..=4) * MS,
        drain: chance.within(1..=4) * MS,
        cool_down: chance.within(1..=5) * MS,
        messages: *pick(chance, &[1, 2, 5, 16]),
        message_max: MESSAGE_MAX,
        // Faults cause more resets than any peer may.
        budgets: Budgets { resets: u32::MAX, ..Budgets::default() },
    }
}

/// Returns how often a peer cannot map the memory of a key. It is drawn apart from the rest of the scenario.
fn key_not_mapped(seed: u64) -> u32 {
    let mut chance = Chance::new(seed.rotate_left(23));
    if chance.once_in(2) { chance.within(5..=50) as u32 } else { 0 }
}

fn network(chance: &mut Chance, seed: u64) -> SimSettings {
    // A history with a few kinds of faults finds more than one with all of them.
    let mut once_in =
        |times: RangeInclusive<u64>, is_rare: bool| match chance.once_in(if is_rare { 6 } else { 2 }) {
            true => chance.within(times) as u32,
            false => 0,
        };
    let odds = Odds {
        long_delay: once_in(5..=100, false),
        post_refused: once_in(5..=100, false),
        poll_fails: once_in(5..=100, false),
        queue_fills: once_in(30..=500, false),
        link_dies: once_in(15..=150, false),
        card_fails: once_in(40..=400, false),
        setup_fails: once_in(8..=100, false),
        // A card that is broken for good, or a key that cannot be ended, hides other defects.
        end_key_fails: once_in(5..=50, true),
        reset_fails: once_in(2..=8, true),
        key_not_mapped: key_not_mapped(seed),
        host_stops: 0,
        host_killed: 0,
    };
    SimSettings {
        // Some histories have no faults: they must hold in any case.
        odds: if chance.once_in(16) { Odds::default() } else { odds },
        // The longest delays exceed all time limits: bytes land long after their link was given up.
        long_delay_ns: 100_000..=*pick(chance, &[2, 10, 60]) * MS,
        delay_ns: 1..=*pick(chance, &[1_000, 20_000, 300_000]),
        parts_max: 1 + chance.below(4) as u8,
        poll_max: 1 + chance.index(32),
        ..SimSettings::new(seed)
    }
}

fn faults(chance: &mut Chance, storm_ns: u64) -> Vec<(u64, Fault)> {
    let kinds = [
        Fault::StopShortly,
        Fault::StopShortly,
        Fault::StopLong,
        Fault::Kill,
        Fault::Crash,
        Fault::Hang,
        Fault::PartShortly,
        Fault::PartLong,
    ];
    let count = *pick(chance, &[0, 0, 1, 1, 2, 3]);
    (0..count).map(|_| (chance.below(storm_ns), *pick(chance, &kinds))).collect()
}

fn habits(chance: &mut Chance) -> [u32; WISHES] {
    //   connect grant count write read say word revoke drop close abort leave take publish expel withdraw share flush
    let mut habits = [6, 14, 8, 40, 12, 12, 12, 6, 2, 2, 4, 1, 8, 20, 8, 2, 6, 4];
    let (first, last) = habits.split_at_mut(13);
    for habit in first[4..12].iter_mut().chain(last) {
        if chance.once_in(3) {
            *habit = 0;
        }
    }
    habits
}
