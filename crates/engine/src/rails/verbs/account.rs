//! Accounting of work requests: converts completions into events of the rail.

use farreach_memory::Buffers;
use farreach_rail::{Event, KeyId, LinkKey, RailError, RequestError};
use farreach_verbs::cq::{Failure, WorkCompletion, WorkKind};
use farreach_verbs::qp::Unfinished;

use super::error::{closed, ended_key, first_failure, given_up, not_connected};
use super::links::{Link, LinkState, Links};
use super::receives::Receives;

/// Requests in flight of a rail, and its links and receive buffers.
#[derive(Debug)]
pub(super) struct Account {
    /// The rail's name, for messages.
    pub(super) rail: String,
    pub(super) links: Links,
    pub(super) receives: Receives,
    /// Work requests that the card has.
    pub(super) in_flight: usize,
    /// Links with bindings that wait for room, which there is now.
    pub(super) to_bind: Vec<LinkKey>,
    /// Work requests that were flushed or returned because their link had ended.
    pub(super) given_up: u64,
}

impl Account {
    /// Returns a link that accepts work requests, or the reason why it does not.
    #[inline]
    pub(super) fn ready(&mut self, key: LinkKey) -> Result<&mut Link, RailError> {
        let Some(link) = self.links.get_mut(key) else { return Err(closed(&self.rail)) };
        match &link.state {
            LinkState::Connected => Ok(link),
            LinkState::Ended(reason) => Err(reason.clone()),
            LinkState::Made => Err(not_connected(&self.rail)),
        }
    }

