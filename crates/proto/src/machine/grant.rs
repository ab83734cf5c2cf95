//! Grants: local memory that peers may access, and memory of peers that this side may access.

use super::TransferFault;
use super::own_grants::{GivenBack, Next, OwnGrant, Proofs, Reach, Resets, Wish};
use super::peer::Link;
use super::rail::RailState;
use super::work::{Control, KeysEnded};
use super::{Event, Machine, OpId, PeerChange, PeerKey};
use crate::error::NotRevoked;
use crate::ids::GrantId;
use crate::lost::LostReason;
use crate::rail::{EndedKeys, Properties, RailError, Scope};
use crate::rights::Rights;
use crate::time::Time;
use crate::wire::{Frame, GrantOffer};

/// The time that a rail has for proving the end of a key by itself, for each GiB of the grant. A machine
/// without other load needs half of it.
const PROOF_NS_PER_GIB: u64 = 2_000_000_000;

/// Keys of granted memory, as the peer gets them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteKeys {
    /// The scope of the rails over which the memory can be accessed.
    pub scope: Scope,
    /// Address and key, by rail. `None` for rails of another scope, and for rails that bind keys to
    /// links.
    pub by_rail: Vec<Option<(u64, u64)>>,
}

/// Whether the peer of a grant whose keys have ended was stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stop {
    /// Nothing of it reaches the memory any more.
    Proven,
    /// A rail is about to be reset.
    Awaited,
    /// Nothing proves it.
    Unknown,
}

impl Machine {
    /// Checks that memory can be granted to a peer.
    pub fn may_grant(&mut self, key: PeerKey) -> Result<(), RailError> {
        let refused = |cause: String, fix: &str| Err(RailError::new("grant", cause, fix));
        let Some(peer) = self.peer(key).filter(|peer| !peer.is_lost()) else {
            return refused("the peer is lost".to_owned(), "connect to the peer again");
        };
        match &peer.hello {
            None => refused("the peer is not connected yet".to_owned(), "wait for the connection"),
            Some(hello) if peer.own_grants.len() >= hello.grants as usize => refused(
                format!("the peer accepts at most {} grants at a time", hello.grants),
                "revoke a grant, or raise `Budgets::grants` of the peer",
            ),
            _ => Ok(()),
        }
    }

    /// Returns the scopes over which memory can be granted to a peer, the best one first.
    pub fn grant_scopes(&self, key: PeerKey) -> Vec<Scope> {
        let Some(peer) = self.peers.get(key) else { return Vec::new() };
        let scope_of = |link: &Link| self.rails[link.rail()].scope();
        let mut scopes: Vec<Scope> = peer.links.iter().map(scope_of).collect();
        // `make_links` has sorted the links by scope, so equal ones are adjacent.
        scopes.dedup();
        // As long as the links within the host are not connected, others may have to do.
        let is_up = |link: &Link| scope_of(link) == Scope::Host && link.connected_end().is_some();
        if !peer.links.iter().any(is_up) {
            scopes.reverse();
        }
        scopes
    }

    /// Reports why memory is granted over another scope than the best one, the first time for a peer.
    pub fn tell_scope_refused(&mut self, key: PeerKey, error: RailError) {
        if self.peer(key).is_some_and(|peer| !std::mem::replace(&mut peer.has_told_scope, true)) {
            self.report_peer(key, PeerChange::Note(error));
        }
    }

    /// Grants memory of this length and with these keys to a peer, which [may](Self::may_grant) get it.
    /// Returns the id of the grant.
    ///
    /// # Panics
    ///
    /// Panics if the peer is lost: nothing would end the grant.
    pub fn grant(&mut self, key: PeerKey, len: u64, rights: Rights, keys: RemoteKeys, now: Time) -> GrantId {
        self.now = now;
        let RemoteKeys { scope, by_rail } = keys;
        let reports =
            |rail: &RailState| rail.scope() == scope && rail.properties().ended_keys == EndedKeys::Reported;
        let proof_ns = self.rails.iter().any(reports).then(|| proof_ns(len));
        let id = self.grants.add(key, scope, proof_ns, &mut self.names);
        let peer = &mut self.peers[key];
        assert!(!peer.is_lost(), "memory is granted to {key:?}, which is lost");
        peer.own_grants.insert(id);
        let rights = rights.bits();
        self.send(key, Frame::Grant(GrantOffer { grant: id, len, rights, scope, keys: by_rail }));
        // The peer reaches it over the network only, and those links may be held back.
        if scope == Scope::Network {
            self.need_all_links(key);
        }
        for index in 0..self.peers[key].links.len() {
            self.bind_key(key, index, id);
        }
        id
    }

