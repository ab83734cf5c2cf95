//! Work for rails: the driver takes it, does it, and reports the result.
//!
//! Work is handed out in order, except for new ends of links: they come last, and one in several
//! steps. A decision made meanwhile may have made work superfluous: an end that was opened for a
//! link that has failed since is closed again.

use std::time::Duration;

use super::in_flight::{InFlight, Requested};
use super::looking::Looking;
use super::rail::RailState;
use super::timers::INTERVAL;
use super::{Machine, MessageHeader, OpId, PeerKey};
use crate::counter::LinkId;
use crate::ids::{GrantId, PublicationId};
use crate::inflight::SlotId;
use crate::plan::Extent;
use crate::rail::{LinkKey, RailError, Refusal, RequestError, WorkRequest};
use crate::rights::Rights;
use crate::time::Time;
use crate::wire::Frame;

/// Work on links, rails and keys. It is rare, and comes before all [posts](Post).
#[derive(Debug)]
pub enum Control {
    /// Creates this side's end of a link. Answered by [`Machine::handle_opened`].
    OpenLink(Opening),
    /// Connects an end to the peer's. Answered by [`Machine::handle_connected`].
    Connect {
        /// This side's end.
        end: LinkEnd,
        /// The address of the peer's end.
        peer_end: Vec<u8>,
    },
    /// Closes a link.
    CloseLink {
        /// Its rail.
        rail: usize,
        /// This side's end.
        link: LinkKey,
    },
    /// Resets a rail. Answered by [`Machine::handle_reset`].
    Reset {
        /// The rail.
        rail: usize,
    },
    /// Binds the key of granted memory to a link. Answered by [`Machine::handle_key_bound`].
    BindKey {
        /// The rail.
        rail: usize,
        /// This side's end of the link.
        link: LinkKey,
        /// The grant.
        grant: GrantId,
    },
    /// Ends the keys of granted memory. Answered by [`Machine::handle_keys_ended`].
    EndKeys {
        /// The grant.
        grant: GrantId,
    },
    /// Asks rails to prove by themselves that their ended keys have ended, because the peer does not
    /// confirm it. Answered by [`Machine::handle_not_proven`]; [`Machine::handle_key_proven`] follows
    /// for each key whose end is proven. It may be asked for again.
    ProveKeys {
        /// The grant.
        grant: GrantId,
    },
    /// Grants published memory to a peer. Answered by [`Machine::handle_published`].
    GrantPublished {
        /// The publication.
        publication: PublicationId,
        /// The peer.
        peer: PeerKey,
        /// The rights of the peer.
        rights: Rights,
    },
    /// Gives published memory back to its user. Answered by [`Machine::handle_published_back`].
    GiveBackPublished {
        /// The publication.
        publication: PublicationId,
        /// The request to answer; `None` if nobody waits any more.
        op: Option<OpId>,
    },
    /// Gives granted memory back to its user. Answered by [`Machine::handle_given_back`].
    GiveBack {
        /// The grant.
        grant: GrantId,
        /// The request to answer; `None` if nobody waits any more.
        op: Option<OpId>,
    },
}

/// An end of a link to create.
#[derive(Debug)]
pub struct Opening {
    /// The rail to create it on.
    pub rail: usize,
    /// The peer.
    pub peer: PeerKey,
    /// The index among the peer's links.
    pub(super) index: usize,
    pub(super) id: LinkId,
    /// The peer's end, if the peer offered the link.
    pub(super) peer_end: Option<Vec<u8>>,
}

/// An end of a link that was created.
#[derive(Debug, Clone, Copy)]
pub struct LinkEnd {
    /// Its rail.
    pub rail: usize,
    /// Its name on the rail.
    pub link: LinkKey,
    pub(super) peer: PeerKey,
    /// The index among the peer's links.
    pub(super) index: usize,
}

/// The result of ending the keys of granted memory.
#[derive(Debug, Default)]
pub struct KeysEnded {
    /// Errors of the rails.
    pub errors: Vec<RailError>,
    /// Rails that hold so much that they must be reset.
    pub too_full: Vec<usize>,
    /// `true` if it is proven that no operation reaches the memory any more.
    pub is_proven: bool,
    /// Rails that will report when it is proven that nothing of the peer lands with their key, by
    /// [`Machine::handle_key_proven`].
    pub awaited: Vec<usize>,
}

