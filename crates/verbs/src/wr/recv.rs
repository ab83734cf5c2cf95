//! Room for what a peer sends.

use farreach_memory::Slice;

use super::Buffers;

/// Room for one message: exclusive slices, filled in order.
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
    /// Room in one slice.
    #[inline]
    pub fn new(slice: Slice) -> Self {
        Self { buffers: slice.into(), tag: 0 }
    }

    /// Room in several slices, one after the other.
    #[inline]
    pub fn scattered(slices: Vec<Slice>) -> Self {
        Self { buffers: Buffers::of_slices(slices), tag: 0 }
    }

    /// No room for bytes: for a message without any, or a write with immediate.
    #[inline]
    pub fn empty() -> Self {
        Self::default()
    }

    /// A number of the caller's, which the completion has too.
    #[inline]
    pub fn tag(mut self, tag: u64) -> Self {
        self.tag = tag;
        self
    }

    /// The buffers that it takes along.
    pub fn buffers(&self) -> &Buffers {
        &self.buffers
    }

    /// The buffers, back.
    pub fn into_buffers(self) -> Buffers {
        self.buffers
    }
}
