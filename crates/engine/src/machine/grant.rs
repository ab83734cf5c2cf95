//! Grants: our memory that peers may reach, and theirs that we may.

use std::sync::Arc;

use farreach_core::wire::{Frame, GrantOffer};
use farreach_memory::{Exposed, Slice};

use super::peer::Granted;
use super::transfer::TransferFault;
use super::{Machine, PeerKey};
use crate::Rights;
use crate::helm::Promise;
use crate::provider::{DeadKeys, ExposureId, ProviderError, reclaim};

/// Grants that are wanted back and that one look at the time sees to: a peer may be lost that had a hundred thousand.
const REVOKES_AT_ONCE: usize = 1024;

/// Memory of ours that a peer may reach.
#[derive(Debug)]
pub(super) struct OwnGrant {
    peer: PeerKey,
    memory: Arc<Exposed>,
    /// By rail; none where it was ended.
    exposures: Vec<Option<ExposureId>>,
    /// The generation of each rail when the peer was found to be lost, or did not answer.
    ending: Option<Ending>,
}

#[derive(Debug)]
struct Ending {
    promise: Option<Promise<RevokeAnswer>>,
    deadline: u64,
    is_acknowledged: bool,
    /// Of each rail, when a reset was asked for.
    generations: Option<Vec<u64>>,
}

/// A grant that was made.
#[derive(Debug)]
pub(crate) struct GrantMade {
    pub(crate) id: u64,
    pub(crate) memory: Arc<Exposed>,
}

/// What became of the wish to have memory back.
#[derive(Debug)]
pub(crate) enum RevokeAnswer {
    /// It is the user's alone.
    Back(Slice),
    /// Nothing is proven yet, and the grant stands, though the peer was told to stop.
    NotYet(String),
    /// A key could not be ended: the memory is leaked, counted.
    Leaked(String),
}

impl Machine {
    /// Lets a peer at a slice. On failure it is handed back.
    pub(crate) fn grant(
        &mut self,
        key: PeerKey,
        slice: Slice,
        rights: Rights,
        now: u64,
    ) -> Result<GrantMade, (ProviderError, Option<Slice>)> {
        self.now = now;
        if self.peer(key).is_none_or(|peer| peer.is_lost()) {
            let error = ProviderError::new("grant", "the peer is lost", "connect to it again");
            return Err((error, Some(slice)));
        }
        let len = slice.len() as u64;
        let memory = Arc::new(slice.expose());
        let mut exposures = Vec::new();
        let mut keys = Vec::new();
        for rail in 0..self.rails.len() {
            match self.rails[rail].provider().expose(&memory, rights) {
                Ok(exposure) => {
                    exposures.push(Some(exposure.id));
                    keys.push(Some((exposure.address, exposure.key)));
                }
                Err(error) => {
                    // No peer knows a key yet.
                    let all = exposures.into_iter().enumerate();
                    let ended = all.flat_map(|(rail, id)| id.map(|id| (rail, id)));
                    let are_ended = ended
                        .fold(true, |ok, (rail, id)| self.rails[rail].provider().conceal(id).is_ok() & ok);
                    return Err((error, if are_ended { reclaim(memory).ok() } else { None }));
                }
            }
        }
        let id = self.next_grant;
        self.next_grant += 1;
        let own = OwnGrant { peer: key, memory: Arc::clone(&memory), exposures, ending: None };
        self.grants.insert(id, own);
        if let Some(peer) = self.peer(key) {
            peer.own_grants += 1;
        }
        self.send(key, Frame::Grant(GrantOffer { grant: id, len, rights: rights.bits(), keys }));
        Ok(GrantMade { id, memory })
    }

    /// Wants memory back. The user's handle on it must be gone.
    pub(crate) fn revoke(
        &mut self,
        id: u64,
        deadline: u64,
        promise: Option<Promise<RevokeAnswer>>,
        now: u64,
    ) {
        self.now = now;
        let Some(grant) = self.grants.get_mut(&id) else { return };
        let key = grant.peer;
        let is_first = grant.ending.is_none();
        match &mut grant.ending {
            Some(ending) => (ending.promise, ending.deadline) = (promise, deadline),
            none => {
                *none = Some(Ending { promise, deadline, is_acknowledged: false, generations: None });
            }
        }
        if is_first {
            self.revoking.push_back(id);
            if let Some(peer) = self.peer(key) {
                peer.revoking += 1;
            }
            self.stir();
        }
        if is_first && self.peer(key).is_some_and(|peer| !peer.is_lost()) {
            self.send(key, Frame::Revoke { grant: id });
        }
        self.tend_revoke(id);
    }

