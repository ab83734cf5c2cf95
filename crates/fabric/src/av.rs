//! Address vectors: the peers that an endpoint can talk to.

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
/// Cheap to clone; it is closed when the last clone, every endpoint bound to it and every [`Peer`] in it is gone.
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
    /// Peers made of it. Some providers forget an address that was inserted twice when it is removed once.
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
    /// Inserts an address: `fi_av_insert(3)`. One that is there already gives another handle on the same peer.
    ///
    /// Where endpoints of one process look into each other ([`Profile::siblings_look_in`](crate::Profile::siblings_look_in)), the address of one that was
    /// closed is refused: it would lead to where its memory was.
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

    /// An address that it holds and that is so.
    pub(crate) fn find(&self, is_so: impl Fn(&Address) -> bool) -> Option<Address> {
        self.0.lock().keys().find(|address| is_so(address)).cloned()
    }

    /// Whether it looks like an address of this provider's.
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

    /// The peer of this address, if it was inserted.
    pub fn get(&self, address: &Address) -> Option<Peer> {
        let is_there = self.0.lock().contains_key(address);
        is_there.then(|| self.insert(address).ok()).flatten()
    }

    /// How many addresses it holds.
    pub fn len(&self) -> usize {
        self.0.lock().len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Removes a peer: `fi_av_remove(3)`. One that another handle, an operation in flight or an injected message may still refer to
    /// is handed back: what a provider does with those is undefined.
    ///
    /// Dropping the last handle removes the peer too, when nothing refers to it any more.
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

    /// The domain that it is in.
    pub fn domain(&self) -> &Domain {
        self.0.av.parents()
    }

    /// The C object. It lives as long as this does.
    pub fn as_raw(&self) -> *mut sys::fid_av {
        self.0.av.as_ptr()
    }

    pub(crate) fn handle(&self) -> &Handle<sys::fid_av> {
        &self.0.av
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, HashMap<Address, Entry>> {
        // A panic under the lock leaves a table that is whole: each change is one insertion or removal.
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
/// Cheap to clone. Operations in flight hold it, so that it is not removed under them.
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
    /// An injected message has no completion that would tell when the provider is done with the peer.
    is_injected_to: AtomicBool,
    av: AddressVector,
}

impl Peer {
    /// Its address.
    pub fn address(&self) -> &Address {
        &self.0.address
    }

    /// Its address as the provider has it: `fi_av_lookup(3)`.
    #[doc(alias = "fi_av_lookup")]
    pub fn look_up(&self) -> Result<Address, Error> {
        let av = self.av();
        // SAFETY: `AddressVector::insert` made the number, in this vector. It is removed when its last holder is dropped, and this is one.
        let bytes = unsafe { av.handle().lookup(self.number()) }?;
        Ok(Address::new(av.domain().info().address_format(), bytes))
    }

    /// The address vector that it is in.
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

    /// Notes that a message without a completion goes to it.
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
            // The entry stays, with this holder, until the vector is closed, which is after every endpoint on it.
            return;
        }
        let mut entries = self.av.0.lock();
        let Some(entry) = entries.get_mut(&self.address) else { return };
        entry.holders -= 1;
        if entry.holders > 0 {
            return;
        }
        entries.remove(&self.address);
        // SAFETY: the entry was the number's, and this its last holder. Whatever is in flight to the peer holds it, and no injection was noted.
        if unsafe { self.av.handle().remove(self.number) }.is_err() {
            leak::count(Kind::Address);
        }
    }
}
