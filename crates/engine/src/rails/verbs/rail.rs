//! The `Rail` implementation.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use farreach_memory::{Buffers, Exposed, Memory};
use farreach_rail::{Event, Key, KeyId, LinkKey, PeerKey, Properties, Rail, RailError, Refusal, WorkRequest};
use farreach_verbs::mr::AccessFlags;
use farreach_verbs::wr;

use super::VerbsRail;
use super::account::Pending;
use super::end::End;
use super::error::{closed, ended_key, told};
use super::links::{Link, LinkState};
use super::post::{never, to_card};
use super::windows::{GrantKey, Windows};
use crate::Rights;

/// Polls between two checks for asynchronous events. Each check is a system call.
const POLLS_PER_LOOK: u32 = 1024;

impl Rail for VerbsRail {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn open_link(&mut self, _peer: PeerKey) -> Result<(LinkKey, Vec<u8>), RailError> {
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
            // `enter` has reserved room for the link.
            self.queues.leave(queue);
            self.failed("open a link", &error)
        })?;
        let message_max = self.properties.message_max;
        let end = End::new(&own, self.parameters.port, message_max);
        let link = Link { qp, own, queue, message_max, state: LinkState::Made, windows: Windows::default() };
        Ok((self.account.links.insert(link), end.to_bytes()))
    }

    fn connect(&mut self, link: LinkKey, peer_end: &[u8]) -> Result<(), RailError> {
        self.look_at_port("connect a link")?;
        let rail = &self.account.rail;
        let operation = format!("connect a link over {rail}");
        let wrong = |cause: &str| {
            let cause = format!("the peer's end is not valid: {cause}");
            RailError::new(operation.clone(), cause, "run the same release on both sides")
        };
        let end = End::from_bytes(peer_end).map_err(wrong)?;
        let peer = end.address().ok_or_else(|| wrong("its MTU is not valid"))?;
        let link = self.account.links.get_mut(link).ok_or_else(|| closed(rail))?;
        match &link.state {
            LinkState::Made => {}
            LinkState::Ended(reason) => return Err(reason.clone()),
            LinkState::Connected => {
                return Err(RailError::new(operation, "the link is already connected", "open another link"));
            }
        }
        link.qp.connect(&self.parameters, &link.own, &peer).map_err(|error| told(operation, &error))?;
        // The buffers of the peer may be shorter than those of this side.
        link.message_max = link.message_max.min(end.message_max as usize);
        link.state = LinkState::Connected;
        Ok(())
    }

    fn close_link(&mut self, link: LinkKey) {
        // A queue pair that cannot be destroyed is leaked and counted, and its requests stay in
        // flight. There is no caller to report it to.
        let _ = self.take_away(link);
    }

    fn reset(&mut self) -> Result<(), RailError> {
        // All links are removed, even if one fails. The first error is returned.
        let mut outcome = Ok(());
        for link in self.account.links.keys() {
            outcome = outcome.and(self.take_away(link));
        }
        outcome
    }

    fn register(&mut self, memory: &Memory) -> Result<(), RailError> {
        self.pd.register(memory).map_err(|error| self.failed("register memory", &error))
    }

    fn make_key(&mut self, _peer: PeerKey, memory: &Arc<Exposed>, rights: Rights) -> Result<Key, RailError> {
        let access = access(rights);
        let made = match self.properties.keys_are_bound {
            // The region itself gives the access then, over all links of the card.
            false => self.pd.expose_also(memory, access).map(|region| GrantKey::unbound(region, access)),
            true => {
                let region = self.regions.get(&self.pd, memory);
                region.and_then(|region| GrantKey::to_be_bound(&self.pd, region, access))
            }
        };
        let key = made.map_err(|error| self.failed("create a key", &error))?;
        self.exposures_made += 1;
        let (id, remote) = (KeyId(self.exposures_made), key.region().remote());
        self.keys.insert(id, key);
        Ok(Key { id, address: remote.address(), key: remote.key().0.into() })
    }

    fn bind_key(&mut self, link: LinkKey, key: KeyId, tag: u64) -> Result<(), RailError> {
        self.account.ready(link)?;
        let links = &self.account.links;
        let binding = match self.keys.get_mut(&key).filter(|_| self.properties.keys_are_bound) {
            Some(of_it) => of_it.bind(&self.pd, (link, key, tag), |link| links.contains(link)),
            None => return Err(no_such_key("bind", &self.account.rail)),
        };
        let binding = binding.map_err(|error| self.failed("bind a key", &error))?;
        if let Some(link) = self.account.links.get_mut(link) {
            // Before it is posted: a key that ends meanwhile must find its window.
            link.windows.add(binding);
        }
        self.post_bindings(link);
        Ok(())
    }

    fn end_key(&mut self, key: KeyId) -> Result<(), RailError> {
        let Some(of_it) = self.keys.remove(&key) else { return Err(no_such_key("end", &self.account.rail)) };
        let Self { account, backlog, .. } = self;
        let place = of_it.place();
        let ended = of_it.end(|link| {
            // A link that was closed has no window any more: its queue pair has revoked all of
            // them.
            let (window, waiting) = account.links.get_mut(link)?.windows.take(key);
            if let Some(tag) = waiting {
                let bound = Err(ended_key(&account.rail));
                backlog.push_back(Pending::KeyBound { link, tag, bound });
            }
            window
        });
        if let Some(place) = place {
            self.regions.forget_ended(place);
        }
        ended.map_err(|error| self.failed("end a key", &error))
    }

    fn post(
        &mut self,
        key: LinkKey,
        tag: u64,
        request: WorkRequest<'_>,
        buffers: Buffers,
    ) -> Result<(), (Refusal, Buffers)> {
        let link = match self.account.ready(key) {
            Ok(link) => link,
            Err(error) => return Err((Refusal::LinkDown(error), buffers)),
        };
        let len = buffers.len();
        let len_max = match request {
            WorkRequest::Send => link.message_max,
            _ => usize::try_from(self.properties.limits.bytes).unwrap_or(usize::MAX),
        };
        if len > len_max {
            let error = never(format!("{len} bytes exceed the maximum of {len_max}"));
            return Err((Refusal::Never(error), buffers));
        }
        let request = match to_card(request, buffers) {
            Ok(request) => request.tag(tag),
            Err((error, buffers)) => return Err((Refusal::Never(error), buffers)),
        };
        match link.qp.post_send_mut(request) {
            Ok(()) => {
                self.account.in_flight += 1;
                Ok(())
            }
            Err(error) => self.not_posted(key, error),
        }
    }

    fn poll(&mut self, sink: &mut dyn FnMut(Event<'_>)) -> Result<usize, RailError> {
        self.polls = self.polls.wrapping_add(1);
        if self.polls.is_multiple_of(POLLS_PER_LOOK) {
            self.look_for_events()?;
        }
        // All of them: a closed link has returned all of its requests now, and later completions
        // are reported later.
        let backlog = self.backlog.len();
        self.backlog.drain(..).for_each(|event| event.tell(sink));
        let Self { queues, account, .. } = self;
        let told = queues.poll(|completion| account.take(completion, sink));
        // At once: a peer whose message finds no buffer waits, and sends it again.
        account.receives.post()?;
        for link in std::mem::take(&mut self.account.to_bind) {
            self.post_bindings(link);
        }
        Ok(backlog + told?)
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.wakeup.as_fd())
    }

    fn may_sleep(&mut self) -> Result<bool, RailError> {
        // Completions that come after this wake the sleeper.
        let is_idle = self.queues.arm()?;
        self.look_for_events()?;
        Ok(is_idle && self.backlog.is_empty())
    }

    fn in_flight(&self) -> usize {
        // A completion that was not reported has not returned its buffers.
        let untold = self.backlog.iter().filter(|event| matches!(event, Pending::Completed { .. })).count();
        self.account.in_flight + untold
    }
}