/// A work request to post. The driver reports the result with [`Machine::handle_posted`] before it
/// takes the next one.
#[derive(Debug)]
pub struct Post<'a> {
    /// The rail.
    pub rail: usize,
    /// This side's end of the link.
    pub link: LinkKey,
    /// The number of the work request.
    pub slot: SlotId,
    /// The content.
    pub content: Content<'a>,
}

/// The content of a work request: local memory, and the operation on it.
#[derive(Debug)]
pub enum Content<'a> {
    /// Parts of a transfer's memory.
    Pages {
        /// The transfer.
        op: OpId,
        /// The parts of its memory.
        extents: &'a [Extent],
        /// The operation; `None` if a segment of the peer's memory would end beyond the last
        /// address.
        request: Option<WorkRequest<'a>>,
    },
    /// A message.
    Message {
        /// Its header.
        header: MessageHeader,
        /// Its content.
        bytes: &'a [u8],
    },
    /// An atomic, with eight bytes for the value that it finds.
    Atomic {
        /// The operation.
        request: WorkRequest<'a>,
    },
}

impl Machine {
    /// Returns the next work on links, rails and keys. The work returned before is done.
    #[inline]
    pub fn poll_control(&mut self) -> Option<Control> {
        // Asked before each post, and almost always empty.
        if self.has_control() { self.next_control() } else { None }
    }

    #[inline]
    pub(super) fn has_control(&self) -> bool {
        !(self.control.is_empty() && self.openings.is_empty() && self.settling.is_empty())
    }

    fn next_control(&mut self) -> Option<Control> {
        // New ends come last: one may take milliseconds of a library's time.
        let control = self.control.pop_front().or_else(|| self.next_opening().map(Control::OpenLink));
        // All closes are done, so nothing more of these links lands.
        if control.is_none() && !self.settling.is_empty() {
            self.answer_after_close();
        }
        control
    }

    /// Begins a round of posts: everything that [`poll_post`](Self::poll_post) returns until it
    /// returns `None`, which is as much as one step posts. `message_buffers` are available for
    /// messages.
    pub fn begin_round(&mut self, message_buffers: usize) {
        self.turns.begin_round(message_buffers);
    }

