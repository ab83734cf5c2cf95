//! Two machines that know each other, with a card each.

use std::collections::VecDeque;

use farreach_memory::{Memory, Slice};
use farreach_proto::plan::{Pages, Plan};
use farreach_proto::wire::Frame;

use super::{MS, tuning};
use crate::Rights;
use crate::carrier::{Carrier, GrantMade, Held};
use crate::delivery::{Delivery, RevokeAnswer, TransferAnswer, Waiter};
use crate::machine::peer::Link;
use crate::machine::{Direction, Machine, NewTransfer, Output, PeerKey, plain_hello};
use crate::progress::oneshot;
use crate::rail::Rail;
use crate::rails::sim::{CardId, SimCard, SimNetwork, SimRail, SimSettings};

/// From one look at everything to the next.
const STEP: u64 = 20_000;

/// The one who connected, and the other.
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
    pub(super) delivery: Delivery,
    pub(super) card: CardId,
    /// What has come to it and was not read.
    inbox: VecDeque<Frame>,
    /// All that it has said.
    pub(super) said: Vec<Frame>,
    /// Whether it reads nothing for now.
    pub(super) is_deaf: bool,
}

impl Side {
    fn new(network: &SimNetwork, host: u32, card: SimCard) -> Self {
        let rail = SimRail::new(network, host, card);
        let card = rail.id();
        let hello = plain_hello(host.into());
        let tuning = tuning();
        let rails: Vec<Box<dyn Rail>> = vec![Box::new(rail)];
        let carrier = Carrier::new(rails, tuning.message_max).unwrap();
        let machine = Machine::new(carrier.infos(), hello, tuning);
        let delivery = Delivery::default();
        Self { machine, carrier, delivery, card, inbox: VecDeque::new(), said: Vec::new(), is_deaf: false }
    }

    /// What it wants done is done, and what it has to tell is told.
    pub(super) fn deliver(&mut self) {
        self.carrier.carry(&mut self.machine);
        while let Some(event) = self.machine.poll_event() {
            self.delivery.deliver(event, &mut self.carrier, &mut Vec::new());
        }
    }

    pub(super) fn link(&mut self) -> &mut Link {
        &mut self.machine.peer(PEER).unwrap().links[0]
    }

    pub(super) fn has_said(&self, is_it: impl Fn(&Frame) -> bool) -> bool {
        self.said.iter().any(is_it)
    }
}

impl Pair {
    /// They have just connected, and have not heard of each other.
    pub(super) fn new(card: &SimCard) -> Self {
        let network = SimNetwork::new(SimSettings { delay_ns: 1_000..=1_000, ..SimSettings::new(7) });
        let mut sides = [0, 1].map(|host| Side::new(&network, host, card.clone()));
        for (side, it) in sides.iter_mut().enumerate() {
            let key = it.machine.add_peer(side == FIRST, 0);
            it.delivery.add_peer(key);
        }
        Self { network, now: 0, sides }
    }

    /// Their link is ready.
    pub(super) fn connected(card: &SimCard) -> Self {
        let mut pair = Self::new(card);
        pair.run_until("a link is ready", |pair| {
            pair.sides.iter_mut().all(|side| side.machine.peer(PEER).is_some_and(|peer| peer.is_up))
        });
        pair
    }

    /// Lets time go on until it is so.
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
                it.carrier.step(&mut it.machine, self.now);
                self.carry(side);
            }
        }
    }

    /// What one side has said goes to the other, which reads it.
    fn carry(&mut self, side: usize) {
        while let Some(output) = self.sides[side].machine.output() {
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
            reader.machine.frame(PEER, frame, self.now);
        }
        reader.deliver();
    }

    /// One side grants some memory to the other.
    pub(super) fn grant(&mut self, side: usize, len: usize) -> u64 {
        let it = &mut self.sides[side];
        let exposed = memory(len).expose();
        let GrantMade { id, .. } =
            it.carrier.grant(&mut it.machine, PEER, exposed, Rights::WRITE, self.now).unwrap();
        id
    }

    pub(super) fn revoke(&mut self, side: usize, id: u64, within_ns: u64) -> oneshot::Receiver<RevokeAnswer> {
        let (sender, receiver) = oneshot::channel();
        let it = &mut self.sides[side];
        let op = it.delivery.wait_for(Waiter::Revoked(sender));
        it.machine.revoke(Some(op), id, self.now + within_ns, self.now);
        it.deliver();
        receiver
    }

    /// One side writes all of what the other has granted.
    pub(super) fn write(&mut self, side: usize, grant: u64, len: usize) -> oneshot::Receiver<TransferAnswer> {
        let source = memory(len);
        let it = &mut self.sides[side];
        it.carrier.register(source.memory()).unwrap();
        let pages = || Pages { indices: vec![0], stride: len as u64, offset: 0 };
        let plan = Plan::new(len as u64, (pages(), len as u64), (pages(), len as u64)).unwrap();
        let (sender, receiver) = oneshot::channel();
        let order = NewTransfer {
            op: it.delivery.wait_for(Waiter::Transfer(sender)),
            peer: PEER,
            direction: Direction::Write,
            plan,
            grant,
            base: 0,
            len: len as u64,
            counter: None,
        };
        it.carrier.hold(order.op, Held::Lent(source.lend()));
        it.machine.submit(order, self.now).unwrap();
        it.deliver();
        receiver
    }
}

fn memory(len: usize) -> Slice {
    let mut slice = Memory::allocate(len).unwrap();
    drop(slice.split_off(len));
    slice
}
