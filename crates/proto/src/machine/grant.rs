//! Grants: our memory that peers may reach, and theirs that we may.

use super::transfer::TransferFault;
use super::work::{Control, KeysEnded};
use super::{Event, Machine, OpId, PeerChange, PeerKey};
use crate::rail::{EndedKeys, RailError};
use crate::rights::Rights;
use crate::wire::{Frame, GrantOffer};

/// Grants that are wanted back and that one look at the time sees to: a peer may be lost that had a hundred thousand.
const REVOKES_AT_ONCE: usize = 1024;

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
        let id = self.next_grant;
        self.next_grant += 1;
        self.grants.insert(id, OwnGrant { peer: key, keys: Keys::Alive, ending: None });
        if let Some(peer) = self.peer(key) {
            peer.own_grants += 1;
        }
        self.send(key, Frame::Grant(GrantOffer { grant: id, len, rights: rights.bits(), keys }));
        id
    }

    /// Wants memory back. The user's handle on it must be gone.
    pub fn revoke(&mut self, op: Option<OpId>, id: u64, deadline: u64, now: u64) {
        self.now = now;
        let Some(grant) = self.grants.get_mut(&id) else {
            return self.answer_revoke(op, Err("it is not granted"));
        };
        let key = grant.peer;
        let is_first = grant.ending.is_none();
        match &mut grant.ending {
            Some(ending) => {
                ending.deadline = deadline;
                let before = std::mem::replace(&mut ending.op, op);
                self.answer_revoke(before, Err("it was asked for again"));
            }
            none => {
                let is_acknowledged = false;
                *none = Some(Ending { op, deadline, is_acknowledged, generations: None, is_going: false });
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
        let Some(ending) = grant.ending.as_ref().filter(|ending| !ending.is_going) else { return };
        // Its user was told that it is not back yet, and has it in his hand.
        if ending.op.is_none() && ending.deadline != u64::MAX {
            return;
        }
        let (is_acknowledged, is_late) = (ending.is_acknowledged, self.now >= ending.deadline);
        let (is_lost, is_quiet) = match self.peers.get(key) {
            Some(peer) => (peer.lost.is_some(), peer.lost.as_ref().is_some_and(|lost| lost.is_quiet)),
            None => (true, false),
        };
        let has_word = is_acknowledged || (is_lost && is_quiet);
        // A peer that is well is given until the deadline to answer: a key that dies under its hands costs it the link. It died at the first
        // deadline.
        let is_proven = match grant.keys {
            Keys::Alive if !has_word && !is_lost && !is_late => return,
            Keys::Alive => return self.end_keys(id),
            Keys::Ending => return,
            Keys::Ended { is_proven } => is_proven,
        };
        // A peer that says nothing may have writes under way. A reset stops them, and is the proof. It costs all other peers of the rail their links, so it is
        // not made for a peer that has promised to stop; the memory then comes back without a proof.
        let may_be_proven = !is_proven && !has_word && self.ask_proof(id);
        if !may_be_proven || is_late {
            self.give_back(id);
        }
    }

    fn end_keys(&mut self, id: u64) {
        if let Some(grant) = self.grants.get_mut(&id) {
            grant.keys = Keys::Ending;
            self.control.push_back(Control::EndKeys { grant: id });
        }
    }

    /// The keys to granted memory were ended.
    pub fn handle_keys_ended(&mut self, id: u64, ended: KeysEnded) {
        let KeysEnded { errors, too_full, is_proven } = ended;
        let Some(grant) = self.grants.get_mut(&id) else { return };
        grant.keys = Keys::Ended { is_proven };
        let key = grant.peer;
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
        let Some(ending) = self.grants.get_mut(&id).and_then(|grant| grant.ending.as_mut()) else { return };
        ending.is_going = true;
        let op = ending.op.take();
        self.control.push_back(Control::GiveBack { grant: id, op });
    }

    /// Granted memory was given back, unless its user has a handle on it.
    pub fn handle_given_back(&mut self, id: u64, op: Option<OpId>, is_back: bool) {
        let Some(grant) = self.grants.get_mut(&id) else { return };
        let key = grant.peer;
        let Some(ending) = grant.ending.as_mut() else { return };
        ending.is_going = false;
        if !is_back {
            // The user did not wait so long, and has the grant in his hand again: it stands until he asks for it once more.
            return self.answer_revoke(op, Err("the grant was handed back meanwhile"));
        }
        let later = ending.op.take();
        self.grants.remove(&id);
        self.forget_grant(key);
        self.answer_revoke(op, Ok(()));
        self.answer_revoke(later, Err("it is not granted"));
    }

    fn answer_revoke(&mut self, op: Option<OpId>, answer: Result<(), &'static str>) {
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
