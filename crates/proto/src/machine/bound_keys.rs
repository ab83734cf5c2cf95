//! Keys that are good over one link only.
//!
//! Some rails can separate peers only so: a key is bound to a link of its peer, and no other link
//! can use it. The side that grants memory binds its keys to each link of the peer when the link is
//! connected, and tells the peer each key when it is bound. The peer posts nothing to a grant over a
//! link before it knows the key.
//!
//! Keys are not ended while they are being bound, as long as the deadline of the revoke allows:
//! ending a key under its binding fails the link.

use super::own_grants::OwnGrant;
use super::{Machine, PeerChange, PeerKey};
use crate::counter::LinkId;
use crate::ids::GrantId;
use crate::lost::LostReason;
use crate::machine::work::Control;
use crate::rail::{LinkKey, RailError};
use crate::wire::{BoundKey, Frame, KEYS_MAX};

impl Machine {
    /// Binds the keys of all grants of a peer to one of its links.
    pub(super) fn bind_keys_to(&mut self, key: PeerKey, index: usize) {
        let peer = &self.peers[key];
        // The keys of other rails were announced with their grants.
        if !self.rails[peer.links[index].rail()].properties().keys_are_bound {
            return;
        }
        let grants: Vec<GrantId> = peer.own_grants.iter().copied().collect();
        // All are bound to the new link.
        self.peers[key].unbound.retain(|(of, _)| *of != index);
        for grant in grants {
            self.bind_key(key, index, grant);
        }
    }

    /// Binds the key of a grant to a link, if that is connected and its rail binds keys.
    pub(super) fn bind_key(&mut self, key: PeerKey, index: usize, grant: GrantId) {
        let peer = &self.peers[key];
        let (rail, end) = (peer.links[index].rail(), peer.links[index].connected_end());
        // A link that is not connected yet gets the keys of all grants when it is.
        let Some(link) = end.filter(|_| self.rails[rail].properties().keys_are_bound) else { return };
        let scope = self.rails[rail].scope();
        let of_peer = self.grants.of_peer(grant, key).filter(|grant| grant.scope() == scope);
        if of_peer.is_some_and(OwnGrant::begin_binding) {
            self.control.push_back(Control::BindKey { rail, link, grant });
        }
    }

    /// Handles a key that is bound to a link, with its address; or the reason why it is not.
    pub fn handle_key_bound(
        &mut self,
        rail: usize,
        link: LinkKey,
        grant: GrantId,
        bound: Result<(u64, u64), RailError>,
    ) {
        let may_tell = self.grants.get_mut(grant).is_some_and(|grant| grant.end_binding());
        if !may_tell {
            self.run_revoke(grant);
        }
        // The link may be gone since.
        let Some((key, index)) = self.rails[rail].owner(link) else { return };
        match bound {
            // The key is not needed any more.
            _ if !may_tell => {}
            // Without its keys the link is of no use to the peer, which would wait for them.
            Err(error) => self.fail_link(key, index, &error),
            Ok((address, value)) => {
                let peer = &self.peers[key];
                let id = peer.links[index].id();
                self.bound.entry((key, id)).or_default().push(BoundKey { grant, address, key: value });
            }
        }
    }

    /// Handles a key that its rail cannot bind to a link for a reason that leaves the link as it is, such
    /// as too few descriptors on this side. It is tried again later. Until then, only what needs the key
    /// waits.
    pub fn handle_key_not_bound(&mut self, rail: usize, link: LinkKey, grant: GrantId, error: RailError) {
        if !self.grants.get_mut(grant).is_some_and(OwnGrant::end_binding) {
            return self.run_revoke(grant);
        }
        let retry_at = self.now.saturating_add(self.tuning.cool_down);
        // As above: the link may be gone.
        let Some((key, index)) = self.rails[rail].owner(link) else { return };
        let peer = &mut self.peers[key];
        peer.unbound.push((index, grant));
        // All are tried again together.
        peer.bind_at = retry_at;
        let has_told = std::mem::replace(&mut peer.has_told_unbound, true);
        self.schedule(key, self.tuning.cool_down);
        if !has_told {
            self.report_peer(key, PeerChange::Note(error));
        }
    }

    /// Tries again to bind keys that could not be bound.
    pub(super) fn bind_again(&mut self, key: PeerKey) {
        let now = self.now;
        // The timers of its links may have lost the peer a moment ago.
        let Some(peer) = self.peer(key).filter(|peer| now >= peer.bind_at) else { return };
        for (index, grant) in std::mem::take(&mut peer.unbound) {
            self.bind_key(key, index, grant);
        }
    }

    /// Tells peers the keys that were bound in this step, many in one frame.
    pub(super) fn tell_bound_keys(&mut self) {
        while let Some(((key, link), keys)) = self.bound.pop_first() {
            // The peer was lost in the same step.
            if self.peer(key).is_none_or(|peer| peer.is_lost()) {
                continue;
            }
            for keys in keys.chunks(KEYS_MAX) {
                self.send(key, Frame::Keys { link, keys: keys.to_vec() });
            }
        }
    }

    /// Handles keys of the peer that are bound to a link.
    pub(super) fn on_keys(&mut self, key: PeerKey, id: LinkId, keys: &[BoundKey]) {
        let peer = &mut self.peers[key];
        // Keys of a link that was replaced meanwhile are no longer good.
        let Some(index) = peer.links.position(id) else { return };
        if !keys.iter().all(|bound| peer.granted.bind(index, id, *bound)) {
            let why = LostReason::Violation("it announced a key that ends beyond the last address");
            return self.lose_peer(key, why, false);
        }
        self.wake_pages(key);
        self.schedule_sending(key);
    }
}
