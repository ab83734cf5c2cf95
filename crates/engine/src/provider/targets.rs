//! Several ranges of a peer's memory.

use super::Target;

/// Several ranges of a peer's memory by one key, in the order of an operation's bytes: all inside of one thing that the peer has granted.
///
/// It has its room with it, so that a request of several ranges allocates nothing.
///
/// ```
/// use farreach::provider::Targets;
///
/// let mut pages = Targets::new(0x1234);
/// assert!(pages.push(8 * 4096, 4096) && pages.push(0, 4096));
/// assert_eq!((pages.count(), pages.len()), (2, 8192));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Targets {
    key: u64,
    /// Addresses and lengths; those behind `count` are empty.
    ranges: [(u64, u64); Self::MAX],
    count: usize,
}

impl Targets {
    /// The most that a request can have, over any rail.
    pub const MAX: usize = 4;

    /// None yet.
    pub fn new(key: u64) -> Self {
        Self { key, ranges: [(0, 0); Self::MAX], count: 0 }
    }

    /// Adds a range; `false` where there is no room for it.
    #[must_use = "a range that was not added is not written to"]
    pub fn push(&mut self, address: u64, len: u64) -> bool {
        let Some(place) = self.ranges.get_mut(self.count) else { return false };
        *place = (address, len);
        self.count += 1;
        true
    }

    /// The key.
    pub fn key(&self) -> u64 {
        self.key
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The bytes of all.
    pub fn len(&self) -> u64 {
        self.iter().fold(0, |all, target| all.saturating_add(target.len))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Each.
    pub fn iter(&self) -> impl Iterator<Item = Target> + '_ {
        let Self { key, ranges, count } = self;
        ranges[..*count].iter().map(|&(address, len)| Target { address, key: *key, len })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_keep_their_order_and_a_full_list_takes_no_more() {
        let mut targets = Targets::new(5);
        for number in 0..Targets::MAX as u64 {
            assert!(targets.push(100 - number, 10 + number));
        }
        assert!(!targets.push(0, 1));
        let expected = (0..4).map(|number| Target { address: 100 - number, key: 5, len: 10 + number });
        assert!(targets.iter().eq(expected));
        assert_eq!(targets.len(), 46);
    }
}
