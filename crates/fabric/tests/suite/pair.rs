//! Two endpoints of one process, with waits that poll both.

use std::collections::VecDeque;
use std::ops::{Index, IndexMut};

use farreach_fabric::{
    AddressVector, Capabilities, Completion, CompletionQueue, Domain, Endpoint, EndpointBuilder, Event,
    Fabric, Failure, Hints, Info, Library, Peer, PostError, ReceiveRequest, Refusal, RemoteAccess,
    RemoteRegion, Success, TransmitRequest, Written,
};
use farreach_memory::{Buffers, Slice};
use farreach_testkit::wait_for;

/// A provider that the suite runs over.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Provider {
    /// Its name in 1.x and in 2.x.
    pub(crate) names: [&'static str; 2],
    /// The address to use, if it has such addresses.
    pub(crate) node: Option<fn() -> String>,
    pub(crate) has_atomics: bool,
    /// Whether a completion queue has a descriptor to sleep on, in 1.x and in 2.x.
    pub(crate) has_descriptor: [bool; 2],
    /// Whether a write is delivered although its target does not poll.
    pub(crate) delivers_unpolled: bool,
    /// Whether a write with a wrong key lands, in 1.x and in 2.x, if the profile states that keys
    /// are not enforced.
    pub(crate) wrong_key_lands: [bool; 2],
    /// One in so many orders of dropping is tried: more than one if closing an endpoint takes a
    /// tenth of a second.
    pub(crate) drop_orders_step: usize,
    /// The number of endpoints that a test may open at once.
    pub(crate) endpoints_max: usize,
}

impl Provider {
    pub(crate) fn name(&self) -> &'static str {
        self.names[generation()]
    }

    pub(crate) fn has_descriptor(&self) -> bool {
        self.has_descriptor[generation()]
    }

    pub(crate) fn wrong_key_lands(&self) -> bool {
        self.wrong_key_lands[generation()]
    }

    /// Returns the provider's best offer: with atomics, or without if it has none.
    pub(crate) fn offer(&self) -> Info {
        let basic = Capabilities::MSG | Capabilities::RMA;
        let offer = self.query(basic | Capabilities::ATOMIC).or_else(|| self.query(basic));
        offer.unwrap_or_else(|| panic!("{} is not offered", self.name()))
    }

    fn query(&self, capabilities: Capabilities) -> Option<Info> {
        let mut hints = Hints::rdm().provider(self.name()).capabilities(capabilities);
        if let Some(node) = self.node {
            hints = hints.node(node()).source();
        }
        // When asked for `tcp`, the library also returns what is layered over it.
        Info::query(&hints).ok()?.into_iter().find(|info| info.provider() == self.name())
    }

    pub(crate) fn domain(&self) -> Domain {
        let info = self.offer();
        Fabric::open(&info).unwrap().open_domain(&info).unwrap()
    }
}

/// Returns 0 for libfabric 1.x, 1 for 2.x.
fn generation() -> usize {
    usize::from(Library::open().expect("libfabric is installed").version().major >= 2)
}

/// One side: an endpoint with everything that it needs.
pub(crate) struct Side {
    pub(crate) endpoint: Endpoint,
    pub(crate) cq: CompletionQueue,
    pub(crate) av: AddressVector,
    pub(crate) domain: Domain,
    /// Events that were not asked for yet.
    seen: VecDeque<Event<'static>>,
    other: Option<Peer>,
}

impl Side {
    pub(crate) fn open(provider: &Provider) -> Self {
        Self::open_deep(provider, None)
    }

    /// Opens a side with a maximum number of operations in flight.
    pub(crate) fn open_deep(provider: &Provider, depth: Option<usize>) -> Self {
        let domain = provider.domain();
        let (cq, av) = (domain.open_cq().unwrap(), domain.open_av().unwrap());
        let mut builder = EndpointBuilder::new(&cq, &av);
        if let Some(depth) = depth {
            builder = builder.transmit_depth(depth).receive_depth(depth);
        }
        let endpoint = builder.build(&domain).unwrap();
        Self { endpoint, cq, av, domain, seen: VecDeque::new(), other: None }
    }

    /// Returns the other side.
    pub(crate) fn peer(&self) -> Peer {
        self.other.clone().expect("the sides are connected")
    }

    /// Returns a slice with these bytes.
    pub(crate) fn slice(&self, bytes: &[u8]) -> Slice {
        let mut slice = self.domain.allocate(bytes.len()).unwrap();
        slice.copy_from_slice(bytes);
        slice
    }

    pub(crate) fn expose(&self, len: usize) -> farreach_fabric::ExposedRegion {
        let slice = self.domain.allocate(len).unwrap();
        self.domain.expose(slice, RemoteAccess::all()).unwrap()
    }

