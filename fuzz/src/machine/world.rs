//! The machine, its rails, and its peers.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use farreach_proto::access::Access;
use farreach_proto::counter::{CounterId, IMMEDIATE_PAGES_MAX, LinkId};
use farreach_proto::inflight::SlotId;
use farreach_proto::lost::LostReason;
use farreach_proto::machine::{
    AtomicOperation, Budgets, Content, Control, Direction, Event, GrantRange, KeysEnded, Machine,
    MessageHeader, NewAtomic, NewTransfer, OpId, Output, PeerChange, PeerKey, RailInfo, RemoteKeys,
    TransferFault, Tuning,
};
use farreach_proto::plan::{Limits, Pages, Plan};
use farreach_proto::priority::Priority;
use farreach_proto::rail::{
    EndedKeys, LinkKey, Proof, Properties, RailError, Refusal, RequestError, Scope as RailScope,
};
use farreach_proto::rights::Rights;
use farreach_proto::wire::{Frame, Hello, LinkOffer};

use super::lie::{Heard, Lie, Number};

const MS: u64 = 1_000_000;
const BUDGETS: Budgets = Budgets { rails: 3, grants: 4, counters: 4, resets: 2 };
const MESSAGES: u32 = 4;
const MESSAGE_MAX: usize = 48;

/// Peers and requests of a history.
const PEERS_MAX: usize = 6;
const OPS_MAX: u64 = 200;

/// See the [module](self).
pub(super) struct World {
    machine: Machine,
    now: u64,
    kinds: Vec<String>,
    /// The scope of grants.
    scope: RailScope,
    peers: Vec<Peer>,
    /// The ends of links on the rails, with their peers. Never removed.
    links: BTreeMap<LinkKey, (usize, PeerKey)>,
    /// Links that were closed.
    closed: BTreeSet<LinkKey>,
    in_flight: Vec<WorkInFlight>,
    /// Grants and counters of this side.
    grants: BTreeMap<u64, PeerKey>,
    counters: BTreeMap<CounterId, PeerKey>,
    /// Requests that are not answered, with their peers; `None` is of all peers.
    ops: BTreeMap<u64, Option<PeerKey>>,
    next_op: u64,
    refusal: Option<u8>,
    failure: Option<u8>,
    has_dead_rail: bool,
    pub(super) heard: Heard,
    pub(super) frames: usize,
}

/// A peer, as far as it is honest.
struct Peer {
    key: PeerKey,
    is_initiated_here: bool,
    is_muted: bool,
    is_lost: bool,
    /// Frames that it has yet to send.
    says: VecDeque<Frame>,
    next_link: u64,
    lost_links: BTreeSet<LinkId>,
    /// The names that it has given to grants and counters.
    names: u64,
}

/// A work request in flight.
#[derive(Debug, Clone, Copy)]
struct WorkInFlight {
    rail: usize,
    slot: SlotId,
    link: LinkKey,
    /// The number of a message.
    message: Option<u64>,
}

/// What an action may have an effect on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    Peer(PeerKey),
    All,
}

fn properties(rail: usize, bits: u8) -> Properties {
    let is_set = |bit: u8| bits >> bit & 1 == 1;
    Properties {
        native: "here".to_owned(),
        name: format!("rail{rail}"),
        kind: if is_set(7) { "common".to_owned() } else { format!("kind{rail}") },
        scope: if is_set(2) && is_set(6) { RailScope::Host } else { RailScope::Network },
        is_rdma: true,
        limits: Limits {
            bytes: 4096,
            pieces: 4,
            targets: 1 + usize::from(is_set(6)),
            pages: IMMEDIATE_PAGES_MAX,
            is_ordered: !is_set(5),
        },
        window: if is_set(4) { 9 } else { 64 },
        message_max: 256,
        performs_max: 0,
        has_atomics: true,
        writes_prove: if is_set(3) { Proof::Sent } else { Proof::Delivered },
        immediates_name_link: is_set(2),
        links_end_alone: is_set(1),
        ended_keys: match (is_set(0), is_set(1) && is_set(7)) {
            (_, true) => EndedKeys::Reported,
            (true, false) => EndedKeys::StopAll,
            (false, false) => EndedKeys::StopNew,
        },
        keys_are_bound: is_set(0) && is_set(1) && is_set(2),
        rate_bps: 1_000_000_000,
    }
}

