//! Receives the messages of a stream, in a thread of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::link::Link;
use super::operation::{FILL, WORD};
use super::queue_pair::QueuePairArgs;
use crate::exit::{Exit, Failure};
use crate::interrupt::GLANCE;

/// How long messages over a reliable connection may take until they are counted. They have arrived;
/// the thread may wait for a core.
const ARRIVES_WITHIN: Duration = Duration::from_secs(20);

/// How long no message must arrive until the others count as lost, over an unreliable connection.
const QUIET: Duration = Duration::from_millis(100);

/// The interval at which the number of messages is read.
const COUNT_EVERY: Duration = Duration::from_micros(200);

/// The receiving side of a stream of messages. Receive requests are posted again as they complete.
#[derive(Debug)]
pub(crate) struct Receiver {
    state: Arc<State>,
    is_reliable: bool,
    thread: JoinHandle<Result<(), Failure>>,
}

#[derive(Debug, Default)]
struct State {
    received: AtomicU64,
    /// Set when the thread is to end.
    is_done: AtomicBool,
}

impl Receiver {
    /// Starts a thread that receives messages of this length.
    pub(super) fn start(link: Link, queue_pair: &QueuePairArgs, len: usize) -> Result<Self, Failure> {
        let (header_len, is_reliable) = (queue_pair.header_len(), queue_pair.is_reliable());
        let state = Arc::new(State::default());
        let of_thread = Arc::clone(&state);
        let thread = thread::Builder::new()
            .name("receiver".to_owned())
            .spawn(move || receive(&link, &of_thread, header_len, len))
            .map_err(|error| {
                Failure::new(Exit::Failed, "cannot start the receiving thread").cause(error.to_string())
            })?;
        Ok(Self { state, is_reliable, thread })
    }

    fn received(&self) -> u64 {
        self.state.received.load(Ordering::Acquire)
    }

    /// Waits until this many messages have been received, or until the others must be lost. Returns
    /// the number received.
    pub(crate) fn wait_for(&self, expected: u64) -> u64 {
        let (begun, mut received, mut last) = (Instant::now(), self.received(), Instant::now());
        while received < expected
            && begun.elapsed() < ARRIVES_WITHIN
            && (self.is_reliable || last.elapsed() < QUIET)
            && !self.thread.is_finished()
        {
            thread::sleep(COUNT_EVERY);
            let now = self.received();
            if now != received {
                (received, last) = (now, Instant::now());
            }
        }
        received
    }

    /// Ends the thread. Returns the number of messages received.
    pub(super) fn end(self) -> Result<u64, Failure> {
        self.state.is_done.store(true, Ordering::Release);
        match self.thread.join() {
            Ok(ended) => ended.map(|()| self.state.received.load(Ordering::Acquire)),
            Err(_) => Err(Failure::new(Exit::Failed, "cannot receive messages").cause("the thread panicked")),
        }
    }
}

fn receive(link: &Link, state: &State, header_len: usize, len: usize) -> Result<(), Failure> {
    while !state.is_done.load(Ordering::Acquire) {
        let Some(done) = link.complete_within(GLANCE)? else { continue };
        let Ok(slice) = done.buffers.into_slice() else { continue };
        let received = done.success.byte_len as usize;
        let body = slice.get(header_len + WORD.min(len)..received).unwrap_or_default();
        if received != header_len + len || body.iter().any(|byte| *byte != FILL) {
            return Err(Failure::new(Exit::Mismatch, "a message has wrong contents")
                .cause(format!(
                    "it has {received} bytes, {} of which are wrong",
                    body.iter().filter(|byte| **byte != FILL).count()
                ))
                .fix("do not use this path for data; check the error counters of the card"));
        }
        link.post_recv(slice)?;
        state.received.fetch_add(1, Ordering::AcqRel);
    }
    Ok(())
}
