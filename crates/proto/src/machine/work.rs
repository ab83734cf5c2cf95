//! Work: what the machine wants done with rails. Whoever has the rails asks for it, does it, and says what became of it.
//!
//! It is given out in order, and whatever was decided meanwhile may find that it is not wanted any more: an end that was opened for a link that
//! has failed since is closed again.

use std::time::Duration;

use super::in_flight::Requested;
use super::looking::Looking;
use super::rail::RailState;
use super::{Machine, OpId, PeerKey};
use crate::counter::LinkId;
use crate::inflight::SlotId;
use crate::plan::Extent;
use crate::rail::{LinkKey, RailError, Refusal, WorkRequest};
use crate::wire::Frame;

/// What is done with links, rails and keys. It is rare, and comes before all [posts](Post).
#[derive(Debug)]
pub enum Control {
    /// Makes this side's end of a link; answered by [`Machine::handle_opened`].
    OpenLink(Opening),
    /// Connects an end to the peer's; answered by [`Machine::handle_connected`].
    Connect {
        /// This side's end.
        end: LinkEnd,
        /// The address of the peer's.
        peer_end: Vec<u8>,
    },
    /// Ends a link.
    CloseLink {
        /// Its rail.
        rail: usize,
        /// This side's end.
        link: LinkKey,
    },
    /// Begins a rail anew; answered by [`Machine::handle_reset`].
    Reset {
        /// Which.
        rail: usize,
    },
    /// Ends the keys to granted memory; answered by [`Machine::handle_keys_ended`].
    EndKeys {
        /// Which memory.
        grant: u64,
    },
    /// Gives granted memory back to whoever asked; answered by [`Machine::handle_given_back`].
    GiveBack {
        /// Which memory.
        grant: u64,
        /// Who asked; none where nobody does any more.
        op: Option<OpId>,
    },
}

/// An end of a link that is to be made.
#[derive(Debug)]
pub struct Opening {
    /// The rail that is asked for it.
    pub rail: usize,
    pub(super) peer: PeerKey,
    /// Which of the peer's links.
    pub(super) index: usize,
    pub(super) id: LinkId,
    /// The peer's end, where the peer has offered the link.
    pub(super) peer_end: Option<Vec<u8>>,
}

/// An end of a link that was made.
#[derive(Debug, Clone, Copy)]
pub struct LinkEnd {
    /// Its rail.
    pub rail: usize,
    /// What the rail calls it.
    pub link: LinkKey,
    pub(super) peer: PeerKey,
    /// Which of the peer's links.
    pub(super) index: usize,
}

/// What became of the keys to granted memory.
#[derive(Debug, Default)]
pub struct KeysEnded {
    /// What went wrong.
    pub errors: Vec<RailError>,
    /// The rails that hold so much that they are to be reset.
    pub too_full: Vec<usize>,
    /// Whether it is proven that nobody reaches the memory any more.
    pub is_proven: bool,
}

/// One request for a card. What became of it is said by [`Machine::handle_posted`], before the next one is asked for.
#[derive(Debug)]
pub struct Post<'a> {
    /// The rail that it is for.
    pub rail: usize,
    /// This side's end of the link that it is for.
    pub link: LinkKey,
    /// The number of the work request.
    pub slot: SlotId,
    /// What is to be posted.
    pub content: Content<'a>,
}

/// What a request is of: which memory of this side's, and what is done with it.
#[derive(Debug)]
pub enum Content<'a> {
    /// Parts of a transfer's memory; no request where the peer's memory is not what it was said to be.
    Pages {
        /// The transfer.
        op: OpId,
        /// The parts of its memory.
        extents: &'a [Extent],
        /// What is done with them.
        request: Option<WorkRequest<'a>>,
    },
    /// A message, with what is put before it.
    Message {
        /// What the peer wants its messages marked with.
        mark: u32,
        /// Its number.
        sequence: u64,
        /// Its bytes.
        bytes: &'a [u8],
    },
    /// An atomic: eight bytes for what it finds.
    Atomic {
        /// What is done.
        request: WorkRequest<'a>,
    },
}

impl Machine {
    /// The next that is to be done with links, rails and keys.
    #[inline]
    pub fn poll_control(&mut self) -> Option<Control> {
        self.control.pop_front()
    }

    /// What is posted until [`poll_post`](Self::poll_post) has nothing more is a round: as much as one step posts. There are buffers for so many messages.
    pub fn begin_round(&mut self, message_buffers: usize) {
        self.turns.begin_round(message_buffers);
    }

