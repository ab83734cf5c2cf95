//! The state of a shared counter, as waiters see it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use farreach_proto::counter::Outcome;
use farreach_proto::machine::PeerKey;

use crate::watch::{CounterCell, PeerCell, PeerWait, Watch};

/// See the [module](self). The leader changes it, and handles read it.
#[derive(Debug, Default)]
pub(crate) struct SharedCell {
    /// The pages of all peers, also of lost ones.
    total: AtomicU64,
    /// The number of peers that have it open, so that a leader that checks after each step takes no lock.
    count: AtomicUsize,
    /// How often a peer was lost or has aborted a transfer. It is raised after the pages before it.
    ends: AtomicU64,
    members: Mutex<Members>,
    pub(crate) watch: Arc<Watch>,
}

#[derive(Debug, Default)]
struct Members {
    /// The peers that have it open and are not lost.
    open: BTreeMap<PeerKey, Member>,
    /// The number of waits.
    waits: usize,
    /// The last end: the lost peer, or `None` if one has aborted a transfer.
    last_end: Option<Arc<PeerCell>>,
}

#[derive(Debug)]
pub(crate) struct Member {
    counter: Arc<CounterCell>,
    peer: Arc<PeerCell>,
    /// Exists while there is a wait.
    wait: Option<PeerWait>,
}

impl Member {
    /// Begins a wait for what the peer does. Returns `true` if the machine must be told to watch it.
    fn begin_wait(&mut self) -> bool {
        let (wait, is_first) = self.peer.begin_wait();
        self.wait = Some(wait);
        is_first
    }
}

impl SharedCell {
    // Called by the leader.

    /// Adds a peer. Returns `true` if the machine must be told to watch it.
    pub(crate) fn join(
        &self,
        key: PeerKey,
        counter: Arc<CounterCell>,
        peer: Arc<PeerCell>,
        wakers: &mut Vec<Waker>,
    ) -> bool {
        let mut members = self.lock();
        let mut member = Member { counter, peer, wait: None };
        // A wait that has begun before is a wait for this peer, too.
        let must_watch = members.waits > 0 && member.begin_wait();
        members.open.insert(key, member);
        self.count.store(members.open.len(), Ordering::SeqCst);
        drop(members);
        // Waits for a number of peers may be over.
        self.watch.notify(wakers);
        must_watch
    }

    /// Notes the new value of the counter of one peer.
    pub(crate) fn raise(&self, counter: &CounterCell, reached: u64, wakers: &mut Vec<Waker>) {
        // Only the leader changes either.
        let more = reached.saturating_sub(counter.reached());
        counter.raise(reached, wakers);
        // A sum beyond 64 bits is not reached by what peers can count. It does not rise then.
        if let Some(total) = self.total.load(Ordering::SeqCst).checked_add(more) {
            self.total.store(total, Ordering::SeqCst);
        }
        self.watch.notify(wakers);
    }

    /// Notes the end of the counter of one peer.
    pub(crate) fn end(&self, key: PeerKey, counter: &CounterCell, outcome: Outcome, wakers: &mut Vec<Waker>) {
        let mut members = self.lock();
        let is_lost = outcome == Outcome::PeerLost;
        // A peer that has aborted a transfer goes on to use the counter.
        let lost = if is_lost { members.open.remove(&key) } else { None };
        members.last_end = lost.as_ref().map(|member| Arc::clone(&member.peer));
        self.count.store(members.open.len(), Ordering::SeqCst);
        drop(members);
        drop(lost);
        counter.end(outcome, wakers);
        // After the end of the counter: a waiter that sees a new number looks at all counters once,
        // and must find the end.
        self.ends.fetch_add(1, Ordering::SeqCst);
        self.watch.notify(wakers);
    }

    // Called by waiters.

    /// Returns the pages of all peers. Their bytes are visible to the caller.
    pub(crate) fn total(&self) -> u64 {
        self.total.load(Ordering::SeqCst)
    }

    /// Returns how often a peer was lost or has aborted a transfer.
    pub(crate) fn ends(&self) -> u64 {
        self.ends.load(Ordering::SeqCst)
    }

    /// Returns the number of peers that have it open.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    /// Returns the peer that was lost last; `None` if the last end was an aborted transfer.
    pub(crate) fn last_lost(&self) -> Option<Arc<PeerCell>> {
        self.lock().last_end.clone()
    }

    /// Returns the pages of a peer that has it open.
    pub(crate) fn reached_by(&self, key: PeerKey) -> Option<u64> {
        self.lock().open.get(&key).map(|member| member.counter.reached())
    }

    /// Returns the counters of the peers that have it open.
    pub(crate) fn counters(&self) -> Vec<(Arc<CounterCell>, Arc<PeerCell>)> {
        let both = |member: &Member| (Arc::clone(&member.counter), Arc::clone(&member.peer));
        self.lock().open.values().map(both).collect()
    }

    /// Begins a wait. Returns the peers that the machine must be told to watch.
    pub(crate) fn begin_wait(&self) -> Vec<PeerKey> {
        let mut members = self.lock();
        members.waits += 1;
        // The first wait has begun for all of them, and `join` for those that came later.
        if members.waits > 1 {
            return Vec::new();
        }
        members.open.iter_mut().filter_map(|(key, member)| member.begin_wait().then_some(*key)).collect()
    }

    pub(crate) fn end_wait(&self) {
        let mut members = self.lock();
        members.waits -= 1;
        if members.waits == 0 {
            members.open.values_mut().for_each(|member| member.wait = None);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Members> {
        // A panic under the lock leaves no member half changed.
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
