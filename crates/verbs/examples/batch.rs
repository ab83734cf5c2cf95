//! Compares 64 small writes in one post with 64 posts.
//!
//! ```console
//! $ batch
//! $ batch --repetitions 100
//! ```
//!
//! Every post rings the device's doorbell, which is its most expensive part; on Soft-RoCE, where
//! the kernel is the device, it is a system call. A list rings it once. The effect of the writes is
//! the same, and is checked for both.
//!
//! The program compares the time until all writes are posted. Each repetition posts both ways in
//! succession and computes the ratio, so that a temporary slowdown of the machine affects both.
//! Differences within the spread are not significant.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program")]

use std::process::ExitCode;
use std::time::{Duration, Instant};

use common::{Failure, check, fill, is_filled, open, wait};
use farreach_memory::Slice;
use farreach_verbs::cq::CompletionQueue;
use farreach_verbs::mr::AccessFlags;
use farreach_verbs::qp::{QueuePair, QueuePairBuilder, QueuePairType};
use farreach_verbs::region::ExposedRegion;
use farreach_verbs::wr::SendRequest;

mod common;

const WRITES: u32 = 64;
const BYTES: usize = 64;

fn main() -> ExitCode {
    common::run("usage: batch [--repetitions N]", &["--repetitions"], |arguments| {
        arguments.none()?;
        let repetitions = arguments.number("--repetitions", 15, 3..=10_000)?;
        let mut writer = Writer::new()?;
        let mut ratios = Vec::new();
        for repetition in 0..repetitions {
            let (one_by_one, at_once) = match repetition % 2 {
                0 => (writer.write(Way::OneByOne)?, writer.write(Way::AtOnce)?),
                // The second one finds warm caches, so the order alternates.
                _ => {
                    let at_once = writer.write(Way::AtOnce)?;
                    (writer.write(Way::OneByOne)?, at_once)
                }
            };
            ratios.push(one_by_one.as_secs_f64() / at_once.as_secs_f64());
        }
        ratios.sort_by(f64::total_cmp);
        println!("{WRITES} posts of one write: all {WRITES} writes landed, {repetitions} times");
        println!("1 post of {WRITES} writes: all {WRITES} writes landed, {repetitions} times");
        println!(
            "{WRITES} posts took {:.1} times as long as one: the median of {repetitions} repetitions, from {:.1} to {:.1}",
            ratios[ratios.len() / 2],
            ratios[0],
            ratios[ratios.len() - 1],
        );
        Ok(())
    })
}

#[derive(Clone, Copy)]
enum Way {
    OneByOne,
    AtOnce,
}

/// A queue pair that is connected to itself, with source and target of its writes.
struct Writer {
    qp: QueuePair,
    cq: CompletionQueue,
    target: ExposedRegion,
    /// One slice for each write, from one allocation.
    slices: Vec<Slice>,
    requests: Vec<SendRequest>,
    /// The number of rounds, so that no two rounds write the same bytes.
    times: u32,
}

impl Writer {
    fn new() -> Result<Self, Failure> {
        let (context, mut parameters) = open(None)?;
        let (pd, cq) = (context.alloc_pd()?, context.create_cq(2 * WRITES)?);
        let builder = QueuePairBuilder::new(QueuePairType::Rc, &cq, &cq);
        let qp = builder.max_send_wr(WRITES).max_recv_wr(1).build(&pd)?;
        parameters.access = AccessFlags::REMOTE_WRITE;
        let own = qp.to_init(&parameters)?;
        qp.connect(&parameters, &own, &own)?;
        let len = WRITES as usize * BYTES;
        let target =
            pd.expose(pd.allocate(len)?, AccessFlags::REMOTE_WRITE).map_err(|(error, _slice)| error)?;
        let mut whole = pd.allocate(len)?;
        let slices = (0..WRITES).map(|_| whole.split_to(BYTES)).collect();
        Ok(Self { qp, cq, target, slices, requests: Vec::new(), times: 0 })
    }

    /// Writes all, waits for completion, and checks the bytes. Returns the time for posting.
    fn write(&mut self, way: Way) -> Result<Duration, Failure> {
        self.times += 1;
        for (index, mut slice) in self.slices.drain(..).enumerate() {
            fill(&mut slice, self.times + index as u32);
            let place = self
                .target
                .remote()
                .get((index * BYTES) as u64, BYTES as u64)
                .expect("the target has room for all");
            let request = SendRequest::write(slice, place).tag(index as u64);
            // The completion of the last one implies the others: writes complete in order.
            let is_last = index + 1 == WRITES as usize;
            self.requests.push(if is_last { request } else { request.unsignaled() });
        }

        let start = Instant::now();
        match way {
            Way::OneByOne => {
                for request in self.requests.drain(..) {
                    self.qp.post_send(request)?;
                }
            }
            Way::AtOnce => self.qp.post_send_list(&mut self.requests)?,
        }
        let took = start.elapsed();

        for index in 0..WRITES {
            let done = wait(&self.cq)?;
            check(done.tag == u64::from(index), "the order of the completions")?;
            self.slices.extend(done.buffers.into_slice());
        }
        let mut written = [0; BYTES];
        for index in 0..WRITES {
            self.target.bytes().read_at(index as usize * BYTES, &mut written);
            check(is_filled(&written, self.times + index), "the target memory")?;
        }
        Ok(took)
    }
}
