//! The registrations that libraries attach to an allocation.
//!
//! Invariant: a registration is never removed before the allocation ends, so a lookup takes no
//! lock. One that was renewed stays, too: operations in flight may use it.

use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::epoch::process_epoch;

/// The maximum number of domains that can register one allocation. Each device or provider has one,
/// and a large machine has 16 devices.
const DOMAINS_MAX: usize = 32;

/// Identifies a protection domain of one library, or a domain of another, within this process.
///
/// ```
/// use farreach_memory::DomainId;
///
/// assert_ne!(DomainId::unique(), DomainId::unique());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DomainId(u64);

impl DomainId {
    /// Returns a new identifier.
    pub fn unique() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// Ends a registration. A library implements it for the object that its own `reg_mr` returns.
pub trait Release: Send + Sync {
    /// Ends the registration. Returns `false` if that cannot be proven. The pages then stay mapped
    /// for good, because the device may still access them.
    fn release(self: Box<Self>) -> bool;

    /// Registers the same addresses once more, in the same domain and with the same access, because
    /// the kernel maps other pages there now. An error tells the cause.
    ///
    /// # Safety
    ///
    /// The range is that of this registration. It stays mapped until the new one is released.
    unsafe fn renew(&self, start: NonNull<u8>, len: usize) -> Result<Registration, String>;
}

/// A registration of an allocation by a domain. It ends with the allocation.
pub struct Registration {
    local_key: u64,
    guard: Box<dyn Release>,
}

impl Registration {
    /// Creates a registration. Work requests name it by `local_key`, and `guard` ends it.
    pub fn new(local_key: u64, guard: Box<dyn Release>) -> Self {
        Self { local_key, guard }
    }
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registration").field("local_key", &self.local_key).finish_non_exhaustive()
    }
}

/// A registration could not be attached.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AttachError<E> {
    /// The memory is already registered in the maximum number of domains.
    #[error("the memory is already registered in {DOMAINS_MAX} domains, the maximum")]
    TooManyDomains,
    /// The domain could not register it.
    #[error("{0}")]
    Register(E),
}

/// The registrations of a domain: the current one, which is the last, and those before it.
struct Kept {
    domain: DomainId,
    local_key: AtomicU64,
    guards: Mutex<Vec<Box<dyn Release>>>,
    /// The process that has registered the memory.
    epoch: u64,
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kept").field("domain", &self.domain).finish_non_exhaustive()
    }
}

/// All registrations of an allocation. Registrations are only added, so the lookup on every post
/// takes no lock.
#[derive(Debug)]
pub(crate) struct Registrations {
    kept: [OnceLock<Kept>; DOMAINS_MAX],
    /// Held while the memory is being registered, and while registrations are renewed.
    adding: Mutex<()>,
}

impl Registrations {
    pub(crate) fn new() -> Self {
        Self { kept: [const { OnceLock::new() }; DOMAINS_MAX], adding: Mutex::new(()) }
    }

    #[inline(always)]
    pub(crate) fn local_key(&self, domain: DomainId) -> Option<u64> {
        // Most memory is registered in one domain. That case is inlined.
        match self.kept[0].get() {
            // The order of memory accesses is that of the pages: see `renew_all`.
            Some(kept) if kept.domain == domain => Some(kept.local_key.load(Ordering::Relaxed)),
            _ => self.later_local_key(domain),
        }
    }

    #[inline(never)]
    fn later_local_key(&self, domain: DomainId) -> Option<u64> {
        for place in &self.kept[1..] {
            let kept = place.get()?;
            if kept.domain == domain {
                return Some(kept.local_key.load(Ordering::Relaxed));
            }
        }
        None
    }

    pub(crate) fn attach<E>(
        &self,
        domain: DomainId,
        register: impl FnOnce() -> Result<Registration, E>,
    ) -> Result<(), AttachError<E>> {
        // The lock guards no data, so a panic while it was held left nothing inconsistent.
        let _adding = self.adding.lock().unwrap_or_else(PoisonError::into_inner);
        if self.local_key(domain).is_some() {
            return Ok(());
        }
        let place = self.kept.iter().find(|place| place.get().is_none());
        let place = place.ok_or(AttachError::TooManyDomains)?;
        let Registration { local_key, guard } = register().map_err(AttachError::Register)?;
        let (local_key, guards) = (AtomicU64::new(local_key), Mutex::new(vec![guard]));
        let set = place.set(Kept { domain, local_key, guards, epoch: process_epoch() });
        set.expect("the lock is held, and the place was empty");
        Ok(())
    }

