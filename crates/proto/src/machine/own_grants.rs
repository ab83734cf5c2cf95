//! Grants of local memory to peers, and the progress of their revocation.
//!
//! The carrier owns the memory and its keys. Proofs are kept with the memory itself: no decision of
//! this module turns exposed memory into a slice.

use std::collections::{BTreeSet, VecDeque};

use super::id_map::IdMap;
use super::names::Names;
use super::{OpId, PeerKey};
use crate::ids::{GrantId, PublicationId};
use crate::rail::Scope;
use crate::time::Time;

/// The maximum number of revocations that one run of the timers handles: a lost peer may have had a
/// hundred thousand grants.
const REVOKES_AT_ONCE: usize = 1024;

/// The time that a peer has to confirm the end of a key to the rail, after it has said that it does
/// not use the grant any more. A library that is scheduled at all answers within milliseconds.
const CONFIRMED_WITHIN: u64 = 1_000_000_000;

/// As [`CONFIRMED_WITHIN`], for a peer that has left in order.
const LEFT_WITHIN: u64 = 100_000_000;

/// As [`CONFIRMED_WITHIN`], for a peer that is lost. The end of its process is a proof that costs
/// nothing, and comes a moment after the end of its connection.
const LOST_WITHIN: u64 = 20_000_000;

/// The most that a proof is begun earlier than its own duration demands.
const MARGIN_MAX: u64 = 250_000_000;

/// Why a grant of which the driver gives the memory back is there.
const ASKED_BACK: &str = "memory is given back once for each time that it is asked for";

/// All grants of local memory, by id.
#[derive(Debug, Default)]
pub(super) struct OwnGrants {
    grants: IdMap<GrantId, OwnGrant>,
    /// Grants being revoked, in turn. Some may be given back already.
    revoking: VecDeque<GrantId>,
}

/// A grant of local memory to a peer.
#[derive(Debug)]
pub(super) struct OwnGrant {
    peer: PeerKey,
    scope: Scope,
    keys: Keys,
    /// The number of links to which its keys are being bound.
    binding: u32,
    /// The time that a rail needs to prove the end of its key by itself; `None` if no rail reports
    /// the end of keys.
    proof_ns: Option<u64>,
    /// The rails that have yet to report that their ended key is proven to have ended.
    awaited: Vec<usize>,
    /// Whether a rail's reason for which it cannot prove the end was reported.
    has_told: bool,
    /// The publication that it belongs to.
    publication: Option<PublicationId>,
    ending: Option<Ending>,
}

/// The state of the keys of a grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keys {
    Alive,
    /// They are being ended.
    Ending,
    Ended {
        /// `true` if no operation can reach the memory any more.
        is_proven: bool,
        /// Whether a rail could not end its key: nothing proves that it has ended.
        has_failed: bool,
        since: Time,
    },
}

#[derive(Debug)]
struct Ending {
    /// The request to answer; `None` if nobody waits, or it was answered.
    op: Option<OpId>,
    until: Until,
    /// The time from which the end of keys must be proven to be done by the deadline.
    proof_at: Time,
    is_acknowledged: bool,
    /// The generation of each rail when the keys had ended.
    generations: Option<Vec<u64>>,
    way: Way,
    /// Whether it is in the queue of those that are handled in turn.
    is_queued: bool,
}

/// The way of memory back to the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// It may have to be waited for.
    Ahead,
    /// It is being given back. `is_asked`: it was revoked again since.
    Going { is_asked: bool },
    /// The user was told that it is not back yet, and holds the handle again. Nothing happens until it is
    /// revoked again.
    WithUser,
}

/// How long a revocation waits for a proof.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Until {
    pub(super) deadline: Time,
    /// Whether it goes on after the deadline until it is proven. Otherwise, the memory is given back
    /// without a proof then. A publication that stays would hide that.
    pub(super) is_proven: bool,
}

impl Until {
    /// For memory that nobody waits for.
    pub(super) const NEVER: Self = Self { deadline: Time::NEVER, is_proven: true };

    /// Returns what fulfils both.
    pub(super) fn and(self, other: Self) -> Self {
        let (deadline, is_proven) = (self.deadline.min(other.deadline), self.is_proven && other.is_proven);
        Self { deadline, is_proven }
    }
}

