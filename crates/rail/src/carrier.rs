//! Carries work from the machine to rails, and results of rails back to the machine.
//!
//! The machine decides, and knows memory only by numbers. This module owns the memory that is
//! handed to rails and comes back from them: the memory of transfers, buffers for messages and
//! atomics, and granted memory with its keys.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use farreach_memory::{Buffer, Buffers, Exposed, Memory, ReadOnlyError, Slice};
use farreach_proto::access::Access;
use farreach_proto::error::NotRevoked;
use farreach_proto::ids::{GrantId, PublicationId};
use farreach_proto::inflight::SlotId;
use farreach_proto::machine::{
    Content, Control, IdMap, KeysEnded, Machine, MessageHeader, OpId, PeerKey, Post, RailInfo, RemoteKeys,
    ShortTransfer, TransferEnd,
};
use farreach_proto::plan::Extent;
use farreach_proto::rights::Rights;
use farreach_proto::stats::TransferStats;
use farreach_proto::time::Time;

use crate::current_call::{CallStamps, CurrentCall, RailCall};
use crate::message_pool::MessagePool;
use crate::{
    EndedKeys, Event, Held, KeyId, LinkKey, Rail, RailError, Refusal, RevokeAnswer, Scope, TransferAnswer,
    WorkRequest,
};

/// The maximum number of polls of a rail by [`Carrier::catch_up`]. Others may send without a pause.
const CATCH_UP_POLLS_MAX: usize = 256;

/// The maximum number of messages in flight, for all peers together.
const MESSAGES_MAX: usize = 256;
/// The maximum number of atomics in flight, for all peers together.
const ATOMICS_MAX: usize = 256;
/// The distance of atomic buffers in bytes: each has a cache line of its own.
const ATOMIC_STRIDE: usize = 64;

/// Carries work of the machine to rails and results back. Owns all memory that is with rails.
#[derive(Debug)]
pub struct Carrier {
    rails: Vec<Box<dyn Rail>>,
    calls: CallStamps,
    memory: Holdings,
    /// Published memory that is granted when the exchange of its pages is over: one for each peer and
    /// publication at most, because the machine asks once.
    waiting: Vec<Control>,
}

/// Memory that is with rails, or may be handed to them.
#[derive(Debug, Default)]
struct Holdings {
    transfers: IdMap<OpId, Held>,
    /// Lists of buffers that came back. They are reused, so that posting allocates nothing.
    lists: Vec<Vec<Buffer>>,
    messages: MessagePool,
    atomics: Vec<Slice>,
    grants: IdMap<GrantId, GrantedMemory>,
    /// Published memory. Each grant of it holds the memory as well.
    published: IdMap<PublicationId, Arc<Exposed>>,
    /// The grants of ended keys that a rail will report as proven.
    awaited: HashMap<(usize, KeyId), GrantId>,
    /// Granted memory that is back, until the machine reports the revoke.
    returned: IdMap<OpId, Exposed>,
}

/// Memory that a peer may access, and its keys.
#[derive(Debug)]
struct GrantedMemory {
    memory: Arc<Exposed>,
    /// By rail; `None` if the key was ended.
    keys: Vec<Option<KeyId>>,
    /// Ended keys that their rails have not reported as proven.
    awaited: Vec<(usize, KeyId)>,
    /// The publication that it belongs to: other peers may have keys to it.
    publication: Option<PublicationId>,
    /// Whether the end of a key leaves it open if operations in flight land.
    is_unproven: bool,
}

impl GrantedMemory {
    /// Returns whether it is proven, after its keys have ended, that nothing of the peer lands in it.
    fn is_proven(&self) -> bool {
        match self.publication {
            None => self.memory.keys() == 0,
            // The memory counts the keys of other peers, too.
            Some(_) => self.awaited.is_empty() && !self.is_unproven,
        }
    }
}

/// A new grant.
#[derive(Debug)]
pub struct GrantMade {
    /// The id that the peer and the machine use.
    pub id: GrantId,
    /// The scope of the rails over which the peer may access the memory.
    pub scope: Scope,
    /// The memory, for reading its contents.
    pub memory: Arc<Exposed>,
}