fn error() -> RailError {
    RailError::new("test", "the fuzzer wants it so", "none")
}

impl World {
    pub(super) fn new(rails: [u8; 2], initiators: u8) -> Self {
        let infos: Vec<RailInfo> = (0..2)
            .map(|rail| RailInfo { properties: properties(rail, rails[rail]), must_be_polled: rail == 1 })
            .collect();
        let kinds = infos.iter().map(|info| info.properties.kind.clone()).collect();
        let scope = infos.iter().map(|info| info.properties.scope).min().expect("there are rails");
        let tuning = Tuning {
            heartbeat: 20 * MS,
            idle_heartbeat: 60 * MS,
            silence: 1000 * MS,
            stall: 20 * MS,
            drain: 2 * MS,
            cool_down: MS,
            messages: MESSAGES,
            message_max: MESSAGE_MAX,
            budgets: BUDGETS,
        };
        let mut world = Self {
            machine: Machine::new(infos, Hello::new(1), tuning, [7; 32]),
            now: 0,
            kinds,
            scope,
            peers: Vec::new(),
            links: BTreeMap::new(),
            closed: BTreeSet::new(),
            in_flight: Vec::new(),
            grants: BTreeMap::new(),
            counters: BTreeMap::new(),
            ops: BTreeMap::new(),
            next_op: 0,
            refusal: None,
            failure: None,
            has_dead_rail: false,
            heard: Heard::default(),
            frames: 0,
        };
        let publication = world.machine.publish(Rights::READ, Access::Anyone);
        let shared = world.machine.share_counter(Access::Anyone);
        world.heard.openable.extend([publication, shared]);
        for peer in 0..3 {
            world.connect(initiators >> peer & 1 == 1);
        }
        world
    }

    fn peer(&self, number: u8) -> usize {
        usize::from(number) % self.peers.len()
    }

    fn key(&self, number: u8) -> PeerKey {
        self.peers[self.peer(number)].key
    }

    fn op(&mut self, peer: Option<PeerKey>) -> Option<OpId> {
        if self.next_op >= OPS_MAX {
            return None;
        }
        self.next_op += 1;
        self.ops.insert(self.next_op, peer);
        Some(OpId(self.next_op))
    }

    // What peers do.

    pub(super) fn lie(&mut self, peer: u8, lie: &Lie, add: u64) {
        let place = self.peer(peer);
        let frame = lie.frame(&self.heard, &self.kinds, add);
        self.deliver(place, frame);
        self.settle();
    }

    pub(super) fn mute(&mut self, peer: u8) {
        let place = self.peer(peer);
        self.peers[place].is_muted = true;
        self.peers[place].says.clear();
    }

    pub(super) fn connect(&mut self, is_initiator: bool) {
        if self.peers.len() >= PEERS_MAX {
            return;
        }
        let key = self.machine.add_peer(is_initiator, self.now);
        self.peers.push(Peer {
            key,
            is_initiated_here: is_initiator,
            is_muted: false,
            is_lost: false,
            says: VecDeque::new(),
            next_link: 0,
            lost_links: BTreeSet::new(),
            names: 1,
        });
        self.drain(Scope::Peer(key));
        self.settle();
    }

    pub(super) fn disconnect(&mut self, peer: u8) {
        let key = self.key(peer);
        self.machine.handle_disconnected(key, LostReason::Gone, self.now);
        self.drain(Scope::Peer(key));
        self.settle();
    }

    /// Lets every peer say what it has to say.
    fn settle(&mut self) {
        for _ in 0..64 {
            let Some(place) = self.peers.iter().position(|peer| !peer.says.is_empty()) else { return };
            if let Some(frame) = self.peers[place].says.pop_front() {
                self.deliver(place, frame);
            }
        }
    }

    /// Hands a frame of a peer to the machine. It must not have an effect on another peer.
    fn deliver(&mut self, place: usize, frame: Frame) {
        let key = self.peers[place].key;
        self.frames += 1;
        self.machine.handle_frame(key, frame, self.now);
        self.drain(Scope::Peer(key));
        if let Some((grants, counters)) = self.machine.announced_by(key) {
            assert!(grants <= BUDGETS.grants as usize && counters <= BUDGETS.counters as usize);
        }
    }

