//! Grants of a peer to this side, and their use.

use std::collections::BTreeMap;

use super::link::Link;
use super::links::Links;
use crate::counter::LinkId;
use crate::ids::GrantId;
use crate::machine::PeerKey;
use crate::machine::peer_map::{HashKeys, PeerMap};
use crate::rail::{RequestError, Scope};
use crate::rights::Rights;
use crate::time::Time;
use crate::wire::{BoundKey, GrantOffer};

/// All grants of a peer to this side, by the peer's ids.
#[derive(Debug)]
pub(crate) struct GrantedTable {
    grants: PeerMap<GrantId, Granted>,
    /// Those that are being revoked and that nothing uses any more.
    unused: Vec<GrantId>,
}

/// A grant of a peer to this side.
#[derive(Debug)]
pub(crate) struct Granted {
    len: u64,
    rights: Rights,
    /// The scope of the rails over which it can be accessed.
    scope: Scope,
    /// Its address and key, by rail of the peer.
    keys: Vec<Option<(u64, u64)>>,
    /// Its address and key over one link each, by index, with the id of the link that it is bound to.
    bound: Vec<Option<(LinkId, (u64, u64))>>,
    key_refusal: Option<KeyRefusal>,
    /// Whether the peer is revoking it. The confirmation is sent when nothing of this side uses it.
    is_revoked: bool,
    /// The number of transfers and atomics that use it.
    users: u32,
}

/// The reason for which a link cannot use the key of a grant.
#[derive(Debug)]
pub(crate) struct KeyRefusal {
    /// The index of the link.
    pub(crate) index: usize,
    /// Its id. The link that comes after it may have another key.
    pub(crate) link: LinkId,
    /// The time from which the key is tried again: the reason may be over.
    pub(crate) until: Time,
    pub(crate) error: Box<RequestError>,
}

impl Granted {
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    pub(crate) fn rights(&self) -> Rights {
        self.rights
    }

    pub(crate) fn scope(&self) -> Scope {
        self.scope
    }

    pub(crate) fn is_revoked(&self) -> bool {
        self.is_revoked
    }

    /// Returns whether the peer revokes it, and nothing uses it.
    fn is_unused(&self) -> bool {
        self.is_revoked && self.users == 0
    }

    /// Returns the reason for which one of these links cannot use its key.
    #[inline]
    pub(crate) fn key_refusal(&self, links: &Links, now: Time) -> Option<&RequestError> {
        let KeyRefusal { index, link, until, error } = self.key_refusal.as_ref()?;
        (now < *until && links[*index].id() == *link).then_some(error)
    }

    /// Returns its address and key over a link of this index.
    #[inline]
    pub(crate) fn key_over(&self, index: usize, link: &Link) -> Option<(u64, u64)> {
        if !link.binds_keys() {
            // By the rail of the peer: a key is made once for each rail of the owner.
            return *self.keys.get(link.peer_rail())?;
        }
        let (id, key) = (*self.bound.get(index)?)?;
        // A key of the link that was there before is no longer good.
        (id == link.id()).then_some(key)
    }
}

