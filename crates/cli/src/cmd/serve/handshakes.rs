//! The connections that have sent no order yet, and how many there may be.
//!
//! Nobody is refused here: if there are too many, the oldest of those that have got least far is
//! closed. A client sends its order at once, so this is hardly ever one: connections that send nothing
//! cannot crowd out a TLS handshake, and TLS handshakes cannot crowd out a client whose certificate is
//! verified. The origin with the most connections loses one, so that one host cannot crowd out the
//! others.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use farreach::Origin;

/// Connections by number. Numbers increase, so the lowest is the oldest.
#[derive(Debug)]
pub(super) struct Handshakes<T> {
    all: BTreeMap<u64, Entry<T>>,
    /// Invariant: has the stages and numbers in `all`, and no origin without one.
    of: HashMap<Origin, BTreeSet<(Reached, u64)>>,
    max: usize,
    per_origin_max: usize,
    /// The time of a handshake, from the first byte to the last byte of the order.
    time: Duration,
}

#[derive(Debug)]
struct Entry<T> {
    origin: Origin,
    reached: Reached,
    since: Instant,
    item: T,
}

/// How far a connection has got.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reached {
    /// It has sent nothing, or was refused.
    Nothing,
    /// It is in the TLS handshake, or has sent a part of its head.
    Begun,
    /// It is a client: its certificate is verified if there is TLS, or its head has come.
    Client,
}

impl<T> Handshakes<T> {
    pub(super) fn new(max: usize, per_origin_max: usize, time: Duration) -> Self {
        Self { all: BTreeMap::new(), of: HashMap::new(), max, per_origin_max, time }
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.all.len()
    }

    /// Adds a connection. Returns the one that had to be removed for it.
    #[must_use]
    pub(super) fn insert(&mut self, number: u64, origin: Origin, now: Instant, item: T) -> Option<T> {
        let crowd = if self.count_of(origin) >= self.per_origin_max {
            Some(origin)
        } else if self.all.len() >= self.max {
            self.most_crowded()
        } else {
            None
        };
        let least = crowd.and_then(|origin| self.of.get(&origin)?.first().copied());
        let removed = least.and_then(|(_, number)| self.remove(number));
        let reached = Reached::Nothing;
        self.all.insert(number, Entry { origin, reached, since: now, item });
        self.of.entry(origin).or_default().insert((reached, number));
        removed
    }

