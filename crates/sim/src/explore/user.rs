//! Users: what they have, the calls that they make, and the answers that they get.

use std::fmt;
use std::rc::Rc;
use std::sync::{Arc, Weak};

use farreach_memory::{Buffer, Exposed, Slice};
use farreach_proto::access::Access;
use farreach_proto::counter::CounterId;
use farreach_proto::error::{NotRevoked, OpenError};
use farreach_proto::ids::{GrantId, PublicationId, SharedCounterId};
use farreach_proto::machine::{
    Direction, Event, GrantRange, NewTransfer, OpId, OpenedMemory, ShortTransfer, TransferEnd, TransferFault,
};
use farreach_proto::plan::{Extent, Pages, Plan};
use farreach_proto::priority::Priority;
use farreach_proto::rights::Rights;
use farreach_proto::wire::Frame;
use farreach_rail::{Held, RevokeAnswer, TransferAnswer};

use super::scenario::{Call, Writing};
use super::world::{Host, World};
use crate::answers::{Answer, Awaited, CounterView};
use farreach_proto::time::Time;

/// The bytes of a page. Each write of a writer has a place of its own.
pub(super) const PAGE: usize = 16;

/// The number of pages of a writer.
pub(super) const PAGES: usize = 4;

/// What users have.
pub(super) struct Things {
    pub(super) published: Option<Region>,
    /// By writer; the first one is of nobody.
    pub(super) granted: Vec<Option<Region>>,
    pub(super) writers: Vec<Writer>,
    pub(super) counters: Vec<Option<Count>>,
    pub(super) shared: Option<SharedCounterId>,
    /// Whether the shared counter was closed.
    pub(super) is_shared_closed: bool,
    /// Whether the control connection of a writer has failed.
    pub(super) is_lost: Vec<bool>,
    /// Withdrawals from a writer that are not answered.
    pub(super) withdrawals: Vec<Withdrawal>,
    are_leaving: bool,
}

/// A withdrawal from a writer.
pub(super) struct Withdrawal {
    writer: usize,
    deadline: u64,
    answer: Answer<Result<(), NotRevoked>>,
}

/// Memory of the owner that writers may reach.
pub(super) struct Region {
    /// The number of its publication, or of its grant.
    pub(super) id: u64,
    pub(super) hold: Hold,
    /// Whether its owner takes it, from whom.
    pub(super) is_taken_from: Vec<bool>,
    /// The writers that have lost it, as the owner was told.
    pub(super) is_closed_to: Vec<bool>,
}

pub(super) enum Hold {
    Granted(Arc<Exposed>),
    Revoking(Weak<Exposed>, u64, Answer<RevokeAnswer>),
    /// The engine has none of it any more.
    Back(Slice),
    /// The engine may have keys to it.
    Unproven(Exposed),
    Over,
}

/// A host that writes.
#[derive(Default)]
pub(super) struct Writer {
    sources: Vec<Slice>,
    /// Its request to open the publication.
    opening: Option<Answer<Result<OpenedMemory, OpenError>>>,
    /// The memory that it knows of, and whether that is published.
    pub(super) knows: Option<(GrantId, bool)>,
    joining: Option<Answer<Result<CounterId, OpenError>>>,
    joined: Option<CounterId>,
    pub(super) writes: Vec<Write>,
}

/// A write of one page.
pub(super) struct Write {
    op: OpId,
    answer: Answer<TransferAnswer>,
    pub(super) writing: Writing,
    /// `None` until it is answered: whether it succeeded.
    pub(super) is_ok: Option<bool>,
    is_aborted: bool,
    /// Whether all its bytes were seen.
    pub(super) has_arrived: bool,
    /// Whether it was done, and the owner has used the page for something else since.
    pub(super) is_used: bool,
}

/// A counter of the owner.
pub(super) struct Count {
    id: CounterId,
    pub(super) view: Rc<CounterView>,
    pub(super) is_closed: bool,
}

