//! Publications: local memory that every allowed peer may open. A peer that opens one gets a grant of
//! its own, with keys of its own, so that it can be revoked alone.
//!
//! Invariant: a peer has an entry from its request to open a publication until nothing of the grant is
//! left. A withdrawal that comes while the grant is being made is kept with the entry, and begins when the
//! grant is there.

use std::collections::{BTreeMap, BTreeSet};

use super::admission::{Admission, NotOpened};
use super::id_map::IdMap;
use super::names::Names;
use super::own_grants::Until;
use super::{OpId, PeerKey};
use crate::access::Access;
use crate::ids::{GrantId, PublicationId};
use crate::rights::Rights;
use crate::time::Time;

/// The peers whose keys could not be ended that a publication remembers: a card that fails so often is broken.
const UNSTOPPED_MAX: usize = 1024;

/// All publications of this side, by id.
#[derive(Debug, Default)]
pub(super) struct Publications {
    all: IdMap<PublicationId, Publication>,
    /// Requests to withdraw a publication from some peers, which are not answered.
    waits: Vec<Wait>,
}

/// Local memory that every allowed peer may open.
#[derive(Debug)]
pub(super) struct Publication {
    rights: Rights,
    admission: Admission,
    /// The grant of each peer that has opened it.
    grants: BTreeMap<PeerKey, PeerGrant>,
    /// The peers of grants with a key that a rail could not end, with the names of their certificates. It is
    /// never proven that they have stopped.
    unstopped: BTreeMap<PeerKey, Vec<String>>,
    /// Whether there were too many of them: each peer counts as one then.
    are_all_unstopped: bool,
    /// Set while it is being withdrawn from all peers.
    withdrawal: Option<Withdrawal>,
}

/// The grant of a peer that has opened a publication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PeerGrant {
    /// It is being made. It must be revoked when it is made, if `until` is set.
    Making {
        until: Option<Until>,
    },
    Made(GrantId),
    /// It is being revoked.
    Ending(GrantId),
}

/// A publication that is being withdrawn from all peers.
#[derive(Debug)]
struct Withdrawal {
    /// The request to answer; `None` if nobody waits.
    op: Option<OpId>,
}

/// A request to withdraw a publication from some peers.
#[derive(Debug)]
struct Wait {
    op: OpId,
    publication: PublicationId,
    deadline: Time,
    /// The peers whose grants have not ended.
    peers: BTreeSet<PeerKey>,
}

/// The answer to a peer that wants to open a publication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Opening {
    /// It has this grant already.
    Known(GrantId),
    /// A grant for it is being made.
    Begun,
    /// It gets one with these rights.
    New(Rights),
    /// It does not get one.
    Refused(NotOpened),
}

impl Publications {
    /// Adds a publication. Returns its id, which no peer can guess.
    pub(super) fn add(&mut self, rights: Rights, access: Access, names: &mut Names) -> PublicationId {
        let id = PublicationId(names.draw(|id| !self.all.contains_key(&PublicationId(id))));
        let (admission, grants, withdrawal) = (Admission::new(access), BTreeMap::new(), None);
        let (unstopped, are_all_unstopped) = (BTreeMap::new(), false);
        let it = Publication { rights, admission, grants, unstopped, are_all_unstopped, withdrawal };
        self.all.insert(id, it);
        id
    }

    /// Returns who may open a publication; `None` if there is no such publication.
    pub(super) fn admission(&mut self, id: PublicationId) -> Option<&mut Admission> {
        Some(&mut self.all.get_mut(&id)?.admission)
    }

    /// Decides about a peer whose certificate has these names. [`made`](Self::made) or
    /// [`ended`](Self::ended) follows if it gets a grant.
    pub(super) fn open(&mut self, id: PublicationId, peer: PeerKey, names: &[String]) -> Opening {
        let Some(it) = self.all.get_mut(&id).filter(|it| it.withdrawal.is_none()) else {
            return Opening::Refused(NotOpened::NoSuchPublication);
        };
        if let Err(why) = it.admission.check(peer, names) {
            return Opening::Refused(why);
        }
        match it.grants.get(&peer) {
            Some(PeerGrant::Made(grant)) => Opening::Known(*grant),
            Some(PeerGrant::Making { until: None }) => Opening::Begun,
            // It was admitted again since.
            Some(PeerGrant::Making { until: Some(_) } | PeerGrant::Ending(_)) => {
                Opening::Refused(NotOpened::Revoking)
            }
            None => {
                // The entry comes first: a peer that asks again meanwhile must not get a second grant.
                it.grants.insert(peer, PeerGrant::Making { until: None });
                Opening::New(it.rights)
            }
        }
    }

