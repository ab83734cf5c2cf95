//! The rail within a host, over memory that both processes map (`farreach-shm`).
//!
//! # Links
//!
//! All links and the listener are in one epoll. A link is polled while something happens on it; a
//! quiet one is polled when the epoll reports it. So a poll costs as much as there is to do, however
//! many peers are connected.
//!
//! # The end of keys
//!
//! A key is bound to each link of its peer. A peer may be in the middle of a copy when a key or a link
//! ends, so neither proves anything. It is proven for each link that a key was ever bound to, also if
//! the link is closed: by the library of the peer, by the end of its process, or by an exchange of the
//! pages (module `proofs`). A closed link is kept until then.

mod end;
mod error;
mod key;
mod proofs;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use farreach_memory::{Buffer, Buffers, Exposed, Memory, process_epoch};
use farreach_proto::counter::IMMEDIATE_PAGES_MAX;
use farreach_proto::machine::MessageHeader;
use farreach_rail::{
    EndedKeys, Event, Key, KeyId, Limits, LinkKey, PeerKey, Proof, Properties, Rail, RailError, Refusal,
    RemoteSegment, Scope, WorkRequest,
};
use farreach_shm::{
    Directory, GRANTS_MAX, GrantError, Link, Listener, MESSAGE_MAX, Place, PostError, Request, Target,
};
use rustix::event::epoll;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

use crate::Rights;
use end::{End, Stage};
use error::{ended_key, failed, no_link, no_such_key, paused, report};
use key::GrantKey;
use proofs::{Changed, Proofs};

/// The time within which the two sides of a link must have met.
const MEET_WITHIN: Duration = Duration::from_secs(5);

/// The interval at which meetings are continued while there are any.
const MEET_EVERY: Duration = Duration::from_millis(2);

/// The same while there are none, but connections to the listener that have not proven themselves. Without
/// it, such a connection would keep its descriptor until the next meeting.
const STRANGERS_EVERY: Duration = Duration::from_millis(100);

/// Polls without an event after which a link is left to the epoll.
const QUIET_POLLS: u32 = 64;

/// Polls between two looks at the epoll while links are being polled. Each look is a system call.
const POLLS_PER_LOOK: u32 = 16;

/// As [`POLLS_PER_LOOK`], while no link is being polled. Other rails may be busy meanwhile.
const QUIET_POLLS_PER_LOOK: u32 = 4;

/// As [`POLLS_PER_LOOK`], while there is no link, and nobody is expected.
const EMPTY_POLLS_PER_LOOK: u32 = 64;

/// Links that one look at the epoll reports.
const READY_MAX: usize = 64;

/// Events after which a poll ends.
const EVENTS_MAX: usize = 64;

/// The bytes of one work request. A link copies them in steps, and others have their turns between.
const BYTES_MAX: u64 = 16 << 20;

/// The bytes of a request that is performed within a call: about a microsecond.
const PERFORMS_MAX: u64 = 16 << 10;

/// The segments of one work request, on each side.
const SEGMENTS_MAX: usize = 64;

/// The time for which dropping the rail waits for peers to confirm that they have stopped.
const CLOSED_WITHIN: Duration = Duration::from_millis(200);

/// Names the listener and the timer in the epoll. Links are numbered from 1.
const OF_LISTENER: u64 = 0;
const OF_TIMER: u64 = u64::MAX;

/// The rail within a host.
///
/// ```
/// use farreach::rails::shm::ShmRail;
/// use farreach_rail::Rail;
///
/// let rail = ShmRail::open(64, 4096)?;
/// assert!(!rail.properties().is_rdma && rail.properties().name == "shm");
/// # Ok::<(), farreach_rail::RailError>(())
/// ```
#[derive(Debug)]
pub struct ShmRail {
    properties: Properties,
    /// Where the sockets are, if they are not abstract.
    directory: Option<Arc<Directory>>,
    listener: Listener,
    epoll: OwnedFd,
    timer: OwnedFd,
    /// Also closed ones, until all grants over them are proven to have ended.
    ends: BTreeMap<LinkKey, End>,
    keys: HashMap<KeyId, GrantKey>,
    /// The number of keys of each peer.
    keys_of: HashMap<PeerKey, usize>,
    proofs: Proofs,
    /// The number of links and keys created so far.
    made: u64,
    /// Links that are polled.
    polled: VecDeque<LinkKey>,
    polls: u32,
    /// Whether the next poll looks at the epoll: it may have ended a sleep.
    must_look: bool,
    /// Ends that have not met their peer.
    meeting: Vec<LinkKey>,
    /// Events that calls have caused. The next poll reports them.
    backlog: VecDeque<Event<'static>>,
    /// Reused by posts with several targets.
    targets: Vec<Target>,
    epoch: u64,
}

