//! What the safe door costs beside the raw one: `cost safe|raw ROUNDS` writes to its own memory, eight requests a round.
//!
//! Counted, not timed: run it under `valgrind --tool=callgrind` with two numbers of rounds; the difference is what the rounds
//! between them cost. Both doors do the same: post eight writes of 64 bytes, sleep until they are done, poll them at once.

use std::time::Duration;

use farreach_memory::Slice;
use farreach_verbs::cq::CompletionQueue;
use farreach_verbs::device::DeviceList;
use farreach_verbs::mr::AccessFlags;
use farreach_verbs::qp::state::ConnectionParameters;
use farreach_verbs::qp::{QueuePair, QueuePairBuilder, QueuePairType};
use farreach_verbs::region::ExposedRegion;
use farreach_verbs::wr::SendRequest;
use farreach_verbs::{Error, sys};

const REQUESTS: usize = 8;
const BYTES: usize = 64;

/// Long enough for a Soft-RoCE under emulation to finish eight writes.
const PAUSE: Duration = Duration::from_millis(60);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, door, device, rounds] = &arguments[..] else {
        return Err("usage: cost safe|raw DEVICE ROUNDS".into());
    };
    let rounds: usize = rounds.parse()?;
    let context = DeviceList::get()?.find(device).ok_or("no such device")?.open()?;
    let pd = context.alloc_pd()?;
    let cq = context.create_cq(64)?;
    let qp = QueuePairBuilder::new(QueuePairType::Rc, &cq, &cq).max_send_wr(16).max_recv_wr(1).build(&pd)?;
    let mut parameters = ConnectionParameters::choose(&context, 1, None)?;
    parameters.access = AccessFlags::REMOTE_WRITE;
    let own = qp.to_init(&parameters)?;
    qp.connect(&parameters, &own, &own)?;

    let target = pd.expose(pd.allocate(BYTES)?, AccessFlags::REMOTE_WRITE).map_err(|(error, _)| error)?;
    let mut whole = pd.allocate(REQUESTS * BYTES)?;
    let slices: Vec<Slice> = (0..REQUESTS).map(|_| whole.split_to(BYTES)).collect();
    match door.as_str() {
        "safe" => safe(&qp, &cq, &target, slices, rounds)?,
        "raw" => raw(&qp, &cq, &target, slices, rounds)?,
        other => return Err(format!("no door is called {other}").into()),
    }
    Ok(())
}

fn safe(
    qp: &QueuePair,
    cq: &CompletionQueue,
    target: &ExposedRegion,
    mut slices: Vec<Slice>,
    rounds: usize,
) -> Result<(), Error> {
    let remote = target.remote();
    for _ in 0..rounds {
        for slice in slices.drain(..) {
            qp.post_send(SendRequest::write(slice, remote)).expect("there is room");
        }
        std::thread::sleep(PAUSE);
        let mut poller = cq.poller();
        while slices.len() < REQUESTS {
            for completion in poller.poll()? {
                completion.outcome().expect("it is written");
                slices.push(completion.into_buffers().into_slice().expect("it was one slice"));
            }
        }
    }
    Ok(())
}

fn raw(
    qp: &QueuePair,
    cq: &CompletionQueue,
    target: &ExposedRegion,
    slices: Vec<Slice>,
    rounds: usize,
) -> Result<(), Error> {
    let remote = target.remote();
    let domain = qp.pd().expect("it is in one").id();
    for _ in 0..rounds {
        for (id, slice) in slices.iter().enumerate() {
            let mut element = sys::ibv_sge {
                addr: slice.address().as_ptr().addr() as u64,
                length: BYTES as u32,
                lkey: slice.local_key(domain).expect("it is registered") as u32,
            };
            let mut wr = sys::ibv_send_wr {
                wr_id: id as u64,
                sg_list: &raw mut element,
                num_sge: 1,
                opcode: sys::IBV_WR_RDMA_WRITE,
                send_flags: sys::IBV_SEND_SIGNALED,
                ..Default::default()
            };
            wr.wr.rdma.remote_addr = remote.address();
            wr.wr.rdma.rkey = remote.key().0;
            // SAFETY: the slice is registered and outlives the round, which ends with its completion.
            unsafe { qp.post_send_raw(&raw mut wr, &mut std::ptr::null_mut()) }?;
        }
        std::thread::sleep(PAUSE);
        let mut done = 0;
        let mut completions = [sys::ibv_wc::default(); 32];
        while done < REQUESTS {
            // SAFETY: all requests of this queue are those above.
            let count = unsafe { cq.poll_raw(&mut completions) }?;
            for completion in &completions[..count] {
                assert_eq!(completion.status, sys::IBV_WC_SUCCESS);
                done += 1;
            }
        }
    }
    Ok(())
}
