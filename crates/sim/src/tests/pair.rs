//! Two connected machines, with a card each.

use std::collections::VecDeque;
use std::rc::Rc;

use farreach_memory::{Memory, Slice};
use farreach_proto::counter::LinkId;
use farreach_proto::ids::GrantId;
use farreach_proto::machine::{
    Budgets, Direction, GrantRange, Machine, NewTransfer, Output, PeerKey, Tuning,
};
use farreach_proto::plan::{Pages, Plan};
use farreach_proto::priority::Priority;
use farreach_proto::rights::Rights;
use farreach_proto::wire::{Frame, Hello};
use farreach_rail::{Carrier, GrantMade, Held, LinkKey, Rail, RevokeAnswer, TransferAnswer};

use super::MS;
use crate::answers::{Answer, Answers, Awaited, PeerView};
use crate::{CardId, SimCard, SimNetwork, SimRail, SimSettings};
use farreach_proto::time::Time;

/// Short times and little room.
fn tuning() -> Tuning {
    Tuning {
        heartbeat: 2 * MS,
        idle_heartbeat: 20 * MS,
        silence: 1000 * MS,
        stall: 20 * MS,
        drain: 2 * MS,
        cool_down: MS,
        messages: 4,
        message_max: 48,
        budgets: Budgets { resets: u32::MAX, ..Budgets::default() },
    }
}

/// The interval between two steps of everything, in nanoseconds.
const STEP: u64 = 20_000;

/// The side that connected, and the other.
pub(super) const FIRST: usize = 0;
pub(super) const SECOND: usize = 1;

/// Each machine has one peer.
pub(super) const PEER: PeerKey = PeerKey(0);

pub(super) struct Pair {
    pub(super) network: SimNetwork,
    pub(super) now: u64,
    pub(super) sides: [Side; 2],
}

pub(super) struct Side {
    pub(super) machine: Machine,
    pub(super) carrier: Carrier,
    answers: Answers,
    pub(super) peer: Rc<PeerView>,
    pub(super) card: CardId,
    /// Frames that it has not read yet.
    inbox: VecDeque<Frame>,
    /// All frames that it has sent.
    pub(super) said: Vec<Frame>,
    /// Whether it reads nothing for now.
    pub(super) is_deaf: bool,
}

impl Side {
    fn new(network: &SimNetwork, host: u32, card: SimCard) -> Self {
        let rail = SimRail::new(network, host, card);
        let card = rail.id();
        let tuning = tuning();
        let rails: Vec<Box<dyn Rail>> = vec![Box::new(rail)];
        let carrier = Carrier::new(rails, tuning.message_max).unwrap();
        let mut machine = Machine::new(carrier.infos(), Hello::new(host.into()), tuning, [host as u8; 32]);
        let mut answers = Answers::default();
        assert_eq!(machine.add_peer(host as usize == FIRST, Time::ZERO), PEER);
        let peer = answers.add_peer(PEER);
        let (inbox, said) = (VecDeque::new(), Vec::new());
        Self { machine, carrier, answers, peer, card, inbox, said, is_deaf: false }
    }

    /// Does the work of the machine, and delivers its events.
    pub(super) fn deliver(&mut self) {
        self.carrier.carry(&mut self.machine);
        while let Some(event) = self.machine.poll_event() {
            self.answers.tell(event, &mut self.carrier);
        }
    }

    /// Returns the id of the last link for which it offered its end.
    pub(super) fn link(&self) -> LinkId {
        let offered = |frame: &Frame| match frame {
            Frame::Link(offer) => Some(offer.link),
            _ => None,
        };
        self.said.iter().rev().find_map(offered).expect("a link was offered")
    }

    pub(super) fn has_said(&self, is_it: impl Fn(&Frame) -> bool) -> bool {
        self.said.iter().any(is_it)
    }
}

