//! Arrivals: counted once, waited for with a deadline, settled after a link was lost.
//!
//! A write can carry 32 bits to the receiver, who gets them when the bytes are there: a [`Immediate`]. It names a counter and says how many pages
//! are whole with it. So one immediate at the end serves for many pages where a link keeps the order, and none has to be announced.
//!
//! When a link is lost, the sender does not know which of its last immediates arrived. The receiver knows how many pages it has counted from that
//! link, and counts no more from it ([`Counters::settle`]). The sender sends again, without immediates, what may be missing, and when that is delivered
//! has the receiver add the difference ([`Reported::lose`], [`Counters::add`]): each page is counted once, whatever happened to its immediate.

use std::collections::BTreeMap;

/// A counter of one engine, as its peers name it. A slot is used again when all others have been, and then has another epoch: a name comes
/// again after four million others.
///
/// ```
/// use farreach_proto::counter::Counters;
///
/// let mut counters = Counters::new();
/// let first = counters.open([]).unwrap();
/// counters.close(first);
/// assert_ne!(counters.open([]).unwrap(), first);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct CounterId {
    slot: u16,
    epoch: u8,
}

impl CounterId {
    /// No counter at all: whoever asks how far a lost link got by this name asks only to be told when nothing of it lands any more.
    ///
    /// ```
    /// use farreach_proto::counter::{CounterId, Counters, LinkId};
    ///
    /// assert_eq!(Counters::new().settle(LinkId(1), CounterId::NONE), None);
    /// ```
    // An epoch that does not fit into an immediate is never that of a counter.
    pub const NONE: Self = Self { slot: u16::MAX, epoch: u8::MAX };

    /// As a number, for people and for messages.
    pub fn to_raw(self) -> u32 {
        u32::from(self.slot) << 8 | u32::from(self.epoch)
    }

    /// From such a number; whether there is such a counter, [`Counters`] knows.
    pub fn from_raw(raw: u32) -> Self {
        Self { slot: (raw >> 8) as u16, epoch: raw as u8 }
    }
}

/// Bits of an epoch in an immediate.
const EPOCH_BITS: u32 = 6;
/// Bits of the number of pages in an immediate.
const PAGES_BITS: u32 = 10;

/// The most pages that one immediate counts.
pub const IMMEDIATE_PAGES_MAX: u32 = 1 << PAGES_BITS;

/// What a write carries beside its bytes: so many pages for this counter.
///
/// ```
/// use farreach_proto::counter::{Counters, Immediate};
///
/// let counter = Counters::new().open([]).unwrap();
/// let immediate = Immediate::new(counter, 1024).unwrap();
/// assert_eq!(Immediate::from_bits(immediate.to_bits()), immediate);
/// assert!(Immediate::new(counter, 0).is_none() && Immediate::new(counter, 1025).is_none());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Immediate {
    /// For which counter.
    pub counter: CounterId,
    pages: u16,
}

impl Immediate {
    /// So many pages: at least one, at most [`IMMEDIATE_PAGES_MAX`].
    pub fn new(counter: CounterId, pages: u32) -> Option<Self> {
        (1..=IMMEDIATE_PAGES_MAX).contains(&pages).then_some(Self { counter, pages: pages as u16 })
    }

    /// How many pages.
    pub fn pages(self) -> u32 {
        self.pages.into()
    }

    /// The 32 bits of an immediate.
    pub fn to_bits(self) -> u32 {
        let epoch = u32::from(self.counter.epoch) << PAGES_BITS;
        u32::from(self.counter.slot) << (EPOCH_BITS + PAGES_BITS) | epoch | (u32::from(self.pages) - 1)
    }

    /// From an immediate. All bits mean something, so that every number is an immediate; whether there is such a counter, [`Counters`] knows.
    pub fn from_bits(bits: u32) -> Self {
        let slot = (bits >> (EPOCH_BITS + PAGES_BITS)) as u16;
        let epoch = (bits >> PAGES_BITS) as u8 & ((1 << EPOCH_BITS) - 1);
        Self { counter: CounterId { slot, epoch }, pages: (bits & (IMMEDIATE_PAGES_MAX - 1)) as u16 + 1 }
    }
}

