//! Peers: the engines that this one is connected to.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use farreach_memory::Exposed;
use farreach_proto::counter::CounterId;
use farreach_proto::error::{AtomicError, SendError};
use farreach_proto::machine::{
    AtomicOperation, Direction, GrantRange, NewAtomic, NewTransfer, PeerKey, ShortTransfer,
};
use farreach_proto::time::Time;
use farreach_rail::GrantMade;

use crate::delivery::{Waiter, next_op};
use crate::driver::{Command, Driver};
use crate::events::PeerId;
use crate::grant::PeerKeyTag;
use crate::hung_call::Timeout;
use crate::pending::{Answer, Making, Pending};
use crate::progress::{Awaited, Listener, oneshot};
use crate::publication::OpeningPublication;
use crate::roster::Roster;
use crate::running::Running;
use crate::terms::Terms;
use crate::transfer::{TransferInFlight, given_back, held};
use crate::watch::{PeerCell, Watcher};
use crate::{
    Buffer, Counter, CounterToken, Error, Grant, GrantError, GrantToken, LostReason, PageMap,
    PublicationToken, RailError, RemoteSlice, Rights, Slice, Transfer, TransferError, Transferred,
};

/// Another engine that this one is connected to. All clones refer to the same peer, also those with
/// another [priority](Self::with_priority) or [deadline](Self::with_deadline). Dropping the last clone sends the peer a goodbye. A lost peer stays lost: if the same process connects again,
/// it is another peer.
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
pub struct Peer(Arc<Inner>, Terms);

/// The peers of which the program has a handle.
pub(crate) type Peers = Roster<Inner>;

pub(crate) struct Inner {
    progress: Arc<Running>,
    roster: Arc<Peers>,
    key: PeerKey,
    cell: Arc<PeerCell>,
    address: SocketAddr,
    /// Received messages that were not reported to the peer yet.
    taken: AtomicU32,
    messages: u32,
}

impl Drop for Inner {
    fn drop(&mut self) {
        let key = self.key;
        // Waits for any peer do not find it any more, and end if it was the last one.
        self.roster.remove(key, &self.cell);
        let call = move |driver: &mut Driver, now: Time| driver.machine.leave(key, now);
        self.progress.submit(Command::Call(Box::new(call)));
    }
}

impl Peer {
    pub(crate) fn new(
        progress: &Arc<Running>,
        roster: &Arc<Peers>,
        key: PeerKey,
        cell: Arc<PeerCell>,
        address: SocketAddr,
        messages: u32,
    ) -> Self {
        let (progress, roster, taken) = (Arc::clone(progress), Arc::clone(roster), AtomicU32::new(0));
        let inner = Arc::new(Inner { progress, roster, key, cell, address, taken, messages });
        inner.roster.add(key, &inner.cell, Arc::downgrade(&inner));
        Self(inner, Terms::default())
    }

    /// Returns a further handle of a peer.
    pub(crate) fn of(inner: Arc<Inner>) -> Self {
        Self(inner, Terms::default())
    }

    /// Returns a further handle whose transfers have these terms.
    pub(crate) fn with_terms(&self, terms: Terms) -> Self {
        Self(Arc::clone(&self.0), terms)
    }

    /// Returns the terms of its transfers.
    #[inline]
    pub(crate) fn terms(&self) -> Terms {
        self.1
    }

    /// Returns the id of the peer, by which [events](crate::Engine::next_event) name it.
    pub fn id(&self) -> PeerId {
        PeerId::new(self.0.key)
    }

    /// Returns the name that the peer announced. What a terminal would obey or hide is escaped in it.
    pub fn name(&self) -> &str {
        self.0.cell.name()
    }

    /// Returns the remote address of the control connection.
    pub fn address(&self) -> SocketAddr {
        self.0.address
    }

    /// Returns the names of the local rails that have a ready link to the peer.
    pub fn rails(&self) -> Vec<String> {
        self.0.cell.rails()
    }

