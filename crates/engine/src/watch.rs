//! What others look at without asking the machine.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;

use farreach_proto::counter::Outcome;
use farreach_proto::machine::PeerChange;
use farreach_rail::RailError;

use crate::LostReason;
use crate::progress::Listener;

/// Who is to be told when something has changed.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    has_listeners: AtomicBool,
    watchers: Mutex<Watchers>,
}

/// By the place of each watcher that has ever waited and is there.
#[derive(Debug, Default)]
struct Watchers {
    listeners: Vec<Option<Listener>>,
    free: Vec<usize>,
}

/// One who waits for changes. Its last listener is kept and no other, and none when this is gone: a future may be polled as often as it likes.
#[derive(Debug)]
pub(crate) struct Watcher {
    watch: Arc<Watch>,
    place: OnceLock<usize>,
}

impl Watch {
    pub(crate) fn watcher(self: &Arc<Self>) -> Watcher {
        Watcher { watch: Arc::clone(self), place: OnceLock::new() }
    }

    /// Something has changed. Tasks that wait for it are to be woken, by the wakers that are left in `wakers`.
    pub(crate) fn notify(&self, wakers: &mut Vec<Waker>) {
        if !self.has_listeners.load(Ordering::SeqCst) {
            return;
        }
        let mut watchers = lock(&self.watchers);
        self.has_listeners.store(false, Ordering::SeqCst);
        watchers.listeners.iter_mut().filter_map(Option::take).for_each(|listener| listener.tell(wakers));
    }

    /// How many listeners are kept.
    #[cfg(test)]
    fn count(&self) -> usize {
        lock(&self.watchers).listeners.iter().flatten().count()
    }
}

impl Watcher {
    /// Is told of the next change. Whoever registers looks once more afterwards.
    pub(crate) fn listen(&self, listener: &Listener) {
        let mut watchers = lock(&self.watch.watchers);
        let place = *self.place.get_or_init(|| watchers.take_place());
        let known = &mut watchers.listeners[place];
        let before = match known {
            Some(known) if known.is_same(listener) => None,
            known => known.replace(listener.clone()),
        };
        self.watch.has_listeners.store(true, Ordering::SeqCst);
        // Dropping a waker may do anything, so no lock is held.
        drop(watchers);
        drop(before);
    }
}

impl Watchers {
    fn take_place(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            self.listeners.push(None);
            self.listeners.len() - 1
        })
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let Some(place) = self.place.take() else { return };
        let mut watchers = lock(&self.watch.watchers);
        let listener = watchers.listeners[place].take();
        watchers.free.push(place);
        drop(watchers);
        drop(listener);
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

    pub(crate) fn raise(&self, reached: u64, wakers: &mut Vec<Waker>) {
        self.reached.store(reached, Ordering::SeqCst);
        self.watch.notify(wakers);
    }

    pub(crate) fn end(&self, outcome: Outcome, wakers: &mut Vec<Waker>) {
        let end = if outcome == Outcome::Aborted { ABORTED } else { PEER_LOST };
        // The first one stands.
        let _ = self.end.compare_exchange(OPEN, end, Ordering::SeqCst, Ordering::SeqCst);
        self.watch.notify(wakers);
    }
}

/// Notes that are kept of one peer.
const NOTES_MAX: usize = 8;

/// A peer, as its handles see it.
#[derive(Debug, Default)]
pub(crate) struct PeerCell {
    is_up: AtomicBool,
    lost: OnceLock<LostReason>,
    name: OnceLock<String>,
    rails: Mutex<Vec<String>>,
    notes: Mutex<VecDeque<RailError>>,
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

    fn notify(&self, wakers: &mut Vec<Waker>) {
        self.changes.fetch_add(1, Ordering::SeqCst);
        self.watch.notify(wakers);
        if let Some(others) = self.others.get() {
            others.notify(wakers);
        }
    }

