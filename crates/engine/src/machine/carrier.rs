//! What is handed to rails and comes back from them: the memory of transfers, buffers for messages and atomics, and granted memory with its keys.
//!
//! The rest of the machine decides, and knows memory by numbers alone.

use std::sync::Arc;

use farreach_core::plan::Extent;
use farreach_memory::{Buffer, Buffers, Exposed, Lent, Memory, Shared, Slice};

use super::id_map::IdMap;
use super::{OpId, Tuning};
use crate::Rights;
use crate::rail::{KeyId, LinkKey, Rail, RailError, Refusal, WorkRequest};

/// What is put before a message: whose it is, and its number.
pub(crate) const HEADER: usize = 16;
/// Messages that may be in flight, to all peers together.
const MESSAGES: usize = 256;
/// Atomics that may be in flight, to all peers together.
const ATOMICS: usize = 256;
/// Each in a cache line of its own.
const ATOMIC_STRIDE: usize = 64;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Carrier {
    /// Each is out only while it is polled.
    rails: Vec<Option<Box<dyn Rail>>>,
    transfers: IdMap<OpId, Held>,
    /// Lists of buffers that came back: used again, so that posting allocates nothing.
    lists: Vec<Vec<Buffer>>,
    messages: MessagePool,
    atomics: Vec<Slice>,
    grants: IdMap<u64, GrantedMemory>,
}

/// What a request is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    Pages,
    Message,
    Atomic,
}

/// This side's memory of a transfer, while it is under way.
#[derive(Debug)]
pub(crate) enum Held {
    /// Read by cards.
    Shared(Shared),
    /// Written by cards, or read, and nobody else's.
    Lent(Lent),
}

impl Held {
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Shared(shared) => shared.len() as u64,
            Self::Lent(lent) => lent.len() as u64,
        }
    }

    #[inline]
    fn part(&self, extent: Extent) -> Option<Buffer> {
        let start = extent.offset as usize;
        let range = start..start + extent.len as usize;
        match self {
            Self::Shared(shared) => shared.get(range).map(Buffer::Shared),
            Self::Lent(lent) => lent.get(range).map(Buffer::Lent),
        }
    }

    fn parts(&self, extents: &[Extent], list: Option<Vec<Buffer>>) -> Option<Buffers> {
        match extents {
            [] => Some(Buffers::None),
            [one] => self.part(*one).map(Buffers::One),
            several => {
                let mut list = list.unwrap_or_default();
                for extent in several {
                    list.push(self.part(*extent)?);
                }
                Some(Buffers::List(list))
            }
        }
    }
}

/// Memory that a peer may reach, and the keys to it.
#[derive(Debug)]
pub(super) struct GrantedMemory {
    memory: Arc<Exposed>,
    /// By rail; none where it was ended.
    keys: Vec<Option<KeyId>>,
}

impl GrantedMemory {
    pub(super) fn memory(&self) -> &Arc<Exposed> {
        &self.memory
    }
}

/// Addresses and keys of granted memory, by rail: what the peer is told.
pub(super) type RemoteKeys = Vec<Option<(u64, u64)>>;

impl Carrier {
    pub(super) fn new(rails: Vec<Box<dyn Rail>>, tuning: &Tuning) -> Result<Self, RailError> {
        let mut carrier = Self {
            rails: rails.into_iter().map(Some).collect(),
            transfers: IdMap::default(),
            lists: Vec::new(),
            messages: MessagePool::default(),
            atomics: Vec::new(),
            grants: IdMap::default(),
        };
        let stride = (tuning.message_max + HEADER).next_multiple_of(64);
        carrier.messages = MessagePool::new(stride, carrier.cut(stride, MESSAGES)?);
        carrier.atomics = carrier.cut(ATOMIC_STRIDE, ATOMICS)?;
        for atomic in &mut carrier.atomics {
            drop(atomic.split_off(size_of::<u64>()));
        }
        Ok(carrier)
    }

    /// Registered memory of the engine's own, in pieces.
    fn cut(&mut self, stride: usize, count: usize) -> Result<Vec<Slice>, RailError> {
        let mut rest = Memory::allocate(stride * count)
            .map_err(|error| RailError::new("allocate message buffers", error.to_string(), error.fix()))?;
        self.register(rest.memory())?;
        let mut slices: Vec<Slice> = (1..count).map(|_| rest.split_to(stride)).collect();
        slices.push(rest);
        Ok(slices)
    }

    /// Registers memory with every rail.
    pub(super) fn register(&mut self, memory: &Memory) -> Result<(), RailError> {
        self.rails_mut().try_for_each(|rail| rail.register(memory))
    }

