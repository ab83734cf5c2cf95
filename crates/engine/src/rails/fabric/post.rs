//! Converts work requests into those of libfabric, and posts them.

use farreach_fabric as fab;
use farreach_fabric::{PostError, RemoteParts, RemoteRegion, TransmitRequest};
use farreach_memory::Buffers;
use farreach_rail::{LinkKey, Proof, RailError, Refusal, RemoteSegment, RemoteSegments, WorkRequest};

use super::failure;
use super::groups::{Groups, Waiting};
use super::links::{Connected, Link};
use super::resources::Resources;

/// Which of the writes that wait for their group are posted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waiters {
    /// Those of a complete group, or all if few writes are ahead of them.
    Due,
    /// All.
    All,
}

impl Resources {
    pub(super) fn post(
        &mut self,
        key: LinkKey,
        tag: u64,
        request: WorkRequest<'_>,
        buffers: Buffers,
    ) -> Result<(), (Refusal, Buffers)> {
        let is_write = matches!(request, WorkRequest::Write { .. } | WorkRequest::WriteScattered { .. });
        let mut number = tag;
        if let Some(groups) = &self.groups {
            if is_write && groups.must_wait() {
                return self.post_later(key, tag, request, buffers);
            }
            if is_write {
                // The library returns this number instead of the tag, and `Groups` has the tag.
                number = groups.next_number();
            } else if groups.waiting() > 0 && !self.post_waiting(Waiters::All) {
                // Other operations do not overtake writes.
                return Err((Refusal::Full, buffers));
            }
        }
        let delivers = self.properties.writes_prove == Proof::Delivered;
        let request = self.make(key, request, buffers, delivers)?;
        let Some(endpoint) = &mut self.endpoint else {
            return Err((Refusal::LinkDown(why_down(None)), request.into_buffers()));
        };
        match endpoint.post_mut(request.tag(number)) {
            Ok(()) => {
                // The library has accepted a request of this link, so "queue full" is credible
                // again.
                self.links.clear_doubt(key);
                if is_write && let Some(groups) = &mut self.groups {
                    // It asks for delivery itself, so it is a group of its own.
                    groups.posted(tag, true);
                }
                Ok(())
            }
            Err(PostError { reason, request }) => {
                Err((self.understand(key, &reason), request.into_buffers()))
            }
        }
    }

    /// Converts a work request into one of the library.
    #[inline]
    fn make(
        &mut self,
        key: LinkKey,
        request: WorkRequest<'_>,
        buffers: Buffers,
        delivers: bool,
    ) -> Result<TransmitRequest, (Refusal, Buffers)> {
        let connected = match self.links.get_mut(key) {
            Some(Link::Connected(connected)) => connected,
            link => return Err((Refusal::LinkDown(why_down(link)), buffers)),
        };
        let made = match check(request, &buffers, self.properties.message_max) {
            Ok(()) => to_library(request, buffers, connected, delivers),
            Err(why) => Err((why, buffers)),
        };
        made.map_err(|(why, buffers)| {
            let error = RailError::new(
                format!("post over {}", self.properties.name),
                why,
                "this is a bug in farreach: report it",
            );
            (Refusal::Never(error), buffers)
        })
    }

    /// Accepts a write that waits for its group, and posts the group if it is due.
    fn post_later(
        &mut self,
        key: LinkKey,
        tag: u64,
        request: WorkRequest<'_>,
        buffers: Buffers,
    ) -> Result<(), (Refusal, Buffers)> {
        // The group is complete. It has to leave before another write can wait.
        if !self.groups.as_ref().is_some_and(Groups::has_room) && !self.post_waiting(Waiters::Due) {
            return Err((Refusal::Full, buffers));
        }
        let bytes = buffers.len();
        // Without a request for delivery. Which write of the group is the last one is known only
        // when the group is posted.
        let request = self.make(key, request, buffers, false)?;
        if let Some(groups) = &mut self.groups {
            groups.wait(Waiting { tag, bytes, request: (key, request) });
        }
        self.post_waiting(Waiters::Due);
        Ok(())
    }

    /// Posts the writes that wait for their group, as one group. The completion queue is not read
    /// meanwhile. Returns whether none waits any more.
    ///
    /// If the library accepts none of them now, they keep waiting. If it accepts only some, nothing
    /// will prove that these have landed, so the link has failed.
    pub(super) fn post_waiting(&mut self, which: Waiters) -> bool {
        let (Some(groups), Some(endpoint)) = (&mut self.groups, &mut self.endpoint) else { return true };
        if which == Waiters::Due && !groups.is_due() {
            return groups.waiting() == 0;
        }
        // The table of the endpoint must not be the reason for which a group breaks off.
        let room = endpoint.transmit_depth().saturating_sub(endpoint.transmits_in_flight());
        let count = groups.waiting().min(room);
        for place in 1..=count {
            let Some(Waiting { tag, bytes, request: (key, request) }) = groups.take_waiting() else { break };
            let asks = place == count;
            let request = if asks { request.delivered() } else { request };
            match endpoint.post_mut(request.tag(groups.next_number())) {
                Ok(()) => {
                    groups.posted(tag, asks);
                    self.links.clear_doubt(key);
                }
                Err(PostError { reason, request }) => {
                    // At the front: a later write may carry the immediate that counts the pages of
                    // this one.
                    groups.put_back(Waiting { tag, bytes, request: (key, request) });
                    return self.waiting_refused(key, &reason, place > 1);
                }
            }
        }
        groups.waiting() == 0
    }