    /// Whether both sides know each other, and a rail is ready.
    pub(crate) fn is_up(&self) -> bool {
        self.is_up.load(Ordering::SeqCst)
    }

    /// Why it is lost, if it is.
    pub(crate) fn lost(&self) -> Option<&LostReason> {
        self.lost.get()
    }

    /// Why it is lost, where the machine has forgotten that.
    pub(crate) fn why(&self, reason: LostReason) -> LostReason {
        match (reason, self.lost()) {
            (LostReason::Gone, Some(known)) => known.clone(),
            (reason, _) => reason,
        }
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
    pub(crate) fn link_errors(&self) -> Vec<RailError> {
        lock(&self.notes).iter().cloned().collect()
    }

    fn note(&self, note: RailError) {
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

    /// The next message.
    pub(crate) fn take_message(&self) -> Option<Vec<u8>> {
        if !self.has_message() {
            return None;
        }
        let message = lock(&self.inbox).pop_front()?;
        self.messages.fetch_sub(1, Ordering::SeqCst);
        Some(message)
    }

    pub(crate) fn put_message(&self, message: Vec<u8>, wakers: &mut Vec<Waker>) {
        lock(&self.inbox).push_back(message);
        self.messages.fetch_add(1, Ordering::SeqCst);
        self.watch.notify(wakers);
    }

    fn set_rails(&self, rails: Vec<String>, wakers: &mut Vec<Waker>) {
        let is_any = !rails.is_empty();
        *lock(&self.rails) = rails;
        if is_any {
            self.is_up.store(true, Ordering::SeqCst);
        }
        self.notify(wakers);
    }

    /// Something of it has changed.
    pub(crate) fn change(&self, change: PeerChange, wakers: &mut Vec<Waker>) {
        match change {
            PeerChange::Named(name) => drop(self.name.set(name)),
            PeerChange::Rails(rails) => self.set_rails(rails, wakers),
            PeerChange::Offered => self.notify(wakers),
            PeerChange::Note(note) => self.note(note),
            PeerChange::Lost(reason) => {
                let _ = self.lost.set(reason);
                self.notify(wakers);
            }
            PeerChange::Forgotten => {}
        }
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
    use crate::progress::wake_all;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn notify(watch: &Watch) {
        let mut wakers = Vec::new();
        watch.notify(&mut wakers);
        wake_all(wakers);
    }

    #[test]
    fn a_watcher_keeps_one_waker_however_often_it_is_polled_and_none_when_it_is_gone() {
        let watch = Arc::new(Watch::default());
        let (often, once) = (watch.watcher(), watch.watcher());
        let counts: Vec<Arc<Count>> = (0..41_000).map(|_| Arc::default()).collect();
        for count in &counts {
            often.listen(&Listener::Task(Waker::from(Arc::clone(count))));
        }
        let other = Arc::new(Count::default());
        once.listen(&Listener::Task(Waker::from(Arc::clone(&other))));
        assert_eq!(watch.count(), 2);
        drop(once);
        assert_eq!(watch.count(), 1);
        notify(&watch);
        let woken: usize = counts.iter().map(|count| count.0.load(Ordering::SeqCst)).sum();
        assert_eq!((woken, other.0.load(Ordering::SeqCst), watch.count()), (1, 0, 0));
        assert_eq!(counts[40_999].0.load(Ordering::SeqCst), 1, "the last one");
    }

    #[test]
    fn places_are_used_again() {
        let watch = Arc::new(Watch::default());
        for _ in 0..1000 {
            watch.watcher().listen(&Listener::Task(Waker::noop().clone()));
        }
        assert_eq!(lock(&watch.watchers).listeners.len(), 1);
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
        watchers[0].listen(&Listener::Task(Waker::from(Arc::new(Panics))));
        let count = Arc::new(Count::default());
        watchers[1].listen(&Listener::Task(Waker::from(Arc::clone(&count))));
        notify(&watch);
        assert_eq!(count.0.load(Ordering::SeqCst), 1);
    }
}
