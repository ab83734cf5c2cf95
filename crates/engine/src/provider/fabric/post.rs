//! Requests, in the library's words.

use farreach_fabric as fab;
use farreach_fabric::{PostError, RemoteParts, RemoteRegion, TransmitRequest};
use farreach_memory::Buffers;

use super::failure;
use super::links::{Connected, Link};
use super::posted::Owner;
use super::rail::Rail;
use crate::provider::{LinkKey, Proof, ProviderError, Refusal, Refused, Request, Target, Targets};

impl Rail {
    #[expect(
        clippy::result_large_err,
        reason = "the request is handed back whole, and boxing it would allocate"
    )]
    pub(super) fn post(&mut self, key: LinkKey, tag: u64, request: Request) -> Result<(), Refused> {
        let connected = match self.links.get_mut(key) {
            Some(Link::Connected(connected)) => connected,
            link => return Err(Refused { reason: Refusal::LinkDown(why_down(link)), request }),
        };
        let Some(endpoint) = &mut self.endpoint else {
            return Err(Refused { reason: Refusal::LinkDown(why_down(None)), request });
        };
        let owner = Owner { link: key, tag };
        let Some(number) = self.posted.begin(owner) else {
            return Err(Refused { reason: Refusal::Full, request });
        };
        let (shape, buffers) = Shape::of(request);
        let delivers = self.properties.writes_prove == Proof::Delivered;
        let made = match shape.check(&buffers, self.properties.message_max) {
            Ok(()) => shape.request(buffers, connected, delivers),
            Err(why) => Err((why, buffers)),
        };
        let posted = match made {
            Ok(request) => endpoint.post_mut(request.tag(number)),
            Err((why, buffers)) => {
                self.posted.end(number);
                let error = ProviderError::new(
                    format!("post over {}", self.properties.name),
                    why,
                    "this is for the engine to keep to: report it",
                );
                return Err(Refused { reason: Refusal::Never(error), request: shape.with(buffers) });
            }
        };
        match posted {
            Ok(()) => {
                connected.doubt.clear();
                Ok(())
            }
            Err(PostError { reason, request }) => {
                self.posted.end(number);
                let reason = self.understand(key, &reason);
                Err(Refused { reason, request: shape.with(request.into_buffers()) })
            }
        }
    }

    /// What a refusal means here. One for want of room is not believed for ever.
    fn understand(&mut self, key: LinkKey, reason: &fab::Refusal) -> Refusal {
        let reason = match reason {
            fab::Refusal::QueueFull { .. } => match self.doubt(key) {
                Some(error) => Refusal::LinkDown(error),
                None => return Refusal::Full,
            },
            reason => failure::of_refusal(&self.properties.name, reason),
        };
        if let Refusal::LinkDown(error) = &reason {
            self.links.fail(key, error);
        }
        reason
    }

    /// The error that "full" stands for, when that has become clear.
    fn doubt(&mut self, key: LinkKey) -> Option<ProviderError> {
        let strays = self.strays.count;
        let Some(Link::Connected(connected)) = self.links.get_mut(key) else { return None };
        if connected.doubt.is_credible(strays) { None } else { self.strays.last.clone() }
    }
}

#[cold]
fn why_down(link: Option<&mut Link>) -> ProviderError {
    let cause = match link {
        Some(Link::Failed(reason)) => return reason.clone(),
        Some(Link::Open) => "it is not connected",
        _ => "it was closed, or the rail was reset",
    };
    ProviderError::new("post to a link", cause, "open a new link, and connect it")
}

/// A request without its buffers: what it takes to make it again.
#[derive(Debug, Clone, Copy)]
enum Shape {
    Write { target: Target, immediate: Option<u32> },
    WriteScattered { targets: Targets, immediate: Option<u32> },
    Read { target: Target },
    ReadGathered { targets: Targets },
    Send,
    FetchAdd { target: Target, add: u64 },
    CompareSwap { target: Target, expected: u64, desired: u64 },
}