    /// Begins to revoke a grant. The user's handle must be gone.
    pub fn revoke(&mut self, op: Option<OpId>, id: GrantId, deadline: Time, now: Time) {
        self.now = now;
        match self.grants.revoke(id, op, deadline, now) {
            Some(wish) => self.begin_revoke(id, wish),
            None => self.answer_revoke(op, Err(NotRevoked::NoSuchGrant)),
        }
    }

    /// Begins to do what a revocation wishes.
    pub(super) fn begin_revoke(&mut self, id: GrantId, Wish { peer: key, is_first, begins, before }: Wish) {
        self.answer_revoke(before, Err(NotRevoked::Replaced));
        if begins {
            self.peers[key].revoking += 1;
            self.touch_common();
            self.expect(key);
        }
        // Once: a further revoke changes the deadline only.
        if is_first && !self.peers[key].is_lost() {
            self.send(key, Frame::Revoke { grant: id });
        }
        self.run_revoke(id);
    }

    /// Handles the confirmation that a peer has stopped using a grant. A peer can confirm only its
    /// own grants.
    pub(super) fn on_revoked(&mut self, key: PeerKey, id: GrantId) {
        if self.grants.of_peer(id, key).is_some_and(OwnGrant::acknowledge) {
            self.run_revoke(id);
        }
    }

    pub(super) fn run_revokes(&mut self) {
        if self.grants.are_revoking() {
            self.touch_common();
        }
        for id in self.grants.take_revoking() {
            self.run_revoke(id);
            self.grants.put_back(id);
        }
        // After what has ended in this run.
        self.tell_late();
    }

    /// Takes the next step of a revocation.
    pub(super) fn run_revoke(&mut self, id: GrantId) {
        // It may have been given back since it was queued, or since its key was asked for.
        let Some(grant) = self.grants.get_mut(id) else { return };
        // A peer is not forgotten before all its grants are given back.
        let reach = match &self.peers[grant.peer()].lost {
            None => Reach::Well,
            Some(lost) => Reach::Lost { is_quiet: lost.is_quiet },
        };
        match grant.next(reach, self.now) {
            // A frame, a report or the timer comes back to it.
            Next::Wait => {}
            Next::EndKeys => self.control.push_back(Control::EndKeys { grant: id }),
            Next::Prove(Proofs { by_stop, by_report, asks, is_late }) => {
                let stop = by_stop.map_or(Stop::Unknown, |resets| self.stop(id, resets));
                let is_awaited = stop == Stop::Awaited || by_report;
                if is_late || !is_awaited {
                    self.give_back(id, stop == Stop::Proven && !is_awaited);
                } else if asks {
                    // Again with each run: what kept a rail from it may be over.
                    self.control.push_back(Control::ProveKeys { grant: id });
                }
            }
            Next::GiveBack { is_proven } => self.give_back(id, is_proven),
        }
    }

    /// Handles the result of ending keys.
    pub fn handle_keys_ended(&mut self, id: GrantId, ended: KeysEnded) {
        let KeysEnded { errors, too_full, is_proven, awaited } = ended;
        let now = self.now;
        let is_alive = |rail: &usize| self.rails.get(*rail).is_some_and(|rail| rail.death().is_none());
        // A dead rail reports nothing, and would be awaited for ever.
        let awaited = awaited.into_iter().filter(is_alive).collect();
        // Nothing gives it back while its keys are being ended.
        let grant = self.grants.get_mut(id).expect("keys are ended before their memory comes back");
        // No peer has got a key that was bound to no link: nothing needs to end it.
        let has_failed = !errors.is_empty() && !is_proven;
        grant.keys_ended(is_proven, has_failed, awaited, now);
        let key = grant.peer();
        if let Some(publication) = grant.publication().filter(|_| has_failed) {
            self.publications.key_failed(publication, key, &self.peers[key].certificate_names);
        }
        for error in errors {
            self.report_peer(key, PeerChange::Note(error));
        }
        for rail in too_full {
            self.reset_because_of(key, rail);
        }
        self.run_revoke(id);
    }

    /// Handles the report of a rail that nothing of a peer lands any more with an ended key.
    /// `is_proven`: this was the last key by which the memory could be reached.
    pub fn handle_key_proven(&mut self, rail: usize, id: GrantId, is_proven: bool) {
        // At its deadline the memory comes back without a proof, which may follow.
        let Some(grant) = self.grants.get_mut(id) else { return };
        grant.key_proven(rail, is_proven);
        self.run_revoke(id);
    }