/// Names a link to one peer, in one of its lives: what comes back after a loss has another name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct LinkId(pub u64);

/// How a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The pages are there.
    Reached,
    /// A peer that the counter counts for is gone.
    PeerLost,
    /// The deadline has passed.
    TimedOut,
    /// The sender gave the transfer up, and said so.
    Aborted,
}

/// All counters of an engine: the receiver's side.
///
/// ```
/// use farreach_proto::counter::{Counters, LinkId, Outcome, Immediate};
///
/// let mut counters = Counters::new();
/// let counter = counters.open([7]).unwrap();
/// counters.arrive(LinkId(1), Immediate::new(counter, 3).unwrap());
/// assert_eq!(counters.outcome(counter, 3, 0, 100), Some(Outcome::Reached));
/// assert_eq!(counters.outcome(counter, 4, 0, 100), None);
/// assert_eq!(counters.outcome(counter, 4, 100, 100), Some(Outcome::TimedOut));
/// ```
#[derive(Debug, Default)]
pub struct Counters {
    slots: Vec<Slot>,
    /// Used before, the longest unused first. They are taken when no slot is new any more: a late immediate meets nobody for as long as possible.
    free: std::collections::VecDeque<u16>,
    /// Slots that hold something, and those that counters have been promised for names.
    taken: usize,
}

/// As many as an immediate can name.
const SLOTS: usize = 1 << 16;

#[derive(Debug)]
struct Slot {
    epoch: u8,
    holds: Holds,
}

#[derive(Debug)]
enum Holds {
    Nothing,
    Counter(Box<Counter>),
    /// What a counter is called on one link, where immediates do not say over which link they came.
    Name {
        counter: CounterId,
        link: LinkId,
    },
}

#[derive(Debug, Default)]
struct Counter {
    reached: u64,
    /// What came over each link.
    links: BTreeMap<LinkId, Link>,
    names: Vec<(LinkId, CounterId)>,
    /// How many names it was promised.
    names_max: usize,
    peers: Vec<u32>,
    is_peer_lost: bool,
    is_aborted: bool,
}

#[derive(Debug, Default, Clone, Copy)]
struct Link {
    pages: u64,
    is_settled: bool,
}

impl Counters {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// A new one, at 0, which counts for these peers; none where 65,536 are open.
    pub fn open(&mut self, peers: impl IntoIterator<Item = u32>) -> Option<CounterId> {
        self.open_with_names(peers, 0)
    }

    /// As [`open`](Self::open), for a counter that will have so many [names](Self::name) at a time: they share the 65,536, and one that
    /// could not have them all is not opened. More than these it can have while there are slots that nobody was promised.
    ///
    /// ```
    /// use farreach_proto::counter::Counters;
    ///
    /// let mut counters = Counters::new();
    /// // One slot for the counter, and two for its names.
    /// let opened = std::iter::from_fn(|| counters.open_with_names([7], 2)).count();
    /// assert_eq!(opened, 65_536 / 3);
    /// ```
    pub fn open_with_names(
        &mut self,
        peers: impl IntoIterator<Item = u32>,
        names_max: usize,
    ) -> Option<CounterId> {
        let taken = self.taken.checked_add(names_max)?.checked_add(1).filter(|taken| *taken <= SLOTS)?;
        let counter = Counter { peers: peers.into_iter().collect(), names_max, ..Counter::default() };
        let id = self.put(Holds::Counter(Box::new(counter)))?;
        self.taken = taken;
        Some(id)
    }

