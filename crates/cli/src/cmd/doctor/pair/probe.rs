//! One end of the trials between two cards, with the operations of both sides.

use std::sync::Arc;
use std::time::{Duration, Instant};

use farreach::Slice;
use farreach_verbs::ah::{GRH_BYTES, Gid};
use farreach_verbs::cq::{self, CompletionQueue, CompletionQueueBuilder, WorkKind, WorkStatus};
use farreach_verbs::mr::AccessFlags;
use farreach_verbs::port::Mtu;
use farreach_verbs::qp::state::{ConnectionParameters, PeerAddress};
use farreach_verbs::qp::{QueuePair, QueuePairBuilder, QueuePairType};
use farreach_verbs::region::ExposedRegion;
use farreach_verbs::wr::{Buffers, RecvRequest, SendRequest};
use farreach_verbs::{Error, error::Errno};
use rustix::io::Errno as Known;

use super::trouble::trouble;
use crate::exit::{Exit, Failure};
use crate::native::{Card, of_completion, of_refusal, of_verbs};
use farreach_doctor::pair::readings::{CardEnd, GidReading, Obstacle, Trouble};

/// The number of datagrams that each side sends. A single loss indicates a busy host; the loss of
/// all indicates a blocked path.
pub(super) const DATAGRAMS: u32 = 16;

/// How long datagrams may be in flight, on a slow emulated host. The wait ends early when all have
/// arrived.
const DATAGRAM_PATIENCE: Duration = Duration::from_secs(2);

/// The payload of a datagram, below the smallest MTU.
const DATAGRAM_BYTES: usize = 64;

/// The size of a message of one packet at any MTU.
pub(super) const SHORT_BYTES: usize = 256;

/// The size of a message of several full packets at any MTU.
pub(super) const LONG_BYTES: usize = 64 * 1024;

/// Long messages in flight.
pub(super) const DEPTH: u32 = 8;

/// How long a work request may take. A card aborts one sooner.
const PATIENCE: Duration = Duration::from_secs(12);

/// An open card, with its queue pair for datagrams.
#[derive(Debug)]
pub(super) struct Probe {
    card: Card,
    /// The queue pair, or the reason why there is none: not every card has datagrams.
    datagrams: Result<Queue, Trouble>,
}

/// A queue pair with its completion queue, and its address for the other side.
#[derive(Debug)]
struct Queue {
    qp: QueuePair,
    cq: CompletionQueue,
    own: PeerAddress,
}

impl Probe {
    pub(super) fn open(name: &str, gid_index: Option<u32>) -> Result<Self, Failure> {
        let card = Card::open(name, gid_index)?;
        let datagrams = open_datagrams(&card).map_err(|error| trouble(Obstacle::Other, of_verbs(&error)));
        Ok(Self { card, datagrams })
    }

    /// Describes the port.
    pub(super) fn reading(&self) -> Result<CardEnd, Failure> {
        let parameters = &self.card.parameters;
        let context = &self.card.context;
        let read = || Ok((context.query_port(parameters.port)?, context.gid_table(parameters.port)?));
        let (port, gids) = read().map_err(|error| of_verbs(&error))?;
        let gid = GidReading::from(&parameters.gid.entry);
        let mut end = CardEnd::new(parameters.port, port.link_layer.to_string(), gid);
        end.driver = self.card.driver();
        end.mtu_bytes = port.active_mtu.bytes().unwrap_or(0);
        end.gids = gids.iter().map(GidReading::from).collect();
        Ok(end)
    }

    /// Returns the address to which the other side sends its datagrams.
    pub(super) fn datagram_address(&self) -> Option<PeerAddress> {
        self.datagrams.as_ref().ok().map(|queue| queue.own)
    }

    /// Sends all datagrams.
    pub(super) fn send_datagrams(&self, to: &PeerAddress) -> Result<(), Trouble> {
        let queue = self.datagrams.as_ref().map_err(Clone::clone)?;
        let failed = |error: Error| self.trouble_of(&error, to.gid);
        let way = self.card.parameters.address_of(to);
        let handle = self.card.pd.create_ah(&way).map_err(failed)?;
        for _ in 0..DATAGRAMS {
            let mut slice = self.card.pd.allocate(DATAGRAM_BYTES).map_err(failed)?;
            slice.fill(0x5a);
            let request = SendRequest::send(slice).to(&handle, to.qp_num, to.qkey);
            queue
                .qp
                .post_send(request)
                .map_err(|refused| trouble(Obstacle::Other, of_refusal(&refused.reason)))?;
        }
        Ok(())
    }

