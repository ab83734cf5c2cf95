//! Memory of ours that peers may reach: which, whose, and how far it is on its way back.
//!
//! The carrier has the memory and its keys. What is proven, the memory itself knows: nothing that is decided here makes it a slice.

use std::collections::VecDeque;

use super::id_map::IdMap;
use super::{OpId, PeerKey};

/// Grants that are wanted back and that one look at the time sees to: a peer may be lost that had a hundred thousand.
const REVOKES_AT_ONCE: usize = 1024;

/// All of them, by their names.
#[derive(Debug)]
pub(super) struct OwnGrants {
    grants: IdMap<u64, OwnGrant>,
    next: u64,
    /// Those that are wanted back, in turn; some may be back already.
    revoking: VecDeque<u64>,
}

/// Memory of ours that a peer may reach.
#[derive(Debug)]
pub(super) struct OwnGrant {
    peer: PeerKey,
    keys: Keys,
    ending: Option<Ending>,
}

/// What has become of the keys to granted memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keys {
    Alive,
    /// They are being ended.
    Ending,
    Ended {
        /// Whether nobody reached the memory any more when they were.
        is_proven: bool,
    },
}

#[derive(Debug)]
struct Ending {
    /// Who hears of it; none where nobody does, or has heard.
    op: Option<OpId>,
    deadline: u64,
    is_acknowledged: bool,
    /// Of each rail, when its keys had been ended.
    generations: Option<Vec<u64>>,
    /// Whether the memory is being given back.
    is_going: bool,
}

/// What is to be done next for memory that is wanted back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    Wait,
    /// Its keys are to be ended.
    EndKeys,
    /// A reset of rails would prove that nobody reaches it. It is given back at once where none would, or it `is_late`.
    Prove {
        is_late: bool,
    },
    /// It is to be given back.
    GiveBack,
}

/// What is known of the peer that may reach the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    Well,
    /// It is lost, and has said before whether nothing of it is in flight.
    Lost {
        is_quiet: bool,
    },
}

/// What a new wish to have memory back makes of an earlier one.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Wish {
    pub(super) peer: PeerKey,
    /// Whether it is the first.
    pub(super) is_first: bool,
    /// Who has asked before, and hears that it was asked for again.
    pub(super) before: Option<OpId>,
}

impl Default for OwnGrants {
    fn default() -> Self {
        Self { grants: IdMap::default(), next: 1, revoking: VecDeque::new() }
    }
}

impl OwnGrants {
    /// Something is granted to a peer: by which name.
    pub(super) fn add(&mut self, peer: PeerKey) -> u64 {
        let id = self.next;
        self.next += 1;
        self.grants.insert(id, OwnGrant { peer, keys: Keys::Alive, ending: None });
        id
    }

    pub(super) fn get_mut(&mut self, id: u64) -> Option<&mut OwnGrant> {
        self.grants.get_mut(&id)
    }

    /// One that was granted to this peer.
    pub(super) fn of_peer(&mut self, id: u64, key: PeerKey) -> Option<&mut OwnGrant> {
        self.grants.get_mut(&id).filter(|grant| grant.peer == key)
    }

    /// It is wanted back until then. None where nothing of this name is granted.
    pub(super) fn revoke(&mut self, id: u64, op: Option<OpId>, deadline: u64) -> Option<Wish> {
        let grant = self.grants.get_mut(&id)?;
        let peer = grant.peer;
        if let Some(ending) = &mut grant.ending {
            ending.deadline = deadline;
            return Some(Wish { peer, is_first: false, before: std::mem::replace(&mut ending.op, op) });
        }
        let is_acknowledged = false;
        grant.ending = Some(Ending { op, deadline, is_acknowledged, generations: None, is_going: false });
        self.revoking.push_back(id);
        Some(Wish { peer, is_first: true, before: None })
    }

    /// Whether something is wanted back.
    pub(super) fn are_revoking(&self) -> bool {
        !self.revoking.is_empty()
    }

    /// Those that a look at the time sees to: they are out of the line until they are [put back](Self::put_back).
    pub(super) fn take_revoking(&mut self) -> Vec<u64> {
        let count = self.revoking.len().min(REVOKES_AT_ONCE);
        self.revoking.drain(..count).collect()
    }

