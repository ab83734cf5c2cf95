//! Streams of verbs operations, for `farreach bench`.

use std::collections::VecDeque;

use anyhow::{Result, bail};
use farreach::Slice;
use farreach_verbs::cq::WorkKind;
use farreach_verbs::mr::AccessFlags;
use farreach_verbs::wr::{Flush, FlushLevel, FlushPlacement, RemoteRange, SendRequest};

use super::card::{Card, Cards};
use super::link::{Link, LinkRules, Receives, path_mtu};
use super::meet::{Called, Received, call, receive};
use super::memory::Memory;
use super::operation::{FILL, NativeOperation, WORD};
use super::queue_pair::{Connection, QueuePairArgs};
use super::receiver::Receiver;
use crate::exit::{Exit, Failure};
use crate::session::{Channel, Wait};
use crate::stream::Stream;

/// The parameters of a stream, known to both sides.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StreamRules {
    pub(crate) operation: NativeOperation,
    pub(crate) bytes: usize,
    /// Operations in flight.
    pub(crate) depth: usize,
    pub(crate) queue_pair: QueuePairArgs,
    pub(crate) wait: Wait,
}

impl StreamRules {
    /// Returns the requirements on the queue pairs. `access` are the rights of the other side.
    fn links(&self, access: AccessFlags) -> LinkRules {
        let operation = self.operation;
        LinkRules {
            count: 1,
            depth: (self.depth as u32).saturating_mul(operation.requests()).max(1),
            receives: None,
            access,
            operations: operation.send_operations(),
            queue_pair: self.queue_pair,
            wait: self.wait,
        }
    }

    /// Returns the requirements on the queue pairs of the side that receives messages. It has twice
    /// as many receive requests as messages are in flight, so that it has time to post them again.
    fn receiving_links(&self) -> LinkRules {
        LinkRules {
            receives: Some(Receives {
                count: (self.depth as u32).saturating_mul(2),
                len: self.queue_pair.header_len() + self.bytes,
            }),
            ..self.links(AccessFlags::empty())
        }
    }

    /// Checks that a datagram fits into a packet.
    fn check_packet(&self, card: &Card) -> Result<(), Failure> {
        let max = path_mtu(card, &self.queue_pair)?.bytes().unwrap_or(0) as usize;
        if self.queue_pair.connection != Connection::Ud || self.bytes <= max {
            return Ok(());
        }
        Err(Failure::new(
            Exit::Unavailable,
            format!("{} cannot send a datagram of {} bytes", card.name, self.bytes),
        )
        .cause(format!("a datagram has one packet, and the path MTU is {max} bytes"))
        .fix(format!("use --sizes up to {max}, or --connection rc")))
    }
}

/// Connects the client's side of a stream, and posts nothing yet. The agent must be in
/// [`serve_stream`] with the same rules.
///
/// Fails with [`Exit::Unavailable`] if a card of either side lacks the operation, or if there is no
/// card. The agent gets the same failure, and both sides can continue.
pub(crate) fn client_stream(cards: &Cards, channel: &Channel, rules: StreamRules) -> Result<NativeStream> {
    let operation = rules.operation;
    let called = call(cards, channel, |card| {
        operation.check_size(rules.bytes)?;
        operation.check(card)?;
        rules.check_packet(card)?;
        Ok(rules.links(AccessFlags::empty()))
    })?;
    let mut free = Vec::new();
    if operation != NativeOperation::AtomicWrite {
        for _ in 0..rules.depth {
            let mut slice = called.card.allocate(rules.bytes)?;
            // Filled with other bytes than the server has, so that a missing read is detected.
            slice.fill(if operation == NativeOperation::Read { !FILL } else { FILL });
            free.push(slice);
        }
    }
    let Called { mut links, memory, .. } = called;
    let (Some(link), Some(target)) = (links.pop(), memory.get(0, rules.bytes as u64)) else {
        bail!("the other side offered less memory than requested");
    };
    let QueuePairArgs { inline_bytes, post_list, .. } = rules.queue_pair;
    Ok(NativeStream {
        link,
        target,
        operation,
        is_inline: rules.bytes <= inline_bytes as usize,
        list: Vec::with_capacity(post_list as usize),
        list_len: post_list as usize,
        in_flight: 0,
        free,
        posted: 0,
        done: VecDeque::new(),
    })
}

