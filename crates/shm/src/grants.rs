//! The grants that this side has made over a link, and the proofs by which they end.
//!
//! Invariant: a [`KeyGuard`] is ended only when the peer's process has ended, or its library has said
//! that it does not use the key any more, or the pages were exchanged.

use std::collections::HashMap;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use farreach_memory::{Backing, Exchange as Pages, ExchangeError, Exposed, FileAccess, KeyAccess, KeyGuard};

use crate::error::GrantError;
use crate::map::Access;
use crate::segment::{GENERATIONS, Segment, Side};
use crate::wire::Announced;
use crate::words::Words;

/// Names a grant on its link, on both sides.
///
/// The low 16 bits are the place of its generation in the segment, the others the generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Key(pub(crate) u64);

impl Key {
    pub(crate) fn new(slot: u16, generation: u64) -> Self {
        Self((generation << 16) | u64::from(slot))
    }

    #[inline(always)]
    pub(crate) fn slot(self) -> u16 {
        self.0 as u16
    }

    #[inline(always)]
    pub(crate) fn generation(self) -> u64 {
        self.0 >> 16
    }
}

/// The number of links whose grants were counted so far: a name for those of each.
static LINKS: AtomicU64 = AtomicU64::new(0);

/// The grants of this side.
#[derive(Debug)]
pub(crate) struct OwnGrants {
    /// Distinguishes the grants of links, which use the same keys.
    link: u64,
    segment: Arc<Segment>,
    side: Side,
    live: HashMap<u64, Own>,
    /// Places that were used before, the longest unused first, with their generation. A grant that
    /// has ended in doubt does not return its place.
    free: VecDeque<(u16, u64)>,
    /// The number of places that were ever used.
    used: usize,
}

#[derive(Debug)]
struct Own {
    /// `None` while it is [taken](OwnGrants::take_revoked).
    guard: Option<KeyGuard>,
    is_revoked: bool,
    /// Whether the peer has stopped. The guard of a grant that is taken ends when it comes back.
    has_stopped: bool,
}

impl OwnGrants {
    pub(crate) fn new(segment: Arc<Segment>, side: Side) -> Self {
        let link = LINKS.fetch_add(1, Ordering::Relaxed);
        Self { link, segment, side, live: HashMap::new(), free: VecDeque::new(), used: 0 }
    }

    /// Makes a key to memory. Returns what the peer has to know, and the descriptor for it.
    pub(crate) fn make(
        &mut self,
        memory: &Exposed,
        access: Access,
        file_access: FileAccess,
    ) -> Result<(Announced, Backing), GrantError> {
        let needed = match access {
            Access::ReadOnly => KeyAccess::Read,
            Access::ReadWrite => KeyAccess::Write,
        };
        let guard = memory.guard_key(needed)?;
        let (slot, generation) = match self.free.pop_front() {
            Some(place) => place,
            None if self.used < GENERATIONS => {
                self.used += 1;
                ((self.used - 1) as u16, 1)
            }
            None => {
                // SAFETY: no key was made for this guard.
                unsafe { guard.end() };
                return Err(GrantError::TooMany { max: GENERATIONS });
            }
        };
        // SAFETY: the descriptor is passed only to the peer of this link, a process of the same
        // user, whose library keeps to the range and the access that it is told (`remote`), and
        // stops when the guard is ended, as this module proves. A hostile peer has what docs/SECURITY.md
        // tells ("Within a host"): the allocation that was granted, and no other memory.
        let backing = match unsafe { guard.backing(file_access) } {
            Ok(backing) => backing,
            Err(error) => {
                // SAFETY: no key was made for this guard.
                unsafe { guard.end() };
                self.free.push_back((slot, generation));
                return Err(error.into());
            }
        };
        let key = Key::new(slot, generation);
        self.segment.store(self.side.generation_at(slot), generation, Ordering::Relaxed);
        let guard = Some(guard);
        self.live.insert(key.0, Own { guard, is_revoked: false, has_stopped: false });
        let announced = Announced {
            key: key.0,
            file_len: backing.file_len() as u64,
            offset: backing.offset(),
            len: backing.len() as u64,
            access,
        };
        Ok((announced, backing))
    }

    /// Raises the generation of a grant: an initiator that looks at it after this reports that the
    /// grant was revoked. Returns `false` if there is no such grant, or it was revoked before.
    pub(crate) fn revoke(&mut self, key: u64) -> bool {
        let Some(own) = self.live.get_mut(&key).filter(|own| !own.is_revoked) else { return false };
        own.is_revoked = true;
        self.raise(Key(key));
        true
    }