    /// Reports a completion.
    #[inline]
    pub(super) fn take(&mut self, completion: WorkCompletion<'_>, sink: &mut dyn FnMut(Event<'_>)) {
        let link = self.links.key_of(completion.qp_num());
        match (completion.kind(), link) {
            // Without a work request of the machine: its buffer is that of the shared queue.
            (WorkKind::Recv, _) => self.arrive(link, completion, sink),
            (WorkKind::BindWindow, Some(link)) => self.bound(link, completion.outcome().map(drop), sink),
            (kind, Some(link)) => {
                let (tag, outcome) = (completion.tag(), completion.outcome());
                let buffers = completion.into_buffers();
                self.in_flight -= 1;
                let outcome = match outcome {
                    Ok(_) => Ok(()),
                    // The card has ended the queue pair.
                    Err(failure) => Err(RequestError::Link(self.failed(link, kind, failure))),
                };
                sink(Event::Completed { tag, buffers, outcome });
            }
            // A queue pair stays known as long as its requests may complete.
            (_, None) => {}
        }
    }

    #[inline]
    fn arrive(
        &mut self,
        link: Option<LinkKey>,
        completion: WorkCompletion<'_>,
        sink: &mut dyn FnMut(Event<'_>),
    ) {
        let outcome = completion.outcome();
        let Ok(buffer) = completion.into_buffers().into_slice() else { return };
        match (link, outcome) {
            (Some(_), Ok(success)) if success.is_write => {
                // A write without an immediate uses no receive buffer, so this one has an
                // immediate.
                let bits = success.immediate.map_or(0, |immediate| immediate.0);
                sink(Event::Immediate { link, bits });
            }
            (Some(_), Ok(success)) => {
                let len = buffer.len().min(success.byte_len as usize);
                sink(Event::Message { link, bytes: &buffer[..len] });
            }
            // There may be no work request in flight that could report the end of the link.
            (Some(link), Err(failure)) => {
                let reason = first_failure(WorkKind::Recv, &self.rail, failure);
                self.end(link, reason, sink);
            }
            (None, _) => {}
        }
        // In any case, also if its link was removed: otherwise buffers would run out.
        self.receives.put(buffer);
    }

    /// Reports a binding. Others may wait for its room.
    #[cold]
    fn bound(&mut self, key: LinkKey, outcome: Result<(), Failure>, sink: &mut dyn FnMut(Event<'_>)) {
        let Some(link) = self.links.get_mut(key) else { return };
        let Some((tag, remote)) = link.windows.completed() else { return };
        if link.windows.are_waiting() {
            self.to_bind.push(key);
        }
        let bound = match outcome {
            // `None` if the key was ended meanwhile, which has revoked its window.
            Ok(()) => remote.ok_or_else(|| ended_key(&self.rail)),
            Err(failure) => {
                let reason = first_failure(WorkKind::BindWindow, &self.rail, failure);
                self.end(key, reason.clone(), sink);
                Err(reason)
            }
        };
        sink(Event::KeyBound { link: key, tag, bound });
    }

    /// Returns the error of a failed request. The first failure of a link ends it.
    #[cold]
    fn failed(&mut self, key: LinkKey, kind: WorkKind, failure: Failure) -> RailError {
        let error = first_failure(kind, &self.rail, failure);
        // The link was removed, and its queue is being drained (`VerbsRail::take_away`).
        let Some(link) = self.links.get_mut(key) else {
            self.given_up += 1;
            return given_up(kind, &self.rail, &closed(&self.rail));
        };
        match &link.state {
            // The first failure has the cause. Those behind it were only flushed.
            LinkState::Ended(reason) if failure.is_flush() => {
                self.given_up += 1;
                given_up(kind, &self.rail, reason)
            }
            _ => {
                link.end(&error);
                error
            }
        }
    }

    /// Ends a link for which no request in flight would report the failure.
    #[cold]
    pub(super) fn end(&mut self, key: LinkKey, reason: RailError, sink: &mut dyn FnMut(Event<'_>)) {
        if self.links.get_mut(key).is_some_and(|link| link.end(&reason)) {
            sink(Event::LinkDown { link: key, reason });
        }
    }

    /// Reports a request whose queue pair was destroyed.
    pub(super) fn give_up(&mut self, request: Unfinished, sink: &mut dyn FnMut(Event<'_>)) {
        self.in_flight -= 1;
        self.given_up += 1;
        let Unfinished { tag, kind, buffers, .. } = request;
        let outcome = Err(RequestError::Link(given_up(kind, &self.rail, &closed(&self.rail))));
        sink(Event::Completed { tag, buffers, outcome });
    }
}

/// An event that the next poll reports.
#[derive(Debug)]
pub(super) enum Pending {
    Completed { tag: u64, buffers: Buffers, outcome: Result<(), RequestError> },
    Immediate { link: Option<LinkKey>, bits: u32 },
    Message { link: Option<LinkKey>, bytes: Vec<u8> },
    KeyBound { link: LinkKey, tag: u64, bound: Result<(u64, u64), RailError> },
    KeyEnded { key: KeyId },
    LinkDown { link: LinkKey, reason: RailError },
}

impl From<Event<'_>> for Pending {
    fn from(event: Event<'_>) -> Self {
        match event {
            Event::Completed { tag, buffers, outcome } => Self::Completed { tag, buffers, outcome },
            Event::Immediate { link, bits } => Self::Immediate { link, bits },
            Event::Message { link, bytes } => Self::Message { link, bytes: bytes.to_vec() },
            Event::KeyBound { link, tag, bound } => Self::KeyBound { link, tag, bound },
            Event::KeyEnded { key } => Self::KeyEnded { key },
            Event::LinkDown { link, reason } => Self::LinkDown { link, reason },
        }
    }
}

impl Pending {
    pub(super) fn tell(self, sink: &mut dyn FnMut(Event<'_>)) {
        match self {
            Self::Completed { tag, buffers, outcome } => {
                sink(Event::Completed { tag, buffers, outcome });
            }
            Self::Immediate { link, bits } => sink(Event::Immediate { link, bits }),
            Self::Message { link, bytes } => sink(Event::Message { link, bytes: &bytes }),
            Self::KeyBound { link, tag, bound } => sink(Event::KeyBound { link, tag, bound }),
            Self::KeyEnded { key } => sink(Event::KeyEnded { key }),
            Self::LinkDown { link, reason } => sink(Event::LinkDown { link, reason }),
        }
    }
}
