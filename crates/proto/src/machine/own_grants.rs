//! Grants of local memory to peers, and the progress of their revocation.
//!
//! The carrier owns the memory and its keys. Proofs are kept with the memory itself: no decision of
//! this module turns exposed memory into a slice.

use std::collections::VecDeque;

use super::id_map::IdMap;
use super::names::Names;
use super::{OpId, PeerKey};

/// The maximum number of revocations that one run of the timers handles: a lost peer may have had a
/// hundred thousand grants.
const REVOKES_AT_ONCE: usize = 1024;

/// All grants of local memory, by id.
#[derive(Debug, Default)]
pub(super) struct OwnGrants {
    grants: IdMap<u64, OwnGrant>,
    /// Grants being revoked, in turn. Some may be given back already.
    revoking: VecDeque<u64>,
}

/// A grant of local memory to a peer.
#[derive(Debug)]
pub(super) struct OwnGrant {
    peer: PeerKey,
    keys: Keys,
    /// The number of links to which its keys are being bound.
    binding: u32,
    ending: Option<Ending>,
}

/// The state of the keys of a grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keys {
    Alive,
    /// They are being ended.
    Ending,
    Ended {
        /// `true` if no operation could reach the memory any more when they ended.
        is_proven: bool,
    },
}

#[derive(Debug)]
struct Ending {
    /// The request to answer; `None` if nobody waits, or it was answered.
    op: Option<OpId>,
    deadline: u64,
    is_acknowledged: bool,
    /// The generation of each rail when the keys had ended.
    generations: Option<Vec<u64>>,
    /// Whether the memory is being given back.
    is_going: bool,
}

/// The next step of a revocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    Wait,
    /// The keys must be ended.
    EndKeys,
    /// A reset of rails would prove that no operation reaches the memory. It is given back without
    /// a proof if no reset would help, or if it `is_late`.
    Prove {
        is_late: bool,
    },
    /// The memory must be given back.
    GiveBack,
}

/// The state of the peer that may reach the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    Well,
    /// The peer is lost. `is_quiet`: it confirmed before that none of its operations is in flight.
    Lost {
        is_quiet: bool,
    },
}

/// The effect of a revocation on an earlier one.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Wish {
    pub(super) peer: PeerKey,
    /// Whether it is the first revocation of the grant.
    pub(super) is_first: bool,
    /// The request that revoked before. It is answered: the grant is being revoked again.
    pub(super) before: Option<OpId>,
}

impl OwnGrants {
    /// Adds a grant to a peer. Returns its id, which no other peer can guess.
    pub(super) fn add(&mut self, peer: PeerKey, names: &mut Names) -> u64 {
        let id = names.draw(|id| !self.grants.contains_key(&id));
        self.grants.insert(id, OwnGrant { peer, keys: Keys::Alive, binding: 0, ending: None });
        id
    }

    pub(super) fn get_mut(&mut self, id: u64) -> Option<&mut OwnGrant> {
        self.grants.get_mut(&id)
    }

    /// Returns a grant if it belongs to this peer.
    pub(super) fn of_peer(&mut self, id: u64, key: PeerKey) -> Option<&mut OwnGrant> {
        self.grants.get_mut(&id).filter(|grant| grant.peer == key)
    }

    /// Begins to revoke a grant until a deadline. Returns `None` if there is no such grant.
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

    /// Returns `true` if any grant is being revoked.
    pub(super) fn are_revoking(&self) -> bool {
        !self.revoking.is_empty()
    }

    /// Takes the grants that one run of the timers handles out of the queue. The caller returns
    /// them by [`put_back`](Self::put_back).
    pub(super) fn take_revoking(&mut self) -> Vec<u64> {
        let count = self.revoking.len().min(REVOKES_AT_ONCE);
        self.revoking.drain(..count).collect()
    }

    /// Queues a grant again, unless it was given back.
    pub(super) fn put_back(&mut self, id: u64) {
        if self.grants.contains_key(&id) {
            self.revoking.push_back(id);
        }
    }

    /// Handles the result of giving memory back. Returns a request that revoked it meanwhile.
    /// Returns `None` if there is no such grant, or its user holds the handle again.
    pub(super) fn given_back(&mut self, id: u64, is_back: bool) -> Option<(PeerKey, Option<OpId>)> {
        let grant = self.grants.get_mut(&id)?;
        let (peer, ending) = (grant.peer, grant.ending.as_mut()?);
        ending.is_going = false;
        // The user holds the handle again. A later revoke continues from here.
        if !is_back {
            return None;
        }
        let later = ending.op.take();
        self.grants.remove(&id);
        Some((peer, later))
    }

    /// Forgets the bindings under way: a rail is dead, and some will never be answered.
    pub(super) fn forget_bindings(&mut self) {
        self.grants.values_mut().for_each(|grant| grant.binding = 0);
    }

    pub(super) fn len(&self) -> usize {
        self.grants.len()
    }
}

impl OwnGrant {
    /// Returns the peer that may reach it.
    pub(super) fn peer(&self) -> PeerKey {
        self.peer
    }

    /// Notes that the peer has stopped using the grant. Returns `true` if it was asked to.
    pub(super) fn acknowledge(&mut self) -> bool {
        let Some(ending) = &mut self.ending else { return false };
        ending.is_acknowledged = true;
        true
    }