    /// Returns why the peer is lost, or `None` while it is not.
    pub fn lost(&self) -> Option<&LostReason> {
        self.0.cell.lost()
    }

    /// Returns the last few errors of links to the peer, and the first reason for which memory was not
    /// granted over the best one.
    pub fn link_errors(&self) -> Vec<RailError> {
        self.0.cell.link_errors()
    }

    /// Returns the bytes that this engine holds for the peer: tables, and messages that wait to be
    /// received or sent. The rails' libraries are not included. For tests. Blocks for a step.
    ///
    /// A few KiB. [`Settings::message_window`](crate::Settings::message_window) bounds messages.
    /// The rest grows with operations, up to [`Settings::depth`](crate::Settings::depth), grants,
    /// and four bytes for each page and side of a transfer. A lost peer takes none.
    #[doc(hidden)]
    pub fn memory(&self) -> Result<usize, Error> {
        let key = self.0.key;
        let held = self.0.progress.call(move |driver, _| driver.peer_memory(key))?;
        Ok(held.unwrap_or(0))
    }

    fn pending<T, E>(&self, answer: impl Answer<Result<T, E>> + 'static) -> Pending<T, E> {
        Pending::new(&self.0.progress, answer)
    }

    /// Grants the peer access to memory: a slice, or memory that came back from another grant
    /// without a proof. On failure the memory is returned with the error.
    ///
    /// ```no_run
    /// # fn grant(engine: &farreach::Engine, peer: &farreach::Peer) -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use farreach::Rights;
    ///
    /// const SOON: Duration = Duration::from_secs(5);
    ///
    /// let memory = engine.allocate(1 << 20).wait(SOON)?;
    /// let grant = peer.grant(memory, Rights::READ | Rights::WRITE).wait(SOON)?;
    /// # drop(grant);
    /// # Ok(())
    /// # }
    /// ```
    pub fn grant(&self, memory: impl Into<Exposed>, rights: Rights) -> Pending<Grant, GrantError> {
        type Made = Result<GrantMade, (RailError, Option<Exposed>)>;

        let (key, memory, peer) = (self.0.key, memory.into(), self.clone());
        let make = move |driver: &mut Driver, now| {
            driver.carrier.grant(&mut driver.machine, key, memory, rights, now)
        };
        let finish = move |made: Result<Made, Error>| match made {
            Ok(Ok(made)) => Ok(Grant { peer: peer.clone(), id: made.id, memory: Some(made.memory) }),
            Ok(Err((error, memory))) => {
                // The loss of the peer is the cause of whatever the rails have reported.
                let error = peer.lost().map_or_else(|| error.into(), Error::peer_lost);
                Err(GrantError { error, memory })
            }
            // After a timeout the command still has the memory: a later wait returns the grant, or
            // the drop revokes it.
            Err(error) => Err(GrantError { error, memory: None }),
        };
        let undo = |driver: &mut Driver, now, made: Made| {
            if let Ok(made) = made {
                // Nobody wants the memory back, so there is no deadline at which it would come back
                // unproven.
                driver.machine.revoke(None, made.id, Time::NEVER, now);
            }
        };
        self.pending(Making::new(&self.0.progress, "grant memory", make, finish, undo))
    }

    /// Opens a counter that this peer raises.
    pub fn open_counter(&self) -> Pending<Counter> {
        type Made = Option<(CounterId, Arc<crate::watch::CounterCell>)>;

        let (key, progress, cell) = (self.0.key, Arc::clone(&self.0.progress), self.own_cell());
        let make = move |driver: &mut Driver, now| {
            // The cell is made in the same command, so no event of the counter comes before it.
            let id = driver.machine.open_counter(key, now)?;
            Some((id, driver.delivery.add_counter(id)))
        };
        let finish = move |made: Result<Made, Error>| match (made?, cell.lost()) {
            (Some((id, counter)), _) => {
                let (progress, peer) = (Arc::clone(&progress), Arc::clone(&cell));
                Ok(Counter { progress, id, cell: counter, key, peer })
            }
            (None, Some(reason)) => Err(Error::peer_lost(reason)),
            (None, None) => Err(Error::limit("counters")),
        };
        let undo = |driver: &mut Driver, now, made: Made| {
            if let Some((id, _)) = made {
                driver.machine.close_counter(id, now);
                driver.delivery.remove_counter(id);
            }
        };
        self.pending(Making::new(&self.0.progress, "open a counter", make, finish, undo))
    }

