//! The trait of a rail.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use farreach_memory::{Buffers, Exposed, Memory};
use farreach_proto::rights::Rights;

use crate::{Event, Key, KeyId, LinkKey, Properties, RailError, Refusal, WorkRequest};

/// One rail of this host.
pub trait Rail: Send + fmt::Debug {
    /// What it is and can do. It stays the same.
    fn properties(&self) -> &Properties;

    /// Makes this side's end of a link to one peer: its name here, and what the other end needs to know of it. The name is never used
    /// again for another link.
    fn open_link(&mut self) -> Result<(LinkKey, Vec<u8>), RailError>;

    /// Connects an end to the peer's. When this returns, the peer's operations are served here (as long as this side polls), so that the
    /// peer may be told to begin.
    fn connect(&mut self, link: LinkKey, peer_end: &[u8]) -> Result<(), RailError>;

    /// Ends a link. Nothing more can be posted to it, and what is in flight on it comes back by [`poll`](Self::poll), as
    /// [`Event::Completed`] that failed.
    ///
    /// Where [links end by themselves](Properties::links_end_alone) this is also the proof that nothing which the peer has begun over
    /// it lands any more, and what was in flight comes with the next poll. Elsewhere it may come late, or only after a
    /// [reset](Self::reset).
    fn close_link(&mut self, link: LinkKey);

    /// Ends all links of this rail at once, and begins anew with none. It is the proof, also for rails whose links do not end by themselves,
    /// that nothing of a peer's lands over it any more. What was in flight comes back by the next [`poll`](Self::poll). Immediates and messages that had
    /// come and were not polled for may be lost.
    ///
    /// After an error the rail is of no use any more.
    fn reset(&mut self) -> Result<(), RailError>;

    /// Registers pages, so that requests may take slices of them along. Again it does nothing.
    fn register(&mut self, memory: &Memory) -> Result<(), RailError>;

    /// Makes a key by which peers reach this memory over this rail: the memory [counts](Exposed::keys) it.
    fn make_key(&mut self, memory: &Arc<Exposed>, rights: Rights) -> Result<Key, RailError>;

    /// Ends a key: nothing that a peer begins from now on lands by it. The memory counts the key until it is proven that nothing is under way
    /// by it either: at once, or by a [reset](Self::reset), as [`Properties::ended_keys`] says. Where the key cannot be ended it counts for good, and
    /// an error is returned.
    fn end_key(&mut self, key: KeyId) -> Result<(), RailError>;

    /// Hands a request to the card, with its buffers. `tag` comes back with its completion.
    ///
    /// Where it is refused the buffers are handed back, and the card has nothing of them.
    fn post(
        &mut self,
        link: LinkKey,
        tag: u64,
        request: WorkRequest<'_>,
        buffers: Buffers,
    ) -> Result<(), (Refusal, Buffers)>;

    /// Tells what has happened, and keeps the library moving: at most some dozens of events at a time. It tells how many.
    ///
    /// An error proves nothing about what is in flight.
    fn poll(&mut self, sink: &mut dyn FnMut(Event<'_>)) -> Result<usize, RailError>;

    /// What becomes readable when there is something to poll for; none where one has to look. After a [reset](Self::reset) it may be another
    /// one, and the old one is closed.
    fn wait_fd(&self) -> Option<BorrowedFd<'_>>;

    /// Prepares for sleeping on [`wait_fd`](Self::wait_fd); `false` where there is something to poll for first.
    fn may_sleep(&mut self) -> Result<bool, RailError>;

    /// Whether keys that were ended hold so much memory until the next reset that it is time for one.
    fn holds_too_much(&mut self) -> bool {
        false
    }

    /// How many requests it has in flight, on all links, closed ones too. Receives of its own do not count.
    fn in_flight(&self) -> usize;
}
