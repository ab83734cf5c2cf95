//! A queue pair with a completion queue of its own: what one thread works with.

use std::time::{Duration, Instant};

use farreach::{Peer, Slice};
use farreach_verbs::Error;
use farreach_verbs::cq::{self, CompletionQueue, CompletionQueueBuilder, Success, WorkKind};
use farreach_verbs::mr::AccessFlags;
use farreach_verbs::port::Mtu;
use farreach_verbs::qp::state::PeerAddress;
use farreach_verbs::qp::{QueuePair, QueuePairBuilder, SendOperations};
use farreach_verbs::wr::{Buffers, RecvRequest, RegionPart, SendRequest};

use super::card::Card;
use super::failure::{of_completion, of_refusal, of_verbs};
use super::queue_pair::QueuePairArgs;
use crate::exit::{self, Exit, Failure};
use crate::interrupt::GLANCE;
use crate::session::Wait;

/// How long a request may take. A card gives one up much sooner; a message may be long in coming.
const PATIENCE: Duration = Duration::from_secs(30);

/// Room for messages that come: none of these tests has more under way.
const RECEIVES: u32 = 1;

/// How the queue pairs of a test are to be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LinkRules {
    /// How many there are.
    pub(crate) count: usize,
    /// Requests under way on each.
    pub(crate) depth: u32,
    /// What the peer may do.
    pub(crate) access: AccessFlags,
    /// Operations that must be asked for when a queue pair is made.
    pub(crate) operations: SendOperations,
    pub(crate) queue_pair: QueuePairArgs,
    pub(crate) wait: Wait,
}

/// One end of a connection.
#[derive(Debug)]
pub(crate) struct Link {
    qp: QueuePair,
    cq: CompletionQueue,
    own: PeerAddress,
    wait: cq::Wait,
    /// Without it there is nobody to wait for.
    peer: Peer,
    card: String,
}

/// A request that is done, and went well.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) kind: WorkKind,
    pub(crate) success: Success,
    pub(crate) buffers: Buffers,
}

/// The largest packets of a connection: the port's, or less where that was asked for.
fn path_mtu(card: &Card, args: &QueuePairArgs) -> Result<Mtu, Failure> {
    let active = card.parameters.mtu;
    match args.mtu() {
        Some(wanted) if wanted.bytes() > active.bytes() => {
            Err(Failure::new(Exit::Unavailable, format!("{} sends no packets of {wanted} bytes", card.name))
                .cause(format!("the active MTU of its port is {active}"))
                .fix("ask for a smaller --mtu, or raise the MTU of its net device: ip link set DEV mtu 4200"))
        }
        Some(wanted) => Ok(wanted),
        None => Ok(active),
    }
}

impl Link {
    /// Makes one end, which has an address to tell.
    pub(super) fn open(card: &Card, rules: &LinkRules, peer: &Peer) -> Result<Self, Failure> {
        let mut parameters = card.parameters.clone();
        parameters.access = rules.access;
        parameters.mtu = path_mtu(card, &rules.queue_pair)?;
        let inline = rules.queue_pair.inline_bytes;
        let open = || {
            let channel = card.context.create_comp_channel()?;
            let cq =
                CompletionQueueBuilder::new(rules.depth + RECEIVES).channel(&channel).build(&card.context)?;
            let mut builder = QueuePairBuilder::new(rules.queue_pair.kind(), &cq, &cq)
                .max_send_wr(rules.depth)
                .max_inline_data(inline)
                .max_recv_wr(RECEIVES);
            if !rules.operations.is_empty() {
                builder = builder.send_operations(rules.operations);
            }
            let qp = builder.build(&card.pd)?;
            let own = qp.to_init(&parameters)?;
            Ok((qp, cq, own))
        };
        let (qp, cq, own) = open().map_err(|error| match (inline, of_verbs(&error)) {
            // The sizes that a card has are its own: more inline bytes than that are something that it lacks.
            (1.., failure) if matches!(error, Error::Creation { .. }) => {
                Failure { exit: Exit::Unavailable, ..failure }
            }
            (_, failure) => failure,
        })?;
        let wait = match rules.wait {
            Wait::Busy => cq::Wait::Busy,
            Wait::Event => cq::Wait::Event,
            Wait::Adaptive => cq::Wait::default(),
        };
        Ok(Self { qp, cq, own, wait, peer: peer.clone(), card: card.name.clone() })
    }

    /// What the other end is told.
    pub(super) fn address(&self) -> PeerAddress {
        self.own
    }

    /// Brings it to where it sends and receives.
    pub(super) fn connect(&self, card: &Card, other: &PeerAddress) -> Result<(), Failure> {
        self.qp.connect(&card.parameters, &self.own, other).map_err(|error| of_verbs(&error))
    }

    /// Posts a request, whose completion is to be waited for.
    pub(crate) fn post(&self, request: SendRequest) -> Result<(), Failure> {
        self.qp.post_send(request).map_err(|refused| of_refusal(&refused.reason))
    }

    /// Posts several by one call, whose completions are to be waited for.
    pub(crate) fn post_list(&self, requests: &mut Vec<SendRequest>) -> Result<(), Failure> {
        self.qp.post_send_list(requests).map_err(|reason| of_refusal(&reason))
    }

    /// Posts a message that lies in a region.
    pub(crate) fn post_from(&self, part: RegionPart) -> Result<(), Failure> {
        self.qp.post_send_from(part, 0).map_err(|refused| of_refusal(&refused.reason))
    }

    /// Makes room for a message.
    pub(crate) fn post_recv(&self, slice: Slice) -> Result<(), Failure> {
        self.qp.post_recv(RecvRequest::new(slice)).map_err(|refused| of_refusal(&refused.reason))
    }

    /// Does it, and waits until it is done.
    pub(crate) fn run(&self, request: SendRequest) -> Result<Done, Failure> {
        self.post(request)?;
        self.complete()
    }

    /// Waits for the next request that is done.
    pub(crate) fn complete(&self) -> Result<Done, Failure> {
        let deadline = Instant::now() + PATIENCE;
        let mut poller = self.cq.poller();
        loop {
            let glance = Instant::now() + GLANCE;
            let mut completions = poller.wait(self.wait, Some(glance)).map_err(|error| of_verbs(&error))?;
            if let Some(completion) = completions.next() {
                let outcome = completion.outcome();
                let success = outcome.map_err(|failure| of_completion(&self.card, failure))?;
                return Ok(Done { kind: completion.kind(), success, buffers: completion.into_buffers() });
            }
            if let Some(reason) = self.peer.lost() {
                return Err(exit::lost(reason));
            }
            if Instant::now() >= deadline {
                return Err(Failure::new(
                    Exit::PeerLost,
                    format!("nothing has completed over {}", self.card),
                )
                .cause(format!("{PATIENCE:?} have passed, and the peer is there"))
                .fix("see the server's log, and what both cards count (rdma statistic)"));
            }
        }
    }
}