    /// Returns memory that the peer has granted, by its token. The result is available when the
    /// grant itself has arrived, which may be after the message with the token.
    pub fn remote(&self, token: GrantToken) -> Pending<RemoteSlice> {
        let key = self.0.key;
        let find = move |driver: &mut Driver| {
            // A token of another peer finds nothing here.
            let (len, rights) = driver.machine.granted(key, token.id())?;
            Some(RemoteSlice { peer: PeerKeyTag(key), grant: token.id(), offset: 0, len, rights })
        };
        self.offer("memory", find)
    }

    /// Opens memory that the peer has [published](crate::Engine::publish_exposed), by its token. The
    /// peer's engine answers, without its program. A second call returns the same memory.
    pub fn open(&self, token: PublicationToken) -> Pending<RemoteSlice> {
        let (sender, receiver) = oneshot::channel();
        let key = self.0.key;
        let call = move |driver: &mut Driver, now: Time| {
            let op = driver.delivery.wait_for(Waiter::Opened(sender));
            driver.machine.open(op, key, token.id(), now);
        };
        self.0.progress.submit(Command::Call(Box::new(call)));
        self.pending(OpeningPublication { receiver, cell: self.own_cell(), peer: PeerKeyTag(key) })
    }

    /// Returns a counter that the peer has opened for this engine, by its token.
    pub fn remote_counter(&self, token: CounterToken) -> Pending<RemoteCounter> {
        let key = self.0.key;
        let find = move |driver: &mut Driver| {
            // Only what the peer has announced to this engine is found.
            let is_known = driver.machine.knows_counter(key, token.id());
            is_known.then_some(RemoteCounter { peer: PeerKeyTag(key), token })
        };
        self.offer("counter", find)
    }