impl Carrier {
    /// Creates a carrier with buffers for messages of this length.
    pub fn new(rails: Vec<Box<dyn Rail>>, message_max: usize) -> Result<Self, RailError> {
        let names = rails.iter().map(|rail| rail.properties().name.clone()).collect();
        let (calls, memory) = (CallStamps::new(names), Holdings::default());
        let mut carrier = Self { rails, calls, memory, waiting: Vec::new() };
        let stride = (message_max + MessageHeader::LEN).next_multiple_of(64);
        carrier.memory.messages = MessagePool::new(stride, carrier.cut(stride, MESSAGES_MAX)?);
        carrier.memory.atomics = carrier.cut(ATOMIC_STRIDE, ATOMICS_MAX)?;
        for atomic in &mut carrier.memory.atomics {
            // A buffer needs only the first eight bytes of its cache line.
            drop(atomic.split_off(size_of::<u64>()));
        }
        Ok(carrier)
    }

    /// Allocates and registers memory of the engine itself, and splits it into slices.
    fn cut(&mut self, stride: usize, count: usize) -> Result<Vec<Slice>, RailError> {
        let mut rest = Memory::allocate(stride * count).map_err(|error| {
            RailError::new("allocate message buffers", error.to_string(), error.fix()).caused_by(None, error)
        })?;
        // Before it is split: all slices share one registration.
        self.register(rest.memory())?;
        let mut slices: Vec<Slice> = (1..count).map(|_| rest.split_to(stride)).collect();
        slices.push(rest);
        Ok(slices)
    }

    /// Describes the rails for a machine.
    pub fn infos(&self) -> Vec<RailInfo> {
        let info = |rail: &dyn Rail| RailInfo {
            properties: rail.properties().clone(),
            must_be_polled: rail.wait_fd().is_none(),
        };
        self.rails.iter().map(|rail| info(rail.as_ref())).collect()
    }

    /// Registers memory with every rail.
    pub fn register(&mut self, memory: &Memory) -> Result<(), RailError> {
        let Self { rails, calls, .. } = self;
        rails
            .iter_mut()
            .enumerate()
            .try_for_each(|(number, rail)| calls.timed(number, RailCall::Register, || rail.register(memory)))
    }

    /// Registers memory with the rails of one scope, unless they have failed. Others do not need it for
    /// a transfer over that scope.
    pub fn register_over(
        &mut self,
        machine: &Machine,
        memory: &Memory,
        scope: Scope,
    ) -> Result<(), RailError> {
        let Self { rails, calls, .. } = self;
        let of_scope = |rail: &dyn Rail| rail.properties().scope == scope;
        rails
            .iter_mut()
            .enumerate()
            // A rail that has failed moves nothing, and its error must not end the transfer.
            .filter(|(number, rail)| of_scope(rail.as_ref()) && machine.is_rail_alive(*number))
            .try_for_each(|(number, rail)| calls.timed(number, RailCall::Register, || rail.register(memory)))
    }

    /// Returns the call of a rail that this carrier is in, for other threads.
    pub fn current_call(&self) -> Arc<CurrentCall> {
        self.calls.current()
    }

    /// Sets the time from which calls of rails count outside of a [step](Self::step).
    #[inline]
    pub fn set_time(&mut self, now: Time) {
        self.calls.set_time(now);
    }

    /// Has every rail post what it holds back, because the caller is about to sleep.
    pub fn flush(&mut self) {
        let Self { rails, calls, .. } = self;
        for (number, rail) in rails.iter_mut().enumerate() {
            calls.begin(number, RailCall::Post);
            rail.flush();
            calls.end();
        }
    }

    /// Prepares a rail for sleeping on its descriptor. Returns `false` if there is something to poll
    /// first, and `true` for a rail without a descriptor.
    pub fn may_sleep(&mut self, rail: usize) -> Result<bool, RailError> {
        let Self { rails, calls, .. } = self;
        // The machine tells the driver how long it may sleep while something is expected over such
        // a rail.
        if rails[rail].wait_fd().is_none() {
            return Ok(true);
        }
        calls.begin(rail, RailCall::MaySleep);
        let may_sleep = rails[rail].may_sleep();
        calls.end();
        may_sleep
    }

