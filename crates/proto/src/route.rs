//! Chooses links for operations: each gets its share, a lost one gets nothing.

use std::cmp::Ordering;

/// The links of one peer, with the bytes that each has in flight.
///
/// The next operation goes to the link that would finish it first if every link moved bytes at the
/// rate of its weight. Shares therefore follow the weights, a link that stalls gets no more, and no
/// clock is needed.
///
/// ```
/// use farreach_proto::route::Links;
///
/// let mut links = Links::new(&[3, 1]);
/// let taken: Vec<usize> = (0..4).filter_map(|_| links.assign(1000, |_| true)).collect();
/// assert_eq!(taken.iter().filter(|link| **link == 0).count(), 3);
/// ```
#[derive(Debug, Clone)]
pub struct Links {
    links: Vec<Link>,
}

#[derive(Debug, Clone)]
struct Link {
    weight: u32,
    /// Bytes assigned and not finished.
    pending: u64,
    /// Bytes ever assigned, in units of its weight. Breaks ties fairly.
    share: u64,
    is_alive: bool,
}

impl Link {
    /// Compares the times at which the links would finish an operation.
    fn order(&self, other: &Self, bytes: u64) -> Ordering {
        // Compares (pending + bytes) / weight without dividing. A weight of 0 is slower than all
        // others.
        // The product of a number of 64 bits and one of 32 needs more than 64.
        let time = |link: &Self, other: &Self| u128::from(link.pending + bytes) * u128::from(other.weight);
        (self.weight == 0)
            .cmp(&(other.weight == 0))
            .then(time(self, other).cmp(&time(other, self)))
            // Idle links of the same rate are equal until here. They take turns by what they have
            // had.
            .then(self.share.cmp(&other.share))
    }
}

impl Links {
    /// Creates one link for each weight. A link of weight 0 is used only if no other is alive.
    pub fn new(weights: &[u32]) -> Self {
        let link = |weight: &u32| Link { weight: *weight, pending: 0, share: 0, is_alive: true };
        Self { links: weights.iter().map(link).collect() }
    }

    /// Assigns an operation to a link among those that are alive and for which `has_room` returns
    /// `true`. Returns `None` if there is none.
    pub fn assign(&mut self, bytes: u64, has_room: impl Fn(usize) -> bool) -> Option<usize> {
        let link = self.pick(bytes, has_room)?;
        self.charge(link, bytes);
        Some(link)
    }

    /// Accounts an operation of so many bytes to a link.
    pub fn charge(&mut self, link: usize, bytes: u64) {
        let link = &mut self.links[link];
        link.pending += bytes;
        // The additional 1 lets operations without bytes take turns, too.
        link.share += bytes / u64::from(link.weight.max(1)) + 1;
    }

    /// As [`assign`](Self::assign), but charges nothing. For a caller that does not know the exact
    /// number of bytes yet.
    #[inline]
    pub fn pick(&self, bytes: u64, has_room: impl Fn(usize) -> bool) -> Option<usize> {
        let mut best: Option<(usize, &Link)> = None;
        for (index, link) in self.links.iter().enumerate() {
            if link.is_alive
                && has_room(index)
                && best.is_none_or(|(_, best)| link.order(best, bytes).is_lt())
            {
                best = Some((index, link));
            }
        }
        best.map(|(index, _)| index)
    }

    /// Ends an operation of so many bytes on a link, because it is finished or withdrawn.
    ///
    /// # Panics
    ///
    /// Panics if the link has fewer bytes in flight.
    pub fn finish(&mut self, link: usize, bytes: u64) {
        let pending = &mut self.links[link].pending;
        assert!(*pending >= bytes, "{bytes} bytes finished on link {link}, and {pending} were in flight");
        *pending -= bytes;
    }

    /// Stops assigning to a link. Its operations in flight continue.
    pub fn pause(&mut self, link: usize) {
        // `pending` stays: what is in flight still completes, and `finish` subtracts it.
        self.links[link].is_alive = false;
    }

    /// Marks a link as lost: it gets no more, and its operations in flight are no longer accounted.
    pub fn lose(&mut self, link: usize) {
        let link = &mut self.links[link];
        // What was in flight is charged to the link that gets it next.
        (link.is_alive, link.pending) = (false, 0);
    }

    /// Marks a link as alive again.
    pub fn restore(&mut self, link: usize) {
        self.links[link].is_alive = true;
    }

    /// Returns `true` if a link is alive.
    pub fn is_alive(&self, link: usize) -> bool {
        self.links[link].is_alive
    }

    /// Returns the bytes that a link has in flight.
    pub fn pending(&self, link: usize) -> u64 {
        self.links[link].pending
    }

    /// Returns the number of links, including lost ones.
    pub fn len(&self) -> usize {
        self.links.len()
    }

    /// Returns `true` if there are no links.
    pub fn is_empty(&self) -> bool {
        self.links.is_empty()
    }
}

/// Pairs the rails of two sides: each rail of the side with more of them, with those of the other
/// side in turn.
///
/// ```
/// use farreach_proto::route::pairs;
///
/// assert_eq!(pairs(2, 2), [(0, 0), (1, 1)]);
/// assert_eq!(pairs(3, 2), [(0, 0), (1, 1), (2, 0)]);
/// assert!(pairs(0, 2).is_empty());
/// ```
pub fn pairs(local: usize, remote: usize) -> Vec<(usize, usize)> {
    if local == 0 || remote == 0 {
        return Vec::new();
    }
    (0..local.max(remote)).map(|index| (index % local, index % remote)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_follow_the_weights() {
        let weights = [100, 200, 25];
        let mut links = Links::new(&weights);
        let mut sent = [0_u64; 3];
        let mut under_way = std::collections::VecDeque::new();
        for round in 0..30_000_u64 {
            let bytes = 1000 + round % 5000;
            let link = links.assign(bytes, |_| true).unwrap();
            sent[link] += bytes;
            under_way.push_back((link, bytes));
            // All links finish in the order of assignment: each at the rate of its weight in the
            // long run.
            if under_way.len() > 50 {
                let (link, bytes) = under_way.pop_front().unwrap();
                links.finish(link, bytes);
            }
        }
        let total: u64 = sent.iter().sum();
        for (link, weight) in weights.iter().enumerate() {
            let (share, expected) = (sent[link] as f64 / total as f64, f64::from(*weight) / 325.0);
            assert!((share - expected).abs() < 0.02, "link {link}: {share:.3} and not {expected:.3}");
        }
    }

    #[test]
    fn a_dead_rail_gets_nothing_until_it_is_back() {
        let mut links = Links::new(&[1, 1]);
        links.assign(10, |_| true).unwrap();
        links.lose(0);
        assert!((0..5).all(|_| links.assign(10, |_| true) == Some(1)));
        assert_eq!(links.pending(0), 0);
        links.lose(1);
        assert_eq!(links.assign(10, |_| true), None);
        links.restore(0);
        assert_eq!(links.assign(10, |_| true), Some(0));
    }

    #[test]
    fn a_rail_without_room_is_passed_over_and_a_slow_one_is_the_last_resort() {
        let mut links = Links::new(&[0, 5]);
        assert_eq!(links.assign(1_000_000, |_| true), Some(1));
        assert_eq!(links.assign(1_000_000, |_| true), Some(1), "as long as it has room");
        assert_eq!(links.assign(10, |link| link != 1), Some(0));
        assert_eq!(links.assign(10, |_| false), None);
    }

    #[test]
    #[should_panic(expected = "5 bytes finished on link 0")]
    fn what_was_not_assigned_cannot_finish() {
        Links::new(&[1]).finish(0, 5);
    }
}
