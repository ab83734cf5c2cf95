//! Shared counters: how many pages have arrived from several peers.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use farreach_proto::counter::{CounterId, Outcome};
use farreach_proto::error::OpenError;
use farreach_proto::ids::SharedCounterId;
use farreach_proto::machine::PeerKey;
use farreach_proto::time::Time;

use crate::delivery::Waiter;
use crate::driver::{Command, Driver};
use crate::engine::Engine;
use crate::hung_call::Timeout;
use crate::peer::Peers;
use crate::pending::{Answer, Making, Pending};
use crate::progress::{Awaited, Listener, oneshot};
use crate::running::Running;
use crate::shared_cell::SharedCell;
use crate::watch::{CounterCell, PeerCell, Watcher};
use crate::{Access, Error, ParseTokenError, Peer, RemoteCounter};

/// Counts the pages that several peers have written, their sum and those of each.
///
/// Each permitted peer [opens](Peer::open_shared_counter) it by its [token](Self::token), and raises it
/// by its transfers from then on. A peer that is lost has it open no more; its pages stay in the sum. If
/// the same process connects again, it is another peer, and opens it again.
///
/// When a number has been reached, the bytes of that many pages have arrived, and are visible to a
/// thread that has seen the number, as with a [`Counter`](crate::Counter) of one peer.
///
/// ```
/// use std::time::Duration;
/// use farreach::{Access, Engine, PageMap, Rights};
///
/// const SOON: Duration = Duration::from_secs(5);
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = Engine::new()?;
/// let address = store.listen("127.0.0.1:0")?;
/// let arrived = store.open_counter(Access::Anyone).wait(SOON)?;
///
/// let writers = [Engine::new()?, Engine::new()?];
/// let mut peers = Vec::new();
/// let mut transfers = Vec::new();
/// for writer in &writers {
///     let to_store = writer.connect(address)?.wait(SOON)?;
///     let peer = store.accept().wait(SOON)?;
///     let grant = peer.grant(store.allocate(16 * 4096).wait(SOON)?, Rights::WRITE).wait(SOON)?;
///
///     let remote = to_store.remote(grant.token()).wait(SOON)?;
///     let counter = to_store.open_shared_counter(arrived.token()).wait(SOON)?;
///     let source = writer.allocate(16 * 4096).wait(SOON)?;
///     let map = PageMap::of(4096).first(16);
///     transfers.push(to_store.write_pages(source, &map, &remote, Some(&counter)));
///     peers.push((to_store, peer, grant));
/// }
///
/// arrived.reach_each(16).wait(SOON)?;
/// assert_eq!((arrived.reached(), arrived.peers()), (32, 2));
/// # for transfer in &mut transfers {
/// #     transfer.wait(SOON)?;
/// # }
/// # Ok(())
/// # }
/// ```
pub struct SharedCounter {
    progress: Arc<Running>,
    roster: Arc<Peers>,
    id: SharedCounterId,
    cell: Arc<SharedCell>,
}

impl Engine {
    /// Opens a counter that every peer raises that `access` permits and that opens it by its token. For a
    /// counter that one peer raises, [`Peer::open_counter`] needs no token of its own.
    ///
    /// Names in `access` need [`Settings::tls`](crate::Settings::tls); otherwise the error has the kind
    /// [`ErrorKind::Tls`](crate::ErrorKind::Tls).
    pub fn open_counter(&self, access: Access) -> Pending<SharedCounter> {
        type Made = (SharedCounterId, Arc<SharedCell>);

        let (progress, roster) = (Arc::clone(self.running()), Arc::clone(self.roster()));
        // Without TLS no peer has a name, so nobody could open the counter.
        if matches!(access, Access::Only(_)) && !self.has_tls() {
            return Pending::finished(&progress, Err(Error::no_names_for("a counter")));
        }
        let make = move |driver: &mut Driver, _| {
            // The cell is made in the same command: no peer can open the counter before it is
            // there.
            let id = driver.machine.share_counter(access);
            (id, driver.delivery.add_shared_counter(id))
        };
        let finish = move |made: Result<Made, Error>| {
            let (id, cell) = made?;
            Ok(SharedCounter { progress: Arc::clone(&progress), roster: Arc::clone(&roster), id, cell })
        };
        let undo = |driver: &mut Driver, now, (id, _): Made| close(driver, id, now);
        let making = Making::new(self.running(), "open a counter", make, finish, undo);
        Pending::new(self.running(), making)
    }
}

