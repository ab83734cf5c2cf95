//! Work: what the machine wants done with rails. Whoever has the rails asks for it, does it, and says what became of it.
//!
//! It is given out in order, and whatever was decided meanwhile may find that it is not wanted any more: an end that was opened for a link that
//! has failed since is closed again.

use farreach_core::counter::LinkId;
use farreach_core::inflight::SlotId;
use farreach_core::outbox;
use farreach_core::plan::Extent;

use super::{Machine, NewAtomic, OpId, POSTS_PER_STEP, PeerKey};
use crate::rail::{LinkKey, RailError, Refusal, RemoteSegment, WorkRequest};

/// Messages that may be in flight, to all peers together: there are as many buffers.
pub(crate) const MESSAGES_MAX: usize = 256;

/// What is done with links, rails and keys. It is rare, and comes before all [posts](Post).
#[derive(Debug)]
pub(crate) enum Control {
    /// Makes this side's end of a link; answered by [`Machine::handle_opened`].
    OpenLink(Opening),
    /// Connects an end to the peer's; answered by [`Machine::handle_connected`].
    Connect { end: LinkEnd, peer_end: Vec<u8> },
    /// Ends a link.
    CloseLink { rail: usize, link: LinkKey },
    /// Begins a rail anew; answered by [`Machine::handle_reset`].
    Reset { rail: usize },
    /// Ends the keys to granted memory; answered by [`Machine::handle_keys_ended`].
    EndKeys { grant: u64 },
    /// Gives granted memory back to whoever asked; answered by [`Machine::handle_given_back`].
    GiveBack { grant: u64, op: Option<OpId> },
}

/// An end of a link that is to be made.
#[derive(Debug)]
pub(crate) struct Opening {
    pub(crate) rail: usize,
    pub(super) peer: PeerKey,
    /// Which of the peer's links.
    pub(super) index: usize,
    pub(super) id: LinkId,
    /// The peer's end, where the peer has offered the link.
    pub(super) peer_end: Option<Vec<u8>>,
}

/// An end of a link that was made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LinkEnd {
    pub(crate) rail: usize,
    pub(crate) link: LinkKey,
    pub(super) peer: PeerKey,
    /// Which of the peer's links.
    pub(super) index: usize,
}

/// What became of the keys to granted memory.
#[derive(Debug, Default)]
pub(crate) struct KeysEnded {
    /// What went wrong.
    pub(crate) errors: Vec<RailError>,
    /// The rails that hold so much that they are to be reset.
    pub(crate) too_full: Vec<usize>,
    /// Whether it is proven that nobody reaches the memory any more.
    pub(crate) is_proven: bool,
}

/// One request for a card. What became of it is said by [`Machine::handle_posted`], before the next one is asked for.
#[derive(Debug)]
pub(crate) struct Post<'a> {
    pub(crate) id: PostId,
    pub(crate) rail: usize,
    pub(crate) link: LinkKey,
    /// What the card calls it.
    pub(crate) tag: u64,
    pub(crate) content: Content<'a>,
}

/// What a request is of: which memory of this side's, and what is done with it.
#[derive(Debug)]
pub(crate) enum Content<'a> {
    /// Parts of a transfer's memory; no request where the peer's memory is not what it was said to be.
    Pages { op: OpId, extents: &'a [Extent], request: Option<WorkRequest<'a>> },
    /// A message, with what is put before it.
    Message { mark: u32, sequence: u64, bytes: &'a [u8] },
    /// An atomic: eight bytes for what it finds.
    Atomic { request: WorkRequest<'a> },
}

/// Which request it is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum PostId {
    Page { peer: PeerKey, post: outbox::Post, bytes: u64 },
    Message { peer: PeerKey, index: usize, slot: SlotId },
    Atomic { new: NewAtomic, index: usize, slot: SlotId, target: RemoteSegment },
}

/// What a request is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    Pages,
    Message,
    Atomic,
}

impl Class {
    /// Of the request that has this tag.
    pub(crate) fn of(tag: u64) -> Self {
        match (tag >> CLASS_SHIFT) & 3 {
            0 => Self::Pages,
            1 => Self::Message,
            _ => Self::Atomic,
        }
    }
}

/// What a request is of is in two bits of its slot's index, of which there are never so many.
const CLASS_SHIFT: u32 = 30;

pub(super) fn tag(class: Class, slot: SlotId) -> u64 {
    slot.to_raw() | (class as u64) << CLASS_SHIFT
}

pub(super) fn slot_of(tag: u64) -> SlotId {
    SlotId::from_raw(tag & !(3 << CLASS_SHIFT))
}

/// What is still to be posted before somebody else has his turn.
#[derive(Debug, Default)]
pub(super) struct Round {
    /// How many of those who have messages or atomics to be posted are still asked.
    pub(super) senders: usize,
    /// How many more requests with pages.
    pub(super) pages: usize,
    /// How many peers had no room.
    pub(super) full: u32,
}

impl Machine {
    /// The next that is to be done with links, rails and keys.
    #[inline]
    pub(crate) fn poll_control(&mut self) -> Option<Control> {
        self.control.pop_front()
    }

    /// What is posted until [`poll_post`](Self::poll_post) has nothing more is a round: as much as one step posts.
    pub(crate) fn begin_round(&mut self) {
        (self.round.pages, self.round.full) = (POSTS_PER_STEP, 0);
    }

    /// The next request.
    #[inline]
    pub(crate) fn poll_post(&mut self) -> Option<Post<'_>> {
        if self.round.senders > 0
            && let Some(id) = self.choose_from_senders()
        {
            return self.post_of_sender(id);
        }
        let chosen = self.choose_page()?;
        self.post_of_pages(chosen)
    }

    /// What became of a request.
    #[inline]
    pub(crate) fn handle_posted(&mut self, id: PostId, posted: Result<(), Refusal>) {
        match (id, posted) {
            (PostId::Page { peer, post, bytes }, Ok(())) => self.page_posted(peer, post, bytes),
            (PostId::Page { peer, post, .. }, Err(reason)) => self.page_refused(peer, post, reason),
            (PostId::Message { peer, index, .. }, Ok(())) => self.message_posted(peer, index),
            (PostId::Message { peer, index, slot }, Err(reason)) => {
                self.message_refused(peer, index, slot, reason);
            }
            (PostId::Atomic { new, index, .. }, Ok(())) => self.atomic_posted(new, index),
            (PostId::Atomic { new, index, slot, .. }, Err(reason)) => {
                self.atomic_refused(new, index, slot, reason);
            }
        }
    }

    /// Something was posted to a link.
    pub(super) fn link_took_one(&mut self, key: PeerKey, index: usize) {
        let now = self.now;
        let Some(link) = self.peer(key).map(|peer| &mut peer.links[index]) else { return };
        link.took_one(now);
        let rail = link.pair.0;
        self.posted_to(key, rail);
    }
}
