//! What the engine asks of a rail.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use farreach_memory::{Buffers, Exposed, Memory};
use farreach_verbs::mr::AccessFlags;
use farreach_verbs::wr;

use super::VerbsProvider;
use super::account::Pending;
use super::end::End;
use super::error::{closed, told};
use super::links::{Link, LinkState};
use super::post::{Shape, never};
use crate::Rights;
use crate::provider::{
    Event, Exposure, ExposureId, LinkKey, Properties, Provider, ProviderError, Refusal, Refused, Request,
};

/// A card's events are asked for by a system call: not in every poll.
const POLLS_PER_LOOK: u32 = 1024;

impl Provider for VerbsProvider {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn open_link(&mut self) -> Result<(LinkKey, Vec<u8>), ProviderError> {
        if let Some(broken) = &self.broken {
            return Err(broken.clone());
        }
        self.look_at_port("open a link")?;
        let queue = self.queues.enter()?;
        let made = self.make_queue_pair(queue).and_then(|qp| {
            let own = qp.to_init(&self.parameters)?;
            Ok((qp, own))
        });
        let (qp, own) = made.map_err(|error| {
            self.queues.leave(queue);
            self.failed("open a link", &error)
        })?;
        let message_max = self.properties.message_max;
        let end = End::new(&own, self.parameters.port, message_max);
        let link = Link { qp, own, queue, message_max, state: LinkState::Made };
        Ok((self.account.links.insert(link), end.to_bytes()))
    }

    fn connect(&mut self, link: LinkKey, peer_end: &[u8]) -> Result<(), ProviderError> {
        self.look_at_port("connect a link")?;
        let rail = &self.account.rail;
        let operation = format!("connect a link over {rail}");
        let wrong = |cause: &str| {
            let cause = format!("the peer's end makes no sense: {cause}");
            ProviderError::new(operation.clone(), cause, "use the same release on both sides")
        };
        let end = End::from_bytes(peer_end).map_err(wrong)?;
        let peer = end.address().ok_or_else(|| wrong("its MTU is none"))?;
        let link = self.account.links.get_mut(link).ok_or_else(|| closed(rail))?;
        match &link.state {
            LinkState::Made => {}
            LinkState::Ended(reason) => return Err(reason.clone()),
            LinkState::Connected => {
                return Err(ProviderError::new(operation, "it is connected already", "open another link"));
            }
        }
        link.qp.connect(&self.parameters, &link.own, &peer).map_err(|error| told(operation, &error))?;
        link.message_max = link.message_max.min(end.message_max as usize);
        link.state = LinkState::Connected;
        Ok(())
    }

    fn close_link(&mut self, link: LinkKey) {
        // What cannot be destroyed is leaked and counted, and stays in flight; there is nobody else to tell.
        let _ = self.take_away(link);
    }

    fn reset(&mut self) -> Result<(), ProviderError> {
        let mut outcome = Ok(());
        for link in self.account.links.keys() {
            outcome = outcome.and(self.take_away(link));
        }
        outcome
    }

    fn register(&mut self, memory: &Memory) -> Result<(), ProviderError> {
        self.pd.register(memory).map_err(|error| self.failed("register memory", &error))
    }

    fn expose(&mut self, memory: &Arc<Exposed>, rights: Rights) -> Result<Exposure, ProviderError> {
        let key = self
            .pd
            .expose_also(memory, access(rights))
            .map_err(|error| self.failed("make a key to memory", &error))?;
        self.exposures_made += 1;
        let (id, remote) = (self.exposures_made, key.remote());
        self.exposures.insert(id, key);
        Ok(Exposure { id: ExposureId(id), address: remote.address(), key: remote.key().0.into() })
    }

    fn conceal(&mut self, exposure: ExposureId) -> Result<(), ProviderError> {
        let Some(key) = self.exposures.remove(&exposure.0) else {
            let operation = format!("end a key over {}", self.account.rail);
            return Err(ProviderError::new(operation, "there is no such key", "end each key once"));
        };
        key.end().map_err(|error| self.failed("end a key", &error))
    }