impl GrantedTable {
    /// Creates an empty table whose hashes have these keys.
    pub(crate) fn new(keys: HashKeys) -> Self {
        Self { grants: PeerMap::with_hasher(keys), unused: Vec::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.grants.len()
    }

    /// Adds a grant of the peer.
    pub(crate) fn learn(&mut self, offer: GrantOffer) {
        // A later release may have rights that this one does not know and cannot use.
        let rights = Rights::from_bits_truncate(offer.rights);
        let granted = Granted {
            len: offer.len,
            rights,
            scope: offer.scope,
            keys: offer.keys,
            bound: Vec::new(),
            key_refusal: None,
            is_revoked: false,
            users: 0,
        };
        // `on_grant` has refused an id that is known, so no count of uses is lost.
        self.grants.insert(offer.grant, granted);
    }

    /// Adds a key that is bound to a link of this index. Returns `false` if it would end beyond the
    /// last address. A grant that is not known, because it is revoked, needs no key.
    #[must_use]
    pub(crate) fn bind(&mut self, index: usize, link: LinkId, key: BoundKey) -> bool {
        // The grant was revoked, and that is confirmed, while the key was on its way.
        let Some(granted) = self.grants.get_mut(&key.grant) else { return true };
        if key.address.checked_add(granted.len).is_none() {
            return false;
        }
        if granted.bound.len() <= index {
            // Most rails bind no keys to links, and then it stays empty.
            granted.bound.resize(index + 1, None);
        }
        granted.bound[index] = Some((link, (key.address, key.key)));
        true
    }

    /// Notes that a link cannot use the key of a grant.
    pub(crate) fn refuse_key(&mut self, grant: GrantId, refusal: KeyRefusal) {
        if let Some(granted) = self.grants.get_mut(&grant) {
            granted.key_refusal = Some(refusal);
        }
    }

    #[inline]
    pub(crate) fn get(&self, grant: GrantId) -> Option<&Granted> {
        self.grants.get(&grant)
    }

    /// Begins a use of a grant.
    pub(crate) fn begin_use(&mut self, grant: GrantId) {
        let granted = self.grants.get_mut(&grant).expect("a use begins with a look at the grant");
        granted.users += 1;
    }

    /// Ends a use of a grant. Returns `true` if it was the last one, and the peer revokes the grant.
    #[must_use]
    pub(crate) fn end_use(&mut self, grant: GrantId) -> bool {
        let granted = self.grants.get_mut(&grant).expect("a grant stays as long as it is used");
        // The peer may end its keys when the last use has ended: one that is not counted would write after
        // that.
        assert!(granted.users > 0, "a use of grant {grant} ends that has not begun");
        granted.users -= 1;
        let is_unused = granted.is_unused();
        if is_unused {
            self.unused.push(grant);
        }
        is_unused
    }

    /// Handles a revocation by the peer: begins no more uses. Returns `false` if there is no such
    /// grant.
    pub(crate) fn revoke(&mut self, grant: GrantId) -> bool {
        let Some(granted) = self.grants.get_mut(&grant) else { return false };
        // The keys stay: what is in flight with them must not fail, or its link fails with it.
        // A second `Revoke` must not be confirmed twice.
        if !std::mem::replace(&mut granted.is_revoked, true) && granted.is_unused() {
            self.unused.push(grant);
        }
        true
    }

    /// Removes the grants that are being revoked and that nothing uses: the peer ends their keys when it
    /// hears of it, and never names them again. Each is returned only once.
    pub(crate) fn take_unused(&mut self) -> Vec<GrantId> {
        // The keys go with the confirmation: nothing may be posted with them after it.
        for grant in &self.unused {
            self.grants.remove(grant);
        }
        std::mem::take(&mut self.unused)
    }

    /// Checks that each grant is there as long as something uses it, and counts its users.
    /// `may_be_kept`: a dead rail may have taken uses with it, which never end. `may_be_unused`: bytes may
    /// land of what has ended, so the end of a grant is not confirmed yet.
    pub(crate) fn check(
        &self,
        key: PeerKey,
        uses: &BTreeMap<GrantId, u32>,
        (may_be_kept, may_be_unused): (bool, bool),
        links: usize,
    ) {
        for grant in uses.keys() {
            assert!(self.grants.contains_key(grant), "grants: {grant} of {key:?} is used, and gone");
        }
        for (id, granted) in &self.grants {
            let (users, found) = (granted.users, uses.get(id).copied().unwrap_or(0));
            let is_so = users == found || (may_be_kept && users > found);
            assert!(is_so, "grants: {id} of {key:?} counts {users} users, and has {found}");
            assert!(
                may_be_unused || !granted.is_unused(),
                "grants: the end of {id} of {key:?} is not confirmed"
            );
            let has_links = granted.bound.len() <= links
                && granted.key_refusal.as_ref().is_none_or(|refusal| refusal.index < links);
            assert!(has_links, "bound keys: {id} of {key:?} has one for a link that does not exist");
        }
    }

    /// Returns the bytes of memory that are held.
    pub(crate) fn memory(&self) -> usize {
        // An entry of a map costs its content and its bookkeeping.
        let keys = |granted: &Granted| {
            granted.keys.capacity() * size_of::<Option<(u64, u64)>>()
                + granted.bound.capacity() * size_of::<Option<(LinkId, (u64, u64))>>()
        };
        self.grants.capacity() * (size_of::<(GrantId, Granted)>() + size_of::<u64>())
            + self.grants.values().map(keys).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::peer::{Expected, MadeEnd};
    use crate::rail::LinkKey;

    fn granted() -> GrantedTable {
        let mut table = GrantedTable::new(HashKeys::new(3, 5));
        let rights = Rights::WRITE.bits();
        let keys = vec![None, Some((4096, 11))];
        table.learn(GrantOffer { grant: GrantId(7), len: 64, rights, scope: Scope::Network, keys });
        table
    }

    #[test]
    fn a_grant_has_a_key_over_some_rails() {
        let table = granted();
        let it = table.get(GrantId(7)).unwrap();
        let over = |peer_rail| it.key_over(0, &Link::new((0, peer_rail), Time::ZERO));
        assert_eq!([0, 1, 2].map(over), [None, Some((4096, 11)), None]);
        assert_eq!((it.len(), it.rights()), (64, Rights::WRITE));
    }

    #[test]
    fn a_bound_key_is_good_over_its_link_only() {
        let mut table = granted();
        let link = |id, binds_keys| {
            let mut link = Link::new((0, 1), Time::ZERO);
            link.open(LinkId(id));
            link.opened(MadeEnd { key: LinkKey(7), generation: 0, own_mark: 0 }, Time::ZERO);
            link.connect();
            link.connected(Time::ZERO);
            assert!(link.peer_is_ready(Expected { mark: 0, needs_names: false, binds_keys }, Time::ZERO));
            link
        };
        assert_eq!(table.get(GrantId(7)).unwrap().key_over(1, &link(5, true)), None, "not yet bound");
        assert!(table.bind(1, LinkId(5), BoundKey { grant: GrantId(7), address: 64, key: 13 }));
        let it = table.get(GrantId(7)).unwrap();
        assert_eq!(it.key_over(1, &link(5, true)), Some((64, 13)));
        assert_eq!(it.key_over(0, &link(5, true)), None, "another link");
        assert_eq!(it.key_over(1, &link(6, true)), None, "the link that came after it");
        assert_eq!(it.key_over(1, &link(5, false)), Some((4096, 11)), "the rail has one for all links");
        assert!(
            table.bind(1, LinkId(5), BoundKey { grant: GrantId(8), address: u64::MAX, key: 1 }),
            "no such grant"
        );
        assert!(table.bind(1, LinkId(5), BoundKey { grant: GrantId(7), address: u64::MAX - 64, key: 1 }));
        assert!(!table.bind(1, LinkId(5), BoundKey { grant: GrantId(7), address: u64::MAX - 63, key: 1 }));
    }

    #[test]
    fn the_peer_hears_once_that_nothing_uses_it_any_more() {
        let mut table = granted();
        table.begin_use(GrantId(7));
        table.begin_use(GrantId(7));
        assert!(!table.end_use(GrantId(7)), "nobody has asked");
        assert!(table.revoke(GrantId(7)) && table.take_unused().is_empty(), "one uses it");
        assert!(table.end_use(GrantId(7)));
        assert_eq!((table.take_unused(), table.take_unused()), (vec![GrantId(7)], vec![]), "once");
        assert!(!table.revoke(GrantId(7)), "it is gone");
    }

    #[test]
    #[should_panic(expected = "a use of grant 7 ends that has not begun")]
    fn a_use_ends_once() {
        let mut table = granted();
        table.begin_use(GrantId(7));
        let _ = (table.end_use(GrantId(7)), table.end_use(GrantId(7)));
    }

    #[test]
    fn what_is_revoked_and_unused_is_acknowledged_at_once() {
        let mut table = granted();
        table.revoke(GrantId(7));
        assert!(table.get(GrantId(7)).unwrap().is_revoked());
        assert_eq!(table.take_unused(), [GrantId(7)]);
        assert!(table.get(GrantId(7)).is_none());
    }
}
