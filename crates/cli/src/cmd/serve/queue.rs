//! The clients that wait for an agent.
//!
//! Origins take turns, so that one with many clients does not delay one with few. Within an origin,
//! clients are served in the order in which they came. A test with several connections waits until
//! all of them can be served, because two tests that have half of their agents each would wait for
//! each other. Smaller tests may overtake it.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use farreach::Origin;

/// Waiting connections, in groups.
#[derive(Debug)]
pub(super) struct Queue<T> {
    /// The groups of each origin, the oldest first. Invariant: no origin is without one.
    of: HashMap<Origin, VecDeque<Group<T>>>,
    /// The origins in `of`, in the order of their turns.
    turns: VecDeque<Origin>,
    /// The number of connections.
    len: usize,
}

/// The connections of one test.
#[derive(Debug)]
pub(super) struct Group<T> {
    pub(super) key: Key,
    /// The memory that each connection needs.
    pub(super) memory: u64,
    since: Instant,
    pub(super) members: Vec<(u64, T)>,
}

/// What connections of one test have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) origin: Origin,
    /// A random number of the client.
    pub(super) test: u64,
    /// The number of connections.
    pub(super) size: usize,
}

impl<T> Group<T> {
    /// Returns whether all connections have come.
    pub(super) fn is_complete(&self) -> bool {
        self.members.len() >= self.key.size
    }
}

impl<T> Queue<T> {
    pub(super) fn new() -> Self {
        Self { of: HashMap::new(), turns: VecDeque::new(), len: 0 }
    }

    /// Returns the number of connections.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the number of connections of an origin.
    pub(super) fn count_of(&self, origin: Origin) -> usize {
        self.of.get(&origin).map_or(0, |groups| groups.iter().map(|group| group.members.len()).sum())
    }

    /// Adds a connection.
    pub(super) fn push(&mut self, number: u64, key: Key, memory: u64, now: Instant, item: T) {
        if !self.of.contains_key(&key.origin) {
            self.turns.push_back(key.origin);
        }
        let groups = self.of.entry(key.origin).or_default();
        self.len += 1;
        // A client may repeat the number of a test: connections beyond its size are another group.
        match groups.iter_mut().find(|group| group.key == key && !group.is_complete()) {
            Some(group) => {
                group.memory = group.memory.max(memory);
                group.members.push((number, item));
            }
            None => groups.push_back(Group { key, memory, since: now, members: vec![(number, item)] }),
        }
    }

    /// Removes the next group that is complete and fits.
    pub(super) fn next(&mut self, fits: impl Fn(&Group<T>) -> bool) -> Option<Group<T>> {
        for turn in 0..self.turns.len() {
            let origin = self.turns[turn];
            let groups = self.of.get(&origin)?;
            let Some(place) = groups.iter().position(|group| group.is_complete() && fits(group)) else {
                continue;
            };
            // The next turn is that of the origin behind this one.
            self.turns.remove(turn);
            self.turns.push_back(origin);
            return self.take(origin, place);
        }
        None
    }

    /// Removes the newest group of the origin with the most connections, if it has more than this
    /// one would have with another connection.
    pub(super) fn drop_longest(&mut self, origin: Origin) -> Option<Group<T>> {
        let longest = self.turns.iter().copied().max_by_key(|origin| self.count_of(*origin))?;
        if self.count_of(longest) <= self.count_of(origin) + 1 {
            return None;
        }
        let newest = self.of.get(&longest)?.len() - 1;
        self.take(longest, newest)
    }

    /// Removes a connection.
    pub(super) fn remove(&mut self, number: u64) -> Option<T> {
        let is_member = |group: &Group<T>| group.members.iter().any(|(member, _)| *member == number);
        let (origin, place) = self
            .of
            .iter()
            .find_map(|(origin, groups)| groups.iter().position(is_member).map(|place| (*origin, place)))?;
        let members = &mut self.of.get_mut(&origin)?.get_mut(place)?.members;
        let member = members.iter().position(|(member, _)| *member == number)?;
        let (_, item) = members.remove(member);
        let is_last = members.is_empty();
        self.len -= 1;
        if is_last {
            self.take(origin, place);
        }
        Some(item)
    }

    /// Removes the groups that have waited for too long: for an agent, or for their connections.
    pub(super) fn expire(&mut self, now: Instant, time: Duration, gathering: Duration) -> Vec<Group<T>> {
        let mut expired = Vec::new();
        for origin in self.turns.clone() {
            while let Some(place) = self.of.get(&origin).and_then(|groups| {
                groups.iter().position(|group| {
                    let limit = if group.is_complete() { time } else { gathering };
                    now.saturating_duration_since(group.since) >= limit
                })
            }) {
                expired.extend(self.take(origin, place));
            }
        }
        expired
    }

    /// Removes all groups.
    pub(super) fn drain(&mut self) -> Vec<Group<T>> {
        self.len = 0;
        self.turns.clear();
        self.of.drain().flat_map(|(_, groups)| groups).collect()
    }

    /// Calls a function with the number of each connection, and how many are served before it.
    pub(super) fn for_each(&mut self, mut call: impl FnMut(u64, usize, &mut T)) {
        let (mut ahead, mut round) = (0, 0);
        loop {
            let before = ahead;
            for origin in &self.turns {
                let Some(group) = self.of.get_mut(origin).and_then(|groups| groups.get_mut(round)) else {
                    continue;
                };
                let served = ahead;
                for (number, item) in &mut group.members {
                    call(*number, served, item);
                    ahead += 1;
                }
            }
            if ahead == before {
                return;
            }
            round += 1;
        }
    }