/// Returns the error of a key that does not exist.
#[cold]
fn no_such_key(verb: &str, rail: &str) -> RailError {
    RailError::new(format!("{verb} a key over {rail}"), "there is no such key", "end each key once")
}

impl VerbsRail {
    /// Posts the bindings that a link has room for.
    fn post_bindings(&mut self, key: LinkKey) {
        let Self { account, backlog, .. } = self;
        while let Some(link) = account.links.get_mut(key) {
            let Some(request) = link.windows.next() else { return };
            // The caller gets no error: the binding was accepted, and an event has to answer it.
            let Err(error) = link.qp.post_send(request) else { continue };
            let Some(tag) = link.windows.not_posted() else { return };
            let reason = RailError::new(
                format!("bind a key over {}", account.rail),
                error.reason.to_string(),
                error.reason.fix(),
            );
            backlog.push_back(Pending::KeyBound { link: key, tag, bound: Err(reason.clone()) });
            account.end(key, reason, &mut |event| backlog.push_back(event.into()));
        }
    }

    /// Handles a refused post. A full queue is an ordinary result.
    #[inline(never)]
    fn not_posted(
        &mut self,
        key: LinkKey,
        error: wr::PostError<wr::SendRequest>,
    ) -> Result<(), (Refusal, Buffers)> {
        let wr::PostError { reason, request } = error;
        if let wr::Refusal::QueueFull { .. } = reason {
            return Err((Refusal::Full, request.into_buffers()));
        }
        let cause = RailError::new(
            format!("post a work request over {}", self.account.rail),
            reason.to_string(),
            reason.fix(),
        );
        let reason = match reason {
            wr::Refusal::NotReady(_) | wr::Refusal::Engine(_) => Refusal::LinkDown(cause.clone()),
            // The card may have the request: it counts as in flight, and returns at the latest when
            // the link is closed.
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
        Err((reason, request.into_buffers()))
    }
}

/// Returns the access flags for rights of a peer. With relaxed ordering the bus may reorder writes,
/// which is much faster on real cards; a completion still means that all bytes have landed.
fn access(rights: Rights) -> AccessFlags {
    let mut access = AccessFlags::RELAXED_ORDERING;
    access.set(AccessFlags::REMOTE_READ, rights.contains(Rights::READ));
    access.set(AccessFlags::REMOTE_WRITE, rights.contains(Rights::WRITE));
    access.set(AccessFlags::REMOTE_ATOMIC, rights.contains(Rights::ATOMIC));
    access
}