    /// Counts the other side's datagrams, until all have arrived or the time is over.
    pub(super) fn count_datagrams(&self) -> u32 {
        let Ok(queue) = &self.datagrams else { return 0 };
        let deadline = Instant::now() + DATAGRAM_PATIENCE;
        let mut poller = queue.cq.poller();
        let mut arrived = 0;
        while arrived < DATAGRAMS && Instant::now() < deadline {
            let Ok(completions) = poller.wait(cq::Wait::default(), Some(deadline)) else { break };
            let came = completions.filter(|it| it.kind() == WorkKind::Recv && it.outcome().is_ok());
            arrived += came.count() as u32;
        }
        arrived
    }

    /// Creates a reliable queue pair for packets of this size, not yet connected.
    pub(super) fn wire(&self, mtu_bytes: u32) -> Result<Wire, Trouble> {
        let mut parameters = self.card.parameters.clone();
        parameters.mtu = mtu_of(mtu_bytes).unwrap_or(parameters.mtu);
        parameters.access = AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ;
        let queue = open_reliable(&self.card, &parameters)
            .map_err(|error| trouble(Obstacle::Other, of_verbs(&error)))?;
        Ok(Wire { queue, parameters, card: self.card.name.clone() })
    }

    /// Connects a queue pair, so that it can send and receive.
    pub(super) fn connect(&self, wire: &Wire, other: &PeerAddress) -> Result<(), Trouble> {
        let connected = wire.queue.qp.connect(&wire.parameters, &wire.queue.own, other);
        connected.map_err(|error| self.trouble_of(&error, other.gid))
    }

    pub(super) fn allocate(&self, bytes: usize) -> Result<Slice, Trouble> {
        self.card.allocate(bytes).map_err(|failure| trouble(Obstacle::Other, failure))
    }

    /// Allocates memory that the other side may access.
    pub(super) fn expose(&self) -> Result<Arc<ExposedRegion>, Failure> {
        let slice = self.card.allocate(LONG_BYTES)?;
        let access = AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ;
        let region = self.card.pd.expose(slice, access).map_err(|(error, _slice)| of_verbs(&error))?;
        Ok(Arc::new(region))
    }

    /// Classifies an error on the path to a peer.
    fn trouble_of(&self, error: &Error, peer: Gid) -> Trouble {
        let own = self.card.parameters.gid.entry.gid;
        trouble(obstacle(error.errno(), own, peer), of_verbs(error))
    }
}

/// Classifies the kernel's error of the route lookup.
fn obstacle(errno: Option<Errno>, own: Gid, peer: Gid) -> Obstacle {
    let is_other_family = own.ip().is_ipv4() != peer.ip().is_ipv4();
    match errno.map(|errno| Known::from_raw_os_error(errno.0)) {
        Some(Known::NETUNREACH | Known::HOSTUNREACH | Known::INVAL | Known::NODEV) if is_other_family => {
            Obstacle::GidFamilies
        }
        Some(Known::NETUNREACH | Known::HOSTUNREACH) => Obstacle::NoRoute,
        Some(Known::TIMEDOUT) => Obstacle::NoNeighbour,
        Some(Known::NODEV) => Obstacle::NoNetDevice,
        _ => Obstacle::Other,
    }
}

fn open_datagrams(card: &Card) -> Result<Queue, Error> {
    let (qp, cq) = queue_pair(card, QueuePairType::Ud, DATAGRAMS, DATAGRAMS)?;
    let own = qp.to_init(&card.parameters)?;
    qp.activate(&card.parameters, &own)?;
    for _ in 0..DATAGRAMS {
        let room = card.pd.allocate(GRH_BYTES + DATAGRAM_BYTES)?;
        // A queue created for this many accepts them. A missing one would only be counted as lost.
        let _ = qp.post_recv(RecvRequest::new(room));
    }
    Ok(Queue { qp, cq, own })
}

fn open_reliable(card: &Card, parameters: &ConnectionParameters) -> Result<Queue, Error> {
    let (qp, cq) = queue_pair(card, QueuePairType::Rc, DEPTH, 1)?;
    let own = qp.to_init(parameters)?;
    Ok(Queue { qp, cq, own })
}

