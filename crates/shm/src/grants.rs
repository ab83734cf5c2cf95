//! The grants that this side has made over a link, and the proofs by which they end.
//!
//! Invariant: a [`KeyGuard`] is ended only when the peer's process has ended, or its library has said
//! that it does not use the key any more, or the pages were exchanged.

use std::collections::HashMap;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

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

/// The grants of this side.
#[derive(Debug)]
pub(crate) struct OwnGrants {
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
    guard: KeyGuard,
    access: Access,
    is_revoked: bool,
}

impl OwnGrants {
    pub(crate) fn new(segment: Arc<Segment>, side: Side) -> Self {
        Self { segment, side, live: HashMap::new(), free: VecDeque::new(), used: 0 }
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
        // stops when the guard is ended, as this module proves. A hostile process of the same user
        // could open the memory of this one through /proc without being given anything.
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
        self.live.insert(key.0, Own { guard, access, is_revoked: false });
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

    /// The peer's library says that it does not use a key any more. Returns `false` if it was not
    /// asked to.
    pub(crate) fn stopped_by_peer(&mut self, key: u64) -> bool {
        if !self.live.get(&key).is_some_and(|own| own.is_revoked) {
            return false;
        }
        let own = self.live.remove(&key).expect("it was just found");
        // SAFETY: the peer's library has unmapped the memory, or keeps it mapped for other grants
        // only, and has no operation in flight that uses the key.
        unsafe { own.guard.end() };
        let key = Key(key);
        self.free.push_back((key.slot(), key.generation() + 1));
        true
    }

    /// The peer's process has ended, or its library says that it uses no key of the link any more.
    /// Returns the keys that ended.
    pub(crate) fn all_stopped(&mut self) -> Vec<u64> {
        self.live
            .drain()
            .map(|(key, own)| {
                // SAFETY: a process that has ended has no thread that could access memory, and no
                // mapping. Its children have not inherited the mapping (`MADV_DONTFORK`). A library
                // that says so has unmapped everything, and posts nothing more to the link.
                unsafe { own.guard.end() };
                key
            })
            .collect()
    }

    /// Takes out a grant that was revoked, and of which nothing proves yet that the peer has
    /// stopped.
    pub(crate) fn take_revoked(&mut self, key: u64) -> Option<RevokedGrant> {
        if !self.live.get(&key)?.is_revoked {
            return None;
        }
        let Own { guard, access, .. } = self.live.remove(&key)?;
        Some(RevokedGrant { guard, access })
    }

    pub(crate) fn keys(&self) -> Vec<u64> {
        self.live.keys().copied().collect()
    }
}

/// A grant that was revoked, although nothing proves that the peer has stopped. [`Exchange`] ends
/// it. Dropping it leaks the memory.
#[derive(Debug)]
#[must_use = "dropping it leaks the memory"]
pub struct RevokedGrant {
    guard: KeyGuard,
    access: Access,
}

impl RevokedGrant {
    /// Ends a grant by which the peer could only read. What it still reads is of no use to it: its
    /// library reports that the grant was revoked. Returns `self` if the peer could write.
    pub fn end_reading(self) -> Result<(), Self> {
        match self.access {
            // SAFETY: the library of the peer maps and reads the memory, and writes nothing by this
            // key. The file keeps its pages for a peer that still has it mapped.
            Access::ReadOnly => unsafe { self.guard.end() },
            Access::ReadWrite => return Err(self),
        }
        Ok(())
    }
}

/// An exchange of the pages of granted memory: the proof for a peer that does not answer.
///
/// In steps of 2 MiB, the pages are copied to new ones that no other process has mapped, and the new
/// ones take the place of the old, at the same address. A peer that is stopped in the middle of a
/// copy continues it in the old pages. What the owner writes during a step is lost, unless the step is made
/// under [`Exposed::lock_pages`].
///
/// See [`Link::take_revoked`](crate::Link::take_revoked) for where it begins.
#[derive(Debug)]
#[must_use = "dropping an exchange that is not finished leaks the memory"]
pub struct Exchange(Pages);

impl Exchange {
    /// Begins the exchange. `grants` are all grants of one memory that are left. An error returns
    /// them.
    pub fn begin(grants: Vec<RevokedGrant>) -> Result<Self, (ExchangeError, Vec<RevokedGrant>)> {
        // An error returns the guards in their order.
        let accesses: Vec<Access> = grants.iter().map(|grant| grant.access).collect();
        let guards = grants.into_iter().map(|grant| grant.guard).collect();
        // SAFETY: only `OwnGrants::make` makes these guards, for keys that lead by the descriptor of
        // `backing` and by nothing else.
        match unsafe { Pages::begin(guards) } {
            Ok(pages) => Ok(Self(pages)),
            Err((error, guards)) => {
                let parts = guards.into_iter().zip(accesses);
                Err((error, parts.map(|(guard, access)| RevokedGrant { guard, access }).collect()))
            }
        }
    }

    /// Returns the number of bytes that are left. Allow one second for a GiB.
    pub fn left(&self) -> usize {
        self.0.left()
    }

    /// Exchanges at most 2 MiB. After an error the memory is as it was, and the step can be
    /// repeated.
    pub fn step(&mut self) -> Result<(), ExchangeError> {
        self.0.step()
    }

    /// Ends the grants if nothing is left. Returns `self` otherwise.
    pub fn finish(self) -> Result<(), Self> {
        self.0.finish().map_err(Self)
    }
}
