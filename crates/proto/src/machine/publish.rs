//! Publishes local memory, and opens publications of peers.

use std::collections::BTreeMap;

use super::admission::{NotOpened, has_one};
use super::own_grants::Until;
use super::publications::Opening;
use super::work::Control;
use super::{Event, Machine, OpId, OpenedMemory, PeerKey};
use crate::access::Access;
use crate::error::{NotRevoked, OpenError};
use crate::ids::{GrantId, PublicationId};
use crate::lost::LostReason;
use crate::machine::lose::told_by_peer;
use crate::rail::RailError;
use crate::rights::Rights;
use crate::time::Time;
use crate::wire::Frame;

impl Machine {
    /// Publishes memory, which the driver holds by the id that this returns. No peer can guess it.
    pub fn publish(&mut self, rights: Rights, access: Access) -> PublicationId {
        self.publications.add(rights, access, &mut self.names)
    }

    /// Permits peers whose certificate has this name, also if the publication was withdrawn from it.
    /// Returns `false` if there is no such publication, or everybody may open it.
    pub fn admit(&mut self, publication: PublicationId, name: &str) -> bool {
        self.publications.admission(publication).is_some_and(|it| it.admit(name))
    }

    /// Sets the names of a peer's certificate, which the driver has verified.
    pub fn set_certificate_names(&mut self, key: PeerKey, names: Vec<String>) {
        if let Some(peer) = self.peer(key) {
            peer.certificate_names = names;
        }
    }

    /// Handles a peer's request to open a publication.
    pub(super) fn on_open(&mut self, key: PeerKey, publication: PublicationId) {
        let peer = &self.peers[key];
        // `leave` has ended its grants, and nothing would end a new one before the goodbye.
        if peer.is_left() {
            return self.refuse_opening(key, publication, NotOpened::Leaving.to_string());
        }
        match self.publications.open(publication, key, &peer.certificate_names) {
            // The answer follows.
            Opening::Begun => {}
            Opening::Known(grant) => self.send(key, Frame::Opened { publication, grant }),
            Opening::New(rights) => {
                self.control.push_back(Control::GrantPublished { publication, peer: key, rights });
            }
            Opening::Refused(why) => self.refuse_opening(key, publication, why.to_string()),
        }
    }

    /// Handles the grant of published memory to a peer that has opened it.
    pub fn handle_published(
        &mut self,
        publication: PublicationId,
        key: PeerKey,
        made: Result<GrantId, RailError>,
    ) {
        // The peer may have been lost, or have been left, while the driver made the grant.
        let is_there = self.peers.get(key).is_some_and(|peer| !peer.is_lost() && !peer.is_left());
        match made {
            Ok(grant) => {
                if let Some(own) = self.grants.get_mut(grant) {
                    own.belongs_to(publication);
                }
                match self.publications.made(publication, key, grant, is_there) {
                    None => self.send(key, Frame::Opened { publication, grant }),
                    Some(until) => {
                        self.refuse_opening(key, publication, NotOpened::Revoked.to_string());
                        self.revoke_published(&[grant], until);
                    }
                }
            }
            Err(error) => {
                self.refuse_opening(key, publication, error.to_string());
                // No grant will ever end this entry, and with it the peer could not ask again.
                self.published_grant_ended(publication, key);
            }
        }
    }

    fn refuse_opening(&mut self, key: PeerKey, publication: PublicationId, reason: String) {
        self.send(key, Frame::NotOpened { publication, reason });
    }

    /// Withdraws a publication from all peers. It is answered by [`Event::Revoked`] when the memory
    /// was given back.
    pub fn withdraw(&mut self, op: Option<OpId>, publication: PublicationId, deadline: Time, now: Time) {
        self.now = now;
        let Some(grants) = self.publications.withdraw(publication, op, deadline) else {
            return self.answer_revoke(op, Err(NotRevoked::NoSuchPublication));
        };
        self.revoke_published(&grants, Until { deadline, is_proven: false });
        // Nobody may have opened it.
        self.finish_withdrawal(publication);
    }