/// Connects the agent's side of a stream. It only has to exist until the client is done.
pub(crate) fn serve_stream(cards: &Cards, channel: &Channel, rules: StreamRules) -> Result<ServedStream> {
    let operation = rules.operation;
    let Received { mut links, memory } = receive(
        cards,
        channel,
        |card| {
            operation.check(card)?;
            rules.check_packet(card)?;
            Ok(match operation {
                NativeOperation::Send => rules.receiving_links(),
                _ => rules.links(operation.access()),
            })
        },
        |card| {
            let memory = Memory::host(card, rules.bytes, operation.access())
                .map_err(|failure| refused(operation, failure))?;
            if operation == NativeOperation::Read {
                memory.write(0, &vec![FILL; rules.bytes])?;
            }
            Ok(memory)
        },
    )?;
    let receiver = match operation {
        NativeOperation::Send => {
            let Some(link) = links.pop() else { bail!("there is no queue pair to receive with") };
            Some(Receiver::start(link, &rules.queue_pair, rules.bytes)?)
        }
        _ => None,
    };
    let is_reliable = rules.queue_pair.is_reliable();
    Ok(ServedStream { _links: links, receiver, memory, operation, is_reliable })
}

/// Replaces a failed registration for persistence: ordinary memory does not survive a power
/// failure.
fn refused(operation: NativeOperation, failure: Failure) -> Failure {
    if operation != NativeOperation::FlushPersistent {
        return failure;
    }
    Failure::new(Exit::Unavailable, format!("no memory supports {}", operation.name()))
        .cause(format!("host memory was refused: {}", failure.sentence()))
        .fix("use persistent memory (pmem), or measure FLUSH to global visibility")
}

/// The client's side of a stream.
#[derive(Debug)]
pub(crate) struct NativeStream {
    link: Link,
    target: RemoteRange,
    operation: NativeOperation,
    /// Whether work requests carry their bytes inline.
    is_inline: bool,
    /// Work requests that wait until there are enough for one call.
    list: Vec<SendRequest>,
    list_len: usize,
    /// Work requests that were posted and have not completed.
    in_flight: usize,
    /// Memory that is not in flight.
    free: Vec<Slice>,
    posted: u64,
    /// Sources of writes whose FLUSH has not completed.
    done: VecDeque<Slice>,
}

impl NativeStream {
    fn post_flushed_write(&mut self, placement: FlushPlacement) -> Result<()> {
        let source = self.numbered()?;
        self.link.post(SendRequest::write(source, self.target).unsignaled())?;
        self.link.post(SendRequest::flush(self.target, Flush { placement, level: FlushLevel::Range }))?;
        Ok(())
    }
}

/// Plain writes, reads and messages.
impl NativeStream {
    fn post_write(&mut self) -> Result<()> {
        let request = SendRequest::write(self.numbered()?, self.target);
        self.enqueue(if self.is_inline { request.inline() } else { request })
    }

    fn post_send(&mut self) -> Result<()> {
        let source = self.numbered()?;
        let request = self.link.addressed(SendRequest::send(source));
        self.enqueue(if self.is_inline { request.inline() } else { request })
    }

    /// Returns free memory that begins with the sequence number of this operation.
    fn numbered(&mut self) -> Result<Slice> {
        let Some(mut source) = self.free.pop() else { bail!("more operations are in flight than requested") };
        let len = WORD.min(source.len());
        source[..len].copy_from_slice(&self.posted.to_le_bytes()[..len]);
        Ok(source)
    }

    fn post_read(&mut self) -> Result<()> {
        let Some(into) = self.free.pop() else { bail!("more operations are in flight than requested") };
        self.enqueue(SendRequest::read(into, self.target))
    }

