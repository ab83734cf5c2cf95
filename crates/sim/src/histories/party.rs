//! Hosts, and the connections between them.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use farreach_memory::{Buffer, Exposed, Slice};
use farreach_proto::access::Access;
use farreach_proto::error::SendError;
use farreach_proto::ids::PublicationId;
use farreach_proto::machine::{Event, Machine, OpId, PeerKey, ShortTransfer, TransferEnd};
use farreach_proto::rights::Rights;
use farreach_proto::stats::TransferStats;
use farreach_proto::wire::Frame;
use farreach_rail::{Carrier, GrantMade, Held, RailError, Scope};

use crate::CardId;
use crate::answers::{Answer, Answers, PeerView};
use farreach_proto::time::Time;

/// A host: an engine and its user, one life after the other.
#[derive(Debug, Default)]
pub(super) struct Host {
    /// `None` while the host is killed.
    pub(super) machine: Option<Machine>,
    /// Its rails; `None` while the host is killed.
    pub(super) carrier: Option<Carrier>,
    /// Requests to it, and its events.
    pub(super) answers: Answers,
    /// How often it was started.
    pub(super) life: u64,
    pub(super) cards: Vec<CardId>,
    /// Unused memory, in pieces of one size.
    pub(super) free: Vec<Slice>,
    /// By peer number: the connection, and its end.
    pub(super) peers: Vec<(usize, usize)>,
    /// The time of the next step.
    pub(super) step_at: u64,
    /// The time until which it does nothing, and since which.
    pub(super) stopped_until: u64,
    pub(super) stopped_at: u64,
    /// The end of its last stop, and of the last silence of its control connections.
    pub(super) disturbed_until: u64,
    /// The end of a stop that was long enough to be lost.
    pub(super) stopped_long_until: u64,
}

impl Host {
    pub(super) fn is_alive(&self) -> bool {
        self.machine.is_some()
    }

    pub(super) fn is_stopped(&self, now: u64) -> bool {
        now < self.stopped_until
    }

    pub(super) fn machine(&mut self) -> &mut Machine {
        self.machine.as_mut().expect("a host that acts is alive")
    }

    pub(super) fn carrier(&mut self) -> &mut Carrier {
        self.carrier.as_mut().expect("a host that acts is alive")
    }

    fn parts(&mut self) -> (&mut Machine, &mut Carrier) {
        let parts = self.machine.as_mut().zip(self.carrier.as_mut());
        parts.expect("a host that acts is alive")
    }

    pub(super) fn step(&mut self, now: u64) -> bool {
        let (machine, carrier) = self.parts();
        carrier.step(machine, Time::from_nanos(now))
    }

    /// Handles everything that has arrived over the rails.
    pub(super) fn catch_up(&mut self, now: u64) {
        let (machine, carrier) = self.parts();
        carrier.catch_up(machine, Time::from_nanos(now));
    }

    /// Does the work of its machine on rails.
    pub(super) fn carry(&mut self) {
        let (machine, carrier) = self.parts();
        carrier.carry(machine);
    }

    pub(super) fn grant_scopes(&mut self, key: PeerKey) -> Vec<Scope> {
        self.parts().0.grant_scopes(key)
    }

    pub(super) fn grant(
        &mut self,
        key: PeerKey,
        memory: Exposed,
        rights: Rights,
        now: u64,
    ) -> Result<GrantMade, (RailError, Option<Exposed>)> {
        let (machine, carrier) = self.parts();
        carrier.grant(machine, key, memory, rights, Time::from_nanos(now))
    }

    pub(super) fn publish(
        &mut self,
        memory: Exposed,
        rights: Rights,
        access: Access,
    ) -> (PublicationId, Arc<Exposed>) {
        let (machine, carrier) = self.parts();
        carrier.publish(machine, memory, rights, access)
    }

    pub(super) fn withdraw(&mut self, op: Option<OpId>, id: PublicationId, deadline: Time, now: u64) {
        let (machine, carrier) = self.parts();
        carrier.withdraw(machine, op, id, deadline, Time::from_nanos(now));
    }