/// The next step of a revocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    Wait,
    /// The keys must be ended.
    EndKeys,
    /// The keys have ended, and it is not proven that no operation reaches the memory.
    Prove(Proofs),
    /// The memory must be given back. `is_proven`: no operation reaches it any more.
    GiveBack {
        is_proven: bool,
    },
}

/// The proofs that are missing. The memory is given back without them if none of them can come, or
/// if it `is_late`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Proofs {
    /// Set if the peer's links must be ended, or rails reset: it has not said that it has stopped, or its
    /// word is not enough.
    pub(super) by_stop: Option<Resets>,
    /// A rail will report the end of its key.
    pub(super) by_report: bool,
    /// Such rails must be asked to prove it by themselves.
    pub(super) asks: bool,
    pub(super) is_late: bool,
}

/// Whether a rail is reset for a proof, which costs all its peers their links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Resets {
    /// The peer has said that it has stopped, and nobody has asked for more.
    No,
    /// It has said so, and whoever revokes must know it.
    Asked,
    /// It has not said so, and its budget of resets pays for it.
    Caused,
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
    /// Whether nobody has waited for the grant before: it was not revoked, or with the user again.
    pub(super) begins: bool,
    /// The request that revoked before. It is answered: the grant is being revoked again.
    pub(super) before: Option<OpId>,
}

/// A grant whose memory was given back.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct GivenBack {
    pub(super) peer: PeerKey,
    /// A request that revoked it meanwhile.
    pub(super) later: Option<OpId>,
    /// The publication that it belonged to.
    pub(super) publication: Option<PublicationId>,
}

impl OwnGrants {
    /// Adds a grant to a peer, over rails of this scope. Returns its id, which no other peer can guess.
    ///
    /// `proof_ns` is the time that a rail needs to prove the end of its key by itself, if there is a
    /// rail that reports the end of keys.
    pub(super) fn add(
        &mut self,
        peer: PeerKey,
        scope: Scope,
        proof_ns: Option<u64>,
        names: &mut Names,
    ) -> GrantId {
        // Random: a peer that counts from its own ids must not find those of others.
        let id = GrantId(names.draw(|id| !self.grants.contains_key(&GrantId(id))));
        let (keys, awaited) = (Keys::Alive, Vec::new());
        let (has_told, publication, ending) = (false, None, None);
        let grant =
            OwnGrant { peer, scope, keys, binding: 0, proof_ns, awaited, has_told, publication, ending };
        self.grants.insert(id, grant);
        id
    }

    pub(super) fn get_mut(&mut self, id: GrantId) -> Option<&mut OwnGrant> {
        self.grants.get_mut(&id)
    }

    /// Returns a grant if it belongs to this peer.
    pub(super) fn of_peer(&mut self, id: GrantId, key: PeerKey) -> Option<&mut OwnGrant> {
        self.grants.get_mut(&id).filter(|grant| grant.peer == key)
    }

    /// Begins to revoke a grant until a deadline. Returns `None` if there is no such grant.
    pub(super) fn revoke(
        &mut self,
        id: GrantId,
        op: Option<OpId>,
        deadline: Time,
        now: Time,
    ) -> Option<Wish> {
        let until = Until { deadline, is_proven: false };
        let wish = self.begin_to_revoke(id, until, now)?;
        let ending = self.grants.get_mut(&id).and_then(|grant| grant.ending.as_mut());
        let ending = ending.expect("its revocation has just begun");
        Some(Wish { before: std::mem::replace(&mut ending.op, op), ..wish })
    }

    /// Begins to revoke a grant of published memory. A revocation under way is done as early as any of
    /// them demands.
    pub(super) fn revoke_published(&mut self, id: GrantId, until: Until, now: Time) -> Option<Wish> {
        let before = self.grants.get(&id)?.ending.as_ref().map(|ending| ending.until);
        self.begin_to_revoke(id, before.map_or(until, |before| before.and(until)), now)
    }

