//! Access of a client to the server's memory, by a queue pair of its own or by the engine. The
//! steps are the same over both.

use anyhow::{Context, Result, bail};
use farreach::{Buffer, CompareSwap, PageMap, RemoteSlice, Slice};
use farreach_verbs::wr::{RemoteRange, SendRequest};

use super::PATIENCE;
use crate::native::Link;
use crate::session::Channel;

/// The server's memory, and local memory for transfers to and from it.
pub(super) trait Reach: Send {
    /// Returns the local memory.
    fn scratch(&mut self) -> &mut [u8];

    /// Reads this many bytes at an offset to the beginning of the local memory.
    fn read(&mut self, offset: usize, len: usize) -> Result<()>;

    /// Writes this many bytes from the beginning of the local memory to an offset.
    fn write(&mut self, offset: usize, len: usize) -> Result<()>;

    /// Replaces the word at an offset if it has the expected value. Returns the previous value.
    fn compare_and_swap(&mut self, offset: usize, expected: u64, desired: u64) -> Result<u64>;

    /// Prepares to receive a message, before the server is asked for it.
    fn expect_message(&mut self, len: usize) -> Result<()>;

    /// Waits for that message.
    fn recv_message(&mut self) -> Result<Vec<u8>>;
}

/// The local memory is lost with a failed connection.
const LOST: &str = "the buffer was lost with an earlier work request";

/// Access by a queue pair of its own.
pub(super) struct NativeReach {
    link: Link,
    memory: RemoteRange,
    scratch: Option<Slice>,
    /// Receives the result of a compare-and-swap.
    word: Option<Slice>,
    message: Option<Slice>,
}

impl NativeReach {
    pub(super) fn new(link: Link, memory: RemoteRange, mut scratch: Slice, word: Slice) -> Self {
        scratch.fill(0);
        Self { link, memory, scratch: Some(scratch), word: Some(word), message: None }
    }

    fn range(&self, offset: usize, len: usize) -> Result<RemoteRange> {
        self.memory.get(offset as u64, len as u64).context("the range is outside the memory of the server")
    }

    /// Runs a work request on the first `len` bytes of the local memory.
    fn with_scratch(&mut self, len: usize, request: impl FnOnce(Slice) -> SendRequest) -> Result<()> {
        let Some(mut slice) = self.scratch.take() else { bail!(LOST) };
        let rest = slice.split_off(len);
        let done = self.link.run(request(slice))?;
        let Ok(mut slice) = done.buffers.into_slice() else { bail!(LOST) };
        if slice.unsplit(rest).is_err() {
            bail!(LOST);
        }
        self.scratch = Some(slice);
        Ok(())
    }
}

impl Reach for NativeReach {
    fn scratch(&mut self) -> &mut [u8] {
        self.scratch.as_deref_mut().unwrap_or_default()
    }

    fn read(&mut self, offset: usize, len: usize) -> Result<()> {
        let range = self.range(offset, len)?;
        self.with_scratch(len, |slice| SendRequest::read(slice, range))
    }

    fn write(&mut self, offset: usize, len: usize) -> Result<()> {
        let range = self.range(offset, len)?;
        self.with_scratch(len, |slice| SendRequest::write(slice, range))
    }

    fn compare_and_swap(&mut self, offset: usize, expected: u64, desired: u64) -> Result<u64> {
        let range = self.range(offset, 8)?;
        let Some(word) = self.word.take() else { bail!(LOST) };
        let done = self.link.run(SendRequest::compare_swap(word, range, expected, desired))?;
        let Ok(word) = done.buffers.into_slice() else { bail!(LOST) };
        let was = word
            .first_chunk()
            .copied()
            .map(u64::from_ne_bytes)
            .context("compare-and-swap returned no value")?;
        self.word = Some(word);
        Ok(was)
    }

    fn expect_message(&mut self, len: usize) -> Result<()> {
        let Some(message) = self.message.take().filter(|message| message.len() == len) else {
            bail!("there is no receive buffer of this size");
        };
        Ok(self.link.post_recv(message)?)
    }

    fn recv_message(&mut self) -> Result<Vec<u8>> {
        let done = self.link.complete()?;
        let len = done.success.byte_len as usize;
        let Ok(message) = done.buffers.into_slice() else { bail!(LOST) };
        Ok(message[..len.min(message.len())].to_vec())
    }
}

impl NativeReach {
    /// Adds memory to receive a message.
    pub(super) fn hearing(mut self, message: Slice) -> Self {
        self.message = Some(message);
        self
    }
}

/// Access by the engine.
pub(super) struct EngineReach {
    channel: Channel,
    memory: RemoteSlice,
    scratch: Option<Slice>,
}

impl EngineReach {
    pub(super) fn new(channel: Channel, memory: RemoteSlice, scratch: Slice) -> Self {
        Self { channel, memory, scratch: Some(scratch) }
    }

    fn range(&self, offset: usize, len: usize) -> Result<RemoteSlice> {
        self.memory
            .get(offset as u64..(offset + len) as u64)
            .context("the range is outside the memory of the server")
    }

    fn put_back(&mut self, buffer: Buffer, rest: Slice) -> Result<()> {
        let Buffer::Slice(mut slice) = buffer else { bail!(LOST) };
        if slice.unsplit(rest).is_err() {
            bail!(LOST);
        }
        self.scratch = Some(slice);
        Ok(())
    }
}

impl Reach for EngineReach {
    fn scratch(&mut self) -> &mut [u8] {
        self.scratch.as_deref_mut().unwrap_or_default()
    }

    fn read(&mut self, offset: usize, len: usize) -> Result<()> {
        let range = self.range(offset, len)?;
        let Some(mut slice) = self.scratch.take() else { bail!(LOST) };
        let rest = slice.split_off(len);
        let map = PageMap::of(len as u64).first(1);
        let done = self.channel.peer.read_pages(&range, &map, slice).wait(PATIENCE)?;
        self.put_back(done.buffer, rest)
    }

    fn write(&mut self, offset: usize, len: usize) -> Result<()> {
        let range = self.range(offset, len)?;
        let Some(mut slice) = self.scratch.take() else { bail!(LOST) };
        let rest = slice.split_off(len);
        let map = PageMap::of(len as u64).first(1);
        let done = self.channel.peer.write_pages(slice, &map, &range, None).wait(PATIENCE)?;
        self.put_back(done.buffer, rest)
    }

    fn compare_and_swap(&mut self, offset: usize, expected: u64, desired: u64) -> Result<u64> {
        let word = self.range(offset, 8)?;
        Ok(self.channel.peer.compare_and_swap(&word, CompareSwap { expected, desired }).wait(PATIENCE)?)
    }

    fn expect_message(&mut self, _len: usize) -> Result<()> {
        Ok(())
    }

    fn recv_message(&mut self) -> Result<Vec<u8>> {
        self.channel.recv_bytes(PATIENCE)
    }
}