    /// Another name for one, for immediates that do not say over which link they come: one that comes by it has come over this link.
    ///
    /// ```
    /// use farreach_proto::counter::{Counters, LinkId, Immediate};
    ///
    /// let mut counters = Counters::new();
    /// let counter = counters.open_with_names([7], 1).unwrap();
    /// let name = counters.name(counter, LinkId(1)).unwrap();
    /// assert_eq!(counters.arrive_named(Immediate::new(name, 3).unwrap()), Some((counter, 3)));
    /// assert_eq!(counters.settle(LinkId(1), counter), Some(3));
    /// assert_eq!(counters.arrive_named(Immediate::new(name, 1).unwrap()), None, "the link was lost");
    /// ```
    pub fn name(&mut self, id: CounterId, link: LinkId) -> Option<CounterId> {
        // One that was not promised takes a slot that nobody was promised.
        let is_more = self.get(id).map(|counter| counter.names.len() >= counter.names_max)?;
        if is_more && self.taken == SLOTS {
            return None;
        }
        let name = self.put(Holds::Name { counter: id, link })?;
        self.taken += usize::from(is_more);
        let counter = self.get_mut(id)?;
        counter.names_max += usize::from(is_more);
        counter.names.push((link, name));
        Some(name)
    }

    /// Ends the names of links that are gone for good: others may have them.
    pub fn retain_names(&mut self, id: CounterId, is_kept: impl Fn(LinkId) -> bool) {
        let Some(counter) = self.get_mut(id) else { return };
        let ended: Vec<_> = counter.names.extract_if(.., |(link, _)| !is_kept(*link)).collect();
        for (_, name) in ended {
            self.vacate(name);
        }
    }

    fn put(&mut self, holds: Holds) -> Option<CounterId> {
        let slot = match u16::try_from(self.slots.len()) {
            Ok(slot) => {
                self.slots.push(Slot { epoch: 0, holds: Holds::Nothing });
                slot
            }
            Err(_) => self.free.pop_front()?,
        };
        let place = &mut self.slots[usize::from(slot)];
        place.holds = holds;
        Some(CounterId { slot, epoch: place.epoch })
    }

    fn vacate(&mut self, id: CounterId) {
        let slot = &mut self.slots[usize::from(id.slot)];
        slot.holds = Holds::Nothing;
        slot.epoch = (slot.epoch + 1) % (1 << EPOCH_BITS);
        self.free.push_back(id.slot);
    }

    /// Ends one, with its names. What still arrives for it is counted by nobody.
    pub fn close(&mut self, id: CounterId) {
        let Some(counter) = self.get_mut(id) else { return };
        let (names, names_max) = (std::mem::take(&mut counter.names), counter.names_max);
        self.taken -= 1 + names_max;
        for id in names.into_iter().map(|(_, name)| name).chain([id]) {
            self.vacate(id);
        }
    }

    /// An immediate came by a [name](Self::name): which counter it is, and what that has reached now.
    #[inline]
    pub fn arrive_named(&mut self, immediate: Immediate) -> Option<(CounterId, u64)> {
        let slot = self.slots.get(usize::from(immediate.counter.slot))?;
        let Holds::Name { counter, link } = slot.holds else { return None };
        if slot.epoch != immediate.counter.epoch {
            return None;
        }
        let reached = self.arrive(link, Immediate { counter, ..immediate })?;
        Some((counter, reached))
    }

    /// An immediate came over a link: what the counter has reached now; none where there is no such counter any more, or the link was settled.
    pub fn arrive(&mut self, link: LinkId, immediate: Immediate) -> Option<u64> {
        let counter = self.get_mut(immediate.counter)?;
        let from = counter.links.entry(link).or_default();
        if from.is_settled {
            return None;
        }
        from.pages += u64::from(immediate.pages);
        counter.reached += u64::from(immediate.pages);
        Some(counter.reached)
    }

    /// A link is lost, and the sender asks how far it got: the pages that were counted from it. No more will be.
    pub fn settle(&mut self, link: LinkId, id: CounterId) -> Option<u64> {
        let from = self.get_mut(id)?.links.entry(link).or_default();
        from.is_settled = true;
        Some(from.pages)
    }

    /// The sender says that so many pages are there whose immediates were lost.
    pub fn add(&mut self, id: CounterId, pages: u64) -> Option<u64> {
        let counter = self.get_mut(id)?;
        counter.reached += pages;
        Some(counter.reached)
    }