    /// Notes the grant that was made for a peer. Returns how it must be revoked, if it was withdrawn
    /// meanwhile, or the peer is not there any more.
    pub(super) fn made(
        &mut self,
        id: PublicationId,
        peer: PeerKey,
        grant: GrantId,
        is_there: bool,
    ) -> Option<Until> {
        let entry = self.all.get_mut(&id).and_then(|it| it.grants.get_mut(&peer));
        // Nobody has asked for it, so nobody else would end it.
        let Some(entry) = entry else { return Some(Until::NEVER) };
        let until = match entry {
            PeerGrant::Making { until } => until.or((!is_there).then_some(Until::NEVER)),
            // Nobody has asked for it.
            PeerGrant::Made(_) | PeerGrant::Ending(_) => return Some(Until::NEVER),
        };
        // A withdrawal came while it was being made, and could not name it.
        *entry = if until.is_some() { PeerGrant::Ending(grant) } else { PeerGrant::Made(grant) };
        until
    }

    /// Begins to end the grants of some peers. Returns those to revoke: others are being made.
    pub(super) fn end(
        &mut self,
        id: PublicationId,
        until: Until,
        peers: impl IntoIterator<Item = PeerKey>,
    ) -> Vec<GrantId> {
        // Only a grant that nobody has asked for outlives its publication.
        let Some(it) = self.all.get_mut(&id) else { return Vec::new() };
        peers.into_iter().filter_map(|peer| it.grants.get_mut(&peer)?.end(until)).collect()
    }

    /// Begins to withdraw a publication from some peers. Returns the grants to revoke, or `None` if none
    /// of these peers has it. The request, if there is one, is in [`ended`](Self::ended) or
    /// [`late`](Self::late) later.
    pub(super) fn withdraw_from(
        &mut self,
        id: PublicationId,
        op: Option<OpId>,
        deadline: Time,
        of: impl Fn(PeerKey) -> bool,
    ) -> Option<Vec<GrantId>> {
        let holders = self.all.get(&id)?.grants.keys().copied();
        let peers: BTreeSet<PeerKey> = holders.filter(|peer| of(*peer)).collect();
        // None of them has a grant, so there is nothing to wait for.
        if peers.is_empty() {
            return None;
        }
        let grants = self.end(id, Until { deadline, is_proven: true }, peers.iter().copied());
        // It waits for grants that were being withdrawn before, too: its user asks whether nobody can reach the
        // memory.
        self.waits.extend(op.map(|op| Wait { op, publication: id, deadline, peers }));
        Some(grants)
    }

    /// Begins to withdraw a publication. Returns the grants to revoke, or `None` if there is no such
    /// publication, or it is being withdrawn already.
    pub(super) fn withdraw(
        &mut self,
        id: PublicationId,
        op: Option<OpId>,
        deadline: Time,
    ) -> Option<Vec<GrantId>> {
        let it = self.all.get_mut(&id).filter(|it| it.withdrawal.is_none())?;
        // From now on nobody can open it, so the number of its grants only falls.
        it.withdrawal = Some(Withdrawal { op });
        let until = Until { deadline, is_proven: false };
        Some(it.grants.values_mut().filter_map(|grant| grant.end(until)).collect())
    }

    /// Notes that the grant of a peer has ended, or was not made. Returns the requests that have waited
    /// for it and for no other.
    pub(super) fn ended(&mut self, id: PublicationId, peer: PeerKey) -> Vec<OpId> {
        if let Some(it) = self.all.get_mut(&id) {
            it.grants.remove(&peer);
        }
        let is_over =
            |wait: &mut Wait| wait.publication == id && wait.peers.remove(&peer) && wait.peers.is_empty();
        self.waits.extract_if(.., is_over).map(|wait| wait.op).collect()
    }

    /// Notes that a rail could not end the key of a peer with these names.
    pub(super) fn key_failed(&mut self, id: PublicationId, peer: PeerKey, names: &[String]) {
        let Some(it) = self.all.get_mut(&id) else { return };
        match it.unstopped.len() < UNSTOPPED_MAX {
            // Kept with its names, because it may come back over another connection.
            true => drop(it.unstopped.insert(peer, names.to_vec())),
            // To forget one would prove what is not so.
            false => it.are_all_unstopped = true,
        }
    }

