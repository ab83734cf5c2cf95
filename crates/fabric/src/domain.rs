//! Domains: a card or an interface, with its regions, queues and endpoints.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard};

use farreach_fabric_sys as sys;
use farreach_memory::{DomainId, KeyGuard};

use crate::ep::Open;
use crate::handle::Handle;
use crate::hints::{MODES_SERVED, MR_MODES_SERVED};
use crate::leak::{self, Kind};
use crate::mr::{self, MemoryRegion};
use crate::{Error, Fabric, Info, Library, MrMode, Profile, Threading};

/// An open domain: `fi_domain(3)`.
///
/// It is cheap to clone. It is closed when the last clone, and everything created in it, is
/// dropped.
///
/// ```no_run
/// # use farreach_fabric::{Fabric, Hints, Info};
/// # let offers = Info::query(&Hints::rdm().provider("tcp"))?;
/// let domain = Fabric::open(&offers[0])?.open_domain(&offers[0])?;
/// let slice = domain.allocate(1 << 20)?;
/// println!("{} bytes for {}", slice.len(), domain.info().domain());
/// # Ok::<(), farreach_fabric::Error>(())
/// ```
#[doc(alias = "fid_domain")]
#[derive(Clone)]
pub struct Domain(Arc<Inner>);

struct Inner {
    domain: Handle<sys::fid_domain>,
    id: DomainId,
    info: Info,
    profile: Profile,
    delivers: bool,
    keys: Arc<Keys>,
    /// Determined once, when it is first needed.
    caches_registrations: OnceLock<bool>,
    inbound: Mutex<Inbound>,
    /// Whether it is [spent](Domain::is_spent). Read-locked while the domain makes progress, and
    /// write-locked when closing an endpoint spends it.
    is_spent: RwLock<bool>,
}

/// Possible writers to exposed memory of the domain: peers, through its endpoints.
#[derive(Default)]
struct Inbound {
    /// Endpoints that are open, or not provably closed.
    endpoints: usize,
    /// Endpoints that are in use.
    in_use: usize,
    /// Endpoints that were dropped, and not closed because others are in use: closing one would
    /// spend the domain under them.
    waiting: Vec<Open>,
    /// Whether the last endpoint in use is gone, if closing it spends the domain.
    is_over: bool,
    /// Guards of ended keys, whose memory a write in flight may still reach.
    kept: Vec<KeyGuard>,
}

impl Inbound {
    /// Ends the use of an endpoint. Returns the endpoints that have waited for that.
    fn leave(&mut self) -> Vec<Open> {
        self.in_use -= 1;
        if self.in_use > 0 {
            return Vec::new();
        }
        // Once they are closed, no other can be opened.
        self.is_over |= !self.waiting.is_empty();
        std::mem::take(&mut self.waiting)
    }
}

impl Fabric {
    /// Opens the domain of an offer: `fi_domain(3)`.
    ///
    /// The offer must be one that this crate supports, as [`Hints::rdm`](crate::Hints::rdm) asks
    /// for: callable from any thread, and without requirements that this crate does not meet. It
    /// must belong to this fabric, whose provider determines the profile.
    #[doc(alias = "fi_domain")]
    pub fn open_domain(&self, info: &Info) -> Result<Domain, Error> {
        check(info)?;
        if (info.provider(), info.fabric()) != (self.provider(), self.name()) {
            return Err(Error::NotOfThis { object: "offer", of: "fabric" });
        }
        let info = info.try_clone()?;
        let (keys, delivers) = (Arc::new(Keys::new(info.key_size())), info.offers_delivery());
        self.open_domain_with(info, keys, delivers)
    }

    /// Opens a domain. The offer belongs to this fabric, and was [checked](check).
    fn open_domain_with(&self, info: Info, keys: Arc<Keys>, delivers: bool) -> Result<Domain, Error> {
        // SAFETY: `check` has refused other threading levels, and modes that this crate does not
        // support.
        let domain = unsafe { Handle::<sys::fid_domain>::open(self, &info) }?;
        Ok(Domain(Arc::new(Inner {
            domain,
            id: DomainId::unique(),
            profile: Profile::of(&info),
            delivers,
            keys,
            info,
            caches_registrations: OnceLock::new(),
            inbound: Mutex::default(),
            is_spent: RwLock::new(false),
        })))
    }
}

fn check(info: &Info) -> Result<(), Error> {
    let refused =
        |why: String| Err(Error::Unsupported { what: format!("the offer of {}", info.provider()), why });
    let (mode, mr_mode) = (info.mode().difference(MODES_SERVED), info.mr_mode().difference(MR_MODES_SERVED));
    if !mode.is_empty() {
        return refused(format!("it requires the mode {mode:?} of its user"));
    }
    if !mr_mode.is_empty() {
        return refused(format!("it requires {mr_mode:?} of memory regions"));
    }
    if info.threading() != Threading::Safe {
        return refused(format!(
            "it must not be called from any thread: its threading is {}",
            info.threading()
        ));
    }
    Ok(())
}

