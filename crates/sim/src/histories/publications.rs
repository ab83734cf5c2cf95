//! Publications: memory that several peers open, and lose again, at any moment.
//!
//! Each peer that has opened one writes to a part of its own. When the engine has answered that a peer has
//! lost it, its part is overwritten, and must stay so; and no later request of the peer to open it succeeds,
//! over any connection, until its name is admitted again.

use std::sync::{Arc, Weak};

use farreach_memory::Exposed;
use farreach_proto::access::Access;
use farreach_proto::error::{NotRevoked, OpenError};
use farreach_proto::ids::PublicationId;
use farreach_proto::machine::OpenedMemory;
use farreach_proto::rights::Rights;
use farreach_rail::RevokeAnswer;

use super::content::{Layout, WORN};
use super::fate::PIECE;
use super::party::End;
use super::thing::{Grant, Hold, Page};
use super::world::{World, broken, tell};
use crate::answers::{Answer, Awaited};
use farreach_proto::time::Time;

/// The maximum number of publications that a host has at a time.
const PUBLISHED_MAX: usize = 3;

/// The bytes of a peer's part.
const PART: usize = 128;

/// Memory that a host has published.
#[derive(Debug)]
pub(super) struct Published {
    host: usize,
    id: PublicationId,
    hold: PublishedHold,
    /// The hosts that may open it; `None` if everybody may.
    permitted: Option<Vec<usize>>,
    /// From whom it was withdrawn, also if they were admitted again.
    withdrawn: Vec<Withdrawn>,
    /// The number of parts in use.
    parts: usize,
    /// The offsets of the parts whose peers have lost it.
    closed: Vec<usize>,
    /// Whether the liar may write to all of it.
    is_spoiled: bool,
}

/// The state of published memory.
#[derive(Debug)]
enum PublishedHold {
    Open(Arc<Exposed>),
    /// Its user takes it from all peers.
    Revoking {
        memory: Weak<Exposed>,
        answer: Answer<RevokeAnswer>,
        since: u64,
        deadline: u64,
    },
    /// It is the user's again, or gone with its host, or the engine frees it.
    Over,
}

/// A withdrawal from one peer.
#[derive(Debug)]
struct Withdrawn {
    from: Whom,
    deadline: u64,
    /// `None` if it was answered.
    answer: Option<Answer<Result<(), NotRevoked>>>,
    /// The time at which the engine has said that it is complete.
    ended_at: Option<u64>,
    /// Whether it holds: nobody was admitted again.
    holds: bool,
}

/// A peer from which a publication is withdrawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whom {
    /// All its connections: its certificate has a name.
    Host(usize),
    Connection(usize),
}

/// A request of a peer to open a publication.
#[derive(Debug)]
pub(super) struct Opening {
    host: usize,
    published: usize,
    connection: usize,
    end: usize,
    /// The time since which the peer was asked for it.
    begun_at: u64,
    /// Whether it must succeed, if nothing happens.
    is_due: bool,
    answer: Answer<Result<OpenedMemory, OpenError>>,
}

/// Returns the name of a host in its certificate.
pub(super) fn name_of(host: usize) -> String {
    format!("host-{host}.example")
}

impl Published {
    fn memory(&self) -> Option<Arc<Exposed>> {
        match &self.hold {
            PublishedHold::Open(memory) => Some(Arc::clone(memory)),
            PublishedHold::Revoking { memory, .. } => memory.upgrade(),
            PublishedHold::Over => None,
        }
    }

    fn is_open(&self) -> bool {
        matches!(self.hold, PublishedHold::Open(_))
    }
}

impl World {
    /// Publishes memory, or opens what another host has published.
    pub(super) fn wish_publish(&mut self, host: usize) {
        let own = self.published.iter().filter(|it| it.host == host && it.is_open()).count();
        if own < PUBLISHED_MAX && self.chance.once_in(4) {
            return self.publish(host);
        }
        let Some((connection, end)) = self.some_connection(host) else { return };
        let owner = self.connections[connection].ends[1 - end].host;
        let theirs: Vec<usize> = (0..self.published.len())
            .filter(|it| self.published[*it].host == owner && self.published[*it].is_open())
            .collect();
        if let Some(published) = self.chance.one_of(&theirs) {
            self.open(published, connection, end);
        }
    }