    /// Withdraws a publication from one peer, whose certificate has these names, and from all others
    /// whose certificate has one of them. None of them can open it again, until the name is
    /// [admitted](Self::admit). Without a name, that holds for this connection. It is answered by
    /// [`Event::Revoked`] when all grants have ended, or at the deadline; they end in any case.
    pub fn withdraw_from(
        &mut self,
        op: OpId,
        publication: PublicationId,
        (key, names): (PeerKey, &[String]),
        deadline: Time,
        now: Time,
    ) {
        self.now = now;
        let peers = &self.peers;
        let is_there = |key| peers.get(key).is_some_and(|peer| !peer.is_lost());
        let admission = self.publications.admission(publication);
        let Some(expelled) = admission.map(|it| it.expel_peer(key, names, is_there)) else {
            return self.answer_revoke(Some(op), Ok(()));
        };
        self.end_access(op, publication, deadline, |other, names| other == key || has_one(names, &expelled));
    }

    /// Withdraws a publication from all peers whose certificate has this name, as
    /// [`withdraw_from`](Self::withdraw_from) does.
    pub fn expel(&mut self, op: OpId, publication: PublicationId, name: &str, deadline: Time, now: Time) {
        self.now = now;
        let Some(expelled) = self.publications.admission(publication).map(|it| it.expel(name)) else {
            return self.answer_revoke(Some(op), Ok(()));
        };
        self.end_access(op, publication, deadline, |_, names| has_one(names, &expelled));
    }

    /// Ends the grants of the peers that have opened a publication and are concerned.
    fn end_access(
        &mut self,
        op: OpId,
        publication: PublicationId,
        deadline: Time,
        concerns: impl Fn(PeerKey, &[String]) -> bool,
    ) {
        let is_provable = !self.publications.is_unstopped(publication, &concerns);
        let peers = &self.peers;
        let names_of = |key| peers.get(key).map_or(&[][..], |peer| &peer.certificate_names);
        let of = |key| concerns(key, names_of(key));
        let waiting = is_provable.then_some(op);
        let grants = self.publications.withdraw_from(publication, waiting, deadline, of);
        if !is_provable {
            // It is never proven, and they lose access all the same.
            self.answer_revoke(Some(op), Err(NotRevoked::NotProven));
        } else if grants.is_none() {
            self.answer_revoke(Some(op), Ok(()));
        }
        let Some(grants) = grants else { return };
        // Some grants may not be made yet.
        self.touch_common();
        self.revoke_published(&grants, Until { deadline, is_proven: true });
    }

    fn revoke_published(&mut self, grants: &[GrantId], until: Until) {
        for grant in grants {
            if let Some(wish) = self.grants.revoke_published(*grant, until, self.now) {
                self.begin_revoke(*grant, wish);
            }
        }
    }

    /// Handles the end of a grant that belongs to a publication, or that it could not be made.
    pub(super) fn published_grant_ended(&mut self, publication: PublicationId, key: PeerKey) {
        for op in self.publications.ended(publication, key) {
            self.answer_revoke(Some(op), Ok(()));
        }
        self.finish_withdrawal(publication);
    }

    /// Answers the requests to withdraw a publication from a peer whose grant ends without a proof.
    pub(super) fn tell_not_proven(&mut self, publication: PublicationId, key: PeerKey) {
        for op in self.publications.not_proven(publication, key) {
            self.answer_revoke(Some(op), Err(NotRevoked::NotProven));
        }
    }

    /// Answers the requests to withdraw a publication from a peer whose deadline has passed. The
    /// revocations go on.
    pub(super) fn tell_late(&mut self) {
        for op in self.publications.late(self.now) {
            self.answer_revoke(Some(op), Err(NotRevoked::NotProven));
        }
        // The deadline of a wait has no timer of its own.
        if self.publications.are_awaited() {
            self.touch_common();
        }
    }

