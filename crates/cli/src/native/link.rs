//! A queue pair with a completion queue of its own, for use by one thread.

use std::time::{Duration, Instant};

use farreach::{Peer, Slice};
use farreach_verbs::Error;
use farreach_verbs::ah::AddressHandle;
use farreach_verbs::cq::{self, CompletionQueue, CompletionQueueBuilder, Success, WorkKind};
use farreach_verbs::mr::AccessFlags;
use farreach_verbs::port::Mtu;
use farreach_verbs::qp::state::PeerAddress;
use farreach_verbs::qp::{QueuePair, QueuePairBuilder, QueuePairType, SendOperations};
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

/// Receive requests of a test that posts them itself: one at a time.
const RECEIVES: u32 = 1;

/// The requirements of a test on its queue pairs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LinkRules {
    /// The number of queue pairs.
    pub(crate) count: usize,
    /// Work requests in flight on each.
    pub(crate) depth: u32,
    /// Receive requests that are posted before the peer can send. `None` if the test posts its own.
    pub(crate) receives: Option<Receives>,
    /// The access rights of the peer.
    pub(crate) access: AccessFlags,
    /// Operations that have to be declared when a queue pair is created.
    pub(crate) operations: SendOperations,
    pub(crate) queue_pair: QueuePairArgs,
    pub(crate) wait: Wait,
}

/// Receive requests of one length.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Receives {
    pub(crate) count: u32,
    pub(crate) len: usize,
}

/// One end of a connection.
#[derive(Debug)]
pub(crate) struct Link {
    qp: QueuePair,
    cq: CompletionQueue,
    own: PeerAddress,
    /// The destination of datagrams.
    destination: Option<Destination>,
    wait: cq::Wait,
    /// Needed to detect that the peer is lost.
    peer: Peer,
    card: String,
}

#[derive(Debug)]
struct Destination {
    ah: AddressHandle,
    qp_num: u32,
    qkey: u32,
}

/// A work request that completed with success.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) kind: WorkKind,
    pub(crate) success: Success,
    pub(crate) buffers: Buffers,
}

/// Returns the path MTU of a connection: the port's, or a smaller one on request.
pub(super) fn path_mtu(card: &Card, args: &QueuePairArgs) -> Result<Mtu, Failure> {
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
        let receives = rules.receives.map_or(RECEIVES, |receives| receives.count);
        let open = || {
            let channel = card.context.create_comp_channel()?;
            let cq =
                CompletionQueueBuilder::new(rules.depth + receives).channel(&channel).build(&card.context)?;
            let mut builder = QueuePairBuilder::new(rules.queue_pair.kind(), &cq, &cq)
                .max_send_wr(rules.depth)
                .max_inline_data(inline)
                .max_recv_wr(receives);
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
        let (peer, name) = (peer.clone(), card.name.clone());
        let link = Self { qp, cq, own, destination: None, wait, peer, card: name };
        if let Some(Receives { count, len }) = rules.receives {
            for _ in 0..count {
                link.post_recv(card.allocate(len)?)?;
            }
        }
        Ok(link)
    }

    /// Returns the address for the other end.
    pub(super) fn address(&self) -> PeerAddress {
        self.own
    }

    /// Connects the queue pair, so that it can send and receive.
    pub(super) fn connect(&mut self, card: &Card, other: &PeerAddress) -> Result<(), Failure> {
        let connected = if self.qp.kind() == QueuePairType::Ud {
            self.activate(card, other)
        } else {
            self.qp.connect(&card.parameters, &self.own, other)
        };
        connected.map_err(|error| of_verbs(&error))
    }

    /// Makes a queue pair for datagrams ready.
    fn activate(&mut self, card: &Card, other: &PeerAddress) -> Result<(), Error> {
        self.qp.activate(&card.parameters, &self.own)?;
        let ah = card.pd.create_ah(&card.parameters.address_of(other))?;
        self.destination = Some(Destination { ah, qp_num: other.qp_num, qkey: other.qkey });
        Ok(())
    }

    /// Adds the destination to a message, if this link has datagrams.
    pub(super) fn addressed(&self, request: SendRequest) -> SendRequest {
        match &self.destination {
            Some(to) => request.to(&to.ah, to.qp_num, to.qkey),
            None => request,
        }
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
        loop {
            if let Some(done) = self.complete_within(GLANCE)? {
                return Ok(done);
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

    /// Waits for the next completion. Returns `None` after this time.
    pub(super) fn complete_within(&self, time: Duration) -> Result<Option<Done>, Failure> {
        let mut poller = self.cq.poller();
        let deadline = Instant::now() + time;
        let mut completions = poller.wait(self.wait, Some(deadline)).map_err(|error| of_verbs(&error))?;
        if let Some(completion) = completions.next() {
            let outcome = completion.outcome();
            let success = outcome.map_err(|failure| of_completion(&self.card, failure))?;
            return Ok(Some(Done { kind: completion.kind(), success, buffers: completion.into_buffers() }));
        }
        match self.peer.lost() {
            Some(reason) => Err(exit::lost(reason)),
            None => Ok(None),
        }
    }
}
