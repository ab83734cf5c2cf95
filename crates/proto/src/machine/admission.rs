//! Who may open a publication at this time: whom its owner permits, but for those from whom it was
//! withdrawn.
//!
//! A withdrawal is for names of certificates, so that it holds for each connection of who has one. A peer
//! without a name has nothing that another connection of it would share, so the withdrawal is for this
//! peer alone.

use std::collections::BTreeSet;

use super::PeerKey;
use crate::access::{Access, canonical};

/// The maximum number of names from which one publication is withdrawn. They are names of certificates,
/// of 253 bytes at most. After one more, nobody may open it any more.
const EXPELLED_MAX: usize = 16_384;

/// Reasons for which a peer may not open a publication or a shared counter. The peer gets them as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum NotOpened {
    #[error("there is no such publication, or it was revoked")]
    NoSuchPublication,
    #[error("there is no such counter, or it was closed")]
    NoSuchCounter,
    #[error("the owner does not permit this peer")]
    NotPermitted,
    #[error("it was revoked")]
    Revoked,
    /// The grant of the peer still ends.
    #[error("it was revoked, and that is not complete")]
    Revoking,
    #[error("it was revoked for so many names that nobody may open it any more")]
    RevokedForAll,
    #[error("there are too many counters")]
    TooManyCounters,
    #[error("this side closes the connection")]
    Leaving,
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Admission {
    access: Access,
    /// Names from which it was withdrawn.
    expelled: BTreeSet<String>,
    /// Whether there were too many of them to keep.
    is_closed: bool,
    /// Peers without a name from which it was withdrawn.
    peers: BTreeSet<PeerKey>,
}

impl Admission {
    pub(super) fn new(access: Access) -> Self {
        Self { access, expelled: BTreeSet::new(), is_closed: false, peers: BTreeSet::new() }
    }

    /// Permits a name, also one from which it was withdrawn. Returns `false` if everybody is permitted,
    /// and was before.
    pub(super) fn admit(&mut self, name: &str) -> bool {
        // Both: a name may be permitted and expelled.
        let was_expelled = self.expelled.remove(&canonical(name));
        self.access.admit(name) || was_expelled
    }

    /// Checks that a peer may open it, whose certificate has these names.
    pub(super) fn check(&self, peer: PeerKey, names: &[String]) -> Result<(), NotOpened> {
        if self.peers.contains(&peer) || has_one(names, &self.expelled) {
            return Err(NotOpened::Revoked);
        }
        if self.is_closed {
            return Err(NotOpened::RevokedForAll);
        }
        match self.access.permits(names) {
            true => Ok(()),
            false => Err(NotOpened::NotPermitted),
        }
    }

    /// Excludes a peer, and everybody whose certificate has one of its names. Names by which nobody is
    /// permitted do not count: certificates of others may have them. Returns the names that do.
    ///
    /// `is_there`: whether a peer is still connected. Those that are not are forgotten.
    pub(super) fn expel_peer(
        &mut self,
        peer: PeerKey,
        names: &[String],
        is_there: impl Fn(PeerKey) -> bool,
    ) -> BTreeSet<String> {
        // Keys are not reused, so those of lost peers would only fill the set.
        self.peers.retain(|peer| is_there(*peer));
        // A lost peer has another key if it comes back, so its old one need not be kept.
        if names.is_empty() && is_there(peer) {
            self.peers.insert(peer);
        }
        // A name that permits nobody would only use up the limit.
        let counts = |name: &String| match &self.access {
            Access::Anyone => true,
            Access::Only(permitted) => permitted.contains(name),
        };
        let names: BTreeSet<String> = names.iter().map(|name| canonical(name)).filter(counts).collect();
        self.expel_names(&names);
        names
    }

    /// Excludes everybody whose certificate has this name. Returns the name as it is compared.
    pub(super) fn expel(&mut self, name: &str) -> BTreeSet<String> {
        let names = BTreeSet::from([canonical(name)]);
        self.expel_names(&names);
        names
    }