    /// Answers a frame of the machine, as an honest peer.
    fn answer(&mut self, key: PeerKey, frame: &Frame) {
        self.heard.hear(frame);
        let (kinds, scope) = (self.kinds.clone(), self.scope);
        let Some(peer) = self.peers.iter_mut().find(|peer| peer.key == key) else { return };
        if peer.is_muted {
            return;
        }
        match frame {
            Frame::Hello(_) => {
                let hello = Hello {
                    rails: kinds.clone(),
                    messages: MESSAGES,
                    grants: 4,
                    counters: 4,
                    ..Hello::new(2)
                };
                peer.says.push_back(Frame::Hello(hello));
                if !peer.is_initiated_here {
                    (0..kinds.len() as u16).for_each(|rail| peer.offer(rail));
                }
                // Something to write to, and to count with.
                for _ in 0..2 {
                    peer.names += 1;
                    let keys = vec![Some((4096, peer.names)); kinds.len()];
                    let offer = farreach_proto::wire::GrantOffer {
                        grant: peer.names,
                        len: 4096,
                        rights: 7,
                        scope,
                        keys,
                    };
                    peer.says.push_back(Frame::Grant(offer));
                    let counter = CounterId::from_raw(peer.names as u32);
                    peer.says.push_back(Frame::Counter { counter, names: Vec::new() });
                }
            }
            Frame::Link(LinkOffer { link, from, to, .. }) => {
                if peer.is_initiated_here {
                    let offer = LinkOffer { link: *link, from: *to, to: *from, address: vec![2] };
                    peer.says.push_back(Frame::Link(offer));
                }
                let mark = peer.names << 32 | link.0;
                peer.says.push_back(Frame::LinkReady {
                    link: *link,
                    mark,
                    needs_names: false,
                    binds_keys: false,
                });
            }
            Frame::LinkLost { link, .. } => {
                if peer.lost_links.len() < 64 && peer.lost_links.insert(*link) {
                    let reason = "it is lost there".to_owned();
                    peer.says.push_back(Frame::LinkLost { link: *link, is_quiet: true, reason });
                    if !peer.is_initiated_here && peer.next_link < 32 {
                        (0..kinds.len() as u16).for_each(|rail| peer.offer(rail));
                    }
                }
            }
            Frame::Revoke { grant } => peer.says.push_back(Frame::Revoked { grant: *grant }),
            Frame::Settle { link, counter } => {
                peer.says.push_back(Frame::Settled { link: *link, counter: *counter, pages: 0 });
            }
            Frame::Message { sequence, .. } => peer.hold(*sequence),
            _ => {}
        }
    }

    // What the application does.

    pub(super) fn open_counter(&mut self, peer: u8) {
        let key = self.key(peer);
        if let Some(counter) = self.machine.open_counter(key, self.now) {
            self.counters.insert(counter, key);
        }
        self.drain(Scope::Peer(key));
    }

    pub(super) fn close_counter(&mut self, counter: u8) {
        let place = usize::from(counter) % self.counters.len().max(1);
        let Some((counter, key)) = self.counters.iter().nth(place).map(|(counter, key)| (*counter, *key))
        else {
            return;
        };
        self.machine.close_counter(counter, self.now);
        self.drain(Scope::Peer(key));
        self.counters.remove(&counter);
    }

    pub(super) fn grant(&mut self, peer: u8) {
        let key = self.key(peer);
        if self.machine.may_grant(key).is_err() || self.grants.len() >= 64 {
            return;
        }
        let by_rail = vec![Some((4096, 1)); self.kinds.len()];
        let keys = RemoteKeys { scope: self.scope, by_rail };
        let grant = self.machine.grant(key, 4096, Rights::all(), keys, self.now);
        assert!(self.grants.insert(grant, key).is_none(), "an id is given twice");
        self.drain(Scope::Peer(key));
    }

    pub(super) fn revoke(&mut self, grant: u8, within_ms: u8, is_dropped: bool) {
        let place = usize::from(grant) % self.grants.len().max(1);
        let Some((grant, key)) = self.grants.iter().nth(place).map(|(grant, key)| (*grant, *key)) else {
            return;
        };
        let deadline = if is_dropped { u64::MAX } else { self.now + u64::from(within_ms) * MS };
        let op = if is_dropped { None } else { self.op(Some(key)) };
        self.machine.revoke(op, grant, deadline, self.now);
        self.drain(Scope::Peer(key));
        self.settle();
    }