fn close(driver: &mut Driver, id: SharedCounterId, now: Time) {
    driver.machine.close_shared_counter(id, now);
    driver.delivery.remove_shared_counter(id);
}

impl SharedCounter {
    /// Returns the token of the counter, for peers.
    pub fn token(&self) -> SharedCounterToken {
        SharedCounterToken(self.id.to_raw())
    }

    /// Permits peers whose certificate has this name, in addition to those before. An error if
    /// everybody may open it.
    pub fn admit(&self, name: &str) -> Pending<()> {
        let (id, name) = (self.id, name.to_owned());
        Pending::call(&self.progress, "admit a name", move |driver, _| {
            driver.machine.admit_to_counter(id, &name).then_some(()).ok_or_else(Error::not_admitted)
        })
    }

    /// Returns how many pages have arrived from all peers, also from lost ones. Their bytes are visible
    /// to the caller.
    pub fn reached(&self) -> u64 {
        self.cell.total()
    }

    /// Returns how many pages have arrived from a peer; `None` if it does not have the counter open.
    pub fn reached_by(&self, peer: &Peer) -> Option<u64> {
        self.cell.reached_by(peer.key())
    }

    /// Returns the number of peers that have the counter open: lost ones do not.
    pub fn peers(&self) -> usize {
        self.cell.count()
    }

    /// Returns a wait until `peers` peers at least have the counter open.
    ///
    /// It ends with [`ErrorKind::Ended`](crate::ErrorKind::Ended) if the engine was closed, or its last
    /// handle dropped, and no peer is left.
    pub fn opened_by(&self, peers: usize) -> Pending<()> {
        self.wait(Goal::Peers(peers))
    }

    /// Returns a wait for `pages` pages in total, from whichever peers, also from those that open the
    /// counter later and those that were lost.
    ///
    /// It ends with [`ErrorKind::PeerLost`](crate::ErrorKind::PeerLost) if a peer that has the counter
    /// open is lost after this call, and with [`ErrorKind::Aborted`](crate::ErrorKind::Aborted) if one
    /// aborts a transfer: the pages may not arrive any more. Pages that have arrived count even then. A
    /// program that expects the pages of others can wait again: each loss ends a wait once. It ends with
    /// [`ErrorKind::Ended`](crate::ErrorKind::Ended) if the engine was closed, or its last handle
    /// dropped, and no peer is left.
    ///
    /// The cost of a wakeup does not depend on the number of peers. The first wait costs a step for each
    /// of them, so that they are pinged meanwhile.
    pub fn reach(&self, pages: u64) -> Pending<()> {
        // Only losses and aborted transfers after this call end the wait.
        self.wait(Goal::Total { pages, ends: self.cell.ends() })
    }

    /// Returns a wait for `pages` pages from each of the peers that have the counter open at this call.
    /// [`opened_by`](Self::opened_by) waits for them to open it. Peers that open it later do not count.
    ///
    /// It ends with [`ErrorKind::PeerLost`](crate::ErrorKind::PeerLost) or
    /// [`ErrorKind::Aborted`](crate::ErrorKind::Aborted) if one of them is lost, or aborts a transfer,
    /// before its pages have arrived, and does so again if it is repeated. Another call waits for the
    /// rest. If no peer has it open, the error has the kind
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument).
    ///
    /// All wakeups of a wait together cost a constant time for each peer, for each wakeup, and for each
    /// pair of a loss and a peer.
    pub fn reach_each(&self, pages: u64) -> Pending<()> {
        // Read first: a loss after it is seen.
        let ends = AtomicU64::new(self.cell.ends());
        let counters = self.cell.counters();
        if counters.is_empty() {
            return Pending::finished(&self.progress, Err(Error::not_opened_by_anyone()));
        }
        self.wait(Goal::Each { pages, counters, reached: AtomicUsize::new(0), ends })
    }

    fn wait(&self, goal: Goal) -> Pending<()> {
        let (progress, roster, cell) =
            (Arc::clone(&self.progress), Arc::clone(&self.roster), Arc::clone(&self.cell));
        // The second one is notified, among others, when the engine is closed or its last peer is
        // lost.
        let watchers = [self.cell.watch.watcher(), self.roster.news().events.watch.watcher()];
        let arrival = Arrival { progress, roster, cell, watchers, goal, is_waiting: false };
        Pending::new(&self.progress, arrival)
    }
}