    fn offer<T: Send + Sync + 'static>(
        &self,
        what: &'static str,
        find: impl Fn(&mut Driver) -> Option<T> + Send + Sync + 'static,
    ) -> Pending<T> {
        let (peer, watcher) = (self.clone(), self.0.cell.watch.watcher());
        self.pending(Offer {
            peer,
            watcher,
            find: Arc::new(find),
            receiver: None,
            seen: None,
            found: None,
            what,
        })
    }

    /// Writes pages of `source` to memory of the peer, as the map says. When the transfer is done,
    /// the bytes are there, and the counter, if one is given, has risen by the number of pages.
    /// Pages arrive in any order. A map that is out of bounds is refused before anything is posted.
    ///
    /// [`write`](Self::write) writes one range, and needs no map.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use farreach::{Engine, PageMap, Rights};
    /// # const SOON: Duration = Duration::from_secs(20);
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let (here, there) = (Engine::new()?, Engine::new()?);
    /// # let peer = here.connect(there.listen("127.0.0.1:0")?)?.wait(SOON)?;
    /// # let owner = there.accept().wait(SOON)?;
    /// # let grant = owner.grant(there.allocate(8 * 4096).wait(SOON)?, Rights::WRITE).wait(SOON)?;
    /// # let counter = owner.open_counter().wait(SOON)?;
    /// let remote = peer.remote(grant.token()).wait(SOON)?;
    /// let arrivals = peer.remote_counter(counter.token()).wait(SOON)?;
    /// let mut source = here.allocate(3 * 4096).wait(SOON)?;
    /// source[4096..8192].fill(7);
    ///
    /// // Pages 0, 1 and 2 go to the places 5, 0 and 3.
    /// let map = PageMap::of(4096).from([0, 1, 2]).to([5, 0, 3]);
    /// peer.write_pages(source, &map, &remote, Some(&arrivals)).wait(SOON)?;
    ///
    /// // In the process of the owner:
    /// counter.reach(3).wait(SOON)?;
    /// let mut byte = [0];
    /// grant.read_at(0, &mut byte);
    /// assert_eq!(byte, [7]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn write_pages(
        &self,
        source: impl Into<Buffer>,
        map: &PageMap,
        destination: &RemoteSlice,
        counter: Option<&RemoteCounter>,
    ) -> Transfer {
        self.move_pages(Direction::Write, source.into(), map, destination, counter)
    }

    /// Reads pages of memory of the peer into `into`, as the map says. [`read`](Self::read) reads one
    /// range, and needs no map.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use farreach::{Engine, PageMap, Rights};
    /// # const SOON: Duration = Duration::from_secs(20);
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let (here, there) = (Engine::new()?, Engine::new()?);
    /// # let peer = here.connect(there.listen("127.0.0.1:0")?)?.wait(SOON)?;
    /// # let owner = there.accept().wait(SOON)?;
    /// # let grant = owner.grant(there.allocate(8 * 4096).wait(SOON)?, Rights::READ).wait(SOON)?;
    /// # grant.write_at(7 * 4096, &[9; 4096]);
    /// let remote = peer.remote(grant.token()).wait(SOON)?;
    /// let into = here.allocate(2 * 4096).wait(SOON)?;
    ///
    /// // The last page and the first one, in this order.
    /// let map = PageMap::of(4096).from([7, 0]).to([0, 1]);
    /// let done = peer.read_pages(&remote, &map, into).wait(SOON)?;
    /// let slice = done.buffer.into_slice().expect("it was given as a slice");
    /// assert!(slice[..4096].iter().all(|byte| *byte == 9));
    /// # Ok(())
    /// # }
    /// ```
    pub fn read_pages(&self, source: &RemoteSlice, map: &PageMap, into: Slice) -> Transfer {
        self.move_pages(Direction::Read, into.into(), map, source, None)
    }

    fn move_pages(
        &self,
        direction: Direction,
        buffer: Buffer,
        map: &PageMap,
        remote: &RemoteSlice,
        counter: Option<&RemoteCounter>,
    ) -> Transfer {
        let key = self.0.key;
        // A grant and a counter belong to one peer. At another one, their numbers may name
        // something else.
        if remote.peer.0 != key || counter.is_some_and(|counter| counter.peer.0 != key) {
            return self.refused(Error::not_granted("memory"), buffer);
        }
        let (own_len, counter) = (buffer.len() as u64, counter.map(|counter| counter.token.id()));
        let (priority, deadline) = self.terms_now();
        // A page that a rail copies within the call needs no plan, no entry in a table and no
        // channel.
        if let Some((own, theirs)) = map.only_page(direction, own_len, remote.len)
            && own.len <= self.0.progress.performs_max()
        {
            let RemoteSlice { grant, offset: base, len, .. } = *remote;
            let short = ShortTransfer {
                peer: key,
                direction,
                own,
                remote: theirs,
                grant,
                base,
                len,
                counter,
                priority,
                deadline,
            };
            return self.move_page(&short, buffer, map);
        }
        match map.plan(direction, own_len, remote.len) {
            Ok(plan) => {
                let RemoteSlice { grant, offset: base, len, .. } = *remote;
                let new = NewTransfer {
                    op: next_op(),
                    peer: key,
                    direction,
                    plan,
                    regions: GrantRange { grant, base, len }.into(),
                    counter,
                    priority,
                    deadline,
                };
                let (sender, receiver) = oneshot::channel();
                let op = new.op;
                self.0.progress.submit(Command::Submit(new, held(buffer), sender));
                self.pending(TransferInFlight::new(receiver, key, self.cell(), op, given_back::<Buffer>))
            }
            // Nothing was queued, so the memory goes back at once.
            Err(error) => self.refused(Error::of_pages(error), buffer),
        }
    }

    /// Moves a page at once, if its rail can do that, or as any other transfer.
    fn move_page(&self, short: &ShortTransfer, buffer: Buffer, map: &PageMap) -> Transfer {
        // The channel is made only if the page is not moved at once.
        let (op, mut receiver) = (next_op(), None);
        let command = |buffer: Buffer| {
            let ShortTransfer { peer, direction, grant, base, len, counter, priority, deadline, .. } = *short;
            let plan = map.plan(direction, buffer.len() as u64, len).expect("its only page was checked");
            let regions = GrantRange { grant, base, len }.into();
            let new = NewTransfer { op, peer, direction, plan, regions, counter, priority, deadline };
            let (sender, answer) = oneshot::channel();
            receiver = Some(answer);
            Command::Submit(new, held(buffer), sender)
        };
        let perform = |driver: &mut Driver, buffer: &mut Buffer| driver.perform(short, buffer);
        let performed = self.0.progress.perform_or_submit(buffer, perform, command);
        match (performed, receiver) {
            (Some((buffer, stats)), _) => {
                Pending::finished(&self.0.progress, Ok(Transferred { buffer, stats }))
            }
            (None, Some(receiver)) => self.pending(TransferInFlight::new(
                receiver,
                self.0.key,
                self.cell(),
                op,
                given_back::<Buffer>,
            )),
            (None, None) => unreachable!("a transfer is performed or submitted"),
        }
    }

    fn refused(&self, error: Error, buffer: Buffer) -> Transfer {
        Pending::finished(&self.0.progress, Err(TransferError::refused(error, buffer)))
    }

    /// Sends a message. Messages arrive in order, each once. The result is available when the
    /// engine of the peer has the message: then it arrives, even if this process ends.
    pub fn send(&self, message: impl Into<Vec<u8>>) -> Pending<()> {
        let (sender, receiver) = oneshot::channel();
        self.0.progress.submit(Command::Send(self.0.key, message.into(), sender));
        self.pending(Sending { receiver, cell: self.own_cell() })
    }

    /// Waits until the engine of the peer has all messages that were sent until now.
    pub fn flush(&self) -> Pending<()> {
        let (sender, receiver) = oneshot::channel();
        let key = self.0.key;
        let call = move |driver: &mut Driver, now: Time| {
            let op = driver.delivery.wait_for(Waiter::Sent(sender));
            driver.machine.flush(op, key, now);
        };
        self.0.progress.submit(Command::Call(Box::new(call)));
        self.pending(Sending { receiver, cell: self.own_cell() })
    }

    /// Ends the connection in order: the engine of the peer has every message, for which the program there
    /// may have to take some, nothing is in flight, no grant is being revoked, and a goodbye was sent.
    /// Clones report that the peer is lost.
    ///
    /// Blocks for at most `timeout`. Dropping the last clone starts the same, without waiting.
    pub fn close(self, timeout: Duration) -> Result<(), Error> {
        let key = self.0.key;
        let call = move |driver: &mut Driver, now: Time| driver.machine.leave(key, now);
        self.0.progress.submit(Command::Call(Box::new(call)));
        // The machine reports the end of a peer that was left as a loss.
        let left = Left { cell: &self.0.cell, watcher: self.0.cell.watch.watcher() };
        match self.0.progress.wait(&left, crate::time::after(timeout)) {
            Ok(true) => Ok(()),
            Ok(false) => Err(Error::timed_out("close a peer", &self.0.progress.timeout(timeout))),
            Err(_) => Err(Error::ended()),
        }
    }

    /// Receives the peer's next message. Messages that arrived before its loss are still received.
    pub fn recv(&self) -> Pending<Vec<u8>> {
        let watcher = self.0.cell.watch.watcher();
        self.pending(Receiving { peer: self.clone(), watcher, is_waiting: false })
    }

    /// Adds `add` to eight bytes of the peer's memory, and returns their value before. They lie at
    /// a multiple of eight: [`RemoteSlice::range`] selects them.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use farreach::{Engine, Rights};
    /// # const SOON: Duration = Duration::from_secs(20);
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let (here, there) = (Engine::new()?, Engine::new()?);
    /// # let peer = here.connect(there.listen("127.0.0.1:0")?)?.wait(SOON)?;
    /// # let owner = there.accept().wait(SOON)?;
    /// # let memory = there.allocate(4096).wait(SOON)?;
    /// # let grant = owner.grant(memory, Rights::ATOMIC).wait(SOON)?;
    /// let remote = peer.remote(grant.token()).wait(SOON)?;
    /// let next_ticket = remote.range(64..72);
    /// assert_eq!(peer.fetch_add(&next_ticket, 1).wait(SOON)?, 0);
    /// assert_eq!(peer.fetch_add(&next_ticket, 1).wait(SOON)?, 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn fetch_add(&self, memory: &RemoteSlice, add: u64) -> Pending<u64> {
        self.change_atomic(memory, AtomicOperation::FetchAdd { add })
    }

    /// Replaces eight bytes of the peer's memory if they have the expected value, and returns their
    /// value before. They lie at a multiple of eight.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use farreach::{Engine, CompareSwap, Rights};
    /// # const SOON: Duration = Duration::from_secs(20);
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let (here, there) = (Engine::new()?, Engine::new()?);
    /// # let peer = here.connect(there.listen("127.0.0.1:0")?)?.wait(SOON)?;
    /// # let owner = there.accept().wait(SOON)?;
    /// # let memory = there.allocate(4096).wait(SOON)?;
    /// # let grant = owner.grant(memory, Rights::ATOMIC).wait(SOON)?;
    /// let remote = peer.remote(grant.token()).wait(SOON)?;
    /// let (lock, take) = (remote.range(..8), CompareSwap { expected: 0, desired: 7 });
    /// assert_eq!(peer.compare_and_swap(&lock, take).wait(SOON)?, 0, "it was free, and has the owner 7 now");
    /// assert_eq!(peer.compare_and_swap(&lock, take).wait(SOON)?, 7, "it has an owner");
    /// # Ok(())
    /// # }
    /// ```
    pub fn compare_and_swap(&self, memory: &RemoteSlice, swap: CompareSwap) -> Pending<u64> {
        let CompareSwap { expected, desired } = swap;
        self.change_atomic(memory, AtomicOperation::CompareSwap { expected, desired })
    }

    fn change_atomic(&self, memory: &RemoteSlice, request: AtomicOperation) -> Pending<u64> {
        let refused = match () {
            () if memory.peer.0 != self.0.key => Some(AtomicError::NotGranted),
            // The machine checks the alignment, which depends on where the grant begins.
            () if memory.len != 8 => {
                Some(AtomicError::NotEightAlignedBytes { offset: memory.offset, len: memory.len })
            }
            () => None,
        };
        if let Some(error) = refused {
            return self.pending(Fetching { receiver: oneshot::sent(Err(error)), cell: self.own_cell() });
        }
        let (sender, receiver) = oneshot::channel();
        let (op, peer, grant) = (next_op(), self.0.key, memory.grant);
        let new = NewAtomic { op, peer, grant, offset: memory.offset, request };
        self.0.progress.submit(Command::Atomic(new, sender));
        self.pending(Fetching { receiver, cell: self.own_cell() })
    }

    pub(crate) fn key(&self) -> PeerKey {
        self.0.key
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

    /// Notes a received message. The peer gets a report after every half window, and need not wait.
    pub(crate) fn took_one(&self) {
        // A report of each message would cost a frame each, and one of all of them would stop the
        // sender.
        let half = (self.0.messages / 2).max(1);
        if self.0.taken.fetch_add(1, Ordering::Relaxed) + 1 >= half {
            // Two threads may come here at once. One of them then reports no message, which is
            // harmless.
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

/// The values of [`Peer::compare_and_swap`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompareSwap {
    /// The value that is replaced.
    pub expected: u64,
    /// The value that replaces it.
    pub desired: u64,
}

/// A counter of a peer that this engine raises.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteCounter {
    pub(crate) peer: PeerKeyTag,
    pub(crate) token: CounterToken,
}

impl RemoteCounter {
    /// Returns a counter that a peer has announced.
    pub(crate) fn of(peer: PeerKey, counter: CounterId) -> Self {
        Self { peer: PeerKeyTag(peer), token: CounterToken::of(counter) }
    }
}

/// Looks a grant or counter up in the machine.
type Find<T> = dyn Fn(&mut Driver) -> Option<T> + Send + Sync;

/// A grant or counter that the peer announces, or has announced.
struct Offer<T> {
    peer: Peer,
    watcher: Watcher,
    find: Arc<Find<T>>,
    receiver: Option<oneshot::Receiver<Option<T>>>,
    /// The number of changes of the peer at the last lookup.
    seen: Option<u64>,
    /// The result, if it was looked up and not taken.
    found: Option<Result<T, Error>>,
    what: &'static str,
}

impl<T: Send + 'static> Offer<T> {
    /// Submits a lookup for the next step.
    fn ask(&mut self) {
        let (sender, receiver) = oneshot::channel();
        let find = Arc::clone(&self.find);
        // Before the lookup, so that a change during it causes another one.
        self.seen = Some(self.peer.cell().changes());
        self.peer.0.progress.submit(Command::Call(Box::new(move |driver, _| {
            let found = find(driver);
            driver.answer(sender, found);
        })));
        self.receiver = Some(receiver);
    }

    /// Looks it up, if the peer has changed since the last time, and returns the result.
    fn look(&mut self) -> Option<Result<T, Error>> {
        // One lookup at a time, and only after a change: each is a command for the leader.
        if self.receiver.is_none() && self.has_changed() {
            self.ask();
        }
        let answer = self.receiver.as_ref()?.take()?;
        self.receiver = None;
        match (answer, self.peer.cell().lost()) {
            (Ok(Some(found)), _) => Some(Ok(found)),
            (Ok(None), Some(reason)) => Some(Err(Error::peer_lost(reason))),
            // The peer has not announced it yet. Its next change is a reason to look again.
            (Ok(None), None) => None,
            (Err(_), _) => Some(Err(Error::ended())),
        }
    }

    fn has_changed(&self) -> bool {
        self.seen != Some(self.peer.cell().changes())
    }
}