    /// Returns the number of rails.
    pub fn rail_count(&self) -> usize {
        self.rails.len()
    }

    /// Iterates over the rails, in order.
    pub fn rails_mut(&mut self) -> impl Iterator<Item = &mut dyn Rail> {
        self.rails.iter_mut().map(|rail| rail.as_mut() as &mut dyn Rail)
    }

    /// Runs one step: polls the rails, posts as far as there is room, and runs the machine's
    /// timers. Returns `true` if anything happened.
    pub fn step(&mut self, machine: &mut Machine, now: Time) -> bool {
        self.calls.set_time(now);
        machine.begin_step(now);
        let mut happened = false;
        for rail in 0..self.rails.len() {
            // A rail whose reset has failed cannot be used any more, and is not polled.
            happened |= machine.is_rail_alive(rail) && self.poll(machine, rail);
        }
        machine.end_polls();
        // After the polls, because completions make room for posts.
        happened |= self.carry(machine);
        machine.end_step();
        // Each of them is tried once in a step. `control` puts back what still has to wait.
        for control in std::mem::take(&mut self.waiting) {
            self.control(machine, control);
        }
        // The timers may have asked for work, such as links to close and keys to end.
        self.control_all(machine);
        happened
    }

    /// Handles everything that has arrived over the rails until now. The driver calls it before the
    /// last frame of a peer: on its way, that frame may have overtaken pages.
    pub fn catch_up(&mut self, machine: &mut Machine, now: Time) {
        self.calls.set_time(now);
        machine.begin_step(now);
        for rail in 0..self.rails.len() {
            for _ in 0..CATCH_UP_POLLS_MAX {
                // A rail with many quiet links may leave some out. The goodbye of a peer would then
                // overtake pages.
                self.rails[rail].poll_all_next();
                if !machine.is_rail_alive(rail) || !self.poll(machine, rail) {
                    break;
                }
            }
        }
        machine.end_polls();
        machine.end_step();
        self.control_all(machine);
    }

    /// Does the work that the machine asks for. Returns `true` if something was posted.
    pub fn carry(&mut self, machine: &mut Machine) -> bool {
        // The machine counts the buffers down, so that it offers no message for which there is
        // none.
        machine.begin_round(self.memory.messages.free());
        let mut has_posted = false;
        loop {
            // Control work comes before each post: a post may name a link that is about to be
            // closed.
            self.control_all(machine);
            let Some(post) = machine.poll_post() else { break };
            let slot = post.slot;
            let posted = self.post(post);
            has_posted |= posted.is_ok();
            machine.handle_posted(slot, posted);
        }
        has_posted
    }

    /// Polls one rail. Returns `true` if it reported events.
    fn poll(&mut self, machine: &mut Machine, rail: usize) -> bool {
        let Self { rails, calls, memory, .. } = self;
        calls.begin(rail, RailCall::Poll);
        let polled = rails[rail].poll(&mut |event| match event {
            Event::Completed { tag, buffers, outcome } => {
                // The buffers are out of the card's hands, whether the request has succeeded or
                // failed.
                let value = memory.take_back(buffers);
                machine.handle_completed(rail, SlotId::from_raw(tag), value, outcome);
            }
            Event::Immediate { link, bits } => machine.handle_immediate(rail, link, bits),
            Event::Message { link, bytes } => machine.handle_message(rail, link, bytes),
            Event::KeyBound { link, tag, bound } => {
                machine.handle_key_bound(rail, link, GrantId::from_raw(tag), bound);
            }
            Event::KeyEnded { key } => {
                // Nothing waits for it if the memory was given back at its deadline, without a
                // proof.
                if let Some((grant, is_proven)) = memory.key_ended(rail, key) {
                    machine.handle_key_proven(rail, grant, is_proven);
                }
            }
            Event::LinkDown { link, reason } => machine.handle_link_down(rail, link, &reason),
        });
        calls.end();
        // An error proves nothing, and the next poll may succeed. The deadlines of the links handle
        // the rest.
        let has_moved = polled.is_ok_and(|events| events > 0);
        if has_moved {
            machine.handle_moved(rail);
        }
        has_moved
    }

