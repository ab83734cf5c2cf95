//! Rails over verbs: each is one port of a card, with one reliable connection for each link.
//!
//! - A link is a queue pair. Its end is sent to the peer as bytes, and
//!   [`connect`](farreach_rail::Rail::connect) needs only the peer's end: there is no connection
//!   manager. The kernel resolves the peer's hardware address, which takes up to a second if there
//!   is no answer.
//! - Messages and immediates of peers use one shared receive queue, whose buffers are posted again
//!   automatically.
//! - Invariant: a completion queue has room for all completions that its links can have. The first
//!   one is made for [some links](VerbsSettings::links_at_first), and more are made as links are
//!   opened, so a process with two peers polls one queue, and one with 4,096 peers polls a few. The
//!   limits are the card's number of queue pairs, and memory: each link has a window of work
//!   requests in the card's format.
//! - If the card has memory windows of type 2, a key can be [bound](VerbsSettings::bind_keys) to the
//!   queue pair of its peer. All links share one protection domain.
//! - A link ends at its first failure, which is reported with its cause. Requests behind it are
//!   flushed, and counted.
//! - A peer that is gone is noticed only while something is in flight to it: in about two seconds,
//!   by [`ack_timeout`](VerbsSettings::ack_timeout). A peer that is alive and has no free receive
//!   buffer is waited for: the control connection knows whether it is alive.

mod account;
mod end;
mod error;
mod events;
mod links;
mod open;
mod ports;
mod post;
mod queues;
mod rail;
mod receives;
mod regions;
mod settings;
mod windows;

use std::collections::{HashMap, VecDeque};

use farreach_verbs::cq::WorkKind;
use farreach_verbs::event::AsyncEvents;
use farreach_verbs::pd::ProtectionDomain;
use farreach_verbs::qp::state::ConnectionParameters;
use farreach_verbs::qp::{QueuePair, QueuePairBuilder, QueuePairType};
use farreach_verbs::wakeup::Wakeup;

use self::account::{Account, Pending};
use self::error::{closed, told};
use self::links::{Link, LinkState};
use self::regions::Regions;
use self::windows::{BINDINGS_MAX, GrantKey};

pub use self::ports::{VerbsPort, rails, rails_named};
use self::queues::Queues;
pub use self::settings::VerbsSettings;
use farreach_rail::{KeyId, LinkKey, Properties, RailError};

/// A rail over one port of a card.
///
/// ```no_run
/// use farreach_rail::Rail;
/// use farreach::rails::verbs::{self, VerbsRail, VerbsSettings};
///
/// let settings = VerbsSettings::default();
/// let rail = &verbs::rails_named("rxe0", &settings)?[0];
/// let (mut here, mut there) = (VerbsRail::open(rail, &settings)?, VerbsRail::open(rail, &settings)?);
/// let ((link, end), (far_link, far_end)) = (here.open_link(farreach_rail::PeerKey(0))?, there.open_link(farreach_rail::PeerKey(0))?);
/// here.connect(link, &far_end)?;
/// there.connect(far_link, &end)?;
/// # Ok::<(), farreach_rail::RailError>(())
/// ```
#[derive(Debug)]
pub struct VerbsRail {
    properties: Properties,
    pd: ProtectionDomain,
    /// The parameters of every link.
    parameters: ConnectionParameters,
    account: Account,
    queues: Queues,
    keys: HashMap<KeyId, GrantKey>,
    regions: Regions,
    exposures_made: u64,
    /// Events that the next poll reports.
    backlog: VecDeque<Pending>,
    events: AsyncEvents,
    wakeup: Wakeup,
    polls: u32,
    /// Why the card cannot be used any more.
    broken: Option<RailError>,
}

/// Returns the number of bindings that a link of this rail may have in flight.
fn bindings_max(properties: &Properties) -> u32 {
    if properties.keys_are_bound { BINDINGS_MAX as u32 } else { 0 }
}