    pub(super) fn on_revoked(&mut self, id: u64) {
        if let Some(ending) = self.grants.get_mut(&id).and_then(|grant| grant.ending.as_mut()) {
            ending.is_acknowledged = true;
            self.tend_revoke(id);
        }
    }

    pub(super) fn tend_revokes(&mut self) {
        self.is_calm &= self.revoking.is_empty();
        for _ in 0..self.revoking.len().min(REVOKES_AT_ONCE) {
            let Some(id) = self.revoking.pop_front() else { return };
            self.tend_revoke(id);
            if self.grants.contains_key(&id) {
                self.revoking.push_back(id);
            }
        }
    }

    /// Gives memory back, if it is proven that the peer reaches it no more; says that it is not, when the deadline has passed.
    fn tend_revoke(&mut self, id: u64) {
        let now = self.now;
        let Some(grant) = self.grants.get(&id) else { return };
        let key = grant.peer;
        let Some(ending) = &grant.ending else { return };
        // Its user was told that it is not back yet, and has it in his hand.
        if ending.promise.is_none() && ending.deadline != u64::MAX {
            return;
        }
        let (is_acknowledged, is_late) = (ending.is_acknowledged, now >= ending.deadline);
        let (is_lost, is_quiet, is_gone) = match self.peers.get(key.0 as usize).and_then(Option::as_deref) {
            Some(peer) => {
                let is_gone = || peer.hello.as_ref().is_some_and(|hello| (self.is_gone)(hello));
                let lost = peer.lost.as_ref();
                (lost.is_some(), lost.is_some_and(|lost| lost.is_quiet), lost.is_some() && is_gone())
            }
            None => (true, false, false),
        };
        let has_word = is_acknowledged || (is_lost && is_quiet);
        // A peer that is well is given until the deadline to answer: a key that dies under its hands costs it the link. It died at the first
        // deadline.
        let is_concealed = grant.exposures.iter().all(Option::is_none);
        if !has_word && !is_lost && !is_late && !is_concealed {
            return;
        }
        for rail in 0..self.rails.len() {
            if let Err(why) = self.prove_stopped(id, rail, has_word, is_lost, is_gone) {
                self.not_yet(id, why, is_late);
                return;
            }
        }
        self.give_back(id);
    }

    /// Ends the key on one rail, with the proof that nothing lands by it any more.
    fn prove_stopped(
        &mut self,
        id: u64,
        rail: usize,
        has_word: bool,
        is_lost: bool,
        is_gone: bool,
    ) -> Result<(), Wait> {
        let generation = self.rails[rail].generation;
        let properties = self.rails[rail].properties();
        let (dead_keys, reset_stops) = (properties.dead_keys, properties.reset_stops_peers);
        let Some(grant) = self.grants.get_mut(&id) else { return Ok(()) };
        let exposure = grant.exposures[rail];
        match dead_keys {
            DeadKeys::StopNothing if !has_word && !is_gone => {
                return Err(Wait::Longer("the peer has not acknowledged, and its process runs"));
            }
            _ => {}
        }
        if let Some(exposure) = exposure {
            grant.exposures[rail] = None;
            if let Err(error) = self.rails[rail].provider().conceal(exposure) {
                return Err(Wait::ForEver(error.to_string()));
            }
        }
        // A peer whose link has failed may have written more than it knows of.
        if dead_keys == DeadKeys::StopNew {
            if self.rails[rail].resetting_since.is_some() {
                return Err(Wait::Longer("the rail is about to be begun anew"));
            }
            // Nothing stops that any more, and its word does not cover it.
            if let Some(why) = self.rails[rail].dead.clone() {
                return Err(Wait::ForEver(why));
            }
        }
        let is_stopped = match dead_keys {
            DeadKeys::StopAll => true,
            // What is under way: the peer has said that there is nothing, or the rail was begun anew since.
            DeadKeys::StopNew => has_word || (reset_stops && self.is_reset_since(id, rail, generation)),
            DeadKeys::StopNothing => has_word || is_gone,
        };
        if is_stopped {
            return Ok(());
        }
        if let Some(why) = self.rails[rail].dead.clone().filter(|_| is_lost) {
            return Err(Wait::ForEver(why));
        }
        self.ask_reset(rail);
        Err(Wait::Longer("a write of the peer's may be under way"))
    }