    fn publish(&mut self, host: usize) {
        let Some(mut slice) = self.hosts[host].free.pop() else { return };
        slice.fill(WORN);
        let mut permitted = None;
        if self.scenario.has_names && self.chance.once_in(2) {
            let hosts = 0..self.hosts.len();
            permitted = Some(hosts.filter(|_| self.chance.once_in(2)).collect::<Vec<usize>>());
        }
        let access = match &permitted {
            Some(hosts) => Access::only(hosts.iter().map(|host| name_of(*host))),
            None => Access::Anyone,
        };
        let rights = Rights::READ | Rights::WRITE;
        let (id, memory) = self.hosts[host].publish(slice.expose(), rights, access);
        let is_in = |liar: usize| permitted.as_ref().is_none_or(|hosts| hosts.contains(&liar));
        let is_spoiled = self.scenario.lying.as_ref().is_some_and(|lying| is_in(lying.host));
        let number = self.published.len();
        tell!(self, "publish: number, host, id", number, host, id.to_raw());
        self.count("publications", 1);
        self.published.push(Published {
            host,
            id,
            hold: PublishedHold::Open(memory),
            permitted,
            withdrawn: Vec::new(),
            parts: 0,
            closed: Vec::new(),
            is_spoiled,
        });
    }

    fn open(&mut self, published: usize, connection: usize, end: usize) {
        let (now, there) = (self.now, &self.connections[connection].ends[end]);
        let (host, key) = (there.host, there.key());
        let it = &self.published[published];
        let is_up = |end: &End| end.peer.as_ref().is_some_and(|(_, view)| view.has_rails());
        let is_due = it.permitted.as_ref().is_none_or(|hosts| hosts.contains(&host))
            && self.connections[connection].ends.iter().all(is_up);
        let id = it.id;
        let (op, answer) = self.hosts[host].answers.expect(Awaited::Opened);
        tell!(self, "open: published, connection, end", published, connection, end);
        self.count("openings", 1);
        // Requests for the same are answered together: the first grant is every one's, even if it is revoked
        // by now.
        let is_same = |it: &&Opening| (it.published, it.connection, it.end) == (published, connection, end);
        let begun_at = self.openings.iter().find(is_same).map_or(now, |it| it.begun_at);
        self.openings.push(Opening { host, published, connection, end, begun_at, is_due, answer });
        self.hosts[host].machine().open(op, key, id, Time::from_nanos(now));
    }

    /// Withdraws a publication from a peer, or admits one again.
    pub(super) fn wish_withdraw_from(&mut self, host: usize) {
        let own: Vec<usize> = (0..self.published.len())
            .filter(|it| self.published[*it].host == host && self.published[*it].is_open())
            .collect();
        let Some(published) = self.chance.one_of(&own) else { return };
        if self.scenario.has_names && self.chance.once_in(3) {
            return self.admit(published);
        }
        let peers = self.hosts[host].peers.clone();
        if let Some((connection, end)) = self.chance.one_of(&peers) {
            self.withdraw_from(published, connection, end);
        }
    }

    /// Takes a publication from a peer that asks for it, or from all.
    pub(super) fn wish_withdraw_at_once(&mut self, id: PublicationId, connection: usize, end: usize) {
        let host = self.connections[connection].ends[end].host;
        let is_it = |it: &Published| (it.host, it.id) == (host, id) && it.is_open();
        let Some(published) = self.published.iter().position(is_it) else { return };
        match self.chance.below(8) {
            0 => self.withdraw(published, Some(self.scenario.tuning.drain)),
            1 => self.withdraw(published, None),
            2 if self.connections[connection].ends[end].is_usable() => self.leave(connection, end),
            times @ 3..7 => (3..=times / 3 + 2).for_each(|_| self.withdraw_from(published, connection, end)),
            _ => self.wish_withdraw_from(host),
        }
    }

