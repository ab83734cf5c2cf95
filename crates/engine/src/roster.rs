//! The peers of which the program has a handle.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use farreach_proto::machine::{IdMap, PeerKey};

use crate::news::News;
use crate::progress::wake_all;
use crate::watch::PeerCell;

/// The handles of peers, of type `T`, by key. It keeps no peer connected, because the last handle that
/// the program drops ends the peer.
///
/// Invariant: no handle is dropped under the lock. Dropping the last one of a peer removes it here.
#[derive(Debug)]
pub(crate) struct Roster<T> {
    handles: Mutex<IdMap<PeerKey, Entry<T>>>,
    news: Arc<News>,
}

#[derive(Debug)]
struct Entry<T> {
    cell: Arc<PeerCell>,
    handle: Weak<T>,
}

impl<T> Roster<T> {
    pub(crate) fn new(news: Arc<News>) -> Self {
        Self { handles: Mutex::default(), news }
    }

    pub(crate) fn news(&self) -> &News {
        &self.news
    }

    /// Adds a peer. Its messages are for anyone from now on.
    pub(crate) fn add(&self, key: PeerKey, cell: &Arc<PeerCell>, handle: Weak<T>) {
        // Before the handle is noted: a message that is listed must find its peer here, or it is
        // dropped.
        self.lock().insert(key, Entry { cell: Arc::clone(cell), handle });
        cell.set_handle(true);
        // Messages that came before there was a handle were not listed.
        self.list(key, cell);
    }

    /// Lists a peer whose messages anyone may take now.
    pub(crate) fn list(&self, key: PeerKey, cell: &Arc<PeerCell>) {
        let mut wakers = Vec::new();
        self.news.inboxes.list(key, cell, &mut wakers);
        wake_all(wakers);
    }

    /// Removes a peer whose last handle is being dropped.
    pub(crate) fn remove(&self, key: PeerKey, cell: &PeerCell) {
        let removed = self.lock().remove(&key);
        drop(removed);
        // Before the entry is removed, so that the leader does not list the peer again.
        cell.set_handle(false);
        self.news.inboxes.remove(cell);
        let mut wakers = Vec::new();
        self.news.note_parting(&mut wakers);
        wake_all(wakers);
    }

    /// Begins to list messages of any peer.
    pub(crate) fn begin_listing(&self) {
        if !self.news.inboxes.begin() {
            return;
        }
        // Collected first: listing takes another lock, and may wake tasks.
        let peers: Vec<_> = self.lock().iter().map(|(key, entry)| (*key, Arc::clone(&entry.cell))).collect();
        peers.iter().for_each(|(key, cell)| self.list(*key, cell));
    }

    /// Returns the handle of a peer, if it is not being dropped.
    pub(crate) fn find(&self, key: PeerKey) -> Option<Arc<T>> {
        self.lock().get(&key)?.handle.upgrade()
    }

    /// Returns the handles of all peers that are connected, in the order in which they connected.
    pub(crate) fn connected(&self) -> Vec<Arc<T>> {
        let handles = self.lock();
        let is_connected = |entry: &Entry<T>| entry.cell.is_up() && entry.cell.lost().is_none();
        let connected = handles.iter().filter(|(_, entry)| is_connected(entry));
        let mut found: Vec<_> =
            connected.filter_map(|(key, it)| Some((*key, it.handle.upgrade()?))).collect();
        // The handles that were made live on in `found`. None is dropped under the lock.
        drop(handles);
        // The map has no order. Keys rise in the order in which peers connect.
        found.sort_unstable_by_key(|(key, _)| *key);
        found.into_iter().map(|(_, handle)| handle).collect()
    }

    /// Returns whether no message and no event will follow.
    pub(crate) fn is_over(&self) -> bool {
        self.news.is_over(|| self.lock().values().any(|entry| entry.cell.lost().is_none()))
    }

    fn lock(&self) -> MutexGuard<'_, IdMap<PeerKey, Entry<T>>> {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