    fn take(&mut self, origin: Origin, place: usize) -> Option<Group<T>> {
        let groups = self.of.get_mut(&origin)?;
        let group = groups.remove(place)?;
        if groups.is_empty() {
            self.of.remove(&origin);
            self.turns.retain(|it| *it != origin);
        }
        self.len -= group.members.len();
        Some(group)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(host: u8) -> Origin {
        Origin::V4([192, 0, 2, host])
    }

    fn one(host: u8, test: u64) -> Key {
        Key { origin: origin(host), test, size: 1 }
    }

    fn numbers(queue: &mut Queue<()>, count: usize) -> Vec<u64> {
        (0..count).map_while(|_| queue.next(|_| true)).map(|group| group.members[0].0).collect()
    }

    #[test]
    fn origins_take_turns_and_clients_of_one_keep_their_order() {
        let (mut queue, now) = (Queue::new(), Instant::now());
        // A hundred of one origin came before the two others.
        for number in 0..100 {
            queue.push(number, one(1, number), 0, now, ());
        }
        for (number, host) in [(100, 2), (101, 3), (102, 2)] {
            queue.push(number, one(host, number), 0, now, ());
        }
        let mut places = HashMap::new();
        queue.for_each(|number, ahead, ()| {
            places.insert(number, ahead);
        });
        assert_eq!((places[&0], places[&100], places[&101], places[&1], places[&102]), (0, 1, 2, 3, 4));
        assert_eq!(places[&99], 102);
        assert_eq!(numbers(&mut queue, 7), [0, 100, 101, 1, 102, 2, 3]);
        // One that comes now is next but one.
        queue.push(200, one(4, 200), 0, now, ());
        assert_eq!(numbers(&mut queue, 2), [4, 200]);
        assert_eq!(numbers(&mut queue, 1000).len(), 95);
        assert_eq!((queue.len(), queue.turns.len(), queue.of.len()), (0, 0, 0));
    }

    #[test]
    fn a_test_of_several_connections_waits_for_all_and_delays_nobody() {
        let (mut queue, now) = (Queue::new(), Instant::now());
        let key = Key { origin: origin(1), test: 7, size: 3 };
        queue.push(0, key, 5, now, ());
        queue.push(1, key, 9, now, ());
        queue.push(2, one(1, 8), 0, now, ());
        assert_eq!(numbers(&mut queue, 9), [2], "it is not complete");
        queue.push(3, key, 5, now, ());
        // The same number of another origin is another test.
        queue.push(4, Key { origin: origin(2), ..key }, 0, now, ());
        assert!(queue.next(|group| group.key.size <= 2).is_none(), "it does not fit");
        let group = queue.next(|_| true).expect("it is complete");
        let members: Vec<u64> = group.members.iter().map(|(number, ())| *number).collect();
        assert_eq!((members, group.memory), (vec![0, 1, 3], 9));
        assert_eq!(queue.len(), 1);
    }

    #[test]
    fn who_has_most_loses_the_newest_to_who_has_few() {
        let (mut queue, now) = (Queue::new(), Instant::now());
        for number in 0..10 {
            queue.push(number, one(1, number), 0, now, ());
        }
        queue.push(10, one(2, 10), 0, now, ());
        let dropped = queue.drop_longest(origin(2)).expect("the first origin has more");
        assert_eq!(dropped.members[0].0, 9);
        assert!(queue.drop_longest(origin(1)).is_none(), "nobody has more than this one");
        assert_eq!(queue.len(), 10);
        let mut level = Queue::new();
        level.push(0, one(1, 0), 0, now, ());
        assert!(level.drop_longest(origin(2)).is_none(), "the two would only change places");
    }

    #[test]
    fn who_waits_for_too_long_is_removed() {
        let (mut queue, now) = (Queue::new(), Instant::now());
        let (time, gathering, second) =
            (Duration::from_secs(300), Duration::from_secs(10), Duration::from_secs(1));
        let half = Key { origin: origin(1), test: 7, size: 2 };
        queue.push(0, half, 0, now, ());
        queue.push(1, one(1, 1), 0, now, ());
        queue.push(2, one(2, 2), 0, now + second, ());
        let expired = |queue: &mut Queue<()>, at: Instant| -> Vec<u64> {
            let groups = queue.expire(at, time, gathering);
            groups.into_iter().flat_map(|group| group.members).map(|(number, ())| number).collect()
        };
        assert_eq!(expired(&mut queue, now + gathering - Duration::from_nanos(1)), [0; 0]);
        assert_eq!(expired(&mut queue, now + gathering), [0], "its second connection has not come");
        assert_eq!(expired(&mut queue, now + time), [1]);
        assert_eq!(expired(&mut queue, now + time + second), [2]);
        assert_eq!((queue.len(), queue.turns.len()), (0, 0));
    }

    #[test]
    fn who_leaves_is_removed() {
        let (mut queue, now) = (Queue::new(), Instant::now());
        let pair = Key { origin: origin(1), test: 7, size: 2 };
        for (number, key) in [(0, pair), (1, pair), (2, one(1, 2))] {
            queue.push(number, key, 0, now, number);
        }
        assert_eq!(queue.remove(0), Some(0));
        assert_eq!(queue.remove(0), None);
        assert!(queue.next(|_| true).is_some_and(|group| group.members[0].0 == 2), "the pair is broken");
        assert_eq!(queue.remove(1), Some(1));
        assert_eq!((queue.len(), queue.turns.len(), queue.of.len()), (0, 0, 0));
    }
}