    fn admit(&mut self, published: usize) {
        let other = self.chance.index(self.hosts.len());
        let it = &mut self.published[published];
        // The liar gets nothing that others have.
        if self.scenario.lying.as_ref().is_some_and(|lying| lying.host == other) {
            return;
        }
        let (host, id) = (it.host, it.id);
        for withdrawn in it.withdrawn.iter_mut().filter(|it| it.from == Whom::Host(other)) {
            withdrawn.holds = false;
        }
        if let Some(hosts) = it.permitted.as_mut().filter(|hosts| !hosts.contains(&other)) {
            hosts.push(other);
        }
        tell!(self, "admit: published, host", published, other);
        self.hosts[host].machine().admit(id, &name_of(other));
    }

    /// Withdraws a publication from the peer at the other end, possibly a lost one.
    pub(super) fn withdraw_from(&mut self, published: usize, connection: usize, end: usize) {
        let (now, there) = (self.now, &self.connections[connection].ends[end]);
        let (host, key, other) = (there.host, there.key(), self.connections[connection].ends[1 - end].host);
        let deadline = now + self.chance.below(2 * self.scenario.tuning.silence);
        let has_names = self.scenario.has_names;
        let names: Vec<String> = has_names.then(|| name_of(other)).into_iter().collect();
        let from = if has_names { Whom::Host(other) } else { Whom::Connection(connection) };
        let (op, answer) = self.hosts[host].answers.expect(Awaited::PeerRevoked);
        let it = &mut self.published[published];
        // A name that was never permitted may be admitted later.
        let holds = it.permitted.as_ref().is_none_or(|hosts| hosts.contains(&other));
        let id = it.id;
        it.withdrawn.push(Withdrawn { from, deadline, answer: Some(answer), ended_at: None, holds });
        self.mark_revoked(published, from);
        tell!(self, "withdraw: published, connection, end, deadline", published, connection, end, deadline);
        self.count("withdrawals from a peer", 1);
        let machine = self.hosts[host].machine();
        match names.first() {
            // By its name alone, as if it were not connected.
            Some(name) if deadline.is_multiple_of(2) => {
                machine.expel(op, id, name, Time::from_nanos(deadline), Time::from_nanos(now))
            }
            _ => machine.withdraw_from(
                op,
                id,
                (key, &names),
                Time::from_nanos(deadline),
                Time::from_nanos(now),
            ),
        }
    }

    /// Returns `true` if a grant is of a publication, and of a peer.
    fn is_of(&self, grant: &Grant, published: usize, whom: Whom) -> bool {
        let of_peer = match whom {
            Whom::Host(host) => self.connections[grant.connection].ends[1 - grant.end].host == host,
            Whom::Connection(connection) => grant.connection == connection,
        };
        grant.published == Some(published) && of_peer
    }

    fn mark_revoked(&mut self, published: usize, whom: Whom) {
        for place in 0..self.grants.len() {
            let is_revoked = self.is_of(&self.grants[place], published, whom);
            self.grants[place].is_revoked |= is_revoked;
        }
    }

    /// Notes that the owner closes a connection, which ends what the peer has opened.
    pub(super) fn part_from_published(&mut self, connection: usize, end: usize) {
        let own = self.grants.iter_mut().filter(|grant| (grant.connection, grant.end) == (connection, end));
        own.for_each(|grant| grant.is_revoked |= grant.published.is_some());
    }

    /// Takes a publication from all peers, or drops it.
    pub(super) fn wish_withdraw(&mut self, host: usize) {
        let own: Vec<usize> = (0..self.published.len())
            .filter(|it| self.published[*it].host == host && self.published[*it].is_open())
            .collect();
        let Some(published) = self.chance.one_of(&own) else { return };
        match self.chance.once_in(4) {
            true => self.withdraw(published, None),
            false => {
                let patience = self.chance.below(2 * self.scenario.tuning.silence);
                self.withdraw(published, Some(patience));
            }
        }
    }

