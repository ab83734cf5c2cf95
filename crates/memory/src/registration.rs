//! The registrations that libraries attach to an allocation.
//!
//! Invariant: a registration is never removed before the allocation ends, so a lookup takes no
//! lock.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

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
}

/// A domain's registration of an allocation. It ends with the allocation.
pub struct Registration {
    domain: DomainId,
    local_key: u64,
    guard: Box<dyn Release>,
}

impl Registration {
    /// Creates a registration. Work requests name it by `local_key`, and `guard` ends it.
    pub fn new(domain: DomainId, local_key: u64, guard: Box<dyn Release>) -> Self {
        Self { domain, local_key, guard }
    }

    /// Returns the domain of the registration.
    pub fn domain(&self) -> DomainId {
        self.domain
    }
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registration").field("domain", &self.domain).finish_non_exhaustive()
    }
}

/// A registration could not be attached. The error returns it.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
#[non_exhaustive]
pub struct AttachError {
    /// The cause.
    pub reason: AttachReason,
    /// The registration that was not attached.
    pub registration: Registration,
}

/// The cause of an [`AttachError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AttachReason {
    /// The memory is already registered in this domain.
    #[error("the memory is already registered in this domain")]
    AlreadyRegistered,
    /// The memory is already registered in the maximum number of domains.
    #[error("the memory is already registered in {DOMAINS_MAX} domains, the maximum")]
    TooManyDomains,
}

/// All registrations of an allocation. Registrations are only added, so the lookup on every post
/// takes no lock.
#[derive(Debug)]
pub(crate) struct Registrations {
    kept: [OnceLock<Registration>; DOMAINS_MAX],
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
            Some(registration) if registration.domain == domain => Some(registration.local_key),
            _ => self.later_local_key(domain),
        }
    }

    #[inline(never)]
    fn later_local_key(&self, domain: DomainId) -> Option<u64> {
        for place in &self.kept[1..] {
            let registration = place.get()?;
            if registration.domain == domain {
                return Some(registration.local_key);
            }
        }
        None
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.kept[0].get().is_none()
    }

    pub(crate) fn attach(&self, registration: Registration) -> Result<(), AttachError> {
        // The lock guards no data, so a panic while it was held left nothing inconsistent.
        let _adding = self.adding.lock().unwrap_or_else(PoisonError::into_inner);
        if self.local_key(registration.domain).is_some() {
            return Err(AttachError { reason: AttachReason::AlreadyRegistered, registration });
        }
        let Some(place) = self.kept.iter().find(|place| place.get().is_none()) else {
            return Err(AttachError { reason: AttachReason::TooManyDomains, registration });
        };
        place.set(registration).expect("the lock is held, and the place was empty");
        Ok(())
    }

    /// Ends all registrations. Returns `true` if it is proven that no device can access the pages
    /// any more.
    pub(crate) fn release_all(&mut self) -> bool {
        let registrations = self.kept.iter_mut().filter_map(OnceLock::take);
        // `fold` ends each one, even after one that could not be ended. `all` would stop there.
        registrations.map(|registration| registration.guard.release()).fold(true, |all, one| all & one)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Guard(bool);

    impl Release for Guard {
        fn release(self: Box<Self>) -> bool {
            self.0
        }
    }

    fn registration(domain: DomainId, local_key: u64) -> Registration {
        Registration::new(domain, local_key, Box::new(Guard(true)))
    }

    #[test]
    fn each_domain_finds_its_own_key() {
        let registrations = Registrations::new();
        let domains: Vec<_> = (0..DOMAINS_MAX).map(|_| DomainId::unique()).collect();
        for (key, domain) in domains.iter().enumerate() {
            assert_eq!(registrations.local_key(*domain), None);
            registrations.attach(registration(*domain, key as u64)).unwrap();
        }
        for (key, domain) in domains.iter().enumerate() {
            assert_eq!(registrations.local_key(*domain), Some(key as u64));
        }
        let refused = |domain| registrations.attach(registration(domain, 9)).unwrap_err().reason;
        assert_eq!(refused(domains[3]), AttachReason::AlreadyRegistered);
        assert_eq!(refused(DomainId::unique()), AttachReason::TooManyDomains);
    }

    #[test]
    fn one_that_cannot_be_ended_is_told_and_the_others_are_ended() {
        let mut registrations = Registrations::new();
        for is_ended in [true, false, true] {
            let guard = Box::new(Guard(is_ended));
            registrations.attach(Registration::new(DomainId::unique(), 0, guard)).unwrap();
        }
        assert!(!registrations.release_all());
        assert!(registrations.release_all(), "none is left");
    }
}
