//! Tests that posting and completing allocate nothing.

use farreach_memory::Slice;
use farreach_testkit::{CountingAllocator, Device, allocations, on_host_a, wait_for};
use farreach_verbs::cq::{CompletionQueue, WorkKind};
use farreach_verbs::device::DeviceList;
use farreach_verbs::qp::state::ConnectionParameters;
use farreach_verbs::qp::{QueuePair, QueuePairBuilder, QueuePairType};
use farreach_verbs::wr::{RecvRequest, SendRequest};

#[global_allocator]
static COUNTING: CountingAllocator = CountingAllocator;

/// Messages in flight at once.
const WINDOW: usize = 20;
/// Number of rounds.
const ROUNDS: usize = 50;
const BYTES: usize = 64;

/// A queue pair that is connected to itself. Every message is received, and all buffers are reused.
struct Loop {
    qp: QueuePair,
    cq: CompletionQueue,
    /// Buffers that are not in flight.
    free: Vec<Slice>,
    room: Vec<Slice>,
    sends: Vec<SendRequest>,
    receives: Vec<RecvRequest>,
    completed: usize,
}

impl Loop {
    fn new() -> Self {
        let device = Device::find();
        let context = DeviceList::get().unwrap().find(&device.name).expect("it is listed").open().unwrap();
        let (pd, cq) = (context.alloc_pd().unwrap(), context.create_cq(2 * WINDOW as u32).unwrap());
        let builder = QueuePairBuilder::new(QueuePairType::Rc, &cq, &cq);
        let qp = builder.max_send_wr(WINDOW as u32).max_recv_wr(WINDOW as u32).build(&pd).unwrap();
        let parameters =
            ConnectionParameters::choose(&context, device.port, Some(device.address.into())).unwrap();
        let own = qp.to_init(&parameters).unwrap();
        qp.connect(&parameters, &own, &own).unwrap();
        let cut = || {
            let mut whole = pd.allocate(WINDOW * BYTES).unwrap();
            (0..WINDOW).map(|_| whole.split_to(BYTES)).collect()
        };
        let (free, room) = (cut(), cut());
        let (sends, receives) = (Vec::with_capacity(WINDOW), Vec::with_capacity(WINDOW));
        Self { qp, cq, free, room, sends, receives, completed: 0 }
    }

    fn post_one_by_one(&mut self) {
        for slice in self.room.drain(..) {
            self.qp.post_recv(RecvRequest::new(slice)).unwrap();
        }
        for slice in self.free.drain(..) {
            self.qp.post_send(SendRequest::send(slice)).unwrap();
        }
    }

    fn post_at_once(&mut self) {
        self.receives.extend(self.room.drain(..).map(RecvRequest::new));
        self.qp.post_recv_list(&mut self.receives).unwrap();
        self.sends.extend(self.free.drain(..).map(SendRequest::send));
        self.qp.post_send_list(&mut self.sends).unwrap();
    }

    /// Waits until all are done.
    fn complete(&mut self) {
        wait_for("end of every message", || {
            let mut poller = self.cq.poller();
            for completion in poller.poll().unwrap() {
                completion.outcome().unwrap();
                let is_received = completion.kind() == WorkKind::Recv;
                let slice = completion.into_buffers().into_slice().unwrap();
                if is_received { &mut self.room } else { &mut self.free }.push(slice);
                self.completed += 1;
            }
            (self.free.len() == WINDOW && self.room.len() == WINDOW).then_some(())
        });
    }

    /// Sends messages, and returns the number of allocations.
    fn run(&mut self, post: fn(&mut Self)) -> u64 {
        // In the first round, the poller copies the table of queue pairs.
        post(self);
        self.complete();
        self.completed = 0;
        let allocations = allocations(|| {
            for _ in 0..ROUNDS {
                post(self);
                self.complete();
            }
        });
        assert_eq!(self.completed, 2 * WINDOW * ROUNDS, "every send and every receive");
        allocations
    }
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_thousand_messages_allocate_nothing() {
    on_host_a(|| {
        assert_eq!(allocations(|| drop(std::hint::black_box(Box::new(7)))), 1, "allocations are counted");
        let mut messages = Loop::new();
        assert_eq!(messages.run(Loop::post_one_by_one), 0, "one by one");
        assert_eq!(messages.run(Loop::post_at_once), 0, "at once");
    });
}