impl Pair {
    /// Creates a pair that has just connected, and has exchanged no frames.
    pub(super) fn new(card: &SimCard) -> Self {
        let network = SimNetwork::new(SimSettings { delay_ns: 1_000..=1_000, ..SimSettings::new(7) });
        let sides = [0, 1].map(|host| Side::new(&network, host, card.clone()));
        Self { network, now: 0, sides }
    }

    /// Creates a pair with a ready link.
    pub(super) fn connected(card: &SimCard) -> Self {
        let mut pair = Self::new(card);
        pair.run_until("a link is ready", |pair| pair.sides.iter().all(|side| side.peer.has_rails()));
        pair
    }

    /// Returns the newest end of a link on one side's card.
    pub(super) fn end(&self, side: usize) -> LinkKey {
        self.network.newest_link(self.sides[side].card).expect("the card has an end")
    }

    /// Advances until a condition holds.
    pub(super) fn run_until(&mut self, what: &str, mut is_so: impl FnMut(&mut Self) -> bool) {
        let end = self.now + 500 * MS;
        while !is_so(self) {
            assert!(self.now < end, "it never is so that {what}");
            self.run(STEP);
        }
    }

    pub(super) fn run(&mut self, for_ns: u64) {
        let end = self.now + for_ns;
        while self.now < end {
            self.now = (self.now + STEP).min(end);
            self.network.advance_to(self.now);
            for side in 0..2 {
                let it = &mut self.sides[side];
                it.carrier.step(&mut it.machine, Time::from_nanos(self.now));
                self.carry(side);
            }
        }
    }

    /// Delivers the frames of one side to the other.
    fn carry(&mut self, side: usize) {
        while let Some(output) = self.sides[side].machine.poll_output() {
            if let Output::Frame(_, frame) = output {
                self.sides[side].said.push(frame.clone());
                self.sides[1 - side].inbox.push_back(frame);
            }
        }
        self.sides[side].deliver();
        let reader = &mut self.sides[1 - side];
        if reader.is_deaf {
            return;
        }
        for frame in std::mem::take(&mut reader.inbox) {
            reader.machine.handle_frame(PEER, frame, Time::from_nanos(self.now));
        }
        reader.deliver();
    }

    /// Grants memory from one side to the other.
    pub(super) fn grant(&mut self, side: usize, len: usize) -> GrantId {
        let it = &mut self.sides[side];
        let exposed = memory(len).expose();
        let GrantMade { id, .. } = it
            .carrier
            .grant(&mut it.machine, PEER, exposed, Rights::WRITE, Time::from_nanos(self.now))
            .unwrap();
        id
    }

    pub(super) fn revoke(&mut self, side: usize, id: GrantId, within_ns: u64) -> Answer<RevokeAnswer> {
        let it = &mut self.sides[side];
        let (op, answer) = it.answers.expect(Awaited::Revoked);
        it.machine.revoke(Some(op), id, Time::from_nanos(self.now + within_ns), Time::from_nanos(self.now));
        it.deliver();
        answer
    }

    /// Writes all of a grant of the other side.
    pub(super) fn write(&mut self, side: usize, grant: GrantId, len: usize) -> Answer<TransferAnswer> {
        let source = memory(len);
        let it = &mut self.sides[side];
        it.carrier.register(source.memory()).unwrap();
        let pages = || Pages { indices: [0].into(), stride: len as u64, offset: 0 };
        let plan = Plan::new(len as u64, (pages(), len as u64), (pages(), len as u64)).unwrap();
        let (op, answer) = it.answers.expect(Awaited::Transfer);
        let new = NewTransfer {
            op,
            peer: PEER,
            direction: Direction::Write,
            plan,
            regions: GrantRange { grant, base: 0, len: len as u64 }.into(),
            counter: None,
            priority: Priority::Normal,
            deadline: None,
        };
        it.carrier.hold(op, Held::Lent(source.lend()));
        it.machine.submit(new, Time::from_nanos(self.now)).unwrap();
        it.deliver();
        answer
    }
}

fn memory(len: usize) -> Slice {
    let mut slice = Memory::allocate(len).unwrap();
    drop(slice.split_off(len));
    slice
}
