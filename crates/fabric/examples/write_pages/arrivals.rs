//! When a request's pages are all there.

/// What is known of a request's arrival. No order is assumed: the server's word may come before, between or after its writes.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    number: u32,
    /// Writes that have told us.
    seen: u32,
    /// How many will, once the server has said it.
    expected: Option<u32>,
}

impl Arrivals {
    /// For the request of this number.
    pub(crate) fn of(number: u32) -> Self {
        Self { number, ..Self::default() }
    }

    /// The server has accepted, and so many of its writes will tell.
    pub(crate) fn accepted(&mut self, number: u32, told: u32) {
        if number == self.number {
            self.expected = Some(told);
        }
    }

    /// A write has told. Another request's is none of ours.
    pub(crate) fn written(&mut self, immediate: u64) {
        if immediate == u64::from(self.number) {
            self.seen += 1;
        }
    }

    /// Whether every page is there.
    pub(crate) fn are_complete(&self) -> bool {
        self.expected.is_some_and(|expected| self.seen >= expected)
    }
}