    pub(super) fn send(&mut self, peer: u8, len: u8) {
        let key = self.key(peer);
        let Some(op) = self.op(Some(key)) else { return };
        self.machine.send_message(op, key, vec![3; usize::from(len) % (MESSAGE_MAX + 2)], self.now);
        self.drain(Scope::Peer(key));
    }

    pub(super) fn taken(&mut self, peer: u8, count: u8) {
        let key = self.key(peer);
        self.machine.taken(key, count.into(), self.now);
        self.drain(Scope::Peer(key));
    }

    pub(super) fn flush(&mut self, peer: u8) {
        let key = self.key(peer);
        let Some(op) = self.op(Some(key)) else { return };
        self.machine.flush(op, key, self.now);
        // Lies of peers answer these, too.
        for id in 0..4 {
            let Some(op) = self.op(Some(key)) else { break };
            match id % 2 == 0 {
                true => self.machine.open(op, key, id, self.now),
                false => self.machine.open_shared_counter(op, key, id, self.now),
            }
        }
        self.drain(Scope::Peer(key));
    }

    pub(super) fn transfer(&mut self, peer: u8, grant: u8, counter: Option<u8>, pages: u8, is_read: bool) {
        let key = self.key(peer);
        let Some(op) = self.op(Some(key)) else { return };
        // The bits that the number of pages leaves.
        let rest = pages >> 4;
        let priority = Priority::ALL[usize::from(rest) % Priority::ALL.len()];
        let deadline = (rest >= 12).then_some(self.now + u64::from(rest % 4) * MS);
        let (count, page_len) = (u32::from(pages % 16) + 1, 256);
        let len = u64::from(count) * page_len;
        let pages = || (Pages::contiguous(count, page_len), len);
        let plan = if is_read { Plan::reading } else { Plan::new }(page_len, pages(), pages());
        let new = NewTransfer {
            op,
            peer: key,
            direction: if is_read { Direction::Read } else { Direction::Write },
            plan: plan.expect("the pages are within their memory"),
            regions: GrantRange { grant: grant.into(), base: 0, len }.into(),
            counter: counter.map(|counter| CounterId::from_raw(counter.into())),
            priority,
            deadline,
        };
        self.machine.submit(new, self.now);
        self.drain(Scope::Peer(key));
    }

    pub(super) fn atomic(&mut self, peer: u8, grant: u8, offset: u8) {
        let key = self.key(peer);
        let Some(op) = self.op(Some(key)) else { return };
        let request = AtomicOperation::FetchAdd { add: 1 };
        let new = NewAtomic { op, peer: key, grant: grant.into(), offset: offset.into(), request };
        self.machine.change_atomic(new, self.now);
        self.drain(Scope::Peer(key));
    }

    pub(super) fn abort(&mut self, op: u8) {
        let place = usize::from(op) % self.ops.len().max(1);
        let Some((op, Some(key))) = self.ops.iter().nth(place).map(|(op, key)| (*op, *key)) else { return };
        self.machine.abort_op(key, OpId(op), &TransferFault::Aborted, self.now);
        self.drain(Scope::Peer(key));
    }

    pub(super) fn leave(&mut self, peer: u8) {
        let key = self.key(peer);
        self.machine.leave(key, self.now);
        self.drain(Scope::Peer(key));
    }

    pub(super) fn leave_all(&mut self) {
        let Some(op) = self.op(None) else { return };
        self.machine.leave_all(op, self.now);
        self.drain(Scope::All);
    }

    // What rails do.

    pub(super) fn pass(&mut self, ms: u64) {
        self.now += ms * MS;
        self.machine.begin_step(self.now);
        self.machine.end_polls();
        self.drain(Scope::All);
        self.machine.begin_round(8);
        self.post_all();
        self.machine.end_step();
        self.drain(Scope::All);
        // Peers that are alive say so.
        for place in 0..self.peers.len() {
            if !self.peers[place].is_muted {
                self.peers[place].says.push_back(Frame::Ping { nonce: self.now });
            }
        }
        self.settle();
    }

