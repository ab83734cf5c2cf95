//! Buffers for messages.

use farreach_memory::{Buffers, Slice};
use farreach_proto::machine::MessageHeader;

/// Buffers of one length for messages, adjacent in memory.
#[derive(Debug, Default)]
pub(crate) struct MessagePool {
    /// The address of the first buffer, and the distance between two.
    base: usize,
    stride: usize,
    free: Vec<Slice>,
    /// The unused rest of each buffer in use, by its index.
    rests: Vec<Option<Slice>>,
}

impl MessagePool {
    pub(crate) fn new(stride: usize, free: Vec<Slice>) -> Self {
        let base = free.first().map_or(0, |first| first.as_ptr() as usize);
        let rests = free.iter().map(|_| None).collect();
        Self { base, stride, free, rests }
    }

    /// Returns the index of a buffer, or `None` if it is not from this pool.
    fn place(&self, buffer: &Slice) -> Option<usize> {
        // A completed request returns a slice as any other, so its address tells where it belongs.
        // A pool without buffers has a stride of 0.
        let place = (buffer.as_ptr() as usize).checked_sub(self.base)?.checked_div(self.stride)?;
        (place < self.rests.len()).then_some(place)
    }

    /// Returns `true` if it is a buffer of the pool, or a part of one.
    #[inline]
    pub(crate) fn has(&self, buffer: &Slice) -> bool {
        self.place(buffer).is_some()
    }

    /// Returns the number of free buffers.
    pub(crate) fn free(&self) -> usize {
        self.free.len()
    }

    /// Fills a buffer with a message and its header.
    pub(crate) fn take(&mut self, header: MessageHeader, bytes: &[u8]) -> Option<Slice> {
        let mut buffer = self.free.pop()?;
        // The machine refuses messages that are longer than a buffer.
        let len = MessageHeader::LEN + bytes.len();
        buffer[..MessageHeader::LEN].copy_from_slice(&header.encode());
        buffer[MessageHeader::LEN..len].copy_from_slice(bytes);
        let place = self.place(&buffer)?;
        // A request sends all of its buffer, so it gets the message and no more.
        self.rests[place] = Some(buffer.split_off(len));
        Some(buffer)
    }

    pub(crate) fn put_back(&mut self, buffers: Buffers) {
        let Ok(mut buffer) = buffers.into_slice() else { return };
        let Some(rest) = self.place(&buffer).and_then(|place| self.rests[place].take()) else { return };
        // Both parts come from the same buffer, so they can be joined.
        if buffer.unsplit(rest).is_ok() {
            self.free.push(buffer);
        }
    }
}