impl Things {
    pub(super) fn new(hosts: &mut [Host]) -> Self {
        let sources = |host: &mut Host| {
            let mut rest = host.allocate(PAGE * PAGES);
            let mut pages: Vec<Slice> = (1..PAGES).map(|_| rest.split_to(PAGE)).collect();
            pages.push(rest);
            pages
        };
        let writers = |(writer, host): (usize, &mut Host)| match writer {
            0 => Writer::default(),
            _ => Writer { sources: sources(host), ..Writer::default() },
        };
        let writers: Vec<Writer> = hosts.iter_mut().enumerate().map(writers).collect();
        let count = writers.len();
        Self {
            published: None,
            granted: (0..count).map(|_| None).collect(),
            writers,
            counters: (0..count).map(|_| None).collect(),
            shared: None,
            is_shared_closed: false,
            is_lost: vec![false; count],
            withdrawals: Vec::new(),
            are_leaving: false,
        }
    }

    /// Notes that everybody leaves.
    pub(super) fn leave(&mut self) {
        self.are_leaving = true;
    }

    pub(super) fn has_left(&self) -> bool {
        self.are_leaving
    }

    /// Returns the memory that a writer writes to.
    pub(super) fn region_of(&self, writer: usize) -> Option<&Region> {
        let (_, is_published) = self.writers[writer].knows?;
        if is_published { self.published.as_ref() } else { self.granted[writer].as_ref() }
    }

    pub(super) fn write_state(&self, into: &mut dyn fmt::Write) -> fmt::Result {
        for region in self.published.iter().chain(self.granted.iter().flatten()) {
            let (name, bytes) = match &region.hold {
                Hold::Granted(memory) if memory.has_atomics() => ("atomic", memory.to_vec()),
                Hold::Granted(memory) => ("granted", memory.to_vec()),
                Hold::Revoking(memory, ..) => {
                    ("revoking", memory.upgrade().map(|memory| memory.to_vec()).unwrap_or_default())
                }
                Hold::Back(slice) => ("back", slice.to_vec()),
                Hold::Unproven(memory) => ("unproven", memory.to_vec()),
                Hold::Over => ("over", Vec::new()),
            };
            write!(into, "{name} {:?} {:?}", region.is_taken_from, region.is_closed_to)?;
            // The bytes of a page are all the same, or of two of its parts.
            bytes.chunks(PAGE / 2).try_for_each(|part| write!(into, "{},", part[0]))?;
        }
        for writer in &self.writers {
            let opening = (writer.opening.is_some(), writer.joining.is_some(), writer.joined);
            write!(into, "{:?} {opening:?}", writer.knows)?;
            for it in &writer.writes {
                write!(into, "{:?} {:?} {} {}", it.writing, it.is_ok, it.is_aborted, it.has_arrived)?;
            }
        }
        for it in self.counters.iter().flatten() {
            write!(into, "{:?} {} {}", it.view, it.is_closed, it.id.to_raw())?;
        }
        let withdrawn = self.withdrawals.iter().map(|it| it.writer);
        write!(into, "{:?} {:?}", self.is_lost, withdrawn.collect::<Vec<_>>())?;
        write!(into, "{:?} {}", self.shared, self.is_shared_closed)
    }
}

impl Writer {
    /// Returns whether a request is not answered.
    pub(super) fn is_waiting(&self) -> bool {
        let is_open = |it: &Write| it.is_ok.is_none();
        self.opening.is_some() || self.joining.is_some() || self.writes.iter().any(is_open)
    }
}

impl Region {
    fn new(id: u64, memory: Arc<Exposed>, hosts: usize) -> Self {
        let nobody = vec![false; hosts];
        Self { id, hold: Hold::Granted(memory), is_taken_from: nobody.clone(), is_closed_to: nobody }
    }

    /// Returns the memory as long as writers may reach it, for reading.
    pub(super) fn look(&self) -> Option<Arc<Exposed>> {
        match &self.hold {
            Hold::Granted(memory) => Some(Arc::clone(memory)),
            Hold::Revoking(memory, ..) => memory.upgrade(),
            Hold::Back(_) | Hold::Unproven(_) | Hold::Over => None,
        }
    }
}

/// Returns the place of a write in the owner's memory, and its content.
pub(super) fn page(writer: usize, write: usize) -> (usize, [u8; PAGE]) {
    (((writer - 1) * PAGES + write) * PAGE, [(writer * 16 + write + 1) as u8; PAGE])
}