impl ShmRail {
    /// The maximum of `Settings::message_max` of an engine with this rail, in bytes.
    pub const MESSAGE_BYTES_MAX: usize = MESSAGE_MAX - MessageHeader::LEN;

    /// Opens the rail: links with so many work requests in flight, and messages of this length. It
    /// reaches processes of the same network namespace.
    pub fn open(window: u32, message_max: usize) -> Result<Self, RailError> {
        Self::open_in(None, window, message_max)
    }

    /// As [`open`](Self::open). With a directory, it reaches processes that have opened the same one,
    /// also in other network namespaces.
    pub fn open_in(directory: Option<&Path>, window: u32, message_max: usize) -> Result<Self, RailError> {
        let operation = "open the rail shm";
        let directory = directory
            .map(Directory::open)
            .transpose()
            .map_err(|error| RailError::new(operation, error.to_string(), error.fix()))?;
        if message_max > MESSAGE_MAX {
            let cause = format!("messages of {message_max} bytes exceed its maximum of {MESSAGE_MAX}");
            return Err(RailError::new(
                operation,
                cause,
                "lower `Settings::message_max`, or name another rail",
            ));
        }
        let listener = match &directory {
            None => Listener::bind(MEET_WITHIN),
            Some(directory) => Listener::bind_in(directory, MEET_WITHIN),
        };
        let listener = listener.map_err(|error| RailError::new(operation, error.to_string(), error.fix()))?;
        let limit = |call: &str, errno: rustix::io::Errno| {
            RailError::new(
                operation,
                format!("{call}: {errno}"),
                "raise the limit of open files (`ulimit -n`)",
            )
        };
        let epoll =
            epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|errno| limit("epoll_create", errno))?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)
            .map_err(|errno| limit("timerfd_create", errno))?;
        for (fd, name) in [(listener.as_fd(), OF_LISTENER), (timer.as_fd(), OF_TIMER)] {
            epoll::add(&epoll, fd, epoll::EventData::new_u64(name), epoll::EventFlags::IN)
                .map_err(|errno| limit("epoll_ctl", errno))?;
        }
        Ok(Self {
            properties: properties(directory.as_deref(), window, message_max)?,
            directory,
            listener,
            epoll,
            timer,
            ends: BTreeMap::new(),
            keys: HashMap::new(),
            keys_of: HashMap::new(),
            proofs: Proofs::default(),
            made: 0,
            polled: VecDeque::new(),
            polls: 0,
            must_look: true,
            meeting: Vec::new(),
            backlog: VecDeque::new(),
            targets: Vec::new(),
            epoch: process_epoch(),
        })
    }

    /// Returns an error in a forked child: it has inherited no mapping, and no thread of the engine.
    fn check(&self, operation: &str) -> Result<(), RailError> {
        if self.epoch == process_epoch() {
            return Ok(());
        }
        let cause = "this process was forked from the one that opened the rail";
        Err(RailError::new(operation, cause, "open an engine in the child, or use exec"))
    }

    /// Begins to poll a link.
    fn wake(&mut self, key: LinkKey) {
        if let Some(end) = self.ends.get_mut(&key)
            && !end.is_polled
        {
            (end.is_polled, end.quiet) = (true, 0);
            self.polled.push_back(key);
        }
    }

    /// Lets the timer tick while there are meetings or strangers.
    fn set_timer(&self) {
        let every = match self.listener.strangers() {
            // Meetings first: the interval for strangers is too long for them.
            _ if !self.meeting.is_empty() => MEET_EVERY,
            // A time of zero disarms the timer.
            0 => Duration::ZERO,
            _ => STRANGERS_EVERY,
        };
        let every = Timespec { tv_sec: 0, tv_nsec: every.subsec_nanos().into() };
        let times = Itimerspec { it_interval: every, it_value: every };
        // It fails only for times that are no times.
        let _ = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &times);
    }

    /// Looks at the epoll, and begins to poll what has something to report.
    fn look(&mut self) {
        let mut events = [MaybeUninit::uninit(); READY_MAX];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        // An error means that nothing is known; the next look tells.
        let Ok((ready, _)) = epoll::wait(&self.epoll, &mut events, Some(&now)) else { return };
        let mut must_meet = false;
        for event in ready {
            match event.data.u64() {
                // Noted only: one call goes over all meetings, whatever was reported.
                OF_LISTENER => must_meet = true,
                OF_TIMER => {
                    // Until it is read, it stays readable.
                    let _ = rustix::io::read(&self.timer, &mut [0_u8; 8]);
                    must_meet = true;
                }
                link => self.wake(LinkKey(link)),
            }
        }
        if must_meet {
            self.meet();
        }
    }

    /// Continues the meetings.
    fn meet(&mut self) {
        let now = Instant::now();
        loop {
            match self.listener.poll(now) {
                Ok(Some(met)) => self.has_met(LinkKey(met.id), met.link),
                Ok(None) => break,
                // It concerns no one link. Those that wait for one end by their deadlines.
                Err(_) => break,
            }
        }
        // After the listener, which may have met some of them.
        for key in std::mem::take(&mut self.meeting) {
            let Some(end) = self.ends.get_mut(&key) else { continue };
            match end.meet(now) {
                Ok(Some(link)) => self.has_met(key, link),
                Ok(None) if matches!(end.stage, Stage::Expected { .. } | Stage::Connecting { .. }) => {
                    self.meeting.push(key);
                }
                Ok(None) => {}
                Err(reason) => {
                    self.listener.forget(key.0);
                    self.fail(key, &reason);
                    self.backlog.push_back(Event::LinkDown { link: key, reason });
                }
            }
        }
        // Otherwise the timer ticks as it should already.
        if self.meeting.is_empty() {
            self.set_timer();
        }
    }

    /// Takes over a link that was made, and binds the keys that wait for it.
    fn has_met(&mut self, key: LinkKey, link: Link) {
        // It was closed while it met its peer. Dropping the link ends it for the peer, too.
        let Some(end) = self.ends.get_mut(&key).filter(|end| !end.is_closed) else { return };
        let (data, flags) = (epoll::EventData::new_u64(key.0), epoll::EventFlags::IN);
        if let Err(errno) = epoll::add(&self.epoll, link.as_fd(), data, flags) {
            let fix = "raise the limit of watches (`fs.epoll.max_user_watches`)";
            let reason = RailError::new("connect a link over shm", format!("epoll_ctl: {errno}"), fix);
            self.fail(key, &reason);
            return self.backlog.push_back(Event::LinkDown { link: key, reason });
        }
        end.stage = Stage::Met(Box::new(link));
        let waiting = std::mem::take(&mut end.waiting);
        for (id, tag) in waiting {
            self.bind_late(key, id, tag);
        }
        self.wake(key);
    }

    /// Ends an end that has not met its peer: its bindings fail.
    fn fail(&mut self, key: LinkKey, reason: &RailError) {
        let Some(end) = self.ends.get_mut(&key) else { return };
        // A link that has met its peer stays, because grants over it may have to be proven.
        if !matches!(end.stage, Stage::Met(_)) {
            end.stage = Stage::Failed;
        }
        for (_, tag) in end.waiting.drain(..) {
            self.backlog.push_back(Event::KeyBound { link: key, tag, bound: Err(reason.clone()) });
        }
    }

    /// Binds a key that has waited. If that is not possible, its link fails.
    fn bind_late(&mut self, link: LinkKey, id: KeyId, tag: u64) {
        if let Err(error) = self.bind(link, id, tag) {
            self.backlog.push_back(Event::KeyBound { link, tag, bound: Err(error) });
            self.wake(link);
        }
    }

    /// Binds a key to a link that has met its peer. Returns an error that leaves the link as it is.
    fn bind(&mut self, link: LinkKey, id: KeyId, tag: u64) -> Result<(), RailError> {
        let operation = "bind a key over shm";
        let mut end = self.ends.get_mut(&link);
        let key = self.keys.get_mut(&id).filter(|key| !key.is_ended);
        if let (Some(end), Some(key)) = (&mut end, &key)
            && self.proofs.pauses(&key.memory)
        {
            end.waiting.push((id, tag));
            // The key would lead to the pages that are about to be exchanged. `bind_waiting`
            // continues.
            return Ok(());
        }
        let bound = match (end, key.and_then(|key| Some((key.memory.upgrade()?, key)))) {
            (Some(End { stage: Stage::Met(met), grants, .. }), Some((memory, key))) => {
                match met.grant_unsealed(&memory, key.access) {
                    Ok(value) => {
                        key.bound.push((link, value));
                        grants.insert(value, id);
                        Ok((0, value))
                    }
                    // Only this one ends the link, by an event. After any other error the link is
                    // as it was, and the key can be bound later.
                    Err(error @ GrantError::Link(_)) => Err(failed(operation, &error, error.fix())),
                    Err(error) => return Err(failed(operation, &error, error.fix())),
                }
            }
            (_, None) => Err(ended_key()),
            _ => Err(no_link(operation)),
        };
        self.backlog.push_back(Event::KeyBound { link, tag, bound });
        self.wake(link);
        Ok(())
    }

    /// Closes a link. It stays until all grants over it are proven to have ended.
    fn close(&mut self, key: LinkKey) {
        let Some(end) = self.ends.get_mut(&key) else { return };
        end.is_closed = true;
        if let Stage::Met(link) = &mut end.stage {
            link.close();
        } else {
            self.listener.forget(key.0);
            self.meeting.retain(|meeting| *meeting != key);
        }
        self.fail(key, &no_link("bind a key over shm"));
        self.wake(key);
    }

    /// Notes that a key is proven to have ended on a link.
    fn grant_ended(&mut self, link: LinkKey, value: u64) {
        let id = self.ends.get_mut(&link).and_then(|end| end.grants.remove(&value));
        let Some(id) = id else { return };
        if let Some(key) = self.keys.get_mut(&id) {
            key.bound.retain(|bound| *bound != (link, value));
        }
        self.report_if_proven(id);
    }

    /// Reports an ended key when it has ended on all links.
    fn report_if_proven(&mut self, id: KeyId) {
        let has_ended = |key: &GrantKey| key.is_ended && key.bound.is_empty();
        if self.keys.get(&id).is_some_and(has_ended) {
            self.tell_ended(id);
            let peer = self.keys.remove(&id).map(|key| key.peer);
            if let Some(count) = peer.and_then(|peer| self.keys_of.get_mut(&peer)) {
                *count -= 1;
                if *count == 0 {
                    self.keys_of.remove(&peer.expect("it was just found"));
                }
            }
            // Others may have paused for an exchange that is not needed any more.
            self.proofs.end_pause(id);
        }
    }

    /// Reports the end of a key, once.
    fn tell_ended(&mut self, id: KeyId) {
        if let Some(key) = self.keys.get_mut(&id)
            && !std::mem::replace(&mut key.is_told, true)
        {
            self.backlog.push_back(Event::KeyEnded { key: id });
        }
    }

    /// Binds the keys that wait for the end of a pause.
    fn bind_waiting(&mut self) {
        let mut waiting = Vec::new();
        for (link, end) in &mut self.ends {
            if let Stage::Met(_) = end.stage {
                waiting.extend(end.waiting.drain(..).map(|(id, tag)| (*link, id, tag)));
            }
        }
        for (link, id, tag) in waiting {
            self.bind_late(link, id, tag);
        }
    }

    /// Polls links, each once. Returns the number of events.
    fn poll_links(&mut self, sink: &mut dyn FnMut(Event<'_>)) -> usize {
        let mut count = 0;
        let (mut ended, mut over) = (Vec::new(), Vec::new());
        for _ in 0..self.polled.len() {
            let Some(key) = self.polled.pop_front() else { break };
            let Some(end) = self.ends.get_mut(&key) else { continue };
            let is_closed = end.is_closed;
            let Stage::Met(link) = &mut end.stage else {
                // Without a link there is nothing to poll. Nor was anything granted over it, so a
                // closed end can go.
                end.is_polled = false;
                if is_closed {
                    self.ends.remove(&key);
                }
                continue;
            };
            let mut told = 0;
            link.poll(|event| told += report(event, key, is_closed, &mut ended, sink));
            count += told;
            end.quiet = if told > 0 { 0 } else { end.quiet + 1 };
            // Until then, operations have to come back, and grants have to be proven.
            let is_over = is_closed && link.in_flight() == 0 && link.grants().is_empty();
            if is_over {
                // It fails only for a link that is not in the epoll.
                let _ = epoll::delete(&self.epoll, link.as_fd());
                over.push(key);
            } else if (end.quiet > QUIET_POLLS || is_closed) && link.may_sleep() {
                end.is_polled = false;
            } else {
                self.polled.push_back(key);
            }
            if count >= EVENTS_MAX {
                break;
            }
        }
        // After the loop, because both change the ends that it goes over.
        for (link, value) in ended {
            self.grant_ended(link, value);
        }
        for key in over {
            self.ends.remove(&key);
        }
        count
    }

    fn tell_backlog(&mut self, sink: &mut dyn FnMut(Event<'_>)) -> usize {
        let count = self.backlog.len();
        self.backlog.drain(..).for_each(sink);
        count
    }
}

impl Rail for ShmRail {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn open_link(&mut self, peer: PeerKey) -> Result<(LinkKey, Vec<u8>), RailError> {
        self.check("open a link over shm")?;
        let end = End::new(peer)?;
        let address = end.address(self.listener.name());
        self.made += 1;
        let key = LinkKey(self.made);
        self.ends.insert(key, end);
        Ok((key, address))
    }

    fn connect(&mut self, link: LinkKey, peer_end: &[u8]) -> Result<(), RailError> {
        let operation = "connect a link over shm";
        self.check(operation)?;
        let end = self.ends.get_mut(&link).filter(|end| matches!(end.stage, Stage::Open));
        let end = end.ok_or_else(|| no_link(operation))?;
        if let Some(expected) = end.connect(link, peer_end, self.directory.as_ref(), Instant::now())? {
            self.listener.expect(expected);
        }
        self.meeting.push(link);
        self.set_timer();
        // It may be met at once.
        self.meet();
        Ok(())
    }

    fn close_link(&mut self, link: LinkKey) {
        if self.check("close a link over shm").is_ok() {
            self.close(link);
        }
    }

    /// Closes all links. It proves nothing by itself: keys are proven to have ended one by one.
    fn reset(&mut self) -> Result<(), RailError> {
        self.check("reset the rail shm")?;
        let links: Vec<LinkKey> = self.ends.keys().copied().collect();
        for link in links {
            self.close(link);
        }
        Ok(())
    }

    fn register(&mut self, _memory: &Memory) -> Result<(), RailError> {
        // Sources need nothing: a write is a copy by this process.
        self.check("register memory with the rail shm")
    }

    fn make_key(&mut self, peer: PeerKey, memory: &Arc<Exposed>, rights: Rights) -> Result<Key, RailError> {
        let operation = "grant memory over shm";
        self.check(operation)?;
        // Refused here, and not when the key is bound: the grant is made over the network then.
        Link::check_memory(memory)
            .map_err(|error| RailError::new(operation, error.to_string(), error.fix()))?;
        let of_peer = self.keys_of.entry(peer).or_default();
        // Each key of a peer needs a place on each of its links.
        if *of_peer >= GRANTS_MAX {
            let cause = format!("the peer has {GRANTS_MAX} grants, the maximum of a link");
            return Err(RailError::new(operation, cause, "revoke grants, or grant larger ranges"));
        }
        *of_peer += 1;
        self.made += 1;
        let id = KeyId(self.made);
        self.keys.insert(id, GrantKey::new(peer, memory, rights));
        // Both numbers are unused: each link has numbers of its own for its keys.
        Ok(Key { id, address: 0, key: 0 })
    }

    fn bind_key(&mut self, link: LinkKey, key: KeyId, tag: u64) -> Result<(), RailError> {
        let operation = "bind a key over shm";
        self.check(operation)?;
        let of_peer = self.keys.get(&key).filter(|key| !key.is_ended).map(|key| key.peer);
        let of_peer = of_peer.ok_or_else(|| no_such_key("bind"))?;
        // A key is never bound to a link of another peer.
        let end = self.ends.get_mut(&link).filter(|end| !end.is_closed && end.peer == of_peer);
        match end.ok_or_else(|| no_link(operation))? {
            End { stage: Stage::Met(_), .. } => self.bind(link, key, tag),
            End { stage: Stage::Failed, .. } => Err(no_link(operation)),
            end => {
                end.waiting.push((key, tag));
                Ok(())
            }
        }
    }

    fn end_key(&mut self, id: KeyId) -> Result<(), RailError> {
        self.check("end a key over shm")?;
        let key = self.keys.get_mut(&id).filter(|key| !key.is_ended);
        let key = key.ok_or_else(|| no_such_key("end"))?;
        key.is_ended = true;
        for (link, value) in key.bound.clone() {
            // A closed link has revoked its grants already.
            if let Some(met) = self.ends.get_mut(&link).and_then(End::link) {
                met.revoke(value);
            }
            self.wake(link);
        }
        for (link, end) in &mut self.ends {
            let backlog = &mut self.backlog;
            // A binding that waits is answered, too: the machine counts on one event for each.
            end.waiting.retain(|(waiting, tag)| {
                if *waiting == id {
                    backlog.push_back(Event::KeyBound { link: *link, tag: *tag, bound: Err(ended_key()) });
                }
                *waiting != id
            });
        }
        // A key that was bound to no link has nothing to be proven.
        self.report_if_proven(id);
        Ok(())
    }

    fn prove_key(&mut self, id: KeyId) -> Result<(), RailError> {
        self.check("prove the end of a key over shm")?;
        // It may have been reported meanwhile.
        let Some(key) = self.keys.get(&id) else { return Ok(()) };
        if !key.is_ended {
            let cause = "the key has not ended";
            return Err(RailError::new("prove the end of a key over shm", cause, "end the key first"));
        }
        // Nobody changes shared bytes, so a peer that still reads them reads nothing new. The guard of its
        // grant stays, and the memory stays shared until the peer has stopped.
        if key.memory.upgrade().is_some_and(|memory| memory.is_read_only()) {
            self.tell_ended(id);
            return Ok(());
        }
        // The peer may have confirmed meanwhile, which the next poll of its link finds.
        for (link, _) in key.bound.clone() {
            self.wake(link);
        }
        let Self { keys, proofs, ends, .. } = self;
        for link in proofs.begin(id, keys, ends, Instant::now())? {
            self.backlog.push_back(Event::LinkDown { link, reason: paused() });
        }
        Ok(())
    }

    #[inline]
    fn post(
        &mut self,
        key: LinkKey,
        tag: u64,
        request: WorkRequest<'_>,
        buffers: Buffers,
    ) -> Result<(), (Refusal, Buffers)> {
        let Self { ends, targets, properties, polled, .. } = self;
        let end = match ends.get_mut(&key).filter(|end| !end.is_closed) {
            Some(end) => end,
            None => return Err((Refusal::LinkDown(no_link("post over shm")), buffers)),
        };
        let link = match &mut end.stage {
            Stage::Met(link) => link,
            // Its peer is about to arrive.
            Stage::Expected { .. } | Stage::Connecting { .. } => return Err((Refusal::Full, buffers)),
            Stage::Open | Stage::Failed => {
                return Err((Refusal::LinkDown(no_link("post over shm")), buffers));
            }
        };
        if let Some(why) = excess(&request, &buffers, properties) {
            let fix = "this is a bug in farreach: report it";
            return Err((Refusal::Never(RailError::new("post over shm", why, fix)), buffers));
        }
        let posted = match to_link(request, targets) {
            Posted::One(target, immediate) => {
                link.post(tag, Request::Write { targets: &[target], immediate }, buffers)
            }
            Posted::OneRead(target) => link.post(tag, Request::Read { targets: &[target] }, buffers),
            Posted::Scattered(immediate) => link.post(tag, Request::Write { targets, immediate }, buffers),
            Posted::Gathered => link.post(tag, Request::Read { targets }, buffers),
            Posted::Other(request) => link.post(tag, request, buffers),
        };
        // Also after a refusal: a link that is full, or has ended, has something to report.
        if !end.is_polled {
            (end.is_polled, end.quiet) = (true, 0);
            polled.push_back(key);
        }
        posted.map_err(|(error, buffers)| (refusal(&error), buffers))
    }

    #[inline]
    fn perform(
        &mut self,
        key: LinkKey,
        request: WorkRequest<'_>,
        buffer: &mut Buffer,
        offset: usize,
    ) -> bool {
        let Some(end) = self.ends.get_mut(&key).filter(|end| !end.is_closed) else { return false };
        let Stage::Met(link) = &mut end.stage else { return false };
        let is_done = match request {
            WorkRequest::Write { target: at, immediate } => {
                link.perform(Request::Write { targets: &[target(at)], immediate }, buffer, offset)
            }
            WorkRequest::Read { target: at } => {
                link.perform(Request::Read { targets: &[target(at)] }, buffer, offset)
            }
            _ => false,
        };
        // An answer of the peer may follow soon, or the link has failed.
        if !end.is_polled {
            (end.is_polled, end.quiet) = (true, 0);
            self.polled.push_back(key);
        }
        is_done
    }

    fn poll(&mut self, sink: &mut dyn FnMut(Event<'_>)) -> Result<usize, RailError> {
        self.check("poll the rail shm")?;
        self.polls = self.polls.wrapping_add(1);
        let polls_per_look = match (self.ends.is_empty(), self.polled.is_empty()) {
            (true, _) => EMPTY_POLLS_PER_LOOK,
            (false, true) => QUIET_POLLS_PER_LOOK,
            (false, false) => POLLS_PER_LOOK,
        };
        if std::mem::take(&mut self.must_look) || self.polls.is_multiple_of(polls_per_look) {
            self.look();
        }
        // After the look, so that a link that it reports has its turn in this poll.
        let mut count = self.poll_links(sink);
        let Changed { keys, links } = self.proofs.step(&mut self.keys, &mut self.ends);
        for id in keys {
            self.report_if_proven(id);
        }
        for link in links {
            self.wake(link);
        }
        // Before the backlog is reported, which has the results.
        if self.proofs.has_resumed() {
            self.bind_waiting();
        }
        count += self.tell_backlog(sink);
        Ok(count)
    }

    fn poll_all_next(&mut self) {
        self.must_look = true;
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.epoll.as_fd())
    }

    fn may_sleep(&mut self) -> Result<bool, RailError> {
        self.check("prepare the rail shm for sleep")?;
        // An exchange goes on with polls only: no descriptor wakes a sleeper for it.
        if !self.backlog.is_empty() || self.proofs.has_step() {
            return Ok(false);
        }
        for _ in 0..self.polled.len() {
            let Some(key) = self.polled.pop_front() else { break };
            let Some(end) = self.ends.get_mut(&key) else { continue };
            // One that is closed must be polled once more, to be forgotten.
            let may_sleep = match &mut end.stage {
                Stage::Met(link) => !(end.is_closed && link.grants().is_empty()) && link.may_sleep(),
                _ => !end.is_closed,
            };
            if !may_sleep {
                self.polled.push_front(key);
                return Ok(false);
            }
            end.is_polled = false;
        }
        self.must_look = true;
        Ok(true)
    }

    fn in_flight(&self) -> usize {
        let links = self.ends.values().map(|end| match &end.stage {
            Stage::Met(link) => link.in_flight(),
            _ => 0,
        });
        links.sum()
    }
}

impl Drop for ShmRail {
    /// Closes all links, and waits shortly for the peers to notice: memory of grants whose end is not
    /// proven is leaked.
    fn drop(&mut self) {
        // It fails in a forked child only, which has inherited no mapping.
        if self.reset().is_err() {
            return;
        }
        // The grants go back to their links, where the peers can still confirm.
        self.proofs.give_up(&mut self.keys, &mut self.ends);
        let until = Instant::now() + CLOSED_WITHIN;
        while self.ends.values_mut().any(End::has_grants) && Instant::now() < until {
            let keys: Vec<LinkKey> = self.ends.keys().copied().collect();
            keys.into_iter().for_each(|key| self.wake(key));
            self.poll_links(&mut |_| {});
            std::thread::sleep(Duration::from_micros(100));
        }
    }
}

/// A work request for a link.
enum Posted {
    One(Target, Option<u32>),
    OneRead(Target),
    /// To the targets that were stored.
    Scattered(Option<u32>),
    Gathered,
    Other(Request<'static>),
}

/// Translates a work request, and stores its targets if there are several.
#[inline]
fn to_link(request: WorkRequest<'_>, targets: &mut Vec<Target>) -> Posted {
    match request {
        WorkRequest::Write { target: at, immediate } => Posted::One(target(at), immediate),
        WorkRequest::Read { target: at } => Posted::OneRead(target(at)),
        WorkRequest::WriteScattered { targets: several, immediate } => {
            targets.clear();
            targets.extend(several.iter().map(target));
            Posted::Scattered(immediate)
        }
        WorkRequest::ReadGathered { targets: several } => {
            targets.clear();
            targets.extend(several.iter().map(target));
            Posted::Gathered
        }
        WorkRequest::Send => Posted::Other(Request::Send),
        WorkRequest::FetchAdd { target: at, add } => {
            Posted::Other(Request::FetchAdd { target: target(at), add })
        }
        WorkRequest::CompareSwap { target: at, expected, desired } => {
            Posted::Other(Request::CompareSwap { target: target(at), expected, desired })
        }
    }
}

#[inline]
fn target(segment: RemoteSegment) -> Target {
    // Keys are bound with the address 0, so an address is an offset.
    Target { key: segment.key, offset: segment.address, len: segment.len }
}

/// Returns how a work request exceeds the limits of the rail, if it does.
#[inline]
fn excess(request: &WorkRequest<'_>, buffers: &Buffers, properties: &Properties) -> Option<String> {
    let (pieces, len) = (buffers.count(), buffers.len());
    // `farreach-shm` has other limits, or none. These are the ones that the machine was told.
    let (targets, len_max) = match request {
        WorkRequest::WriteScattered { targets, .. } | WorkRequest::ReadGathered { targets } => {
            (targets.count(), BYTES_MAX as usize)
        }
        WorkRequest::Send => (1, properties.message_max),
        _ => (1, BYTES_MAX as usize),
    };
    if pieces > SEGMENTS_MAX || targets > SEGMENTS_MAX {
        return Some(format!("{pieces} pieces and {targets} targets exceed the maximum of {SEGMENTS_MAX}"));
    }
    (len > len_max).then(|| format!("{len} bytes exceed the maximum of {len_max}"))
}

#[cold]
fn refusal(error: &PostError) -> Refusal {
    match error {
        PostError::Full { .. } => Refusal::Full,
        PostError::Link(_) => Refusal::LinkDown(failed("post over shm", error, error.fix())),
        _ => Refusal::Never(failed("post over shm", error, error.fix())),
    }
}

/// Returns the properties. Rails of different hosts, users, and network namespaces or directories are
/// of different kinds, because their processes cannot meet. The kind is sent to every peer, also to those of other
/// hosts, so it contains a digest.
fn properties(
    directory: Option<&Directory>,
    window: u32,
    message_max: usize,
) -> Result<Properties, RailError> {
    let here = directory.map_or_else(Place::here, Place::in_directory).map_err(|obstacle| {
        RailError::new("open the rail shm", obstacle.to_string(), "mount /proc, or name another rail")
    })?;
    Ok(Properties {
        name: "shm".to_owned(),
        native: match directory {
            None => format!("uid {}", here.user),
            Some(directory) => format!("uid {}, {}", here.user, directory.path().display()),
        },
        kind: format!("shm/{}", here.digests().place),
        scope: Scope::Host,
        is_rdma: false,
        limits: Limits {
            bytes: BYTES_MAX,
            pieces: SEGMENTS_MAX,
            targets: SEGMENTS_MAX,
            pages: IMMEDIATE_PAGES_MAX,
            // A short operation may overtake a long one, which is copied in steps.
            is_ordered: false,
        },
        // The settings are for cards, too, which may have longer queues.
        window: window.min(WINDOW_MAX),
        message_max,
        performs_max: PERFORMS_MAX,
        has_atomics: true,
        writes_prove: Proof::Delivered,
        immediates_name_link: true,
        // For what is posted and counted: a copy in progress may land later, but nothing of it
        // counts.
        links_end_alone: true,
        ended_keys: EndedKeys::Reported,
        keys_are_bound: true,
        // About what a core copies. tcp has no rate, and gets nothing while this rail works.
        rate_bps: 100_000_000_000,
    })
}

/// The work requests that a link may have in flight: half of its places, so that completions that
/// were not polled leave room.
const WINDOW_MAX: u32 = 128;
