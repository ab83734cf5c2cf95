//! Counters of arrived pages: exactly once, with deadlines, and reconciled after a lost link.
//!
//! A write can carry 32 bits that the receiver gets when the bytes have arrived: an [`Immediate`].
//! It names a counter and the number of pages that are complete with it. On a link that keeps the
//! order, one immediate at the end therefore serves many pages, and pages need not be announced.
//!
//! When a link is lost, the sender does not know which of its last immediates arrived. The receiver
//! knows how many pages it has counted from that link, and counts no more from it
//! ([`Counters::settle`]). The sender sends again, without immediates, the pages that may be
//! missing. Once they are delivered, it has the receiver add the difference ([`Reported::lose`],
//! [`Counters::add`]).
//!
//! Invariant: each page is counted once, whether or not its immediate arrived.

use std::collections::BTreeMap;

/// Names a counter of one engine towards its peers. A slot is reused only after all others were
/// used, and then has another epoch: an id recurs after four million others.
///
/// ```
/// use farreach_proto::counter::Counters;
///
/// let mut counters = Counters::new();
/// let first = counters.open().unwrap();
/// counters.close(first);
/// assert_ne!(counters.open().unwrap(), first);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct CounterId {
    slot: u16,
    epoch: u8,
}

impl CounterId {
    /// Names no counter. A `Settle` with this id asks only for confirmation that no more bytes of
    /// the lost link land.
    ///
    /// ```
    /// use farreach_proto::counter::{CounterId, Counters, LinkId};
    ///
    /// assert_eq!(Counters::new().settle(LinkId(1), CounterId::NONE), None);
    /// ```
    // An epoch that does not fit into an immediate never belongs to a counter.
    pub const NONE: Self = Self { slot: u16::MAX, epoch: u8::MAX };

    /// Returns the id as a number, for messages and display.
    pub fn to_raw(self) -> u32 {
        u32::from(self.slot) << 8 | u32::from(self.epoch)
    }

    /// Restores an id from such a number. It need not name an open counter.
    pub fn from_raw(raw: u32) -> Self {
        Self { slot: (raw >> 8) as u16, epoch: raw as u8 }
    }
}

/// The number of bits of an epoch in an immediate.
const EPOCH_BITS: u32 = 6;
/// The number of bits of the page count in an immediate.
const PAGES_BITS: u32 = 10;

/// The maximum number of pages that one immediate counts.
pub const IMMEDIATE_PAGES_MAX: u32 = 1 << PAGES_BITS;

/// The 32 bits that a write carries: a number of pages for one counter.
///
/// ```
/// use farreach_proto::counter::{Counters, Immediate};
///
/// let counter = Counters::new().open().unwrap();
/// let immediate = Immediate::new(counter, 1024).unwrap();
/// assert_eq!(Immediate::from_bits(immediate.to_bits()), immediate);
/// assert!(Immediate::new(counter, 0).is_none() && Immediate::new(counter, 1025).is_none());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Immediate {
    /// The counter.
    pub counter: CounterId,
    pages: u16,
}

impl Immediate {
    /// Creates an immediate for `pages`, which must be from 1 to [`IMMEDIATE_PAGES_MAX`].
    pub fn new(counter: CounterId, pages: u32) -> Option<Self> {
        (1..=IMMEDIATE_PAGES_MAX).contains(&pages).then_some(Self { counter, pages: pages as u16 })
    }

    /// Returns the number of pages.
    pub fn pages(self) -> u32 {
        self.pages.into()
    }

    /// Returns the 32 bits that a write carries.
    pub fn to_bits(self) -> u32 {
        let epoch = u32::from(self.counter.epoch) << PAGES_BITS;
        u32::from(self.counter.slot) << (EPOCH_BITS + PAGES_BITS) | epoch | (u32::from(self.pages) - 1)
    }

    /// Decodes the 32 bits of a write. Every value is a valid immediate; it need not name an open
    /// counter.
    pub fn from_bits(bits: u32) -> Self {
        let slot = (bits >> (EPOCH_BITS + PAGES_BITS)) as u16;
        let epoch = (bits >> PAGES_BITS) as u8 & ((1 << EPOCH_BITS) - 1);
        Self { counter: CounterId { slot, epoch }, pages: (bits & (IMMEDIATE_PAGES_MAX - 1)) as u16 + 1 }
    }
}

