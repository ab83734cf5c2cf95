//! A rail over libfabric on which peers are separated: an endpoint and a domain for each link.
//!
//! A key is registered in the domains of the links to its peer and nowhere else, so it is of no use
//! to another peer. Each endpoint has a queue of its own, so an immediate or a message is known to
//! have come over its link. Closing a link closes its endpoint, which proves that nothing of this
//! peer lands any more, and costs the other peers nothing.
//!
//! All queues are in one epoll. A queue is polled while something happens on it; a quiet one is
//! polled when the epoll reports it. So a poll costs as much as there is to do, however many peers
//! are connected. Where queues have no descriptors (libfabric 1.x), each poll polls all of them.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use farreach_fabric::{Domain, Error, ExposedKey, Fabric, Info};
use farreach_memory::{Buffers, Exposed, Memory};
use farreach_rail::{Event, Key, KeyId, LinkKey, PeerKey, Properties, Rail, RailError, Refusal, WorkRequest};
use rustix::event::epoll;

use super::resources::access;
use super::{FabricRail, FabricSettings, MADE_ANEW, failure, offers};
use crate::Rights;

/// Receive buffers of one link. The peer's library keeps further messages until there is room.
const RECEIVES_OF_A_LINK: usize = 16;

/// Polls without an event after which a queue is left to the epoll.
const QUIET_POLLS: u32 = 32;

/// Polls between two looks at the epoll while queues are being polled. Each look is a system call.
const POLLS_PER_LOOK: u32 = 8;

/// Queues that one look at the epoll reports.
const READY_MAX: usize = 64;

/// Events after which a poll ends.
const EVENTS_MAX: usize = 64;

/// A rail over libfabric with an endpoint and a domain for each link. A key is good for its peer
/// alone, and the end of a link is the proof that its peer has stopped.
#[derive(Debug)]
pub struct IsolatedRail {
    /// Closed before the keys: then the memory behind them is free.
    links: BTreeMap<LinkKey, Link>,
    keys: HashMap<KeyId, PeerKeyring>,
    /// The number of links and keys created so far.
    made: u64,
    /// Links whose queues are polled.
    polled: VecDeque<LinkKey>,
    polls: u32,
    /// Closed links with operations that were not reported yet.
    closed: Vec<FabricRail>,
    /// Links whose ended keys hold so much memory that they must end.
    overfull: Vec<LinkKey>,
    epoll: OwnedFd,
    /// Whether queues have descriptors to sleep on. Otherwise all are polled always.
    can_sleep: bool,
    properties: Properties,
    settings: FabricSettings,
    /// A domain without endpoints, from which the others are renewed. Keys are created in it.
    home: Domain,
}

/// A key, in the home domain and in those of the links to its peer.
#[derive(Debug)]
struct PeerKeyring {
    peer: PeerKey,
    home: ExposedKey,
    copies: Vec<(LinkKey, ExposedKey)>,
}

#[derive(Debug)]
struct Link {
    peer: PeerKey,
    /// A rail with this link alone.
    rail: FabricRail,
    inner: LinkKey,
    is_polled: bool,
    /// The number of polls since the last event.
    quiet: u32,
}