    fn expel_names(&mut self, names: &BTreeSet<String>) {
        for name in names {
            // A name that is there already takes no room.
            match self.expelled.len() < EXPELLED_MAX || self.expelled.contains(name) {
                true => drop(self.expelled.insert(name.clone())),
                // To forget a name would let somebody in again who was sent away.
                false => self.is_closed = true,
            }
        }
    }
}

/// Returns `true` if one of the names of a certificate is among others.
pub(super) fn has_one(names: &[String], among: &BTreeSet<String>) -> bool {
    // Most publications expel nobody, and `canonical` allocates.
    !among.is_empty() && names.iter().any(|name| among.contains(&canonical(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: PeerKey = PeerKey(1);
    const TWO: PeerKey = PeerKey(2);

    fn names<const N: usize>(names: [&str; N]) -> Vec<String> {
        names.map(str::to_owned).into()
    }

    fn is_in(all: &Admission, peer: PeerKey, names: &[String]) -> bool {
        all.check(peer, names).is_ok()
    }

    #[test]
    fn a_name_that_was_expelled_is_out_until_it_is_admitted_again() {
        for access in [Access::Anyone, Access::only(["a.example", "b.example"])] {
            let mut all = Admission::new(access);
            all.expel_peer(ONE, &names(["A.Example"]), |_| true);
            assert!(!is_in(&all, ONE, &names(["a.example"])));
            assert!(!is_in(&all, TWO, &names(["a.EXAMPLE"])), "another connection of it");
            assert!(!is_in(&all, TWO, &names(["b.example", "a.example"])), "one name is enough");
            assert!(is_in(&all, TWO, &names(["b.example"])));
            assert!(all.admit("a.example.") && is_in(&all, ONE, &names(["a.example"])));
        }
    }

    #[test]
    fn a_name_by_which_nobody_is_permitted_excludes_nobody() {
        let mut all = Admission::new(Access::only(["a.example", "b.example"]));
        let counted = all.expel_peer(ONE, &names(["localhost", "a.example"]), |_| true);
        assert_eq!(counted, BTreeSet::from(["a.example".to_owned()]));
        assert!(is_in(&all, TWO, &names(["localhost", "b.example"])));
        assert!(!is_in(&all, TWO, &names(["localhost", "a.example"])));
        assert!(!is_in(&all, TWO, &names(["localhost"])), "it never was permitted");
        all.expel("localhost");
        assert!(!is_in(&all, TWO, &names(["localhost", "b.example"])), "the owner has said so");
    }

    #[test]
    fn a_peer_without_a_name_is_out_as_long_as_it_is_there() {
        let mut all = Admission::new(Access::Anyone);
        assert!(all.expel_peer(ONE, &[], |_| true).is_empty());
        assert!(!is_in(&all, ONE, &[]) && is_in(&all, TWO, &[]));
        assert!(!all.admit("a.example"), "everybody is permitted");
        all.expel_peer(TWO, &[], |peer| peer != ONE);
        assert_eq!(all.peers.len(), 1, "the other one is gone");
        all.expel_peer(ONE, &[], |peer| peer != ONE);
        assert_eq!(all.peers.len(), 1, "it is gone already");
    }

    #[test]
    fn with_too_many_names_nobody_is_in() {
        let mut all = Admission::new(Access::Anyone);
        for number in 0..EXPELLED_MAX {
            all.expel(&format!("{number}.example"));
        }
        all.expel("0.example");
        assert!(is_in(&all, ONE, &names(["a.example"])));
        all.expel("a.example");
        assert_eq!(all.expelled.len(), EXPELLED_MAX);
        assert!(!is_in(&all, ONE, &names(["b.example"])) && !is_in(&all, TWO, &[]));
        assert!(all.admit("0.example") && !is_in(&all, ONE, &names(["a.example"])), "it was not kept");
    }
}