impl World {
    /// Has the owner use a page for something else: a write that is done changes it no more.
    fn use_page(&mut self, host: usize, write: usize) {
        if let Some(memory) = self.things.region_of(host).and_then(Region::look) {
            memory.write_at(page(host, write).0, &[TAKEN; PAGE]);
            self.things.writers[host].writes[write].is_used = true;
        }
    }

    /// Returns whether a user can make a call now.
    pub(super) fn is_ready(&self, host: usize, call: Call) -> bool {
        let things = &self.things;
        let is_granted = |region: &Option<Region>| {
            region.as_ref().is_some_and(|region| matches!(region.hold, Hold::Granted(_)))
        };
        match call {
            Call::Publish | Call::Share | Call::Lie => true,
            Call::Open => is_granted(&things.published) && things.writers[host].opening.is_none(),
            Call::Atomic => {
                let memory = things.published.as_ref().and_then(Region::look);
                is_granted(&things.published) && memory.is_some_and(|memory| !memory.is_exchanging())
            }
            Call::WithdrawFrom(..) | Call::Withdraw(_) => is_granted(&things.published),
            Call::Grant(_) | Call::Count(_) => true,
            Call::Revoke(writer, _) => is_granted(&things.granted[writer]),
            Call::CloseCounter(writer) => things.counters[writer].is_some(),
            Call::CloseShared | Call::Join => things.shared.is_some(),
            Call::Abort => things.writers[host].writes.iter().any(|it| it.is_ok.is_none()),
            Call::Write(writing) => {
                let has_counter = self.counter_of(host).is_some();
                things.writers[host].knows.is_some() && (has_counter || !writing.is_counted)
            }
        }
    }

    /// Returns the counter that a writer raises.
    fn counter_of(&self, writer: usize) -> Option<CounterId> {
        // A shared counter is known when the request to open it is answered.
        let own = self.things.counters[writer].as_ref().filter(|_| self.things.shared.is_none());
        self.things.writers[writer].joined.or(own.map(|count| count.id))
    }

    /// Makes a call of a user.
    pub(super) fn call(&mut self, host: usize, call: Call) {
        let (now, count) = (self.now, self.hosts.len());
        let of_peer = |world: &Self, writer: usize| world.hosts[0].peers[writer - 1].0;
        match call {
            Call::Publish => {
                let memory = self.owners_memory();
                let Host { machine, carrier, .. } = &mut self.hosts[0];
                let rights = Rights::READ | Rights::WRITE;
                let (id, memory) = carrier.publish(machine, memory, rights, Access::Anyone);
                self.things.published = Some(Region::new(id.to_raw(), memory, count));
            }
            Call::Open => {
                let id = self.things.published.as_ref().map_or(0, |region| region.id);
                let there = &mut self.hosts[host];
                let (op, answer) = there.answers.expect(Awaited::Opened);
                there.machine.open(op, there.peers[0].0, PublicationId::from_raw(id), Time::from_nanos(now));
                self.things.writers[host].opening = Some(answer);
            }
            Call::Atomic => {
                let memory = self.things.published.as_ref().and_then(Region::look);
                // The content does not change.
                memory.map(|memory| memory.atomic_at(0).load(std::sync::atomic::Ordering::Relaxed));
            }
            Call::WithdrawFrom(writer, within) => {
                let key = of_peer(self, writer);
                let Some(region) = &mut self.things.published else { return };
                region.is_taken_from[writer] = true;
                let (op, answer) = self.hosts[0].answers.expect(Awaited::PeerRevoked);
                self.things.withdrawals.push(Withdrawal { writer, deadline: now + within, answer });
                self.hosts[0].machine.withdraw_from(
                    op,
                    PublicationId::from_raw(region.id),
                    (key, &[]),
                    Time::from_nanos(now + within),
                    Time::from_nanos(now),
                );
            }
            Call::Withdraw(within) => self.withdraw(within),
            Call::Grant(writer) => {
                let (memory, key) = (self.owners_memory(), of_peer(self, writer));
                let Host { machine, carrier, .. } = &mut self.hosts[0];
                let made =
                    carrier.grant(machine, key, memory, Rights::READ | Rights::WRITE, Time::from_nanos(now));
                let made = made.map_err(|(error, _)| error.to_string());
                let made = made.unwrap_or_else(|error| self.fail(&error));
                self.things.granted[writer] = Some(Region::new(made.id.to_raw(), made.memory, count));
            }
            Call::Revoke(writer, within) => self.revoke(writer, within),
            Call::Count(writer) => {
                let key = of_peer(self, writer);
                let id = self.hosts[0].machine.open_counter(key, Time::from_nanos(now));
                let Some(id) = id else { return };
                let view = self.hosts[0].answers.add_counter(id);
                self.things.counters[writer] = Some(Count { id, view, is_closed: false });
            }
            Call::CloseCounter(writer) => {
                let Some(count) = &mut self.things.counters[writer] else { return };
                count.is_closed = true;
                self.hosts[0].machine.close_counter(count.id, Time::from_nanos(now));
                self.hosts[0].answers.remove_counter(count.id);
            }
            Call::Share => self.things.shared = Some(self.hosts[0].machine.share_counter(Access::Anyone)),
            Call::Join => {
                let Some(shared) = self.things.shared else { return };
                let there = &mut self.hosts[host];
                let (op, answer) = there.answers.expect(Awaited::CounterOpened);
                there.machine.open_shared_counter(op, there.peers[0].0, shared, Time::from_nanos(now));
                self.things.writers[host].joining = Some(answer);
            }
            Call::CloseShared => {
                self.things.is_shared_closed = true;
                if let Some(shared) = self.things.shared {
                    self.hosts[0].machine.close_shared_counter(shared, Time::from_nanos(now));
                }
                self.things.counters.iter_mut().flatten().for_each(|count| count.is_closed = true);
            }
            Call::Write(writing) => self.write(host, writing),
            Call::Lie => {
                if let Some(counter) = self.counter_of(host) {
                    self.things.is_lost[host] = true;
                    self.say(host, Frame::Add { counter, pages: u64::MAX });
                }
            }
            Call::Abort => {
                let there = &mut self.hosts[host];
                let is_open = |it: &&mut Write| it.is_ok.is_none();
                let Some(write) = self.things.writers[host].writes.iter_mut().find(is_open) else { return };
                write.is_aborted = true;
                there.machine.abort_op(
                    there.peers[0].0,
                    write.op,
                    &TransferFault::Aborted,
                    Time::from_nanos(now),
                );
            }
        }
    }

