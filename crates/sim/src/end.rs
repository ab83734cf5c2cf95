//! The state of cards, and of the ends of links.

use std::collections::VecDeque;

use farreach_memory::Buffers;
use farreach_proto::inflight::SlotId;
use farreach_rail::{EndedKeys, PeerKey, RailError};

use super::SimCard;
use super::action::Action;

pub(super) struct Host {
    pub(super) number: u32,
    pub(super) is_killed: bool,
    pub(super) stopped_until_ns: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CardState {
    Alive,
    /// A reset has failed: nothing that it has in flight is proven to have stopped.
    Lost,
    /// Its rail was dropped.
    Dropped,
    /// Its host was killed.
    Killed,
}

pub(super) struct Card {
    pub(super) host: usize,
    pub(super) kind: SimCard,
    pub(super) state: CardState,
    /// No packet passes.
    pub(super) has_no_cable: bool,
    pub(super) next_reset_fails: bool,
    pub(super) ends: Vec<usize>,
    /// Work requests whose completion was not polled yet.
    pub(super) in_flight: usize,
    /// Events that the next polls report.
    pub(super) ready: VecDeque<Ready>,
    /// The number of completions among them, and of immediates and messages.
    pub(super) completions: usize,
    pub(super) received: usize,
    /// Actions that are due and wait for a poll, because the card does nothing by itself.
    pub(super) inbox: VecDeque<Action>,
    /// Ends at which actions wait for room among the received events.
    pub(super) blocked: Vec<usize>,
    pub(super) refusals_left: u32,
    pub(super) failing_polls_left: u32,
    pub(super) full_until_ns: u64,
    /// The time at which a driver that could not post or poll is woken.
    pub(super) wakes_at_ns: u64,
}

impl Card {
    pub(super) fn new(host: usize, kind: SimCard) -> Self {
        Self {
            host,
            kind,
            state: CardState::Alive,
            has_no_cable: false,
            next_reset_fails: false,
            ends: Vec::new(),
            in_flight: 0,
            ready: VecDeque::new(),
            completions: 0,
            received: 0,
            inbox: VecDeque::new(),
            blocked: Vec::new(),
            refusals_left: 0,
            failing_polls_left: 0,
            full_until_ns: 0,
            wakes_at_ns: 0,
        }
    }

    pub(super) fn is_ordered(&self) -> bool {
        self.kind.properties.limits.is_ordered
    }

    pub(super) fn can_receive(&self) -> bool {
        self.received < self.kind.receives
    }

    pub(super) fn push(&mut self, ready: Ready) {
        match &ready {
            Ready::Completed { .. } => self.completions += 1,
            Ready::Immediate { .. } | Ready::Message { .. } => self.received += 1,
            Ready::KeyBound { .. } | Ready::KeyEnded { .. } | Ready::LinkDown { .. } => {}
        }
        self.ready.push_back(ready);
    }

    pub(super) fn pop(&mut self) -> Option<Ready> {
        let ready = self.ready.pop_front()?;
        match &ready {
            Ready::Completed { .. } => {
                self.completions -= 1;
                self.in_flight -= 1;
            }
            Ready::Immediate { .. } | Ready::Message { .. } => self.received -= 1,
            Ready::KeyBound { .. } | Ready::KeyEnded { .. } | Ready::LinkDown { .. } => {}
        }
        Some(ready)
    }

    /// Drops received events of links that are gone. Answers stay: the driver waits for them.
    pub(super) fn forget_received(&mut self, is_gone: impl Fn(usize) -> bool) {
        let received = &mut self.received;
        self.ready.retain(|ready| match ready {
            Ready::Completed { .. } | Ready::KeyBound { .. } | Ready::KeyEnded { .. } => true,
            Ready::LinkDown { end, .. } => !is_gone(*end),
            Ready::Immediate { end, .. } | Ready::Message { end, .. } => {
                let is_kept = !is_gone(*end);
                *received -= usize::from(!is_kept);
                is_kept
            }
        });
    }
}

/// An event that a poll reports.
pub(super) enum Ready {
    Completed { end: usize, tag: u64, buffers: Buffers, outcome: Result<(), Failure> },
    Immediate { end: usize, bits: u32 },
    Message { end: usize, bytes: Vec<u8> },
    KeyBound { end: usize, tag: u64, bound: Result<(u64, u64), Failure> },
    KeyEnded { key: usize },
    LinkDown { end: usize, reason: Failure },
}

/// One side's end of a link.
pub(super) struct End {
    pub(super) card: usize,
    /// The peer that it was opened for.
    pub(super) owner: PeerKey,
    /// The end that it is connected to.
    pub(super) peer: Option<usize>,
    pub(super) state: EndState,
    /// Whether its card was reset since, or is gone.
    pub(super) is_reset: bool,
    /// The path from here to the peer.
    pub(super) way: Way,
    /// Whether answers to work requests from here are lost.
    pub(super) are_answers_lost: bool,
    /// Whether its card is about to give it up.
    pub(super) will_break: bool,
    /// Work requests whose completion was not polled yet.
    pub(super) in_flight: usize,
    /// Work requests that are not completed, in the order of posting.
    pub(super) requests: VecDeque<SlotId>,
    /// The times of the last departure and of the last landing, for cards that keep the order.
    pub(super) last_departure_ns: u64,
    pub(super) last_landing_ns: u64,
    /// The additional delay of the next work request.
    pub(super) next_delay_ns: u64,
    /// Actions that have arrived from the peer and wait for room.
    pub(super) held: VecDeque<Action>,
}

impl End {
    pub(super) fn new(card: usize, owner: PeerKey) -> Self {
        Self {
            card,
            owner,
            peer: None,
            state: EndState::Unconnected,
            is_reset: false,
            way: Way::Open,
            are_answers_lost: false,
            will_break: false,
            in_flight: 0,
            requests: VecDeque::new(),
            last_departure_ns: 0,
            last_landing_ns: 0,
            next_delay_ns: 0,
            held: VecDeque::new(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EndState {
    Unconnected,
    Connected,
    /// A failure was reported.
    Broken,
    Closed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Open,
    /// Nothing leaves any more, but everything that has left will land.
    Draining,
    Lost,
}

/// Reasons for which a work request failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    Unreachable,
    Refused,
    Flushed,
    Closed,
    Reset,
    Overrun,
    NotMapped,
}

/// The cause with which requests fail whose memory the poster [has not mapped](super::Odds::key_not_mapped).
pub(crate) const NOT_MAPPED: &str = "this side cannot map the memory";

impl Failure {
    /// Returns whether it fails a request with its key, and not with its link: where the poster does all
    /// the work.
    pub(super) fn is_of_key(self, card: &SimCard) -> bool {
        match self {
            Self::NotMapped => true,
            Self::Refused => card.properties.ended_keys == EndedKeys::Reported,
            _ => false,
        }
    }

    pub(super) fn error(self, operation: &str) -> RailError {
        let (cause, fix) = match self {
            Self::Unreachable => ("the peer's card does not answer", "connect again, or use another rail"),
            Self::Refused => {
                ("the peer's card refused it: its key was ended", "ask the peer for another key")
            }
            Self::Flushed => ("an earlier request on this link failed", "see the cause of that request"),
            Self::Closed => ("the link was closed", "open another one"),
            Self::Reset => ("the card was reset", "open another link"),
            Self::Overrun => {
                ("the completion queue overran", "post no more than it has room for, and poll more often")
            }
            Self::NotMapped => (NOT_MAPPED, "release other memory"),
        };
        RailError::new(operation, cause, fix)
    }
}