    fn raise(&self, key: Key) {
        let at = self.side.generation_at(key.slot());
        self.segment.store(at, key.generation() + 1, Ordering::Relaxed);
        // Before the pages are read for an exchange. An initiator has the same fence between its
        // copy and its look at the generation: either it sees that the grant was revoked, or the
        // exchange sees its bytes.
        self.segment.fence();
    }

    /// The peer's library says that it does not use a key any more. Returns `true` if the grant has
    /// ended. It has not if the peer was not asked to stop, or if the grant is taken.
    pub(crate) fn stopped_by_peer(&mut self, key: u64) -> bool {
        let Some(own) = self.live.get_mut(&key).filter(|own| own.is_revoked) else { return false };
        own.has_stopped = true;
        let Some(guard) = own.guard.take() else { return false };
        self.live.remove(&key);
        // SAFETY: the peer's library has unmapped the memory, or keeps it mapped for other grants
        // only, and has no operation in flight that uses the key.
        unsafe { guard.end() };
        let key = Key(key);
        self.free.push_back((key.slot(), key.generation() + 1));
        true
    }

    /// The peer's process has ended, or its library says that it uses no key of the link any more.
    /// Returns the keys that ended.
    pub(crate) fn all_stopped(&mut self) -> Vec<u64> {
        let mut ended = Vec::new();
        self.live.retain(|key, own| {
            own.has_stopped = true;
            let Some(guard) = own.guard.take() else { return true };
            // SAFETY: a process that has ended has no thread that could access memory, and no
            // mapping. Its children have not inherited the mapping (`MADV_DONTFORK`). A library
            // that says so has unmapped everything, and posts nothing more to the link.
            unsafe { guard.end() };
            ended.push(*key);
            false
        });
        ended
    }

    /// Takes out a grant that was revoked, and of which nothing proves yet that the peer has
    /// stopped. It counts as a grant until it is [put back](Self::put_back) or was
    /// [exchanged](Self::exchanged).
    pub(crate) fn take_revoked(&mut self, key: u64) -> Option<RevokedGrant> {
        let own = self.live.get_mut(&key).filter(|own| own.is_revoked)?;
        Some(RevokedGrant { key, link: self.link, guard: own.guard.take()? })
    }

    /// Puts a grant back of which nothing was proven. Returns `true` if the peer has stopped meanwhile: the
    /// grant has ended.
    pub(crate) fn put_back(&mut self, grant: RevokedGrant) -> bool {
        let RevokedGrant { key, link, guard } = grant;
        let taken = self.live.get_mut(&key).filter(|own| own.guard.is_none() && link == self.link);
        // That the peer of another link stops proves nothing. Dropping the guard leaks the memory.
        let Some(own) = taken else { return false };
        if !own.has_stopped {
            own.guard = Some(guard);
            return false;
        }
        self.live.remove(&key);
        // SAFETY: `stopped_by_peer` and `all_stopped` set this where they would have ended the guard.
        unsafe { guard.end() };
        true
    }

    /// Forgets a grant that was taken and has ended by an exchange. Its place is not used again: the peer may
    /// be in the middle of an operation that names it.
    pub(crate) fn exchanged(&mut self, key: u64) {
        if self.live.get(&key).is_some_and(|own| own.guard.is_none()) {
            self.live.remove(&key);
        }
    }

    pub(crate) fn keys(&self) -> Vec<u64> {
        self.live.keys().copied().collect()
    }
}

/// A grant that was revoked, although nothing proves that the peer has stopped. An [`Exchange`] ends it, or
/// its link, when it is [put back](crate::Link::put_back). Dropping it leaks the memory.
#[derive(Debug)]
#[must_use = "dropping it leaks the memory"]
pub struct RevokedGrant {
    key: u64,
    link: u64,
    guard: KeyGuard,
}

impl RevokedGrant {
    /// Returns the key of the grant on its link.
    pub fn key(&self) -> u64 {
        self.key
    }
}

/// An exchange of the pages of granted memory: the proof for a peer that does not answer.
///
/// In steps of 2 MiB, the pages are copied to new ones that no other process has mapped, and the new
/// ones take the place of the old, at the same address. A peer that is stopped in the middle of a
/// copy continues it in the old pages.
///
/// See [`Link::take_revoked`](crate::Link::take_revoked) for where it begins.
#[derive(Debug)]
#[must_use = "dropping an exchange that is not finished leaks the memory"]
pub struct Exchange {
    pages: Pages,
    /// The key and the link of each guard, in their order.
    names: Vec<(u64, u64)>,
}