    /// The sender has aborted the transfer.
    pub fn abort(&mut self, id: CounterId) {
        if let Some(counter) = self.get_mut(id) {
            counter.is_aborted = true;
        }
    }

    /// A peer is gone: waits for its pages by these counters end.
    pub fn lose_peer(&mut self, peer: u32, counters: impl IntoIterator<Item = CounterId>) {
        for id in counters {
            if let Some(counter) = self.get_mut(id) {
                counter.is_peer_lost |= counter.peers.contains(&peer);
            }
        }
    }

    /// What one has reached; none where there is no such counter.
    pub fn reached(&self, id: CounterId) -> Option<u64> {
        self.get(id).map(|counter| counter.reached)
    }

    /// How a wait for so many pages has ended, if it has. What has arrived counts, whatever happened then.
    pub fn outcome(&self, id: CounterId, pages: u64, now: u64, deadline: u64) -> Option<Outcome> {
        let Some(counter) = self.get(id) else { return Some(Outcome::Aborted) };
        match counter {
            _ if counter.reached >= pages => Some(Outcome::Reached),
            Counter { is_aborted: true, .. } => Some(Outcome::Aborted),
            Counter { is_peer_lost: true, .. } => Some(Outcome::PeerLost),
            _ if now >= deadline => Some(Outcome::TimedOut),
            _ => None,
        }
    }

    fn get(&self, id: CounterId) -> Option<&Counter> {
        match self.slots.get(usize::from(id.slot)).filter(|slot| slot.epoch == id.epoch)?.holds {
            Holds::Counter(ref counter) => Some(counter),
            _ => None,
        }
    }

    fn get_mut(&mut self, id: CounterId) -> Option<&mut Counter> {
        match self.slots.get_mut(usize::from(id.slot)).filter(|slot| slot.epoch == id.epoch)?.holds {
            Holds::Counter(ref mut counter) => Some(counter),
            _ => None,
        }
    }
}

/// Pages that a sender has reported by immediates, over each link: so that a lost one can be settled.
///
/// ```
/// use farreach_proto::counter::{Reported, Counters, LinkId, Immediate};
///
/// let counter = Counters::new().open([]).unwrap();
/// let mut reported = Reported::new();
/// reported.add(LinkId(1), Immediate::new(counter, 10).unwrap());
/// // The link is lost. The receiver says that it has counted 4 pages from it.
/// let lost = reported.lose(LinkId(1));
/// assert_eq!(lost, [(counter, 10)]);
/// let missing = lost[0].1 - 4;
/// assert_eq!(missing, 6);
/// ```
#[derive(Debug, Default)]
pub struct Reported {
    pages: BTreeMap<(LinkId, CounterId), u64>,
}

impl Reported {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// An immediate was posted to a link.
    pub fn add(&mut self, link: LinkId, immediate: Immediate) {
        *self.pages.entry((link, immediate.counter)).or_default() += u64::from(immediate.pages());
    }

    /// An immediate was taken back before a card had it.
    pub fn remove(&mut self, link: LinkId, immediate: Immediate) {
        if let Some(pages) = self.pages.get_mut(&(link, immediate.counter)) {
            *pages = pages.saturating_sub(immediate.pages().into());
        }
    }

    /// A link is lost: what was reported over it, by counter. It is forgotten here.
    pub fn lose(&mut self, link: LinkId) -> Vec<(CounterId, u64)> {
        let lost: Vec<_> =
            self.pages.range((link, MIN)..=(link, MAX)).map(|((_, id), pages)| (*id, *pages)).collect();
        for (id, _) in &lost {
            self.pages.remove(&(link, *id));
        }
        lost
    }

    /// A counter is closed: nobody will settle it.
    pub fn forget(&mut self, id: CounterId) {
        self.pages.retain(|(_, counter), _| *counter != id);
    }
}

const MIN: CounterId = CounterId { slot: 0, epoch: 0 };
const MAX: CounterId = CounterId { slot: u16::MAX, epoch: u8::MAX };