    /// Handles the reasons for which rails cannot prove the end of a key at this time. They are asked
    /// again.
    pub fn handle_not_proven(&mut self, id: GrantId, errors: Vec<RailError>) {
        let grant = self.grants.get_mut(id).expect("rails are asked before the memory comes back");
        let key = grant.peer();
        // Rails are asked in each run, and would say the same each time.
        if !errors.is_empty() && grant.must_tell() {
            for error in errors {
                self.report_peer(key, PeerChange::Note(error));
            }
        }
    }

    /// Asks for the proof that an ended key does not give: the end of the peer's links where a link
    /// ends alone, which is done before the memory is given back, and otherwise a reset of the rail.
    fn stop(&mut self, id: GrantId, resets: Resets) -> Stop {
        self.end_links_of(id);
        let rails = &self.rails;
        let grant = self.grants.get_mut(id).expect("the end of a link gives no memory back");
        let (key, of_grant) = (grant.peer(), grant.scope());
        // A key that is alive lets in what the peer posts over its next link.
        let mut is_provable = !grant.has_failed_key();
        // A dead rail reports nothing any more.
        is_provable &= !rails.iter().any(|rail| {
            let is_reported = rail.properties().ended_keys == EndedKeys::Reported;
            rail.scope() == of_grant && is_reported && rail.death().is_some()
        });
        // Those of the first attempt: a reset since then is the proof.
        let before = grant.generations(|| rails.iter().map(RailState::generation).collect());
        let needs_reset = |(rail, before): &(&RailState, &u64)| {
            let Properties { ended_keys, links_end_alone, .. } = rail.properties();
            let is_unstopped = *ended_keys == EndedKeys::StopNew && !links_end_alone;
            rail.scope() == of_grant && is_unstopped && rail.generation() == **before
        };
        let needed: Vec<bool> = rails.iter().zip(before).map(|rail| needs_reset(&rail)).collect();
        let mut is_awaited = false;
        for rail in (0..needed.len()).filter(|rail| needed[*rail]) {
            match resets {
                // A dead rail is never reset.
                _ if self.rails[rail].death().is_some() => is_provable = false,
                Resets::No => is_provable = false,
                Resets::Asked => {
                    self.ask_reset(rail);
                    is_awaited = true;
                }
                Resets::Caused => {
                    self.reset_because_of(key, rail);
                    is_awaited = true;
                }
            }
        }
        match is_provable {
            // First: the reset stops the peer, even if the word of another rail is missing.
            _ if is_awaited => Stop::Awaited,
            true => Stop::Proven,
            false => Stop::Unknown,
        }
    }

    /// Ends the links over which the peer of a grant may have operations in flight with ended keys.
    /// It connects again.
    fn end_links_of(&mut self, id: GrantId) {
        let grant = self.grants.get(id).expect("a proof is asked for a grant");
        let (key, of_grant) = (grant.peer(), grant.scope());
        for index in 0..self.peers[key].links.len() {
            let peer = &mut self.peers[key];
            let link = &mut peer.links[index];
            let rail = &self.rails[link.rail()];
            let Properties { ended_keys, links_end_alone, .. } = rail.properties();
            let ends_alone = *ended_keys == EndedKeys::StopNew && *links_end_alone;
            if rail.scope() == of_grant && ends_alone && !link.is_failing() {
                let cause = "the link had to end to prove that a revoke is complete";
                link.note_why(cause.to_owned());
                let reason = RailError::new("link", cause, "nothing has to be done: it is connected again");
                self.end_link(key, index, Some(&reason));
            }
        }
    }

    /// Gives memory back. Without a proof it stays exposed, and is no slice.
    fn give_back(&mut self, id: GrantId, is_proven: bool) {
        let grant = self.grants.get_mut(id).expect("the grant whose step it is");
        let (op, key) = (grant.give_back(), grant.peer());
        // The memory of a publication stays with it, and does not show whether this grant has ended.
        if let Some(publication) = grant.publication().filter(|_| !is_proven) {
            self.tell_not_proven(publication, key);
        }
        self.control.push_back(Control::GiveBack { grant: id, op });
    }

    /// Handles the result of giving memory back. `is_back` is `false` if the user holds a handle
    /// again.
    pub fn handle_given_back(&mut self, id: GrantId, op: Option<OpId>, is_back: bool) {
        if !is_back {
            // The user's wait timed out and the grant was returned to the user. It stays until the
            // user revokes it again, and nothing waits for it until then.
            if let Some(key) = self.grants.left_with_user(id) {
                self.peers[key].revoking -= 1;
                self.touch(key);
            }
            return self.answer_revoke(op, Err(NotRevoked::WithUser));
        }
        let GivenBack { peer: key, later, publication } = self.grants.given_back(id);
        let peer = &mut self.peers[key];
        // Only grants that are being revoked are ever removed, so both counts include this one.
        assert!(peer.own_grants.remove(&id), "grant {id} is back, and was not of {key:?}");
        peer.revoking -= 1;
        // A lost peer may have waited for this.
        self.touch(key);
        self.answer_revoke(op, Ok(()));
        self.answer_revoke(later, Err(NotRevoked::NoSuchGrant));
        if let Some(publication) = publication {
            self.published_grant_ended(publication, key);
        }
    }

