//! Two hosts with a card each, a link between them, and the clock.

use std::sync::Arc;

use farreach_memory::{Exposed, Memory, Slice};
use farreach_proto::rights::Rights;
use farreach_rail::{
    Event, Key, KeyId, LinkKey, Rail, RailError, Refusal, RemoteSegment, RequestError, WorkRequest,
};
use farreach_sim::request::{Refused, post};
use farreach_sim::{SimCard, SimNetwork, SimRail, SimSettings};

/// The bytes that each side exposes.
pub(crate) const GRANTED_LEN: usize = 4096;

/// An event, kept.
#[derive(Debug)]
pub(crate) enum Told {
    Completed { tag: u64, outcome: Result<(), RailError> },
    Immediate { bits: u32 },
    Message,
    KeyEnded(KeyId),
    KeyBound { tag: u64, bound: Result<(u64, u64), RailError> },
    LinkDown { link: LinkKey },
}

pub(crate) struct Side {
    pub(crate) rail: SimRail,
    pub(crate) link: LinkKey,
    pub(crate) granted: Arc<Exposed>,
    pub(crate) key: Key,
    pub(crate) told: Vec<Told>,
}

impl Side {
    pub(crate) fn new(network: &SimNetwork, host: u32, card: SimCard) -> Self {
        let mut rail = SimRail::new(network, host, card);
        let granted = Arc::new(Memory::allocate(GRANTED_LEN).unwrap().expose());
        let key = rail.make_key(farreach_rail::PeerKey(0), &granted, Rights::all()).unwrap();
        Self { rail, link: LinkKey(u64::MAX), granted, key, told: Vec::new() }
    }

    /// Returns registered memory with these bytes.
    pub(crate) fn slice(&mut self, bytes: &[u8]) -> Slice {
        let mut slice = Memory::allocate(bytes.len().max(1)).unwrap();
        drop(slice.split_off(bytes.len()));
        slice.copy_from_slice(bytes);
        self.rail.register(slice.memory()).unwrap();
        slice
    }

    /// Polls until nothing is reported. A failed poll is repeated.
    pub(crate) fn poll(&mut self) {
        let told = &mut self.told;
        loop {
            let polled = self.rail.poll(&mut |event| {
                told.push(match event {
                    Event::Completed { tag, outcome, .. } => {
                        Told::Completed { tag, outcome: outcome.map_err(RequestError::into_error) }
                    }
                    Event::Immediate { bits, .. } => Told::Immediate { bits },
                    Event::Message { .. } => Told::Message,
                    Event::KeyBound { tag, bound, .. } => Told::KeyBound { tag, bound },
                    Event::KeyEnded { key } => Told::KeyEnded(key),
                    Event::LinkDown { link, .. } => Told::LinkDown { link },
                });
            });
            if polled == Ok(0) {
                return;
            }
            polled.unwrap();
        }
    }

    pub(crate) fn bytes(&self, offset: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.granted.read_at(offset, &mut bytes);
        bytes
    }

    /// Returns the tags of completed work requests, with their success.
    pub(crate) fn completed(&self) -> Vec<(u64, bool)> {
        let completed = self.told.iter().filter_map(|told| match told {
            Told::Completed { tag, outcome, .. } => Some((*tag, outcome.is_ok())),
            _ => None,
        });
        completed.collect()
    }

    pub(crate) fn immediates(&self) -> Vec<u32> {
        let immediates = self.told.iter().filter_map(|told| match told {
            Told::Immediate { bits, .. } => Some(*bits),
            _ => None,
        });
        immediates.collect()
    }
}

/// `here` posts, `there` serves.
pub(crate) struct Pair {
    pub(crate) network: SimNetwork,
    pub(crate) here: Side,
    pub(crate) there: Side,
}

impl Pair {
    pub(crate) fn new(seed: u64, card: SimCard) -> Self {
        Self::with(SimSettings::new(seed), card)
    }

    pub(crate) fn with(settings: SimSettings, card: SimCard) -> Self {
        let network = SimNetwork::new(settings);
        let here = Side::new(&network, 0, card.clone());
        let there = Side::new(&network, 1, card);
        let mut pair = Self { network, here, there };
        pair.connect();
        pair
    }

    /// Connects another link between the two.
    pub(crate) fn connect(&mut self) {
        let (link, end) = self.here.rail.open_link(farreach_rail::PeerKey(0)).unwrap();
        let (link_there, end_there) = self.there.rail.open_link(farreach_rail::PeerKey(0)).unwrap();
        self.here.rail.connect(link, &end_there).unwrap();
        self.there.rail.connect(link_there, &end).unwrap();
        (self.here.link, self.there.link) = (link, link_there);
    }

    pub(crate) fn target(&self, offset: usize, len: usize) -> RemoteSegment {
        let Key { address, key, .. } = self.there.key;
        RemoteSegment { address: address + offset as u64, key, len: len as u64 }
    }

    #[expect(clippy::result_large_err, reason = "it is what post returns")]
    pub(crate) fn write(
        &mut self,
        tag: u64,
        offset: usize,
        bytes: &[u8],
        immediate: Option<u32>,
    ) -> Result<(), Refused<'_>> {
        let pieces = self.here.slice(bytes).into();
        let target = self.target(offset, bytes.len());
        post(&mut self.here.rail, self.here.link, tag, (WorkRequest::Write { target, immediate }, pieces))
    }

    /// Advances to the next event, and polls both sides. Returns `false` if nothing happened, and
    /// nothing more will.
    pub(crate) fn step(&mut self) -> bool {
        let next = self.network.next_event_at();
        if let Some(at_ns) = next {
            self.network.advance_to(at_ns);
        }
        self.here.poll();
        self.there.poll();
        // A poll may schedule more events.
        next.or(self.network.next_event_at()).is_some()
    }

    /// Runs until nothing is left to happen.
    pub(crate) fn settle(&mut self) {
        while self.step() {}
    }

    /// Runs until nothing is left to happen, without polls of the other side.
    pub(crate) fn settle_here(&mut self) {
        while let Some(at_ns) = self.network.next_event_at() {
            self.network.advance_to(at_ns);
            self.here.poll();
        }
    }

    pub(crate) fn assert_clean(&self) {
        assert_eq!(self.network.violations(), []);
        assert_eq!((self.here.rail.in_flight(), self.there.rail.in_flight()), (0, 0));
    }
}

pub(crate) fn is_full(refused: Result<(), Refused<'_>>) -> bool {
    matches!(refused, Err(Refused { reason: Refusal::Full, .. }))
}

pub(crate) fn is_down(refused: Result<(), Refused<'_>>) -> bool {
    matches!(refused, Err(Refused { reason: Refusal::LinkDown(_), .. }))
}

pub(crate) fn is_never(refused: Result<(), Refused<'_>>) -> bool {
    matches!(refused, Err(Refused { reason: Refusal::Never(_), .. }))
}