    fn withdraw(&mut self, published: usize, patience: Option<u64>) {
        let now = self.now;
        let it = &mut self.published[published];
        let PublishedHold::Open(handle) = std::mem::replace(&mut it.hold, PublishedHold::Over) else {
            return;
        };
        let memory = Arc::downgrade(&handle);
        // The user's handle must be gone before the engine is asked.
        drop(handle);
        let (host, id) = (it.host, it.id);
        for grant in self.grants.iter_mut().filter(|grant| grant.published == Some(published)) {
            grant.is_revoked = true;
        }
        tell!(self, "withdraw from all: published, patience", published, patience.unwrap_or(0));
        let Some(patience) = patience else {
            return self.hosts[host].withdraw(None, id, Time::NEVER, now);
        };
        let (op, answer) = self.hosts[host].answers.expect(Awaited::Revoked);
        let deadline = now + patience;
        self.published[published].hold = PublishedHold::Revoking { memory, answer, since: now, deadline };
        self.hosts[host].withdraw(Some(op), id, Time::from_nanos(deadline), now);
    }

    /// Collects the answers about publications, at the owner and at the peers.
    pub(super) fn collect_published(&mut self, host: usize) {
        let mut place = 0;
        while place < self.openings.len() {
            let it = &self.openings[place];
            match if it.host == host { it.answer.take() } else { None } {
                None => place += 1,
                Some(answer) => {
                    let opening = self.openings.remove(place);
                    self.opened(&opening, answer);
                }
            }
        }
        for published in 0..self.published.len() {
            if self.published[published].host == host {
                self.collect_withdrawn(published);
            }
        }
    }

    fn opened(&mut self, opening: &Opening, answer: Result<OpenedMemory, OpenError>) {
        let Opening { published, connection, end, begun_at, .. } = *opening;
        tell!(self, "opened: published, connection, ok", published, connection, answer.is_ok());
        match answer {
            Ok(memory) => {
                self.count("openings done", 1);
                if self.is_honest(connection) {
                    self.check_opened(opening);
                    self.take_part(published, connection, end, memory);
                }
            }
            Err(OpenError::PeerLost { .. }) => {}
            Err(reason) => {
                self.count("openings refused", 1);
                let may_fail = !opening.is_due
                    || !self.is_honest(connection)
                    || self.connections[connection].ends.iter().any(|end| end.has_left)
                    || !self.published[published].is_open()
                    || self.scenario.network.odds.setup_fails > 0
                    || self.connections[connection].ends.iter().any(|end| self.has_broken_card(end.host));
                let was_withdrawn = self.withdrawn_from(published, connection).next().is_some();
                if !may_fail && !was_withdrawn {
                    broken!(
                        self,
                        "connection {connection} cannot open {published} since {begun_at}: {reason}"
                    );
                }
            }
        }
    }

    fn withdrawn_from(&self, published: usize, connection: usize) -> impl Iterator<Item = &Withdrawn> {
        let owner = self.published[published].host;
        let ends = &self.connections[connection].ends;
        let other = if ends[0].host == owner { ends[1].host } else { ends[0].host };
        let is_of =
            move |it: &&Withdrawn| [Whom::Host(other), Whom::Connection(connection)].contains(&it.from);
        self.published[published].withdrawn.iter().filter(is_of)
    }

    /// Checks that a peer may have opened a publication.
    fn check_opened(&self, opening: &Opening) {
        let Opening { host, published, connection, begun_at, .. } = *opening;
        if self.published[published].permitted.as_ref().is_some_and(|hosts| !hosts.contains(&host)) {
            broken!(self, "host {host} has opened {published}, and is not permitted");
        }
        let is_out = |it: &Withdrawn| it.holds && it.ended_at.is_some_and(|at| at < begun_at);
        if self.withdrawn_from(published, connection).any(is_out) {
            broken!(
                self,
                "connection {connection} has opened {published}, which was withdrawn from it before"
            );
        }
    }