    /// Performs a transfer of one page at once, if its rail can.
    pub(super) fn perform(&mut self, new: &ShortTransfer, held: &Held, now: u64) -> Option<TransferStats> {
        let (machine, carrier) = self.parts();
        let mut buffer = match held {
            Held::Shared(shared) => Buffer::Shared(shared.get(..)?),
            Held::Lent(lent) => Buffer::Lent(lent.get(..)?),
            Held::Exposed(_) | Held::List(_) => return None,
        };
        carrier.perform(machine, new, &mut buffer, || Time::from_nanos(now))
    }

    /// Answers a transfer that was performed.
    pub(super) fn tell_performed(&mut self, op: OpId, stats: TransferStats) {
        let carrier = self.carrier.as_mut().expect("a host that acts is alive");
        let end = TransferEnd { outcome: Ok(()), is_back: true, stats };
        self.answers.tell(Event::Transfer(op, end), carrier);
    }

    /// Delivers the events of its machine.
    pub(super) fn deliver(&mut self) {
        let parts = self.machine.as_mut().zip(self.carrier.as_mut());
        let (machine, carrier) = parts.expect("a host that acts is alive");
        while let Some(event) = machine.poll_event() {
            self.answers.tell(event, carrier);
        }
    }
}

/// A connection of two engines: the control connection, and what their users have over it.
#[derive(Debug)]
pub(super) struct Connection {
    /// Whether neither end lies.
    pub(super) is_honest: bool,
    /// First the end that connected.
    pub(super) ends: [End; 2],
}

/// One engine's end of a connection.
#[derive(Debug)]
pub(super) struct End {
    pub(super) host: usize,
    /// The life of that host.
    pub(super) life: u64,
    /// The time at which its engine learnt of the connection; before that, the time at which it was
    /// made.
    pub(super) since: u64,
    /// `None` until its engine knows of the connection.
    pub(super) peer: Option<(PeerKey, Rc<PeerView>)>,
    /// Packets for it.
    pub(super) inbox: VecDeque<Packet>,
    /// The time at which the last of them is due.
    pub(super) inbox_until: u64,
    /// Whether this end can still send.
    pub(super) is_open: bool,
    /// The time at which its engine was killed.
    pub(super) killed_at: Option<u64>,
    /// The time at which its engine lost the other.
    pub(super) lost_at: Option<u64>,
    /// Whether its user has closed the peer.
    pub(super) has_left: bool,
    /// The number of transfers that its user has requested.
    pub(super) transfers: u64,
    pub(super) messages: Messages,
}

/// A packet on the control connection.
#[derive(Debug)]
pub(super) enum Packet {
    Frame(Frame),
    Closed,
}

/// Messages of one end to the other.
#[derive(Debug, Default)]
pub(super) struct Messages {
    /// The number of messages requested, and of those that the engine has taken.
    pub(super) asked: u64,
    pub(super) accepted: u64,
    pub(super) waiting: VecDeque<Answer<Result<(), SendError>>>,
    /// The number of messages that this end has received.
    pub(super) received: u64,
    /// Whether its user takes messages as soon as they arrive.
    pub(super) is_eager: bool,
}

impl End {
    pub(super) fn new(host: usize, life: u64, since: u64, is_eager: bool) -> Self {
        Self {
            host,
            life,
            since,
            peer: None,
            inbox: VecDeque::new(),
            inbox_until: 0,
            is_open: true,
            killed_at: None,
            lost_at: None,
            has_left: false,
            transfers: 0,
            messages: Messages { is_eager, ..Messages::default() },
        }
    }

    pub(super) fn key(&self) -> PeerKey {
        self.peer.as_ref().expect("an end in use knows its peer").0
    }

    /// Returns `true` if its user may make requests over it.
    pub(super) fn is_usable(&self) -> bool {
        self.peer.is_some() && self.lost_at.is_none() && self.killed_at.is_none() && !self.has_left
    }
}

impl Connection {
    /// Returns `true` if neither side has lost the other.
    pub(super) fn is_whole(&self) -> bool {
        self.ends.iter().all(End::is_usable)
    }
}