/// The maximum number of pages that a peer may [add](Counters::add) for one lost link: those of 2^24
/// operations in flight, which is more than an engine can have, each with as many pages as an immediate
/// counts.
pub const ADD_MAX: u64 = (1 << 24) * IMMEDIATE_PAGES_MAX as u64;

/// Reasons for which pages are not added to a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddError {
    /// The counter is closed.
    Closed,
    /// No lost link was settled for which pages may still be added.
    Unsettled,
    /// There are more than [`ADD_MAX`], or more than 64 bits can count.
    TooMany,
}

/// Names a link to one peer. A link that is connected again after a loss has another id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct LinkId(pub u64);

/// The end of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The pages have arrived.
    Reached,
    /// A peer that raises the counter is lost.
    PeerLost,
    /// The sender aborted the transfer.
    Aborted,
}

/// All counters of an engine: the receiver's side of a transfer.
///
/// ```
/// use farreach_proto::counter::{Counters, Immediate, LinkId};
///
/// let mut counters = Counters::new();
/// let counter = counters.open().unwrap();
/// counters.arrive(LinkId(1), Immediate::new(counter, 3).unwrap());
/// assert_eq!(counters.reached(counter), Some(3));
/// ```
#[derive(Debug, Default)]
pub struct Counters {
    slots: Vec<Slot>,
    /// Slots that were used before, the longest unused first. They are reused only when no new slot
    /// is left, so that a late immediate matches no counter for as long as possible.
    free: std::collections::VecDeque<u16>,
    /// The number of slots that are filled or reserved for names of open counters.
    taken: usize,
}

/// The number of slots that an immediate can name.
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
    /// The name of a counter on one link, for rails whose immediates do not identify their link.
    Name {
        counter: CounterId,
        link: LinkId,
    },
}

#[derive(Debug, Default)]
struct Counter {
    reached: u64,
    /// Pages counted over each link.
    links: BTreeMap<LinkId, Link>,
    names: Vec<(LinkId, CounterId)>,
    /// The number of slots reserved for its names.
    names_max: usize,
    /// The number of answers about lost links, and of additions that followed them.
    settled: u64,
    added: u64,
}

#[derive(Debug, Default, Clone, Copy)]
struct Link {
    pages: u64,
    is_settled: bool,
}

impl Counters {
    /// Creates an empty table.
    pub fn new() -> Self {
        Self::default()
    }

    /// Opens a counter at 0. Returns `None` if 65,536 are open.
    pub fn open(&mut self) -> Option<CounterId> {
        self.open_with_names(0)
    }

    /// As [`open`](Self::open), for a counter that will have up to `names_max` [names](Self::name)
    /// at a time. Names share the 65,536 slots with counters: returns `None` if not all of them can
    /// be reserved. The counter can get further names as long as there are slots that are not
    /// reserved.
    ///
    /// ```
    /// use farreach_proto::counter::Counters;
    ///
    /// let mut counters = Counters::new();
    /// // One slot for the counter, and two for its names.
    /// let opened = std::iter::from_fn(|| counters.open_with_names(2)).count();
    /// assert_eq!(opened, 65_536 / 3);
    /// ```
    pub fn open_with_names(&mut self, names_max: usize) -> Option<CounterId> {
        // All names now or no counter: a link that connects later must find a slot for its name.
        let taken = self.taken.checked_add(names_max)?.checked_add(1).filter(|taken| *taken <= SLOTS)?;
        let counter = Counter { names_max, ..Counter::default() };
        let id = self.put(Holds::Counter(Box::new(counter)))?;
        // After `put`, which may have found no slot.
        self.taken = taken;
        Some(id)
    }

    /// Adds a name of a counter for links whose immediates do not identify their link: an immediate
    /// with this name is counted as one of `link`.
    ///
    /// ```
    /// use farreach_proto::counter::{Counters, LinkId, Immediate};
    ///
    /// let mut counters = Counters::new();
    /// let counter = counters.open_with_names(1).unwrap();
    /// let name = counters.name(counter, LinkId(1)).unwrap();
    /// assert_eq!(counters.arrive_named(Immediate::new(name, 3).unwrap()), Some((counter, 3)));
    /// assert_eq!(counters.settle(LinkId(1), counter), Some(3));
    /// assert_eq!(counters.arrive_named(Immediate::new(name, 1).unwrap()), None, "the link was lost");
    /// ```
    pub fn name(&mut self, id: CounterId, link: LinkId) -> Option<CounterId> {
        // A name beyond those reserved needs a slot that no counter has reserved.
        let is_more = self.get(id).map(|counter| counter.names.len() >= counter.names_max)?;
        if is_more && self.taken == SLOTS {
            return None;
        }
        let name = self.put(Holds::Name { counter: id, link })?;
        self.taken += usize::from(is_more);
        let counter = self.get_mut(id).expect("its names were just counted");
        counter.names_max += usize::from(is_more);
        counter.names.push((link, name));
        Some(name)
    }

