//! Publishes local memory, and opens publications of peers.

use super::publications::Opening;
use super::work::Control;
use super::{Event, Machine, OpId, OpenedMemory, PeerKey};
use crate::access::Access;
use crate::error::OpenError;
use crate::lost::LostReason;
use crate::machine::lose::REASON_CHARS_MAX;
use crate::rail::RailError;
use crate::rights::Rights;
use crate::wire::Frame;

/// A deadline of revocations whose memory is not wanted back.
const NO_DEADLINE: u64 = u64::MAX;

impl Machine {
    /// Publishes memory, which the driver holds by the id that this returns. No peer can guess it.
    pub fn publish(&mut self, rights: Rights, access: Access) -> u64 {
        self.publications.add(rights, access, &mut self.names)
    }

    /// Permits peers whose certificate has this name. Returns `false` if there is no such publication,
    /// or everybody may open it.
    pub fn admit(&mut self, publication: u64, name: &str) -> bool {
        self.publications.get_mut(publication).is_some_and(|it| it.admit(name))
    }

    /// Sets the names of a peer's certificate, which the driver has verified.
    pub fn set_certificate_names(&mut self, key: PeerKey, names: Vec<String>) {
        if let Some(peer) = self.peer(key) {
            peer.certificate_names = names;
        }
    }

    /// Handles a peer's request to open a publication.
    pub(super) fn on_open(&mut self, key: PeerKey, publication: u64) {
        let Some(peer) = self.peers.get(key) else { return };
        if peer.is_left || peer.withdrawn.contains(&publication) {
            return self.refuse_opening(key, publication, "it was revoked".to_owned());
        }
        match self.publications.open(publication, key, &peer.certificate_names) {
            // The answer follows.
            Opening::Begun => {}
            // Its grant may be on its way out. The peer learns that by the revocation.
            Opening::Known(grant) => self.send(key, Frame::Opened { publication, grant }),
            Opening::New(rights) => {
                self.control.push_back(Control::GrantPublished { publication, peer: key, rights });
            }
            Opening::Refused(why) => self.refuse_opening(key, publication, why.to_owned()),
        }
    }

    /// Handles the grant of published memory to a peer that has opened it.
    pub fn handle_published(&mut self, publication: u64, key: PeerKey, made: Result<u64, RailError>) {
        let (grant, error) = match made {
            Ok(grant) => (Some(grant), None),
            Err(error) => (None, Some(error)),
        };
        if let Some(own) = grant.and_then(|grant| self.grants.get_mut(grant)) {
            own.belongs_to(publication);
        }
        let is_open = self.publications.get_mut(publication).is_some_and(|it| it.made(key, grant));
        match (grant, error) {
            (Some(grant), _) if is_open => self.send(key, Frame::Opened { publication, grant }),
            // It was withdrawn meanwhile, which has not revoked this grant.
            (Some(grant), _) => {
                self.refuse_opening(key, publication, "it was revoked".to_owned());
                self.revoke(None, grant, NO_DEADLINE, self.now);
            }
            (None, error) => {
                let reason = error.map_or_else(String::new, |error| error.to_string());
                self.refuse_opening(key, publication, reason);
                self.finish_withdrawal(publication);
            }
        }
    }

    fn refuse_opening(&mut self, key: PeerKey, publication: u64, reason: String) {
        self.send(key, Frame::NotOpened { publication, reason });
    }

    /// Withdraws a publication from all peers. It is answered by [`Event::Revoked`] when the memory
    /// was given back.
    pub fn withdraw(&mut self, op: Option<OpId>, publication: u64, deadline: u64, now: u64) {
        self.now = now;
        let Some(grants) = self.publications.withdraw(publication, op) else {
            return self.answer_revoke(op, Err("there is no such publication"));
        };
        for grant in grants {
            self.revoke(None, grant, deadline, now);
        }
        self.finish_withdrawal(publication);
    }

