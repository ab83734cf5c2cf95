//! State of peers and counters that is read without a command to the machine.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;

use farreach_proto::counter::Outcome;
use farreach_proto::machine::PeerChange;
use farreach_rail::RailError;

use crate::LostReason;
use crate::progress::Listener;

/// The listeners of one value that may change.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    has_listeners: AtomicBool,
    watchers: Mutex<Watchers>,
}

/// Listeners by the place of their watcher. A place is assigned at a watcher's first wait, and
/// freed with it.
#[derive(Debug, Default)]
struct Watchers {
    listeners: Vec<Option<Listener>>,
    free: Vec<usize>,
}

/// A waiter for changes. Invariant: at most its last listener is kept, and none after it was
/// dropped, so a future may be polled any number of times.
#[derive(Debug)]
pub(crate) struct Watcher {
    watch: Arc<Watch>,
    place: OnceLock<usize>,
}

impl Watch {
    pub(crate) fn watcher(self: &Arc<Self>) -> Watcher {
        Watcher { watch: Arc::clone(self), place: OnceLock::new() }
    }

    /// Notifies all listeners of a change. Wakers of tasks are pushed to `wakers`, and the caller
    /// has to run them.
    pub(crate) fn notify(&self, wakers: &mut Vec<Waker>) {
        // Sequentially consistent with `Watcher::listen`: either this load sees the flag, or the
        // check after the registration sees the change.
        if !self.has_listeners.load(Ordering::SeqCst) {
            return;
        }
        let mut watchers = lock(&self.watchers);
        // Under the lock: a listener that registers after this sets it again.
        self.has_listeners.store(false, Ordering::SeqCst);
        watchers.listeners.iter_mut().filter_map(Option::take).for_each(|listener| listener.tell(wakers));
    }

    /// Returns how many listeners are kept.
    #[cfg(test)]
    fn count(&self) -> usize {
        lock(&self.watchers).listeners.iter().flatten().count()
    }
}

impl Watcher {
    /// Registers a listener for the next change. The caller checks the value again afterwards.
    pub(crate) fn listen(&self, listener: &Listener) {
        let mut watchers = lock(&self.watch.watchers);
        let place = *self.place.get_or_init(|| watchers.take_place());
        let known = &mut watchers.listeners[place];
        let before = match known {
            Some(known) if known.is_same(listener) => None,
            known => known.replace(listener.clone()),
        };
        self.watch.has_listeners.store(true, Ordering::SeqCst);
        // Dropping a waker may run any code, so no lock is held.
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

    /// Takes all places if none is in use. Otherwise a crowd of waiters that has gone would cost memory,
    /// and time at each notification.
    fn take_unused(&mut self) -> Option<Self> {
        (self.free.len() == self.listeners.len()).then(|| std::mem::take(self))
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let Some(place) = self.place.take() else { return };
        let mut watchers = lock(&self.watch.watchers);
        let listener = watchers.listeners[place].take();
        watchers.free.push(place);
        // Dropped after the lock is released, as the listener is.
        let unused = watchers.take_unused();
        drop(watchers);
        drop((listener, unused));
    }
}

/// The state of a counter, as waiters see it.
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
    /// Returns the value reached. The bytes of that many pages are visible to the caller.
    #[inline]
    pub(crate) fn reached(&self) -> u64 {
        self.reached.load(Ordering::Acquire)
    }

    /// Returns how a wait for this many pages has ended, if it has. Pages that have arrived count,
    /// even if the peer was lost afterwards.
    pub(crate) fn outcome(&self, pages: u64) -> Option<Outcome> {
        // The end is read first, so that all pages that arrived before it are seen.
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
        // The first end is kept.
        let _ = self.end.compare_exchange(OPEN, end, Ordering::SeqCst, Ordering::SeqCst);
        self.watch.notify(wakers);
    }
}

/// The number of link errors that are kept for one peer.
const NOTES_MAX: usize = 8;

