//! The connections that have sent no order yet, and how many there may be.
//!
//! Nobody is refused here: if there are too many, the oldest is closed. A client sends its order at
//! once, so the oldest connection is hardly ever one. The origin with the most connections loses
//! one, so that one host cannot crowd out the others.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use super::origin::Origin;

/// Connections by number. Numbers increase, so the lowest is the oldest.
#[derive(Debug)]
pub(super) struct Handshakes<T> {
    all: BTreeMap<u64, Entry<T>>,
    /// Invariant: has the numbers in `all`, and no origin without one.
    of: HashMap<Origin, BTreeSet<u64>>,
    max: usize,
    per_origin_max: usize,
    /// The time of a handshake, from the first byte to the last byte of the order.
    time: Duration,
}

#[derive(Debug)]
struct Entry<T> {
    origin: Origin,
    since: Instant,
    item: T,
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
        let oldest = crowd.and_then(|origin| self.of.get(&origin)?.first().copied());
        let removed = oldest.and_then(|oldest| self.remove(oldest));
        self.all.insert(number, Entry { origin, since: now, item });
        self.of.entry(origin).or_default().insert(number);
        removed
    }

    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        self.all.get_mut(&number).map(|entry| &mut entry.item)
    }

    pub(super) fn remove(&mut self, number: u64) -> Option<T> {
        let entry = self.all.remove(&number)?;
        if let Some(numbers) = self.of.get_mut(&entry.origin) {
            numbers.remove(&number);
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

    /// Returns the origin with the most connections, and of several that with the oldest.
    fn most_crowded(&self) -> Option<Origin> {
        let rank = |numbers: &BTreeSet<u64>| (numbers.len(), std::cmp::Reverse(numbers.first().copied()));
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