impl IsolatedRail {
    /// Opens the domain of an offer. Returns `None` if the provider cannot have a domain for each
    /// link at a reasonable cost: memory would have to be registered with each, or keys would
    /// differ.
    pub fn open(info: &Info, settings: &FabricSettings) -> Result<Option<Self>, RailError> {
        if info.mr_mode().intersects(MADE_ANEW) {
            return Ok(None);
        }
        // It is checked whether the provider can be a rail, and its properties are read.
        let probe = FabricRail::open(info, settings)?;
        let refused =
            |error: &Error| failure::of_error(format!("open a rail over {}", info.provider()), error);
        let home = Fabric::open(info).and_then(|fabric| fabric.open_domain(info));
        let home = home.map_err(|error| refused(&error))?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|errno| {
            let fix = "raise the limit of open files (`ulimit -n`)";
            RailError::new("create an epoll", errno.to_string(), fix)
        })?;
        // Each link has an address of its own. They have the host's in common.
        let host =
            info.source().and_then(|source| source.socket_addr()).map(|address| address.ip().to_string());
        let properties = Properties {
            native: host.unwrap_or_else(|| info.domain().to_owned()),
            immediates_name_link: true,
            // Closing a link closes its endpoint.
            links_end_alone: true,
            ..probe.properties().clone()
        };
        Ok(Some(Self {
            links: BTreeMap::new(),
            keys: HashMap::new(),
            made: 0,
            polled: VecDeque::new(),
            polls: 0,
            closed: Vec::new(),
            overfull: Vec::new(),
            epoll,
            can_sleep: probe.wait_fd().is_some(),
            properties,
            settings: FabricSettings {
                // Each link has as many, and they are not shared.
                receive_count: settings.receive_count.min(RECEIVES_OF_A_LINK),
                ..settings.clone()
            },
            home,
        }))
    }

    /// Opens a rail by the name of its provider, as [`FabricRail::open_named`] does. Returns `None`
    /// as [`open`](Self::open) does.
    pub fn open_named(
        name: &str,
        bind: Option<std::net::IpAddr>,
        settings: &FabricSettings,
    ) -> Result<Option<Self>, RailError> {
        let settings = FabricSettings { providers: vec![name.to_owned()], bind, ..settings.clone() };
        let info = offers::best(name, &settings)?;
        Self::open(&info, &settings)
    }

    fn refused(&self, operation: &str, error: &Error) -> RailError {
        failure::of_error(format!("{operation} over {}", self.properties.name), error)
    }

    fn make_link(&mut self, peer: PeerKey) -> Result<(Link, Vec<u8>), RailError> {
        // Renewed from the home domain: keys are copied to it with their numbers, which peers know.
        let opened = self.home.renew().and_then(|domain| FabricRail::in_domain(&domain, &self.settings));
        let mut rail = opened.map_err(|error| self.refused("open a link", &error))?;
        rail.rail.share_delivery();
        let (inner, end) = rail.open_link(peer)?;
        Ok((Link { peer, rail, inner, is_polled: true, quiet: 0 }, end))
    }

    /// Makes the keys of its peer valid on a new link, and adds its queue to the epoll. The cost is
    /// linear in the number of grants to this peer.
    fn prepare(&mut self, key: LinkKey) -> Result<(), RailError> {
        let Some(link) = self.links.get(&key) else { return Err(no_link("open a link")) };
        // Before the address of the end is told: the peer may use the keys that it knows at once.
        let domain = link.rail.rail.domain();
        let mut rings = self.keys.values_mut().filter(|ring| ring.peer == link.peer);
        let copied = rings.try_for_each(|ring| {
            ring.copies.push((key, ring.home.copy_to(domain)?));
            Ok(())
        });
        copied.map_err(|error| self.refused("open a link", &error))?;
        if let Some(fd) = link.rail.wait_fd() {
            let (data, flags) = (epoll::EventData::new_u64(key.0), epoll::EventFlags::IN);
            epoll::add(&self.epoll, fd, data, flags).map_err(|errno| {
                let fix = "raise the limit of watches (`fs.epoll.max_user_watches`)";
                RailError::new("open a link", errno.to_string(), fix)
            })?;
        }
        Ok(())
    }

    /// Begins to poll a queue.
    fn wake(&mut self, key: LinkKey) {
        if let Some(link) = self.links.get_mut(&key)
            && !link.is_polled
        {
            (link.is_polled, link.quiet) = (true, 0);
            self.polled.push_back(key);
        }
    }

    /// Begins to poll the queues that have something to report.
    fn look(&mut self) {
        let mut ready: Vec<epoll::Event> = Vec::with_capacity(READY_MAX);
        // An error means that nothing is known; the next look tells.
        let _ = epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut ready), Some(&NOW));
        for event in ready {
            self.wake(LinkKey(event.data.u64()));
        }
    }

    /// Polls queues, each once. Returns the number of events.
    fn poll_links(&mut self, sink: &mut dyn FnMut(Event<'_>)) -> usize {
        let mut count = 0;
        for _ in 0..self.polled.len() {
            let Some(key) = self.polled.pop_front() else { break };
            // A closed link is dropped from the list here.
            let Some(link) = self.links.get_mut(&key) else { continue };
            let polled = link.rail.poll(&mut |event| sink(named(event, key)));
            count += *polled.as_ref().unwrap_or(&0);
            link.quiet = if polled.as_ref().is_ok_and(|events| *events > 0) { 0 } else { link.quiet + 1 };
            // Without a descriptor, nothing would report that it has something again.
            let is_quiet = link.quiet > QUIET_POLLS && link.rail.wait_fd().is_some();
            match polled.and_then(|_| Ok(is_quiet && link.rail.may_sleep()?)) {
                Ok(true) => link.is_polled = false,
                Ok(false) => self.polled.push_back(key),
                // The queue is this link's alone, so only this link ends. Until it is closed, its
                // operations may still complete.
                Err(reason) => {
                    self.polled.push_back(key);
                    sink(Event::LinkDown { link: key, reason });
                    count += 1;
                }
            }
            if count >= EVENTS_MAX {
                break;
            }
        }
        count
    }

    /// Ends a link. Its endpoint is closed, and its operations are reported by the next poll.
    fn end_link(&mut self, key: LinkKey) -> Result<(), RailError> {
        let Some(mut link) = self.links.remove(&key) else { return Ok(()) };
        // Before the close, after which the queue has no descriptor.
        if let Some(fd) = link.rail.wait_fd() {
            // It fails only for a queue that was not added.
            let _ = epoll::delete(&self.epoll, fd);
        }
        // First, because the memory behind the keys may be freed only when the endpoint is closed.
        let closed = link.rail.rail.close();
        for ring in self.keys.values_mut().filter(|ring| ring.peer == link.peer) {
            ring.copies.retain(|(of, _)| *of != key);
        }
        // Its queue is not read any more: what the close has returned is all.
        if link.rail.rail.has_something_to_tell() {
            self.closed.push(link.rail);
        }
        closed
    }
}