    fn enqueue(&mut self, request: SendRequest) -> Result<()> {
        self.list.push(request);
        if self.list.len() < self.list_len { Ok(()) } else { self.hand_over() }
    }

    fn hand_over(&mut self) -> Result<()> {
        let count = self.list.len();
        self.link.post_list(&mut self.list)?;
        self.in_flight += count;
        Ok(())
    }

    fn complete_plain(&mut self) -> Result<()> {
        // An incomplete list is posted only if there is nothing else to wait for.
        if self.in_flight == 0 {
            self.hand_over()?;
        }
        let done = self.link.complete()?;
        self.in_flight -= 1;
        let Ok(slice) = done.buffers.into_slice() else {
            bail!("a work request completed without its buffer")
        };
        if self.operation == NativeOperation::Read && [slice.first(), slice.last()] != [Some(&FILL); 2] {
            return Err(Failure::new(Exit::Mismatch, "the bytes read differ from the memory of the server")
                .cause(format!("byte 0 is {:?} instead of {FILL}", slice.first()))
                .fix("do not use this path for data; check the error counters of the card")
                .into());
        }
        self.free.push(slice);
        Ok(())
    }
}

impl Stream for NativeStream {
    fn post(&mut self) -> Result<()> {
        self.posted += 1;
        match self.operation {
            NativeOperation::AtomicWrite => {
                // The card treats it as bytes, so both sides see the same order.
                let word = u64::from_ne_bytes(self.posted.to_le_bytes());
                Ok(self.link.post(SendRequest::atomic_write(self.target, word))?)
            }
            NativeOperation::FlushGlobal => self.post_flushed_write(FlushPlacement::Global),
            NativeOperation::FlushPersistent => self.post_flushed_write(FlushPlacement::Persistent),
            NativeOperation::Write => self.post_write(),
            NativeOperation::Read => self.post_read(),
            NativeOperation::Send => self.post_send(),
        }
    }

    fn complete(&mut self) -> Result<()> {
        if self.operation.is_plain() {
            return self.complete_plain();
        }
        loop {
            let done = self.link.complete()?;
            match done.kind {
                // An unsignaled write is reported together with its FLUSH.
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
    /// Kept alive: they serve the client until they are dropped.
    _links: Vec<Link>,
    /// Receives the messages, if the client sends some.
    pub(crate) receiver: Option<Receiver>,
    memory: Memory,
    operation: NativeOperation,
    is_reliable: bool,
}

impl ServedStream {
    /// Checks that the memory holds the client's last write, or that its messages have arrived. To
    /// be called after all operations; `posted` is their number.
    pub(crate) fn check(mut self, posted: u64) -> Result<(), Failure> {
        if let Some(receiver) = self.receiver.take() {
            receiver.wait_for(posted);
            let received = receiver.end()?;
            if received == posted || !self.is_reliable && received < posted {
                return Ok(());
            }
            return Err(Failure::new(
                Exit::Mismatch,
                format!("{posted} messages were sent, {received} arrived"),
            )
            .fix("do not use this path for data; check the error counters of the card"));
        }
        // Reads write nothing here. The client checks what it has read.
        if posted == 0 || self.operation == NativeOperation::Read {
            return Ok(());
        }
        let mut bytes = vec![0; self.memory.len()];
        self.memory.read(0, &mut bytes)?;
        let (number, rest) = bytes.split_at(WORD.min(bytes.len()));
        // An unreliable connection may have lost the last writes.
        let is_last = number == &posted.to_le_bytes()[..number.len()] || !self.is_reliable;
        if is_last && rest.iter().all(|byte| *byte == FILL) {
            return Ok(());
        }
        let found = number.iter().rev().fold(0_u64, |word, byte| word << 8 | u64::from(*byte));
        let wrong = rest.iter().filter(|byte| **byte != FILL).count();
        Err(Failure::new(Exit::Mismatch, format!("the memory has wrong contents after {}", self.operation.name()))
            .cause(format!("the last write was number {posted}; the memory has number {found}, and {wrong} wrong bytes after it"))
            .fix("do not use this path for data; check the error counters of the card"))
    }
}