    /// Returns the next work request.
    #[inline]
    pub fn poll_post(&mut self) -> Option<Post<'_>> {
        // Messages and atomics come before pages: they are small, and users wait for them.
        if self.turns.has_senders()
            && let Some(slot) = self.choose_from_senders()
        {
            return Some(self.post_of_sender(slot));
        }
        let chosen = self.choose_page()?;
        Some(self.post_of_pages(chosen))
    }

    /// Handles the result of a post.
    #[inline]
    pub fn handle_posted(&mut self, slot: SlotId, posted: Result<(), Refusal>) {
        match posted {
            Ok(()) => self.posted(slot),
            Err(reason) => self.refused(slot, reason),
        }
    }

    #[inline]
    fn posted(&mut self, slot: SlotId) {
        let it = self.in_flight.get(slot);
        let (key, index) = (it.peer, it.link());
        match &it.what {
            Requested::Pages(posted) => {
                // A peer pays for what a card has taken, and not for what it has refused.
                let bytes = posted.operation().bytes;
                self.turns.spend(bytes);
            }
            Requested::Atomic(new, _) => {
                let grant = new.grant;
                self.atomic_posted(key, grant, slot);
            }
            Requested::Message(_) => self.message_posted(key),
            Requested::Answered => unreachable!("{slot:?} is answered, and was not posted"),
        }
        self.link_took_one(key, index);
    }

    #[cold]
    fn refused(&mut self, slot: SlotId, reason: Refusal) {
        // No card has it, so it completes never: the slot is free.
        let it = self.in_flight.take(slot).expect("what is refused was about to be posted");
        let (peer, link) = (it.peer, it.link());
        self.note_refusal(peer, link);
        match it.what {
            Requested::Pages(posted) => self.page_refused(peer, posted, reason),
            Requested::Message(sequence) => self.message_refused(peer, link, sequence, reason),
            Requested::Atomic(new, _) => self.atomic_refused(new, link, reason),
            Requested::Answered => unreachable!("{slot:?} is answered, and was not posted"),
        }
    }

    /// Has a request that its link has refused tried again soon.
    fn note_refusal(&mut self, key: PeerKey, index: usize) {
        let now = self.now;
        let peer = &mut self.peers[key];
        let link = &mut peer.links[index];
        link.has_refused(now);
        let rail = link.rail();
        // A link that accepts nothing hangs, which its timer finds.
        self.touch(key);
        if self.rails[rail].must_be_polled() {
            self.looking.refused(now);
            // A peer that sleeps takes nothing from its queue, and the link stays full.
            self.tell_to_look(key, rail);
        }
    }

    /// Handles a completion. The buffers are free. `value` is the value that an atomic found.
    pub fn handle_completed(
        &mut self,
        rail: usize,
        slot: SlotId,
        value: Option<u64>,
        outcome: Result<(), RequestError>,
    ) {
        let now = self.now;
        // The entries of a dead rail were removed when it died, and its operations may still come back.
        let Some(it) = self.in_flight.take(slot) else { return };
        // Counted even if its link was closed: the rail had the operation.
        self.rails[rail].completed();
        let (key, index) = (it.peer, it.link());
        let peer = &mut self.peers[key];
        debug_assert_eq!(peer.links[index].rail(), rail, "{slot:?} completes over a rail that never had it");
        let is_ok = outcome.is_ok();
        let is_ordered = self.rails[rail].properties().limits.is_ordered;
        // Requests after it may have counted its pages.
        let outcome = match outcome {
            Err(error) if is_ordered => Err(RequestError::Link(error.into_error())),
            outcome => outcome,
        };
        // Nothing lands any more of a request that failed without its link.
        peer.links[index].completed(!matches!(outcome, Err(RequestError::Link(_))), now);
        // The links of a lost peer are being closed already.
        if let Err(error) = outcome
            && !peer.is_lost()
        {
            match error {
                RequestError::Link(error) => self.fail_link(key, index, &error),
                error => return self.failed_alone(it, slot, error),
            }
        }
        match it.what {
            Requested::Pages(posted) => self.page_done(key, posted, is_ok),
            Requested::Message(sequence) => self.message_done(key, index, sequence, is_ok),
            Requested::Atomic(new, _) => {
                if !is_ok {
                    // Before its grant is released: the peer must not be told that nothing uses it.
                    self.peers[key].links[index].keep_unknown_atomic();
                }
                self.atomic_done(new, slot, value.filter(|_| is_ok));
            }
            // The loss of its peer has answered it. Its buffers were waited for.
            Requested::Answered => {}
        }
    }

    /// Handles the failure of a request whose link goes on.
    #[cold]
    fn failed_alone(&mut self, it: InFlight, slot: SlotId, error: RequestError) {
        let (key, index) = (it.peer, it.link());
        match it.what {
            Requested::Pages(posted) => self.page_failed(key, posted, error),
            // The messages of a link cannot go on without one of them.
            Requested::Message(sequence) => {
                self.fail_link(key, index, error.error());
                self.message_done(key, index, sequence, false);
            }
            Requested::Atomic(new, _) => self.atomic_failed(new, index, slot, error),
            Requested::Answered => unreachable!("{slot:?} is answered, and its peer is well"),
        }
    }

    /// Accounts a post to its link and rail.
    #[inline]
    fn link_took_one(&mut self, key: PeerKey, index: usize) {
        let (now, stall) = (self.now, self.tuning.stall);
        let peer = &mut self.peers[key];
        let link = &mut peer.links[index];
        link.took_one(now);
        let number = link.rail();
        let rail = &mut self.rails[number];
        rail.took_one();
        // The peer must be told again soon to poll for it. Otherwise only a hanging link needs the timer.
        let wait = if rail.must_be_polled() { INTERVAL } else { stall };
        self.timers.schedule(key, &mut peer.due_at, now.saturating_add(wait));
        if rail.must_be_polled() {
            self.looking.posted(now);
            // One frame serves many posts.
            if Looking::is_to_be_told(peer.told_to_look_at, now) {
                self.tell_to_look(key, number);
            }
        }
    }

    /// Returns for how long nothing has happened on rails that cannot wake a sleeper. Returns
    /// `None` if nothing is expected there, so that the driver may sleep.
    pub fn quiet_for(&self, now: Time) -> Option<Duration> {
        self.looking.quiet_for(now, self.rails.iter().any(RailState::is_looked_at))
    }

    /// Notes that something arrived over a rail.
    pub fn handle_moved(&mut self, rail: usize) {
        if self.rails[rail].must_be_polled() {
            // More may follow, and nothing announces it.
            self.looking.expect(self.now);
        }
    }

    /// Tells the peer to poll, because an operation is in flight or has no room on a rail that cannot
    /// wake it.
    pub(super) fn tell_to_look(&mut self, key: PeerKey, rail: usize) {
        // What arrives there wakes the peer.
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