    fn post(&mut self, key: LinkKey, tag: u64, request: Request) -> Result<(), Refused> {
        let (shape, buffers) = Shape::of(request.of_one_target()?);
        let link = match self.account.ready(key) {
            Ok(link) => link,
            Err(error) => return Err(refused(Refusal::LinkDown(error), shape, buffers)),
        };
        let len = buffers.len();
        let len_max = match shape {
            Shape::Send => link.message_max,
            _ => usize::try_from(self.properties.limits.bytes).unwrap_or(usize::MAX),
        };
        if len > len_max {
            let error = never(format!("{len} bytes, where {len_max} are the most"));
            return Err(refused(Refusal::Never(error), shape, buffers));
        }
        let request = match shape.to_card(buffers) {
            Ok(request) => request.tag(tag),
            Err((error, buffers)) => return Err(refused(Refusal::Never(error), shape, buffers)),
        };
        match link.qp.post_send_mut(request) {
            Ok(()) => {
                self.account.in_flight += 1;
                Ok(())
            }
            Err(error) => self.not_posted(key, shape, error),
        }
    }

    fn poll(&mut self, sink: &mut dyn FnMut(Event<'_>)) -> Result<usize, ProviderError> {
        self.polls = self.polls.wrapping_add(1);
        if self.polls.is_multiple_of(POLLS_PER_LOOK) {
            self.look_for_events()?;
        }
        // All of it: a link that was closed has given everything back now, and what comes after is told after.
        let backlog = self.backlog.len();
        self.backlog.drain(..).for_each(|event| event.tell(sink));
        let Self { queues, account, .. } = self;
        let told = queues.poll(|completion| account.take(completion, sink));
        account.receives.post()?;
        Ok(backlog + told?)
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.wakeup.as_fd())
    }

    fn may_sleep(&mut self) -> Result<bool, ProviderError> {
        let is_idle = self.queues.arm()?;
        self.look_for_events()?;
        Ok(is_idle && self.backlog.is_empty())
    }

    fn in_flight(&self) -> usize {
        // What has not been told has not been given back.
        let untold = self.backlog.iter().filter(|event| matches!(event, Pending::Completed { .. })).count();
        self.account.in_flight + untold
    }
}

impl VerbsProvider {
    /// What the card, or its library, did not take. That a link is full is an ordinary answer.
    #[expect(clippy::result_large_err, reason = "as for the contract's post")]
    #[inline(never)]
    fn not_posted(
        &mut self,
        key: LinkKey,
        shape: Shape,
        error: wr::PostError<wr::SendRequest>,
    ) -> Result<(), Refused> {
        let wr::PostError { reason, request } = error;
        if let wr::Refusal::QueueFull { .. } = reason {
            return Err(refused(Refusal::Full, shape, request.into_buffers()));
        }
        let cause = ProviderError::new(
            format!("post a request over {}", self.account.rail),
            reason.to_string(),
            reason.fix(),
        );
        let reason = match reason {
            wr::Refusal::NotReady(_) | wr::Refusal::Engine(_) => Refusal::LinkDown(cause.clone()),
            // The card may have it: it is in flight, and comes back when the link is closed at the latest.
            wr::Refusal::InDoubt(_) => {
                self.account.in_flight += 1;
                let backlog = &mut self.backlog;
                self.account.end(key, cause, &mut |event| backlog.push_back(event.into()));
                return Ok(());
            }
            _ => Refusal::Never(cause.clone()),
        };
        if let (Refusal::LinkDown(cause), Some(link)) = (&reason, self.account.links.get_mut(key)) {
            link.end(cause);
        }
        Err(refused(reason, shape, request.into_buffers()))
    }
}

fn refused(reason: Refusal, shape: Shape, buffers: Buffers) -> Refused {
    Refused { reason, request: shape.with(buffers) }
}

/// What a peer may do by a key. A completion means that bytes have landed also where the bus may reorder them, and real cards are
/// much faster so.
fn access(rights: Rights) -> AccessFlags {
    let mut access = AccessFlags::RELAXED_ORDERING;
    access.set(AccessFlags::REMOTE_READ, rights.contains(Rights::READ));
    access.set(AccessFlags::REMOTE_WRITE, rights.contains(Rights::WRITE));
    access.set(AccessFlags::REMOTE_ATOMIC, rights.contains(Rights::ATOMIC));
    access
}