    /// It waits in turn again, unless it is back.
    pub(super) fn put_back(&mut self, id: u64) {
        if self.grants.contains_key(&id) {
            self.revoking.push_back(id);
        }
    }

    /// It is back, or not: who has asked for it meanwhile. None where nothing of this name is granted, or its user has it in his hand again.
    pub(super) fn given_back(&mut self, id: u64, is_back: bool) -> Option<(PeerKey, Option<OpId>)> {
        let grant = self.grants.get_mut(&id)?;
        let (peer, ending) = (grant.peer, grant.ending.as_mut()?);
        ending.is_going = false;
        if !is_back {
            return None;
        }
        let later = ending.op.take();
        self.grants.remove(&id);
        Some((peer, later))
    }

    pub(super) fn len(&self) -> usize {
        self.grants.len()
    }
}

impl OwnGrant {
    /// Who may reach it.
    pub(super) fn peer(&self) -> PeerKey {
        self.peer
    }

    /// The peer says that it has stopped; whether it was asked to.
    pub(super) fn acknowledge(&mut self) -> bool {
        let Some(ending) = &mut self.ending else { return false };
        ending.is_acknowledged = true;
        true
    }

    /// Its keys were ended.
    pub(super) fn keys_ended(&mut self, is_proven: bool) {
        self.keys = Keys::Ended { is_proven };
    }

    /// What is to be done next. Keys are ended when the peer has said that it has stopped, when it is lost, and at the deadline; the memory is
    /// given back when there is nothing to wait for.
    pub(super) fn next(&mut self, reach: Reach, now: u64) -> Next {
        let Some(ending) = self.ending.as_ref().filter(|ending| !ending.is_going) else { return Next::Wait };
        // Its user was told that it is not back yet, and has it in his hand.
        if ending.op.is_none() && ending.deadline != u64::MAX {
            return Next::Wait;
        }
        let is_late = now >= ending.deadline;
        let is_lost = reach != Reach::Well;
        let has_word = ending.is_acknowledged || reach == (Reach::Lost { is_quiet: true });
        match self.keys {
            // A peer that is well is given until the deadline to answer: a key that dies under its hands costs it the link. It died at the first
            // deadline.
            Keys::Alive if !has_word && !is_lost && !is_late => Next::Wait,
            Keys::Alive => {
                self.keys = Keys::Ending;
                Next::EndKeys
            }
            Keys::Ending => Next::Wait,
            // A peer that says nothing may have writes in flight. A reset stops them, and is the proof. It costs all other peers of the rail their links, so it is
            // not made for a peer that has promised to stop; the memory then comes back without a proof.
            Keys::Ended { is_proven: false } if !has_word => Next::Prove { is_late },
            Keys::Ended { .. } => Next::GiveBack,
        }
    }

    /// The rails' generations when its keys had been ended, which were `now`: one that has another one since was begun anew.
    pub(super) fn generations(&mut self, now: impl FnOnce() -> Vec<u64>) -> &[u64] {
        self.ending.as_mut().map_or(&[], |ending| ending.generations.get_or_insert_with(now))
    }