impl VerbsRail {
    /// Returns the number of requests that were flushed or returned because their link failed or
    /// was closed before they were done.
    pub fn given_up(&self) -> u64 {
        self.account.given_up
    }

    /// Returns the number of regions that were registered for windows of peers.
    pub fn regions_made(&self) -> u64 {
        self.regions.made()
    }

    fn make_queue_pair(&self, queue: usize) -> Result<QueuePair, farreach_verbs::Error> {
        let cq = self.queues.cq(queue);
        QueuePairBuilder::new(QueuePairType::Rc, cq, cq)
            .srq(self.account.receives.srq())
            // Bindings have room of their own, so that they take none of the window that the
            // machine fills.
            .max_send_wr(self.properties.window + bindings_max(&self.properties))
            .max_send_sge(self.properties.limits.pieces as u32)
            .build(&self.pd)
    }

    /// Returns an error if the port is not active. Without this check, the kernel would resolve the
    /// peer's hardware address for a second, during which the leader serves nothing else.
    fn look_at_port(&self, operation: &str) -> Result<(), RailError> {
        let port = self.parameters.port;
        let attributes =
            self.pd.context().query_port(port).map_err(|error| self.failed(operation, &error))?;
        let operation = format!("{operation} over {}", self.account.rail);
        ports::inactive(operation, port, &attributes).map_or(Ok(()), Err)
    }

    fn failed(&self, operation: &str, error: &farreach_verbs::Error) -> RailError {
        told(format!("{operation} over {}", self.account.rail), error)
    }

    /// Moves all completions of a queue into the backlog.
    fn drain(&mut self, queue: usize) -> Result<(), RailError> {
        let Self { queues, account, backlog, .. } = self;
        queues.drain(queue, |completion| {
            account.take(completion, &mut |event| backlog.push_back(event.into()));
        })?;
        account.receives.post()
    }

    /// Removes a link: moves its queue pair to the error state, moves its completions into the
    /// backlog, destroys the queue pair, and returns the requests that were still in flight.
    fn take_away(&mut self, key: LinkKey) -> Result<(), RailError> {
        let Some(link) = self.account.links.get_mut(key) else { return Ok(()) };
        // A queue pair that was never connected has received nothing, so it keeps no buffer.
        let was_connected = !matches!(link.state, LinkState::Made);
        link.end(&closed(&self.account.rail));
        let (queue, qp_num) = (link.queue, link.qp.qp_num());
        // First, because a completion tells what became of a request. The destroyed queue pair does
        // not.
        let drained = self.drain(queue);
        let Some(Link { qp, mut windows, .. }) = self.account.links.remove(key) else { return drained };
        // A queue pair that cannot be destroyed may still complete requests. It stays known, its
        // requests stay in flight, and the card is not used any more.
        let unfinished = qp.destroy_unfinished().map_err(|error| {
            let broken = self.failed("destroy a queue pair", &error);
            self.broken.insert(broken).clone()
        })?;
        let (account, backlog) = (&mut self.account, &mut self.backlog);
        let reason = closed(&account.rail);
        // Bindings are reported here, with their tags. The destroyed queue pair returns them once
        // more.
        windows.fail(key, &reason, &mut |event| backlog.push_back(event.into()));
        for request in unfinished.into_iter().filter(|request| request.kind != WorkKind::BindWindow) {
            account.give_up(request, &mut |event| backlog.push_back(event.into()));
        }
        // Remaining completions of this queue pair would occupy the room of later ones.
        let drained = drained.and(self.drain(queue));
        // Only now: completions were attributed by this number, and the card may use it again.
        self.account.links.forget(qp_num);
        self.queues.leave(queue);
        let receives = &mut self.account.receives;
        drained.and(match (was_connected, self.account.links.is_empty()) {
            (true, true) => receives.renew(),
            (true, false) => receives.replace_one(),
            (false, _) => Ok(()),
        })
    }
}