    fn post_all(&mut self) {
        // A round is bounded by the windows of all links.
        for _ in 0..10_000 {
            self.drain(Scope::All);
            let Some(post) = self.machine.poll_post() else { return };
            let message = match &post.content {
                Content::Message { header, bytes } => {
                    assert!(bytes.len() <= MESSAGE_MAX);
                    Some(header.sequence)
                }
                _ => None,
            };
            let work = WorkInFlight { rail: post.rail, slot: post.slot, link: post.link, message };
            let (rail, _) = self.links[&work.link];
            assert!(rail == work.rail && !self.closed.contains(&work.link), "a post to a closed link");
            let posted = match self.refusal.take() {
                None => Ok(()),
                Some(0..100) => Err(Refusal::Full),
                Some(100..200) => Err(Refusal::LinkDown(error())),
                Some(_) => Err(Refusal::Never(error())),
            };
            if posted.is_ok() {
                self.in_flight.push(work);
            }
            self.machine.handle_posted(work.slot, posted);
        }
        panic!("a round of posts does not end");
    }

    pub(super) fn complete(&mut self, which: u8, is_ok: bool) {
        if !self.in_flight.is_empty() {
            let place = usize::from(which) % self.in_flight.len();
            let work = self.in_flight.swap_remove(place);
            self.completed(work, is_ok);
            self.settle();
        }
    }

    pub(super) fn complete_all(&mut self) {
        for work in std::mem::take(&mut self.in_flight) {
            self.completed(work, true);
        }
        self.settle();
    }

    fn completed(&mut self, work: WorkInFlight, is_ok: bool) {
        let WorkInFlight { rail, slot, link, message } = work;
        let kinds = [RequestError::Link, RequestError::Request, RequestError::Key, RequestError::Revoked];
        let outcome = if is_ok { Ok(()) } else { Err(kinds[slot.to_raw() as usize % kinds.len()](error())) };
        self.machine.handle_completed(rail, slot, is_ok.then_some(5), outcome);
        let (_, key) = self.links[&link];
        self.drain(Scope::Peer(key));
        if let Some(sequence) = message.filter(|_| is_ok)
            && let Some(peer) = self.peers.iter_mut().find(|peer| peer.key == key && !peer.is_muted)
        {
            peer.hold(sequence);
        }
    }

    pub(super) fn refuse_post(&mut self, how: u8) {
        self.refusal = Some(how);
    }

    pub(super) fn fail_control(&mut self, kind: u8) {
        self.failure = Some(kind % 3);
    }

    fn fails(&mut self, kind: u8) -> bool {
        self.failure.take_if(|failure| *failure == kind).is_some()
    }

    fn link(&self, number: u8) -> Option<(LinkKey, usize, PeerKey)> {
        let place = usize::from(number) % self.links.len().max(1);
        self.links.iter().nth(place).map(|(link, (rail, key))| (*link, *rail, *key))
    }

    pub(super) fn link_down(&mut self, link: u8) {
        let Some((link, rail, key)) = self.link(link) else { return };
        self.machine.handle_link_down(rail, link, &error());
        self.drain(Scope::Peer(key));
        self.settle();
    }

    /// An immediate, over a rail that reports the link. Where a rail does not, the peers of one
    /// group can raise each other's counters (docs/SECURITY.md).
    pub(super) fn immediate(&mut self, link: u8, bits: &Number) {
        let Some((link, rail, key)) = self.link(link) else { return };
        let bits = bits.get(&self.heard.counters, 0) as u32;
        // The counters that were heard are ids; immediates have another layout.
        for bits in [bits, (bits >> 8) << 16 | (bits & 0x3f) << 10] {
            self.machine.handle_immediate(rail, Some(link), bits);
            self.drain(Scope::Peer(key));
            self.machine.handle_immediate(rail, None, bits);
            self.drain(Scope::All);
        }
    }

    pub(super) fn message(&mut self, link: u8, mark: &Number, sequence: &Number, len: u8) {
        let Some((link, rail, key)) = self.link(link) else { return };
        let mark = mark.get(&self.heard.marks, 0);
        let sequence = sequence.get(&[], 0);
        let mut bytes = MessageHeader { mark, sequence, held: sequence }.encode().to_vec();
        bytes.resize(usize::from(len), 3);
        self.machine.handle_message(rail, Some(link), &bytes);
        self.drain(Scope::Peer(key));
    }

    // What the machine asks for.