    fn finish_withdrawal(&mut self, publication: PublicationId) {
        if let Some(op) = self.publications.finish(publication) {
            self.control.push_back(Control::GiveBackPublished { publication, op });
        }
    }

    /// Handles the result of giving published memory back.
    pub fn handle_published_back(&mut self, op: Option<OpId>) {
        self.answer_revoke(op, Ok(()));
    }

    /// Revokes the grants of published memory to a peer, which nobody else does. One that is being made
    /// is revoked when it is there.
    pub(super) fn end_published_grants(&mut self, key: PeerKey) {
        let peer = &self.peers[key];
        let publications = peer.own_grants.iter().filter_map(|grant| self.grants.publication_of(*grant));
        for publication in publications.collect::<Vec<_>>() {
            let grants = self.publications.end(publication, Until::NEVER, [key]);
            self.revoke_published(&grants, Until::NEVER);
        }
    }

    /// Opens a publication of a peer. It is answered by [`Event::Opened`].
    pub fn open(&mut self, op: OpId, key: PeerKey, publication: PublicationId, now: Time) {
        self.now = now;
        let Some(peer) = self.peer(key).filter(|peer| !peer.is_lost()) else {
            let reason = LostReason::Gone;
            return self.report(Event::Opened(op, Err(OpenError::PeerLost { reason })));
        };
        let asked = peer.openings.entry(publication).or_default();
        asked.push(op);
        // One frame at a time for each publication: the peer makes one grant for all who ask.
        if asked.len() == 1 {
            self.send(key, Frame::Open { publication });
        }
        self.expect(key);
    }

    /// Handles the peer's answer that this side has a grant of its published memory.
    pub(super) fn on_opened(&mut self, key: PeerKey, publication: PublicationId, grant: GrantId) {
        let opened = self.granted(key, grant).map(|(len, rights)| OpenedMemory { grant, len, rights });
        let revoked = || OpenError::Refused { reason: "it was revoked meanwhile".into() };
        self.answer_opening(key, publication, &opened.ok_or_else(revoked));
    }

    pub(super) fn on_not_opened(&mut self, key: PeerKey, publication: PublicationId, reason: &str) {
        let reason = told_by_peer(reason);
        self.answer_opening(key, publication, &Err(OpenError::Refused { reason }));
    }

    fn answer_opening(
        &mut self,
        key: PeerKey,
        publication: PublicationId,
        answer: &Result<OpenedMemory, OpenError>,
    ) {
        let openings = &mut self.peers[key].openings;
        let answered = take_answered(openings, publication, answer.is_ok());
        if openings.contains_key(&publication) {
            self.send(key, Frame::Open { publication });
        }
        self.events.extend(answered.into_iter().map(|op| Event::Opened(op, answer.clone())));
    }

    /// Answers all requests to open publications of a lost peer.
    pub(super) fn lose_openings(&mut self, key: PeerKey, reason: &LostReason) {
        let peer = &mut self.peers[key];
        let asked = std::mem::take(&mut peer.openings);
        let lost = |op| Event::Opened(op, Err(OpenError::PeerLost { reason: reason.clone() }));
        self.events.extend(asked.into_values().flatten().map(lost));
    }
}

/// Takes the requests to open something that an answer of the peer is for. The caller asks again for
/// those that are left. There are none if nobody has asked: a peer may answer twice.
///
/// Success is for all of them. A refusal is for the first one, which was sent: the owner may have admitted
/// this side after it, and before the others asked.
pub(super) fn take_answered<K: Ord>(asked: &mut BTreeMap<K, Vec<OpId>>, id: K, is_opened: bool) -> Vec<OpId> {
    let mut ops = asked.remove(&id).unwrap_or_default();
    if !is_opened && ops.len() > 1 {
        asked.insert(id, ops.split_off(1));
    }
    ops
}
