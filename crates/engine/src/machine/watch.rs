//! What the machine changes and others look at without asking it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;

use farreach_core::counter::Outcome;

use crate::provider::ProviderError;

/// Who is to be woken when something has changed.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    has_wakers: AtomicBool,
    wakers: Mutex<Vec<Waker>>,
}

impl Watch {
    /// Wakes at the next change. Whoever registers looks once more afterwards.
    pub(crate) fn wake(&self, waker: &Waker) {
        let mut wakers = lock(&self.wakers);
        if !wakers.iter().any(|known| known.will_wake(waker)) {
            wakers.push(waker.clone());
        }
        self.has_wakers.store(true, Ordering::SeqCst);
    }

    /// Something has changed.
    pub(crate) fn notify(&self) {
        if !self.has_wakers.load(Ordering::SeqCst) {
            return;
        }
        let wakers = {
            let mut wakers = lock(&self.wakers);
            self.has_wakers.store(false, Ordering::SeqCst);
            std::mem::take(&mut *wakers)
        };
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// A counter, as waits see it.
#[derive(Debug, Default)]
pub(crate) struct CounterCell {
    reached: AtomicU64,
    end: AtomicU8,
    pub(crate) watch: Watch,
}

const OPEN: u8 = 0;
const PEER_LOST: u8 = 1;
const ABORTED: u8 = 2;

impl CounterCell {
    /// What it has reached. The bytes of as many pages are visible to whoever has read this.
    #[inline]
    pub(crate) fn reached(&self) -> u64 {
        self.reached.load(Ordering::Acquire)
    }

    /// How a wait for so many pages has ended, if it has. What has arrived counts, whatever happened then.
    pub(crate) fn outcome(&self, pages: u64) -> Option<Outcome> {
        // The end is read first: what arrived before it is seen.
        let end = self.end.load(Ordering::SeqCst);
        match end {
            _ if self.reached.load(Ordering::SeqCst) >= pages => Some(Outcome::Reached),
            PEER_LOST => Some(Outcome::PeerLost),
            ABORTED => Some(Outcome::Aborted),
            _ => None,
        }
    }

    pub(super) fn raise(&self, reached: u64) {
        self.reached.store(reached, Ordering::SeqCst);
        self.watch.notify();
    }

    pub(super) fn end(&self, outcome: Outcome) {
        let end = if outcome == Outcome::Aborted { ABORTED } else { PEER_LOST };
        // The first one stands.
        let _ = self.end.compare_exchange(OPEN, end, Ordering::SeqCst, Ordering::SeqCst);
        self.watch.notify();
    }
}

/// Notes that are kept of one peer.
const NOTES_MAX: usize = 8;

/// A peer, as its handles see it.
#[derive(Debug, Default)]
pub(crate) struct PeerCell {
    is_up: AtomicBool,
    lost: OnceLock<String>,
    name: OnceLock<String>,
    rails: Mutex<Vec<String>>,
    notes: Mutex<VecDeque<ProviderError>>,
    inbox: Mutex<VecDeque<Vec<u8>>>,
    /// How many are in it: so that a driver that looks after each step takes no lock for it.
    messages: AtomicU64,
    changes: AtomicU64,
    /// Whoever waits for any peer.
    others: OnceLock<Arc<Watch>>,
    pub(crate) watch: Watch,
}

impl PeerCell {
    /// Others that are to be told of changes.
    pub(crate) fn also_notify(&self, watch: &Arc<Watch>) {
        let _ = self.others.set(Arc::clone(watch));
    }

    /// How often something of it has changed.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    /// Whether there is a message.
    pub(crate) fn has_message(&self) -> bool {
        self.messages.load(Ordering::SeqCst) > 0
    }

    pub(super) fn notify(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
        self.watch.notify();
        if let Some(others) = self.others.get() {
            others.notify();
        }
    }

    /// Whether both sides know each other, and a rail is ready.
    pub(crate) fn is_up(&self) -> bool {
        self.is_up.load(Ordering::SeqCst)
    }

    /// Why it is lost, if it is.
    pub(crate) fn lost(&self) -> Option<&str> {
        self.lost.get().map(String::as_str)
    }

    /// What it calls itself.
    pub(crate) fn name(&self) -> &str {
        self.name.get().map_or("", String::as_str)
    }

    /// Rails that are ready, by the names of this side's.
    pub(crate) fn rails(&self) -> Vec<String> {
        lock(&self.rails).clone()
    }

    /// What has gone wrong with its links, the last few.
    pub(crate) fn notes(&self) -> Vec<ProviderError> {
        lock(&self.notes).iter().cloned().collect()
    }

    pub(super) fn note(&self, note: ProviderError) {
        let mut notes = lock(&self.notes);
        if notes.len() == NOTES_MAX {
            notes.pop_front();
        }
        notes.push_back(note);
    }

    /// Bytes that it takes, with the messages that nobody has taken.
    pub(crate) fn memory(&self) -> usize {
        let inbox: usize =
            lock(&self.inbox).iter().map(|message| message.capacity() + size_of::<Vec<u8>>()).sum();
        let notes: usize = lock(&self.notes)
            .iter()
            .map(|note| note.operation.len() + note.cause.len() + note.fix.len())
            .sum();
        size_of::<Self>() + inbox + notes
    }

    /// How many messages nobody has taken.
    pub(super) fn untaken(&self) -> u64 {
        self.messages.load(Ordering::SeqCst)
    }

    /// The next message.
    pub(crate) fn take_message(&self) -> Option<Vec<u8>> {
        if !self.has_message() {
            return None;
        }
        let message = lock(&self.inbox).pop_front()?;
        self.messages.fetch_sub(1, Ordering::SeqCst);
        Some(message)
    }

    pub(super) fn put_message(&self, message: Vec<u8>) {
        lock(&self.inbox).push_back(message);
        self.messages.fetch_add(1, Ordering::SeqCst);
        self.watch.notify();
    }

    pub(super) fn set_name(&self, name: &str) {
        let _ = self.name.set(name.to_owned());
    }

    pub(super) fn set_rails(&self, rails: Vec<String>) {
        let is_any = !rails.is_empty();
        *lock(&self.rails) = rails;
        if is_any {
            self.is_up.store(true, Ordering::SeqCst);
        }
        self.notify();
    }

    pub(super) fn lose(&self, reason: &str) {
        let _ = self.lost.set(reason.to_owned());
        self.notify();
    }
}

fn lock<T>(cell: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic under the lock leaves nothing half done.
    cell.lock().unwrap_or_else(PoisonError::into_inner)
}
