//! Hosts, and the connections between them.

use std::collections::VecDeque;
use std::rc::Rc;

use farreach_memory::{Exposed, Slice};
use farreach_proto::error::SendError;
use farreach_proto::machine::{Machine, PeerKey};
use farreach_proto::rights::Rights;
use farreach_proto::wire::Frame;
use farreach_rail::{Carrier, GrantMade, RailError};

use crate::CardId;
use crate::answers::{Answer, Answers, PeerView};

/// A host: an engine and its user, one life after the other.
#[derive(Debug, Default)]
pub(super) struct Host {
    /// None while it is killed.
    pub(super) machine: Option<Machine>,
    /// Its rails; none while it is killed.
    pub(super) carrier: Option<Carrier>,
    /// What was asked of it, and what it has told.
    pub(super) answers: Answers,
    /// How often it was started.
    pub(super) life: u64,
    pub(super) cards: Vec<CardId>,
    /// Memory that nobody uses, in pieces of one size.
    pub(super) free: Vec<Slice>,
    /// By the numbers of its peers: the connection, and which end of it.
    pub(super) peers: Vec<(usize, usize)>,
    /// When it is stepped next.
    pub(super) step_at: u64,
    /// It does nothing until then.
    pub(super) stopped_until: u64,
    /// When a stop has ended that was too long to be forgiven.
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
        self.machine.as_mut().expect("who does something is alive")
    }

    pub(super) fn carrier(&mut self) -> &mut Carrier {
        self.carrier.as_mut().expect("who does something is alive")
    }

    fn parts(&mut self) -> (&mut Machine, &mut Carrier) {
        let parts = self.machine.as_mut().zip(self.carrier.as_mut());
        parts.expect("who does something is alive")
    }

    pub(super) fn step(&mut self, now: u64) -> bool {
        let (machine, carrier) = self.parts();
        carrier.step(machine, now)
    }

    /// What its machine wants done with rails is done.
    pub(super) fn carry(&mut self) {
        let (machine, carrier) = self.parts();
        carrier.carry(machine);
    }

    pub(super) fn grant(
        &mut self,
        key: PeerKey,
        memory: Exposed,
        rights: Rights,
        now: u64,
    ) -> Result<GrantMade, (RailError, Option<Exposed>)> {
        let (machine, carrier) = self.parts();
        carrier.grant(machine, key, memory, rights, now)
    }

    /// What its machine has to tell is told.
    pub(super) fn deliver(&mut self) {
        let parts = self.machine.as_mut().zip(self.carrier.as_mut());
        let (machine, carrier) = parts.expect("who does something is alive");
        while let Some(event) = machine.poll_event() {
            self.answers.tell(event, carrier);
        }
    }
}

/// What is between two engines that are connected: the control channel, and what their users have over it.
#[derive(Debug)]
pub(super) struct Connection {
    /// First the one that connected.
    pub(super) ends: [End; 2],
}

/// One engine's end of it.
#[derive(Debug)]
pub(super) struct End {
    pub(super) host: usize,
    /// The life of that host.
    pub(super) life: u64,
    /// When its engine heard of the connection, and before, when it was made.
    pub(super) since: u64,
    /// None until its engine knows of the connection.
    pub(super) peer: Option<(PeerKey, Rc<PeerView>)>,
    /// What comes to it.
    pub(super) inbox: VecDeque<Packet>,
    /// When the last of it is due.
    pub(super) inbox_until: u64,
    /// Whether this end can still send.
    pub(super) is_open: bool,
    /// When its engine was killed.
    pub(super) killed_at: Option<u64>,
    /// When its engine took the other for lost.
    pub(super) lost_at: Option<u64>,
    /// Its user has nothing more to do with the other.
    pub(super) has_left: bool,
    pub(super) messages: Messages,
}

/// What comes over the control channel.
#[derive(Debug)]
pub(super) enum Packet {
    Frame(Frame),
    Closed,
}

/// Messages of one end to the other.
#[derive(Debug, Default)]
pub(super) struct Messages {
    /// How many were asked for, and how many of those were taken by the engine.
    pub(super) asked: u64,
    pub(super) accepted: u64,
    pub(super) waiting: VecDeque<Answer<Result<(), SendError>>>,
    /// How many this end has received of the other's.
    pub(super) received: u64,
    /// Whether its user takes messages as soon as they are there.
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
            messages: Messages { is_eager, ..Messages::default() },
        }
    }

    pub(super) fn key(&self) -> PeerKey {
        self.peer.as_ref().expect("who uses it was introduced").0
    }

    /// Whether its user may ask for something over it.
    pub(super) fn is_usable(&self) -> bool {
        self.peer.is_some() && self.lost_at.is_none() && self.killed_at.is_none() && !self.has_left
    }
}

impl Connection {
    /// Whether neither side has lost the other.
    pub(super) fn is_whole(&self) -> bool {
        self.ends.iter().all(End::is_usable)
    }
}
