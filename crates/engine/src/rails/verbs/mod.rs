//! Rails over verbs: one port of a card each, and a reliable connection for every link.
//!
//! - A link is a queue pair. Its end goes to the peer as bytes, and [`connect`](farreach_rail::Rail::connect) needs nothing but the peer's: there is no
//!   connection manager in between. Resolving the peer's hardware address is the kernel's, and takes up to a second where nobody answers.
//! - What peers send comes into one shared queue of buffers, which go back into it by themselves.
//! - Completion queues hold all that can be in flight, by construction. The first one is made for
//!   [some links](VerbsSettings::links_at_first), and more are made as links come: so a process with two peers polls one queue, and one with 4,096
//!   a few. What ends it is the card's number of queue pairs, and memory: each link has a window of requests in the card's form.
//! - A link ends at its first failure, which is told with its cause. What was behind it is given up, and counted.
//! - A peer that is gone is noticed when something is under way to it: in about two seconds, by [`ack_timeout`](VerbsSettings::ack_timeout).
//!   One that stays and makes no room for messages is waited for: the control channel knows whether it lives.

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
mod settings;

use std::collections::{HashMap, VecDeque};

use farreach_verbs::event::AsyncEvents;
use farreach_verbs::pd::ProtectionDomain;
use farreach_verbs::qp::state::ConnectionParameters;
use farreach_verbs::qp::{QueuePair, QueuePairBuilder, QueuePairType};
use farreach_verbs::region::ExposedKey;
use farreach_verbs::wakeup::Wakeup;

use self::account::{Account, Pending};
use self::error::{closed, told};
use self::links::LinkState;

pub use self::ports::{VerbsPort, rails, rails_named};
use self::queues::Queues;
pub use self::settings::VerbsSettings;
use farreach_rail::{LinkKey, Properties, RailError};

/// A rail over one port of a card.
///
/// ```no_run
/// use farreach_rail::Rail;
/// use farreach::rails::verbs::{self, VerbsRail, VerbsSettings};
///
/// let settings = VerbsSettings::default();
/// let rail = &verbs::rails_named("rxe0", &settings)?[0];
/// let (mut here, mut there) = (VerbsRail::open(rail, &settings)?, VerbsRail::open(rail, &settings)?);
/// let ((link, end), (far_link, far_end)) = (here.open_link()?, there.open_link()?);
/// here.connect(link, &far_end)?;
/// there.connect(far_link, &end)?;
/// # Ok::<(), farreach_rail::RailError>(())
/// ```
#[derive(Debug)]
pub struct VerbsRail {
    properties: Properties,
    pd: ProtectionDomain,
    /// Of every link.
    parameters: ConnectionParameters,
    account: Account,
    queues: Queues,
    keys: HashMap<u64, ExposedKey>,
    exposures_made: u64,
    /// Events that no poll has told yet.
    backlog: VecDeque<Pending>,
    events: AsyncEvents,
    wakeup: Wakeup,
    polls: u32,
    /// Why the card is of no use any more.
    broken: Option<RailError>,
}

impl VerbsRail {
    /// Requests that were given up so far, because their link had failed or was closed before they were done.
    pub fn given_up(&self) -> u64 {
        self.account.given_up
    }

    fn make_queue_pair(&self, queue: usize) -> Result<QueuePair, farreach_verbs::Error> {
        let cq = self.queues.cq(queue);
        QueuePairBuilder::new(QueuePairType::Rc, cq, cq)
            .srq(self.account.receives.srq())
            .max_send_wr(self.properties.window)
            .max_send_sge(self.properties.limits.pieces as u32)
            .build(&self.pd)
    }

    /// An error while the port carries nothing: the kernel would look for the peer's hardware address all the same, for a second in which nobody
    /// is served.
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

    /// All that a completion queue holds goes into the backlog.
    fn drain(&mut self, queue: usize) -> Result<(), RailError> {
        let Self { queues, account, backlog, .. } = self;
        queues.drain(queue, |completion| {
            account.take(completion, &mut |event| backlog.push_back(event.into()));
        })?;
        account.receives.post()
    }

    /// Takes a link away: its queue pair to error, what has completed into the backlog, the queue pair destroyed, and the rest that
    /// was in flight behind it.
    fn take_away(&mut self, key: LinkKey) -> Result<(), RailError> {
        let Some(link) = self.account.links.get_mut(key) else { return Ok(()) };
        let was_connected = !matches!(link.state, LinkState::Made);
        link.end(&closed(&self.account.rail));
        let (queue, qp_num) = (link.queue, link.qp.qp_num());
        let drained = self.drain(queue);
        let Some(link) = self.account.links.remove(key) else { return drained };
        // What cannot be destroyed may complete still: it stays known, and in flight, and the card is not to be trusted any more.
        let unfinished = link.qp.destroy_unfinished().map_err(|error| {
            let broken = self.failed("destroy a queue pair", &error);
            self.broken.insert(broken).clone()
        })?;
        let (account, backlog) = (&mut self.account, &mut self.backlog);
        for request in unfinished {
            account.give_up(request, &mut |event| backlog.push_back(event.into()));
        }
        // Completions of its own, which nobody needs any more, would take the room of those to come.
        let drained = drained.and(self.drain(queue));
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
