//! The other side.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use farreach_memory::Exposed;
use farreach_proto::machine::{AtomicOperation, Direction, NewAtomic, NewTransfer, PeerKey};
use farreach_proto::plan::Plan;
use farreach_rail::Held;

use crate::delivery::{Waiter, next_op};
use crate::driver::{Command, Driver};
use crate::error::{Error, TransferError, TransferReason};
use crate::grant::PeerKeyTag;
use crate::pending::{Answer, Pending, sealed::Sealed};
use crate::progress::{Awaited, Listener, oneshot};
use crate::rail::RailError;
use crate::running::Running;
use crate::transfer::PagesMoved;
use crate::watch::{PeerCell, Watcher};
use crate::{
    AtomicError, Buffer, Counter, CounterToken, Explanation, Grant, GrantToken, LostReason, PageMap,
    RemoteSlice, Rights, SendError, Slice, Transfer,
};

/// Another engine, connected to this one. Clones are the same peer; when the last one is dropped, it is told goodbye.
///
/// A peer that was lost stays lost: whoever comes again is another one.
///
/// ```no_run
/// # fn greet(peer: &farreach::Peer) -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
///
/// peer.send("hello").wait(Duration::from_secs(1))?;
/// let answer = peer.recv().wait(Duration::from_secs(1))?;
/// println!("{}: {}", peer.name(), String::from_utf8_lossy(&answer));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Peer(Arc<Inner>);

struct Inner {
    progress: Arc<Running>,
    key: PeerKey,
    cell: Arc<PeerCell>,
    address: SocketAddr,
    /// Messages that were taken, and that the peer was not told of.
    taken: AtomicU32,
    messages: u32,
}

impl Drop for Inner {
    fn drop(&mut self) {
        let key = self.key;
        let call = move |driver: &mut Driver, now: u64| driver.machine.leave(key, now);
        self.progress.submit(Command::Call(Box::new(call)));
    }
}

impl Peer {
    pub(crate) fn new(
        progress: &Arc<Running>,
        key: PeerKey,
        cell: Arc<PeerCell>,
        address: SocketAddr,
        messages: u32,
    ) -> Self {
        let (progress, taken) = (Arc::clone(progress), AtomicU32::new(0));
        Self(Arc::new(Inner { progress, key, cell, address, taken, messages }))
    }

    /// What it calls itself.
    pub fn name(&self) -> &str {
        self.0.cell.name()
    }

    /// Where its control connection goes.
    pub fn address(&self) -> SocketAddr {
        self.0.address
    }

    /// The rails that are ready, by this side's names.
    pub fn rails(&self) -> Vec<String> {
        self.0.cell.rails()
    }

    /// Why it is lost, if it is.
    pub fn lost(&self) -> Option<&LostReason> {
        self.0.cell.lost()
    }

    /// What has gone wrong with its links, the last few.
    pub fn notes(&self) -> Vec<RailError> {
        self.0.cell.notes()
    }

    /// Bytes that this side's engine holds for it: its tables, and messages that nobody has taken or that wait to be sent. Not those that
    /// the rails' libraries hold, which do not tell.
    ///
    /// It is a few KiB. What a peer sends unasked has a bound, by [`Settings::messages`](crate::Settings::messages); the rest grows with
    /// what is asked of it here: operations up to [`Settings::depth`](crate::Settings::depth), four bytes a page and side of transfers that
    /// are not done, and what it has granted. A peer that is lost takes none.
    pub fn memory(&self) -> Result<usize, Error> {
        let key = self.0.key;
        let held = self.call(move |driver, _| driver.peer_memory(key))?;
        Ok(held.unwrap_or(0))
    }

    fn pending<A: Answer>(&self, answer: A) -> Pending<A> {
        Pending { progress: Arc::clone(&self.0.progress), answer }
    }