    fn begin_to_revoke(&mut self, id: GrantId, until: Until, now: Time) -> Option<Wish> {
        let grant = self.grants.get_mut(&id)?;
        let peer = grant.peer;
        // This cannot underflow: `lead` is at most three quarters of the time that is left.
        let lead = lead(grant.proof_ns, until.deadline.saturating_since(now));
        let proof_at = Time(until.deadline.0 - lead);
        if let Some(ending) = &mut grant.ending {
            // A later revoke has the last word on how long its user waits.
            (ending.until, ending.proof_at) = (until, proof_at);
            let begins = ending.way == Way::WithUser;
            ending.way = match ending.way {
                // It is on its way back. If its user had it first, `left_with_user` begins again.
                Way::Going { .. } => Way::Going { is_asked: true },
                Way::Ahead | Way::WithUser => Way::Ahead,
            };
            if !std::mem::replace(&mut ending.is_queued, true) {
                self.revoking.push_back(id);
            }
            return Some(Wish { peer, is_first: false, begins, before: None });
        }
        let (op, is_acknowledged, generations) = (None, false, None);
        let (way, is_queued) = (Way::Ahead, true);
        grant.ending = Some(Ending { op, until, proof_at, is_acknowledged, generations, way, is_queued });
        self.revoking.push_back(id);
        Some(Wish { peer, is_first: true, begins: true, before: None })
    }

    /// Returns `true` if any grant is being revoked.
    pub(super) fn are_revoking(&self) -> bool {
        !self.revoking.is_empty()
    }

    /// Takes the grants that one run of the timers handles out of the queue. The caller returns
    /// them by [`put_back`](Self::put_back).
    pub(super) fn take_revoking(&mut self) -> Vec<GrantId> {
        let count = self.revoking.len().min(REVOKES_AT_ONCE);
        self.revoking.drain(..count).collect()
    }

    /// Queues a grant again, unless it was given back, or is with the user.
    pub(super) fn put_back(&mut self, id: GrantId) {
        // It was given back after it was queued.
        let Some(ending) = self.grants.get_mut(&id).and_then(|grant| grant.ending.as_mut()) else { return };
        ending.is_queued = ending.way != Way::WithUser;
        if ending.is_queued {
            self.revoking.push_back(id);
        }
    }

    /// Returns the publication that a grant belongs to.
    pub(super) fn publication_of(&self, id: GrantId) -> Option<PublicationId> {
        self.grants.get(&id)?.publication
    }

    /// Handles that memory was given back.
    ///
    /// # Panics
    ///
    /// Panics if it was not about to be: a peer may reach memory then that its user takes for free.
    pub(super) fn given_back(&mut self, id: GrantId) -> GivenBack {
        let OwnGrant { peer, publication, ending, .. } = self.grants.remove(&id).expect(ASKED_BACK);
        let ending = ending.expect(ASKED_BACK);
        assert!(matches!(ending.way, Way::Going { .. }), "grant {id} is back, and was {:?}", ending.way);
        GivenBack { peer, later: ending.op, publication }
    }

    /// Handles that memory cannot be given back, because the user holds the handle again. A later revoke
    /// continues from here. Returns the peer, unless that revoke has come already.
    pub(super) fn left_with_user(&mut self, id: GrantId) -> Option<PeerKey> {
        let grant = self.grants.get_mut(&id).expect(ASKED_BACK);
        let ending = grant.ending.as_mut().expect(ASKED_BACK);
        let is_asked = ending.way == Way::Going { is_asked: true };
        ending.way = if is_asked { Way::Ahead } else { Way::WithUser };
        (!is_asked).then_some(grant.peer)
    }