impl Domain {
    /// Returns the offer that it was opened with.
    pub fn info(&self) -> &Info {
        &self.0.info
    }

    /// Returns the properties of this kind of provider that its offer does not state.
    pub fn profile(&self) -> &Profile {
        &self.0.profile
    }

    /// Returns `true` if an endpoint of it was closed and the provider keeps
    /// [connections](Profile::close_leaves_connections) of that endpoint. Its queues are then no
    /// longer read, and no endpoint can be opened in it. [`renew`](Self::renew) returns another
    /// domain.
    pub fn is_spent(&self) -> bool {
        *self.spent()
    }

    /// Opens another domain with the same offer, in the same fabric. The two domains never use the
    /// same key for different memory, unless a key is [moved](crate::ExposedKey::move_to).
    #[doc(alias = "fi_domain")]
    pub fn renew(&self) -> Result<Self, Error> {
        // Results of earlier queries are kept, because the library may not offer now what it
        // offered then: a cable may be out.
        self.fabric().open_domain_with(self.info().try_clone()?, Arc::clone(&self.0.keys), self.delivers())
    }

    /// Returns `true` if an operation can be asked to complete only when its bytes have landed at
    /// the peer.
    #[doc(alias = "FI_DELIVERY_COMPLETE")]
    pub fn delivers(&self) -> bool {
        self.0.delivers
    }

    /// Returns `true` if the provider takes registrations from a cache of its own. Memory cannot be
    /// exposed then. `FI_MR_CACHE_MAX_COUNT=0` in the environment turns the cache off.
    pub fn caches_registrations(&self) -> bool {
        *self.0.caches_registrations.get_or_init(|| mr::are_cached(self))
    }

    /// Returns the number of ended keys that still keep their memory, because a write in flight may
    /// reach it. It is released when the last endpoint of the domain is closed.
    pub fn kept_keys(&self) -> usize {
        self.inbound().kept.len()
    }

    /// Returns how many bytes only [such keys](Self::kept_keys) keep mapped. The cost is linear in
    /// their number.
    pub fn kept_bytes(&self) -> usize {
        self.inbound().kept.iter().map(KeyGuard::unused_bytes).sum()
    }

    /// Ends a key. Returns `true` if that proves that no peer reaches the memory with it any more;
    /// otherwise its guard is kept until there is a proof.
    pub(crate) fn retire(&self, region: MemoryRegion, guard: KeyGuard) -> Result<bool, Error> {
        // If the close fails, the guard is dropped: the memory is leaked and counted.
        region.close()?;
        let profile = self.profile();
        if !profile.keys_enforced {
            leak::count(Kind::ExposedSlice);
            drop(guard);
            return Ok(false);
        }
        // Checked after the close: an endpoint that is opened from now on finds an ended key.
        let mut inbound = self.inbound();
        if !profile.revoke_stops_writes && inbound.endpoints > 0 {
            inbound.kept.push(guard);
            return Ok(false);
        }
        drop(inbound);
        // SAFETY: the key has ended and the provider enforces that, so nothing begins with it.
        // Operations that had begun were stopped by the close of the region, or of the endpoint
        // that they came through: no endpoint is open that was open then.
        unsafe { guard.end() };
        Ok(true)
    }

    /// Accounts an endpoint that is about to be opened.
    pub(crate) fn endpoint_opened(&self) -> Result<(), Error> {
        let mut inbound = self.inbound();
        if inbound.is_over {
            return Err(self.spent_error());
        }
        (inbound.endpoints, inbound.in_use) = (inbound.endpoints + 1, inbound.in_use + 1);
        Ok(())
    }

    /// Handles a failure to open an endpoint. Returns the endpoints that have waited for it and can
    /// be closed now.
    pub(crate) fn endpoint_not_opened(&self) -> Vec<Open> {
        let mut inbound = self.inbound();
        inbound.endpoints -= 1;
        inbound.leave()
    }

    /// Ends the use of an endpoint. Returns the endpoints that can be closed now, itself last; none
    /// if it must wait for others.
    pub(crate) fn endpoint_left(&self, endpoint: Open) -> Vec<Open> {
        let mut inbound = self.inbound();
        if !self.profile().close_leaves_connections {
            inbound.in_use -= 1;
            return vec![endpoint];
        }
        inbound.waiting.push(endpoint);
        inbound.leave()
    }

    /// Marks the domain as spent before the last endpoint in use is closed: nobody makes progress
    /// on it from now on, if that leaves connections.
    pub(crate) fn spend(&self) {
        if self.profile().close_leaves_connections {
            *self.0.is_spent.write().unwrap_or_else(PoisonError::into_inner) = true;
        }
    }