    fn call<T: Send + 'static>(
        &self,
        call: impl FnOnce(&mut Driver, u64) -> T + Send + 'static,
    ) -> Result<T, Error> {
        crate::engine::call(&self.0.progress, call)
    }

    /// Lets the peer at a slice, or at memory that was granted before and is not proven to be free. On failure it is handed back.
    pub fn grant(&self, memory: impl Into<Exposed>, rights: Rights) -> Result<Grant, GrantError> {
        let (key, memory) = (self.0.key, memory.into());
        match self
            .call(move |driver, now| driver.carrier.grant(&mut driver.machine, key, memory, rights, now))
        {
            Ok(Ok(made)) => Ok(Grant { peer: self.clone(), id: made.id, memory: Some(made.memory) }),
            Ok(Err((error, memory))) => {
                let lost = self.lost().map(|reason| Error::PeerLost { reason: reason.clone() });
                Err(GrantError { error: lost.unwrap_or_else(|| error.into()), memory })
            }
            Err(error) => Err(GrantError { error, memory: None }),
        }
    }

    /// A counter that this peer raises.
    pub fn counter(&self) -> Result<Counter, Error> {
        let key = self.0.key;
        let opened = self.call(move |driver, now| {
            let id = driver.machine.open_counter(key, now)?;
            Some((id, driver.delivery.add_counter(id)))
        })?;
        let (id, cell) = match (opened, self.lost()) {
            (Some(opened), _) => opened,
            (None, Some(reason)) => return Err(Error::PeerLost { reason: reason.clone() }),
            (None, None) => return Err(Error::TooMany { what: "counters" }),
        };
        Ok(Counter { progress: Arc::clone(&self.0.progress), id, cell })
    }

    /// Memory that the peer has granted to us, by the token that it has sent: it may come before the grant itself does.
    pub fn remote(&self, token: GrantToken) -> Pending<Offer<RemoteSlice>> {
        let key = self.0.key;
        let find = move |driver: &mut Driver| {
            let (len, rights) = driver.machine.granted(key, token.id())?;
            Some(RemoteSlice { peer: PeerKeyTag(key), grant: token.id(), offset: 0, len, rights })
        };
        self.offer("memory", find)
    }

    /// A counter of the peer's that we raise, by the token that it has sent.
    pub fn remote_counter(&self, token: CounterToken) -> Pending<Offer<RemoteCounter>> {
        let key = self.0.key;
        let find = move |driver: &mut Driver| {
            let is_known = driver.machine.knows_counter(key, token.id());
            is_known.then_some(RemoteCounter { peer: PeerKeyTag(key), token })
        };
        self.offer("counter", find)
    }

    fn offer<T: Send + 'static>(
        &self,
        what: &'static str,
        find: impl Fn(&mut Driver) -> Option<T> + Send + Sync + 'static,
    ) -> Pending<Offer<T>> {
        let (peer, watcher) = (self.clone(), self.0.cell.watch.watcher());
        self.pending(Offer { peer, watcher, find: Arc::new(find), receiver: None, seen: None, what })
    }

    /// Writes pages of `source` to the peer's memory, as the map says. When it is done the bytes are there; the counter, if one is named, has
    /// risen by as many pages.
    ///
    /// No order is promised among the pages. What is out of bounds is refused before anything is posted.
    pub fn write_pages(
        &self,
        source: impl Into<Buffer>,
        map: &PageMap,
        destination: &RemoteSlice,
        counter: Option<&RemoteCounter>,
    ) -> Transfer {
        let held = match source.into() {
            Buffer::Shared(shared) => Held::Shared(shared),
            Buffer::Slice(slice) => Held::Lent(slice.lend()),
            Buffer::Lent(lent) => Held::Lent(lent),
        };
        let own_len = held.len();
        let plan = Plan::new(
            map.page_len,
            (map.source.clone(), own_len),
            (map.destination.clone(), destination.len),
        );
        self.move_pages(Direction::Write, held, plan, destination, counter)
    }

    /// Reads pages of the peer's memory into `into`, as the map says.
    pub fn read_pages(&self, source: &RemoteSlice, map: &PageMap, into: Slice) -> Transfer {
        let held = Held::Lent(into.lend());
        let own_len = held.len();
        let plan =
            Plan::reading(map.page_len, (map.source.clone(), source.len), (map.destination.clone(), own_len));
        self.move_pages(Direction::Read, held, plan, source, None)
    }

    fn move_pages(
        &self,
        direction: Direction,
        held: Held,
        plan: Result<Plan, farreach_proto::plan::PlanError>,
        remote: &RemoteSlice,
        counter: Option<&RemoteCounter>,
    ) -> Transfer {
        let (sender, receiver) = oneshot::channel();
        let op = next_op();
        let is_foreign =
            remote.peer.0 != self.0.key || counter.is_some_and(|counter| counter.peer.0 != self.0.key);
        let plan = match plan {
            Ok(plan) if !is_foreign => plan,
            other => {
                let reason = other.err().map_or(TransferReason::NotGranted, TransferReason::Pages);
                let buffer = crate::transfer::given_back(held);
                let refused = TransferError { reason, buffer, explanation: Explanation::default() };
                return self.pending(PagesMoved {
                    receiver,
                    peer: self.0.key,
                    cell: self.own_cell(),
                    op,
                    refused: Some(refused),
                });
            }
        };
        let new = NewTransfer {
            op,
            peer: self.0.key,
            direction,
            plan,
            grant: remote.grant,
            base: remote.offset,
            len: remote.len,
            counter: counter.map(|counter| counter.token.id()),
        };
        self.0.progress.submit(Command::Submit(new, held, sender));
        self.pending(PagesMoved { receiver, peer: self.0.key, cell: self.own_cell(), op, refused: None })
    }

    /// Sends a message: in order, each once. It is done when the peer's engine holds it: then it arrives, whatever becomes of this side.
    pub fn send(&self, message: impl Into<Vec<u8>>) -> Pending<Sent> {
        let (sender, receiver) = oneshot::channel();
        self.0.progress.submit(Command::Send(self.0.key, message.into(), sender));
        self.pending(Sent { receiver, cell: self.own_cell() })
    }

    /// All messages that were sent until now: done when the peer's engine holds them.
    pub fn flush(&self) -> Pending<Sent> {
        let (sender, receiver) = oneshot::channel();
        let key = self.0.key;
        let call = move |driver: &mut Driver, now: u64| {
            let op = driver.delivery.wait_for(Waiter::Sent(sender));
            driver.machine.flush(op, key, now);
        };
        self.0.progress.submit(Command::Call(Box::new(call)));
        self.pending(Sent { receiver, cell: self.own_cell() })
    }

    /// Ends it in order, at most within this time: the peer holds every message that was sent, nothing of ours is under way with it, no grant
    /// is being revoked, and it is told goodbye. Clones of this say that it is lost.
    ///
    /// Without, the same begins when the last clone is dropped, and nobody waits for it.
    pub fn close(self, timeout: Duration) -> Result<(), Error> {
        let key = self.0.key;
        let call = move |driver: &mut Driver, now: u64| driver.machine.leave(key, now);
        self.0.progress.submit(Command::Call(Box::new(call)));
        let left = Left { cell: &self.0.cell, watcher: self.0.cell.watch.watcher() };
        match self.0.progress.wait(&left, crate::time::after(timeout)) {
            Ok(true) => Ok(()),
            Ok(false) => Err(Error::TimedOut { what: "close", after: timeout }),
            Err(_) => Err(Error::Ended),
        }
    }

    /// The next message of the peer's. What came before it was lost is received all the same.
    pub fn recv(&self) -> Pending<Received> {
        self.pending(Received { peer: self.clone(), watcher: self.0.cell.watch.watcher() })
    }

    /// Adds to a word of the peer's memory; it gives what was there.
    pub fn fetch_add(&self, memory: &RemoteSlice, offset: u64, add: u64) -> Pending<Fetched> {
        self.change_atomic(memory, offset, AtomicOperation::FetchAdd { add })
    }

    /// Replaces a word of the peer's memory if it is as expected; it gives what was there.
    pub fn compare_and_swap(
        &self,
        memory: &RemoteSlice,
        offset: u64,
        expected: u64,
        desired: u64,
    ) -> Pending<Fetched> {
        self.change_atomic(memory, offset, AtomicOperation::CompareSwap { expected, desired })
    }

    fn change_atomic(&self, memory: &RemoteSlice, offset: u64, request: AtomicOperation) -> Pending<Fetched> {
        let is_inside = offset.checked_add(8).is_some_and(|end| end <= memory.len);
        let refused = match () {
            () if memory.peer.0 != self.0.key => Some(AtomicError::NotGranted),
            () if !is_inside => Some(AtomicError::NotEightAlignedBytes { offset, len: memory.len }),
            () => None,
        };
        if let Some(error) = refused {
            return self.pending(Fetched { receiver: oneshot::sent(Err(error)), cell: self.own_cell() });
        }
        let (sender, receiver) = oneshot::channel();
        let (op, peer, grant) = (next_op(), self.0.key, memory.grant);
        let new = NewAtomic { op, peer, grant, offset: memory.offset + offset, request };
        self.0.progress.submit(Command::Atomic(new, sender));
        self.pending(Fetched { receiver, cell: self.own_cell() })
    }

    pub(crate) fn running(&self) -> &Arc<Running> {
        &self.0.progress
    }

    fn own_cell(&self) -> Arc<PeerCell> {
        Arc::clone(&self.0.cell)
    }

    pub(crate) fn cell(&self) -> &Arc<PeerCell> {
        &self.0.cell
    }

    /// A message was taken: the peer is told of every half window, so that it never waits for that.
    fn took_one(&self) {
        let half = (self.0.messages / 2).max(1);
        if self.0.taken.fetch_add(1, Ordering::Relaxed) + 1 >= half {
            let count = self.0.taken.swap(0, Ordering::Relaxed);
            self.0.progress.submit(Command::Taken(self.0.key, count));
        }
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Peer");
        shown.field("name", &self.name()).field("address", &self.address()).field("rails", &self.rails());
        shown.field("lost", &self.lost()).finish()
    }
}