impl Drop for SharedCounter {
    fn drop(&mut self) {
        let id = self.id;
        self.progress.submit(Command::Call(Box::new(move |driver, now| close(driver, id, now))));
    }
}

impl fmt::Debug for SharedCounter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("SharedCounter");
        shown.field("token", &self.token()).field("reached", &self.reached());
        shown.field("peers", &self.peers()).finish()
    }
}

/// What a wait is for.
enum Goal {
    Peers(usize),
    Total {
        pages: u64,
        /// The ends that the wait has reported, or that were before it.
        ends: u64,
    },
    Each {
        pages: u64,
        counters: Vec<(Arc<CounterCell>, Arc<PeerCell>)>,
        /// The number of counters, from the first one on, that have reached it. They stay so, and are not
        /// looked at again.
        reached: AtomicUsize,
        /// The ends that were before all counters were last looked at.
        ends: AtomicU64,
    },
}

/// The end of a wait.
enum End {
    Reached,
    Lost(Arc<PeerCell>),
    Aborted,
}

struct Arrival {
    progress: Arc<Running>,
    roster: Arc<Peers>,
    cell: Arc<SharedCell>,
    /// Of the counter, and of the end of the engine.
    watchers: [Watcher; 2],
    goal: Goal,
    is_waiting: bool,
}

impl Arrival {
    fn end(&self) -> Option<End> {
        // Ends are read first, so that all pages that arrived before them are seen.
        let ends = self.cell.ends();
        match &self.goal {
            Goal::Peers(peers) => (self.cell.count() >= *peers).then_some(End::Reached),
            // Pages that have arrived count, whatever happened to their peers.
            Goal::Total { pages, .. } if self.cell.total() >= *pages => Some(End::Reached),
            Goal::Total { ends: before, .. } if ends == *before => None,
            Goal::Total { .. } => Some(match self.cell.last_lost() {
                Some(peer) => End::Lost(peer),
                None => End::Aborted,
            }),
            Goal::Each { pages, counters, reached, ends: before } => {
                let mut first = reached.load(Ordering::SeqCst);
                let outcome = |index: usize| counters.get(index).map(|(counter, _)| counter.outcome(*pages));
                while matches!(outcome(first), Some(Some(Outcome::Reached))) {
                    first += 1;
                }
                // Counters only rise, so the next look begins here.
                reached.store(first, Ordering::SeqCst);
                if first == counters.len() {
                    return Some(End::Reached);
                }
                // Nothing has ended since all counters were looked at, so there is no need to do it
                // again.
                if before.load(Ordering::SeqCst) == ends {
                    return None;
                }
                let ended =
                    counters[first..].iter().find_map(|(counter, peer)| match counter.outcome(*pages) {
                        Some(Outcome::PeerLost) => Some(End::Lost(Arc::clone(peer))),
                        Some(Outcome::Aborted) => Some(End::Aborted),
                        _ => None,
                    });
                // As long as there is one, they are looked at again.
                if ended.is_none() {
                    before.store(ends, Ordering::SeqCst);
                }
                ended
            }
        }
    }
}

impl Answer<Result<(), Error>> for Arrival {
    fn is_ready(&self) -> bool {
        self.end().is_some() || self.roster.is_over()
    }

    fn listen(&self, listener: &Listener) {
        self.watchers.iter().for_each(|watcher| watcher.listen(listener));
    }

    fn take(&mut self) -> Option<Result<(), Error>> {
        // Read first: pages from before the end of the engine are seen.
        let is_over = self.roster.is_over();
        let end = self.end();
        if end.is_none() && !is_over {
            return None;
        }
        self.end_wait();
        if let Goal::Total { ends, .. } = &mut self.goal {
            // A wait that is repeated is for the others.
            *ends = self.cell.ends();
        }
        Some(match end {
            Some(End::Reached) => Ok(()),
            Some(End::Aborted) => Error::of_arrival(Outcome::Aborted, None),
            Some(End::Lost(peer)) => Error::of_arrival(Outcome::PeerLost, peer.lost()),
            None => Err(Error::ended()),
        })
    }

