//! Detects when all pages of a request have arrived.

/// The progress of a request's arrival. No order is assumed: the server's message may come before,
/// between or after its writes.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    number: u32,
    /// The number of writes that were reported.
    seen: u32,
    /// The expected number, once the server has sent it.
    expected: Option<u32>,
}

impl Arrivals {
    /// Creates the state for the request of this number.
    pub(crate) fn of(number: u32) -> Self {
        Self { number, ..Self::default() }
    }

    /// Handles the server's acceptance: `told` of its writes will be reported.
    pub(crate) fn accepted(&mut self, number: u32, told: u32) {
        if number == self.number {
            self.expected = Some(told);
        }
    }

    /// Handles a reported write. Those of other requests are ignored.
    pub(crate) fn written(&mut self, immediate: u64) {
        if immediate == u64::from(self.number) {
            self.seen += 1;
        }
    }

    /// Returns `true` if every page has arrived.
    pub(crate) fn are_complete(&self) -> bool {
        self.expected.is_some_and(|expected| self.seen >= expected)
    }
}
