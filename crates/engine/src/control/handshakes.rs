//! Handshakes in progress: their deadlines, and how many accepted connections may have one.
//!
//! The handshake of an accepted connection lasts until the first frame of the peer has arrived. Any
//! stranger can begin one and leave it at that, so there is a limit, in all and per address. A
//! newcomer beyond it takes the place of the oldest: an honest peer is done within some round trips.
//! Many processes of one host may connect at the same moment, so the limit per address spares
//! handshakes that have just begun.
//!
//! Each operation takes logarithmic time at most.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use farreach_proto::machine::IdMap;

use super::ConnectionId;
use super::exceeded::Exceeded;
use crate::Origin;
use crate::budgets::ControlBudgets;

/// The age from which a handshake counts for the limit of its address, and can be ended to free its
/// descriptor. Hundreds of honest handshakes from one busy host take less.
pub(super) const GRACE: Duration = Duration::from_millis(100);

/// Connections in their handshake.
#[derive(Debug)]
pub(super) struct Handshakes {
    max: u32,
    per_address_max: u32,
    all: IdMap<ConnectionId, Handshake>,
    deadlines: BTreeSet<(Instant, ConnectionId)>,
    /// Accepted connections. Ids increase, so the first one is the oldest.
    accepted: BTreeSet<ConnectionId>,
    /// The same by address. Peers choose their addresses, so the hash needs its secret keys.
    by_address: HashMap<Origin, BTreeSet<ConnectionId>>,
}

#[derive(Debug)]
struct Handshake {
    begun: Instant,
    deadline: Instant,
    timeout: Duration,
    /// The address of the peer, if the connection was accepted.
    address: Option<Origin>,
}

impl Handshakes {
    pub(super) fn new(budgets: &ControlBudgets) -> Self {
        Self {
            max: budgets.handshakes,
            per_address_max: budgets.handshakes_per_address,
            all: IdMap::default(),
            deadlines: BTreeSet::new(),
            accepted: BTreeSet::new(),
            by_address: HashMap::new(),
        }
    }

    /// Adds a connection that this side has made or adopted.
    pub(super) fn begin(&mut self, id: ConnectionId, timeout: Duration, now: Instant) {
        self.add(id, None, timeout, now);
    }

    /// Adds an accepted connection. The caller then ends those in [`excess`](Self::excess).
    pub(super) fn begin_accepted(
        &mut self,
        id: ConnectionId,
        address: Origin,
        timeout: Duration,
        now: Instant,
    ) {
        self.add(id, Some(address), timeout, now);
        self.accepted.insert(id);
        self.by_address.entry(address).or_default().insert(id);
    }

    /// Returns a connection that has to end for a newcomer with this address, if there is one.
    /// Never returns the newest of an address that has others.
    pub(super) fn excess(&self, address: Origin, now: Instant) -> Option<(ConnectionId, Exceeded)> {
        let same = self.by_address.get(&address)?;
        // The newcomer is in the set already. If it is alone there, it is not the one to end.
        let oldest_of_same = same.first().copied().filter(|_| same.len() > 1);
        if same.len() > self.per_address_max as usize
            && let Some(oldest) = oldest_of_same
            && self.has_had_time(oldest, now)
        {
            return Some((oldest, Exceeded::HandshakesPerAddress(self.per_address_max)));
        }
        // This limit holds at any age: it bounds the descriptors of all strangers.
        if self.accepted.len() > self.max as usize {
            // The address of the newcomer pays first, so that one host ends no handshakes of others
            // while it has some itself.
            let oldest = oldest_of_same.or_else(|| self.accepted.first().copied())?;
            return Some((oldest, Exceeded::Handshakes(self.max)));
        }
        None
    }

    /// Returns the oldest accepted connection, unless it has just begun.
    pub(super) fn oldest(&self, now: Instant) -> Option<ConnectionId> {
        self.accepted.first().copied().filter(|id| self.has_had_time(*id, now))
    }

    fn has_had_time(&self, id: ConnectionId, now: Instant) -> bool {
        self.all.get(&id).is_some_and(|it| now.saturating_duration_since(it.begun) >= GRACE)
    }

    fn add(&mut self, id: ConnectionId, address: Option<Origin>, timeout: Duration, now: Instant) {
        // The sum may not be representable: a timeout can be `Duration::MAX`.
        let deadline = crate::time::later(now, timeout);
        self.deadlines.insert((deadline, id));
        self.all.insert(id, Handshake { begun: now, deadline, timeout, address });
    }

    /// Removes a connection whose handshake is done, or that has ended.
    pub(super) fn end(&mut self, id: ConnectionId) {
        let Some(handshake) = self.all.remove(&id) else { return };
        self.deadlines.remove(&(handshake.deadline, id));
        let Some(address) = handshake.address else { return };
        self.accepted.remove(&id);
        if let Some(same) = self.by_address.get_mut(&address) {
            same.remove(&id);
            // Otherwise each address that has ever connected would keep an entry.
            if same.is_empty() {
                self.by_address.remove(&address);
            }
        }
    }

    /// Returns the first deadline.
    pub(super) fn due(&self) -> Option<Instant> {
        self.deadlines.first().map(|(due, _)| *due)
    }

    /// Returns a connection whose deadline has passed, with its timeout. The caller ends it.
    pub(super) fn expired(&self, now: Instant) -> Option<(ConnectionId, Duration)> {
        let (_, id) = self.deadlines.first().filter(|(due, _)| *due <= now)?;
        Some((*id, self.all.get(id)?.timeout))
    }