    /// Gives a peer a part of what it has opened.
    fn take_part(&mut self, published: usize, connection: usize, end: usize, opened: OpenedMemory) {
        let is_known = |grant: &Grant| {
            (grant.connection, grant.published, grant.id) == (connection, Some(published), opened.grant)
        };
        let it = &self.published[published];
        let Some(memory) = it.memory().filter(|_| !it.is_spoiled && (it.parts + 1) * PART <= PIECE) else {
            return;
        };
        let key = self.connections[connection].ends[end].key();
        let scope =
            self.hosts[self.connections[connection].ends[end].host].machine().scope_of(key, opened.grant);
        let Some(scope) = scope.filter(|_| !self.grants.iter().any(is_known)) else { return };
        let page_len = self.chance.one_of(&[8, 16, 32, 64]).unwrap_or(8);
        let offset = it.parts * PART;
        let layout = Layout { page_len, stride: page_len, offset, count: PART / page_len };
        let is_revoked = !it.is_open()
            || !self.connections[connection].ends[1 - end].is_usable()
            || self.withdrawn_from(published, connection).next().is_some();
        let is_over = self.withdrawn_from(published, connection).any(|it| it.holds && it.ended_at.is_some());
        let it = &mut self.published[published];
        it.parts += 1;
        let host = it.host;
        if is_over {
            // It hears of it later. Its part was never written to.
            it.closed.push(offset);
            return;
        }
        self.grants.push(Grant {
            connection,
            end: 1 - end,
            host,
            id: opened.grant,
            scope,
            rights: opened.rights,
            len: opened.len as usize,
            layout,
            pages: vec![Page::default(); layout.count],
            words: Vec::new(),
            hold: Hold::Published(Arc::downgrade(&memory)),
            published: Some(published),
            is_revoked,
            has_word: false,
            rest: None,
        });
    }

    fn collect_withdrawn(&mut self, published: usize) {
        for place in 0..self.published[published].withdrawn.len() {
            let it = &mut self.published[published].withdrawn[place];
            let Some(answer) = it.answer.as_ref().and_then(Answer::take) else { continue };
            it.answer = None;
            let (from, deadline) = (it.from, it.deadline);
            tell!(self, "withdrawn: published, ok", published, answer.is_ok());
            let host = self.published[published].host;
            let until = deadline.max(self.hosts[host].stopped_until) + self.scenario.slack_ns();
            if self.now > until && !self.is_liar(host) {
                broken!(self, "{published} is withdrawn at {}, and the deadline was at {deadline}", self.now);
            }
            match answer {
                Ok(()) => {
                    self.published[published].withdrawn[place].ended_at = Some(self.now);
                    self.count("withdrawals complete", 1);
                    self.check_closed(published, from);
                    self.close_parts(published, from);
                }
                Err(why) => {
                    self.count("withdrawals not proven", 1);
                    let is_open = self.published[published].is_open();
                    // A key that a card could not end, or a card that was not reset, proves nothing.
                    let is_provable = self.network.leaked() == 0 && !self.network.has_lost_card();
                    if is_open && self.now < deadline && is_provable {
                        broken!(self, "{published} is not withdrawn at {} of {deadline}: {why}", self.now);
                    }
                }
            }
        }
        let hold = &mut self.published[published].hold;
        let PublishedHold::Revoking { answer, since, deadline, .. } = hold else { return };
        let (answer, is_hasty) = (answer.take(), *deadline - *since < 2 * self.scenario.slack_ns());
        if let Some(answer) = answer {
            *hold = PublishedHold::Over;
            self.published_is_back(published, answer, is_hasty);
        }
    }

    /// Checks that nobody has a publication open, or is about to, who has lost it for good.
    fn check_closed(&mut self, published: usize, from: Whom) {
        let Published { host, id, withdrawn, .. } = &self.published[published];
        if withdrawn.iter().any(|it| it.from == from && !it.holds) {
            return;
        }
        let (host, id, life) = (*host, *id, self.hosts[*host].life);
        let is_owners = |end: &End| end.host == host && end.life == life && end.peer.is_some();
        let mut keys = Vec::new();
        for (index, connection) in self.connections.iter().enumerate() {
            for end in 0..2 {
                let is_from = match from {
                    Whom::Host(other) => connection.ends[1 - end].host == other,
                    Whom::Connection(other) => index == other,
                };
                keys.extend(
                    (is_from && is_owners(&connection.ends[end])).then(|| connection.ends[end].key()),
                );
            }
        }
        for key in keys {
            if self.hosts[host].machine().has_opened(id, key) {
                broken!(self, "{published} is withdrawn from {key:?}, which has it open");
            }
        }
    }