    /// Renews all registrations, because other pages are mapped in a part of the range. The ones
    /// before stay for operations in flight, which use other parts.
    ///
    /// A thread that uses the part later has got it from one that called this, so it finds the new
    /// keys.
    ///
    /// # Safety
    ///
    /// The range is that of the allocation.
    pub(crate) unsafe fn renew_all(&self, start: NonNull<u8>, len: usize) -> Result<(), String> {
        // Whoever registers the memory after this call finds the new pages.
        let _adding = self.adding.lock().unwrap_or_else(PoisonError::into_inner);
        for kept in self.kept.iter().map_while(OnceLock::get) {
            let mut guards = kept.guards.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(current) = guards.last() else { continue };
            // SAFETY: the registration was attached for this range. The allocation ends the new one
            // before it ends (`release_all`), and stays mapped if that fails.
            let Registration { local_key, guard } = unsafe { current.renew(start, len) }?;
            guards.push(guard);
            kept.local_key.store(local_key, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Ends all registrations. Returns `true` if it is proven that no device can access the pages
    /// any more.
    ///
    /// A forked child has the descriptors by which they could be ended, and leaves them to its parent.
    pub(crate) fn release_all(&mut self) -> bool {
        let epoch = process_epoch();
        let end = |kept: Kept| {
            if kept.epoch != epoch {
                std::mem::forget(kept);
                return false;
            }
            let guards = kept.guards.into_inner().unwrap_or_else(PoisonError::into_inner);
            // `fold` ends each one, even after one that could not be ended. `all` would stop there.
            guards.into_iter().map(Release::release).fold(true, |all, one| all & one)
        };
        self.kept.iter_mut().filter_map(OnceLock::take).map(end).fold(true, |all, one| all & one)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    /// One that cannot be ended is `false`. Counts those that were.
    struct Guard(bool, Arc<AtomicUsize>);

    impl Release for Guard {
        fn release(self: Box<Self>) -> bool {
            self.1.fetch_add(1, Ordering::Relaxed);
            self.0
        }

        unsafe fn renew(&self, _: NonNull<u8>, len: usize) -> Result<Registration, String> {
            match self.0 {
                true => Ok(Registration::new(len as u64, Box::new(Self(true, Arc::clone(&self.1))))),
                false => Err("no".to_owned()),
            }
        }
    }

    fn registration(local_key: u64) -> Result<Registration, ()> {
        Ok(Registration::new(local_key, Box::new(Guard(true, Arc::default()))))
    }

    #[test]
    fn each_domain_finds_its_own_key() {
        let registrations = Registrations::new();
        let domains: Vec<_> = (0..DOMAINS_MAX).map(|_| DomainId::unique()).collect();
        for (key, domain) in domains.iter().enumerate() {
            assert_eq!(registrations.local_key(*domain), None);
            registrations.attach(*domain, || registration(key as u64)).unwrap();
        }
        for (key, domain) in domains.iter().enumerate() {
            assert_eq!(registrations.local_key(*domain), Some(key as u64));
        }
        let once: Result<(), AttachError<()>> =
            registrations.attach(domains[3], || panic!("it is registered"));
        assert_eq!(once, Ok(()));
        let refused = registrations.attach(DomainId::unique(), || registration(9));
        assert_eq!(refused, Err(AttachError::TooManyDomains));
    }

    #[test]
    fn one_that_failed_is_not_attached() {
        let (registrations, domain) = (Registrations::new(), DomainId::unique());
        assert_eq!(registrations.attach(domain, || Err("no")), Err(AttachError::Register("no")));
        assert_eq!(registrations.local_key(domain), None);
    }

    #[test]
    fn what_is_renewed_has_another_key_and_both_are_ended() {
        let (mut registrations, domains) = (Registrations::new(), [(); 2].map(|()| DomainId::unique()));
        let ended = Arc::new(AtomicUsize::new(0));
        for domain in domains {
            let guard = Box::new(Guard(true, Arc::clone(&ended)));
            registrations.attach(domain, || Ok::<_, ()>(Registration::new(1, guard))).unwrap();
        }
        // SAFETY: the guards use no memory.
        unsafe { registrations.renew_all(NonNull::dangling(), 7) }.unwrap();
        assert_eq!(domains.map(|domain| registrations.local_key(domain)), [Some(7); 2]);
        assert_eq!(ended.load(Ordering::Relaxed), 0, "operations in flight may use them");
        assert!(registrations.release_all());
        assert_eq!(ended.load(Ordering::Relaxed), 4);

        let guard = Box::new(Guard(false, ended));
        registrations.attach(domains[0], || Ok::<_, ()>(Registration::new(1, guard))).unwrap();
        // SAFETY: as above.
        assert!(unsafe { registrations.renew_all(NonNull::dangling(), 7) }.is_err());
        assert_eq!(registrations.local_key(domains[0]), Some(1));
    }

    #[test]
    fn one_that_cannot_be_ended_is_told_and_the_others_are_ended() {
        let mut registrations = Registrations::new();
        for is_ended in [true, false, true] {
            let guard = Box::new(Guard(is_ended, Arc::default()));
            registrations.attach(DomainId::unique(), || Ok::<_, ()>(Registration::new(0, guard))).unwrap();
        }
        assert!(!registrations.release_all());
        assert!(registrations.release_all(), "none is left");
    }
}