    /// Whether a rail was reset since this was first asked for this grant.
    fn is_reset_since(&mut self, id: u64, rail: usize, generation: u64) -> bool {
        let generations: Vec<u64> = self.rails.iter().map(|rail| rail.generation).collect();
        let Some(ending) = self.grants.get_mut(&id).and_then(|grant| grant.ending.as_mut()) else {
            return false;
        };
        ending.generations.get_or_insert(generations)[rail] < generation
    }

    fn not_yet(&mut self, id: u64, why: Wait, is_late: bool) {
        match why {
            Wait::ForEver(why) => {
                let Some(grant) = self.grants.remove(&id) else { return };
                self.forget_grant(grant.peer);
                if let Some(promise) = grant.ending.and_then(|ending| ending.promise) {
                    promise.keep(RevokeAnswer::Leaked(why));
                }
                // The provider keeps the memory that it could not let go of.
                std::mem::forget(grant.memory);
            }
            Wait::Longer(why) if is_late => {
                let Some(ending) = self.grants.get_mut(&id).and_then(|grant| grant.ending.as_mut()) else {
                    return;
                };
                if let Some(promise) = ending.promise.take() {
                    promise.keep(RevokeAnswer::NotYet(why.to_owned()));
                }
            }
            Wait::Longer(_) => {}
        }
    }

    fn give_back(&mut self, id: u64) {
        let Some(grant) = self.grants.remove(&id) else { return };
        self.forget_grant(grant.peer);
        let promise = grant.ending.and_then(|ending| ending.promise);
        match (reclaim(grant.memory), promise) {
            (Ok(slice), Some(promise)) => promise.keep(RevokeAnswer::Back(slice)),
            (Err(_), Some(promise)) => {
                promise.keep(RevokeAnswer::Leaked("a handle on the memory is still there".to_owned()));
            }
            (_, None) => {}
        }
    }

    fn forget_grant(&mut self, key: PeerKey) {
        if let Some(peer) = self.peer(key) {
            // Only what is wanted back is ever forgotten.
            peer.own_grants -= 1;
            peer.revoking -= 1;
        }
    }

    /// The peer has granted something to us.
    pub(super) fn on_grant(&mut self, key: PeerKey, offer: GrantOffer) {
        let Some(peer) = self.peer(key) else { return };
        let rights = Rights::from_bits_truncate(offer.rights);
        let granted = Granted { len: offer.len, rights, keys: offer.keys, is_revoked: false, users: 0 };
        peer.granted.insert(offer.grant, granted);
        peer.cell.notify();
    }

    /// What the peer has granted: its length and rights.
    pub(crate) fn granted(&mut self, key: PeerKey, grant: u64) -> Option<(u64, Rights)> {
        let granted = self.peer(key)?.granted.get(&grant)?;
        (!granted.is_revoked).then_some((granted.len, granted.rights))
    }

    /// Whether the peer has told us of this counter of its.
    pub(crate) fn knows_counter(&mut self, key: PeerKey, counter: farreach_core::counter::CounterId) -> bool {
        self.peer(key).is_some_and(|peer| peer.counters.contains_key(&counter))
    }

    /// The peer wants its memory back: nothing more of ours begins, and it hears when nothing is under way.
    pub(super) fn on_revoke(&mut self, key: PeerKey, id: u64) {
        let now = self.now;
        let Some(peer) = self.peer(key) else { return };
        let Some(granted) = peer.granted.get_mut(&id) else {
            self.send(key, Frame::Revoked { grant: id });
            return;
        };
        granted.is_revoked = true;
        let users = peer.transfers_of(id);
        for transfer in users {
            self.abort(key, transfer, &TransferFault::Revoked, now);
        }
        self.acknowledge(key, id);
    }

    /// A transfer or a word is done with a grant.
    pub(super) fn release(&mut self, key: PeerKey, grant: u64) {
        let Some(peer) = self.peer(key) else { return };
        let Some(granted) = peer.granted.get_mut(&grant) else { return };
        granted.users = granted.users.saturating_sub(1);
        if granted.is_revoked {
            self.acknowledge(key, grant);
        }
    }

    fn acknowledge(&mut self, key: PeerKey, id: u64) {
        let Some(peer) = self.peer(key) else { return };
        if peer.granted.get(&id).is_some_and(|granted| granted.is_revoked && granted.users == 0) {
            peer.granted.remove(&id);
            self.send(key, Frame::Revoked { grant: id });
        }
    }
}

enum Wait {
    /// It will be proven by an answer, a reset, or the end of a process.
    Longer(&'static str),
    /// It will never be.
    ForEver(String),
}
