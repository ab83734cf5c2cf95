//! The trait of a rail.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use farreach_memory::{Buffer, Buffers, Exposed, Memory};
use farreach_proto::machine::PeerKey;
use farreach_proto::rights::Rights;

use crate::{Event, Key, KeyId, LinkKey, Properties, RailError, Refusal, WorkRequest};

/// One rail of this host.
pub trait Rail: Send + fmt::Debug {
    /// Returns its properties. They never change.
    fn properties(&self) -> &Properties;

    /// Creates this side's end of a link to a peer. Returns its key on this rail, and the address
    /// that the other end needs. The key is never used again for another link.
    fn open_link(&mut self, peer: PeerKey) -> Result<(LinkKey, Vec<u8>), RailError>;

    /// Connects an end to the peer's. When this returns, operations of the peer are served here (as
    /// long as this side polls), so the peer may be told to post.
    fn connect(&mut self, link: LinkKey, peer_end: &[u8]) -> Result<(), RailError>;

    /// Closes a link. Nothing more can be posted to it. Operations in flight on it come back by
    /// [`poll`](Self::poll), as [`Event::Completed`] with an error.
    ///
    /// If [links end alone](Properties::links_end_alone), this is also the proof that nothing the
    /// peer began over the link lands any more, and operations in flight come back with the next
    /// poll. Otherwise they may come back late, or only after a [reset](Self::reset). Where ended
    /// keys are [reported](crate::EndedKeys::Reported), only that report is a proof.
    fn close_link(&mut self, link: LinkKey);

    /// Closes all links of this rail at once, and starts anew with none. It proves, also for rails
    /// whose links do not end alone, that no operation of a peer lands over the rail any more, unless
    /// ended keys are [reported](crate::EndedKeys::Reported).
    /// Operations in flight come back with the next [`poll`](Self::poll). Immediates and messages
    /// that had arrived and were not polled may be lost.
    ///
    /// After an error, the rail can no longer be used.
    fn reset(&mut self) -> Result<(), RailError>;

    /// Registers memory, so that work requests may use slices of it. A second call for the same
    /// memory does nothing.
    fn register(&mut self, memory: &Memory) -> Result<(), RailError>;

    /// Creates a key with which a peer accesses this memory over this rail. A rail that can separate
    /// peers lets no other peer use it. The memory [counts](Exposed::keys) the key.
    fn make_key(&mut self, peer: PeerKey, memory: &Arc<Exposed>, rights: Rights) -> Result<Key, RailError>;

    /// Binds a key to a connected link of its peer, where [keys are
    /// bound](Properties::keys_are_bound): no other link can use the bound key.
    /// [`Event::KeyBound`] follows with this tag, also if the link fails or is closed before.
    ///
    /// Returns an error if it is not possible now, for a reason that leaves the link as it is. No event
    /// follows then, and a later call tries again.
    fn bind_key(&mut self, link: LinkKey, key: KeyId, tag: u64) -> Result<(), RailError> {
        let _ = (link, key, tag);
        // The machine asks only rails whose keys are bound to links.
        let fix = "this is a bug in farreach: report it";
        Err(RailError::new("bind a key", "keys of this rail are not bound to links", fix))
    }

    /// Ends a key: no operation that a peer begins from now on lands with it. The memory counts the
    /// key until it is proven that nothing is in flight with it either: at once, by a
    /// [reset](Self::reset), or when [`Event::KeyEnded`] is reported, as [`Properties::ended_keys`]
    /// defines. Returns an error if the key cannot be ended; the memory then counts it for good.
    fn end_key(&mut self, key: KeyId) -> Result<(), RailError>;

    /// Begins to prove that nothing of a peer lands with an ended key, because the peer does not
    /// confirm it, where ended keys are [reported](crate::EndedKeys::Reported). [`Event::KeyEnded`]
    /// follows. The owner may go on with the memory, and may get it back meanwhile
    /// ([`Exposed`](farreach_memory::Exposed)).
    ///
    /// Returns an error if it is not possible now. A later call tries again; while a proof is under
    /// way, and after it, a call does nothing.
    fn prove_key(&mut self, key: KeyId) -> Result<(), RailError> {
        // Only keys whose end is reported are ever to be proven.
        let _ = key;
        Ok(())
    }

    /// Posts a work request with its buffers to the card. `tag` comes back with its completion.
    ///
    /// If it is refused, the buffers are returned, and the card has none of them.
    fn post(
        &mut self,
        link: LinkKey,
        tag: u64,
        request: WorkRequest<'_>,
        buffers: Buffers,
    ) -> Result<(), (Refusal, Buffers)>;

    /// Performs a write or read of one remote segment within this call, with the bytes of the buffer
    /// from `offset` on. Returns `true` if all of it is done: the bytes are in their place, and the
    /// peer gets the immediate unless the link fails. No event follows.
    ///
    /// Returns `false` if the rail does not perform it now, for whatever reason. Then the peer gets no
    /// immediate, although bytes may have been written, and the request can be posted. A rail performs no requests unless
    /// [`Properties::performs_max`] says so.
    fn perform(
        &mut self,
        link: LinkKey,
        request: WorkRequest<'_>,
        buffer: &mut Buffer,
        offset: usize,
    ) -> bool {
        // The machine asks only for pages within `Properties::performs_max`.
        let _ = (link, request, buffer, offset);
        false
    }

    /// Hands work requests to the card that the rail has accepted and holds back for a moment, to
    /// post several together. The caller is about to sleep. Polls do the same sooner or later.
    fn flush(&mut self) {}

    /// Reports events to `sink`, and lets the library make progress: at most some dozens of events
    /// at a time. Returns their number.
    ///
    /// An error proves nothing about operations in flight.
    fn poll(&mut self, sink: &mut dyn FnMut(Event<'_>)) -> Result<usize, RailError>;

    /// Returns a file descriptor that becomes readable when there is something to poll, or `None`
    /// if the rail must be polled. A [reset](Self::reset) may replace it and close the old one.
    fn wait_fd(&self) -> Option<BorrowedFd<'_>>;

    /// Prepares for sleeping on [`wait_fd`](Self::wait_fd). Returns `false` if there is something
    /// to poll first.
    fn may_sleep(&mut self) -> Result<bool, RailError>;

    /// Makes the next poll report something of everything that has arrived until now. Other polls may
    /// leave out links that were quiet for a while.
    fn poll_all_next(&mut self) {}

    /// Returns `true` if ended keys hold so much memory until the next reset that a reset is due.
    fn holds_too_much(&mut self) -> bool {
        false
    }

    /// Returns the number of work requests in flight on all links, including closed ones, without
    /// receives of its own.
    fn in_flight(&self) -> usize;
}
