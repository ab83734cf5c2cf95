//! Keys that are bound to links: a memory window of type 2 for each grant and link. A card accepts
//! its key over the link's queue pair only.
//!
//! The region of the memory itself gives peers no access. Invariant: a region is deregistered only
//! after its windows are deallocated, because cards refuse it otherwise.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use farreach_rail::{Event, KeyId, LinkKey, RailError};
use farreach_verbs::mr::AccessFlags;
use farreach_verbs::mw::{MemoryWindow, WindowType};
use farreach_verbs::pd::ProtectionDomain;
use farreach_verbs::region::ExposedKey;
use farreach_verbs::wr::SendRequest;

use super::regions::Place;

/// Bindings that one link may have in flight. Its queues have room for as many in addition to the
/// window of work requests.
pub(super) const BINDINGS_MAX: usize = 16;

/// The access of peers, as a window can give it.
const REMOTE: AccessFlags =
    AccessFlags::REMOTE_READ.union(AccessFlags::REMOTE_WRITE).union(AccessFlags::REMOTE_ATOMIC);

/// A key of granted memory.
#[derive(Debug)]
pub(super) struct GrantKey {
    region: Arc<ExposedKey>,
    /// The place of the region among those that several keys may share.
    place: Option<Place>,
    /// The access of the peer.
    access: AccessFlags,
    /// A window for the first link, allocated with the key: a grant fails if the card has no window
    /// left.
    spare: Option<MemoryWindow>,
    /// Links with a window for it. Some may be closed.
    links: Vec<LinkKey>,
}

impl GrantKey {
    /// Creates a key that peers use as it is.
    pub(super) fn unbound(region: ExposedKey, access: AccessFlags) -> Self {
        Self { region: Arc::new(region), place: None, access, spare: None, links: Vec::new() }
    }

    /// Creates a key that must be bound to links.
    pub(super) fn to_be_bound(
        pd: &ProtectionDomain,
        (place, region): (Place, Arc<ExposedKey>),
        access: AccessFlags,
    ) -> Result<Self, farreach_verbs::Error> {
        let spare = Some(pd.alloc_mw(WindowType::Two)?);
        Ok(Self { region, place: Some(place), access, spare, links: Vec::new() })
    }

    pub(super) fn place(&self) -> Option<Place> {
        self.place
    }

    pub(super) fn region(&self) -> &ExposedKey {
        &self.region
    }

    /// Begins a binding to a link, with a window of its own. `is_open` tells whether a link is open.
    pub(super) fn bind(
        &mut self,
        pd: &ProtectionDomain,
        (link, id, tag): (LinkKey, KeyId, u64),
        is_open: impl Fn(LinkKey) -> bool,
    ) -> Result<Binding, farreach_verbs::Error> {
        let window = match self.spare.take() {
            Some(window) => window,
            None => pd.alloc_mw(WindowType::Two)?,
        };
        // Otherwise a key that outlives many links would remember them all.
        self.links.retain(|link| is_open(*link));
        self.links.push(link);
        Ok(Binding { key: id, tag, region: Arc::clone(&self.region), access: self.access, window })
    }

    /// Ends the key. `take_window` takes its window of a link.
    pub(super) fn end(
        self,
        mut take_window: impl FnMut(LinkKey) -> Option<MemoryWindow>,
    ) -> Result<(), farreach_verbs::Error> {
        let Self { region, spare, links, .. } = self;
        drop(spare);
        // All windows are revoked, even if one fails. The first error is returned.
        let mut outcome = Ok(());
        for window in links.into_iter().filter_map(&mut take_window) {
            outcome = outcome.and(window.revoke());
        }
        // A window that was not revoked still has the region, which the card would not deregister.
        outcome?;
        match Arc::into_inner(region) {
            Some(region) => region.end(),
            // Another key has windows of the region. Or a window that cannot be revoked holds it, and the
            // memory counts the key for good.
            None => Ok(()),
        }
    }
}

/// A binding that was asked for.
#[derive(Debug)]
pub(super) struct Binding {
    key: KeyId,
    tag: u64,
    region: Arc<ExposedKey>,
    access: AccessFlags,
    window: MemoryWindow,
}

/// The windows of a link, and bindings that are not completed.
#[derive(Debug, Default)]
pub(super) struct Windows {
    bound: HashMap<KeyId, MemoryWindow>,
    waiting: VecDeque<Binding>,
    /// With their tags, in the order of posting, which is the order of completion.
    posted: VecDeque<(MemoryWindow, u64)>,
}

impl Windows {
    pub(super) fn add(&mut self, binding: Binding) {
        self.bound.insert(binding.key, binding.window.clone());
        self.waiting.push_back(binding);
    }

    /// Takes the window of a key that ends, with the tag of its binding if that waits.
    pub(super) fn take(&mut self, key: KeyId) -> (Option<MemoryWindow>, Option<u64>) {
        // A binding that is posted already completes by itself, without a key.
        let waiting = self.waiting.iter().position(|binding| binding.key == key);
        let waiting = waiting.and_then(|index| self.waiting.remove(index));
        (self.bound.remove(&key), waiting.map(|binding| binding.tag))
    }

    /// Returns the work request of the next binding, if there is room for it.
    pub(super) fn next(&mut self) -> Option<SendRequest> {
        // The queue pair and its completion queue have room for so many.
        if self.posted.len() >= BINDINGS_MAX {
            return None;
        }
        let Binding { tag, region, access, window, .. } = self.waiting.pop_front()?;
        let len = region.remote().len() as usize;
        let request = SendRequest::bind(&window, &region, 0..len, access & REMOTE);
        self.posted.push_back((window, tag));
        Some(request)
    }

    /// Takes back the work request that [`next`](Self::next) returned last. Returns its tag.
    pub(super) fn not_posted(&mut self) -> Option<u64> {
        self.posted.pop_back().map(|(_, tag)| tag)
    }

    /// Returns the tag of the first binding in flight, and the address and key for the peer, unless
    /// the key was ended.
    pub(super) fn completed(&mut self) -> Option<(u64, Option<(u64, u64)>)> {
        let (window, tag) = self.posted.pop_front()?;
        // A window that was revoked meanwhile has no key.
        Some((tag, window.remote().map(|remote| (remote.address(), remote.key().0.into()))))
    }

    /// Returns whether bindings wait for room.
    pub(super) fn are_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Reports all bindings as failed.
    pub(super) fn fail(&mut self, link: LinkKey, reason: &RailError, sink: &mut dyn FnMut(Event<'_>)) {
        let waiting = self.waiting.drain(..).map(|binding| binding.tag);
        for tag in self.posted.drain(..).map(|(_, tag)| tag).chain(waiting) {
            sink(Event::KeyBound { link, tag, bound: Err(reason.clone()) });
        }
    }
}