    /// Returns `true` if the key of a peer that is concerned has not ended.
    pub(super) fn is_unstopped(
        &self,
        id: PublicationId,
        concerns: impl Fn(PeerKey, &[String]) -> bool,
    ) -> bool {
        let is_concerned = |it: &Publication| it.unstopped.iter().any(|(peer, names)| concerns(*peer, names));
        self.all.get(&id).is_some_and(|it| it.are_all_unstopped || is_concerned(it))
    }

    /// Returns `true` if a request waits for the end of a grant.
    pub(super) fn are_awaited(&self) -> bool {
        !self.waits.is_empty()
    }

    /// Takes the requests whose deadlines have passed.
    pub(super) fn late(&mut self, now: Time) -> Vec<OpId> {
        self.waits.extract_if(.., |wait| now >= wait.deadline).map(|wait| wait.op).collect()
    }

    /// Takes the requests that wait for the end of a grant, because it ends without a proof.
    pub(super) fn not_proven(&mut self, id: PublicationId, peer: PeerKey) -> Vec<OpId> {
        let is_of = |wait: &mut Wait| wait.publication == id && wait.peers.contains(&peer);
        self.waits.extract_if(.., is_of).map(|wait| wait.op).collect()
    }

    /// Removes a publication that is being withdrawn and has no grant left. Returns the request to
    /// answer, which is `None` if nobody waits.
    pub(super) fn finish(&mut self, id: PublicationId) -> Option<Option<OpId>> {
        let it = self.all.get(&id)?;
        // A publication without readers stays until its owner withdraws it.
        if it.withdrawal.is_none() || !it.grants.is_empty() {
            return None;
        }
        Some(self.all.remove(&id)?.withdrawal?.op)
    }

    /// Returns whether a peer has an entry.
    pub(super) fn has_opened(&self, id: PublicationId, peer: PeerKey) -> bool {
        self.all.get(&id).is_some_and(|it| it.grants.contains_key(&peer))
    }

    /// Returns the grant of a peer, if it is made.
    pub(super) fn grant_of(&self, id: PublicationId, peer: PeerKey) -> Option<GrantId> {
        match self.all.get(&id)?.grants.get(&peer)? {
            PeerGrant::Making { .. } => None,
            PeerGrant::Made(grant) | PeerGrant::Ending(grant) => Some(*grant),
        }
    }

    /// Iterates over all grants that are made: publications, peers and grants.
    pub(super) fn iter_grants(&self) -> impl Iterator<Item = (PublicationId, PeerKey, GrantId)> {
        let of = |(id, it): (&PublicationId, &Publication)| {
            let id = *id;
            it.grants.keys().map(move |peer| (id, *peer)).collect::<Vec<_>>()
        };
        let pairs = self.all.iter().flat_map(of);
        pairs.filter_map(|(id, peer)| Some((id, peer, self.grant_of(id, peer)?)))
    }

    /// Returns the number of publications, and of requests that wait.
    pub(super) fn len(&self) -> usize {
        self.all.len() + self.waits.len()
    }
}