    #[inline]
    fn control_all(&mut self, machine: &mut Machine) {
        while let Some(control) = machine.poll_control() {
            self.control(machine, control);
        }
    }

    #[cold]
    fn control(&mut self, machine: &mut Machine, control: Control) {
        let Self { rails, calls, .. } = self;
        match control {
            Control::OpenLink(opening) => {
                let (rail, peer) = (opening.rail, opening.peer);
                let opened = calls.timed(rail, RailCall::OpenLink, || rails[rail].open_link(peer));
                machine.handle_opened(opening, opened);
            }
            Control::Connect { end, peer_end } => {
                let connected =
                    calls.timed(end.rail, RailCall::Connect, || rails[end.rail].connect(end.link, &peer_end));
                machine.handle_connected(end, connected);
            }
            // The operations that are in flight come back by polls, each with an error.
            Control::CloseLink { rail, link } => {
                calls.timed(rail, RailCall::CloseLink, || rails[rail].close_link(link));
            }
            Control::Reset { rail } => {
                let reset = calls.timed(rail, RailCall::Reset, || rails[rail].reset());
                machine.handle_reset(rail, reset);
            }
            Control::BindKey { rail, link, grant } => {
                // A binding that has begun ends with an event of the rail.
                if let Err(error) = self.bind_key(rail, link, grant) {
                    machine.handle_key_not_bound(rail, link, grant, error);
                }
            }
            Control::EndKeys { grant } => {
                let ended = self.end_keys(grant);
                machine.handle_keys_ended(grant, ended);
            }
            Control::ProveKeys { grant } => {
                let errors = self.prove_keys(grant);
                // The machine asks again later. What keeps a rail from it may be over then.
                machine.handle_not_proven(grant, errors);
            }
            // A card would register the old pages.
            Control::GrantPublished { publication, .. } if self.memory.is_exchanging(publication) => {
                self.waiting.push(control);
            }
            Control::GrantPublished { publication, peer, rights } => {
                let made = self.grant_published(machine, publication, peer, rights);
                machine.handle_published(publication, peer, made);
            }
            Control::GiveBackPublished { publication, op } => {
                self.memory.give_back_published(publication, op);
                machine.handle_published_back(op);
            }
            // The user may hold the memory again, if the wait of a revoke has timed out.
            Control::GiveBack { grant, op } => {
                let is_back = self.give_back(grant, op);
                machine.handle_given_back(grant, op, is_back);
            }
        }
    }

    #[inline]
    fn post(&mut self, post: Post<'_>) -> Result<(), Refusal> {
        self.calls.begin(post.rail, RailCall::Post);
        let posted = self.post_content(post);
        self.calls.end();
        posted
    }

    #[inline]
    fn post_content(&mut self, post: Post<'_>) -> Result<(), Refusal> {
        let Post { rail, link, slot, content } = post;
        let (rail, tag) = (self.rails[rail].as_mut(), slot.to_raw());
        match content {
            Content::Pages { op, extents, request } => {
                let buffers = self.memory.parts(op, extents);
                // The plan was checked. Should it be wrong all the same, no card gets memory
                // outside of the transfer.
                let (Some(request), Some(buffers)) = (request, buffers) else {
                    return Err(Refusal::Never(RailError::new(
                        "post pages",
                        "the pages are not within their memory",
                        "this is a bug in farreach: report it",
                    )));
                };
                rail.post(link, tag, request, buffers).map_err(|(reason, buffers)| {
                    self.memory.recycle(buffers);
                    reason
                })
            }
            Content::Message { header, bytes } => {
                // The message waits until another one is complete.
                let Some(buffer) = self.memory.messages.take(header, bytes) else {
                    return Err(Refusal::Full);
                };
                rail.post(link, tag, WorkRequest::Send, buffer.into()).map_err(|(reason, buffers)| {
                    self.memory.messages.put_back(buffers);
                    reason
                })
            }
            Content::Atomic { request } => {
                // Without a free buffer, the atomic waits.
                let Some(atomic) = self.memory.atomics.pop() else { return Err(Refusal::Full) };
                rail.post(link, tag, request, atomic.into()).map_err(|(reason, buffers)| {
                    self.memory.put_atomic_back(buffers);
                    reason
                })
            }
        }
    }