    fn begin_wait(&mut self) {
        if !std::mem::replace(&mut self.is_waiting, true) {
            let watched = self.cell.begin_wait();
            watched.into_iter().for_each(|key| self.progress.submit(Command::Watch(key)));
        }
    }

    fn end_wait(&mut self) {
        if std::mem::take(&mut self.is_waiting) {
            self.cell.end_wait();
        }
    }

    fn timed_out(&mut self, timeout: &Timeout) -> Result<(), Error> {
        let told = match &self.goal {
            Goal::Peers(peers) => format!("wait for {peers} peers ({} have opened it)", self.cell.count()),
            Goal::Total { pages, .. } => {
                format!("wait for {pages} pages ({} have arrived)", self.cell.total())
            }
            Goal::Each { pages, counters, .. } => {
                let has_them = |(counter, _): &&(Arc<CounterCell>, _)| counter.reached() >= *pages;
                let (done, all) = (counters.iter().filter(has_them).count(), counters.len());
                format!("wait for {pages} pages of each of {all} peers ({done} have written them)")
            }
        };
        Err(Error::timed_out(&told, timeout))
    }

    fn ended(&mut self) -> Result<(), Error> {
        Err(Error::ended())
    }
}

impl Drop for Arrival {
    fn drop(&mut self) {
        self.end_wait();
    }
}

impl Peer {
    /// Opens a counter that the peer [shares](crate::Engine::open_counter), by its token. The peer's
    /// engine answers, without its program. A second call returns the same counter.
    ///
    /// The error has the kind [`ErrorKind::NotGranted`](crate::ErrorKind::NotGranted) if there is no such
    /// counter, or its owner does not permit this side.
    pub fn open_shared_counter(&self, token: SharedCounterToken) -> Pending<RemoteCounter> {
        let (sender, receiver) = oneshot::channel();
        let key = self.key();
        let call = move |driver: &mut Driver, now: Time| {
            let op = driver.delivery.wait_for(Waiter::CounterOpened(sender));
            driver.machine.open_shared_counter(op, key, SharedCounterId::from_raw(token.0), now);
        };
        self.running().submit(Command::Call(Box::new(call)));
        Pending::new(self.running(), OpeningCounter { receiver, key, cell: Arc::clone(self.cell()) })
    }
}

/// A request to open a shared counter of a peer.
struct OpeningCounter {
    receiver: oneshot::Receiver<Result<CounterId, OpenError>>,
    key: PeerKey,
    cell: Arc<PeerCell>,
}

impl Answer<Result<RemoteCounter, Error>> for OpeningCounter {
    fn is_ready(&self) -> bool {
        self.receiver.is_ready()
    }

    fn listen(&self, listener: &Listener) {
        self.receiver.listen(listener);
    }

    fn take(&mut self) -> Option<Result<RemoteCounter, Error>> {
        Some(match self.receiver.take()? {
            Ok(Ok(counter)) => Ok(RemoteCounter::of(self.key, counter)),
            Ok(Err(OpenError::PeerLost { reason })) => Err(Error::peer_lost(&self.cell.why(reason))),
            Ok(Err(error)) => Err(Error::counter_not_opened(&error)),
            Err(_) => Err(Error::ended()),
        })
    }

    fn timed_out(&mut self, timeout: &Timeout) -> Result<RemoteCounter, Error> {
        Err(Error::timed_out("open a shared counter", timeout))
    }

    fn ended(&mut self) -> Result<RemoteCounter, Error> {
        Err(Error::ended())
    }
}

/// The token of a shared counter. A program sends it to peers as text, or by serde.
///
/// ```
/// use farreach::SharedCounterToken;
///
/// let token: SharedCounterToken = "s-7".parse()?;
/// assert_eq!(token.to_string(), "s-7");
/// # Ok::<(), farreach::ParseTokenError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct SharedCounterToken(u64);

impl fmt::Display for SharedCounterToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s-{:x}", self.0)
    }
}

impl FromStr for SharedCounterToken {
    type Err = ParseTokenError;

    fn from_str(text: &str) -> Result<Self, ParseTokenError> {
        crate::token::parse(text, "s-").map(Self).ok_or(ParseTokenError { what: "shared counter" })
    }
}
