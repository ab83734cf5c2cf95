//! A queue pair with a completion queue of its own, for use by one thread.

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

/// How long a work request may take. A card aborts one much sooner, but a message may be long in
/// coming.
const PATIENCE: Duration = Duration::from_secs(30);

/// Receive requests: no test has more in flight.
const RECEIVES: u32 = 1;

/// The requirements of a test on its queue pairs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LinkRules {
    /// The number of queue pairs.
    pub(crate) count: usize,
    /// Work requests in flight on each.
    pub(crate) depth: u32,
    /// The access rights of the peer.
    pub(crate) access: AccessFlags,
    /// Operations that have to be declared when a queue pair is created.
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
    /// Needed to detect that the peer is lost.
    peer: Peer,
    card: String,
}

/// A work request that completed with success.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) kind: WorkKind,
    pub(crate) success: Success,
    pub(crate) buffers: Buffers,
}

/// Returns the path MTU of a connection: the port's, or a smaller one on request.
fn path_mtu(card: &Card, args: &QueuePairArgs) -> Result<Mtu, Failure> {
    let active = card.parameters.mtu;
    match args.mtu() {
        Some(wanted) if wanted.bytes() > active.bytes() => Err(Failure::new(
            Exit::Unavailable,
            format!("{} cannot use a path MTU of {wanted} bytes", card.name),
        )
        .cause(format!("the active MTU of its port is {active} bytes"))
        .fix("use a smaller --mtu, or raise the MTU of its network interface:\nip link set DEV mtu 4200")),
        Some(wanted) => Ok(wanted),
        None => Ok(active),
    }
}

impl Link {
    /// Creates one end. Its address is then known.
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
            // Cards differ in their limits: a request for more inline bytes than a card has is a
            // missing feature.
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

    /// Returns the address for the other end.
    pub(super) fn address(&self) -> PeerAddress {
        self.own
    }

    /// Connects the queue pair, so that it can send and receive.
    pub(super) fn connect(&self, card: &Card, other: &PeerAddress) -> Result<(), Failure> {
        self.qp.connect(&card.parameters, &self.own, other).map_err(|error| of_verbs(&error))
    }

    /// Posts a work request. The caller has to wait for its completion.
    pub(crate) fn post(&self, request: SendRequest) -> Result<(), Failure> {
        self.qp.post_send(request).map_err(|refused| of_refusal(&refused.reason))
    }

    /// Posts several work requests by one call. The caller has to wait for their completions.
    pub(crate) fn post_list(&self, requests: &mut Vec<SendRequest>) -> Result<(), Failure> {
        self.qp.post_send_list(requests).map_err(|reason| of_refusal(&reason))
    }

    /// Posts a send of a part of a region.
    pub(crate) fn post_from(&self, part: RegionPart) -> Result<(), Failure> {
        self.qp.post_send_from(part, 0).map_err(|refused| of_refusal(&refused.reason))
    }

    /// Posts a receive request.
    pub(crate) fn post_recv(&self, slice: Slice) -> Result<(), Failure> {
        self.qp.post_recv(RecvRequest::new(slice)).map_err(|refused| of_refusal(&refused.reason))
    }

    /// Posts a work request and waits for its completion.
    pub(crate) fn run(&self, request: SendRequest) -> Result<Done, Failure> {
        self.post(request)?;
        self.complete()
    }

    /// Waits for the next completion.
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
                    format!("no work request has completed on {}", self.card),
                )
                .cause(format!("the timeout of {PATIENCE:?} has passed, and the peer is still connected"))
                .fix("check the server's log, and the counters of both cards:\nrdma statistic"));
            }
        }
    }
}