    /// Performs a transfer of one page at once, if its rail can and nothing is queued before it.
    /// Returns its statistics, or `None` if it must be submitted. `clock` returns the
    /// time.
    pub fn perform(
        &mut self,
        machine: &mut Machine,
        new: &ShortTransfer,
        buffer: &mut Buffer,
        mut clock: impl FnMut() -> Time,
    ) -> Option<TransferStats> {
        let now = clock();
        let short = machine.short_request(new, now)?;
        self.calls.set_time(now);
        self.calls.begin(short.rail, RailCall::Post);
        let rail = self.rails[short.rail].as_mut();
        let is_done = rail.perform(short.link, short.request, buffer, new.own.offset as usize);
        self.calls.end();
        // If the rail has refused, the machine has counted nothing, and the caller submits the
        // transfer.
        is_done.then(|| machine.handle_performed(new, &short, clock()))
    }

    /// Stores the memory of a transfer, before the machine gets the transfer.
    pub fn hold(&mut self, op: OpId, held: Held) {
        self.memory.transfers.insert(op, held);
    }

    /// Ends a transfer. Parts of its memory that a card still has are freed when the card is done
    /// with them.
    pub fn transfer_ended(&mut self, op: OpId, end: TransferEnd) -> TransferAnswer {
        let TransferEnd { outcome, is_back, stats } = end;
        // What is not back is dropped. Its pages stay until the card has released the last part.
        let held = self.memory.transfers.remove(&op).filter(|_| is_back);
        TransferAnswer { outcome, held, stats }
    }

    /// Grants memory to a peer. On failure the memory is returned, unless a rail keeps it.
    pub fn grant(
        &mut self,
        machine: &mut Machine,
        peer: PeerKey,
        memory: Exposed,
        rights: Rights,
        now: Time,
    ) -> Result<GrantMade, (RailError, Option<Exposed>)> {
        // Checked before keys are made, which would have to be ended again.
        if let Err(error) = machine.may_grant(peer) {
            return Err((error, Some(memory)));
        }
        let memory = Arc::new(memory);
        match self.grant_over_best(machine, peer, &memory, rights, now) {
            Ok((id, scope)) => Ok(GrantMade { id, scope, memory }),
            // A key that was made and cannot be ended keeps the memory.
            Err(error) => Err((error, Arc::into_inner(memory))),
        }
    }

    /// Grants memory to a peer over rails of the best scope that can.
    fn grant_over_best(
        &mut self,
        machine: &mut Machine,
        peer: PeerKey,
        memory: &Arc<Exposed>,
        rights: Rights,
        now: Time,
    ) -> Result<(GrantId, Scope), RailError> {
        // The program has references to bytes of shared memory, so no key may write to them.
        if memory.is_read_only() && rights != Rights::READ {
            let cause = ReadOnlyError;
            return Err(RailError::new("grant memory", cause.to_string(), cause.fix()));
        }
        let mut refused: Option<RailError> = None;
        // One scope for each grant: an atomic of a card and one of a processor are not atomic to
        // each other.
        for scope in machine.grant_scopes(peer) {
            match self.make_keys(peer, memory, rights, scope) {
                Ok((granted, keys)) => {
                    let id = machine.grant(peer, memory.len() as u64, rights, keys, now);
                    self.memory.grants.insert(id, granted);
                    if let Some(error) = refused {
                        machine.tell_scope_refused(peer, error);
                    }
                    return Ok((id, scope));
                }
                // Rails of another scope may be able to.
                Err(error) => refused = Some(error),
            }
        }
        let unconnected =
            || RailError::new("grant", "no rail connects the peer", "connect to the peer again");
        Err(refused.unwrap_or_else(unconnected))
    }