/// The state of a peer, as its handles see it.
#[derive(Debug, Default)]
pub(crate) struct PeerCell {
    is_up: AtomicBool,
    lost: OnceLock<LostReason>,
    name: OnceLock<String>,
    /// The names of its certificate, which were verified.
    certificate_names: OnceLock<Vec<String>>,
    rails: Mutex<Vec<String>>,
    notes: Mutex<VecDeque<RailError>>,
    inbox: Mutex<VecDeque<Vec<u8>>>,
    /// The number of messages in the inbox, so that a leader that checks after each step takes no
    /// lock.
    messages: AtomicU64,
    changes: AtomicU64,
    /// The number of waits for the peer that the machine does not know.
    waits: AtomicU64,
    /// Whether the machine was told to watch the peer.
    is_watched: AtomicBool,
    /// Whether the program has a handle of the peer.
    has_handle: AtomicBool,
    /// The number of waits for a message of this peer alone.
    receiving: AtomicU64,
    /// The turn of the peer among those with messages that anyone may take, or 0. It is changed under
    /// the lock of the list.
    turn: AtomicU64,
    pub(crate) watch: Arc<Watch>,
}

/// A wait for something that a peer does. While it exists, the machine watches the peer.
#[derive(Debug)]
pub(crate) struct PeerWait(Arc<PeerCell>);

impl Drop for PeerWait {
    fn drop(&mut self) {
        self.0.waits.fetch_sub(1, Ordering::SeqCst);
    }
}

impl PeerCell {
    /// Begins a wait. The second value is `true` if the machine must be told to watch the peer.
    pub(crate) fn begin_wait(self: &Arc<Self>) -> (PeerWait, bool) {
        self.waits.fetch_add(1, Ordering::SeqCst);
        (PeerWait(Arc::clone(self)), self.begin_watch())
    }

    /// Handles the end of a watch. Returns `true` if the machine must be told to watch the peer again.
    ///
    /// Sequentially consistent with [`begin_wait`](Self::begin_wait): either this load sees its wait,
    /// or it sees that the watch has ended.
    pub(crate) fn end_watch(&self) -> bool {
        self.is_watched.store(false, Ordering::SeqCst);
        self.waits.load(Ordering::SeqCst) > 0 && self.begin_watch()
    }

    fn begin_watch(&self) -> bool {
        // The load comes first because a swap takes the cache line away from other threads.
        !self.is_watched.load(Ordering::SeqCst) && !self.is_watched.swap(true, Ordering::SeqCst)
    }

    /// Returns how often the peer has changed.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    /// Returns whether there is a message.
    pub(crate) fn has_message(&self) -> bool {
        self.messages.load(Ordering::SeqCst) > 0
    }

    /// Notes that the program has a handle, or none any more.
    pub(crate) fn set_handle(&self, has_handle: bool) {
        self.has_handle.store(has_handle, Ordering::SeqCst);
    }

    /// Notes a wait for a message of this peer alone.
    pub(crate) fn begin_receiving(&self) {
        self.receiving.fetch_add(1, Ordering::SeqCst);
    }

    /// Notes the end of such a wait. Returns `true` if it was the last one: what others may take now has
    /// to be listed.
    pub(crate) fn end_receiving(&self) -> bool {
        self.receiving.fetch_sub(1, Ordering::SeqCst) == 1
    }

    /// Returns whether there is a message that a wait for any peer may take.
    ///
    /// Sequentially consistent with all changes of it: either they see that the peer is not listed, or
    /// whoever has removed it from the list sees them.
    pub(crate) fn has_message_for_anyone(&self) -> bool {
        let is_for_anyone =
            || self.receiving.load(Ordering::SeqCst) == 0 && self.has_handle.load(Ordering::SeqCst);
        self.has_message() && is_for_anyone()
    }

    pub(crate) fn turn(&self) -> u64 {
        self.turn.load(Ordering::SeqCst)
    }

    pub(crate) fn set_turn(&self, turn: u64) {
        self.turn.store(turn, Ordering::SeqCst);
    }

    pub(crate) fn is_listed(&self) -> bool {
        self.turn() != 0
    }

    fn notify(&self, wakers: &mut Vec<Waker>) {
        self.changes.fetch_add(1, Ordering::SeqCst);
        self.watch.notify(wakers);
    }

    /// Returns whether the peer has been up: both sides know each other, and a link was ready.
    pub(crate) fn is_up(&self) -> bool {
        self.is_up.load(Ordering::SeqCst)
    }

    /// Returns why the peer is lost, if it is.
    pub(crate) fn lost(&self) -> Option<&LostReason> {
        self.lost.get()
    }