    /// Withdraws a publication from one peer, which cannot open it again. It is answered by
    /// [`Event::Revoked`].
    pub fn withdraw_from(&mut self, op: OpId, publication: u64, key: PeerKey, deadline: u64, now: u64) {
        self.now = now;
        if let Some(peer) = self.peer(key) {
            peer.withdrawn.insert(publication);
        }
        let grant = self.publications.get_mut(publication).and_then(|it| it.grant_of(key));
        match grant {
            Some(grant) => self.revoke(Some(op), grant, deadline, now),
            None => self.answer_revoke(Some(op), Ok(())),
        }
    }

    /// Handles the end of a grant that belongs to a publication.
    pub(super) fn published_grant_ended(&mut self, publication: u64, key: PeerKey, grant: u64) {
        if let Some(op) = self.publications.end_grant(publication, key, grant) {
            self.control.push_back(Control::GiveBackPublished { publication, op });
        }
    }

    fn finish_withdrawal(&mut self, publication: u64) {
        if let Some(op) = self.publications.finish(publication) {
            self.control.push_back(Control::GiveBackPublished { publication, op });
        }
    }

    /// Handles the result of giving published memory back.
    pub fn handle_published_back(&mut self, op: Option<OpId>) {
        self.answer_revoke(op, Ok(()));
    }

    /// Revokes the grants of published memory to a peer, which nobody else does.
    pub(super) fn end_published_grants(&mut self, key: PeerKey) {
        let Some(peer) = self.peers.get(key) else { return };
        let is_published = |grant: &u64| self.grants.is_published_and_alive(*grant);
        let grants: Vec<u64> = peer.own_grants.iter().copied().filter(is_published).collect();
        for grant in grants {
            self.revoke(None, grant, NO_DEADLINE, self.now);
        }
    }

    /// Opens a publication of a peer. It is answered by [`Event::Opened`].
    pub fn open(&mut self, op: OpId, key: PeerKey, publication: u64, now: u64) {
        self.now = now;
        let Some(peer) = self.peer(key).filter(|peer| !peer.is_lost()) else {
            let reason = LostReason::Gone;
            return self.report(Event::Opened(op, Err(OpenError::PeerLost { reason })));
        };
        let asked = peer.openings.entry(publication).or_default();
        asked.push(op);
        if asked.len() == 1 {
            self.send(key, Frame::Open { publication });
        }
        self.expect(key);
    }

    /// Handles the peer's answer that this side has a grant of its published memory.
    pub(super) fn on_opened(&mut self, key: PeerKey, publication: u64, grant: u64) {
        let opened = self.granted(key, grant).map(|(len, rights)| OpenedMemory { grant, len, rights });
        let revoked = || OpenError::Refused { reason: "it was revoked meanwhile".to_owned() };
        let answer = opened.ok_or_else(revoked);
        self.answer_opening(key, publication, &answer);
    }

    pub(super) fn on_not_opened(&mut self, key: PeerKey, publication: u64, reason: &str) {
        let reason = reason.chars().take(REASON_CHARS_MAX).collect();
        self.answer_opening(key, publication, &Err(OpenError::Refused { reason }));
    }

    fn answer_opening(&mut self, key: PeerKey, publication: u64, answer: &Result<OpenedMemory, OpenError>) {
        let Some(asked) = self.peer(key).and_then(|peer| peer.openings.remove(&publication)) else { return };
        self.events.extend(asked.into_iter().map(|op| Event::Opened(op, answer.clone())));
    }

    /// Answers all requests to open publications of a lost peer.
    pub(super) fn lose_openings(&mut self, key: PeerKey, reason: &LostReason) {
        let Some(peer) = self.peer(key) else { return };
        let asked = std::mem::take(&mut peer.openings);
        let lost = |op| Event::Opened(op, Err(OpenError::PeerLost { reason: reason.clone() }));
        self.events.extend(asked.into_values().flatten().map(lost));
    }
}
