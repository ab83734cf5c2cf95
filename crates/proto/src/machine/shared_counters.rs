//! Shared counters: counters that every permitted peer may raise. Each peer that opens one gets a
//! counter of its own, and the user's side adds them up.

use std::collections::BTreeMap;

use super::PeerKey;
use super::admission::NotOpened;
use super::id_map::IdMap;
use super::names::Names;
use crate::access::Access;
use crate::counter::CounterId;
use crate::ids::SharedCounterId;

/// All shared counters of this side, by id.
///
/// Invariant: `members` names the shared counter of exactly those counters that one of `all` has.
#[derive(Debug, Default)]
pub(super) struct SharedCounters {
    all: IdMap<SharedCounterId, SharedCounter>,
    members: IdMap<CounterId, SharedCounterId>,
}

#[derive(Debug)]
struct SharedCounter {
    access: Access,
    /// The counter of each peer that has opened it and is not lost.
    members: BTreeMap<PeerKey, CounterId>,
}

/// The answer to a peer that wants to open a shared counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Joining {
    /// It has this counter already.
    Known(CounterId),
    /// It gets one.
    New,
    /// It does not get one.
    Refused(NotOpened),
}

impl SharedCounters {
    /// Adds a shared counter. Returns its id, which no peer can guess.
    pub(super) fn add(&mut self, access: Access, names: &mut Names) -> SharedCounterId {
        let id = SharedCounterId(names.draw(|id| !self.all.contains_key(&SharedCounterId(id))));
        self.all.insert(id, SharedCounter { access, members: BTreeMap::new() });
        id
    }

    /// Permits a further name. Returns `false` if there is no such counter, or everybody is permitted.
    pub(super) fn admit(&mut self, id: SharedCounterId, name: &str) -> bool {
        self.all.get_mut(&id).is_some_and(|it| it.access.admit(name))
    }

    /// Decides about a peer whose certificate has these names.
    pub(super) fn open(&self, id: SharedCounterId, peer: PeerKey, names: &[String]) -> Joining {
        let Some(it) = self.all.get(&id) else {
            return Joining::Refused(NotOpened::NoSuchCounter);
        };
        match it.members.get(&peer) {
            Some(counter) => Joining::Known(*counter),
            None if it.access.permits(names) => Joining::New,
            None => Joining::Refused(NotOpened::NotPermitted),
        }
    }

    /// Notes the counter of a peer.
    pub(super) fn join(&mut self, id: SharedCounterId, peer: PeerKey, counter: CounterId) {
        let it = self.all.get_mut(&id).expect("it was just opened");
        let before = it.members.insert(peer, counter);
        assert_eq!(before, None, "{peer:?} has two counters of {id}");
        self.members.insert(counter, id);
    }

    /// Removes the counter of a lost peer. Returns `false` if it is of no shared counter.
    pub(super) fn part(&mut self, peer: PeerKey, counter: CounterId) -> bool {
        // A counter that the peer alone raises belongs to its user, who closes it.
        let Some(id) = self.members.remove(&counter) else { return false };
        let it = self.all.get_mut(&id).expect("a shared counter ends with its members");
        it.members.remove(&peer);
        true
    }

    /// Iterates over the counters of all peers: shared counters, peers and counters.
    pub(super) fn iter_members(&self) -> impl Iterator<Item = (SharedCounterId, PeerKey, CounterId)> {
        let members = |(id, it): (&SharedCounterId, &SharedCounter)| {
            let id = *id;
            it.members.iter().map(move |(peer, counter)| (id, *peer, *counter)).collect::<Vec<_>>()
        };
        self.all.iter().flat_map(members)
    }

    /// Checks that each counter of a peer names its shared counter.
    pub(super) fn check(&self) {
        let of_all: BTreeMap<CounterId, SharedCounterId> =
            self.iter_members().map(|(id, _, it)| (it, id)).collect();
        let named: BTreeMap<CounterId, SharedCounterId> =
            self.members.iter().map(|(it, id)| (*it, *id)).collect();
        assert_eq!(of_all, named, "shared counters: the members");
    }

    /// Removes a shared counter. Returns the counters of its peers.
    pub(super) fn remove(&mut self, id: SharedCounterId) -> Vec<CounterId> {
        let members = self.all.remove(&id).map(|it| it.members.into_values().collect()).unwrap_or_default();
        for counter in &members {
            self.members.remove(counter);
        }
        members
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: PeerKey = PeerKey(1);
    const TWO: PeerKey = PeerKey(2);

    fn counter(number: u32) -> CounterId {
        CounterId::from_raw(number)
    }

    fn shared(access: Access) -> (SharedCounters, SharedCounterId) {
        let mut all = SharedCounters::default();
        let id = all.add(access, &mut Names::new([7; 32]));
        (all, id)
    }

    #[test]
    fn each_peer_has_one_counter_of_it() {
        let (mut all, id) = shared(Access::Anyone);
        assert_eq!(all.open(id, ONE, &[]), Joining::New);
        all.join(id, ONE, counter(1));
        assert_eq!(all.open(id, ONE, &[]), Joining::Known(counter(1)));
        assert_eq!(all.open(id, TWO, &[]), Joining::New);
        all.join(id, TWO, counter(2));
        assert!(all.part(ONE, counter(1)) && !all.part(ONE, counter(1)));
        assert_eq!(all.open(id, ONE, &[]), Joining::New);
        assert!(matches!(all.open(SharedCounterId(!id.0), ONE, &[]), Joining::Refused(_)));
        assert_eq!(all.remove(id), [counter(2)]);
        assert!(!all.part(TWO, counter(2)) && all.members.is_empty());
        assert!(matches!(all.open(id, TWO, &[]), Joining::Refused(_)));
    }

    #[test]
    fn only_those_with_a_permitted_name_get_one() {
        let (mut all, id) = shared(Access::only(["a.example"]));
        let names = ["b.example".to_owned()];
        assert!(matches!(all.open(id, ONE, &names), Joining::Refused(_)));
        assert!(all.admit(id, "B.example") && !all.admit(SharedCounterId(!id.0), "b.example"));
        assert_eq!(all.open(id, ONE, &names), Joining::New);
        let (mut all, id) = shared(Access::Anyone);
        assert!(!all.admit(id, "a.example"), "everybody may");
    }
}
