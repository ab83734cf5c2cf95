//! Maps by numbers that this side assigns. They are used for every operation.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map by assigned numbers. A peer cannot choose them to collide, so a cheap hash is sufficient.
pub type IdMap<K, V> = HashMap<K, V, BuildHasherDefault<NumberHasher>>;

/// Spreads numbers over all bits by a multiplication.
#[derive(Debug, Default)]
pub struct NumberHasher(u64);

/// An odd number without a pattern: the fraction of the golden ratio.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

impl Hasher for NumberHasher {
    #[inline]
    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0.rotate_left(5) ^ number).wrapping_mul(SPREAD);
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
        // Hash tables use the lowest bits, but the best bits of the product are the highest.
        self.0.rotate_left(26)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::Hash;

    #[test]
    fn neighbours_do_not_meet() {
        let place = |number: u64| {
            let mut hasher = NumberHasher::default();
            number.hash(&mut hasher);
            hasher.finish() % 4096
        };
        let mut seen = vec![0_u32; 4096];
        (0..4096).for_each(|number| seen[place(number) as usize] += 1);
        assert!(seen.iter().all(|count| *count <= 6), "{:?}", seen.iter().max());
    }
}
