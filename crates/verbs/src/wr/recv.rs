//! Receive work requests.

use farreach_memory::Slice;

use super::Buffers;

/// The buffers for one message: exclusive slices, filled in order.
///
/// ```
/// use farreach_memory::Memory;
/// use farreach_verbs::wr::RecvRequest;
///
/// let request = RecvRequest::new(Memory::allocate(4096)?).tag(7);
/// assert_eq!(request.buffers().len(), 4096);
/// # Ok::<(), farreach_memory::AllocateError>(())
/// ```
#[doc(alias = "ibv_recv_wr")]
#[derive(Debug, Default)]
pub struct RecvRequest {
    pub(crate) buffers: Buffers,
    pub(crate) tag: u64,
}

impl RecvRequest {
    /// Creates a work request with one slice.
    #[inline]
    pub fn new(slice: Slice) -> Self {
        Self { buffers: slice.into(), tag: 0 }
    }

    /// Creates a work request with several slices, filled in order.
    #[inline]
    pub fn scattered(slices: Vec<Slice>) -> Self {
        Self { buffers: Buffers::of_slices(slices), tag: 0 }
    }

    /// Creates a work request without buffers, for a message without bytes or a write with
    /// immediate.
    #[inline]
    pub fn empty() -> Self {
        Self::default()
    }

    /// Sets a number that the completion returns.
    #[inline]
    pub fn tag(mut self, tag: u64) -> Self {
        self.tag = tag;
        self
    }

    /// Returns the buffers.
    pub fn buffers(&self) -> &Buffers {
        &self.buffers
    }

    /// Takes the buffers back.
    pub fn into_buffers(self) -> Buffers {
        self.buffers
    }
}