impl<T: Send + Sync + 'static> Answer<Result<T, Error>> for Offer<T> {
    fn is_ready(&self) -> bool {
        // Without a lookup that runs, the wait is for the next change of the peer.
        self.found.is_some() || self.receiver.as_ref().map_or_else(|| self.has_changed(), Awaited::is_ready)
    }

    fn listen(&self, listener: &Listener) {
        self.watcher.listen(listener);
        if let Some(receiver) = &self.receiver {
            receiver.listen(listener);
        }
    }

    fn has_stages(&self) -> bool {
        true
    }

    fn advance(&mut self) -> bool {
        if self.found.is_none() {
            self.found = self.look();
        }
        self.found.is_some()
    }

    fn take(&mut self) -> Option<Result<T, Error>> {
        self.found.take().or_else(|| self.look())
    }

    fn timed_out(&mut self, timeout: &Timeout) -> Result<T, Error> {
        Err(match timeout.hung {
            Some(_) => Error::timed_out(&format!("look up a {}", self.what), timeout),
            // The peer had the whole time to announce it.
            None => Error::not_granted(self.what),
        })
    }

    fn ended(&mut self) -> Result<T, Error> {
        Err(Error::ended())
    }

    fn awaited_peer(&self) -> Option<(PeerKey, &Arc<PeerCell>)> {
        Some((self.peer.0.key, self.peer.cell()))
    }
}

