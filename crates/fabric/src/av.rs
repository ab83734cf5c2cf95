//! Address vectors: the peers that an endpoint can communicate with.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use farreach_fabric_sys as sys;

use crate::handle::Handle;
use crate::leak::{self, Kind};
use crate::{Address, Domain, Error, ep};

/// A table of peers: `fi_av(3)`.
///
/// It is cheap to clone. It is closed when the last clone, every endpoint bound to it and every
/// [`Peer`] in it is dropped.
///
/// ```no_run
/// # use farreach_fabric::{Address, Domain};
/// # fn connect(domain: &Domain, line: &str) -> Result<(), farreach_fabric::Error> {
/// let av = domain.open_av()?;
/// let peer = av.insert(&Address::parse_hex(domain.info().address_format(), line)?)?;
/// println!("{}", peer.address());
/// # Ok(())
/// # }
/// ```
#[doc(alias = "fid_av")]
#[derive(Clone)]
pub struct AddressVector(Arc<Inner>);

struct Inner {
    av: Handle<sys::fid_av>,
    entries: Mutex<HashMap<Address, Entry>>,
}

/// An address that the provider knows.
struct Entry {
    number: sys::fi_addr_t,
    /// The number of `Peer` values. It is counted here because some providers forget an address
    /// that was inserted twice when it is removed once.
    holders: usize,
}

impl Domain {
    /// Opens an address vector: `fi_av_open(3)`.
    #[doc(alias = "fi_av_open")]
    pub fn open_av(&self) -> Result<AddressVector, Error> {
        let av = Handle::<sys::fid_av>::open(self)?;
        Ok(AddressVector(Arc::new(Inner { av, entries: Mutex::default() })))
    }
}

impl AddressVector {
    /// Inserts an address: `fi_av_insert(3)`. An address that is present already gives another
    /// handle on the same peer.
    ///
    /// If endpoints of one process access each other's memory
    /// ([`Profile::siblings_look_in`](crate::Profile::siblings_look_in)), the address of a closed
    /// one is refused, because its memory is unmapped.
    #[doc(alias = "fi_av_insert")]
    pub fn insert(&self, address: &Address) -> Result<Peer, Error> {
        let refused = || self.refused(address);
        self.check(address).ok_or_else(refused)?;
        let mut entries = self.0.lock();
        let number = match entries.get_mut(address) {
            Some(entry) => {
                entry.holders += 1;
                entry.number
            }
            None => {
                let insert = || self.handle().insert(address);
                let number = match self.domain().profile().siblings_look_in {
                    true => ep::unless_closed(address, insert).ok_or_else(refused)?,
                    false => insert(),
                };
                let number = number?.ok_or_else(refused)?;
                entries.insert(address.clone(), Entry { number, holders: 1 });
                number
            }
        };
        drop(entries);
        let (address, av) = (address.clone(), self.clone());
        Ok(Peer(Arc::new(PeerInner { number, address, is_injected_to: AtomicBool::new(false), av })))
    }

    pub(crate) fn refused(&self, address: &Address) -> Error {
        let provider = self.domain().info().provider().to_owned();
        Error::AddressRefused { address: address.to_string(), provider }
    }

    /// Returns an address in the vector that matches.
    pub(crate) fn find(&self, is_so: impl Fn(&Address) -> bool) -> Option<Address> {
        self.0.lock().keys().find(|address| is_so(address)).cloned()
    }

    /// Checks that it has the form of an address of this provider.
    fn check(&self, address: &Address) -> Option<()> {
        let info = self.domain().info();
        let is_whole = match info.source() {
            // Texts differ in length, and end with the only NUL.
            Some(_) if info.address_format().is_text() => {
                address.text().is_some_and(|text| text.len() + 1 == address.bytes().len())
            }
            Some(own) => own.bytes().len() == address.bytes().len(),
            None => !address.bytes().is_empty(),
        };
        (is_whole && address.format() == info.address_format()).then_some(())
    }

    /// Returns the peer of this address, if it was inserted.
    pub fn get(&self, address: &Address) -> Option<Peer> {
        let is_there = self.0.lock().contains_key(address);
        is_there.then(|| self.insert(address).ok()).flatten()
    }

    /// Returns the number of addresses.
    pub fn len(&self) -> usize {
        self.0.lock().len()
    }