    /// Ends the names of links that are lost for good, so that their slots can be reused.
    pub fn retain_names(&mut self, id: CounterId, is_kept: impl Fn(LinkId) -> bool) {
        let Some(counter) = self.get_mut(id) else { return };
        let ended: Vec<_> = counter.names.extract_if(.., |(link, _)| !is_kept(*link)).collect();
        for (_, name) in ended {
            // `taken` stays: the counter keeps the slot reserved for its next link.
            self.vacate(name);
        }
    }

    fn put(&mut self, holds: Holds) -> Option<CounterId> {
        // The conversion fails once all 65,536 slots exist. From then on the longest unused one is
        // taken.
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
        // An epoch has as many bits as an immediate has for it.
        slot.epoch = (slot.epoch + 1) % (1 << EPOCH_BITS);
        // At the end: the others are used before it, so its old name stays unused for long.
        self.free.push_back(id.slot);
    }

    /// Closes a counter with its names. Later arrivals for it are ignored.
    pub fn close(&mut self, id: CounterId) {
        let Some(counter) = self.get_mut(id) else { return };
        let (names, names_max) = (std::mem::take(&mut counter.names), counter.names_max);
        // Releases the reserved slots, too, whether or not names used them.
        self.taken -= 1 + names_max;
        for id in names.into_iter().map(|(_, name)| name).chain([id]) {
            self.vacate(id);
        }
    }

    /// Counts an immediate that carries a [name](Self::name). Returns the counter and its new
    /// value.
    #[inline]
    pub fn arrive_named(&mut self, immediate: Immediate) -> Option<(CounterId, u64)> {
        let slot = self.slots.get(usize::from(immediate.counter.slot))?;
        // The name has ended: the immediate is late, or a peer has guessed.
        let Holds::Name { counter, link } = slot.holds else { return None };
        if slot.epoch != immediate.counter.epoch {
            return None;
        }
        // Names end with their counter, but the link may have been settled.
        let reached = self.arrive(link, Immediate { counter, ..immediate })?;
        Some((counter, reached))
    }

    /// Counts an immediate that came over `link`. Returns the counter's new value, or `None` if the
    /// counter is closed or the link was settled.
    pub fn arrive(&mut self, link: LinkId, immediate: Immediate) -> Option<u64> {
        // The counter was closed while the immediate was on its way: the slot has another epoch
        // since.
        let counter = self.get_mut(immediate.counter)?;
        let from = counter.links.entry(link).or_default();
        // The sender resends pages beyond those that were settled: a late immediate would count
        // them twice.
        if from.is_settled {
            return None;
        }
        // 64 bits are enough for 2^54 immediates.
        let reached = counter.reached.checked_add(immediate.pages.into())?;
        from.pages += u64::from(immediate.pages);
        counter.reached = reached;
        Some(reached)
    }

    /// Returns the pages counted from a lost link. Counts no more from it.
    pub fn settle(&mut self, link: LinkId, id: CounterId) -> Option<u64> {
        let from = self.get_mut(id)?.links.entry(link).or_default();
        // Also of a link that has brought nothing: what is on its way must not be counted after the answer.
        from.is_settled = true;
        Some(from.pages)
    }

    /// Lets the peer [add](Self::add) pages once: it is told how many pages were counted from a link that
    /// is lost. Of `lost` links it may add pages once each.
    pub fn permit_add(&mut self, id: CounterId, lost: u64) {
        if let Some(counter) = self.get_mut(id) {
            // A peer may ask twice about one link.
            counter.settled = (counter.settled + 1).min(lost);
        }
    }

    /// Returns `true` if pages of a link were counted, or can be by a name.
    pub(crate) fn has_heard_of(&self, link: LinkId, id: CounterId) -> bool {
        self.get(id).is_some_and(|counter| {
            counter.links.contains_key(&link) || counter.names.iter().any(|(named, _)| *named == link)
        })
    }