    /// Publishes memory. Returns the publication's id, and the memory for reading its contents.
    pub fn publish(
        &mut self,
        machine: &mut Machine,
        memory: Exposed,
        rights: Rights,
        access: Access,
    ) -> (PublicationId, Arc<Exposed>) {
        let (id, memory) = (machine.publish(rights, access), Arc::new(memory));
        // No key is made yet. Each peer that opens the memory gets its own.
        self.memory.published.insert(id, Arc::clone(&memory));
        (id, memory)
    }

    /// Begins to withdraw published memory. The user's handle must be gone.
    pub fn withdraw(
        &mut self,
        machine: &mut Machine,
        op: Option<OpId>,
        publication: PublicationId,
        deadline: Time,
        now: Time,
    ) {
        // Its grants keep it. A rail that exchanges its pages must find no other handle.
        let published = &mut self.memory.published;
        if published.get(&publication).is_some_and(|memory| Arc::strong_count(memory) > 1) {
            published.remove(&publication);
        }
        machine.withdraw(op, publication, deadline, now);
    }

    /// Grants published memory to a peer that has opened it.
    fn grant_published(
        &mut self,
        machine: &mut Machine,
        publication: PublicationId,
        peer: PeerKey,
        rights: Rights,
    ) -> Result<GrantId, RailError> {
        let memory = self.memory.published.get(&publication).map(Arc::clone).ok_or_else(|| {
            RailError::new("grant published memory", "it was revoked", "ask its owner to publish it again")
        })?;
        // The peer may be lost since it has asked, or have as many grants as it accepts.
        machine.may_grant(peer)?;
        let now = machine.time();
        let (id, _) = self.grant_over_best(machine, peer, &memory, rights, now)?;
        if let Some(granted) = self.memory.grants.get_mut(&id) {
            granted.publication = Some(publication);
        }
        Ok(id)
    }

    /// Creates keys of a peer for memory, on every rail of this scope.
    fn make_keys(
        &mut self,
        peer: PeerKey,
        memory: &Arc<Exposed>,
        rights: Rights,
        scope: Scope,
    ) -> Result<(GrantedMemory, RemoteKeys), RailError> {
        let (memory, publication, is_unproven) = (Arc::clone(memory), None, false);
        let (keys, awaited) = (Vec::new(), Vec::new());
        let mut granted = GrantedMemory { memory, keys, awaited, publication, is_unproven };
        let mut remote = RemoteKeys { scope, by_rail: Vec::new() };
        let Self { rails, calls, .. } = self;
        for rail in 0..rails.len() {
            if rails[rail].properties().scope != scope {
                // Both lists are by rail, so rails of another scope take a place.
                granted.keys.push(None);
                remote.by_rail.push(None);
                continue;
            }
            let made =
                calls.timed(rail, RailCall::MakeKey, || rails[rail].make_key(peer, &granted.memory, rights));
            match made {
                Ok(key) => {
                    granted.keys.push(Some(key.id));
                    let is_bound = rails[rail].properties().keys_are_bound;
                    // A bound key differs for each link. The peer is told of it when it is bound.
                    remote.by_rail.push((!is_bound).then_some((key.address, key.key)));
                }
                Err(error) => {
                    for (rail, id) in granted.keys.into_iter().enumerate() {
                        // A key that cannot be ended keeps counting, and the memory shows it.
                        let end = |id| calls.timed(rail, RailCall::EndKey, || rails[rail].end_key(id));
                        let _ = id.map(end);
                    }
                    return Err(error);
                }
            }
        }
        Ok((granted, remote))
    }

    /// Asks a rail to bind the key of granted memory to a link.
    fn bind_key(&mut self, rail: usize, link: LinkKey, grant: GrantId) -> Result<(), RailError> {
        // A key that has ended is not here any more, so it is never bound.
        let key = self.memory.grants.get(&grant).and_then(|granted| granted.keys[rail]);
        let key = key.ok_or_else(|| {
            RailError::new("bind a key", "its grant has ended", "this is a bug in farreach: report it")
        })?;
        let Self { rails, calls, .. } = self;
        calls.timed(rail, RailCall::BindKey, || rails[rail].bind_key(link, key, grant.to_raw()))
    }

