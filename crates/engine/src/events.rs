//! Events of peers: connections, lost links, lost peers.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use farreach_proto::machine::{PeerChange, PeerKey};
use farreach_rail::RailError;

use crate::LostReason;
use crate::watch::{PeerCell, Watch};

/// The number of events that are kept until the program takes them.
const EVENTS_MAX: usize = 1024;

/// Identifies a peer of an engine, also after its loss. No other peer of the engine ever has the same
/// id. Returned by [`Peer::id`](crate::Peer::id).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(PeerKey);

impl PeerId {
    pub(crate) fn new(key: PeerKey) -> Self {
        Self(key)
    }
}

/// Something that has happened to a peer. Returned by [`Engine::next_event`](crate::Engine::next_event).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum PeerEvent {
    /// A peer is connected: both sides know each other, and a link is ready. If the peer has made the
    /// connection, [`Engine::accept`](crate::Engine::accept) returns it.
    Connected {
        /// The peer.
        peer: PeerId,
        /// The name that it announced.
        name: String,
    },
    /// A link to a peer is lost. The peer is not, as far as is known: operations continue over its other
    /// links, and the engine connects this one again. A link of a peer that ends may be lost just before
    /// the peer is.
    LinkLost {
        /// The peer.
        peer: PeerId,
        /// The local rail.
        rail: String,
        /// The error; `None` if the link has failed with the other side's rail, or by a reset of this
        /// side's.
        reason: Option<RailError>,
    },
    /// A peer is lost. It was connected before, and this is its last event.
    Lost {
        /// The peer.
        peer: PeerId,
        /// The reason.
        reason: LostReason,
    },
    /// The program has not taken events for so long that the oldest ones were dropped. The next event
    /// is the oldest that was kept. [`Engine::peers`](crate::Engine::peers) returns who is connected.
    Missed {
        /// The number of dropped events.
        count: u64,
    },
}

impl PeerEvent {
    /// Returns the event of a change that is about to be applied, if it is one.
    fn of(key: PeerKey, cell: &PeerCell, change: &PeerChange) -> Option<Self> {
        let peer = PeerId(key);
        match change {
            PeerChange::Rails(rails) if !rails.is_empty() && !cell.is_up() => {
                Some(Self::Connected { peer, name: cell.name().to_owned() })
            }
            PeerChange::LinkLost { rail, reason } => {
                Some(Self::LinkLost { peer, rail: rail.clone(), reason: reason.clone() })
            }
            // A peer that was never up had no event, so its loss is none.
            PeerChange::Lost(reason) if cell.is_up() => Some(Self::Lost { peer, reason: reason.clone() }),
            _ => None,
        }
    }
}

/// Events that the program has not taken. None is recorded before the program asks for the first one.
#[derive(Debug, Default)]
pub(crate) struct EventQueue {
    is_used: AtomicBool,
    /// Whether there is an event, so that a leader that checks after each step takes no lock.
    has_one: AtomicBool,
    queue: Mutex<Queue>,
    pub(crate) watch: Arc<Watch>,
}

#[derive(Debug, Default)]
struct Queue {
    events: VecDeque<PeerEvent>,
    /// The number of events that were dropped before the first one.
    missed: u64,
}

impl EventQueue {
    /// Begins to record events.
    pub(crate) fn begin(&self) {
        self.is_used.store(true, Ordering::SeqCst);
    }

    /// Returns the event of a change that is about to be applied, if it is to be recorded.
    pub(crate) fn event_of(&self, key: PeerKey, cell: &PeerCell, change: &PeerChange) -> Option<PeerEvent> {
        self.is_used.load(Ordering::SeqCst).then(|| PeerEvent::of(key, cell, change))?
    }

    pub(crate) fn put(&self, event: PeerEvent, wakers: &mut Vec<Waker>) {
        let mut queue = self.lock();
        if queue.events.len() == EVENTS_MAX {
            // The oldest one goes, because the leader must not wait for the program.
            queue.events.pop_front();
            queue.missed += 1;
        }
        queue.events.push_back(event);
        // Under the lock, as in `take`: the flag always says what the queue holds.
        self.has_one.store(true, Ordering::SeqCst);
        drop(queue);
        self.watch.notify(wakers);
    }

    pub(crate) fn has_one(&self) -> bool {
        self.has_one.load(Ordering::SeqCst)
    }

    pub(crate) fn take(&self) -> Option<PeerEvent> {
        if !self.has_one() {
            return None;
        }
        let mut queue = self.lock();
        let event = match std::mem::take(&mut queue.missed) {
            // The gap is told before the events that follow it.
            0 => queue.events.pop_front(),
            count => Some(PeerEvent::Missed { count }),
        };
        self.has_one.store(!queue.events.is_empty(), Ordering::SeqCst);
        event
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: PeerKey = PeerKey(1);

    fn lost(number: u32) -> PeerEvent {
        PeerEvent::Lost { peer: PeerId(PeerKey(number)), reason: LostReason::Goodbye }
    }

    fn number(event: Option<PeerEvent>) -> u32 {
        let Some(PeerEvent::Lost { peer, .. }) = event else { panic!("{event:?}") };
        peer.0.0
    }

    #[test]
    fn the_oldest_are_dropped_and_counted() {
        let queue = EventQueue::default();
        let total = EVENTS_MAX as u32 + 3;
        (0..total).for_each(|number| queue.put(lost(number), &mut Vec::new()));
        let missed = queue.take();
        assert!(matches!(missed, Some(PeerEvent::Missed { count: 3 })), "{missed:?}");
        (3..total).for_each(|expected| assert_eq!(number(queue.take()), expected));
        assert!(!queue.has_one() && queue.take().is_none());
        queue.put(lost(7), &mut Vec::new());
        assert_eq!((queue.has_one(), number(queue.take())), (true, 7));
    }

    #[test]
    fn a_peer_that_was_never_connected_has_no_event() {
        let (queue, cell) = (EventQueue::default(), PeerCell::default());
        let up = || PeerChange::Rails(vec!["tcp".to_owned()]);
        assert!(queue.event_of(ONE, &cell, &up()).is_none(), "nobody has asked");
        queue.begin();
        assert!(queue.event_of(ONE, &cell, &PeerChange::Lost(LostReason::Goodbye)).is_none());
        let connected = queue.event_of(ONE, &cell, &up());
        assert!(matches!(connected, Some(PeerEvent::Connected { .. })), "{connected:?}");
        cell.change(up(), &mut Vec::new());
        assert!(queue.event_of(ONE, &cell, &up()).is_none(), "once");
        let event = queue.event_of(ONE, &cell, &PeerChange::Lost(LostReason::Goodbye));
        assert!(matches!(event, Some(PeerEvent::Lost { .. })), "{event:?}");
    }
}