impl Shape {
    #[inline]
    fn of(request: Request) -> (Self, Buffers) {
        match request {
            Request::Write { pieces, target, immediate } => (Self::Write { target, immediate }, pieces),
            Request::WriteScattered { pieces, targets, immediate } => {
                (Self::WriteScattered { targets, immediate }, pieces)
            }
            Request::Read { pieces, target } => (Self::Read { target }, pieces),
            Request::ReadGathered { pieces, targets } => (Self::ReadGathered { targets }, pieces),
            Request::Send { pieces } => (Self::Send, pieces),
            Request::FetchAdd { into, target, add } => (Self::FetchAdd { target, add }, into),
            Request::CompareSwap { into, target, expected, desired } => {
                (Self::CompareSwap { target, expected, desired }, into)
            }
        }
    }

    /// The request again.
    fn with(self, buffers: Buffers) -> Request {
        match self {
            Self::Write { target, immediate } => Request::Write { pieces: buffers, target, immediate },
            Self::WriteScattered { targets, immediate } => {
                Request::WriteScattered { pieces: buffers, targets, immediate }
            }
            Self::Read { target } => Request::Read { pieces: buffers, target },
            Self::ReadGathered { targets } => Request::ReadGathered { pieces: buffers, targets },
            Self::Send => Request::Send { pieces: buffers },
            Self::FetchAdd { target, add } => Request::FetchAdd { into: buffers, target, add },
            Self::CompareSwap { target, expected, desired } => {
                Request::CompareSwap { into: buffers, target, expected, desired }
            }
        }
    }

    /// What the library would not notice.
    #[inline]
    fn check(&self, buffers: &Buffers, message_max: usize) -> Result<(), &'static str> {
        match self {
            Self::WriteScattered { targets, .. } | Self::ReadGathered { targets }
                if targets.is_empty() || buffers.is_empty() =>
            {
                Err("ranges without bytes, or bytes without ranges")
            }
            // The peer's room is as long as ours.
            Self::Send if buffers.len() > message_max => Err("a message that is longer than the longest"),
            _ => Ok(()),
        }
    }

    /// The request, in the library's words.
    #[inline]
    fn request(
        self,
        buffers: Buffers,
        connected: &Connected,
        delivers: bool,
    ) -> Result<TransmitRequest, (&'static str, Buffers)> {
        let peer = &connected.peer;
        Ok(match self {
            Self::Write { target, immediate } => {
                finish(TransmitRequest::write(buffers, peer, region(target)), immediate, delivers)
            }
            Self::WriteScattered { targets, immediate } => {
                let Some(parts) = parts(&targets) else { return Err((BAD_RANGE, buffers)) };
                finish(TransmitRequest::write_scattered(buffers, peer, parts), immediate, delivers)
            }
            Self::Read { target } => TransmitRequest::read_into(buffers, peer, region(target)),
            Self::ReadGathered { targets } => {
                let Some(parts) = parts(&targets) else { return Err((BAD_RANGE, buffers)) };
                TransmitRequest::read_gathered(buffers, peer, parts)
            }
            Self::Send => TransmitRequest::send(buffers, peer),
            Self::FetchAdd { target, add } => {
                let into = buffers.into_slice().map_err(|buffers| (NOT_A_SLICE, buffers))?;
                TransmitRequest::fetch_add(into, peer, region(target), add)
            }
            Self::CompareSwap { target, expected, desired } => {
                let into = buffers.into_slice().map_err(|buffers| (NOT_A_SLICE, buffers))?;
                TransmitRequest::compare_swap(into, peer, region(target), expected, desired)
            }
        })
    }
}

const BAD_RANGE: &str = "a range without bytes, or more ranges than fit";
const NOT_A_SLICE: &str = "an atomic operation into anything but one slice";

#[inline]
fn finish(request: TransmitRequest, immediate: Option<u32>, delivers: bool) -> TransmitRequest {
    let request = if delivers { request.delivered() } else { request };
    match immediate {
        Some(immediate) => request.immediate(immediate.into()),
        None => request,
    }
}

#[inline]
fn region(target: Target) -> RemoteRegion {
    RemoteRegion::new(target.address, target.len, target.key)
}

fn parts(targets: &Targets) -> Option<RemoteParts> {
    // The engine has checked each range; what it is checked against here is that it ends where addresses do.
    let mut parts = RemoteParts::new(RemoteRegion::new(0, u64::MAX, targets.key()));
    targets.iter().all(|target| parts.push(target.address, target.len)).then_some(parts)
}
