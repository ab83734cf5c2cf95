//! Messages of any peer: the peers that have some, in the order of their turns.
//!
//! A peer is listed when it has a message that anyone may take: the program has a handle of the peer,
//! and no wait for a message of this peer alone has begun. The first one listed gives a message, and
//! goes to the end if it has more. So a peer that sends without a pause delays another one by one
//! message, and no operation looks at peers without messages.
//!
//! Invariant: a peer with a message that anyone may take is listed once, except while a thread is about
//! to list it. Whoever makes it so lists it afterwards: the leader with a message, the program with a
//! handle, and the last wait for its messages alone. An entry may be stale. It is removed when it is
//! the first.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use farreach_proto::machine::PeerKey;

use crate::watch::{PeerCell, Watch};

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Inboxes {
    /// Whether messages of any peer were ever asked for. Nothing is listed before.
    is_used: AtomicBool,
    /// The number of listed peers, so that a leader that checks after each step takes no lock.
    listed: AtomicUsize,
    turns: Mutex<Turns>,
    pub(crate) watch: Arc<Watch>,
}

/// Listed peers by their turn. Each cell holds its turn, so that it can be removed.
#[derive(Debug, Default)]
struct Turns {
    peers: BTreeMap<u64, (PeerKey, Arc<PeerCell>)>,
    last: u64,
}

impl Turns {
    /// Lists a peer as the last one.
    fn push(&mut self, key: PeerKey, cell: Arc<PeerCell>) {
        // No turn is 0, which stands for a peer that is not listed.
        self.last += 1;
        cell.set_turn(self.last);
        self.peers.insert(self.last, (key, cell));
    }

    /// Removes the first peer that has a message for anyone, and all stale entries before it. Returns it
    /// with its turn.
    fn pop(&mut self) -> Option<(u64, PeerKey, Arc<PeerCell>)> {
        // Each entry was made by a message or by the end of a wait, so this is paid for.
        while let Some((turn, (key, cell))) = self.peers.pop_first() {
            // From now on, others list it again.
            cell.set_turn(0);
            if cell.has_message_for_anyone() {
                return Some((turn, key, cell));
            }
        }
        None
    }
}

impl Inboxes {
    /// Notes that messages of any peer are asked for. Returns `true` the first time: the caller
    /// [lists](Self::list) all peers.
    pub(crate) fn begin(&self) -> bool {
        // Sequentially consistent with `list`: either the leader sees the flag, or the caller sees the
        // message.
        !self.is_used.load(Ordering::SeqCst) && !self.is_used.swap(true, Ordering::SeqCst)
    }

    /// Lists a peer, if it has a message that anyone may take. Wakers of tasks are pushed to `wakers`,
    /// and the caller has to run them.
    #[inline]
    pub(crate) fn list(&self, key: PeerKey, cell: &Arc<PeerCell>, wakers: &mut Vec<Waker>) {
        // Without the lock: the leader comes here with each message, and most often there is
        // nothing to list.
        if self.is_used.load(Ordering::SeqCst) && !cell.is_listed() && cell.has_message_for_anyone() {
            self.list_now(key, cell, wakers);
        }
    }

    fn list_now(&self, key: PeerKey, cell: &Arc<PeerCell>, wakers: &mut Vec<Waker>) {
        let mut turns = self.lock();
        // Another thread may have listed it since the check without the lock.
        if cell.is_listed() {
            return;
        }
        turns.push(key, Arc::clone(cell));
        self.listed.store(turns.peers.len(), Ordering::SeqCst);
        drop(turns);
        self.watch.notify(wakers);
    }

    /// Removes a peer of which no handle is left.
    pub(crate) fn remove(&self, cell: &PeerCell) {
        let mut turns = self.lock();
        // A peer that is not listed has the turn 0, which is not in the list.
        let removed = turns.peers.remove(&cell.turn());
        cell.set_turn(0);
        self.listed.store(turns.peers.len(), Ordering::SeqCst);
        drop(turns);
        drop(removed);
    }

    /// Returns whether there is a message.
    pub(crate) fn has_one(&self) -> bool {
        if self.listed.load(Ordering::SeqCst) == 0 {
            return false;
        }
        let mut turns = self.lock();
        let first = turns.pop();
        let is_there = first.is_some();
        if let Some((turn, key, cell)) = first {
            // It keeps its turn. A look must not change the order.
            cell.set_turn(turn);
            turns.peers.insert(turn, (key, cell));
        }
        self.listed.store(turns.peers.len(), Ordering::SeqCst);
        is_there
    }

    /// Takes a message of the peer whose turn it is.
    pub(crate) fn take(&self) -> Option<(PeerKey, Vec<u8>)> {
        if self.listed.load(Ordering::SeqCst) == 0 {
            return None;
        }
        let mut turns = self.lock();
        let mut taken = None;
        while taken.is_none()
            && let Some((_, key, cell)) = turns.pop()
        {
            taken = cell.take_message().map(|message| (key, message));
            // Also if a thread that waits for this peer alone was faster.
            if cell.has_message_for_anyone() {
                turns.push(key, cell);
            }
        }
        self.listed.store(turns.peers.len(), Ordering::SeqCst);
        taken
    }