/// Why memory was not granted, and the memory.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
#[non_exhaustive]
pub struct GrantError {
    /// Why.
    pub error: Error,
    /// The memory, unless the engine has ended or a rail keeps it.
    pub memory: Option<Exposed>,
}

/// A counter of a peer's that we raise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteCounter {
    peer: PeerKeyTag,
    token: CounterToken,
}

/// How it is found in the machine.
type Find<T> = dyn Fn(&mut Driver) -> Option<T> + Send + Sync;

/// Something that the peer has told its user of, and will tell us, or has.
pub struct Offer<T> {
    peer: Peer,
    watcher: Watcher,
    find: Arc<Find<T>>,
    receiver: Option<oneshot::Receiver<Option<T>>>,
    /// The peer's changes when it was last asked for.
    seen: Option<u64>,
    what: &'static str,
}

impl<T: Send + 'static> Offer<T> {
    /// Asks the machine whether it is there.
    fn ask(&mut self) {
        let (sender, receiver) = oneshot::channel();
        let find = Arc::clone(&self.find);
        self.seen = Some(self.peer.cell().changes());
        self.peer.0.progress.submit(Command::Call(Box::new(move |driver, _| {
            let found = find(driver);
            driver.answer(sender, found);
        })));
        self.receiver = Some(receiver);
    }

    fn has_changed(&self) -> bool {
        self.seen != Some(self.peer.cell().changes())
    }
}