/// Waits until the peer is lost.
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

struct Sending {
    receiver: oneshot::Receiver<Result<(), SendError>>,
    cell: Arc<PeerCell>,
}

impl Answer<Result<(), Error>> for Sending {
    fn is_ready(&self) -> bool {
        self.receiver.is_ready()
    }

    fn listen(&self, listener: &Listener) {
        self.receiver.listen(listener);
    }

    fn take(&mut self) -> Option<Result<(), Error>> {
        // The channel is closed without an answer only if the engine has ended.
        Some(self.receiver.take()?.unwrap_or(Err(SendError::Ended)).map_err(|error| match error {
            SendError::PeerLost { reason } => Error::peer_lost(&self.cell.why(reason)),
            other => Error::of_send(other),
        }))
    }

    fn timed_out(&mut self, timeout: &Timeout) -> Result<(), Error> {
        Err(Error::timed_out("send a message", timeout))
    }

    fn ended(&mut self) -> Result<(), Error> {
        Err(Error::ended())
    }
}

struct Receiving {
    peer: Peer,
    watcher: Watcher,
    /// Whether the messages of the peer are for this wait, and not for one for any peer.
    is_waiting: bool,
}

impl Answer<Result<Vec<u8>, Error>> for Receiving {
    fn is_ready(&self) -> bool {
        self.peer.cell().has_message() || self.peer.lost().is_some()
    }