impl PeerGrant {
    /// Begins to end it. Returns the grant to revoke, if it is made.
    fn end(&mut self, until: Until) -> Option<GrantId> {
        match self {
            Self::Making { until: before } => {
                // It has no id yet, by which it could be revoked. `made` hands this back with the
                // id.
                *before = Some(before.map_or(until, |before| before.and(until)));
                None
            }
            // Also one that is ending: this deadline may be earlier than its own.
            Self::Made(grant) | Self::Ending(grant) => {
                let grant = *grant;
                *self = Self::Ending(grant);
                Some(grant)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: PeerKey = PeerKey(1);
    const TWO: PeerKey = PeerKey(2);
    const OP: OpId = OpId(5);

    fn published(access: Access) -> (Publications, PublicationId) {
        let mut all = Publications::default();
        let id = all.add(Rights::READ, access, &mut Names::new([7; 32]));
        (all, id)
    }

    fn is_refused(all: &mut Publications, id: PublicationId, peer: PeerKey) -> bool {
        matches!(all.open(id, peer, &[]), Opening::Refused(_))
    }

    #[test]
    fn each_peer_gets_one_grant() {
        let (mut all, id) = published(Access::Anyone);
        assert_eq!(all.open(id, ONE, &[]), Opening::New(Rights::READ));
        assert_eq!(all.open(id, ONE, &[]), Opening::Begun, "it does not get another one");
        assert_eq!(all.made(id, ONE, GrantId(11), true), None);
        assert_eq!(all.open(id, ONE, &[]), Opening::Known(GrantId(11)));
        assert_eq!(all.open(id, TWO, &[]), Opening::New(Rights::READ));
        assert!(is_refused(&mut all, PublicationId(!id.0), ONE));
        assert!(all.ended(id, ONE).is_empty() && all.finish(id).is_none());
        assert_eq!(all.open(id, ONE, &[]), Opening::New(Rights::READ), "it may open it again");
    }

    #[test]
    fn only_those_with_a_permitted_name_get_one() {
        let (mut all, id) = published(Access::only(["a.example"]));
        let name = |name: &str| [name.to_owned()];
        assert!(is_refused(&mut all, id, ONE));
        assert!(matches!(all.open(id, ONE, &name("b.example")), Opening::Refused(_)));
        assert_eq!(all.open(id, ONE, &name("A.example")), Opening::New(Rights::READ));
        all.ended(id, ONE);
        assert!(all.admission(id).unwrap().admit("b.example"));
        assert_eq!(all.open(id, ONE, &name("b.example")), Opening::New(Rights::READ));
    }

    #[test]
    fn it_is_withdrawn_when_its_last_grant_has_ended() {
        let (mut all, id) = published(Access::Anyone);
        for (peer, grant) in [(ONE, GrantId(11)), (TWO, GrantId(12))] {
            all.open(id, peer, &[]);
            all.made(id, peer, grant, true);
        }
        assert_eq!(all.withdraw(id, Some(OP), Time(9)), Some(vec![GrantId(11), GrantId(12)]));
        assert_eq!(all.withdraw(id, None, Time(9)), None, "once");
        assert!(is_refused(&mut all, id, ONE));
        assert!(all.ended(id, TWO).is_empty() && all.finish(id).is_none());
        assert!(all.ended(id, ONE).is_empty());
        assert_eq!((all.finish(id), all.len()), (Some(Some(OP)), 0));
    }

    #[test]
    fn a_grant_that_is_being_made_is_revoked_as_whoever_asked_first_and_most_wants() {
        let late = |deadline, is_proven| Until { deadline, is_proven };
        for (withdraws_all, until) in [(false, late(Time(20), true)), (true, late(Time(10), false))] {
            let (mut all, id) = published(Access::Anyone);
            all.open(id, ONE, &[]);
            assert_eq!(all.withdraw_from(id, Some(OP), Time(30), |it| it == ONE), Some(vec![]));
            assert_eq!(all.withdraw_from(id, Some(OpId(6)), Time(20), |it| it == ONE), Some(vec![]));
            assert_eq!(all.withdraw_from(id, Some(OpId(7)), Time(20), |it| it == TWO), None, "it has none");
            if withdraws_all {
                assert_eq!(all.withdraw(id, None, Time(10)), Some(vec![]));
            }
            assert!(is_refused(&mut all, id, ONE), "even if it was admitted again");
            assert_eq!(all.made(id, ONE, GrantId(11), true), Some(until));
            assert!(is_refused(&mut all, id, ONE));
            assert!(all.finish(id).is_none() && all.are_awaited());
            assert_eq!(all.late(Time(20)), [OpId(6)], "the other one has more time");
            assert_eq!(all.ended(id, ONE), [OP]);
            assert_eq!(all.finish(id).is_some(), withdraws_all);
        }
    }

    #[test]
    fn a_request_waits_for_all_its_peers() {
        let (mut all, id) = published(Access::Anyone);
        for (peer, grant) in [(ONE, GrantId(11)), (TWO, GrantId(12))] {
            all.open(id, peer, &[]);
            all.made(id, peer, grant, true);
        }
        assert_eq!(all.withdraw_from(id, Some(OP), Time(30), |_| true), Some(vec![GrantId(11), GrantId(12)]));
        assert_eq!(all.withdraw_from(id, Some(OpId(6)), Time(30), |it| it == TWO), Some(vec![GrantId(12)]));
        assert!(all.ended(PublicationId(!id.0), ONE).is_empty(), "of another publication");
        assert!(all.ended(id, ONE).is_empty());
        assert_eq!(all.not_proven(id, TWO), [OP, OpId(6)]);
        assert!(all.ended(id, TWO).is_empty() && !all.are_awaited());
    }

    #[test]
    fn a_grant_that_nobody_waits_for_is_revoked() {
        let (mut all, id) = published(Access::Anyone);
        assert_eq!(all.made(id, ONE, GrantId(11), true), Some(Until::NEVER), "it has not asked");
        all.open(id, ONE, &[]);
        assert_eq!(all.made(id, ONE, GrantId(11), false), Some(Until::NEVER), "it is gone");
        assert_eq!(all.end(id, Until::NEVER, [ONE, TWO]), [GrantId(11)]);
    }
}