    pub(super) fn rail(&mut self, rail: usize) -> &mut dyn Rail {
        self.rails[rail].as_deref_mut().expect("it is out only while it is polled")
    }

    pub(super) fn rails_mut(&mut self) -> impl Iterator<Item = &mut dyn Rail> {
        self.rails.iter_mut().filter_map(|rail| rail.as_deref_mut().map(|rail| rail as &mut dyn Rail))
    }

    /// How many requests a rail has.
    pub(super) fn in_flight(&self, rail: usize) -> usize {
        self.rails[rail].as_ref().map_or(0, |rail| rail.in_flight())
    }

    /// Takes a rail out, to be polled.
    pub(super) fn take_rail(&mut self, rail: usize) -> Box<dyn Rail> {
        self.rails[rail].take().expect("it is out only while it is polled")
    }

    pub(super) fn put_rail_back(&mut self, rail: usize, taken: Box<dyn Rail>) {
        self.rails[rail] = Some(taken);
    }

    /// Keeps the memory of a transfer.
    pub(super) fn hold(&mut self, op: OpId, held: Held) {
        self.transfers.insert(op, held);
    }

    /// Lets go of the memory of a transfer. Parts that a card has are freed when it is done with them.
    pub(super) fn release(&mut self, op: OpId) -> Option<Held> {
        self.transfers.remove(&op)
    }

    /// Posts parts of a transfer's memory.
    #[inline]
    pub(super) fn post_pages(
        &mut self,
        (rail, link, tag): (usize, LinkKey, u64),
        op: OpId,
        extents: &[Extent],
        request: WorkRequest<'_>,
    ) -> Result<(), Refusal> {
        let list = self.lists.pop();
        let Some(buffers) = self.transfers.get(&op).and_then(|held| held.parts(extents, list)) else {
            return Err(Refusal::Never(RailError::new(
                "post pages",
                "they are not within their memory",
                "this is for the engine to keep to: report it",
            )));
        };
        self.rail(rail).post(link, tag, request, buffers).map_err(|(reason, buffers)| {
            self.recycle(buffers);
            reason
        })
    }

    /// The buffers of a request are back. Those of an atomic tell what it found.
    #[inline]
    pub(super) fn take_back(&mut self, class: Class, buffers: Buffers) -> Option<u64> {
        match class {
            Class::Pages => self.recycle(buffers),
            Class::Message => self.messages.put_back(buffers),
            Class::Atomic => return self.put_atomic_back(buffers),
        }
        None
    }

    /// Lets go of the parts of slices, and keeps the list.
    fn recycle(&mut self, buffers: Buffers) {
        if let Buffers::List(mut list) = buffers {
            list.clear();
            self.lists.push(list);
        }
    }

    /// Whether there is a buffer for one more message.
    pub(super) fn has_message_buffer(&self) -> bool {
        !self.messages.free.is_empty()
    }

    /// Posts a message, with what is put before it. There is a buffer for it.
    pub(super) fn post_message(
        &mut self,
        (rail, link, tag): (usize, LinkKey, u64),
        mark: u32,
        sequence: u64,
        bytes: &[u8],
    ) -> Result<(), Refusal> {
        let Some(buffer) = self.messages.take(mark, sequence, bytes) else { return Err(Refusal::Full) };
        self.rail(rail).post(link, tag, WorkRequest::Send, buffer.into()).map_err(|(reason, buffers)| {
            self.messages.put_back(buffers);
            reason
        })
    }

    /// Posts an atomic. It waits for a buffer where there is none.
    pub(super) fn post_atomic(
        &mut self,
        (rail, link, tag): (usize, LinkKey, u64),
        request: WorkRequest<'_>,
    ) -> Result<(), Refusal> {
        let Some(atomic) = self.atomics.pop() else { return Err(Refusal::Full) };
        self.rail(rail).post(link, tag, request, atomic.into()).map_err(|(reason, buffers)| {
            self.put_atomic_back(buffers);
            reason
        })
    }

    fn put_atomic_back(&mut self, buffers: Buffers) -> Option<u64> {
        let atomic = buffers.into_slice().ok()?;
        let value = atomic.get(..8).and_then(|bytes| bytes.try_into().ok()).map(u64::from_ne_bytes);
        self.atomics.push(atomic);
        value
    }