    fn listen(&self, listener: &Listener) {
        self.watcher.listen(listener);
    }

    fn take(&mut self) -> Option<Result<Vec<u8>, Error>> {
        // Read first: messages from before the loss are seen.
        let is_lost = self.peer.lost().is_some();
        let message = self.peer.cell().take_message();
        if message.is_some() || is_lost {
            // A wait that has its message lets others have the next one.
            self.end_wait();
        }
        match (message, self.peer.lost()) {
            (Some(message), _) => {
                self.peer.took_one();
                Some(Ok(message))
            }
            (None, Some(reason)) if is_lost => Some(Err(Error::peer_lost(reason))),
            (None, _) => None,
        }
    }

    fn begin_wait(&mut self) {
        if !std::mem::replace(&mut self.is_waiting, true) {
            self.peer.cell().begin_receiving();
        }
    }

    fn end_wait(&mut self) {
        if std::mem::take(&mut self.is_waiting) && self.peer.cell().end_receiving() {
            // What has come meanwhile is for anyone now.
            self.peer.0.roster.list(self.peer.0.key, self.peer.cell());
        }
    }

    fn timed_out(&mut self, timeout: &Timeout) -> Result<Vec<u8>, Error> {
        Err(Error::timed_out("receive a message", timeout))
    }