const NOW: rustix::event::Timespec = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };

/// Adds the link to an event.
fn named(event: Event<'_>, key: LinkKey) -> Event<'_> {
    match event {
        Event::Immediate { bits, .. } => Event::Immediate { link: Some(key), bits },
        Event::Message { bytes, .. } => Event::Message { link: Some(key), bytes },
        Event::LinkDown { reason, .. } => Event::LinkDown { link: key, reason },
        other @ (Event::Completed { .. } | Event::KeyBound { .. } | Event::KeyEnded { .. }) => other,
    }
}

impl Rail for IsolatedRail {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn open_link(&mut self, peer: PeerKey) -> Result<(LinkKey, Vec<u8>), RailError> {
        let (link, end) = self.make_link(peer)?;
        self.made += 1;
        let key = LinkKey(self.made);
        self.links.insert(key, link);
        match self.prepare(key) {
            Ok(()) => {
                self.polled.push_back(key);
                Ok((key, end))
            }
            Err(error) => {
                // Nothing is in flight on it.
                let _ = self.end_link(key);
                Err(error)
            }
        }
    }

    fn connect(&mut self, link: LinkKey, peer_end: &[u8]) -> Result<(), RailError> {
        match self.links.get_mut(&link) {
            Some(link) => link.rail.connect(link.inner, peer_end),
            None => Err(no_link("connect a link")),
        }
    }

    fn close_link(&mut self, link: LinkKey) {
        // Operations of an endpoint that cannot be closed stay in flight. There is no caller to
        // report it to.
        let _ = self.end_link(link);
    }

    fn reset(&mut self) -> Result<(), RailError> {
        // All links are closed, even if one fails. The first error is returned.
        let mut outcome = Ok(());
        while let Some((key, _)) = self.links.first_key_value() {
            outcome = outcome.and(self.end_link(*key));
        }
        outcome
    }

    fn register(&mut self, memory: &Memory) -> Result<(), RailError> {
        // A provider that needs it cannot have a domain for each link.
        self.home.register(memory).map_err(|error| self.refused("register memory", &error))
    }

    fn make_key(&mut self, peer: PeerKey, memory: &Arc<Exposed>, rights: Rights) -> Result<Key, RailError> {
        let made = self.home.expose_also(memory, access(rights)).and_then(|home| {
            let links = self.links.iter().filter(|(_, link)| link.peer == peer);
            // If one fails, those before it end when they are dropped here.
            let copies = links.map(|(key, link)| Ok((*key, home.copy_to(link.rail.rail.domain())?)));
            let copies = copies.collect::<Result<_, Error>>()?;
            Ok(PeerKeyring { peer, home, copies })
        });
        let ring = made.map_err(|error| self.refused("grant memory", &error))?;
        self.made += 1;
        let (id, remote) = (KeyId(self.made), ring.home.remote());
        self.keys.insert(id, ring);
        Ok(Key { id, address: remote.address(), key: remote.key() })
    }

    fn end_key(&mut self, key: KeyId) -> Result<(), RailError> {
        let Some(PeerKeyring { home, copies, .. }) = self.keys.remove(&key) else {
            let fix = "end each key once";
            return Err(RailError::new("end a key", "there is no such key, or it has ended", fix));
        };
        let bytes = home.remote().len() as usize;
        // All of them are ended, even if one fails. The first error is returned.
        let mut outcome = home.end().map(drop);
        for (link, copy) in copies {
            outcome = outcome.and(copy.end().map(drop));
            let Some(it) = self.links.get_mut(&link) else { continue };
            it.rail.rail.note_ended(bytes);
            // Only the end of the link frees the memory of its ended keys.
            if it.rail.holds_too_much() {
                self.overfull.push(link);
            }
        }
        outcome.map_err(|error| self.refused("end a key", &error))
    }

    #[inline]
    fn post(
        &mut self,
        link: LinkKey,
        tag: u64,
        request: WorkRequest<'_>,
        buffers: Buffers,
    ) -> Result<(), (Refusal, Buffers)> {
        let Some(it) = self.links.get_mut(&link) else {
            return Err((Refusal::LinkDown(no_link("post to a link")), buffers));
        };
        let posted = it.rail.post(it.inner, tag, request, buffers);
        // The library moves bytes only while its queue is polled.
        self.wake(link);
        posted
    }

    fn flush(&mut self) {
        // A link with writes that wait is polled.
        for key in &self.polled {
            if let Some(link) = self.links.get_mut(key) {
                link.rail.flush();
            }
        }
    }

    fn poll(&mut self, sink: &mut dyn FnMut(Event<'_>)) -> Result<usize, RailError> {
        let mut count = 0;
        for mut rail in std::mem::take(&mut self.closed) {
            count += rail.rail.tell_returned(sink);
            // One poll reports a limited number.
            if rail.rail.has_something_to_tell() {
                self.closed.push(rail);
            }
        }
        for link in std::mem::take(&mut self.overfull) {
            let cause = "revoked grants hold too much memory until the link ends";
            let reason =
                RailError::new(format!("link over {}", self.properties.name), cause, "none is needed");
            // The machine closes the link, which frees the memory, and makes another one.
            sink(Event::LinkDown { link, reason });
            count += 1;
        }
        self.polls = self.polls.wrapping_add(1);
        // Without descriptors, all queues are polled always.
        if self.can_sleep && (self.polled.is_empty() || self.polls.is_multiple_of(POLLS_PER_LOOK)) {
            self.look();
        }
        Ok(count + self.poll_links(sink))
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.can_sleep.then(|| self.epoll.as_fd())
    }

    fn may_sleep(&mut self) -> Result<bool, RailError> {
        if !self.can_sleep || !self.closed.is_empty() || !self.overfull.is_empty() {
            return Ok(false);
        }
        for _ in 0..self.polled.len() {
            let Some(key) = self.polled.pop_front() else { break };
            let Some(link) = self.links.get_mut(&key) else { continue };
            if link.rail.wait_fd().is_none() || !link.rail.may_sleep()? {
                self.polled.push_front(key);
                return Ok(false);
            }
            link.is_polled = false;
        }
        Ok(true)
    }

    fn in_flight(&self) -> usize {
        let links = self.links.values().map(|link| &link.rail);
        links.chain(&self.closed).map(Rail::in_flight).sum()
    }
}

#[cold]
fn no_link(operation: &str) -> RailError {
    RailError::new(operation, "the link was closed, or there is no such link", "open and connect a new link")
}