impl<T> fmt::Debug for Offer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Offer").field("what", &self.what).finish_non_exhaustive()
    }
}

impl<T: Send + 'static> Answer for Offer<T> {
    type Output = Result<T, Error>;
}

impl<T: Send + 'static> Sealed for Offer<T> {
    type Found = Result<T, Error>;

    fn is_ready(&self) -> bool {
        self.receiver.as_ref().map_or_else(|| self.has_changed(), Awaited::is_ready)
    }

    fn listen(&self, listener: &Listener) {
        self.watcher.listen(listener);
        if let Some(receiver) = &self.receiver {
            receiver.listen(listener);
        }
    }

    fn take(&mut self) -> Option<Self::Found> {
        if self.receiver.is_none() && self.has_changed() {
            self.ask();
        }
        let answer = self.receiver.as_ref()?.take()?;
        self.receiver = None;
        match (answer, self.peer.cell().lost()) {
            (Ok(Some(found)), _) => Some(Ok(found)),
            (Ok(None), Some(reason)) => Some(Err(Error::PeerLost { reason: reason.clone() })),
            (Ok(None), None) => None,
            (Err(_), _) => Some(Err(Error::Ended)),
        }
    }

    fn timed_out(&mut self, _after: Duration) -> Self::Found {
        Err(Error::NotOffered { what: self.what })
    }

    fn ended(&mut self) -> Self::Found {
        Err(Error::Ended)
    }
}