    /// Records how far a connection has got.
    pub(super) fn set_reached(&mut self, number: u64, reached: Reached) {
        let Some(entry) = self.all.get_mut(&number) else { return };
        if let Some(numbers) = self.of.get_mut(&entry.origin) {
            numbers.remove(&(entry.reached, number));
            numbers.insert((reached, number));
        }
        entry.reached = reached;
    }

    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        self.all.get_mut(&number).map(|entry| &mut entry.item)
    }

    pub(super) fn remove(&mut self, number: u64) -> Option<T> {
        let entry = self.all.remove(&number)?;
        if let Some(numbers) = self.of.get_mut(&entry.origin) {
            numbers.remove(&(entry.reached, number));
            if numbers.is_empty() {
                self.of.remove(&entry.origin);
            }
        }
        Some(entry.item)
    }

    /// Removes the connections whose time has passed.
    pub(super) fn expire(&mut self, now: Instant) -> Vec<T> {
        let mut expired = Vec::new();
        while self.deadline().is_some_and(|deadline| deadline <= now)
            && let Some((&oldest, _)) = self.all.first_key_value()
        {
            expired.extend(self.remove(oldest));
        }
        expired
    }

    /// Returns when the time of the oldest connection has passed.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.all.first_key_value().map(|(_, entry)| entry.since + self.time)
    }

    fn count_of(&self, origin: Origin) -> usize {
        self.of.get(&origin).map_or(0, BTreeSet::len)
    }

    /// Returns the origin with the most connections, and of several that with the one to be closed
    /// first.
    fn most_crowded(&self) -> Option<Origin> {
        let rank = |numbers: &BTreeSet<(Reached, u64)>| (numbers.len(), Reverse(numbers.first().copied()));
        self.of.iter().max_by_key(|(_, numbers)| rank(numbers)).map(|(origin, _)| *origin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: Duration = Duration::from_secs(10);

    fn origin(host: u8) -> Origin {
        Origin::V4([192, 0, 2, host])
    }

    #[test]
    fn the_oldest_of_an_origin_makes_room_for_its_newest() {
        let now = Instant::now();
        let mut set = Handshakes::new(10, 3, TIME);
        for number in 0..3 {
            assert_eq!(set.insert(number, origin(1), now, number), None, "at the limit");
        }
        assert_eq!(set.insert(3, origin(1), now, 3), Some(0), "one past the limit");
        assert_eq!(set.insert(4, origin(2), now, 4), None, "another origin has room");
        assert_eq!(set.len(), 4);
        assert!(set.get_mut(0).is_none() && set.get_mut(4).is_some());
    }

    #[test]
    fn the_most_crowded_origin_makes_room_for_another() {
        let now = Instant::now();
        let mut set = Handshakes::new(4, 4, TIME);
        for (number, host) in [(0, 1), (1, 2), (2, 2), (3, 3)] {
            assert_eq!(set.insert(number, origin(host), now, number), None);
        }
        assert_eq!(set.insert(4, origin(4), now, 4), Some(1), "the oldest of origin 2");
        // Each has one now.
        assert_eq!(set.insert(5, origin(5), now, 5), Some(0), "the oldest of all");
        assert_eq!(set.len(), 4);
    }

    #[test]
    fn a_connection_expires_at_its_time_however_much_it_has_sent() {
        let now = Instant::now();
        let mut set = Handshakes::new(10, 10, TIME);
        let second = Duration::from_secs(1);
        for number in 0..3 {
            let _ = set.insert(number, origin(1), now + second * number as u32, number);
        }
        assert_eq!(set.expire(now + TIME - Duration::from_millis(1)), [0; 0]);
        assert_eq!(set.deadline(), Some(now + TIME));
        assert_eq!(set.expire(now + TIME), [0]);
        assert_eq!(set.expire(now + TIME + 2 * second), [1, 2]);
        assert_eq!((set.len(), set.deadline(), set.of.len()), (0, None, 0));
    }

    #[test]
    fn who_has_got_farther_stays_longer() {
        let now = Instant::now();
        let mut set = Handshakes::new(10, 3, TIME);
        for number in 0..3 {
            let _ = set.insert(number, origin(1), now, number);
        }
        set.set_reached(0, Reached::Client);
        set.set_reached(1, Reached::Begun);
        // Those that send nothing make room for each other.
        assert_eq!(set.insert(3, origin(1), now, 3), Some(2));
        assert_eq!(set.insert(4, origin(1), now, 4), Some(3));
        set.set_reached(4, Reached::Begun);
        assert_eq!(set.insert(5, origin(1), now, 5), Some(1));
        // One that was refused is of no use any more.
        set.set_reached(0, Reached::Nothing);
        assert_eq!(set.insert(6, origin(1), now, 6), Some(0));
        for number in [4, 5, 6] {
            assert_eq!(set.remove(number), Some(number));
        }
        assert!(set.of.is_empty() && set.all.is_empty());
    }

    /// One origin that connects again and again cannot remove another's connection.
    #[test]
    fn a_flood_removes_its_own() {
        let now = Instant::now();
        let mut set = Handshakes::new(512, 384, TIME);
        assert_eq!(set.insert(0, origin(9), now, 0), None);
        for number in 1..10_000 {
            let _ = set.insert(number, origin(1), now, number);
        }
        assert!(set.get_mut(0).is_some());
        assert_eq!(set.len(), 385);
    }
}