    /// Forgets what is expected from a rail that is dead: the bindings under way, of which some will
    /// never be answered, and the ends of keys.
    pub(super) fn forget_rail(&mut self, rail: usize) {
        for grant in self.grants.values_mut() {
            grant.binding = 0;
            grant.awaited.retain(|awaited| *awaited != rail);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.grants.len()
    }

    pub(super) fn get(&self, id: GrantId) -> Option<&OwnGrant> {
        self.grants.get(&id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (GrantId, &OwnGrant)> {
        self.grants.iter().map(|(id, grant)| (*id, grant))
    }

    /// Checks that each revocation that can go on is queued, once.
    pub(super) fn check(&self) {
        let queued: BTreeSet<GrantId> = self.revoking.iter().copied().collect();
        assert_eq!(queued.len(), self.revoking.len(), "grants: one is revoked twice: {:?}", self.revoking);
        for (id, grant) in &self.grants {
            let is_queued = grant.ending.as_ref().is_some_and(|ending| ending.is_queued);
            assert_eq!(is_queued, queued.contains(id), "grants: {id} among those being revoked");
            assert!(is_queued || !grant.is_waited_for(), "grants: nothing takes the next step of {id}");
        }
    }
}

impl OwnGrant {
    /// Returns the peer that may reach it.
    pub(super) fn peer(&self) -> PeerKey {
        self.peer
    }

    /// Returns the scope of the rails over which the peer may access it.
    pub(super) fn scope(&self) -> Scope {
        self.scope
    }

    /// Returns the publication that it belongs to.
    pub(super) fn publication(&self) -> Option<PublicationId> {
        self.publication
    }

    /// Returns `true` if it was ever revoked.
    pub(super) fn is_ending(&self) -> bool {
        self.ending.is_some()
    }

    /// Returns `true` if it is being revoked: its memory is not with the user again.
    pub(super) fn is_waited_for(&self) -> bool {
        self.ending.as_ref().is_some_and(|ending| ending.way != Way::WithUser)
    }

    /// Notes that the peer has stopped using the grant. Returns `true` if it was asked to.
    pub(super) fn acknowledge(&mut self) -> bool {
        // A peer may say so of a grant that nobody revokes, which goes on.
        let Some(ending) = &mut self.ending else { return false };
        ending.is_acknowledged = true;
        true
    }

    /// Notes that it is the grant of published memory.
    pub(super) fn belongs_to(&mut self, publication: PublicationId) {
        self.publication = Some(publication);
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
        // The death of a rail has ended all bindings, and those of other rails are still answered.
        self.binding = self.binding.saturating_sub(1);
        self.is_in_use()
    }

    fn is_in_use(&self) -> bool {
        self.keys == Keys::Alive && self.ending.is_none()
    }

    /// Notes that the keys have ended. These rails will report when it is proven. `has_failed`: a rail could
    /// not end its key.
    pub(super) fn keys_ended(&mut self, is_proven: bool, has_failed: bool, awaited: Vec<usize>, now: Time) {
        debug_assert_eq!(self.keys, Keys::Ending, "keys end when they are asked to");
        (self.keys, self.awaited) = (Keys::Ended { is_proven, has_failed, since: now }, awaited);
    }

    /// Returns whether a rail could not end its key.
    pub(super) fn has_failed_key(&self) -> bool {
        matches!(self.keys, Keys::Ended { has_failed: true, .. })
    }

    /// Notes that a rail has reported the end of its key.
    pub(super) fn key_proven(&mut self, rail: usize, all_are: bool) {
        self.awaited.retain(|awaited| *awaited != rail);
        if let Keys::Ended { is_proven, .. } = &mut self.keys {
            *is_proven = all_are;
        }
    }

    /// Returns `true` for the first reason for which the end of a key cannot be proven.
    pub(super) fn must_tell(&mut self) -> bool {
        !std::mem::replace(&mut self.has_told, true)
    }

    /// Returns the next step. Keys are ended when the peer has confirmed that it has stopped, when
    /// the peer is lost, and at the deadline: before it, if a rail needs time for a proof. The
    /// memory is given back when there is nothing left to wait for.
    pub(super) fn next(&mut self, reach: Reach, now: Time) -> Next {
        let is_ahead = |ending: &&Ending| ending.way == Way::Ahead;
        // It is not revoked, or is on its way back, or with its user again.
        let Some(ending) = self.ending.as_ref().filter(is_ahead) else { return Next::Wait };
        // If a proof is demanded, no deadline gives the memory back without it.
        let is_late = now >= ending.until.deadline && !ending.until.is_proven;
        let is_due = now >= ending.proof_at;
        let is_lost = reach != Reach::Well;
        // A goodbye confirms the end of all grants.
        let has_word = ending.is_acknowledged || reach == (Reach::Lost { is_quiet: true });
        match self.keys {
            // A peer that answers has until the deadline to confirm: ending a key that is in use
            // costs it the link. A later deadline of a second revoke does not revive the keys.
            Keys::Alive if !has_word && !is_lost && !is_due => Next::Wait,
            // Ending a key under its binding costs the link, too.
            Keys::Alive if self.binding > 0 && !is_lost && !is_due => Next::Wait,
            Keys::Alive => {
                self.keys = Keys::Ending;
                Next::EndKeys
            }
            Keys::Ending => Next::Wait,
            // A proof makes the word of the peer unnecessary.
            Keys::Ended { is_proven: true, .. } => Next::GiveBack { is_proven: true },
            Keys::Ended { since, .. } => {
                let by_report = !self.awaited.is_empty();
                let confirmed_within = match (has_word, is_lost) {
                    (true, false) => CONFIRMED_WITHIN,
                    (true, true) => LEFT_WITHIN,
                    (false, true) => LOST_WITHIN,
                    // A peer that neither confirms nor leaves has until `proof_at`.
                    (false, false) => u64::MAX,
                };
                // From `proof_at` on, the time that is left is what a proof needs.
                let asks = by_report && (is_due || now >= since.saturating_add(confirmed_within));
                // A peer that has not confirmed may have writes in flight. The end of its links, or a reset,
                // stops them, and is the proof. It is not needed for a peer that has confirmed if the memory
                // stays exposed when it comes back. A publication goes on, and its owner takes the answer
                // for the proof: a peer may lie.
                let by_stop = match has_word {
                    false => Some(Resets::Caused),
                    true if !ending.until.is_proven => None,
                    true if ending.until == Until::NEVER => Some(Resets::No),
                    true => Some(Resets::Asked),
                };
                match by_stop.is_none() && (!by_report || is_late) {
                    true => Next::GiveBack { is_proven: false },
                    false => Next::Prove(Proofs { by_stop, by_report, asks, is_late }),
                }
            }
        }
    }

    /// Returns the generations of the rails when the keys had ended; the first call stores those of
    /// `now`. A rail whose generation differs has been reset since.
    pub(super) fn generations(&mut self, now: impl FnOnce() -> Vec<u64>) -> &[u64] {
        let ending = self.ending.as_mut().expect("a proof is needed for a grant that ends");
        ending.generations.get_or_insert_with(now)
    }

    /// Marks the memory as being given back. Returns the request to answer.
    pub(super) fn give_back(&mut self) -> Option<OpId> {
        let ending = self.ending.as_mut().expect("memory comes back from a grant that ends");
        ending.way = Way::Going { is_asked: false };
        ending.op.take()
    }
}

/// Returns how long before the deadline the proof of a rail must begin, if it has this long. A peer
/// that answers has at least a quarter of it.
fn lead(proof_ns: Option<u64>, budget: u64) -> u64 {
    let Some(proof_ns) = proof_ns else { return 0 };
    proof_ns.saturating_add((budget / 4).min(MARGIN_MAX)).min(budget / 4 * 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: PeerKey = PeerKey(3);
    const OP: OpId = OpId(7);
    const SCOPE: Scope = Scope::Network;
    const DEADLINE: u64 = 100;

    /// Returns a grant that is being revoked.
    fn revoked() -> (OwnGrants, GrantId) {
        let mut grants = OwnGrants::default();
        let id = grants.add(PEER, SCOPE, None, &mut Names::new([7; 32]));
        let wish = grants.revoke(id, Some(OP), Time(DEADLINE), Time::ZERO);
        assert_eq!(wish, Some(Wish { peer: PEER, is_first: true, begins: true, before: None }));
        (grants, id)
    }

    fn by_reset(is_late: bool) -> Next {
        Next::Prove(Proofs { by_stop: Some(Resets::Caused), by_report: false, asks: false, is_late })
    }

    fn given(is_proven: bool) -> Next {
        Next::GiveBack { is_proven }
    }

    fn next(grants: &mut OwnGrants, id: GrantId, reach: Reach, now: Time) -> Next {
        grants.get_mut(id).unwrap().next(reach, now)
    }

    #[test]
    fn a_peer_that_is_well_has_until_the_deadline() {
        let (mut grants, id) = revoked();
        assert_eq!(next(&mut grants, id, Reach::Well, Time(DEADLINE - 1)), Next::Wait);
        assert_eq!(next(&mut grants, id, Reach::Well, Time(DEADLINE)), Next::EndKeys);
        assert_eq!(next(&mut grants, id, Reach::Well, Time(DEADLINE)), Next::Wait, "they are being ended");
        grants.get_mut(id).unwrap().keys_ended(false, false, Vec::new(), Time(1));
        assert_eq!(next(&mut grants, id, Reach::Well, Time(DEADLINE)), by_reset(true));
    }

    #[test]
    fn the_word_of_a_peer_ends_keys_and_spares_a_reset() {
        let (mut grants, id) = revoked();
        assert!(grants.of_peer(id, PeerKey(4)).is_none(), "it is not that peer's");
        assert!(grants.of_peer(id, PEER).unwrap().acknowledge());
        assert_eq!(next(&mut grants, id, Reach::Well, Time(1)), Next::EndKeys);
        grants.get_mut(id).unwrap().keys_ended(false, false, Vec::new(), Time(1));
        assert_eq!(next(&mut grants, id, Reach::Well, Time(1)), given(false));
    }

    #[test]
    fn a_lost_peer_is_stopped_unless_it_said_goodbye() {
        for (is_quiet, then) in [(true, given(false)), (false, by_reset(false))] {
            let (mut grants, id) = revoked();
            assert_eq!(next(&mut grants, id, Reach::Lost { is_quiet }, Time(1)), Next::EndKeys);
            grants.get_mut(id).unwrap().keys_ended(false, false, Vec::new(), Time(1));
            assert_eq!(next(&mut grants, id, Reach::Lost { is_quiet }, Time(1)), then);
        }
    }

    #[test]
    fn what_a_dead_key_proves_is_given_back_at_once() {
        let (mut grants, id) = revoked();
        next(&mut grants, id, Reach::Lost { is_quiet: false }, Time(1));
        grants.get_mut(id).unwrap().keys_ended(true, false, Vec::new(), Time(1));
        assert_eq!(next(&mut grants, id, Reach::Lost { is_quiet: false }, Time(1)), given(true));
        assert_eq!(grants.get_mut(id).unwrap().give_back(), Some(OP));
        assert_eq!(
            next(&mut grants, id, Reach::Lost { is_quiet: false }, Time(1)),
            Next::Wait,
            "it is going"
        );
        let back = GivenBack { peer: PEER, later: None, publication: None };
        assert_eq!((grants.given_back(id), grants.len()), (back, 0));
    }

    #[test]
    fn whoever_asks_again_takes_the_place_of_who_asked_before() {
        let (mut grants, id) = revoked();
        let wish = grants.revoke(id, Some(OpId(8)), Time(200), Time::ZERO);
        assert_eq!(wish, Some(Wish { peer: PEER, is_first: false, begins: false, before: Some(OP) }));
        assert_eq!(
            next(&mut grants, id, Reach::Well, Time(DEADLINE)),
            Next::Wait,
            "the deadline is another one"
        );
        assert_eq!(grants.take_revoking(), [id], "once");
        grants.put_back(id);
        assert!(grants.are_revoking() && grants.revoke(GrantId(!id.0), None, Time(1), Time::ZERO).is_none());
    }

    #[test]
    fn one_in_its_users_hand_waits_until_it_is_asked_for() {
        let (mut grants, id) = revoked();
        next(&mut grants, id, Reach::Well, Time(DEADLINE));
        grants.get_mut(id).unwrap().keys_ended(true, false, Vec::new(), Time(1));
        grants.get_mut(id).unwrap().give_back();
        assert_eq!(grants.left_with_user(id), Some(PEER), "its user has a handle on it");
        assert_eq!(next(&mut grants, id, Reach::Well, Time(DEADLINE)), Next::Wait);
        assert_eq!(grants.take_revoking(), [id]);
        grants.put_back(id);
        assert!(!grants.are_revoking(), "nothing has to be done");
        let wish = grants.revoke(id, Some(OP), Time(DEADLINE), Time::ZERO);
        assert_eq!(wish, Some(Wish { peer: PEER, is_first: false, begins: true, before: None }));
        assert_eq!(grants.take_revoking(), [id], "once");
        assert_eq!(next(&mut grants, id, Reach::Well, Time(DEADLINE)), given(true));
    }

    #[test]
    fn one_that_is_asked_for_while_it_is_given_back_goes_again() {
        // A dropped one has no request to answer.
        for op in [Some(OpId(8)), None] {
            let (mut grants, id) = revoked();
            next(&mut grants, id, Reach::Well, Time(DEADLINE));
            grants.get_mut(id).unwrap().keys_ended(true, false, Vec::new(), Time(1));
            grants.get_mut(id).unwrap().give_back();
            let wish = grants.revoke(id, op, Time(2 * DEADLINE), Time(DEADLINE));
            assert_eq!(wish, Some(Wish { peer: PEER, is_first: false, begins: false, before: None }));
            assert_eq!(next(&mut grants, id, Reach::Well, Time(DEADLINE)), Next::Wait, "it is going");
            assert_eq!(grants.left_with_user(id), None);
            assert_eq!(next(&mut grants, id, Reach::Well, Time(DEADLINE)), given(true));
        }
    }

    #[test]
    fn keys_that_are_being_bound_end_when_they_are_bound() {
        let mut grants = OwnGrants::default();
        let id = grants.add(PEER, SCOPE, None, &mut Names::new([7; 32]));
        assert!(grants.get_mut(id).unwrap().begin_binding() && grants.get_mut(id).unwrap().begin_binding());
        assert!(grants.get_mut(id).unwrap().end_binding(), "the peer may be told");
        grants.revoke(id, Some(OP), Time(DEADLINE), Time::ZERO);
        assert!(!grants.get_mut(id).unwrap().begin_binding(), "nothing more is bound");
        grants.get_mut(id).unwrap().acknowledge();
        assert_eq!(next(&mut grants, id, Reach::Well, Time(1)), Next::Wait);
        assert!(!grants.get_mut(id).unwrap().end_binding(), "the peer does not need it any more");
        assert_eq!(next(&mut grants, id, Reach::Well, Time(1)), Next::EndKeys);
    }

    #[test]
    fn keys_that_are_never_bound_are_ended_all_the_same() {
        let bound = || {
            let mut grants = OwnGrants::default();
            let id = grants.add(PEER, SCOPE, None, &mut Names::new([7; 32]));
            assert!(grants.get_mut(id).unwrap().begin_binding());
            grants.revoke(id, Some(OP), Time(DEADLINE), Time::ZERO);
            grants.get_mut(id).unwrap().acknowledge();
            (grants, id)
        };
        let (mut grants, id) = bound();
        assert_eq!(next(&mut grants, id, Reach::Well, Time(DEADLINE - 1)), Next::Wait);
        assert_eq!(next(&mut grants, id, Reach::Well, Time(DEADLINE)), Next::EndKeys);
        let (mut grants, id) = bound();
        assert_eq!(next(&mut grants, id, Reach::Lost { is_quiet: true }, Time(1)), Next::EndKeys);
        let (mut grants, id) = bound();
        grants.forget_rail(0);
        assert_eq!(next(&mut grants, id, Reach::Well, Time(1)), Next::EndKeys, "their rail is dead");
    }

    #[test]
    fn generations_are_those_of_the_first_look() {
        let (mut grants, id) = revoked();
        let grant = grants.get_mut(id).unwrap();
        assert_eq!(grant.generations(|| vec![1, 2]), [1, 2]);
        assert_eq!(grant.generations(|| vec![5, 6]), [1, 2]);
    }

    /// Returns a grant over a rail that needs ten units of time for a proof, and reports it.
    fn reported() -> (OwnGrants, GrantId) {
        let mut grants = OwnGrants::default();
        let id = grants.add(PEER, SCOPE, Some(10), &mut Names::new([7; 32]));
        grants.revoke(id, Some(OP), Time(DEADLINE), Time::ZERO);
        (grants, id)
    }

    fn by_report(is_caused: bool, asks: bool, is_late: bool) -> Next {
        let by_stop = is_caused.then_some(Resets::Caused);
        Next::Prove(Proofs { by_stop, by_report: true, asks, is_late })
    }

    #[test]
    fn the_word_of_a_peer_is_no_proof_where_the_rail_reports_one() {
        let (mut grants, id) = reported();
        grants.get_mut(id).unwrap().acknowledge();
        assert_eq!(next(&mut grants, id, Reach::Well, Time(1)), Next::EndKeys);
        grants.get_mut(id).unwrap().keys_ended(false, false, vec![0, 2], Time(1));
        assert_eq!(next(&mut grants, id, Reach::Well, Time(1)), by_report(false, false, false));
        grants.get_mut(id).unwrap().key_proven(2, false);
        assert_eq!(next(&mut grants, id, Reach::Well, Time(1)), by_report(false, false, false));
        grants.get_mut(id).unwrap().key_proven(0, true);
        assert_eq!(next(&mut grants, id, Reach::Well, Time(1)), given(true));
    }

    #[test]
    fn a_proof_is_asked_for_early_enough() {
        let (mut grants, id) = reported();
        // Ten for the proof, and a quarter of all for what is not foreseen.
        assert_eq!(next(&mut grants, id, Reach::Well, Time(DEADLINE - 36)), Next::Wait);
        assert_eq!(next(&mut grants, id, Reach::Well, Time(DEADLINE - 35)), Next::EndKeys);
        grants.get_mut(id).unwrap().keys_ended(false, false, vec![0], Time(DEADLINE - 35));
        assert_eq!(next(&mut grants, id, Reach::Well, Time(DEADLINE - 35)), by_report(true, true, false));
        assert_eq!(next(&mut grants, id, Reach::Well, Time(DEADLINE)), by_report(true, true, true));
        grants.get_mut(id).unwrap().acknowledge();
        assert_eq!(next(&mut grants, id, Reach::Well, Time(DEADLINE)), given(false), "without a proof");
    }

    #[test]
    fn a_peer_that_is_lost_or_has_left_is_not_waited_for_for_long() {
        for (is_quiet, from) in [(false, 1 + LOST_WITHIN), (true, 1 + LEFT_WITHIN)] {
            let mut grants = OwnGrants::default();
            let id = grants.add(PEER, SCOPE, Some(10), &mut Names::new([7; 32]));
            grants.revoke(id, None, Time::NEVER, Time::ZERO);
            let reach = Reach::Lost { is_quiet };
            assert_eq!(next(&mut grants, id, reach, Time(1)), Next::EndKeys);
            grants.get_mut(id).unwrap().keys_ended(false, false, vec![0], Time(1));
            assert_eq!(next(&mut grants, id, reach, Time(from)), by_report(!is_quiet, true, false));
            assert_eq!(next(&mut grants, id, reach, Time(from - 1)), by_report(!is_quiet, false, false));
        }
    }

    #[test]
    fn a_peer_that_has_said_that_it_stopped_must_show_it() {
        let mut grants = OwnGrants::default();
        let id = grants.add(PEER, SCOPE, Some(10), &mut Names::new([7; 32]));
        grants.revoke(id, None, Time::NEVER, Time::ZERO);
        grants.get_mut(id).unwrap().acknowledge();
        assert_eq!(next(&mut grants, id, Reach::Well, Time(5)), Next::EndKeys);
        grants.get_mut(id).unwrap().keys_ended(false, false, vec![0], Time(5));
        assert_eq!(
            next(&mut grants, id, Reach::Well, Time(4 + CONFIRMED_WITHIN)),
            by_report(false, false, false)
        );
        assert_eq!(
            next(&mut grants, id, Reach::Well, Time(5 + CONFIRMED_WITHIN)),
            by_report(false, true, false)
        );
    }

    #[test]
    fn a_dead_rail_reports_nothing() {
        let (mut grants, id) = reported();
        grants.get_mut(id).unwrap().acknowledge();
        next(&mut grants, id, Reach::Well, Time(1));
        grants.get_mut(id).unwrap().keys_ended(false, false, vec![1], Time(1));
        grants.forget_rail(0);
        assert_eq!(next(&mut grants, id, Reach::Well, Time(1)), by_report(false, false, false));
        grants.forget_rail(1);
        assert_eq!(next(&mut grants, id, Reach::Well, Time(1)), given(false));
        assert!(grants.get_mut(id).unwrap().must_tell() && !grants.get_mut(id).unwrap().must_tell());
    }

    #[test]
    fn the_word_of_a_peer_is_not_enough_for_a_publication_that_goes_on() {
        let stopped = |grants: &mut OwnGrants, id, resets| {
            grants.get_mut(id).unwrap().acknowledge();
            assert_eq!(next(grants, id, Reach::Well, Time(1)), Next::EndKeys);
            grants.get_mut(id).unwrap().keys_ended(false, false, Vec::new(), Time(1));
            let proofs = Proofs { by_stop: Some(resets), by_report: false, asks: false, is_late: false };
            assert_eq!(next(grants, id, Reach::Well, Time(2 * DEADLINE)), Next::Prove(proofs));
        };
        let asked = Until { deadline: Time(DEADLINE), is_proven: true };
        for (until, resets) in [(asked, Resets::Asked), (Until::NEVER, Resets::No)] {
            let mut grants = OwnGrants::default();
            let id = grants.add(PEER, SCOPE, None, &mut Names::new([7; 32]));
            grants.revoke_published(id, until, Time::ZERO).unwrap();
            stopped(&mut grants, id, resets);
        }
    }

    #[test]
    fn a_proof_never_takes_all_the_time_from_a_peer() {
        assert_eq!(lead(None, 100), 0);
        assert_eq!(lead(Some(10), 100), 35);
        assert_eq!(lead(Some(1 << 60), 100), 75);
        assert_eq!(lead(Some(u64::MAX), u64::MAX), u64::MAX / 4 * 3);
        assert_eq!(lead(Some(10), 100 * MARGIN_MAX), 10 + MARGIN_MAX);
        assert_eq!(lead(Some(10), 0), 0);
    }
}