    /// Ends the keys of granted memory.
    fn end_keys(&mut self, grant: GrantId) -> KeysEnded {
        let mut ended = KeysEnded::default();
        let Some(granted) = self.memory.grants.get_mut(&grant) else { return ended };
        for (number, key) in granted.keys.iter_mut().enumerate() {
            let (Some(key), rail) = (key.take(), &mut self.rails[number]) else { continue };
            // Such a rail stops new operations only. Those in flight still land.
            granted.is_unproven |= rail.properties().ended_keys == EndedKeys::StopNew;
            match self.calls.timed(number, RailCall::EndKey, || rail.end_key(key)) {
                Ok(()) if rail.properties().ended_keys == EndedKeys::Reported => {
                    granted.awaited.push((number, key));
                    // The report of the rail names the key only.
                    self.memory.awaited.insert((number, key), grant);
                    ended.awaited.push(number);
                }
                Ok(()) => {}
                Err(error) => {
                    // The key stays alive, so nothing proves that the peer has stopped.
                    granted.is_unproven = true;
                    ended.errors.push(error);
                }
            }
            // Dead keys hold pages that no handle refers to, until the rail is reset.
            if rail.holds_too_much() {
                ended.too_full.push(number);
            }
        }
        // Not by the answers of the rails alone: memory of one grant counts its keys itself.
        ended.is_proven = granted.is_proven();
        ended
    }

    /// Asks rails to prove that ended keys have ended. Returns the reasons for which some cannot.
    fn prove_keys(&mut self, grant: GrantId) -> Vec<RailError> {
        let Self { rails, calls, memory, .. } = self;
        let Some(granted) = memory.grants.get(&grant) else { return Vec::new() };
        let prove = |(rail, key): &(usize, KeyId)| {
            calls.timed(*rail, RailCall::ProveKey, || rails[*rail].prove_key(*key)).err()
        };
        // All rails are asked, also after the error of one of them.
        granted.awaited.iter().filter_map(prove).collect()
    }

    /// Gives granted memory back to the user, unless the user holds a handle on it. Returns `true`
    /// if it was given back.
    fn give_back(&mut self, grant: GrantId, op: Option<OpId>) -> bool {
        let Some(awaited) = self.memory.give_back(grant, op) else { return false };
        // A rail that is about to prove their end goes on. The memory shows it when it is done.
        for key in awaited {
            self.memory.awaited.remove(&key);
        }
        true
    }

    /// Builds the answer to a revoke.
    pub fn revoked(&mut self, op: OpId, revoked: Result<(), NotRevoked>) -> RevokeAnswer {
        match (revoked, self.memory.returned.remove(&op)) {
            (Ok(()), Some(memory)) => RevokeAnswer::Back(memory),
            (Ok(()), None) => RevokeAnswer::NotYet(NotRevoked::NoSuchGrant),
            (Err(why), _) => RevokeAnswer::NotYet(why),
        }
    }

    /// Writes what it holds as text, without the bytes: equal texts are equal states, apart from the rails. A
    /// simulation that tries all orders visits equal states once.
    #[doc(hidden)]
    pub fn write_state(&self, into: &mut dyn fmt::Write) -> fmt::Result {
        fn sorted<T: Ord>(all: impl Iterator<Item = T>) -> Vec<T> {
            let mut all: Vec<T> = all.collect();
            all.sort();
            all
        }
        let Holdings { transfers, lists: _, messages, atomics, grants, published, awaited, returned } =
            &self.memory;
        write!(into, "{:?}{:?}", self.waiting, sorted(transfers.keys().map(|op| op.0)))?;
        write!(into, "{} {} {:?}", messages.free(), atomics.len(), sorted(awaited.iter()))?;
        write!(into, "{:?}{:?}", sorted(published.keys()), sorted(returned.keys().map(|op| op.0)))?;
        for id in sorted(grants.keys()) {
            let GrantedMemory { memory, keys, awaited, publication, is_unproven } = &grants[id];
            let handles = (memory.keys(), Arc::strong_count(memory));
            write!(into, "{id} {handles:?} {keys:?} {awaited:?} {publication:?} {is_unproven}")?;
        }
        Ok(())
    }