    /// Does all work and takes all answers. Everything must be within the scope.
    fn drain(&mut self, scope: Scope) {
        let check = |key: Option<PeerKey>, what: &dyn std::fmt::Debug| {
            let is_within = scope == Scope::All || key.is_some_and(|key| scope == Scope::Peer(key));
            assert!(is_within, "{what:?} of {key:?} is an effect of {scope:?}");
        };
        for _ in 0..10_000 {
            if let Some(control) = self.machine.poll_control() {
                check(self.owner_of(&control), &control);
                self.control(control);
            } else if let Some(output) = self.machine.poll_output() {
                match &output {
                    Output::Frame(key, frame) => {
                        check(Some(*key), frame);
                        self.answer(*key, frame);
                    }
                    Output::Close(key) => check(Some(*key), &output),
                }
            } else if let Some(event) = self.machine.poll_event() {
                let key = self.subject_of(&event);
                if !matches!(event, Event::Closed(_)) {
                    check(key, &event);
                }
                self.note(event);
            } else {
                return;
            }
        }
        panic!("the machine always has something to do");
    }

    fn owner_of(&self, control: &Control) -> Option<PeerKey> {
        let of_link = |link: &LinkKey| self.links.get(link).map(|(_, key)| *key);
        match control {
            Control::OpenLink(opening) => Some(opening.peer),
            Control::Connect { end, .. } => of_link(&end.link),
            Control::CloseLink { link, .. } | Control::BindKey { link, .. } => of_link(link),
            Control::Reset { .. } => None,
            Control::GrantPublished { peer, .. } => Some(*peer),
            // Nothing withdraws it.
            Control::GiveBackPublished { .. } => None,
            Control::EndKeys { grant } | Control::ProveKeys { grant } | Control::GiveBack { grant, .. } => {
                self.grants.get(grant).copied()
            }
        }
    }

    fn control(&mut self, control: Control) {
        match control {
            Control::OpenLink(opening) => {
                let link = LinkKey(self.links.len() as u64);
                let opened = if self.fails(0) { Err(error()) } else { Ok((link, vec![1])) };
                if opened.is_ok() {
                    self.links.insert(link, (opening.rail, opening.peer));
                }
                self.machine.handle_opened(opening, opened);
            }
            Control::Connect { end, .. } => {
                let connected = if self.fails(1) { Err(error()) } else { Ok(()) };
                self.machine.handle_connected(end, connected);
            }
            Control::CloseLink { rail, link } => {
                assert_eq!(self.links[&link].0, rail);
                self.closed.insert(link);
            }
            Control::Reset { rail } => {
                let fails = self.fails(2);
                self.has_dead_rail |= fails;
                self.machine.handle_reset(rail, if fails { Err(error()) } else { Ok(()) });
                for (link, _) in self.links.iter().filter(|(_, (of, _))| *of == rail) {
                    self.closed.insert(*link);
                }
                // Operations in flight come back, unless the rail is dead.
                let (back, left) =
                    self.in_flight.drain(..).partition(|work: &WorkInFlight| work.rail == rail);
                self.in_flight = left;
                if !fails {
                    let back: Vec<WorkInFlight> = back;
                    back.into_iter().for_each(|work| {
                        let failed = Err(RequestError::Link(error()));
                        self.machine.handle_completed(rail, work.slot, None, failed);
                    });
                }
            }
            Control::BindKey { rail, link, grant } => {
                if self.fails(3) {
                    return self.machine.handle_key_not_bound(rail, link, grant, error());
                }
                let bound = if self.fails(3) { Err(error()) } else { Ok((0, grant)) };
                self.machine.handle_key_bound(rail, link, grant, bound);
            }
            Control::EndKeys { grant } => {
                let reports = |rail: &Properties| rail.ended_keys == EndedKeys::Reported;
                let awaited = self.machine.rails().enumerate().filter(|(_, rail)| reports(rail));
                let awaited: Vec<usize> = awaited.map(|(number, _)| number).collect();
                let is_proven = grant % 2 == 0 && awaited.is_empty();
                let ended = KeysEnded { is_proven, awaited, ..KeysEnded::default() };
                self.machine.handle_keys_ended(grant, ended);
            }
            Control::ProveKeys { grant } if self.fails(3) => {
                self.machine.handle_not_proven(grant, vec![error()]);
            }
            Control::ProveKeys { grant } => {
                self.machine.handle_not_proven(grant, Vec::new());
                for rail in 0..self.machine.rails().count() {
                    self.machine.handle_key_proven(rail, grant, true);
                }
            }
            Control::GrantPublished { publication, peer, rights } => {
                let made = match self.fails(3) || self.machine.may_grant(peer).is_err() {
                    true => Err(error()),
                    false => {
                        let by_rail = vec![Some((4096, 1)); self.kinds.len()];
                        let keys = RemoteKeys { scope: self.scope, by_rail };
                        let grant = self.machine.grant(peer, 4096, rights, keys, self.now);
                        assert!(self.grants.insert(grant, peer).is_none(), "an id is given twice");
                        Ok(grant)
                    }
                };
                self.machine.handle_published(publication, peer, made);
            }
            Control::GiveBackPublished { op, .. } => self.machine.handle_published_back(op),
            Control::GiveBack { grant, op } => self.machine.handle_given_back(grant, op, true),
        }
    }