    fn ended(&mut self) -> Result<Vec<u8>, Error> {
        Err(Error::ended())
    }

    fn awaited_peer(&self) -> Option<(PeerKey, &Arc<PeerCell>)> {
        Some((self.peer.0.key, self.peer.cell()))
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        self.end_wait();
    }
}

struct Fetching {
    receiver: oneshot::Receiver<Result<u64, AtomicError>>,
    cell: Arc<PeerCell>,
}

impl Answer<Result<u64, Error>> for Fetching {
    fn is_ready(&self) -> bool {
        self.receiver.is_ready()
    }

    fn listen(&self, listener: &Listener) {
        self.receiver.listen(listener);
    }

    fn take(&mut self) -> Option<Result<u64, Error>> {
        // As for messages: a closed channel is the end of the engine.
        Some(self.receiver.take()?.unwrap_or(Err(AtomicError::Ended)).map_err(|error| match error {
            AtomicError::PeerLost { reason } => Error::peer_lost(&self.cell.why(reason)),
            other => Error::of_atomic(other),
        }))
    }

    fn timed_out(&mut self, timeout: &Timeout) -> Result<u64, Error> {
        Err(Error::timed_out("atomic operation", timeout))
    }

    fn ended(&mut self) -> Result<u64, Error> {
        Err(Error::ended())
    }
}
