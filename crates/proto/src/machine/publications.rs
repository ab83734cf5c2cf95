//! Publications: local memory that every allowed peer may open. A peer that opens one gets a grant of
//! its own, with keys of its own, so that it can be revoked alone.

use std::collections::BTreeMap;

use super::id_map::IdMap;
use super::names::Names;
use super::{OpId, PeerKey};
use crate::access::Access;
use crate::rights::Rights;

/// All publications of this side, by id.
#[derive(Debug, Default)]
pub(super) struct Publications {
    all: IdMap<u64, Publication>,
}

/// Local memory that every allowed peer may open.
#[derive(Debug)]
pub(super) struct Publication {
    rights: Rights,
    access: Access,
    /// The grant of each peer that has opened it, and has it still; `None` while it is being made.
    grants: BTreeMap<PeerKey, Option<u64>>,
    /// Set while it is being withdrawn from all peers.
    withdrawal: Option<Withdrawal>,
}

/// A publication that is being withdrawn from all peers.
#[derive(Debug)]
struct Withdrawal {
    /// The request to answer; `None` if nobody waits.
    op: Option<OpId>,
}

/// The answer to a peer that wants to open a publication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Opening {
    /// It has this grant already.
    Known(u64),
    /// A grant for it is being made.
    Begun,
    /// It gets one with these rights.
    New(Rights),
    /// It does not get one.
    Refused(&'static str),
}

impl Publications {
    /// Adds a publication. Returns its id, which no peer can guess.
    pub(super) fn add(&mut self, rights: Rights, access: Access, names: &mut Names) -> u64 {
        let id = names.draw(|id| !self.all.contains_key(&id));
        self.all.insert(id, Publication { rights, access, grants: BTreeMap::new(), withdrawal: None });
        id
    }

    pub(super) fn get_mut(&mut self, id: u64) -> Option<&mut Publication> {
        self.all.get_mut(&id)
    }

    /// Decides about a peer whose certificate has these names. [`made`](Publication::made) follows if
    /// it gets a grant.
    pub(super) fn open(&mut self, id: u64, peer: PeerKey, names: &[String]) -> Opening {
        let Some(it) = self.all.get_mut(&id).filter(|it| it.withdrawal.is_none()) else {
            return Opening::Refused("there is no such publication, or it was revoked");
        };
        match it.grants.get(&peer) {
            Some(Some(grant)) => Opening::Known(*grant),
            Some(None) => Opening::Begun,
            None if !it.access.permits(names) => Opening::Refused("the owner does not permit this peer"),
            None => {
                it.grants.insert(peer, None);
                Opening::New(it.rights)
            }
        }
    }

    /// Ends the grant of a peer. Returns the publication's withdrawal if this was its last grant.
    pub(super) fn end_grant(&mut self, id: u64, peer: PeerKey, grant: u64) -> Option<Option<OpId>> {
        let it = self.all.get_mut(&id)?;
        if it.grants.get(&peer) == Some(&Some(grant)) {
            it.grants.remove(&peer);
        }
        self.finish(id)
    }

    /// Begins to withdraw a publication. Returns its grants, or `None` if there is no such
    /// publication, or it is being withdrawn already.
    pub(super) fn withdraw(&mut self, id: u64, op: Option<OpId>) -> Option<Vec<u64>> {
        let it = self.all.get_mut(&id).filter(|it| it.withdrawal.is_none())?;
        it.withdrawal = Some(Withdrawal { op });
        Some(it.grants.values().copied().flatten().collect())
    }

    /// Removes a publication that is being withdrawn and has no grant left. Returns its withdrawal.
    pub(super) fn finish(&mut self, id: u64) -> Option<Option<OpId>> {
        let it = self.all.get(&id)?;
        if it.withdrawal.is_none() || !it.grants.is_empty() {
            return None;
        }
        Some(self.all.remove(&id)?.withdrawal?.op)
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.all.len()
    }
}

impl Publication {
    /// Permits a further name. Returns `false` if everybody is permitted.
    pub(super) fn admit(&mut self, name: &str) -> bool {
        self.access.admit(name)
    }

    /// Notes the grant that was made for a peer, or that none could be made. Returns `false` if the
    /// publication is being withdrawn.
    pub(super) fn made(&mut self, peer: PeerKey, grant: Option<u64>) -> bool {
        match grant {
            Some(grant) => self.grants.insert(peer, Some(grant)),
            None => self.grants.remove(&peer),
        };
        self.withdrawal.is_none()
    }

    pub(super) fn grant_of(&self, peer: PeerKey) -> Option<u64> {
        self.grants.get(&peer).copied().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: PeerKey = PeerKey(1);
    const TWO: PeerKey = PeerKey(2);

    fn published(access: Access) -> (Publications, u64) {
        let mut all = Publications::default();
        let id = all.add(Rights::READ, access, &mut Names::new([7; 32]));
        (all, id)
    }

    #[test]
    fn each_peer_gets_one_grant() {
        let (mut all, id) = published(Access::Anyone);
        assert_eq!(all.open(id, ONE, &[]), Opening::New(Rights::READ));
        assert_eq!(all.open(id, ONE, &[]), Opening::Begun, "it does not get another one");
        assert!(all.get_mut(id).unwrap().made(ONE, Some(11)));
        assert_eq!(all.open(id, ONE, &[]), Opening::Known(11));
        assert_eq!(all.open(id, TWO, &[]), Opening::New(Rights::READ));
        assert!(matches!(all.open(!id, ONE, &[]), Opening::Refused(_)));
        assert_eq!(all.end_grant(id, ONE, 11), None);
        assert_eq!(all.open(id, ONE, &[]), Opening::New(Rights::READ), "it may open it again");
    }

    #[test]
    fn only_those_with_a_permitted_name_get_one() {
        let (mut all, id) = published(Access::only(["a.example"]));
        let name = |name: &str| [name.to_owned()];
        assert!(matches!(all.open(id, ONE, &[]), Opening::Refused(_)));
        assert!(matches!(all.open(id, ONE, &name("b.example")), Opening::Refused(_)));
        assert_eq!(all.open(id, ONE, &name("A.example")), Opening::New(Rights::READ));
        all.get_mut(id).unwrap().made(ONE, None);
        assert!(all.get_mut(id).unwrap().admit("b.example"));
        assert_eq!(all.open(id, ONE, &name("b.example")), Opening::New(Rights::READ));
    }

    #[test]
    fn it_is_withdrawn_when_its_last_grant_has_ended() {
        let (mut all, id) = published(Access::Anyone);
        for (peer, grant) in [(ONE, 11), (TWO, 12)] {
            all.open(id, peer, &[]);
            all.get_mut(id).unwrap().made(peer, Some(grant));
        }
        assert_eq!(all.withdraw(id, Some(OpId(5))), Some(vec![11, 12]));
        assert_eq!(all.withdraw(id, None), None, "once");
        assert!(matches!(all.open(id, ONE, &[]), Opening::Refused(_)));
        assert_eq!(all.end_grant(id, TWO, 12), None);
        assert_eq!(all.end_grant(id, ONE, 11), Some(Some(OpId(5))));
        assert_eq!(all.len(), 0);
    }
}
