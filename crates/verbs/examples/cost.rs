//! Compares the cost of the safe API with the raw one: `cost safe|raw DEVICE ROUNDS` writes to its
//! own memory, eight work requests per round.
//!
//! The cost is counted in instructions: run it under `valgrind --tool=callgrind` with two numbers
//! of rounds, and take the difference. Both APIs do the same: eight writes of 64 bytes are in
//! flight; the program sleeps until they are done, polls them at once, and posts each again.

use std::time::Duration;

use farreach_memory::Slice;
use farreach_verbs::cq::CompletionQueue;
use farreach_verbs::device::DeviceList;
use farreach_verbs::mr::AccessFlags;
use farreach_verbs::qp::state::ConnectionParameters;
use farreach_verbs::qp::{QueuePair, QueuePairBuilder, QueuePairType};
use farreach_verbs::wr::{RemoteRange, SendRequest};
use farreach_verbs::{Error, sys};

const REQUESTS: usize = 8;
const BYTES: usize = 64;

/// Long enough for Soft-RoCE under emulation to complete eight writes.
const PAUSE: Duration = Duration::from_millis(150);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, api, device, rounds] = &arguments[..] else {
        return Err("usage: cost safe|raw DEVICE ROUNDS".into());
    };
    let rounds: usize = rounds.parse()?;
    let context = DeviceList::get()?.find(device).ok_or("no such device")?.open()?;
    let pd = context.alloc_pd()?;
    let cq = context.create_cq(64)?;
    let mut qp =
        QueuePairBuilder::new(QueuePairType::Rc, &cq, &cq).max_send_wr(16).max_recv_wr(1).build(&pd)?;
    let mut parameters = ConnectionParameters::choose(&context, 1, None)?;
    parameters.access = AccessFlags::REMOTE_WRITE;
    let own = qp.to_init(&parameters)?;
    qp.connect(&parameters, &own, &own)?;

    let target = pd.expose(pd.allocate(BYTES)?, AccessFlags::REMOTE_WRITE).map_err(|(error, _)| error)?;
    let mut whole = pd.allocate(REQUESTS * BYTES)?;
    let slices: Vec<Slice> = (0..REQUESTS).map(|_| whole.split_to(BYTES)).collect();
    match api.as_str() {
        "safe" => safe(&mut qp, &cq, target.remote(), slices, rounds)?,
        "raw" => {
            raw(&qp, &cq, target.remote(), &slices, rounds)?;
            // Only now may the slices be dropped.
            qp.destroy()?;
        }
        other => return Err(format!("no API is called {other}").into()),
    }
    Ok(())
}

fn safe(
    qp: &mut QueuePair,
    cq: &CompletionQueue,
    remote: RemoteRange,
    slices: Vec<Slice>,
    rounds: usize,
) -> Result<(), Error> {
    for slice in slices {
        qp.post_send_mut(SendRequest::write(slice, remote)).expect("there is room");
    }
    for _ in 0..rounds {
        std::thread::sleep(PAUSE);
        let mut poller = cq.poller();
        for completion in poller.poll()? {
            completion.outcome().expect("it is written");
            let slice = completion.into_buffers().into_slice().expect("it was one slice");
            qp.post_send_mut(SendRequest::write(slice, remote)).expect("there is room");
        }
    }
    Ok(())
}

fn raw(
    qp: &QueuePair,
    cq: &CompletionQueue,
    remote: RemoteRange,
    slices: &[Slice],
    rounds: usize,
) -> Result<(), Error> {
    let domain = qp.pd().expect("it is in one").id();
    let element = |slice: &Slice| sys::ibv_sge {
        addr: slice.address().as_ptr().addr() as u64,
        length: slice.len() as u32,
        lkey: slice.local_key(domain).expect("it is registered") as u32,
    };
    let mut elements: Vec<sys::ibv_sge> = slices.iter().map(element).collect();
    let mut post = |id: u64| {
        let mut wr = sys::ibv_send_wr {
            wr_id: id,
            sg_list: &raw mut elements[id as usize],
            num_sge: 1,
            opcode: sys::IBV_WR_RDMA_WRITE,
            send_flags: sys::IBV_SEND_SIGNALED,
            ..Default::default()
        };
        wr.wr.rdma.remote_addr = remote.address();
        wr.wr.rdma.rkey = remote.key().0;
        // SAFETY: the slices are registered, and the caller keeps them until the queue pair is
        // destroyed.
        unsafe { qp.post_send_raw(&raw mut wr, &mut std::ptr::null_mut()) }
    };
    for id in 0..slices.len() {
        post(id as u64)?;
    }
    let mut completions = [sys::ibv_wc::default(); 32];
    for _ in 0..rounds {
        std::thread::sleep(PAUSE);
        // SAFETY: all work requests of this queue are those above.
        let count = unsafe { cq.poll_raw(&mut completions) }?;
        assert_eq!(count, REQUESTS, "the pause was too short for the device");
        for completion in &completions[..count] {
            assert_eq!(completion.status, sys::IBV_WC_SUCCESS);
            post(completion.wr_id)?;
        }
    }
    Ok(())
}
