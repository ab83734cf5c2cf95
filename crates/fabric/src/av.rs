//! Address vectors: the peers that an endpoint can talk to.

use std::collections::HashMap;
use std::fmt;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use farreach_fabric_sys as sys;

use crate::handle::Handle;
use crate::leak::{self, Kind};
use crate::{Address, Domain, Error};

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
    domain: Domain,
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
        // SAFETY: integers and pointers only, for which zero is a value.
        let mut attr: sys::fi_av_attr = unsafe { std::mem::zeroed() };
        attr.type_ = match self.info().av_type() {
            sys::FI_AV_MAP => sys::FI_AV_MAP,
            // What 2.x has kept.
            _ => sys::FI_AV_TABLE,
        };
        // SAFETY: the domain lives, and the structure through the call.
        let open = |av| unsafe { sys::fi_av_open(self.as_raw(), &raw mut attr, av, ptr::null_mut()) };
        // SAFETY: the function writes a vector where it answers 0, and the domain is one for any thread.
        let av = unsafe { Handle::open(self.library(), "fi_av_open", open) }?;
        Ok(AddressVector(Arc::new(Inner { av, entries: Mutex::default(), domain: self.clone() })))
    }
}

impl AddressVector {
    /// Inserts an address: `fi_av_insert(3)`. One that is there already gives another handle on the same peer.
    #[doc(alias = "fi_av_insert")]
    pub fn insert(&self, address: &Address) -> Result<Peer, Error> {
        let refused = || Error::AddressRefused {
            address: address.to_string(),
            provider: self.domain().info().provider().to_owned(),
        };
        self.check(address).ok_or_else(refused)?;
        let mut entries = self.0.lock();
        let number = match entries.get_mut(address) {
            Some(entry) => {
                entry.holders += 1;
                entry.number
            }
            None => {
                let number = self.insert_raw(address)?.ok_or_else(refused)?;
                entries.insert(address.clone(), Entry { number, holders: 1 });
                number
            }
        };
        drop(entries);
        let (address, av) = (address.clone(), self.clone());
        Ok(Peer(Arc::new(PeerInner { number, address, is_injected_to: AtomicBool::new(false), av })))
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

    /// The number that the provider gives the address; none where it does not take it.
    fn insert_raw(&self, address: &Address) -> Result<Option<sys::fi_addr_t>, Error> {
        let mut number = sys::FI_ADDR_UNSPEC;
        // The provider reads as many bytes as its addresses have, or up to a NUL, whatever it is given.
        let mut padded = [0_u8; Address::BYTES_MAX + 1];
        let Some(room) = padded.get_mut(..address.bytes().len()) else { return Ok(None) };
        room.copy_from_slice(address.bytes());
        let bytes = padded.as_ptr().cast();
        // SAFETY: the vector lives, behind the address there are zeroes beyond the length of any, and there is room for one
        // number.
        let inserted =
            unsafe { sys::fi_av_insert(self.as_raw(), bytes, 1, &raw mut number, 0, ptr::null_mut()) };
        match inserted {
            1 if number != sys::FI_ADDR_NOTAVAIL => Ok(Some(number)),
            status if status < 0 && status != -sys::FI_EINVAL => {
                Err(self.domain().library().error("fi_av_insert", status))
            }
            _ => Ok(None),
        }
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
        &self.0.domain
    }

    /// The C object. It lives as long as this does.
    pub fn as_raw(&self) -> *mut sys::fid_av {
        self.0.av.as_ptr()
    }

    pub(crate) fn fid(&self) -> *mut sys::fid {
        self.0.av.fid()
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

impl Drop for Inner {
    #[doc(alias = "fi_close")]
    fn drop(&mut self) {
        // SAFETY: peers and endpoints hold the vector, so none is left.
        if unsafe { self.av.close(self.domain.library(), Kind::AddressVector) }.is_err() {
            leak::keep(&self.domain);
        }
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
        let mut bytes = vec![0_u8; Address::BYTES_MAX];
        let mut len = bytes.len();
        // SAFETY: the vector lives, the peer is one of its entries, and there is room for so many bytes.
        let status =
            unsafe { sys::fi_av_lookup(av.as_raw(), self.number(), bytes.as_mut_ptr().cast(), &raw mut len) };
        if status != 0 {
            return Err(av.domain().library().error("fi_av_lookup", status));
        }
        bytes.truncate(len);
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
        // SAFETY: the vector lives, and nothing refers to the number any more: operations hold the peer.
        let status = unsafe { sys::fi_av_remove(self.av.as_raw(), &raw mut self.number, 1, 0) };
        if status != 0 {
            leak::count(Kind::Address);
        }
    }
}