    /// Returns the reason of the loss, if the machine has forgotten it and reports only that the
    /// peer is gone.
    pub(crate) fn why(&self, reason: LostReason) -> LostReason {
        match (reason, self.lost()) {
            (LostReason::Gone, Some(known)) => known.clone(),
            (reason, _) => reason,
        }
    }

    /// Returns the name the peer announced; empty before that.
    pub(crate) fn name(&self) -> &str {
        self.name.get().map_or("", String::as_str)
    }

    /// Sets the names of its certificate, before anything else is known of it.
    pub(crate) fn set_certificate_names(&self, names: Vec<String>) {
        // A connection is introduced once, so there is no other value.
        let _ = self.certificate_names.set(names);
    }

    /// Returns the names of its certificate, also after the machine has forgotten the peer.
    pub(crate) fn certificate_names(&self) -> &[String] {
        self.certificate_names.get().map_or(&[], Vec::as_slice)
    }

    /// Returns the rails with a link that is ready, by their local names.
    pub(crate) fn rails(&self) -> Vec<String> {
        lock(&self.rails).clone()
    }

    /// Returns the last errors of the peer's links.
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

    /// Returns the bytes that the peer takes, including messages that were not taken.
    pub(crate) fn memory(&self) -> usize {
        let inbox: usize =
            lock(&self.inbox).iter().map(|message| message.capacity() + size_of::<Vec<u8>>()).sum();
        let notes: usize = lock(&self.notes)
            .iter()
            .map(|note| note.operation.len() + note.cause.len() + note.fix.len())
            .sum();
        let names: usize =
            self.certificate_names().iter().map(|name| size_of::<String>() + name.capacity()).sum();
        size_of::<Self>() + inbox + notes + names
    }

    /// Takes the next message.
    pub(crate) fn take_message(&self) -> Option<Vec<u8>> {
        if !self.has_message() {
            return None;
        }
        let message = lock(&self.inbox).pop_front()?;
        self.messages.fetch_sub(1, Ordering::SeqCst);
        Some(message)
    }

    pub(crate) fn put_message(&self, message: Vec<u8>, wakers: &mut Vec<Waker>) {
        // The message first: who sees the number must find it.
        lock(&self.inbox).push_back(message);
        self.messages.fetch_add(1, Ordering::SeqCst);
        self.watch.notify(wakers);
    }

    fn set_rails(&self, rails: Vec<String>, wakers: &mut Vec<Waker>) {
        let is_any = !rails.is_empty();
        // Before the flag, so that a peer that is up has rails.
        *lock(&self.rails) = rails;
        if is_any {
            // It stays so without links: they are connected again, or the peer is lost.
            self.is_up.store(true, Ordering::SeqCst);
        }
        self.notify(wakers);
    }

    /// Applies a change of the peer.
    pub(crate) fn change(&self, change: PeerChange, wakers: &mut Vec<Waker>) {
        match change {
            PeerChange::Named(name) => drop(self.name.set(name)),
            PeerChange::Rails(rails) => self.set_rails(rails, wakers),
            PeerChange::Offered => self.notify(wakers),
            PeerChange::Note(note) => self.note(note),
            PeerChange::Lost(reason) => {
                // The first reason is the cause. What follows from it does not replace it.
                let _ = self.lost.set(reason);
                self.notify(wakers);
            }
            PeerChange::LinkLost { .. } | PeerChange::Unwatched | PeerChange::Forgotten => {}
        }
    }
}

fn lock<T>(cell: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic under the lock leaves no value half changed.
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
        let other = watch.watcher();
        other.listen(&Listener::Task(Waker::noop().clone()));
        for _ in 0..1000 {
            watch.watcher().listen(&Listener::Task(Waker::noop().clone()));
        }
        assert_eq!(lock(&watch.watchers).listeners.len(), 2);
    }

    #[test]
    fn a_crowd_of_watchers_that_has_gone_leaves_nothing() {
        let watch = Arc::new(Watch::default());
        for _ in 0..3 {
            let crowd: Vec<_> = (0..1000).map(|_| watch.watcher()).collect();
            crowd.iter().for_each(|watcher| watcher.listen(&Listener::Task(Waker::noop().clone())));
            assert_eq!(watch.count(), 1000);
            drop(crowd);
            let watchers = lock(&watch.watchers);
            assert_eq!((watchers.listeners.capacity(), watchers.free.capacity()), (0, 0));
        }
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