    /// Adds pages whose immediates were lost, as [permitted](Self::permit_add). Returns the counter's new
    /// value.
    ///
    /// ```
    /// use farreach_proto::counter::{AddError, Counters, LinkId};
    ///
    /// let mut counters = Counters::new();
    /// let counter = counters.open().unwrap();
    /// assert_eq!(counters.add(counter, 5), Err(AddError::Unsettled));
    /// counters.settle(LinkId(1), counter);
    /// counters.permit_add(counter, 1);
    /// assert_eq!(counters.add(counter, 5), Ok(5));
    /// assert_eq!(counters.add(counter, 5), Err(AddError::Unsettled));
    /// ```
    pub fn add(&mut self, id: CounterId, pages: u64) -> Result<u64, AddError> {
        let counter = self.get_mut(id).ok_or(AddError::Closed)?;
        // Each answered question permits one. Otherwise a peer could count pages that it never
        // sent.
        if counter.added >= counter.settled {
            return Err(AddError::Unsettled);
        }
        // Without the limit, one frame of a lying peer could use up the 64 bits, and `arrive` would
        // count nothing more.
        let reached = counter.reached.checked_add(pages).filter(|_| pages <= ADD_MAX);
        counter.reached = reached.ok_or(AddError::TooMany)?;
        counter.added += 1;
        Ok(counter.reached)
    }

    /// Returns the value of a counter, or `None` if it is closed.
    pub fn reached(&self, id: CounterId) -> Option<u64> {
        self.get(id).map(|counter| counter.reached)
    }

    /// Checks that slots are taken exactly by counters with their names, open or reserved.
    pub(crate) fn check(&self) {
        let mut taken = 0;
        for (slot, it) in self.slots.iter().enumerate() {
            let id = CounterId { slot: slot as u16, epoch: it.epoch };
            match &it.holds {
                Holds::Nothing => {}
                Holds::Counter(counter) => {
                    taken += 1 + counter.names_max;
                    assert!(counter.names.len() <= counter.names_max, "counters: the names of {id:?}");
                }
                Holds::Name { counter, link } => {
                    let names = self.get(*counter).map(|counter| &counter.names);
                    let is_of_it = names.is_some_and(|names| names.contains(&(*link, id)));
                    assert!(is_of_it, "counters: {counter:?} does not know its name {id:?}");
                }
            }
        }
        assert_eq!(self.taken, taken, "counters: the slots that are taken");
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

/// Pages that a sender has reported by immediates over each link, for the reconciliation after a
/// loss.
///
/// ```
/// use farreach_proto::counter::{Reported, Counters, LinkId, Immediate};
///
/// let counter = Counters::new().open().unwrap();
/// let mut reported = Reported::new();
/// reported.add(LinkId(1), Immediate::new(counter, 10).unwrap());
/// // The link is lost. The receiver has counted 4 pages from it.
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
    /// Creates an empty record.
    pub fn new() -> Self {
        Self::default()
    }

    /// Records an immediate that was posted to a link.
    pub fn add(&mut self, link: LinkId, immediate: Immediate) {
        *self.pages.entry((link, immediate.counter)).or_default() += u64::from(immediate.pages());
    }

    /// Removes an immediate that was withdrawn before the card had it.
    pub fn remove(&mut self, link: LinkId, immediate: Immediate) {
        // `forget` has removed the entry if the counter was closed meanwhile.
        if let Some(pages) = self.pages.get_mut(&(link, immediate.counter)) {
            *pages = pages.saturating_sub(immediate.pages().into());
        }
    }

    /// Removes a lost link. Returns the pages that were reported over it, by counter.
    pub fn lose(&mut self, link: LinkId) -> Vec<(CounterId, u64)> {
        let lost: Vec<_> =
            self.pages.range((link, MIN)..=(link, MAX)).map(|((_, id), pages)| (*id, *pages)).collect();
        for (id, _) in &lost {
            self.pages.remove(&(link, *id));
        }
        lost
    }

    /// Removes a closed counter: nothing is left to reconcile for it.
    pub fn forget(&mut self, id: CounterId) {
        self.pages.retain(|(_, counter), _| *counter != id);
    }
}

const MIN: CounterId = CounterId { slot: 0, epoch: 0 };
const MAX: CounterId = CounterId { slot: u16::MAX, epoch: u8::MAX };