    /// Returns `true` if it is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Removes a peer: `fi_av_remove(3)`. Returns an error and the peer if another handle, an
    /// operation in flight or an injected message may still refer to it: the behaviour of providers
    /// is undefined then.
    ///
    /// Dropping the last handle also removes the peer, once nothing refers to it.
    #[doc(alias = "fi_av_remove")]
    pub fn remove(&self, peer: Peer) -> Result<(), (Error, Peer)> {
        let in_use = |by| Error::InUse { object: "peer", by };
        if !peer.is_of(self) {
            return Err((Error::NotOfThis { object: "peer", of: "address vector" }, peer));
        }
        if peer.0.is_injected_to.load(Ordering::Acquire) {
            return Err((in_use("messages that were injected, until the endpoint is closed"), peer));
        }
        let has_others = self.0.lock().get(&peer.0.address).is_some_and(|entry| entry.holders > 1)
            || Arc::strong_count(&peer.0) > 1;
        if has_others {
            return Err((in_use("other handles, or operations in flight"), peer));
        }
        drop(peer);
        Ok(())
    }

    /// Returns the domain that it is in.
    pub fn domain(&self) -> &Domain {
        self.0.av.parents()
    }

    /// Returns the C object. It lives as long as this value.
    pub fn as_raw(&self) -> *mut sys::fid_av {
        self.0.av.as_ptr()
    }

    pub(crate) fn handle(&self) -> &Handle<sys::fid_av> {
        &self.0.av
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, HashMap<Address, Entry>> {
        // A panic under the lock leaves a consistent table: each change is one insertion or
        // removal.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for AddressVector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AddressVector").field("peers", &self.len()).finish_non_exhaustive()
    }
}

/// A peer that operations can name.
///
/// It is cheap to clone. Operations in flight hold it, so it is not removed under them.
///
/// ```no_run
/// # fn show(peer: &farreach_fabric::Peer) -> Result<(), farreach_fabric::Error> {
/// assert_eq!(peer.look_up()?, *peer.address());
/// # Ok(())
/// # }
/// ```
#[doc(alias = "fi_addr_t")]
#[derive(Clone)]
pub struct Peer(Arc<PeerInner>);

struct PeerInner {
    number: sys::fi_addr_t,
    address: Address,
    /// Whether a message was injected to it. Injected messages have no completion, so it is unknown
    /// when the provider is done with the peer.
    is_injected_to: AtomicBool,
    av: AddressVector,
}

impl Peer {
    /// Returns its address.
    pub fn address(&self) -> &Address {
        &self.0.address
    }

    /// Returns its address as the provider has it: `fi_av_lookup(3)`.
    #[doc(alias = "fi_av_lookup")]
    pub fn look_up(&self) -> Result<Address, Error> {
        let av = self.av();
        // SAFETY: `AddressVector::insert` returned the number, for this vector. It is removed when
        // its last holder is dropped, and `self` is one.
        let bytes = unsafe { av.handle().lookup(self.number()) }?;
        Ok(Address::new(av.domain().info().address_format(), bytes))
    }

    /// Returns the address vector that it is in.
    pub fn av(&self) -> &AddressVector {
        &self.0.av
    }

    #[inline]
    pub(crate) fn number(&self) -> sys::fi_addr_t {
        self.0.number
    }

    #[inline]
    pub(crate) fn is_of(&self, av: &AddressVector) -> bool {
        Arc::ptr_eq(&self.0.av.0, &av.0)
    }

    /// Notes that a message without a completion is sent to it.
    pub(crate) fn note_injection(&self) {
        self.0.is_injected_to.store(true, Ordering::Release);
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Peer({})", self.address())
    }
}

impl Drop for PeerInner {
    fn drop(&mut self) {
        if self.is_injected_to.load(Ordering::Acquire) || !self.av.domain().profile().forgets_peers {
            // The entry stays, with this holder, until the vector is closed, which is after every
            // endpoint on it.
            return;
        }
        let mut entries = self.av.0.lock();
        let Some(entry) = entries.get_mut(&self.address) else { return };
        entry.holders -= 1;
        if entry.holders > 0 {
            return;
        }
        entries.remove(&self.address);
        // SAFETY: the entry belonged to the number, and this was its last holder. Operations in
        // flight to the peer would hold it, and no injection was noted.
        if unsafe { self.av.handle().remove(self.number) }.is_err() {
            leak::count(Kind::Address);
        }
    }
}
