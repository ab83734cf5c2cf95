//! Tests of many queue pairs on one shared receive queue and one completion queue.

use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::time::Instant;

use farreach_memory::Slice;
use farreach_testkit::{Device, WAIT_MAX, does_long_tests, on_host_a};
use farreach_verbs::cq::{CompletionQueue, WorkKind};
use farreach_verbs::device::DeviceList;
use farreach_verbs::imm::ImmediateData;
use farreach_verbs::leak::leaked;
use farreach_verbs::pd::ProtectionDomain;
use farreach_verbs::qp::state::ConnectionParameters;
use farreach_verbs::qp::{QueuePair, QueuePairBuilder, QueuePairType};
use farreach_verbs::srq::SharedReceiveQueue;
use farreach_verbs::wr::{RecvRequest, SendRequest};

/// The number of queue pairs. Each one sends to its partner and receives from it.
const QUEUE_PAIRS: usize = 1000;

/// Returns the number of messages per queue pair: a hundred, or two batches in a partial run.
fn messages() -> u32 {
    if does_long_tests() { 100 } else { 2 * BATCH }
}

/// Messages in flight per queue pair. The last one is signalled.
const BATCH: u32 = 10;

/// One receive for each message that can be in flight. A received message's buffer is posted again
/// before its sender gets the completion, because both complete on the same queue.
const RECEIVES: usize = QUEUE_PAIRS * BATCH as usize;

/// The size of a message: its sender and its number.
const MESSAGE: usize = 8;

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_thousand_queue_pairs_share_a_receive_queue_and_a_completion_queue() {
    on_host_a(|| {
        let device = Device::find();
        let context = DeviceList::get().unwrap().find(&device.name).expect("it is listed").open().unwrap();
        let pd = context.alloc_pd().unwrap();
        // All work requests of all queues may have completed before the first poll.
        let depth = QUEUE_PAIRS * BATCH as usize + RECEIVES;
        let limits = context.query_device().unwrap();
        assert!(depth <= limits.max_cqe as usize && RECEIVES <= limits.max_srq_wr as usize, "{limits:?}");
        let cq = context.create_cq(depth as u32).unwrap();
        let srq = pd.create_srq(RECEIVES as u32, 1).unwrap();
        for slice in cut(&pd, RECEIVES) {
            srq.post_recv(RecvRequest::new(slice)).unwrap();
        }

        let before = Memory::now();
        let start = Instant::now();
        let parameters =
            ConnectionParameters::choose(&context, device.port, Some(device.address.into())).unwrap();
        let qps = connected(&pd, &cq, &srq, &parameters);
        let after = Memory::now();
        let made = start.elapsed();
        let mut exchange = Exchange::new(&qps, &srq, &cq, cut(&pd, RECEIVES));
        let start = Instant::now();
        exchange.run();
        let moved = start.elapsed();

        assert_eq!(exchange.received, vec![messages(); QUEUE_PAIRS], "none is lost, and none comes twice");
        assert!(qps.iter().all(|qp| qp.in_flight() == (0, 0)));
        assert_eq!(exchange.free.len(), RECEIVES, "every buffer is back");
        drop(exchange);
        let start = Instant::now();
        drop(qps);
        let told = format!(
            "{QUEUE_PAIRS} queue pairs: made in {made:.1?}, {} messages each in {moved:.1?}, gone in {:.1?}; \
             each takes {} bytes of the process, {} of the machine\n",
            messages(),
            start.elapsed(),
            after.resident.saturating_sub(before.resident) / QUEUE_PAIRS,
            before.available.saturating_sub(after.available) / QUEUE_PAIRS,
        );
        // Not println, whose output is captured when tests pass.
        std::io::stderr().write_all(told.as_bytes()).unwrap();
        assert_eq!(leaked().total(), 0);
    });
}

/// Creates queue pairs, and connects neighbours.
fn connected(
    pd: &ProtectionDomain,
    cq: &CompletionQueue,
    srq: &SharedReceiveQueue,
    parameters: &ConnectionParameters,
) -> Vec<QueuePair> {
    let mut builder = QueuePairBuilder::new(QueuePairType::Rc, cq, cq).srq(srq);
    builder = builder.max_send_wr(BATCH).max_recv_wr(0).max_send_sge(1).max_inline_data(MESSAGE as u32);
    let qps: Vec<_> = (0..QUEUE_PAIRS).map(|_| builder.build(pd).unwrap()).collect();
    for pair in qps.chunks_exact(2) {
        let (a, b) = (pair[0].to_init(parameters).unwrap(), pair[1].to_init(parameters).unwrap());
        pair[0].connect(parameters, &a, &b).unwrap();
        pair[1].connect(parameters, &b, &a).unwrap();
    }
    qps
}

