//! What the machine changes and others look at without asking it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;

use farreach_core::counter::Outcome;

use crate::helm::wake;
use crate::provider::ProviderError;

/// Who is to be woken when something has changed.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    has_wakers: AtomicBool,
    watchers: Mutex<Watchers>,
}

/// By the place of each watcher that has ever waited and is there.
#[derive(Debug, Default)]
struct Watchers {
    wakers: Vec<Option<Waker>>,
    free: Vec<usize>,
}

/// One who waits for changes. Its last waker is kept and no other, and none when this is gone: a future may be polled as often as it likes.
#[derive(Debug)]
pub(crate) struct Watcher {
    watch: Arc<Watch>,
    place: OnceLock<usize>,
}

impl Watch {
    pub(crate) fn watcher(self: &Arc<Self>) -> Watcher {
        Watcher { watch: Arc::clone(self), place: OnceLock::new() }
    }

    /// Something has changed.
    pub(crate) fn notify(&self) {
        if !self.has_wakers.load(Ordering::SeqCst) {
            return;
        }
        let wakers: Vec<Waker> = {
            let mut watchers = lock(&self.watchers);
            self.has_wakers.store(false, Ordering::SeqCst);
            watchers.wakers.iter_mut().filter_map(Option::take).collect()
        };
        wakers.into_iter().for_each(wake);
    }

    /// How many wakers are kept.
    #[cfg(test)]
    fn count(&self) -> usize {
        lock(&self.watchers).wakers.iter().flatten().count()
    }
}

impl Watcher {
    /// Wakes at the next change. Whoever registers looks once more afterwards.
    pub(crate) fn wake(&self, waker: &Waker) {
        let mut watchers = lock(&self.watch.watchers);
        let place = *self.place.get_or_init(|| watchers.take_place());
        let known = &mut watchers.wakers[place];
        let before = match known {
            Some(known) if known.will_wake(waker) => None,
            known => known.replace(waker.clone()),
        };
        self.watch.has_wakers.store(true, Ordering::SeqCst);
        // Dropping a waker may do anything, so no lock is held.
        drop(watchers);
        drop(before);
    }
}

impl Watchers {
    fn take_place(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            self.wakers.push(None);
            self.wakers.len() - 1
        })
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let Some(place) = self.place.take() else { return };
        let mut watchers = lock(&self.watch.watchers);
        let waker = watchers.wakers[place].take();
        watchers.free.push(place);
        drop(watchers);
        drop(waker);
    }
}

/// A counter, as waits see it.
#[derive(Debug, Default)]
pub(crate) struct CounterCell {
    reached: AtomicU64,
    end: AtomicU8,
    pub(crate) watch: Arc<Watch>,
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
    pub(crate) watch: Arc<Watch>,
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_watcher_keeps_one_waker_however_often_it_is_polled_and_none_when_it_is_gone() {
        let watch = Arc::new(Watch::default());
        let (often, once) = (watch.watcher(), watch.watcher());
        let counts: Vec<Arc<Count>> = (0..41_000).map(|_| Arc::default()).collect();
        for count in &counts {
            often.wake(&Waker::from(Arc::clone(count)));
        }
        let other = Arc::new(Count::default());
        once.wake(&Waker::from(Arc::clone(&other)));
        assert_eq!(watch.count(), 2);
        drop(once);
        assert_eq!(watch.count(), 1);
        watch.notify();
        let woken: usize = counts.iter().map(|count| count.0.load(Ordering::SeqCst)).sum();
        assert_eq!((woken, other.0.load(Ordering::SeqCst), watch.count()), (1, 0, 0));
        assert_eq!(counts[40_999].0.load(Ordering::SeqCst), 1, "the last one");
    }

    #[test]
    fn places_are_used_again() {
        let watch = Arc::new(Watch::default());
        for _ in 0..1000 {
            watch.watcher().wake(Waker::noop());
        }
        assert_eq!(lock(&watch.watchers).wakers.len(), 1);
    }

    #[test]
    fn a_waker_that_panics_keeps_nobody_else_from_being_woken() {
        struct Panics;
        impl Wake for Panics {
            fn wake(self: Arc<Self>) {
                panic!("on purpose");
            }
        }
        let watch = Arc::new(Watch::default());
        let watchers = [watch.watcher(), watch.watcher()];
        watchers[0].wake(&Waker::from(Arc::new(Panics)));
        let count = Arc::new(Count::default());
        watchers[1].wake(&Waker::from(Arc::clone(&count)));
        watch.notify();
        assert_eq!(count.0.load(Ordering::SeqCst), 1);
    }
}