    /// The next request.
    #[inline]
    pub fn poll_post(&mut self) -> Option<Post<'_>> {
        if self.turns.has_senders()
            && let Some(slot) = self.choose_from_senders()
        {
            return self.post_of_sender(slot);
        }
        let chosen = self.choose_page()?;
        self.post_of_pages(chosen)
    }

    /// What became of a request: whether a card has it.
    #[inline]
    pub fn handle_posted(&mut self, slot: SlotId, posted: Result<(), Refusal>) {
        match posted {
            Ok(()) => self.posted(slot),
            Err(reason) => self.refused(slot, reason),
        }
    }

    #[inline]
    fn posted(&mut self, slot: SlotId) {
        let Some(it) = self.in_flight.get(slot) else { return };
        let (key, index) = (it.peer, it.link());
        match &it.what {
            Requested::Pages(posted) => {
                let bytes = posted.operation().bytes;
                self.turns.spend(bytes);
            }
            Requested::Atomic(new, _) => {
                let grant = new.grant;
                self.atomic_posted(key, grant, slot);
            }
            Requested::Message(_) | Requested::Answered => {}
        }
        self.link_took_one(key, index);
    }

    #[cold]
    fn refused(&mut self, slot: SlotId, reason: Refusal) {
        let Some(it) = self.in_flight.take(slot) else { return };
        let (peer, link) = (it.peer, it.link());
        match it.what {
            Requested::Pages(posted) => self.page_refused(peer, posted, reason),
            Requested::Message(sequence) => self.message_refused(peer, link, sequence, reason),
            Requested::Atomic(new, _) => self.atomic_refused(new, link, reason),
            Requested::Answered => {}
        }
    }

    /// A request is done with, and its buffers are back. `value` is what an atomic has found.
    pub fn handle_completed(
        &mut self,
        rail: usize,
        slot: SlotId,
        value: Option<u64>,
        outcome: Result<(), RailError>,
    ) {
        let now = self.now;
        self.rails[rail].completed();
        let Some(it) = self.in_flight.take(slot) else { return };
        let (key, index) = (it.peer, it.link());
        let Some(peer) = self.peers.get_mut(key) else { return };
        let link = &mut peer.links[index];
        let is_ok = outcome.is_ok();
        link.completed(is_ok, now);
        if let Err(error) = outcome
            && !peer.is_lost()
        {
            self.fail_link(key, index, &error);
        }
        match it.what {
            Requested::Pages(posted) => self.page_done(key, posted, is_ok),
            Requested::Message(sequence) => self.message_done(key, index, sequence, is_ok),
            Requested::Atomic(new, _) => self.atomic_done(new, slot, value.filter(|_| is_ok)),
            Requested::Answered => {}
        }
    }

    /// Something was posted to a link.
    #[inline]
    fn link_took_one(&mut self, key: PeerKey, index: usize) {
        let now = self.now;
        let Some(peer) = self.peers.get_mut(key) else { return };
        let link = &mut peer.links[index];
        link.took_one(now);
        let number = link.rail();
        let rail = &mut self.rails[number];
        rail.took_one();
        if rail.must_be_polled() {
            self.looking.posted(now);
            if Looking::is_to_be_told(peer.told_to_look_at, now) {
                self.tell_to_look(key, number);
            }
        }
    }

    /// For how long nothing has come or gone on rails that cannot wake anybody; none where nothing is expected there, so that one may
    /// sleep.
    pub fn quiet_for(&self, now: u64) -> Option<Duration> {
        self.looking.quiet_for(now, self.rails.iter().any(RailState::is_looked_at))
    }

    /// Something has come over a rail.
    pub fn handle_moved(&mut self, rail: usize) {
        if self.rails[rail].must_be_polled() {
            self.looking.expect(self.now);
        }
    }

    /// Something is in flight on a rail: the peer is to look.
    pub(super) fn tell_to_look(&mut self, key: PeerKey, rail: usize) {
        if !self.rails[rail].must_be_polled() {
            return;
        }
        let now = self.now;
        let Some(peer) = self.peer(key).filter(|peer| !peer.is_lost()) else { return };
        if Looking::is_to_be_told(peer.told_to_look_at, now) {
            peer.told_to_look_at = Some(now);
            self.send(key, Frame::Look);
        }
    }
}