    /// Returns what it holds: the number of the engine's own buffers in use, of transfers, and of
    /// grants.
    pub fn held(&self) -> (usize, usize, usize) {
        let Holdings { messages, atomics, transfers, grants, returned, .. } = &self.memory;
        let out = MESSAGES_MAX + ATOMICS_MAX - messages.free() - atomics.len();
        (out, transfers.len(), grants.len() + returned.len())
    }
}

impl Holdings {
    /// Returns parts of a transfer's memory, or `None` if they are not within it.
    #[inline]
    fn parts(&mut self, op: OpId, extents: &[Extent]) -> Option<Buffers> {
        // A single extent needs no list.
        let list = if extents.len() > 1 { self.lists.pop() } else { None };
        self.transfers.get(&op)?.parts(extents, list)
    }

    /// Takes back the buffers of a completed request. Returns the value that an atomic found.
    #[inline]
    fn take_back(&mut self, buffers: Buffers) -> Option<u64> {
        match &buffers {
            // Transfers never use slices, only lent or shared parts.
            Buffers::One(Buffer::Slice(slice)) if self.messages.has(slice) => self.messages.put_back(buffers),
            Buffers::One(Buffer::Slice(_)) => return self.put_atomic_back(buffers),
            _ => self.recycle(buffers),
        }
        None
    }

    /// Releases the parts, and keeps the list for reuse.
    fn recycle(&mut self, buffers: Buffers) {
        if let Buffers::List(mut list) = buffers {
            // The buffers go now, because each holds a part of the memory of the transfer.
            list.clear();
            self.lists.push(list);
        }
    }

    fn put_atomic_back(&mut self, buffers: Buffers) -> Option<u64> {
        let atomic = buffers.into_slice().ok()?;
        let value = atomic.get(..8).and_then(|bytes| bytes.try_into().ok()).map(u64::from_ne_bytes);
        self.atomics.push(atomic);
        value
    }

    /// Gives granted memory back to the user, unless the user holds a handle on it. Returns the keys
    /// whose end is not proven, or `None` if it was not given back.
    fn give_back(&mut self, grant: GrantId, op: Option<OpId>) -> Option<Vec<(usize, KeyId)>> {
        let granted = self.grants.remove(&grant)?;
        if let Some(publication) = granted.publication {
            // It stays with its publication, also if that is being withdrawn.
            self.published.entry(publication).or_insert(granted.memory);
            return Some(granted.awaited);
        }
        let GrantedMemory { memory, awaited, .. } = granted;
        match (Arc::try_unwrap(memory), op) {
            (Ok(memory), Some(op)) => drop(self.returned.insert(op, memory)),
            // Nobody waits for the memory, so it is dropped. Its keys decide whether its pages are
            // freed.
            (Ok(_), None) => {}
            (Err(memory), _) => {
                self.grants.insert(grant, GrantedMemory { memory, awaited, ..granted });
                return None;
            }
        }
        Some(awaited)
    }

    /// Gives published memory back to the user, who has no handle on it any more. All its grants have
    /// ended.
    fn give_back_published(&mut self, publication: PublicationId, op: Option<OpId>) {
        let memory = self.published.remove(&publication).and_then(Arc::into_inner);
        if let (Some(memory), Some(op)) = (memory, op) {
            self.returned.insert(op, memory);
        }
    }

    /// Returns whether the pages of published memory are being exchanged.
    fn is_exchanging(&self, publication: PublicationId) -> bool {
        self.published.get(&publication).is_some_and(|memory| memory.is_exchanging())
    }

    /// Notes that the end of a key is proven. Returns its grant, and whether no key to the memory is
    /// left.
    fn key_ended(&mut self, rail: usize, key: KeyId) -> Option<(GrantId, bool)> {
        let grant = self.awaited.remove(&(rail, key))?;
        let granted = self.grants.get_mut(&grant)?;
        // Other rails may still have a key of this grant.
        granted.awaited.retain(|awaited| *awaited != (rail, key));
        Some((grant, granted.is_proven()))
    }
}
