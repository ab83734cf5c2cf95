//! Streams of operations that are verbs' own, for `farreach bench`.

use std::collections::VecDeque;

use anyhow::{Result, bail};
use farreach::Slice;
use farreach_verbs::cq::WorkKind;
use farreach_verbs::mr::AccessFlags;
use farreach_verbs::wr::{Flush, FlushLevel, FlushPlacement, RemoteRange, SendRequest};

use super::card::Cards;
use super::link::{Link, LinkRules};
use super::meet::{Called, Received, call, receive};
use super::memory::Memory;
use super::operation::{NativeOperation, WORD};
use crate::exit::{Exit, Failure};
use crate::session::{Channel, Wait};
use crate::stream::Stream;

/// What a stream is of, which both sides are told.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StreamRules {
    pub(crate) operation: NativeOperation,
    pub(crate) bytes: usize,
    /// Operations under way.
    pub(crate) depth: usize,
    pub(crate) wait: Wait,
}

impl StreamRules {
    /// `access` is what the other side may do.
    fn links(&self, access: AccessFlags) -> LinkRules {
        let operation = self.operation;
        LinkRules {
            count: 1,
            depth: (self.depth as u32).saturating_mul(operation.requests()).max(1),
            access,
            operations: operation.send_operations(),
            wait: self.wait,
        }
    }
}

/// The client's side: connected, and nothing posted yet. The agent must be in [`serve_stream`] with the same rules.
///
/// [`Exit::Unavailable`] where a card of either side lacks the operation, or there is none: the agent is told so too, and both can go on.
pub(crate) fn client_stream(cards: &Cards, channel: &Channel, rules: StreamRules) -> Result<NativeStream> {
    let operation = rules.operation;
    let called = call(cards, channel, |card| {
        operation.check_size(rules.bytes)?;
        operation.check(card)?;
        Ok(rules.links(AccessFlags::empty()))
    })?;
    let mut free = Vec::new();
    if operation != NativeOperation::AtomicWrite {
        for _ in 0..rules.depth {
            let mut slice = called.card.allocate(rules.bytes)?;
            slice.fill(FILL);
            free.push(slice);
        }
    }
    let Called { mut links, memory, .. } = called;
    let (Some(link), Some(target)) = (links.pop(), memory.get(0, rules.bytes as u64)) else {
        bail!("the other side has offered less than was asked for");
    };
    Ok(NativeStream { link, target, operation, free, posted: 0, done: VecDeque::new() })
}

/// The agent's side: connected. It has nothing to do but to stay until the client has enough.
pub(crate) fn serve_stream(cards: &Cards, channel: &Channel, rules: StreamRules) -> Result<ServedStream> {
    let operation = rules.operation;
    let Received { links, memory } = receive(
        cards,
        channel,
        |card| {
            operation.check(card)?;
            Ok(rules.links(operation.access()))
        },
        |card| {
            Memory::host(card, rules.bytes, operation.access()).map_err(|failure| refused(operation, failure))
        },
    )?;
    Ok(ServedStream { _links: links, memory, operation })
}

/// Memory that was not registered: for persistence, because it is none that outlives a power cut.
fn refused(operation: NativeOperation, failure: Failure) -> Failure {
    if operation != NativeOperation::FlushPersistent {
        return failure;
    }
    Failure::new(Exit::Unavailable, format!("there is no memory for {}", operation.name()))
        .cause(format!("the host's memory was not taken: {}", failure.sentence()))
        .fix("it needs persistent memory (pmem); measure FLUSH to global visibility instead")
}

/// What a write consists of behind its number.
const FILL: u8 = 0x5a;

/// The client's side of a stream.
#[derive(Debug)]
pub(crate) struct NativeStream {
    link: Link,
    target: RemoteRange,
    operation: NativeOperation,
    /// Sources that no card has.
    free: Vec<Slice>,
    posted: u64,
    /// Sources of writes whose flush is not done.
    done: VecDeque<Slice>,
}

impl NativeStream {
    fn post_flushed_write(&mut self, placement: FlushPlacement) -> Result<()> {
        let Some(mut source) = self.free.pop() else { bail!("more is under way than was asked for") };
        source[..WORD].copy_from_slice(&self.posted.to_le_bytes());
        self.link.post(SendRequest::write(source, self.target).unsignaled())?;
        self.link.post(SendRequest::flush(self.target, Flush { placement, level: FlushLevel::Range }))?;
        Ok(())
    }
}

impl Stream for NativeStream {
    fn post(&mut self) -> Result<()> {
        self.posted += 1;
        match self.operation {
            NativeOperation::AtomicWrite => {
                // The card takes it as bytes: the same ones on both sides.
                let word = u64::from_ne_bytes(self.posted.to_le_bytes());
                Ok(self.link.post(SendRequest::atomic_write(self.target, word))?)
            }
            NativeOperation::FlushGlobal => self.post_flushed_write(FlushPlacement::Global),
            NativeOperation::FlushPersistent => self.post_flushed_write(FlushPlacement::Persistent),
        }
    }

    fn complete(&mut self) -> Result<()> {
        loop {
            let done = self.link.complete()?;
            match done.kind {
                // It has no completion of its own, and comes with that of its flush.
                WorkKind::Write => self.done.extend(done.buffers.into_slice()),
                _ => break,
            }
        }
        self.free.extend(self.done.drain(..));
        Ok(())
    }
}

/// The agent's side of a stream.
#[derive(Debug)]
pub(crate) struct ServedStream {
    /// They serve as long as they live.
    _links: Vec<Link>,
    memory: Memory,
    operation: NativeOperation,
}

impl ServedStream {
    /// Whether what the client has written last is here: after all of its operations, of which it has posted so many.
    pub(crate) fn check(&self, posted: u64) -> Result<(), Failure> {
        let mut bytes = vec![0; self.memory.len()];
        self.memory.read(0, &mut bytes)?;
        let (number, rest) = bytes.split_at(WORD);
        if posted == 0 || number == posted.to_le_bytes() && rest.iter().all(|byte| *byte == FILL) {
            return Ok(());
        }
        let found = number.iter().rev().fold(0_u64, |word, byte| word << 8 | u64::from(*byte));
        let wrong = rest.iter().filter(|byte| **byte != FILL).count();
        Err(Failure::new(Exit::Mismatch, format!("what {} has left is not what was written", self.operation.name()))
            .cause(format!("the last one was number {posted}, and there is number {found}, with {wrong} wrong bytes behind it"))
            .fix("do not trust this path with data: see the card's error counters"))
    }
}
