//! Random names: ids and marks that a peer cannot guess.
//!
//! A peer sees the names that it was given. They tell it nothing about the names of other peers, so
//! it cannot reach what is another peer's by counting from its own.

use chacha20::ChaCha12Rng;
use chacha20::rand_core::{Rng, SeedableRng};

use super::peer_map::HashKeys;

/// The bytes that all names of a machine are drawn from. The same seed gives the same names, so
/// that a history can be repeated.
pub type Seed = [u8; 32];

/// See the [module](self).
pub(super) struct Names(ChaCha12Rng);

impl Names {
    pub(super) fn new(seed: Seed) -> Self {
        Self(ChaCha12Rng::from_seed(seed))
    }

    /// Returns a name for which `is_free` returns `true`.
    pub(super) fn draw(&mut self, is_free: impl Fn(u64) -> bool) -> u64 {
        // This ends: no table holds a noticeable part of 2^64 names.
        loop {
            let name = self.0.next_u64();
            if is_free(name) {
                return name;
            }
        }
    }

    /// Returns keys for the hashes of one peer's numbers.
    pub(super) fn hash_keys(&mut self) -> HashKeys {
        HashKeys::new(self.0.next_u64(), self.0.next_u64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_depend_on_the_seed_alone() {
        let draw = |seed| {
            let mut names = Names::new(seed);
            [(); 3].map(|()| names.draw(|_| true))
        };
        assert_eq!(draw([1; 32]), draw([1; 32]));
        assert_ne!(draw([1; 32]), draw([2; 32]));
    }

    #[test]
    fn a_name_in_use_is_not_drawn_again() {
        let first = Names::new([1; 32]).draw(|_| true);
        assert_ne!(Names::new([1; 32]).draw(|name| name != first), first);
    }
}
