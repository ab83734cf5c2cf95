//! Queue pairs that share nothing: each has a completion queue and a thread of its own.
//!
//! ```console
//! $ many_queues --queues 8 --messages 1000
//! ```
//!
//! No lock is shared by two threads, so each core works independently. Adjacent queue pairs are
//! connected, and send to each other at the same time. An idle thread polls for a short time, and
//! then sleeps until its own queue has a completion.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program")]

use std::process::ExitCode;
use std::thread;

use common::{Failure, check, deadline, fill, is_filled, open};
use farreach_memory::Slice;
use farreach_verbs::cq::{CompletionQueue, CompletionQueueBuilder, Wait, WorkKind};
use farreach_verbs::pd::ProtectionDomain;
use farreach_verbs::qp::state::ConnectionParameters;
use farreach_verbs::qp::{QueuePair, QueuePairBuilder, QueuePairType};
use farreach_verbs::wr::{RecvRequest, SendRequest};

mod common;

const USAGE: &str = "usage: many_queues [--queues N] [--messages N]";
const BYTES: usize = 1024;
/// The header of every message: the sender and the number of the message.
const HEAD: usize = 8;
/// The maximum number of messages sent more than received.
const AHEAD: u32 = 16;
/// The number of posted receives. Before a neighbour sent a message that has arrived, it had posted
/// receives for all but the last `AHEAD` of ours, and we send `AHEAD` more. So with twice as many,
/// a message always finds a receive.
const ROOM: u32 = 2 * AHEAD;

fn main() -> ExitCode {
    common::run(USAGE, &["--queues", "--messages"], |arguments| {
        arguments.none()?;
        let queues = arguments.number("--queues", 4, 2..=512)?;
        let messages = arguments.number("--messages", 100, 1..=1_000_000)?;
        if !queues.is_multiple_of(2) {
            return Err(Failure::usage("--queues must be even: queues are connected in pairs"));
        }
        let (context, parameters) = open(None)?;
        let pd = context.alloc_pd()?;
        let queues = (0..queues).map(|number| Queue::new(&pd, number)).collect::<Result<Vec<_>, _>>()?;
        for neighbours in queues.chunks_exact(2) {
            connect(&neighbours[0].qp, &neighbours[1].qp, &parameters)?;
        }
        exchange(&queues, messages)
    })
}

/// Lets every queue send and receive on its own thread, and prints the results.
fn exchange(queues: &[Queue], messages: u32) -> Result<(), Failure> {
    // The queues outlive the threads: a queue that is done first must still acknowledge its
    // neighbour.
    let ended: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = queues.iter().map(|queue| scope.spawn(|| queue.run(messages))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a queue's thread does not panic")).collect()
    });
    let mut incomplete = 0;
    for (queue, (counts, outcome)) in queues.iter().zip(ended) {
        println!("queue {}: {} sent, {} received", queue.number, counts.sent, counts.received);
        if let Err(failure) = outcome {
            println!("queue {} FAILED: {}; {}", queue.number, failure.error, failure.cause);
        }
        incomplete += u32::from(counts != Counts { sent: messages, received: messages });
    }
    if incomplete > 0 {
        let error = format!("{incomplete} of {} queues miss messages", queues.len());
        return Err(Failure::new(error, "see the lines above", "check dmesg"));
    }
    println!("{} queues, {messages} messages each way, none missing", queues.len());
    Ok(())
}

/// A queue pair, its completion queue, and its protection domain.
struct Queue {
    number: u32,
    qp: QueuePair,
    cq: CompletionQueue,
    pd: ProtectionDomain,
}

/// The number of completed messages.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
struct Counts {
    sent: u32,
    received: u32,
}

impl Queue {
    fn new(pd: &ProtectionDomain, number: u32) -> Result<Self, Failure> {
        // A channel without other queues, so that a thread wakes only for its own.
        let channel = pd.context().create_comp_channel()?;
        let cq = CompletionQueueBuilder::new(ROOM + AHEAD).channel(&channel).build(pd.context())?;
        let builder = QueuePairBuilder::new(QueuePairType::Rc, &cq, &cq);
        let qp = builder.max_send_wr(AHEAD).max_recv_wr(ROOM).build(pd)?;
        Ok(Self { number, qp, cq, pd: pd.clone() })
    }

    /// Returns the counts, and the error if any.
    fn run(&self, messages: u32) -> (Counts, Result<(), Failure>) {
        let mut counts = Counts::default();
        let outcome = self.send_and_receive(messages, &mut counts);
        (counts, outcome)
    }

    fn send_and_receive(&self, messages: u32, counts: &mut Counts) -> Result<(), Failure> {
        let mut free = self.slices(AHEAD)?;
        let mut room = self.slices(ROOM)?.into_iter().map(RecvRequest::new).collect();
        self.qp.post_recv_list(&mut room)?;
        let mut next = 0;
        let mut poller = self.cq.poller();
        while *counts != (Counts { sent: messages, received: messages }) {
            while next < messages.min(counts.received + AHEAD) {
                let Some(mut slice) = free.pop() else { break };
                write_message(&mut slice, self.number, next);
                self.qp.post_send(SendRequest::send(slice))?;
                next += 1;
            }
            let mut is_idle = true;
            for completion in poller.wait(Wait::default(), Some(deadline()))? {
                is_idle = false;
                completion.outcome()?;
                let kind = completion.kind();
                let slice = completion.into_buffers().into_slice().expect("it was one slice");
                if kind == WorkKind::Recv {
                    // Numbers of neighbours differ in the last bit.
                    check(is_message(&slice, self.number ^ 1, counts.received), "a message")?;
                    counts.received += 1;
                    self.qp.post_recv(RecvRequest::new(slice))?;
                } else {
                    counts.sent += 1;
                    free.push(slice);
                }
            }
            if is_idle {
                return Err(Failure::timed_out("completion"));
            }
        }
        Ok(())
    }

    /// Returns buffers from one allocation, which is registered once.
    fn slices(&self, count: u32) -> Result<Vec<Slice>, Failure> {
        let mut whole = self.pd.allocate(count as usize * BYTES)?;
        Ok((0..count).map(|_| whole.split_to(BYTES)).collect())
    }
}

fn connect(one: &QueuePair, other: &QueuePair, parameters: &ConnectionParameters) -> Result<(), Failure> {
    let (at_one, at_other) = (one.to_init(parameters)?, other.to_init(parameters)?);
    one.connect(parameters, &at_one, &at_other)?;
    Ok(other.connect(parameters, &at_other, &at_one)?)
}

fn head(sender: u32, number: u32) -> [u8; HEAD] {
    (u64::from(sender) << 32 | u64::from(number)).to_be_bytes()
}

fn write_message(slice: &mut [u8], sender: u32, number: u32) {
    slice[..HEAD].copy_from_slice(&head(sender, number));
    fill(&mut slice[HEAD..], number);
}

fn is_message(slice: &[u8], sender: u32, number: u32) -> bool {
    slice[..HEAD] == head(sender, number) && is_filled(&slice[HEAD..], number)
}