    fn subject_of(&self, event: &Event) -> Option<PeerKey> {
        match event {
            Event::Transfer(op, _)
            | Event::Atomic(op, _)
            | Event::Sent(op, _)
            | Event::Revoked(op, _)
            | Event::Opened(op, _)
            | Event::CounterOpened(op, _) => self.ops.get(&op.0).copied().flatten(),
            Event::Closed(_) => None,
            Event::Reached(counter, _) | Event::CounterEnded(counter, _) => {
                self.counters.get(counter).copied()
            }
            Event::Message(key, _) | Event::Peer(key, _) => Some(*key),
            Event::CounterJoined { peer, .. } => Some(*peer),
        }
    }

    fn note(&mut self, event: Event) {
        match event {
            Event::Transfer(op, _)
            | Event::Atomic(op, _)
            | Event::Sent(op, _)
            | Event::Revoked(op, _)
            | Event::Opened(op, _)
            | Event::CounterOpened(op, _)
            | Event::Closed(op) => {
                assert!(self.ops.remove(&op.0).is_some(), "request {} is answered twice", op.0);
            }
            Event::Peer(key, PeerChange::Lost(reason)) => {
                assert!(reason.to_string().len() < 4000);
                if let Some(peer) = self.peers.iter_mut().find(|peer| peer.key == key) {
                    assert!(!peer.is_lost, "a peer is lost twice");
                    peer.is_lost = true;
                    peer.says.clear();
                }
            }
            Event::CounterJoined { peer, counter, .. } => {
                self.counters.insert(counter, peer);
            }
            Event::Message(_, bytes) => assert!(bytes.len() <= 256),
            _ => {}
        }
    }

    // What must hold.

    pub(super) fn check_budgets(&self) {
        let census = self.machine.census();
        assert!(census.peers <= PEERS_MAX && census.grants <= self.grants.len());
        assert!(census.counters <= self.counters.len() && census.links <= self.links.len());
        assert!(census.settles <= PEERS_MAX * 4096, "{census:?}");
        assert!(
            census.in_flight <= self.in_flight.len() + 256 * usize::from(self.has_dead_rail),
            "{census:?}"
        );
    }

    /// Ends everything in order. Nothing must be left.
    pub(super) fn end(mut self) {
        (self.refusal, self.failure) = (None, None);
        for place in 0..self.peers.len() {
            self.peers[place].is_muted = true;
            let key = self.peers[place].key;
            self.machine.handle_disconnected(key, LostReason::Gone, self.now);
            self.drain(Scope::Peer(key));
        }
        for (counter, _) in std::mem::take(&mut self.counters) {
            self.machine.close_counter(counter, self.now);
        }
        for grant in self.grants.keys().copied().collect::<Vec<_>>() {
            let key = self.grants[&grant];
            self.next_op += 1;
            let op = OpId(self.next_op);
            self.ops.insert(op.0, Some(key));
            self.machine.revoke(Some(op), grant, self.now + 10 * MS, self.now);
            self.drain(Scope::All);
        }
        for _ in 0..40 {
            self.complete_all();
            self.pass(5);
        }
        assert!(self.ops.is_empty(), "never answered: {:?}", self.ops);
        let census = self.machine.census();
        if !self.has_dead_rail {
            assert!(!census.is_busy() && census.peers == 0 && census.grants == 0, "left: {census:?}");
        }
        assert!(self.machine.is_idle() || self.has_dead_rail);
    }
}

impl Peer {
    fn offer(&mut self, rail: u16) {
        let offer = LinkOffer { link: LinkId(self.next_link), from: rail, to: rail, address: vec![2] };
        self.next_link += 1;
        self.says.push_back(Frame::Link(offer));
    }

    /// Holds a message, and has room for another.
    fn hold(&mut self, sequence: u64) {
        self.says.push_back(Frame::Held { next: sequence.saturating_add(1) });
        self.says.push_back(Frame::Taken { count: 1 });
    }
}