    pub(super) fn answer_revoke(&mut self, op: Option<OpId>, answer: Result<(), NotRevoked>) {
        if let Some(op) = op {
            self.report(Event::Revoked(op, answer));
        }
    }

    /// Handles a grant of the peer.
    pub(super) fn on_grant(&mut self, key: PeerKey, offer: GrantOffer) {
        let budgets = self.tuning.budgets;
        let peer = &mut self.peers[key];
        let rails = &self.rails;
        let has_link = peer.links.iter().any(|link| rails[link.rail()].scope() == offer.scope);
        let rails = peer.hello.as_ref().map_or(0, |hello| hello.rails.len());
        // Checked here, so that adding an offset within the grant cannot overflow later.
        let ends = |(address, _): &(u64, u64)| address.checked_add(offer.len).is_some();
        let wrong = match () {
            () if offer.keys.len() > rails => Some("it announced a grant with more keys than it has rails"),
            () if !offer.keys.iter().flatten().all(ends) => {
                Some("it announced a grant that ends beyond the last address")
            }
            () if !has_link => Some("it announced a grant over rails that are not connected"),
            () if peer.granted.get(offer.grant).is_some() => Some("it announced a grant twice"),
            () => None,
        };
        if let Some(wrong) = wrong {
            return self.lose_peer(key, LostReason::Violation(wrong), false);
        }
        if peer.granted.len() >= budgets.grants as usize {
            return self.lose_peer(key, budgets.exceeded_grants(), false);
        }
        let scope = offer.scope;
        peer.granted.learn(offer);
        if scope == Scope::Network {
            self.need_all_links(key);
        }
        self.report_peer(key, PeerChange::Offered);
    }

    /// Returns the length and the rights of a grant of the peer.
    pub fn granted(&mut self, key: PeerKey, grant: GrantId) -> Option<(u64, Rights)> {
        let granted = self.peer(key)?.granted.get(grant)?;
        (!granted.is_revoked()).then_some((granted.len(), granted.rights()))
    }

    /// Returns the scope of the rails over which a grant of the peer can be used.
    pub fn scope_of(&self, key: PeerKey, grant: GrantId) -> Option<Scope> {
        Some(self.peers.get(key)?.granted.get(grant)?.scope())
    }

    /// Returns `true` if the peer has announced this counter.
    pub fn knows_counter(&mut self, key: PeerKey, counter: crate::counter::CounterId) -> bool {
        self.peer(key).is_some_and(|peer| peer.counters.knows(counter))
    }

    /// Handles a revocation by the peer: begins nothing more, and confirms when nothing is in
    /// flight.
    pub(super) fn on_revoke(&mut self, key: PeerKey, id: GrantId) {
        let now = self.now;
        let peer = &mut self.peers[key];
        // Nothing can use a grant that is unknown here, so it is confirmed at once.
        if !peer.granted.revoke(id) {
            self.send(key, Frame::Revoked { grant: id });
            return;
        }
        let users = peer.transfers.using(id);
        for transfer in users {
            self.abort(key, transfer, &TransferFault::Revoked, now);
        }
        self.confirm_unused(key);
    }

    /// Ends a use of a grant by a transfer or an atomic.
    pub(super) fn release(&mut self, key: PeerKey, grant: GrantId) {
        if self.peers[key].granted.end_use(grant) {
            self.confirm_unused(key);
        }
    }

    /// Confirms the end of the grants that the peer revokes and that nothing of this side uses, unless
    /// something may still land over a lost link: a transfer that was aborted does not wait for that, and
    /// an atomic is answered at once.
    pub(super) fn confirm_unused(&mut self, key: PeerKey) {
        let peer = &mut self.peers[key];
        // Otherwise the answer about the lost link leads here again.
        if !peer.may_land() {
            for grant in peer.granted.take_unused() {
                self.send(key, Frame::Revoked { grant });
            }
        }
    }
}

/// Returns the time that a rail needs to prove the end of a key to so many bytes.
fn proof_ns(len: u64) -> u64 {
    let ns = (u128::from(len) * u128::from(PROOF_NS_PER_GIB)) >> 30;
    u64::try_from(ns).unwrap_or(u64::MAX)
}