    /// Overwrites what a peer has written that has lost a publication, unless it was admitted again.
    fn close_parts(&mut self, published: usize, from: Whom) {
        let is_in = |it: &Withdrawn| it.from == from && !it.holds;
        if self.published[published].withdrawn.iter().any(is_in) {
            return;
        }
        let Some(memory) = self.published[published].memory() else { return };
        for place in 0..self.grants.len() {
            let is_closed = matches!(self.grants[place].hold, Hold::Published(_));
            if !is_closed || !self.is_of(&self.grants[place], published, from) {
                continue;
            }
            let offset = self.grants[place].layout.offset;
            self.look_a_last_time(place, &memory);
            self.grants[place].hold = Hold::Lost;
            memory.write_at(offset, &[WORN; PART]);
            self.published[published].closed.push(offset);
        }
    }

    fn published_is_back(&mut self, published: usize, answer: RevokeAnswer, is_hasty: bool) {
        let host = self.published[published].host;
        let memory = match answer {
            RevokeAnswer::Back(memory) => memory,
            // A broken card keeps its handle.
            RevokeAnswer::NotYet(_) if self.has_broken_card(host) => return,
            RevokeAnswer::NotYet(why) => {
                broken!(self, "published memory {published} does not come back: {why}")
            }
        };
        tell!(self, "back: published", published);
        self.count("publications back", 1);
        self.check_parts(published, &memory);
        for place in 0..self.grants.len() {
            if self.grants[place].published != Some(published) {
                continue;
            }
            if let Hold::Published(_) = std::mem::replace(&mut self.grants[place].hold, Hold::Over) {
                self.look_a_last_time(place, &memory);
            }
        }
        match memory.try_into_slice() {
            Ok(mut slice) => {
                slice.fill(WORN);
                self.kept.push((host, slice, WORN));
            }
            Err(memory) => self.put_aside(host, memory, true, is_hasty),
        }
    }

    /// Checks that nothing has landed in the parts of peers that have lost a publication.
    fn check_parts(&self, published: usize, memory: &Exposed) {
        let it = &self.published[published];
        if self.has_broken_card(it.host) || self.is_liar(it.host) {
            return;
        }
        let mut bytes = [0; PART];
        for offset in &it.closed {
            memory.read_at(*offset, &mut bytes);
            if bytes.iter().any(|byte| *byte != WORN) {
                broken!(self, "a peer has written to {published} at {offset}, and had lost it before");
            }
        }
    }

    /// Checks all publications.
    pub(super) fn check_published(&self) {
        for published in 0..self.published.len() {
            if let Some(memory) = self.published[published].memory() {
                self.check_parts(published, &memory);
            }
        }
    }

    /// Returns the deadlines of requests of owners that are not answered, with their hosts.
    pub(super) fn withdrawals(&self) -> impl Iterator<Item = (usize, u64)> {
        self.published.iter().flat_map(|it| {
            let of_all = match &it.hold {
                PublishedHold::Revoking { deadline, .. } => Some(*deadline),
                PublishedHold::Open(_) | PublishedHold::Over => None,
            };
            let of_peers = it.withdrawn.iter().filter(|it| it.answer.is_some()).map(|it| it.deadline);
            of_peers.chain(of_all).map(|deadline| (it.host, deadline))
        })
    }

    /// Returns a request to open something that is not answered, and should be.
    pub(super) fn unopened(&self) -> Option<usize> {
        self.openings.iter().map(|it| it.connection).find(|it| self.is_honest(*it))
    }

    /// Takes all publications from all peers.
    pub(super) fn withdraw_all(&mut self) {
        for published in 0..self.published.len() {
            let host = self.published[published].host;
            if self.published[published].is_open() && self.hosts[host].is_alive() {
                let patience = self.scenario.tuning.drain;
                self.withdraw(published, Some(patience));
                self.observe(host);
                let at = self.hosts[host].machine().poll_timeout().to_nanos();
                self.step_by(host, at);
            }
        }
    }

    /// Forgets what a host has published, and what it has asked for: it was killed.
    pub(super) fn kill_published(&mut self, host: usize) {
        self.openings.retain(|opening| opening.host != host);
        for it in self.published.iter_mut().filter(|it| it.host == host) {
            it.hold = PublishedHold::Over;
            it.withdrawn.iter_mut().for_each(|it| it.answer = None);
        }
    }
}
