//! Marks of messages: they identify the peer where a rail does not report over which link a message
//! came.

use super::PeerKey;
use super::id_map::IdMap;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Marks {
    peers: IdMap<u32, PeerKey>,
    next: u32,
}

impl Default for Marks {
    fn default() -> Self {
        Self { peers: IdMap::default(), next: 1 }
    }
}

impl Marks {
    /// Assigns a mark to a link of this peer.
    pub(super) fn give(&mut self, peer: PeerKey) -> u32 {
        let mark = self.next;
        self.next = self.next.wrapping_add(1);
        self.peers.insert(mark, peer);
        mark
    }

    /// Returns the peer whose messages carry this mark.
    #[inline]
    pub(super) fn peer(&self, mark: u32) -> Option<PeerKey> {
        self.peers.get(&mark).copied()
    }

    /// Removes the mark of a link that can no longer be used.
    pub(super) fn end(&mut self, mark: u32) {
        self.peers.remove(&mark);
    }

    pub(super) fn len(&self) -> usize {
        self.peers.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_of_one_peer_until_it_ends() {
        let mut marks = Marks::default();
        let [first, second] = [3, 4].map(|peer| marks.give(PeerKey(peer)));
        assert_eq!([first, second].map(|mark| marks.peer(mark)), [Some(PeerKey(3)), Some(PeerKey(4))]);
        marks.end(first);
        assert_eq!((marks.peer(first), marks.len()), (None, 1));
        assert_ne!(marks.give(PeerKey(5)), first);
    }
}