    /// Handles the refusal of a write that waited for its group. Returns whether none waits any more.
    #[cold]
    fn waiting_refused(&mut self, key: LinkKey, reason: &fab::Refusal, is_broken_off: bool) -> bool {
        let error = match self.understand(key, reason) {
            // Nothing of the group has left, so all of it can be posted later.
            Refusal::Full if !is_broken_off => return false,
            Refusal::Full => RailError::new(
                format!("post over {}", self.properties.name),
                "the connection was lost while writes were posted",
                "none is needed: they are posted again over a new link",
            ),
            Refusal::LinkDown(error) | Refusal::Never(error) => error,
        };
        self.links.fail(key, &error);
        self.fail_waiting(&error);
        true
    }

    /// Converts a refusal. "Queue full" is not believed indefinitely; see
    /// [`Doubt`](super::links::Doubt).
    fn understand(&mut self, key: LinkKey, reason: &fab::Refusal) -> Refusal {
        let reason = match reason {
            fab::Refusal::QueueFull { .. } => match self.doubt(key) {
                Some(error) => Refusal::LinkDown(error),
                None => return Refusal::Full,
            },
            reason => failure::of_refusal(&self.properties.name, reason),
        };
        // Later posts to the link are refused with the same error.
        if let Refusal::LinkDown(error) = &reason {
            self.links.fail(key, error);
        }
        reason
    }

    /// Returns the error behind "queue full", once it is not credible any more.
    fn doubt(&mut self, key: LinkKey) -> Option<RailError> {
        let unattributed = self.unattributed.count;
        let Some(Link::Connected(connected)) = self.links.get_mut(key) else { return None };
        if connected.doubt.is_credible(unattributed) { None } else { self.unattributed.last.clone() }
    }
}

#[cold]
fn why_down(link: Option<&mut Link>) -> RailError {
    let cause = match link {
        Some(Link::Failed(reason)) => return reason.clone(),
        Some(Link::Open) => "the link is not connected",
        _ => "the link was closed, or the rail was reset",
    };
    RailError::new("post to a link", cause, "open and connect a new link")
}

/// Checks what the library does not check.
#[inline]
fn check(request: WorkRequest<'_>, buffers: &Buffers, message_max: usize) -> Result<(), &'static str> {
    match request {
        WorkRequest::WriteScattered { targets, .. } | WorkRequest::ReadGathered { targets }
            if targets.is_empty() || buffers.is_empty() =>
        {
            Err("a scattered operation has no remote segments, or no bytes")
        }
        // The peer's receive buffers are as long as the local ones.
        WorkRequest::Send if buffers.len() > message_max => Err("the message exceeds the maximum length"),
        _ => Ok(()),
    }
}

/// Converts a work request.
#[inline]
fn to_library(
    request: WorkRequest<'_>,
    buffers: Buffers,
    connected: &Connected,
    delivers: bool,
) -> Result<TransmitRequest, (&'static str, Buffers)> {
    let peer = &connected.peer;
    Ok(match request {
        WorkRequest::Write { target, immediate } => {
            finish(TransmitRequest::write(buffers, peer, region(target)), immediate, delivers)
        }
        WorkRequest::WriteScattered { targets, immediate } => {
            let Some(parts) = parts(targets) else { return Err((BAD_RANGE, buffers)) };
            finish(TransmitRequest::write_scattered(buffers, peer, parts), immediate, delivers)
        }
        WorkRequest::Read { target } => TransmitRequest::read_into(buffers, peer, region(target)),
        WorkRequest::ReadGathered { targets } => {
            let Some(parts) = parts(targets) else { return Err((BAD_RANGE, buffers)) };
            TransmitRequest::read_gathered(buffers, peer, parts)
        }
        WorkRequest::Send => TransmitRequest::send(buffers, peer),
        WorkRequest::FetchAdd { target, add } => {
            let into = buffers.into_slice().map_err(|buffers| (NOT_A_SLICE, buffers))?;
            TransmitRequest::fetch_add(into, peer, region(target), add)
        }
        WorkRequest::CompareSwap { target, expected, desired } => {
            let into = buffers.into_slice().map_err(|buffers| (NOT_A_SLICE, buffers))?;
            TransmitRequest::compare_swap(into, peer, region(target), expected, desired)
        }
    })
}

const BAD_RANGE: &str = "a remote segment is empty, or there are too many of them";
const NOT_A_SLICE: &str = "the buffer of an atomic operation is not one slice";

#[inline]
fn finish(request: TransmitRequest, immediate: Option<u32>, delivers: bool) -> TransmitRequest {
    let request = if delivers { request.delivered() } else { request };
    match immediate {
        Some(immediate) => request.immediate(immediate.into()),
        None => request,
    }
}

#[inline]
fn region(target: RemoteSegment) -> RemoteRegion {
    // The engine has checked it against the grant: a write out of bounds that does not ask for
    // delivery would complete, and those after it never (docs/PROVIDERS.md).
    RemoteRegion::new(target.address, target.len, target.key)
}

fn parts(targets: RemoteSegments<'_>) -> Option<RemoteParts> {
    // The engine has checked each range against its grant. Here the whole address space is the
    // limit.
    let mut parts = RemoteParts::new(RemoteRegion::new(0, u64::MAX, targets.key()));
    targets.iter().all(|target| parts.push(target.address, target.len)).then_some(parts)
}
