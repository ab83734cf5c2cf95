//! Maps by numbers that a peer chooses.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};

/// A map by numbers that a peer chooses. Its hash has keys that the peer does not know, so the peer
/// cannot choose numbers that collide.
pub(crate) type PeerMap<K, V> = HashMap<K, V, HashKeys>;

/// Keys of a hash.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct HashKeys {
    add: u64,
    multiply: u64,
}

impl HashKeys {
    pub(crate) fn new(add: u64, multiply: u64) -> Self {
        Self { add, multiply }
    }
}

impl BuildHasher for HashKeys {
    type Hasher = KeyedHasher;

    #[inline]
    fn build_hasher(&self) -> KeyedHasher {
        KeyedHasher { keys: *self, state: 0 }
    }
}

/// Hashes numbers by products of 128 bits with secret factors, both halves of which are used.
#[derive(Debug)]
pub(crate) struct KeyedHasher {
    keys: HashKeys,
    state: u64,
}

impl Hasher for KeyedHasher {
    #[inline]
    fn write_u64(&mut self, number: u64) {
        let HashKeys { add, multiply } = self.keys;
        self.state = folded_product(self.state ^ number ^ add, multiply | 1);
    }

    #[inline]
    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }

    #[inline]
    fn write_u16(&mut self, number: u16) {
        self.write_u64(number.into());
    }

    #[inline]
    fn write_u8(&mut self, number: u8) {
        self.write_u64(number.into());
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u8(*byte));
    }

    #[inline]
    fn finish(&self) -> u64 {
        // Once more, because the lowest bits of one product depend on few bits of the factor.
        let HashKeys { add, multiply } = self.keys;
        folded_product(self.state ^ multiply, add | 1)
    }
}

#[inline]
fn folded_product(number: u64, factor: u64) -> u64 {
    let product = u128::from(number) * u128::from(factor);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the largest number of these numbers that share one of 4096 places.
    fn most_in_a_place(keys: HashKeys, numbers: impl Iterator<Item = u64>) -> u32 {
        let mut seen = vec![0_u32; 4096];
        for number in numbers {
            // Hash tables use the lowest bits for the place, and the highest for a tag.
            seen[(keys.hash_one(number) % 4096) as usize] += 1;
        }
        seen.into_iter().max().unwrap_or(0)
    }

    #[test]
    fn numbers_that_collide_without_keys_do_not_collide_with_them() {
        let keys = HashKeys::new(0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3211);
        // Multiples of a power of two share the lowest bits of any product; the multiples of the
        // inverse of a known factor share the highest ones.
        let inverse_of_golden: u64 = 0xf1de_83e1_9937_733d;
        let sets: [fn(u64) -> u64; 4] = [
            |number| number,
            |number| number << 32,
            |number| number << 52,
            |number| number.wrapping_mul(0xf1de_83e1_9937_733d) << 12,
        ];
        assert_eq!(inverse_of_golden.wrapping_mul(0x9E37_79B9_7F4A_7C15), 1);
        for (index, numbers) in sets.iter().enumerate() {
            assert!(most_in_a_place(keys, (0..4096).map(numbers)) <= 16, "set {index}");
        }
    }

    #[test]
    fn other_keys_give_another_order() {
        let place = |keys: HashKeys| (0..64_u64).map(|number| keys.hash_one(number) % 64).collect::<Vec<_>>();
        assert_ne!(
            place(HashKeys::new(1, 0x1234_5678_9abc_def1)),
            place(HashKeys::new(1, 0x0fed_cba9_8765_4321))
        );
    }
}
