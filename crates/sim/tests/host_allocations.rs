//! A simulated network allocates nothing while work requests come and go: a hundred thousand
//! histories must run within minutes.

use std::sync::Arc;

use farreach_memory::{Memory, Slice};
use farreach_proto::rights::Rights;
use farreach_rail::{Event, LinkKey, Rail, RemoteSegment, WorkRequest};
use farreach_sim::{SimCard, SimNetwork, SimRail, SimSettings};
use farreach_testkit::{CountingAllocator, allocations};

#[global_allocator]
static COUNTING: CountingAllocator = CountingAllocator;

struct Pair {
    network: SimNetwork,
    here: SimRail,
    there: SimRail,
    link: LinkKey,
    target: RemoteSegment,
    spare: Vec<Slice>,
    immediates: usize,
}

impl Pair {
    fn new(card: SimCard) -> Self {
        let network = SimNetwork::new(SimSettings::new(1));
        let mut here = SimRail::new(&network, 0, card.clone());
        let mut there = SimRail::new(&network, 1, card);
        let (link, end) = here.open_link().unwrap();
        let (link_there, end_there) = there.open_link().unwrap();
        here.connect(link, &end_there).unwrap();
        there.connect(link_there, &end).unwrap();
        let granted = Arc::new(Memory::allocate(64).unwrap().expose());
        let key = there.make_key(&granted, Rights::WRITE).unwrap();
        let target = RemoteSegment { address: key.address, key: key.key, len: 64 };
        let mut rest = Memory::allocate(16 * 64).unwrap();
        here.register(rest.memory()).unwrap();
        let spare = (0..16).map(|_| rest.split_to(64)).collect();
        Self { network, here, there, link, target, spare, immediates: 0 }
    }

    /// Exchanges `count` writes and as many messages.
    fn exchange(&mut self, count: u64) {
        let (mut posted, mut completed) = (0, 0);
        while completed < 2 * count {
            while let Some(slice) = self.spare.pop_if(|_| posted < 2 * count) {
                let request = match posted % 2 {
                    0 => WorkRequest::Write { target: self.target, immediate: Some(posted as u32) },
                    _ => WorkRequest::Send,
                };
                self.here.post(self.link, posted, request, slice.into()).unwrap();
                posted += 1;
            }
            if let Some(at_ns) = self.network.next_event_at() {
                self.network.advance_to(at_ns);
            }
            let (spare, immediates) = (&mut self.spare, &mut self.immediates);
            self.here
                .poll(&mut |event| {
                    if let Event::Completed { buffers, outcome: Ok(()), .. } = event {
                        spare.push(buffers.into_slice().unwrap());
                        completed += 1;
                    }
                })
                .unwrap();
            self.there
                .poll(&mut |event| *immediates += usize::from(matches!(event, Event::Immediate { .. })))
                .unwrap();
        }
    }
}

#[test]
fn requests_come_and_go_without_an_allocation() {
    for card in SimCard::kinds() {
        let mut pair = Pair::new(card);
        // Until all buffers have grown to the size that they need.
        pair.exchange(20_000);
        assert_eq!(allocations(|| pair.exchange(2_000)), 0);
        assert!(pair.immediates > 20_000 && pair.network.violations().is_empty());
    }
}