    fn owners_memory(&mut self) -> Exposed {
        let len = self.scenario.len;
        self.hosts[0].allocate(len).expose()
    }

    fn withdraw(&mut self, within: u64) {
        let (now, deadline) = (self.now, self.now + within);
        let Some(region) = &mut self.things.published else { return };
        region.is_taken_from.fill(true);
        let Host { machine, carrier, answers, .. } = &mut self.hosts[0];
        let (op, answer) = answers.expect(Awaited::Revoked);
        let Hold::Granted(memory) = std::mem::replace(&mut region.hold, Hold::Over) else { return };
        region.hold = Hold::Revoking(Arc::downgrade(&memory), deadline, answer);
        // The user's handle must be gone before the engine is asked.
        drop(memory);
        carrier.withdraw(
            machine,
            Some(op),
            PublicationId::from_raw(region.id),
            Time::from_nanos(deadline),
            Time::from_nanos(now),
        );
    }

    fn revoke(&mut self, writer: usize, within: u64) {
        let (now, deadline) = (self.now, self.now + within);
        let Some(region) = &mut self.things.granted[writer] else { return };
        region.is_taken_from.fill(true);
        let Host { machine, answers, .. } = &mut self.hosts[0];
        let (op, answer) = answers.expect(Awaited::Revoked);
        let Hold::Granted(memory) = std::mem::replace(&mut region.hold, Hold::Over) else { return };
        region.hold = Hold::Revoking(Arc::downgrade(&memory), deadline, answer);
        drop(memory);
        machine.revoke(
            Some(op),
            GrantId::from_raw(region.id),
            Time::from_nanos(deadline),
            Time::from_nanos(now),
        );
    }