impl Exchange {
    /// Begins the exchange. `grants` are all grants of one memory that are left. An error returns
    /// them.
    pub fn begin(grants: Vec<RevokedGrant>) -> Result<Self, (ExchangeError, Vec<RevokedGrant>)> {
        let parts = grants.into_iter().map(|RevokedGrant { key, link, guard }| ((key, link), guard));
        let (names, guards) = parts.unzip();
        // SAFETY: only `OwnGrants::make` makes these guards, for keys that lead by the descriptor of
        // `backing` and by nothing else.
        match unsafe { Pages::begin(guards) } {
            Ok(pages) => Ok(Self { pages, names }),
            Err((error, guards)) => Err((error, together(names, guards))),
        }
    }

    /// Returns the number of bytes that are left. Allow two seconds for a GiB.
    pub fn left(&self) -> usize {
        self.pages.left()
    }

    /// Exchanges at most 2 MiB. After an error the memory is as it was, and the step can be
    /// repeated. `owner_has_handle` tells whether the owner may have a handle on the memory.
    pub fn step(&mut self, owner_has_handle: bool) -> Result<(), ExchangeError> {
        self.pages.step(owner_has_handle)
    }

    /// Ends the grants if nothing is left. Returns `self` otherwise.
    pub fn finish(self) -> Result<(), Self> {
        let Self { pages, names } = self;
        pages.finish().map_err(|pages| Self { pages, names })
    }

    /// Gives the exchange up. Returns the grants, in the order in which they were given.
    pub fn give_up(self) -> Vec<RevokedGrant> {
        together(self.names, self.pages.give_up())
    }
}

fn together(names: Vec<(u64, u64)>, guards: Vec<KeyGuard>) -> Vec<RevokedGrant> {
    names.into_iter().zip(guards).map(|((key, link), guard)| RevokedGrant { key, link, guard }).collect()
}

#[cfg(all(test, not(miri)))]
mod tests {
    use farreach_memory::Memory;

    use super::*;

    /// Returns the grants of a link with one to new memory, which is revoked and taken.
    fn taken() -> (OwnGrants, Exposed, RevokedGrant) {
        let (segment, _) = Segment::create().unwrap();
        let mut grants = OwnGrants::new(Arc::new(segment), Side::Acceptor);
        let memory = Memory::allocate(4096).unwrap().expose();
        let (announced, _) = grants.make(&memory, Access::ReadWrite, FileAccess::ReadWrite).unwrap();
        assert!(grants.take_revoked(announced.key).is_none(), "it is not revoked");
        assert!(grants.revoke(announced.key));
        let grant = grants.take_revoked(announced.key).unwrap();
        assert!(grants.take_revoked(announced.key).is_none() && grants.keys() == [announced.key]);
        (grants, memory, grant)
    }

    #[test]
    fn a_grant_goes_back_to_its_own_link() {
        let ((mut one, memory, grant), (mut other, _, of_other)) = (taken(), taken());
        let key = grant.key();
        assert_eq!(key, of_other.key(), "links use the same keys");
        assert!(!one.put_back(grant));
        let grant = one.take_revoked(key).unwrap();
        // Its peer has stopped, and that of the other link has not.
        assert!(!other.stopped_by_peer(key), "its guard is taken");
        assert!(!other.put_back(grant), "a guard that another peer may use is not ended");
        assert_eq!(memory.keys(), 1);
    }

    #[test]
    fn a_peer_that_stops_while_its_grant_is_taken_has_stopped() {
        for has_ended in [false, true] {
            let (mut grants, memory, grant) = taken();
            let key = grant.key();
            match has_ended {
                true => assert!(grants.all_stopped().is_empty()),
                false => assert!(!grants.stopped_by_peer(key)),
            }
            assert_eq!((memory.keys(), grants.keys()), (1, vec![key]), "its guard is taken");
            assert!(grants.put_back(grant) && grants.keys().is_empty());
            assert!(memory.try_into_slice().is_ok());
        }
    }

    #[test]
    fn a_grant_that_was_exchanged_is_forgotten() {
        let (mut grants, memory, grant) = taken();
        let key = grant.key();
        let mut exchange = Exchange::begin(vec![grant]).unwrap();
        exchange.step(true).unwrap();
        exchange.finish().unwrap();
        grants.exchanged(key);
        assert!(grants.keys().is_empty() && memory.keys() == 0 && !grants.stopped_by_peer(key));
    }
}