    /// Returns how many accepted connections are in their handshake.
    #[cfg(test)]
    pub(super) fn accepted(&self) -> usize {
        assert_eq!(self.accepted.len(), self.by_address.values().map(BTreeSet::len).sum::<usize>());
        self.accepted.len()
    }
}

#[cfg(test)]
mod tests {
    use super::super::poller::Token;
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn handshakes(max: u32, per_address_max: u32) -> Handshakes {
        let budgets = ControlBudgets {
            handshakes: max,
            handshakes_per_address: per_address_max,
            ..ControlBudgets::default()
        };
        Handshakes::new(&budgets)
    }

    fn id(number: u64) -> ConnectionId {
        ConnectionId(Token(number))
    }

    fn address(last: u8) -> Origin {
        Origin::V4([10, 0, 0, last])
    }

    impl Handshakes {
        /// Begins a handshake, and ends those that have to end for it. Returns them.
        fn newcomer(&mut self, number: u64, last: u8, now: Instant) -> Vec<(ConnectionId, Exceeded)> {
            self.begin_accepted(id(number), address(last), SECOND, now);
            let ended = std::iter::from_fn(|| {
                let (oldest, exceeded) = self.excess(address(last), now)?;
                self.end(oldest);
                Some((oldest, exceeded))
            });
            ended.collect()
        }
    }

    #[test]
    fn one_beyond_ends_the_oldest_of_its_address_or_else_the_oldest_of_all() {
        let (mut handshakes, now) = (handshakes(4, 3), Instant::now());
        assert_eq!(handshakes.newcomer(1, 1, now), []);
        assert_eq!(handshakes.newcomer(2, 2, now), []);
        assert_eq!(handshakes.newcomer(3, 2, now), []);
        assert_eq!(handshakes.newcomer(4, 2, now), [], "at both limits");
        let later = now + GRACE;
        assert_eq!(handshakes.newcomer(5, 2, later), [(id(2), Exceeded::HandshakesPerAddress(3))]);
        assert_eq!(handshakes.newcomer(6, 2, later), [(id(3), Exceeded::HandshakesPerAddress(3))]);
        assert_eq!(handshakes.newcomer(7, 3, later), [(id(1), Exceeded::Handshakes(4))], "it is alone");
        handshakes.end(id(4));
        assert_eq!(handshakes.newcomer(8, 4, later), []);
        assert_eq!(
            handshakes.newcomer(9, 2, later),
            [(id(5), Exceeded::Handshakes(4))],
            "not the oldest of all"
        );
        assert_eq!(handshakes.accepted(), 4);
    }

    #[test]
    fn many_of_one_address_at_once_stay_for_a_moment() {
        let (mut handshakes, now) = (handshakes(10, 2), Instant::now());
        (0..10).for_each(|number| assert_eq!(handshakes.newcomer(number, 1, now), []));
        let all = Exceeded::Handshakes(10);
        assert_eq!(handshakes.newcomer(10, 1, now), [(id(0), all)], "all of them count at any age");
        let almost = now + GRACE - Duration::from_nanos(1);
        assert_eq!(handshakes.newcomer(11, 1, almost), [(id(1), all)]);
        // All that have had their time end at once. The last two began a moment ago.
        let ended = handshakes.newcomer(12, 1, now + GRACE);
        let each = Exceeded::HandshakesPerAddress(2);
        assert_eq!(ended, (2..11).map(|number| (id(number), each)).collect::<Vec<_>>());
        assert_eq!(handshakes.accepted(), 2);
    }

    #[test]
    fn a_limit_of_one_lets_each_newcomer_in() {
        let (mut handshakes, now) = (handshakes(1, 1), Instant::now());
        assert_eq!(handshakes.newcomer(1, 1, now), []);
        for number in 2..10 {
            let ended = handshakes.newcomer(number, number as u8 / 2, now);
            assert_eq!(ended, [(id(number - 1), Exceeded::Handshakes(1))]);
        }
        // Connections of this side do not count.
        (10..20).for_each(|number| handshakes.begin(id(number), SECOND, now));
        assert_eq!(handshakes.accepted(), 1);
        assert_eq!(handshakes.excess(address(4), now + SECOND), None);
    }

    #[test]
    fn each_has_the_deadline_of_its_beginning_and_nothing_is_left_of_it() {
        let (mut handshakes, now) = (handshakes(10, 10), Instant::now());
        handshakes.begin(id(1), 3 * SECOND, now);
        handshakes.begin_accepted(id(2), address(1), SECOND, now + SECOND);
        handshakes.begin(id(3), Duration::MAX, now);
        assert_eq!(handshakes.due(), Some(now + 2 * SECOND));
        assert_eq!(handshakes.expired(now + 2 * SECOND - Duration::from_nanos(1)), None);
        assert_eq!(handshakes.expired(now + 2 * SECOND), Some((id(2), SECOND)));
        handshakes.end(id(2));
        assert_eq!(handshakes.expired(now + 3 * SECOND), Some((id(1), 3 * SECOND)));
        handshakes.end(id(1));
        handshakes.end(id(1));
        assert_eq!(handshakes.expired(now + 1000 * SECOND), None);
        handshakes.end(id(3));
        assert!(handshakes.all.is_empty() && handshakes.deadlines.is_empty());
        assert!(handshakes.accepted.is_empty() && handshakes.by_address.is_empty());
    }
}