    pub(crate) fn poll(&mut self) {
        let Self { cq, seen, .. } = self;
        let mut poller = cq.poller();
        seen.extend(poller.poll().unwrap().map(Event::into_owned));
    }
}

/// The side that begins an operation, and its target.
pub(crate) const A: usize = 0;
pub(crate) const B: usize = 1;

/// Two sides that know each other's addresses.
pub(crate) struct Pair([Side; 2]);

impl Pair {
    pub(crate) fn open(provider: &Provider) -> Self {
        Self::of(Side::open(provider), Side::open(provider))
    }

    pub(crate) fn of(a: Side, b: Side) -> Self {
        let mut pair = Self([a, b]);
        let [a, b] = [A, B].map(|side| pair[side].endpoint.address().clone());
        assert_ne!(a, b);
        pair[A].other = Some(pair[A].av.insert(&b).unwrap());
        pair[B].other = Some(pair[B].av.insert(&a).unwrap());
        pair
    }

    /// Returns both sides, for a thread each.
    pub(crate) fn sides(&mut self) -> &mut [Side; 2] {
        &mut self.0
    }

    pub(crate) fn into_sides(self) -> [Side; 2] {
        self.0
    }

    /// Polls both sides: an operation does not advance while its target does not poll.
    pub(crate) fn progress(&mut self) {
        for side in &mut self.0 {
            side.poll();
        }
    }

    /// Posts, polling both sides while the queue is full.
    #[track_caller]
    pub(crate) fn post(&mut self, side: usize, request: TransmitRequest) {
        let mut waiting = Some(request);
        wait_for("room in the queue", || {
            let request = waiting.take().expect("a refused request is returned");
            match self[side].endpoint.post(request) {
                Ok(()) => Some(()),
                Err(PostError { reason: Refusal::QueueFull { .. }, request }) => {
                    waiting = Some(request);
                    self.progress();
                    None
                }
                Err(error) => panic!("{error}"),
            }
        });
    }

    #[track_caller]
    pub(crate) fn post_receive(&mut self, side: usize, slice: Slice) {
        self[side].endpoint.post_receive(ReceiveRequest::new(slice)).unwrap();
    }

    /// Returns the next event of one side.
    #[track_caller]
    pub(crate) fn event(&mut self, side: usize) -> Event<'static> {
        wait_for("event", || {
            self.progress();
            self[side].seen.pop_front()
        })
    }

    #[track_caller]
    pub(crate) fn completion(&mut self, side: usize) -> Completion<'static> {
        match self.event(side) {
            Event::Completed(completion) => completion,
            other => panic!("{other:?}"),
        }
    }

    /// Returns the next completion, which must be successful.
    #[track_caller]
    pub(crate) fn success(&mut self, side: usize) -> (Success, Buffers) {
        let (outcome, buffers) = self.completion(side).into_parts();
        (outcome.unwrap_or_else(|failure| panic!("{failure}; {}", failure.cause())), buffers)
    }

    #[track_caller]
    pub(crate) fn failure(&mut self, side: usize) -> (Failure, Buffers) {
        let (outcome, buffers) = self.completion(side).into_parts();
        (outcome.expect_err("it cannot have gone well"), buffers)
    }

    #[track_caller]
    pub(crate) fn written(&mut self, side: usize) -> Written {
        match self.event(side) {
            Event::Written(written) => written,
            other => panic!("{other:?}"),
        }
    }

    /// Checks that there is no unexpected event.
    #[track_caller]
    pub(crate) fn assert_quiet(&mut self) {
        // A message of a finished operation may still be in flight inside the process.
        for _ in 0..100 {
            self.progress();
        }
        for side in &self.0 {
            assert!(side.seen.is_empty(), "nobody asked for {:?}", side.seen);
        }
    }
}

impl Index<usize> for Pair {
    type Output = Side;

    fn index(&self, side: usize) -> &Side {
        &self.0[side]
    }
}

impl IndexMut<usize> for Pair {
    fn index_mut(&mut self, side: usize) -> &mut Side {
        &mut self.0[side]
    }
}

/// Returns a region for an initiator, also if keys are not enforced.
pub(crate) fn vouched(region: RemoteRegion) -> RemoteRegion {
    // SAFETY: both sides are in the test that calls this, which keeps the region exposed until its
    // operations are done.
    unsafe { region.vouched() }
}

/// Copies from exposed memory.
pub(crate) fn copy(region: &farreach_fabric::ExposedRegion, offset: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    region.bytes().read_at(offset, &mut bytes);
    bytes
}

/// Returns bytes that differ from those of another seed.
pub(crate) fn pattern(seed: u64, len: usize) -> Vec<u8> {
    farreach_testkit::pattern(seed as u8, len)
}
