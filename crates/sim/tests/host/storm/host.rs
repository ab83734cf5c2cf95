//! A host: its cards, its grants, and its source memory.

use std::sync::Arc;

use farreach_memory::Exposed;
use farreach_memory::{Buffers, Memory, Slice};
use farreach_proto::rights::Rights;
use farreach_rail::{Event, Key, Rail, RailError};
use farreach_sim::SimRail;

use super::{Place, State, Storm};
use crate::pair::Told;

/// The number of places of a grant. One more is never written to.
pub(super) const PLACES: usize = 24;
pub(super) const PLACE_LEN: usize = 32;

/// The number of work requests that a card can have at once.
const SLICES: usize = 64;

pub(super) struct Host {
    pub(super) rails: Vec<StormRail>,
}

pub(super) struct StormRail {
    pub(super) rail: SimRail,
    pub(super) place: Place,
    pub(super) grant: Grant,
    places_used: usize,
    /// A grant whose key was ended, but may still be used.
    pub(super) stale: Option<Grant>,
    /// Slices of the length of a place, and of a word.
    spare: Vec<Slice>,
    words: Vec<Slice>,
    pub(super) resets_at_ns: Option<u64>,
}

#[derive(Clone)]
pub(super) struct Grant {
    pub(super) id: u64,
    pub(super) exposed: Option<Arc<Exposed>>,
    pub(super) key: Key,
}

impl Grant {
    /// Tries until it works: failures are temporary.
    pub(super) fn new(rail: &mut SimRail, next_id: &mut u64) -> Self {
        let exposed = Arc::new(Memory::allocate((PLACES + 1) * PLACE_LEN).unwrap().expose());
        let key = loop {
            if let Ok(key) = rail.make_key(&exposed, Rights::all()) {
                break key;
            }
        };
        *next_id += 1;
        Self { id: *next_id, exposed: Some(exposed), key }
    }
}

/// Memory whose key was ended, and that is not proven to be free yet.
pub(super) struct Revoked {
    pub(super) owner: Place,
    pub(super) exposed: Arc<Exposed>,
}

impl StormRail {
    pub(super) fn take_place(&mut self) -> Option<usize> {
        self.places_used += 1;
        (self.places_used <= PLACES).then_some(self.places_used - 1)
    }

    /// Returns a slice of zeros.
    pub(super) fn take_slice(&mut self, is_word: bool) -> Option<Slice> {
        let mut slice = if is_word { self.words.pop() } else { self.spare.pop() }?;
        slice.fill(0);
        Some(slice)
    }

    /// Takes back the buffers of a work request.
    pub(super) fn keep(&mut self, buffers: Buffers) {
        let slice = buffers.into_slice().expect("one slice was posted");
        let kept = if slice.len() == PLACE_LEN { &mut self.spare } else { &mut self.words };
        kept.push(slice);
    }

    pub(super) fn is_used_up(&self) -> bool {
        self.places_used >= PLACES
    }

    pub(super) fn replace_grant(&mut self, grant: Grant) -> Grant {
        self.places_used = 0;
        std::mem::replace(&mut self.grant, grant)
    }

    pub(super) fn poll(&mut self, told: &mut Vec<Told>) -> Result<usize, RailError> {
        self.rail.poll(&mut |event| {
            told.push(match event {
                Event::Completed { tag, buffers, outcome } => Told::Completed { tag, buffers, outcome },
                Event::Immediate { link, bits } => Told::Immediate { link, bits },
                Event::Message { link, bytes } => Told::Message { link, bytes: bytes.to_vec() },
                Event::LinkDown { link, .. } => Told::LinkDown { link },
            });
        })
    }
}

impl Storm {
    pub(super) fn start_host(&mut self, host: usize) -> Host {
        let rails = (0..self.kinds.len()).map(|rail| self.start_rail(host, rail)).collect();
        Host { rails }
    }

    pub(super) fn start_rail(&mut self, host: usize, index: usize) -> StormRail {
        let mut rail = SimRail::new(&self.network, host as u32, self.kinds[index].clone());
        let mut rest = Memory::allocate(SLICES * (PLACE_LEN + 8)).unwrap();
        while rail.register(rest.memory()).is_err() {}
        let spare = (0..SLICES).map(|_| rest.split_to(PLACE_LEN)).collect();
        let words = (0..SLICES).map(|_| rest.split_to(8)).collect();
        let grant = Grant::new(&mut rail, &mut self.next_grant);
        let place = Place { host, rail: index, life: self.next_life };
        self.next_life += 1;
        StormRail { rail, place, grant, places_used: 0, stale: None, spare, words, resets_at_ns: None }
    }

    /// Returns `true` if this card still exists.
    pub(super) fn lives(&self, place: Place) -> bool {
        self.hosts[place.host].rails[place.rail].place == place
    }

    /// Returns the content of a place of a grant, or `None` if its memory is no longer granted.
    pub(super) fn read_place(&self, owner: Place, grant: u64, place: usize) -> Option<[u8; PLACE_LEN]> {
        let there = &self.hosts[owner.host].rails[owner.rail].grant;
        let exposed = there.exposed.as_ref().filter(|_| there.id == grant && self.lives(owner))?;
        let mut bytes = [0; PLACE_LEN];
        exposed.read_at(place * PLACE_LEN, &mut bytes);
        Some(bytes)
    }

    /// Forgets the work requests of a card that is gone.
    pub(super) fn forget_requests(&mut self, place: Place, state: State) {
        for asked in &mut self.asked[self.oldest..] {
            let (from, _) = self.links[asked.link].ends[asked.side];
            if from == place && asked.state == State::InFlight {
                asked.state = state;
            }
        }
    }
}