    /// Begins to bind its keys to a link. Returns `false` if they are being ended: nothing more is
    /// bound then.
    pub(super) fn begin_binding(&mut self) -> bool {
        let is_in_use = self.is_in_use();
        self.binding += u32::from(is_in_use);
        is_in_use
    }

    /// Notes that its keys are bound to a link, or cannot be. Returns `true` if the peer may be told
    /// the key.
    pub(super) fn end_binding(&mut self) -> bool {
        self.binding = self.binding.saturating_sub(1);
        self.is_in_use()
    }

    fn is_in_use(&self) -> bool {
        self.keys == Keys::Alive && self.ending.is_none()
    }

    /// Notes that the keys have ended.
    pub(super) fn keys_ended(&mut self, is_proven: bool) {
        self.keys = Keys::Ended { is_proven };
    }

    /// Returns the next step. Keys are ended when the peer has confirmed that it has stopped, when
    /// the peer is lost, and at the deadline. The memory is given back when there is nothing left
    /// to wait for.
    pub(super) fn next(&mut self, reach: Reach, now: u64) -> Next {
        let Some(ending) = self.ending.as_ref().filter(|ending| !ending.is_going) else { return Next::Wait };
        // The user was told that the memory is not back yet, and holds the handle again. (A dropped
        // grant has no deadline, and continues.)
        if ending.op.is_none() && ending.deadline != u64::MAX {
            return Next::Wait;
        }
        let is_late = now >= ending.deadline;
        let is_lost = reach != Reach::Well;
        // A goodbye confirms the end of all grants.
        let has_word = ending.is_acknowledged || reach == (Reach::Lost { is_quiet: true });
        match self.keys {
            // A peer that answers has until the deadline to confirm: ending a key that is in use
            // costs it the link. A later deadline of a second revoke does not revive the keys.
            Keys::Alive if !has_word && !is_lost && !is_late => Next::Wait,
            // Ending a key under its binding costs the link, too.
            Keys::Alive if self.binding > 0 && !is_lost && !is_late => Next::Wait,
            Keys::Alive => {
                self.keys = Keys::Ending;
                Next::EndKeys
            }
            Keys::Ending => Next::Wait,
            // A peer that has not confirmed may have writes in flight. A reset stops them, and is
            // the proof. It costs all other peers of the rail their links, so it is not done for a
            // peer that has confirmed: the memory then comes back without a proof.
            Keys::Ended { is_proven: false } if !has_word => Next::Prove { is_late },
            Keys::Ended { .. } => Next::GiveBack,
        }
    }

    /// Returns the generations of the rails when the keys had ended; the first call stores those of
    /// `now`. A rail whose generation differs has been reset since.
    pub(super) fn generations(&mut self, now: impl FnOnce() -> Vec<u64>) -> &[u64] {
        self.ending.as_mut().map_or(&[], |ending| ending.generations.get_or_insert_with(now))
    }

    /// Marks the memory as being given back. Returns the request to answer.
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

    /// Returns a grant that is being revoked.
    fn revoked() -> (OwnGrants, u64) {
        let mut grants = OwnGrants::default();
        let id = grants.add(PEER, &mut Names::new([7; 32]));
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
        assert!(grants.are_revoking() && grants.revoke(!id, None, 1).is_none());
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
    fn keys_that_are_being_bound_end_when_they_are_bound() {
        let mut grants = OwnGrants::default();
        let id = grants.add(PEER, &mut Names::new([7; 32]));
        assert!(grants.get_mut(id).unwrap().begin_binding() && grants.get_mut(id).unwrap().begin_binding());
        assert!(grants.get_mut(id).unwrap().end_binding(), "the peer may be told");
        grants.revoke(id, Some(OP), DEADLINE);
        assert!(!grants.get_mut(id).unwrap().begin_binding(), "nothing more is bound");
        grants.get_mut(id).unwrap().acknowledge();
        assert_eq!(next(&mut grants, id, Reach::Well, 1), Next::Wait);
        assert!(!grants.get_mut(id).unwrap().end_binding(), "the peer does not need it any more");
        assert_eq!(next(&mut grants, id, Reach::Well, 1), Next::EndKeys);
    }

    #[test]
    fn keys_that_are_never_bound_are_ended_all_the_same() {
        let bound = || {
            let mut grants = OwnGrants::default();
            let id = grants.add(PEER, &mut Names::new([7; 32]));
            assert!(grants.get_mut(id).unwrap().begin_binding());
            grants.revoke(id, Some(OP), DEADLINE);
            grants.get_mut(id).unwrap().acknowledge();
            (grants, id)
        };
        let (mut grants, id) = bound();
        assert_eq!(next(&mut grants, id, Reach::Well, DEADLINE - 1), Next::Wait);
        assert_eq!(next(&mut grants, id, Reach::Well, DEADLINE), Next::EndKeys);
        let (mut grants, id) = bound();
        assert_eq!(next(&mut grants, id, Reach::Lost { is_quiet: true }, 1), Next::EndKeys);
        let (mut grants, id) = bound();
        grants.forget_bindings();
        assert_eq!(next(&mut grants, id, Reach::Well, 1), Next::EndKeys, "their rail is dead");
    }

    #[test]
    fn generations_are_those_of_the_first_look() {
        let (mut grants, id) = revoked();
        let grant = grants.get_mut(id).unwrap();
        assert_eq!(grant.generations(|| vec![1, 2]), [1, 2]);
        assert_eq!(grant.generations(|| vec![5, 6]), [1, 2]);
    }
}