    fn write(&mut self, host: usize, writing: Writing) {
        let (now, counter) = (self.now, self.counter_of(host).filter(|_| writing.is_counted));
        let len = self.scenario.len as u64;
        let writer = &mut self.things.writers[host];
        let Some((grant, _)) = writer.knows else { return };
        let (offset, content) = page(host, writer.writes.len());
        let mut source = writer.sources.pop().expect("a writer has a page for each write");
        source.copy_from_slice(&content);
        let Host { machine, carrier, answers, peers, .. } = &mut self.hosts[host];
        let (peer, (op, answer)) = (peers[0].0, answers.expect(Awaited::Transfer));
        let deadline = writing.deadline.map(Time::from_nanos);
        let lent = source.lend();
        let performed = writing.is_short.then(|| {
            let (direction, priority, base) = (Direction::Write, Priority::Normal, 0);
            let own = Extent { offset: 0, len: PAGE as u64 };
            let remote = Extent { offset: offset as u64, len: PAGE as u64 };
            let new =
                ShortTransfer { peer, direction, own, remote, grant, base, len, counter, priority, deadline };
            let mut buffer = Buffer::Lent(lent.get(..)?);
            carrier.perform(machine, &new, &mut buffer, || Time::from_nanos(now))
        });
        carrier.hold(op, Held::Lent(lent));
        match performed.flatten() {
            Some(stats) => {
                let end = TransferEnd { outcome: Ok(()), is_back: true, stats };
                answers.tell(Event::Transfer(op, end), carrier);
            }
            None => {
                let pages = |offset| Pages { offset, ..Pages::contiguous(1, PAGE as u64) };
                let plan = Plan::new(PAGE as u64, (pages(0), PAGE as u64), (pages(offset as u64), len));
                let plan = plan.expect("a page is within its memory");
                let regions = GrantRange { grant, base: 0, len }.into();
                let (direction, priority) = (Direction::Write, Priority::Normal);
                machine.submit(
                    NewTransfer { op, peer, direction, plan, regions, counter, priority, deadline },
                    Time::from_nanos(now),
                );
            }
        }
        let (is_ok, is_aborted, has_arrived, is_used) = (None, false, false, false);
        writer.writes.push(Write { op, answer, writing, is_ok, is_aborted, has_arrived, is_used });
    }

    /// Collects the answers that a host has got.
    pub(super) fn collect_answers(&mut self, host: usize) {
        if self.hosts[host].answers.unasked > 0 {
            self.fail("a request was answered twice, or was never made");
        }
        match host {
            0 => self.collect_of_owner(),
            _ => self.collect_of_writer(host),
        }
    }

    fn collect_of_owner(&mut self) {
        for joined in std::mem::take(&mut self.hosts[0].answers.joined) {
            let writer = joined.peer.0 as usize + 1;
            let is_closed = self.things.is_shared_closed;
            self.things.counters[writer] = Some(Count { id: joined.counter, view: joined.view, is_closed });
        }
        let mut withdrawals = std::mem::take(&mut self.things.withdrawals);
        withdrawals.retain(|Withdrawal { writer, deadline, answer }| match answer.take() {
            None => true,
            Some(withdrawn) => {
                self.withdrawn_from(*writer, *deadline, withdrawn);
                false
            }
        });
        self.things.withdrawals = withdrawals;
        let regions = self.things.published.iter_mut().chain(self.things.granted.iter_mut().flatten());
        for region in regions {
            if let Hold::Revoking(_, deadline, answer) = &region.hold
                && let Some(answer) = answer.take()
            {
                let is_late = self.now >= *deadline;
                let kind = &self.scenario.hosts[0];
                let may_be_unproven = is_late || kind.iter().any(|card| !card.proves_ended_keys());
                match answer {
                    RevokeAnswer::Back(memory) => {
                        let memory = memory.try_into_slice();
                        region.hold = memory.map_or_else(Hold::Unproven, |mut slice| {
                            slice.fill(TAKEN);
                            Hold::Back(slice)
                        });
                        if matches!(region.hold, Hold::Unproven(_)) && !may_be_unproven {
                            panic!("memory is back without a proof before its deadline");
                        }
                    }
                    RevokeAnswer::NotYet(why) => {
                        panic!("memory is not back, and its user has no handle: {why}")
                    }
                }
            }
        }
    }