/// Until the peer is gone.
struct Left<'a> {
    cell: &'a PeerCell,
    watcher: Watcher,
}

impl Awaited for Left<'_> {
    fn is_ready(&self) -> bool {
        self.cell.lost().is_some()
    }

    fn listen(&self, listener: &Listener) {
        self.watcher.listen(listener);
    }
}

/// A message on its way.
#[derive(Debug)]
pub struct Sent {
    receiver: oneshot::Receiver<Result<(), SendError>>,
    cell: Arc<PeerCell>,
}

impl Answer for Sent {
    type Output = Result<(), SendError>;
}

impl Sealed for Sent {
    type Found = Result<(), SendError>;

    fn is_ready(&self) -> bool {
        self.receiver.is_ready()
    }

    fn listen(&self, listener: &Listener) {
        self.receiver.listen(listener);
    }

    fn take(&mut self) -> Option<Self::Found> {
        Some(match self.receiver.take()?.unwrap_or(Err(SendError::Ended)) {
            Err(SendError::PeerLost { reason }) => Err(SendError::PeerLost { reason: self.cell.why(reason) }),
            sent => sent,
        })
    }

    fn timed_out(&mut self, after: Duration) -> Self::Found {
        Err(SendError::TimedOut(after))
    }

    fn ended(&mut self) -> Self::Found {
        Err(SendError::Ended)
    }
}

/// A message to come.
#[derive(Debug)]
pub struct Received {
    peer: Peer,
    watcher: Watcher,
}

impl Answer for Received {
    type Output = Result<Vec<u8>, Error>;
}

impl Sealed for Received {
    type Found = Result<Vec<u8>, Error>;

    fn is_ready(&self) -> bool {
        self.peer.cell().has_message() || self.peer.lost().is_some()
    }

    fn listen(&self, listener: &Listener) {
        self.watcher.listen(listener);
    }

    fn take(&mut self) -> Option<Self::Found> {
        if let Some(message) = self.peer.cell().take_message() {
            self.peer.took_one();
            return Some(Ok(message));
        }
        self.peer.lost().map(|reason| Err(Error::PeerLost { reason: reason.clone() }))
    }

    fn timed_out(&mut self, after: Duration) -> Self::Found {
        Err(Error::TimedOut { what: "receive a message", after })
    }

    fn ended(&mut self) -> Self::Found {
        Err(Error::Ended)
    }
}

/// A word of a peer's memory, as it was.
#[derive(Debug)]
pub struct Fetched {
    receiver: oneshot::Receiver<Result<u64, AtomicError>>,
    cell: Arc<PeerCell>,
}

impl Answer for Fetched {
    type Output = Result<u64, AtomicError>;
}

impl Sealed for Fetched {
    type Found = Result<u64, AtomicError>;

    fn is_ready(&self) -> bool {
        self.receiver.is_ready()
    }

    fn listen(&self, listener: &Listener) {
        self.receiver.listen(listener);
    }

    fn take(&mut self) -> Option<Self::Found> {
        Some(match self.receiver.take()?.unwrap_or(Err(AtomicError::Ended)) {
            Err(AtomicError::PeerLost { reason }) => {
                Err(AtomicError::PeerLost { reason: self.cell.why(reason) })
            }
            fetched => fetched,
        })
    }

    fn timed_out(&mut self, after: Duration) -> Self::Found {
        Err(AtomicError::TimedOut(after))
    }

    fn ended(&mut self) -> Self::Found {
        Err(AtomicError::Ended)
    }
}
