//! Grants: our memory that peers may reach, and theirs that we may.

use super::own_grants::{Next, OwnGrant, Reach, Wish};
use super::rail::RailState;
use super::transfer::TransferFault;
use super::work::{Control, KeysEnded};
use super::{Event, Machine, OpId, PeerChange, PeerKey};
use crate::rail::{EndedKeys, RailError};
use crate::rights::Rights;
use crate::wire::{Frame, GrantOffer};

/// Addresses and keys of granted memory, by rail: what the peer is told.
pub type RemoteKeys = Vec<Option<(u64, u64)>>;

impl Machine {
    /// Whether something can be granted to a peer.
    pub fn may_grant(&mut self, key: PeerKey) -> Result<(), RailError> {
        match self.peer(key).is_some_and(|peer| !peer.is_lost()) {
            true => Ok(()),
            false => Err(RailError::new("grant", "the peer is lost", "connect to it again")),
        }
    }

    /// Lets a peer at memory of this length, by these keys: how the grant is named.
    pub fn grant(&mut self, key: PeerKey, len: u64, rights: Rights, keys: RemoteKeys, now: u64) -> u64 {
        self.now = now;
        let id = self.grants.add(key);
        if let Some(peer) = self.peer(key) {
            peer.own_grants += 1;
        }
        self.send(key, Frame::Grant(GrantOffer { grant: id, len, rights: rights.bits(), keys }));
        id
    }

    /// Wants memory back. The user's handle on it must be gone.
    pub fn revoke(&mut self, op: Option<OpId>, id: u64, deadline: u64, now: u64) {
        self.now = now;
        let Some(Wish { peer: key, is_first, before }) = self.grants.revoke(id, op, deadline) else {
            return self.answer_revoke(op, Err("it is not granted"));
        };
        self.answer_revoke(before, Err("it was asked for again"));
        if is_first {
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
        if self.grants.of_peer(id, key).is_some_and(OwnGrant::acknowledge) {
            self.run_revoke(id);
        }
    }

    pub(super) fn run_revokes(&mut self) {
        self.timers.note(self.grants.are_revoking());
        for id in self.grants.take_revoking() {
            self.run_revoke(id);
            self.grants.put_back(id);
        }
    }

    /// Does what is due for memory that is wanted back.
    fn run_revoke(&mut self, id: u64) {
        let Some(grant) = self.grants.get_mut(id) else { return };
        let lost = self.peers.get(grant.peer()).map(|peer| peer.lost.as_ref());
        let reach = match lost {
            Some(None) => Reach::Well,
            Some(Some(lost)) => Reach::Lost { is_quiet: lost.is_quiet },
            None => Reach::Lost { is_quiet: false },
        };
        match grant.next(reach, self.now) {
            Next::Wait => {}
            Next::EndKeys => self.control.push_back(Control::EndKeys { grant: id }),
            Next::Prove { is_late } => {
                if !self.ask_proof(id) || is_late {
                    self.give_back(id);
                }
            }
            Next::GiveBack => self.give_back(id),
        }
    }

    /// The keys to granted memory were ended.
    pub fn handle_keys_ended(&mut self, id: u64, ended: KeysEnded) {
        let KeysEnded { errors, too_full, is_proven } = ended;
        let Some(grant) = self.grants.get_mut(id) else { return };
        grant.keys_ended(is_proven);
        let key = grant.peer();
        for error in errors {
            self.report_peer(key, PeerChange::Note(error));
        }
        for rail in too_full {
            self.ask_reset(rail);
        }
        self.run_revoke(id);
    }

    /// Has every rail begin anew where that proves what a dead key does not; whether there is one that has not yet.
    fn ask_proof(&mut self, id: u64) -> bool {
        let rails = &self.rails;
        let Some(grant) = self.grants.get_mut(id) else { return false };
        let before = grant.generations(|| rails.iter().map(RailState::generation).collect());
        let is_awaited = |(rail, before): (&RailState, &u64)| {
            let is_provable = rail.properties().ended_keys == EndedKeys::StopNew && rail.death().is_none();
            is_provable && rail.generation() == *before
        };
        let awaited: Vec<bool> = rails.iter().zip(before).map(is_awaited).collect();
        for rail in (0..awaited.len()).filter(|rail| awaited[*rail]) {
            self.ask_reset(rail);
        }
        awaited.contains(&true)
    }

    fn give_back(&mut self, id: u64) {
        let Some(grant) = self.grants.get_mut(id) else { return };
        let op = grant.give_back();
        self.control.push_back(Control::GiveBack { grant: id, op });
    }

    /// Granted memory was given back, unless its user has a handle on it.
    pub fn handle_given_back(&mut self, id: u64, op: Option<OpId>, is_back: bool) {
        let Some((key, later)) = self.grants.given_back(id, is_back) else {
            // The user did not wait so long, and has the grant in his hand again: it stands until he asks for it once more.
            return self.answer_revoke(op, Err("the grant was handed back meanwhile"));
        };
        if let Some(peer) = self.peer(key) {
            // Only what is wanted back is ever forgotten.
            peer.own_grants -= 1;
            peer.revoking -= 1;
        }
        self.answer_revoke(op, Ok(()));
        self.answer_revoke(later, Err("it is not granted"));
    }

    fn answer_revoke(&mut self, op: Option<OpId>, answer: Result<(), &'static str>) {
        if let Some(op) = op {
            self.report(Event::Revoked(op, answer));
        }
    }

    /// The peer has granted something to us.
    pub(super) fn on_grant(&mut self, key: PeerKey, offer: GrantOffer) {
        let Some(peer) = self.peer(key) else { return };
        peer.granted.learn(offer);
        self.report_peer(key, PeerChange::Offered);
    }

    /// What the peer has granted: its length and rights.
    pub fn granted(&mut self, key: PeerKey, grant: u64) -> Option<(u64, Rights)> {
        let granted = self.peer(key)?.granted.get(grant)?;
        (!granted.is_revoked()).then_some((granted.len(), granted.rights()))
    }

    /// Whether the peer has told us of this counter of its.
    pub fn knows_counter(&mut self, key: PeerKey, counter: crate::counter::CounterId) -> bool {
        self.peer(key).is_some_and(|peer| peer.counters.knows(counter))
    }

    /// The peer wants its memory back: nothing more of ours begins, and it hears when nothing is under way.
    pub(super) fn on_revoke(&mut self, key: PeerKey, id: u64) {
        let now = self.now;
        let Some(peer) = self.peer(key) else { return };
        if !peer.granted.revoke(id) {
            self.send(key, Frame::Revoked { grant: id });
            return;
        }
        let users = peer.transfers.using(id);
        for transfer in users {
            self.abort(key, transfer, &TransferFault::Revoked, now);
        }
        if self.peer(key).is_some_and(|peer| peer.granted.acknowledge(id)) {
            self.send(key, Frame::Revoked { grant: id });
        }
    }

    /// A transfer or an atomic is done with a grant.
    pub(super) fn release(&mut self, key: PeerKey, grant: u64) {
        if self.peer(key).is_some_and(|peer| peer.granted.end_use(grant)) {
            self.send(key, Frame::Revoked { grant });
        }
    }
}