    /// Returns a guard to hold while the provider makes progress on the domain, so that it is not
    /// spent meanwhile.
    #[inline]
    pub(crate) fn moving(&self) -> Result<RwLockReadGuard<'_, bool>, Error> {
        let spent = self.spent();
        if *spent { Err(self.spent_error()) } else { Ok(spent) }
    }

    #[inline]
    fn spent(&self) -> RwLockReadGuard<'_, bool> {
        self.0.is_spent.read().unwrap_or_else(PoisonError::into_inner)
    }

    #[cold]
    fn spent_error(&self) -> Error {
        Error::DomainSpent { provider: self.info().provider().to_owned() }
    }

    /// Accounts an endpoint whose close has succeeded.
    pub(crate) fn endpoint_closed(&self) {
        let mut inbound = self.inbound();
        inbound.endpoints -= 1;
        let unreached = if inbound.endpoints == 0 { std::mem::take(&mut inbound.kept) } else { Vec::new() };
        // Freed memory may end registrations, which may hold the domain's last references: this
        // must not happen under the lock.
        drop(inbound);
        for guard in unreached {
            // SAFETY: the key has ended and is enforced, as `retire` checked, and operations that
            // had begun with it ended with the endpoints: the last one is closed.
            unsafe { guard.end() };
        }
    }

    fn inbound(&self) -> MutexGuard<'_, Inbound> {
        // A panic under the lock leaves consistent counts.
        self.0.inbound.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the fabric that it is in.
    pub fn fabric(&self) -> &Fabric {
        self.0.domain.parents()
    }

    /// Returns an id that no other domain of this process has or had. Memory identifies the domain
    /// by it.
    pub fn id(&self) -> DomainId {
        self.0.id
    }

    /// Returns the C object. It lives as long as this value.
    pub fn as_raw(&self) -> *mut sys::fid_domain {
        self.0.domain.as_ptr()
    }

    pub(crate) fn library(&self) -> &Library {
        self.fabric().library()
    }

    /// Returns `true` if the two domains never use the same key for different memory.
    pub(crate) fn has_keys_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0.keys, &other.0.keys)
    }

    /// Returns a key for a new region, if the user chooses keys.
    pub(crate) fn next_key(&self) -> Result<u64, Error> {
        self.0.keys.next()
    }

    /// Returns `true` if the domain requires local buffers to be registered.
    #[inline]
    pub(crate) fn needs_local_keys(&self) -> bool {
        self.info().mr_mode().contains(MrMode::LOCAL)
    }
}

impl PartialEq for Domain {
    fn eq(&self, other: &Self) -> bool {
        self.id() == other.id()
    }
}

impl Eq for Domain {}

impl fmt::Debug for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Domain")
            .field("provider", &self.info().provider())
            .field("name", &self.info().domain())
            .finish_non_exhaustive()
    }
}

/// Assigns keys to regions, if the user chooses keys. No key is used twice, so a write with an
/// ended key finds nothing. Keys of 64 bits are random: a peer that knows some of them can guess no
/// other one.
struct Keys {
    next: AtomicU64,
    /// The largest key that fits.
    last: u64,
    /// The secret that random keys are made with; `None` if keys are too short for that.
    secret: Option<RandomState>,
}

impl Keys {
    /// Creates keys of so many bytes. The first key differs between processes, so that a key of an
    /// earlier process is not one of its successor.
    fn new(bytes: usize) -> Self {
        // The largest 64-bit value means that there is no key.
        let last = if bytes >= 8 { u64::MAX - 1 } else { (1 << (8 * bytes)) - 1 };
        // The upper half of the bits is random, the lower half counts.
        let drawn = RandomState::new().hash_one(std::process::id()) & (last >> 1);
        let counted_bits = last.count_ones() / 2;
        // Shorter random keys would recur after some ten thousand.
        let secret = (bytes >= 8).then(RandomState::new);
        Self { next: AtomicU64::new((drawn >> counted_bits << counted_bits) + 1), last, secret }
    }

    fn next(&self) -> Result<u64, Error> {
        let key = self.next.fetch_add(1, Ordering::Relaxed);
        if key > self.last {
            return Err(Error::KeysExhausted { last: self.last });
        }
        // A keyed hash of different numbers: two are the same with a probability of 2^-64.
        Ok(self.secret.as_ref().map_or(key, |secret| secret.hash_one(key).min(self.last)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_fit_their_size_and_are_not_given_twice() {
        for bytes in [1, 2, 4, 8, 16] {
            let keys = Keys::new(bytes);
            let [first, second] = [keys.next().unwrap(), keys.next().unwrap()];
            if bytes < 8 {
                assert_eq!(second, first + 1);
            } else {
                assert!(second.abs_diff(first) > 1 << 24, "{first:#x} does not tell {second:#x}");
            }
            assert!(first > 0 && second <= keys.last, "{bytes} bytes: {first} of {}", keys.last);
        }
    }

    #[test]
    fn exhausted_keys_are_an_error() {
        let keys = Keys { next: AtomicU64::new(255), last: 255, secret: None };
        assert_eq!(keys.next(), Ok(255));
        assert_eq!(keys.next(), Err(Error::KeysExhausted { last: 255 }));
    }
}
