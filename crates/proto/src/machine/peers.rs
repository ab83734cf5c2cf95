//! The peers of a machine, by key.
//!
//! Invariant: a key is never reused. A peer that connects again gets another one.

use std::ops::{Index, IndexMut};

use super::PeerKey;
use super::peer::Peer;

const FORGOTTEN: &str = "a peer that is named was not forgotten";

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Peers {
    /// Indexed by key; `None` if the peer was forgotten.
    places: Vec<Option<Box<Peer>>>,
}

impl Peers {
    pub(super) fn add(&mut self, peer: Peer) -> PeerKey {
        let key = PeerKey(self.places.len() as u32);
        self.places.push(Some(Box::new(peer)));
        key
    }

    #[inline]
    pub(super) fn get(&self, key: PeerKey) -> Option<&Peer> {
        self.places.get(key.0 as usize)?.as_deref()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, key: PeerKey) -> Option<&mut Peer> {
        self.places.get_mut(key.0 as usize)?.as_deref_mut()
    }

    /// Removes a peer.
    pub(super) fn forget(&mut self, key: PeerKey) {
        // The place stays empty: with its key given out again, an old handle would name a new peer.
        self.places[key.0 as usize] = None;
    }

    /// Returns all keys that were ever assigned, in order.
    pub(super) fn keys(&self) -> impl Iterator<Item = PeerKey> + use<> {
        // Also of forgotten peers: callers change the table while they go through it.
        (0..self.places.len() as u32).map(PeerKey)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Peer> {
        self.places.iter().filter_map(Option::as_deref)
    }

    /// As [`iter`](Self::iter), with their keys.
    pub(super) fn iter_keys(&self) -> impl Iterator<Item = (PeerKey, &Peer)> {
        self.keys().filter_map(|key| Some((key, self.get(key)?)))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Peer> {
        self.places.iter_mut().filter_map(Option::as_deref_mut)
    }
}

/// For a peer that something of the machine names: its links, its operations, its timers. It is forgotten
/// when nothing does. What a driver or a user names may be gone, and is looked up by [`get`](Peers::get).
impl Index<PeerKey> for Peers {
    type Output = Peer;

    #[inline]
    #[track_caller]
    fn index(&self, key: PeerKey) -> &Peer {
        self.get(key).expect(FORGOTTEN)
    }
}

impl IndexMut<PeerKey> for Peers {
    #[inline]
    #[track_caller]
    fn index_mut(&mut self, key: PeerKey) -> &mut Peer {
        self.get_mut(key).expect(FORGOTTEN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::names::Names;
    use crate::machine::tests::tuning;
    use crate::time::Time;

    #[test]
    fn a_key_is_never_used_again() {
        let mut peers = Peers::default();
        let mut names = Names::new([7; 32]);
        let [first, second] = [true, false]
            .map(|is_initiator| peers.add(Peer::new(is_initiator, &tuning(), &mut names, Time::ZERO)));
        peers.forget(first);
        assert!(peers.get(first).is_none() && peers.get_mut(first).is_none());
        assert!(!peers.get(second).unwrap().is_initiator);
        let third = peers.add(Peer::new(true, &tuning(), &mut names, Time::ZERO));
        assert!(third != first && third != second);
        assert_eq!((peers.keys().count(), peers.iter().count(), peers.iter_mut().count()), (3, 2, 2));
        assert!(peers.get(PeerKey(3)).is_none(), "nobody ever had it");
    }
}
