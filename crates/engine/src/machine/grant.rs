//! Grants: our memory that peers may reach, and theirs that we may.

use std::sync::Arc;

use farreach_core::wire::{Frame, GrantOffer};
use farreach_memory::Exposed;

use super::peer::Granted;
use super::transfer::TransferFault;
use super::{Machine, PeerKey};
use crate::Rights;
use crate::helm::Promise;
use crate::provider::{DeadKeys, ExposureId, ProviderError};

/// Grants that are wanted back and that one look at the time sees to: a peer may be lost that had a hundred thousand.
const REVOKES_AT_ONCE: usize = 1024;

/// Memory of ours that a peer may reach.
#[derive(Debug)]
pub(super) struct OwnGrant {
    peer: PeerKey,
    memory: Arc<Exposed>,
    /// By rail; none where it was ended.
    exposures: Vec<Option<ExposureId>>,
    ending: Option<Ending>,
}

#[derive(Debug)]
struct Ending {
    promise: Option<Promise<RevokeAnswer>>,
    deadline: u64,
    is_acknowledged: bool,
    /// Of each rail, when its keys had been ended.
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
    /// It is the user's again; what is proven, its keys tell.
    Back(Exposed),
    /// The grant is in the user's hand again, though the peer was told to stop.
    NotYet(&'static str),
}

impl Machine {
    /// Lets a peer at memory. On failure it is handed back.
    pub(crate) fn grant(
        &mut self,
        key: PeerKey,
        memory: Exposed,
        rights: Rights,
        now: u64,
    ) -> Result<GrantMade, (ProviderError, Option<Exposed>)> {
        self.now = now;
        if self.peer(key).is_none_or(|peer| peer.is_lost()) {
            let error = ProviderError::new("grant", "the peer is lost", "connect to it again");
            return Err((error, Some(memory)));
        }
        let len = memory.len() as u64;
        let memory = Arc::new(memory);
        let mut exposures: Vec<Option<ExposureId>> = Vec::new();
        let mut keys = Vec::new();
        for rail in 0..self.rails.len() {
            match self.rails[rail].provider().expose(&memory, rights) {
                Ok(exposure) => {
                    exposures.push(Some(exposure.id));
                    keys.push(Some((exposure.address, exposure.key)));
                }
                Err(error) => {
                    for (rail, exposure) in exposures.into_iter().enumerate() {
                        // One that cannot be ended counts for good, as its memory shows.
                        let _ = exposure.map(|exposure| self.rails[rail].provider().conceal(exposure));
                    }
                    return Err((error, Arc::into_inner(memory)));
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
            Some(ending) => {
                ending.deadline = deadline;
                if let Some(before) = std::mem::replace(&mut ending.promise, promise) {
                    before.keep(RevokeAnswer::NotYet("it was asked for again"));
                }
            }
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

    /// A peer says that it has stopped: of what was granted to it, and not of another's.
    pub(super) fn on_revoked(&mut self, key: PeerKey, id: u64) {
        let grant = self.grants.get_mut(&id).filter(|grant| grant.peer == key);
        if let Some(ending) = grant.and_then(|grant| grant.ending.as_mut()) {
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

    /// Ends the keys when the peer has said that it has stopped, when it is lost, and at the deadline; gives the memory back when there is nothing
    /// to wait for. What is proven by then, the memory itself knows: nothing that is decided here makes it a slice.
    fn tend_revoke(&mut self, id: u64) {
        let Some(grant) = self.grants.get(&id) else { return };
        let key = grant.peer;
        let Some(ending) = &grant.ending else { return };
        // Its user was told that it is not back yet, and has it in his hand.
        if ending.promise.is_none() && ending.deadline != u64::MAX {
            return;
        }
        let (is_acknowledged, is_late) = (ending.is_acknowledged, self.now >= ending.deadline);
        let (is_lost, is_quiet) = match self.peers.get(key.0 as usize).and_then(Option::as_deref) {
            Some(peer) => (peer.lost.is_some(), peer.lost.as_ref().is_some_and(|lost| lost.is_quiet)),
            None => (true, false),
        };
        let has_word = is_acknowledged || (is_lost && is_quiet);
        // A peer that is well is given until the deadline to answer: a key that dies under its hands costs it the link. It died at the first
        // deadline.
        let is_concealed = grant.exposures.iter().all(Option::is_none);
        if !has_word && !is_lost && !is_late && !is_concealed {
            return;
        }
        self.end_keys(key, id);
        let is_proven = self.grants.get(&id).is_some_and(|grant| grant.memory.keys() == 0);
        // A peer that says nothing may have writes under way. A reset stops them, and is the proof. It costs all other peers of the rail their links, so it is
        // not made for a peer that has given its word; the memory then comes back without a proof.
        let may_be_proven = !is_proven && !has_word && self.ask_proof(id);
        if !may_be_proven || is_late {
            self.give_back(id);
        }
    }

    fn end_keys(&mut self, key: PeerKey, id: u64) {
        for rail in 0..self.rails.len() {
            let Some(grant) = self.grants.get_mut(&id) else { return };
            let Some(exposure) = grant.exposures[rail].take() else { continue };
            if let Err(error) = self.rails[rail].provider().conceal(exposure)
                && let Some(peer) = self.peer(key)
            {
                peer.cell.note(error);
            }
            if self.rails[rail].provider().holds_too_much() {
                self.ask_reset(rail);
            }
        }
    }

    /// Has every rail begin anew where that proves what a dead key does not; whether there is one that has not yet.
    fn ask_proof(&mut self, id: u64) -> bool {
        let now: Vec<u64> = self.rails.iter().map(|rail| rail.generation).collect();
        let Some(ending) = self.grants.get_mut(&id).and_then(|grant| grant.ending.as_mut()) else {
            return false;
        };
        let before = ending.generations.get_or_insert(now);
        let is_awaited = |(rail, before): (&super::Rail, &u64)| {
            let is_provable = rail.properties().dead_keys == DeadKeys::StopNew && rail.dead.is_none();
            is_provable && rail.generation == *before
        };
        let awaited: Vec<bool> = self.rails.iter().zip(before.iter()).map(is_awaited).collect();
        for rail in (0..awaited.len()).filter(|rail| awaited[*rail]) {
            self.ask_reset(rail);
        }
        awaited.contains(&true)
    }

    fn give_back(&mut self, id: u64) {
        let Some(mut grant) = self.grants.remove(&id) else { return };
        let promise = grant.ending.as_mut().and_then(|ending| ending.promise.take());
        match Arc::try_unwrap(grant.memory) {
            Ok(memory) => {
                self.forget_grant(grant.peer);
                if let Some(promise) = promise {
                    promise.keep(RevokeAnswer::Back(memory));
                }
            }
            // The user did not wait so long, and has the grant in his hand again: it stands until he asks for it once more.
            Err(memory) => {
                self.grants.insert(id, OwnGrant { memory, ..grant });
                if let Some(promise) = promise {
                    promise.keep(RevokeAnswer::NotYet("the grant was handed back meanwhile"));
                }
            }
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
