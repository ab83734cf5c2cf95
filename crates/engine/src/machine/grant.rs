//! Grants: our memory that peers may reach, and theirs that we may.

use std::sync::Arc;

use farreach_core::wire::{Frame, GrantOffer};
use farreach_memory::Exposed;

use super::peer::Granted;
use super::transfer::TransferFault;
use super::{Event, Machine, OpId, PeerChange, PeerKey};
use crate::Rights;
use crate::rail::{EndedKeys, RailError};

/// Grants that are wanted back and that one look at the time sees to: a peer may be lost that had a hundred thousand.
const REVOKES_AT_ONCE: usize = 1024;

/// Memory of ours that a peer may reach.
#[derive(Debug)]
pub(super) struct OwnGrant {
    peer: PeerKey,
    /// Whether its keys were ended.
    is_ended: bool,
    ending: Option<Ending>,
}

#[derive(Debug)]
struct Ending {
    /// Who hears of it; none where nobody does, or has heard.
    op: Option<OpId>,
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
    ) -> Result<GrantMade, (RailError, Option<Exposed>)> {
        self.now = now;
        if self.peer(key).is_none_or(|peer| peer.is_lost()) {
            let error = RailError::new("grant", "the peer is lost", "connect to it again");
            return Err((error, Some(memory)));
        }
        let len = memory.len() as u64;
        let (granted, keys) = self.carrier.make_keys(memory, rights)?;
        let id = self.next_grant;
        self.next_grant += 1;
        let memory = Arc::clone(granted.memory());
        self.carrier.keep_granted(id, granted);
        self.grants.insert(id, OwnGrant { peer: key, is_ended: false, ending: None });
        if let Some(peer) = self.peer(key) {
            peer.own_grants += 1;
        }
        self.send(key, Frame::Grant(GrantOffer { grant: id, len, rights: rights.bits(), keys }));
        Ok(GrantMade { id, memory })
    }

    /// Wants memory back. The user's handle on it must be gone.
    pub(crate) fn revoke(&mut self, op: Option<OpId>, id: u64, deadline: u64, now: u64) {
        self.now = now;
        let Some(grant) = self.grants.get_mut(&id) else {
            return self.answer_revoke(op, RevokeAnswer::NotYet("it is not granted"));
        };
        let key = grant.peer;
        let is_first = grant.ending.is_none();
        match &mut grant.ending {
            Some(ending) => {
                ending.deadline = deadline;
                let before = std::mem::replace(&mut ending.op, op);
                self.answer_revoke(before, RevokeAnswer::NotYet("it was asked for again"));
            }
            none => {
                *none = Some(Ending { op, deadline, is_acknowledged: false, generations: None });
            }
        }
        if is_first {
            self.revoking.push_back(id);
            if let Some(peer) = self.peer(key) {
                peer.revoking += 1;
            }
            self.mark_dirty();
        }
        if is_first && self.peer(key).is_some_and(|peer| !peer.is_lost()) {
            self.send(key, Frame::Revoke { grant: id });
        }
        self.run_revoke(id);
    }

    /// A peer says that it has stopped: of what was granted to it, and not of another's.
    pub(super) fn on_revoked(&mut self, key: PeerKey, id: u64) {
        let grant = self.grants.get_mut(&id).filter(|grant| grant.peer == key);
        if let Some(ending) = grant.and_then(|grant| grant.ending.as_mut()) {
            ending.is_acknowledged = true;
            self.run_revoke(id);
        }
    }

    pub(super) fn run_revokes(&mut self) {
        self.are_timers_idle &= self.revoking.is_empty();
        for _ in 0..self.revoking.len().min(REVOKES_AT_ONCE) {
            let Some(id) = self.revoking.pop_front() else { return };
            self.run_revoke(id);
            if self.grants.contains_key(&id) {
                self.revoking.push_back(id);
            }
        }
    }

    /// Ends the keys when the peer has said that it has stopped, when it is lost, and at the deadline; gives the memory back when there is nothing
    /// to wait for. What is proven by then, the memory itself knows: nothing that is decided here makes it a slice.
    fn run_revoke(&mut self, id: u64) {
        let Some(grant) = self.grants.get(&id) else { return };
        let key = grant.peer;
        let Some(ending) = &grant.ending else { return };
        // Its user was told that it is not back yet, and has it in his hand.
        if ending.op.is_none() && ending.deadline != u64::MAX {
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
        if !has_word && !is_lost && !is_late && !grant.is_ended {
            return;
        }
        self.end_keys(key, id);
        let is_proven = self.carrier.is_proven(id);
        // A peer that says nothing may have writes under way. A reset stops them, and is the proof. It costs all other peers of the rail their links, so it is
        // not made for a peer that has promised to stop; the memory then comes back without a proof.
        let may_be_proven = !is_proven && !has_word && self.ask_proof(id);
        if !may_be_proven || is_late {
            self.give_back(id);
        }
    }

    fn end_keys(&mut self, key: PeerKey, id: u64) {
        let Some(grant) = self.grants.get_mut(&id) else { return };
        grant.is_ended = true;
        let (errors, too_full) = self.carrier.end_keys(id);
        for error in errors {
            self.report_peer(key, PeerChange::Note(error));
        }
        for rail in too_full {
            self.ask_reset(rail);
        }
    }

    /// Has every rail begin anew where that proves what a dead key does not; whether there is one that has not yet.
    fn ask_proof(&mut self, id: u64) -> bool {
        let now: Vec<u64> = self.rails.iter().map(|rail| rail.generation).collect();
        let Some(ending) = self.grants.get_mut(&id).and_then(|grant| grant.ending.as_mut()) else {
            return false;
        };
        let before = ending.generations.get_or_insert(now);
        let is_awaited = |(rail, before): (&super::RailState, &u64)| {
            let is_provable = rail.properties().ended_keys == EndedKeys::StopNew && rail.dead.is_none();
            is_provable && rail.generation == *before
        };
        let awaited: Vec<bool> = self.rails.iter().zip(before.iter()).map(is_awaited).collect();
        for rail in (0..awaited.len()).filter(|rail| awaited[*rail]) {
            self.ask_reset(rail);
        }
        awaited.contains(&true)
    }

    fn give_back(&mut self, id: u64) {
        let Some(grant) = self.grants.get_mut(&id) else { return };
        let (peer, op) = (grant.peer, grant.ending.as_mut().and_then(|ending| ending.op.take()));
        let answer = match self.carrier.take_granted(id) {
            Some(memory) => {
                self.grants.remove(&id);
                self.forget_grant(peer);
                RevokeAnswer::Back(memory)
            }
            // The user did not wait so long, and has the grant in his hand again: it stands until he asks for it once more.
            None => RevokeAnswer::NotYet("the grant was handed back meanwhile"),
        };
        self.answer_revoke(op, answer);
    }

    fn answer_revoke(&mut self, op: Option<OpId>, answer: RevokeAnswer) {
        if let Some(op) = op {
            self.report(Event::Revoked(op, answer));
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
        self.report_peer(key, PeerChange::Offered);
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

    /// A transfer or an atomic is done with a grant.
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