/// Returns slices for one message each, from one allocation.
fn cut(pd: &ProtectionDomain, count: usize) -> Vec<Slice> {
    let mut whole = pd.allocate(count * MESSAGE).unwrap();
    (0..count).map(|_| whole.split_to(MESSAGE)).collect()
}

struct Exchange<'a> {
    qps: &'a [QueuePair],
    srq: &'a SharedReceiveQueue,
    cq: &'a CompletionQueue,
    /// By queue pair number: its index.
    places: HashMap<u32, usize>,
    /// Slices to send from.
    free: Vec<Slice>,
    sent: Vec<u32>,
    /// By sender.
    received: Vec<u32>,
}

impl<'a> Exchange<'a> {
    fn new(
        qps: &'a [QueuePair],
        srq: &'a SharedReceiveQueue,
        cq: &'a CompletionQueue,
        free: Vec<Slice>,
    ) -> Self {
        let places = qps.iter().enumerate().map(|(place, qp)| (qp.qp_num(), place)).collect();
        let (sent, received) = (vec![0; qps.len()], vec![0; qps.len()]);
        Self { qps, srq, cq, places, free, sent, received }
    }

    fn run(&mut self) {
        let goal = messages();
        for sender in 0..self.qps.len() {
            self.send_batch(sender);
        }
        let (mut unfinished, mut progress) = (self.qps.len(), Instant::now());
        while unfinished > 0 || self.received.iter().any(|count| *count < goal) {
            let mut told = Vec::new();
            let mut poller = self.cq.poller();
            for completion in poller.poll().unwrap() {
                let success =
                    completion.outcome().unwrap_or_else(|failure| panic!("{failure}: {}", failure.cause()));
                let (kind, tag, qp_num) = (completion.kind(), completion.tag(), completion.qp_num());
                let slice = completion.into_buffers().into_slice().unwrap();
                if kind == WorkKind::Recv {
                    let receiver = self.places[&qp_num];
                    take(&mut self.received, receiver, &slice, success.immediate);
                    self.srq.post_recv(RecvRequest::new(slice)).unwrap();
                } else {
                    self.free.push(slice);
                    told.push((self.places[&qp_num], tag));
                }
            }
            drop(poller);
            for (sender, message) in told {
                progress = Instant::now();
                match message + 1 {
                    next if next == u64::from(goal) => unfinished -= 1,
                    next if next % u64::from(BATCH) == 0 => self.send_batch(sender),
                    _ => {}
                }
            }
            assert!(progress.elapsed() < WAIT_MAX, "{unfinished} queue pairs wait for ever");
        }
    }

    fn send_batch(&mut self, sender: usize) {
        for place in 1..=BATCH {
            let message = self.sent[sender];
            let mut slice = self.free.pop().expect("one for each message in flight");
            slice[..4].copy_from_slice(&(sender as u32).to_be_bytes());
            slice[4..].copy_from_slice(&message.to_be_bytes());
            let request = SendRequest::send(slice).immediate(message).inline().tag(message.into());
            let request = if place == BATCH { request } else { request.unsignaled() };
            self.qps[sender].post_send(request).unwrap();
            self.sent[sender] += 1;
        }
    }
}

/// Checks that a message is the next one of the receiver's partner.
fn take(received: &mut [u32], receiver: usize, message: &[u8], immediate: Option<ImmediateData>) {
    let word = |at: usize| u32::from_be_bytes(message[at..at + 4].try_into().unwrap());
    let sender = receiver ^ 1;
    let expected = received[sender];
    assert_eq!((word(0) as usize, word(4)), (sender, expected), "to queue pair {receiver}");
    assert_eq!(immediate, Some(ImmediateData(expected)));
    received[sender] += 1;
}

/// Memory use, in bytes.
struct Memory {
    /// Of this process.
    resident: usize,
    /// Of the machine.
    available: usize,
}

impl Memory {
    fn now() -> Self {
        Self {
            resident: field("/proc/self/status", "VmRSS:"),
            available: field("/proc/meminfo", "MemAvailable:"),
        }
    }
}

fn field(file: &str, name: &str) -> usize {
    let text = fs::read_to_string(file).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("the kernel reports it");
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
}
