//! Derives the bytes of each page, and the place it goes to, from the seed. Both sides agree on it.

use rand_mt::Mt;

use super::Task;
use crate::exit::{Exit, Failure};

/// The value of every byte in a region before anything is written.
const UNTOUCHED: u8 = 0xa5;

/// The places of one region. There are more places than pages, so that some stay empty.
#[derive(Debug)]
pub(super) struct Region {
    page_bytes: usize,
    /// The place of each page.
    pub(super) places: Vec<u32>,
    pub(super) place_count: u32,
    seed: u32,
}

impl Region {
    pub(super) fn new(task: &Task, number: u32) -> Self {
        let seed = task.seed.wrapping_add(number.wrapping_mul(0x9e37_79b9));
        let place_count = task.pages + (task.pages / 4).max(1);
        let mut places: Vec<u32> = (0..place_count).collect();
        let mut random = Mt::new(seed);
        for next in 0..task.pages as usize {
            let left = (places.len() - next) as u64;
            let chosen = next + ((u64::from(random.next_u32()) * left) >> 32) as usize;
            places.swap(next, chosen);
        }
        places.truncate(task.pages as usize);
        Self { page_bytes: task.page_bytes as usize, places, place_count, seed }
    }

    /// Returns the size of all places in bytes.
    pub(super) fn len(&self) -> usize {
        self.place_count as usize * self.page_bytes
    }

    /// Sets every byte to the initial value.
    pub(super) fn clear(&self, memory: &mut [u8]) {
        memory.fill(UNTOUCHED);
    }

    /// Generates the bytes of page `number`.
    pub(super) fn make(&self, number: usize, page: &mut [u8]) {
        Mt::new(self.seed ^ (number as u32).wrapping_mul(0x85eb_ca6b)).fill_bytes(page);
    }

    /// Checks that each page is in its place, and that nothing was written elsewhere.
    pub(super) fn check(&self, name: u32, memory: &[u8]) -> Result<(), Failure> {
        let mut page_at: Vec<Option<usize>> = vec![None; self.place_count as usize];
        for (page, place) in self.places.iter().enumerate() {
            page_at[*place as usize] = Some(page);
        }
        let mut expected = vec![0; self.page_bytes];
        for (place, (found, page)) in memory.chunks(self.page_bytes).zip(page_at).enumerate() {
            match page {
                Some(page) => self.make(page, &mut expected),
                None => expected.fill(UNTOUCHED),
            }
            if found != expected {
                return Err(self.wrong(name, place, page, found, &expected));
            }
        }
        Ok(())
    }

    fn wrong(
        &self,
        region: u32,
        place: usize,
        page: Option<usize>,
        found: &[u8],
        expected: &[u8],
    ) -> Failure {
        let differing = found.iter().zip(expected).filter(|(one, other)| one != other).count();
        let first = found.iter().zip(expected).position(|(one, other)| one != other).unwrap_or(0);
        let what = match page {
            Some(page) => format!("page {page} of region {region} has wrong bytes"),
            None => format!("region {region} was changed outside of the pages"),
        };
        Failure::new(Exit::Mismatch, what)
            .cause(format!(
                "at place {place}, {differing} of {} bytes differ; byte {first} is {:#04x} instead of {:#04x}",
                self.page_bytes, found[first], expected[first]
            ))
            .fix("do not use this path for data; check the error counters of cards and switches, and the memory")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TASK: Task = Task { page_bytes: 100, pages: 50, regions: 2, seed: 7, alter_byte: false };

    fn filled(region: &Region) -> Vec<u8> {
        let mut memory = vec![0; region.len()];
        region.clear(&mut memory);
        for (page, place) in region.places.iter().enumerate() {
            let start = *place as usize * 100;
            region.make(page, &mut memory[start..start + 100]);
        }
        memory
    }

    #[test]
    fn each_page_has_a_place_of_its_own_and_some_places_stay_empty() {
        let region = Region::new(&TASK, 0);
        let mut places = region.places.clone();
        places.sort_unstable();
        places.dedup();
        assert_eq!((places.len(), region.place_count), (50, 62));
        assert_ne!(region.places, Region::new(&TASK, 1).places);
        assert_eq!(region.places, Region::new(&TASK, 0).places);
    }

    #[test]
    fn one_wrong_byte_is_found_wherever_it_is() {
        let region = Region::new(&TASK, 1);
        let memory = filled(&region);
        region.check(1, &memory).expect("as it was made");
        let empty = (0..62).find(|place| !region.places.contains(place)).expect("some are") as usize;
        for (place, told) in
            [(region.places[3] as usize, "page 3 of region 1"), (empty, "outside of the pages")]
        {
            let mut spoilt = memory.clone();
            spoilt[place * 100 + 99] ^= 0x10;
            let failure = region.check(1, &spoilt).expect_err("a wrong byte");
            assert!(failure.error.contains(told), "{failure:?}");
            let cause = failure.cause.expect("a cause");
            assert!(
                cause.contains(&format!("place {place}, 1 of")) && cause.contains("byte 99 is"),
                "{cause}"
            );
        }
    }
}