    /// It is being given back: to whom.
    pub(super) fn give_back(&mut self) -> Option<OpId> {
        let ending = self.ending.as_mut()?;
        ending.is_going = true;
        ending.op.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: PeerKey = PeerKey(3);
    const OP: OpId = OpId(7);
    const DEADLINE: u64 = 100;

    /// One that is wanted back.
    fn revoked() -> (OwnGrants, u64) {
        let mut grants = OwnGrants::default();
        let id = grants.add(PEER);
        let wish = grants.revoke(id, Some(OP), DEADLINE);
        assert_eq!(wish, Some(Wish { peer: PEER, is_first: true, before: None }));
        (grants, id)
    }

    fn next(grants: &mut OwnGrants, id: u64, reach: Reach, now: u64) -> Next {
        grants.get_mut(id).unwrap().next(reach, now)
    }

    #[test]
    fn a_peer_that_is_well_has_until_the_deadline() {
        let (mut grants, id) = revoked();
        assert_eq!(next(&mut grants, id, Reach::Well, DEADLINE - 1), Next::Wait);
        assert_eq!(next(&mut grants, id, Reach::Well, DEADLINE), Next::EndKeys);
        assert_eq!(next(&mut grants, id, Reach::Well, DEADLINE), Next::Wait, "they are being ended");
        grants.get_mut(id).unwrap().keys_ended(false);
        assert_eq!(next(&mut grants, id, Reach::Well, DEADLINE), Next::Prove { is_late: true });
    }

    #[test]
    fn the_word_of_a_peer_ends_keys_and_spares_a_reset() {
        let (mut grants, id) = revoked();
        assert!(grants.of_peer(id, PeerKey(4)).is_none(), "it is not that peer's");
        assert!(grants.of_peer(id, PEER).unwrap().acknowledge());
        assert_eq!(next(&mut grants, id, Reach::Well, 1), Next::EndKeys);
        grants.get_mut(id).unwrap().keys_ended(false);
        assert_eq!(next(&mut grants, id, Reach::Well, 1), Next::GiveBack);
    }

    #[test]
    fn a_lost_peer_is_stopped_unless_it_said_goodbye() {
        for (is_quiet, then) in [(true, Next::GiveBack), (false, Next::Prove { is_late: false })] {
            let (mut grants, id) = revoked();
            assert_eq!(next(&mut grants, id, Reach::Lost { is_quiet }, 1), Next::EndKeys);
            grants.get_mut(id).unwrap().keys_ended(false);
            assert_eq!(next(&mut grants, id, Reach::Lost { is_quiet }, 1), then);
        }
    }

    #[test]
    fn what_a_dead_key_proves_is_given_back_at_once() {
        let (mut grants, id) = revoked();
        next(&mut grants, id, Reach::Lost { is_quiet: false }, 1);
        grants.get_mut(id).unwrap().keys_ended(true);
        assert_eq!(next(&mut grants, id, Reach::Lost { is_quiet: false }, 1), Next::GiveBack);
        assert_eq!(grants.get_mut(id).unwrap().give_back(), Some(OP));
        assert_eq!(next(&mut grants, id, Reach::Lost { is_quiet: false }, 1), Next::Wait, "it is going");
        assert_eq!(grants.given_back(id, true), Some((PEER, None)));
        assert_eq!((grants.given_back(id, true), grants.len()), (None, 0));
    }

    #[test]
    fn whoever_asks_again_takes_the_place_of_who_asked_before() {
        let (mut grants, id) = revoked();
        let wish = grants.revoke(id, Some(OpId(8)), 200);
        assert_eq!(wish, Some(Wish { peer: PEER, is_first: false, before: Some(OP) }));
        assert_eq!(next(&mut grants, id, Reach::Well, DEADLINE), Next::Wait, "the deadline is another one");
        assert_eq!(grants.take_revoking(), [id], "once");
        grants.put_back(id);
        assert!(grants.are_revoking() && grants.revoke(99, None, 1).is_none());
    }

    #[test]
    fn one_in_its_users_hand_waits_until_it_is_asked_for() {
        let (mut grants, id) = revoked();
        next(&mut grants, id, Reach::Well, DEADLINE);
        grants.get_mut(id).unwrap().keys_ended(true);
        grants.get_mut(id).unwrap().give_back();
        assert_eq!(grants.given_back(id, false), None, "its user has a handle on it");
        assert_eq!(next(&mut grants, id, Reach::Well, DEADLINE), Next::Wait);
        grants.revoke(id, Some(OP), DEADLINE);
        assert_eq!(next(&mut grants, id, Reach::Well, DEADLINE), Next::GiveBack);
    }

    #[test]
    fn generations_are_those_of_the_first_look() {
        let (mut grants, id) = revoked();
        let grant = grants.get_mut(id).unwrap();
        assert_eq!(grant.generations(|| vec![1, 2]), [1, 2]);
        assert_eq!(grant.generations(|| vec![5, 6]), [1, 2]);
    }
}
