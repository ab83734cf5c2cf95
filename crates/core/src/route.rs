//! Operations over rails: each takes its share, and a dead one takes nothing.

/// The rails of one peer, and how much each has under way.
///
/// The next operation goes to the rail that would be done with it first, if every rail moved bytes at the rate of its weight. So shares follow
/// the weights, a rail that stalls gets no more, and no clock is needed.
///
/// ```
/// use farreach_core::route::Rails;
///
/// let mut rails = Rails::new(&[3, 1]);
/// let taken: Vec<usize> = (0..4).filter_map(|_| rails.assign(1000, |_| true)).collect();
/// assert_eq!(taken.iter().filter(|rail| **rail == 0).count(), 3);
/// ```
#[derive(Debug, Clone)]
pub struct Rails {
    rails: Vec<Rail>,
}

#[derive(Debug, Clone)]
struct Rail {
    weight: u32,
    /// Bytes that are assigned and not finished.
    pending: u64,
    /// Bytes that were ever assigned, in units of its weight: what breaks ties fairly.
    share: u64,
    is_alive: bool,
}

impl Rails {
    /// One rail for each weight; one of weight 0 is used only when no other is alive.
    pub fn new(weights: &[u32]) -> Self {
        let rail = |weight: &u32| Rail { weight: *weight, pending: 0, share: 0, is_alive: true };
        Self { rails: weights.iter().map(rail).collect() }
    }

    /// The rail for an operation of so many bytes, among those that are alive and that `has_room` says yes to; none where there is none.
    pub fn assign(&mut self, bytes: u64, has_room: impl Fn(usize) -> bool) -> Option<usize> {
        let rail = self.pick(bytes, has_room)?;
        self.charge(rail, bytes);
        Some(rail)
    }

    /// Gives a rail an operation of so many bytes.
    pub fn charge(&mut self, rail: usize, bytes: u64) {
        let rail = &mut self.rails[rail];
        rail.pending += bytes;
        rail.share += bytes / u64::from(rail.weight.max(1)) + 1;
    }

    /// As [`assign`](Self::assign), for one who cannot say yet how many bytes it will be: it is charged later.
    pub fn pick(&self, bytes: u64, has_room: impl Fn(usize) -> bool) -> Option<usize> {
        let usable = self.rails.iter().enumerate().filter(|(index, rail)| rail.is_alive && has_room(*index));
        usable
            .min_by(|(_, a), (_, b)| {
                // (pending + bytes) / weight, compared without dividing; a weight of 0 is the slowest of all.
                let time =
                    |rail: &Rail, other: &Rail| u128::from(rail.pending + bytes) * u128::from(other.weight);
                (a.weight == 0)
                    .cmp(&(b.weight == 0))
                    .then(time(a, b).cmp(&time(b, a)))
                    .then(a.share.cmp(&b.share))
            })
            .map(|(index, _)| index)
    }

    /// An operation of so many bytes is finished on this rail, or was taken off it.
    ///
    /// # Panics
    ///
    /// If it was not assigned to it.
    pub fn finish(&mut self, rail: usize, bytes: u64) {
        let pending = &mut self.rails[rail].pending;
        assert!(*pending >= bytes, "{bytes} bytes finished on rail {rail}, and {pending} were under way");
        *pending -= bytes;
    }

    /// A rail gets no more for now; what it has under way goes on.
    pub fn pause(&mut self, rail: usize) {
        self.rails[rail].is_alive = false;
    }

    /// A rail is lost: it gets no more, and what it had under way is nobody's until it is assigned again.
    pub fn lose(&mut self, rail: usize) {
        let rail = &mut self.rails[rail];
        (rail.is_alive, rail.pending) = (false, 0);
    }

    /// A rail is back.
    pub fn restore(&mut self, rail: usize) {
        self.rails[rail].is_alive = true;
    }

    /// Changes a rail's weight: to the rate that was measured.
    pub fn set_weight(&mut self, rail: usize, weight: u32) {
        self.rails[rail].weight = weight;
    }

    /// Whether a rail is alive.
    pub fn is_alive(&self, rail: usize) -> bool {
        self.rails[rail].is_alive
    }

    /// Bytes that a rail has under way.
    pub fn pending(&self, rail: usize) -> u64 {
        self.rails[rail].pending
    }

    /// How many rails there are, dead ones too.
    pub fn len(&self) -> usize {
        self.rails.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rails.is_empty()
    }
}

/// Which rails of two sides go together: each of the side that has more, with those of the other in turn.
///
/// ```
/// use farreach_core::route::pairs;
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
        let mut rails = Rails::new(&weights);
        let mut sent = [0_u64; 3];
        let mut under_way = std::collections::VecDeque::new();
        for round in 0..30_000_u64 {
            let bytes = 1000 + round % 5000;
            let rail = rails.assign(bytes, |_| true).unwrap();
            sent[rail] += bytes;
            under_way.push_back((rail, bytes));
            // Each finishes as fast as its weight: in the long run, in the order of assignment.
            if under_way.len() > 50 {
                let (rail, bytes) = under_way.pop_front().unwrap();
                rails.finish(rail, bytes);
            }
        }
        let total: u64 = sent.iter().sum();
        for (rail, weight) in weights.iter().enumerate() {
            let (share, expected) = (sent[rail] as f64 / total as f64, f64::from(*weight) / 325.0);
            assert!((share - expected).abs() < 0.02, "rail {rail}: {share:.3} and not {expected:.3}");
        }
    }

    #[test]
    fn a_dead_rail_gets_nothing_until_it_is_back() {
        let mut rails = Rails::new(&[1, 1]);
        rails.assign(10, |_| true).unwrap();
        rails.lose(0);
        assert!((0..5).all(|_| rails.assign(10, |_| true) == Some(1)));
        assert_eq!(rails.pending(0), 0);
        rails.lose(1);
        assert_eq!(rails.assign(10, |_| true), None);
        rails.restore(0);
        assert_eq!(rails.assign(10, |_| true), Some(0));
    }

    #[test]
    fn a_rail_without_room_is_passed_over_and_a_slow_one_is_the_last_resort() {
        let mut rails = Rails::new(&[0, 5]);
        assert_eq!(rails.assign(1_000_000, |_| true), Some(1));
        assert_eq!(rails.assign(1_000_000, |_| true), Some(1), "as long as it has room");
        assert_eq!(rails.assign(10, |rail| rail != 1), Some(0));
        assert_eq!(rails.assign(10, |_| false), None);
    }

    #[test]
    #[should_panic(expected = "5 bytes finished on rail 0")]
    fn what_was_not_assigned_cannot_finish() {
        Rails::new(&[1]).finish(0, 5);
    }
}