    fn lock(&self) -> MutexGuard<'_, Turns> {
        // A panic under the lock leaves no entry half made.
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(messages: usize) -> Arc<PeerCell> {
        let cell = Arc::new(PeerCell::default());
        cell.set_handle(true);
        (0..messages).for_each(|number| put(&cell, number));
        cell
    }

    fn put(cell: &PeerCell, number: usize) {
        cell.put_message(vec![number as u8], &mut Vec::new());
    }

    fn used() -> Inboxes {
        let inboxes = Inboxes::default();
        assert!(inboxes.begin() && !inboxes.begin());
        inboxes
    }

    fn list(inboxes: &Inboxes, key: u32, cell: &Arc<PeerCell>) {
        inboxes.list(PeerKey(key), cell, &mut Vec::new());
    }

    fn taken(inboxes: &Inboxes) -> Vec<(u32, u8)> {
        std::iter::from_fn(|| inboxes.take()).map(|(key, message)| (key.0, message[0])).collect()
    }

    #[test]
    fn peers_take_turns_and_one_that_floods_delays_others_by_one_message() {
        let inboxes = used();
        let (flood, quiet) = (peer(1000), peer(0));
        list(&inboxes, 1, &flood);
        for round in 0..100 {
            assert_eq!(inboxes.take().unwrap().0, PeerKey(1));
            put(&flood, 0);
            list(&inboxes, 1, &flood);
            put(&quiet, round);
            list(&inboxes, 2, &quiet);
            assert_eq!(inboxes.take().unwrap().0, PeerKey(1), "it was listed before");
            assert_eq!(inboxes.take().unwrap(), (PeerKey(2), vec![round as u8]));
        }
    }

    #[test]
    fn turns_go_round_and_messages_of_a_peer_stay_in_order() {
        let inboxes = used();
        let peers = [peer(3), peer(1), peer(2)];
        (0..).zip(&peers).for_each(|(key, cell)| list(&inboxes, key, cell));
        assert!(inboxes.has_one() && inboxes.has_one());
        assert_eq!(taken(&inboxes), [(0, 0), (1, 0), (2, 0), (0, 1), (2, 1), (0, 2)]);
        assert!(!inboxes.has_one());
    }

    #[test]
    fn nothing_is_listed_before_it_is_asked_for_and_without_a_handle() {
        let inboxes = Inboxes::default();
        let cell = peer(1);
        list(&inboxes, 1, &cell);
        assert!(!cell.is_listed() && inboxes.take().is_none());
        assert!(inboxes.begin());
        cell.set_handle(false);
        list(&inboxes, 1, &cell);
        assert!(!inboxes.has_one());
        cell.set_handle(true);
        list(&inboxes, 1, &cell);
        assert_eq!(taken(&inboxes), [(1, 0)]);
    }

    #[test]
    fn a_peer_that_is_waited_for_alone_keeps_its_messages() {
        let inboxes = used();
        let cell = peer(2);
        list(&inboxes, 1, &cell);
        cell.begin_receiving();
        assert!(!inboxes.has_one() && inboxes.take().is_none());
        assert_eq!(cell.take_message(), Some(vec![0]));
        assert!(cell.end_receiving(), "it was the last one");
        assert!(!inboxes.has_one(), "whoever has waited lists it");
        list(&inboxes, 1, &cell);
        assert_eq!(taken(&inboxes), [(1, 1)]);
    }

    #[test]
    fn stale_entries_are_removed() {
        let inboxes = used();
        let peers = [peer(1), peer(1), peer(1)];
        (0..).zip(&peers).for_each(|(key, cell)| list(&inboxes, key, cell));
        assert_eq!(peers[0].take_message(), Some(vec![0]));
        inboxes.remove(&peers[1]);
        assert!(inboxes.has_one());
        assert_eq!(taken(&inboxes), [(2, 0)]);
        assert!(peers.iter().all(|cell| !cell.is_listed()) && inboxes.lock().peers.is_empty());
        // It is listed again with its next message.
        put(&peers[0], 7);
        list(&inboxes, 0, &peers[0]);
        assert_eq!(taken(&inboxes), [(0, 7)]);
    }

    #[test]
    fn threads_that_put_and_take_lose_nothing() {
        const EACH: usize = 2000;
        let inboxes = used();
        let peers = [peer(0), peer(0)];
        let (count, alone) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for (key, cell) in (0..).zip(&peers) {
                let inboxes = &inboxes;
                scope.spawn(move || {
                    for number in 0..EACH {
                        put(cell, number);
                        list(inboxes, key, cell);
                    }
                });
            }
            // One that waits for the first peer alone, now and then.
            scope.spawn(|| {
                for _ in 0..EACH / 2 {
                    peers[0].begin_receiving();
                    alone.fetch_add(usize::from(peers[0].take_message().is_some()), Ordering::SeqCst);
                    if peers[0].end_receiving() {
                        list(&inboxes, 0, &peers[0]);
                    }
                }
            });
            for _ in 0..2 {
                scope.spawn(|| {
                    while count.load(Ordering::SeqCst) + alone.load(Ordering::SeqCst) < 2 * EACH {
                        match inboxes.take() {
                            Some(_) => drop(count.fetch_add(1, Ordering::SeqCst)),
                            None => std::thread::yield_now(),
                        }
                    }
                });
            }
        });
        assert!(!inboxes.has_one());
    }
}