    /// Makes keys to memory, on every rail. On failure it is handed back, unless a rail keeps it.
    pub(super) fn make_keys(
        &mut self,
        memory: Exposed,
        rights: Rights,
    ) -> Result<(GrantedMemory, RemoteKeys), (RailError, Option<Exposed>)> {
        let mut granted = GrantedMemory { memory: Arc::new(memory), keys: Vec::new() };
        let mut remote = RemoteKeys::new();
        for rail in 0..self.rails.len() {
            match self.rail(rail).make_key(&granted.memory, rights) {
                Ok(key) => {
                    granted.keys.push(Some(key.id));
                    remote.push(Some((key.address, key.key)));
                }
                Err(error) => {
                    for (rail, id) in granted.keys.into_iter().enumerate() {
                        // One that cannot be ended counts for good, as its memory shows.
                        let _ = id.map(|id| self.rail(rail).end_key(id));
                    }
                    return Err((error, Arc::into_inner(granted.memory)));
                }
            }
        }
        Ok((granted, remote))
    }

    /// Keeps granted memory by its number.
    pub(super) fn keep_granted(&mut self, grant: u64, granted: GrantedMemory) {
        self.grants.insert(grant, granted);
    }

    /// Ends the keys to granted memory: what went wrong, and which rails hold so much that they are to be reset.
    pub(super) fn end_keys(&mut self, grant: u64) -> (Vec<RailError>, Vec<usize>) {
        let (mut errors, mut too_full) = (Vec::new(), Vec::new());
        let Some(keys) = self.grants.get_mut(&grant).map(|granted| granted.keys.iter_mut()) else {
            return (errors, too_full);
        };
        let keys: Vec<Option<KeyId>> = keys.map(Option::take).collect();
        for (rail, key) in keys.into_iter().enumerate() {
            let Some(key) = key else { continue };
            errors.extend(self.rail(rail).end_key(key).err());
            if self.rail(rail).holds_too_much() {
                too_full.push(rail);
            }
        }
        (errors, too_full)
    }

    /// Whether it is proven that granted memory is reached by nobody any more.
    pub(super) fn is_proven(&self, grant: u64) -> bool {
        self.grants.get(&grant).is_some_and(|granted| granted.memory.keys() == 0)
    }

    /// Takes granted memory out, unless its user has a handle on it.
    pub(super) fn take_granted(&mut self, grant: u64) -> Option<Exposed> {
        let GrantedMemory { memory, keys } = self.grants.remove(&grant)?;
        match Arc::try_unwrap(memory) {
            Ok(memory) => Some(memory),
            Err(memory) => {
                self.grants.insert(grant, GrantedMemory { memory, keys });
                None
            }
        }
    }

    /// How many buffers of the engine's own are out.
    #[cfg(test)]
    pub(super) fn out(&self) -> usize {
        MESSAGES + ATOMICS - self.messages.free.len() - self.atomics.len()
    }

    /// How many transfers have memory here, and how many grants.
    #[cfg(test)]
    pub(super) fn held(&self) -> (usize, usize) {
        (self.transfers.len(), self.grants.len())
    }
}

/// Buffers for messages, of one length, which lie behind each other.
#[derive(Debug, Default)]
struct MessagePool {
    /// Where the first one begins, and how far they are apart.
    base: usize,
    stride: usize,
    free: Vec<Slice>,
    /// What messages leave of their buffers, by the place of the buffer.
    rests: Vec<Option<Slice>>,
}

impl MessagePool {
    fn new(stride: usize, free: Vec<Slice>) -> Self {
        let base = free.first().map_or(0, |first| first.as_ptr() as usize);
        let rests = free.iter().map(|_| None).collect();
        Self { base, stride, free, rests }
    }

    /// Which of the buffers it is; none where a rail hands back what it was never handed.
    fn place(&self, buffer: &Slice) -> Option<usize> {
        let place = (buffer.as_ptr() as usize).checked_sub(self.base)?.checked_div(self.stride)?;
        (place < self.rests.len()).then_some(place)
    }

    /// A buffer with a message.
    fn take(&mut self, mark: u32, sequence: u64, bytes: &[u8]) -> Option<Slice> {
        let mut buffer = self.free.pop()?;
        let len = HEADER + bytes.len();
        buffer[..4].copy_from_slice(&mark.to_le_bytes());
        buffer[8..HEADER].copy_from_slice(&sequence.to_le_bytes());
        buffer[HEADER..len].copy_from_slice(bytes);
        let place = self.place(&buffer)?;
        self.rests[place] = Some(buffer.split_off(len));
        Some(buffer)
    }

    fn put_back(&mut self, buffers: Buffers) {
        let Ok(mut buffer) = buffers.into_slice() else { return };
        let Some(rest) = self.place(&buffer).and_then(|place| self.rests[place].take()) else { return };
        // They were one.
        if buffer.unsplit(rest).is_ok() {
            self.free.push(buffer);
        }
    }
}