    /// Notes that a writer has lost the publication, if that is proven: its part is the owner's.
    fn withdrawn_from(&mut self, writer: usize, deadline: u64, withdrawn: Result<(), NotRevoked>) {
        self.note(|| format!("withdrawn from {writer}: {withdrawn:?}"));
        if let Err(why) = withdrawn {
            if self.now < deadline && !self.may_be_unproven() {
                self.fail(&format!("a withdrawal has failed before its deadline: {why}"));
            }
            return;
        }
        let Some(region) = &mut self.things.published else { return };
        region.is_closed_to[writer] = true;
        if let Some(memory) = region.look() {
            memory.write_at(page(writer, 0).0, &[TAKEN; PAGE * PAGES]);
        }
    }

    fn may_be_unproven(&self) -> bool {
        self.scenario.hosts[0].iter().any(|card| !card.proves_ended_keys())
    }

    fn collect_of_writer(&mut self, host: usize) {
        let key = self.hosts[host].peers[0].0;
        let writer = &mut self.things.writers[host];
        if let Some(answer) = writer.opening.as_ref().and_then(Answer::take) {
            writer.opening = None;
            let opened = answer.map(|memory| memory.grant);
            writer.knows = opened.as_ref().ok().map(|grant| (*grant, true)).or(writer.knows);
            self.note(|| format!("opened by {host}: {opened:?}"));
            let is_taken = self.things.published.as_ref().is_none_or(|region| region.is_taken_from[host]);
            if let Err(why) = opened
                && !(is_taken || self.things.is_lost[host])
            {
                self.fail(&format!("writer {host} cannot open what was published for all: {why}"));
            }
        }
        let writer = &mut self.things.writers[host];
        if let Some(answer) = writer.joining.as_ref().and_then(Answer::take) {
            (writer.joining, writer.joined) = (None, answer.ok());
        }
        if let Some(region) = &self.things.granted[host]
            && self.hosts[host].machine.granted(key, GrantId::from_raw(region.id)).is_some()
        {
            self.things.writers[host].knows = Some((GrantId::from_raw(region.id), false));
        }
        for write in 0..self.things.writers[host].writes.len() {
            if let Some(answer) = self.things.writers[host].writes[write].answer.take() {
                self.written(host, write, answer);
            }
        }
    }

    fn written(&mut self, host: usize, write: usize, answer: TransferAnswer) {
        let TransferAnswer { outcome, held, .. } = answer;
        self.note(|| format!("write {write} of {host}: {outcome:?}"));
        self.see_pages();
        let it = &mut self.things.writers[host].writes[write];
        it.is_ok = Some(outcome.is_ok());
        let (writing, is_aborted, has_arrived) = (it.writing, it.is_aborted, it.has_arrived);
        let is_free = |held| if let Held::Lent(lent) = held { lent.try_reclaim().is_ok() } else { false };
        match held.map(is_free) {
            Some(true) => {}
            Some(false) => self.fail("a write has ended, and a card has a part of its memory"),
            None if self.things.is_lost[host] => {}
            None => self.fail("a write has ended without its memory"),
        }
        let region = self.things.region_of(host);
        let is_taken = region.is_none_or(|region| region.is_taken_from[host]);
        if outcome.is_ok() && !has_arrived && !is_taken {
            self.fail(&format!("write {write} of {host} is done, and its bytes are not there"));
        }
        if outcome.is_ok() && has_arrived && !is_taken {
            self.use_page(host, write);
        }
        let is_counter_closed = self.things.counters[host].as_ref().is_none_or(|count| count.is_closed);
        let is_deserved = match &outcome {
            Ok(()) => true,
            Err(TransferFault::Aborted) => is_aborted,
            Err(TransferFault::DeadlinePassed) => writing.deadline.is_some_and(|at| at <= self.now),
            Err(TransferFault::Revoked | TransferFault::NoSuchGrant) => is_taken,
            Err(TransferFault::PeerLost(_)) => self.things.is_lost[host] || self.things.has_left(),
            Err(TransferFault::NoSuchCounter) => writing.is_counted && is_counter_closed,
            Err(TransferFault::Rail(_)) => self.scenario.maps_nothing,
            Err(_) => false,
        };
        if !is_deserved {
            self.fail(&format!("write {write} of {host} failed without a reason: {outcome:?}"));
        }
    }
}

/// The byte that the owner fills memory with that is its own again.
pub(super) const TAKEN: u8 = 0xee;
