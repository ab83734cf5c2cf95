//! Buffers for messages.

use farreach_memory::{Buffers, Slice};
use farreach_proto::machine::HEADER;

/// Buffers for messages, of one length, which lie behind each other.
#[derive(Debug, Default)]
pub(crate) struct MessagePool {
    /// Where the first one begins, and how far they are apart.
    base: usize,
    stride: usize,
    free: Vec<Slice>,
    /// What messages leave of their buffers, by the place of the buffer.
    rests: Vec<Option<Slice>>,
}

impl MessagePool {
    pub(crate) fn new(stride: usize, free: Vec<Slice>) -> Self {
        let base = free.first().map_or(0, |first| first.as_ptr() as usize);
        let rests = free.iter().map(|_| None).collect();
        Self { base, stride, free, rests }
    }

    /// Which of the buffers it is; none where a rail hands back what it was never handed.
    fn place(&self, buffer: &Slice) -> Option<usize> {
        let place = (buffer.as_ptr() as usize).checked_sub(self.base)?.checked_div(self.stride)?;
        (place < self.rests.len()).then_some(place)
    }

    /// Whether it is one of them, or a part of one.
    #[inline]
    pub(crate) fn has(&self, buffer: &Slice) -> bool {
        self.place(buffer).is_some()
    }

    /// How many there are.
    pub(crate) fn free(&self) -> usize {
        self.free.len()
    }

    /// A buffer with a message.
    pub(crate) fn take(&mut self, mark: u32, sequence: u64, bytes: &[u8]) -> Option<Slice> {
        let mut buffer = self.free.pop()?;
        let len = HEADER + bytes.len();
        buffer[..4].copy_from_slice(&mark.to_le_bytes());
        buffer[8..HEADER].copy_from_slice(&sequence.to_le_bytes());
        buffer[HEADER..len].copy_from_slice(bytes);
        let place = self.place(&buffer)?;
        self.rests[place] = Some(buffer.split_off(len));
        Some(buffer)
    }

    pub(crate) fn put_back(&mut self, buffers: Buffers) {
        let Ok(mut buffer) = buffers.into_slice() else { return };
        let Some(rest) = self.place(&buffer).and_then(|place| self.rests[place].take()) else { return };
        // They were one.
        if buffer.unsplit(rest).is_ok() {
            self.free.push(buffer);
        }
    }
}