fn queue_pair(
    card: &Card,
    kind: QueuePairType,
    sends: u32,
    receives: u32,
) -> Result<(QueuePair, CompletionQueue), Error> {
    let channel = card.context.create_comp_channel()?;
    let cq = CompletionQueueBuilder::new(sends + receives).channel(&channel).build(&card.context)?;
    let builder = QueuePairBuilder::new(kind, &cq, &cq).max_send_wr(sends).max_recv_wr(receives);
    Ok((builder.build(&card.pd)?, cq))
}

/// Path MTUs, the largest first.
pub(super) const MTUS: [Mtu; 5] =
    [Mtu::Bytes4096, Mtu::Bytes2048, Mtu::Bytes1024, Mtu::Bytes512, Mtu::Bytes256];

fn mtu_of(bytes: u32) -> Option<Mtu> {
    MTUS.into_iter().find(|mtu| mtu.bytes() == Some(bytes))
}

/// One end of a reliable connection.
#[derive(Debug)]
pub(super) struct Wire {
    queue: Queue,
    parameters: ConnectionParameters,
    card: String,
}

impl Wire {
    /// Returns the address for the other side.
    pub(super) fn address(&self) -> PeerAddress {
        self.queue.own
    }

    /// Posts a work request.
    pub(super) fn post(&self, request: SendRequest) -> Result<(), Trouble> {
        let posted = self.queue.qp.post_send(request);
        posted.map_err(|refused| trouble(Obstacle::Other, of_refusal(&refused.reason)))
    }

    /// Waits for the next completion, and returns its buffers.
    pub(super) fn complete(&self, wait: cq::Wait) -> Result<Buffers, Trouble> {
        let deadline = Instant::now() + PATIENCE;
        let mut poller = self.queue.cq.poller();
        let completions = poller.wait(wait, Some(deadline));
        let completions = completions.map_err(|error| trouble(Obstacle::Other, of_verbs(&error)))?;
        match { completions }.next() {
            Some(completion) => match completion.outcome() {
                Ok(_) => Ok(completion.into_buffers()),
                Err(failure) => Err(self.failed(failure)),
            },
            None => {
                let failure = Failure::new(Exit::PeerLost, format!("no completion on {}", self.card))
                    .cause(format!(
                        "the card reported neither success nor failure within {} s",
                        PATIENCE.as_secs()
                    ))
                    .fix("compare the counters of both cards\nrdma statistic");
                Err(trouble(Obstacle::Silent, failure))
            }
        }
    }

    /// Posts a work request and waits for its completion.
    pub(super) fn run(&self, request: SendRequest) -> Result<Buffers, Trouble> {
        self.post(request)?;
        self.complete(cq::Wait::default())
    }

    fn failed(&self, failure: cq::Failure) -> Trouble {
        let obstacle = match failure.status {
            WorkStatus::RetryExceeded | WorkStatus::ResponseTimeout => Obstacle::Unanswered,
            _ => Obstacle::Other,
        };
        trouble(obstacle, of_completion(&self.card, failure))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_number_names_an_obstacle() {
        let gid = |text: &str| text.parse().expect("a GID");
        let (own, peer, other) = (gid("::ffff:192.0.2.1"), gid("::ffff:192.0.2.9"), gid("2001:db8::1"));
        let of = |errno: Known, peer| obstacle(Some(Errno(errno.raw_os_error())), own, peer);
        assert_eq!(of(Known::NETUNREACH, peer), Obstacle::NoRoute);
        assert_eq!(of(Known::TIMEDOUT, peer), Obstacle::NoNeighbour);
        assert_eq!(of(Known::NODEV, peer), Obstacle::NoNetDevice);
        assert_eq!(of(Known::INVAL, peer), Obstacle::Other);
        assert_eq!(of(Known::INVAL, other), Obstacle::GidFamilies);
        assert_eq!(of(Known::NETUNREACH, other), Obstacle::GidFamilies);
        assert_eq!(obstacle(None, own, peer), Obstacle::Other);
    }

    #[test]
    fn sizes_of_packets_are_those_that_verbs_has() {
        assert_eq!(mtu_of(1024), Some(Mtu::Bytes1024));
        assert_eq!(mtu_of(1500), None);
    }
}
