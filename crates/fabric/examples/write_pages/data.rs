//! The random bytes: MT19937-64, from a seed.

use rand_mt::Mt64;

/// The bytes of a request: page after page, first of one region, then of the other.
pub(crate) struct Bytes(Mt64);

impl Bytes {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Mt64::new(seed))
    }

    /// Fills the next page. A page whose size is not a multiple of eight omits the rest of its last
    /// word.
    pub(crate) fn fill(&mut self, page: &mut [u8]) {
        self.0.fill_bytes(page);
    }
}

/// Draws the pages to request: each once, in random order.
pub(crate) fn draw_pages(seed: u64, pages: u32, of: u32) -> Vec<u32> {
    // The server must refuse more than there are.
    let mut all: Vec<u32> = (0..of.max(pages)).collect();
    let mut random = Mt64::new(!seed);
    for index in 0..pages as usize {
        let left = all.len() - index;
        all.swap(index, index + (random.next_u64() % left as u64) as usize);
    }
    all.truncate(pages as usize);
    all
}
