//! Open objects of libfabric, and the calls on them that need nothing more than that they are open.
//!
//! What needs more is an `unsafe fn` here, or is called where it is proven: posting in `ep/post.rs` and `ep/inject.rs`.

use std::ffi::{c_char, c_int};
use std::os::fd::RawFd;
use std::ptr::{self, NonNull};

use farreach_fabric_sys as sys;

use crate::ep::Bound;
use crate::leak::{self, Kind};
use crate::{Address, Capabilities, Domain, Error, Fabric, Info, Library, raw};

/// A longer text of a provider's is cut.
const TEXT_MAX: usize = 256;

/// A class of objects.
///
/// # Safety
///
/// The structure begins with a `fid`, as C lays it out.
pub(crate) unsafe trait Class {
    /// What an object of the class stands on: handles on objects that must not be closed before it.
    type Parents: Clone + Send + Sync;
    const KIND: Kind;

    fn library(parents: &Self::Parents) -> &Library;
}

/// An open object of libfabric, which is closed when this is dropped.
///
/// Invariants, from `opened` until `end` calls `fi_close`:
///
/// - **It is live.** The pointer is what the library's own function wrote when it succeeded, and only `end` closes it, once: who closes a handle
///   gives it away. The `as_raw` functions hand the pointer out, and every call on it is unsafe.
/// - **Its parents outlive it.** It has clones of them, each of which keeps a handle open. They are let go of after the close; where the close fails,
///   never.
/// - **Its children are closed before it.** A child has, among its parents, the structure that this handle is a field of, so that this is dropped
///   after the last child.
/// - **Any thread may call it, and several at once.** A domain is opened by an offer of the level `FI_THREAD_SAFE` alone (see `open` of a domain),
///   and everything else is made of a domain. A fabric has no level; what C offers on it needs none.
/// - **Its tables are complete.** A provider fills every entry of a table that it installs. Every provider in `profile.rs` installs those for messages and
///   for reads and writes; the one for atomics may be missing, and is asked for only where the offer has the capability.
///
/// A method here that is not `unsafe` rests on these alone, and on references that live through the call.
pub(crate) struct Handle<T: Class> {
    object: NonNull<T>,
    parents: T::Parents,
    is_closed: bool,
}

// SAFETY: the object may be called and closed on any thread (invariant), and the parents are `Send` by the bound in `Class`.
unsafe impl<T: Class> Send for Handle<T> {}
// SAFETY: the object may be called by several threads at once (invariant), and the parents are `Sync` by the bound in `Class`.
unsafe impl<T: Class> Sync for Handle<T> {}

impl<T: Class> Handle<T> {
    /// The object that a function named `operation` has written.
    ///
    /// # Safety
    ///
    /// Where `status` is 0, `object` is null or a live object that is nobody else's, made of these parents and of nothing else. Any thread may call it.
    unsafe fn opened(
        operation: &'static str,
        status: c_int,
        object: *mut T,
        parents: T::Parents,
    ) -> Result<Self, Error> {
        if status != 0 {
            return Err(T::library(&parents).error(operation, status));
        }
        let object = NonNull::new(object).ok_or(Error::Incomplete { operation })?;
        Ok(Self { object, parents, is_closed: false })
    }

    #[inline]
    pub(crate) fn as_ptr(&self) -> *mut T {
        self.object.as_ptr()
    }

    #[inline]
    pub(crate) fn parents(&self) -> &T::Parents {
        &self.parents
    }

    /// What all classes have in common.
    fn fid(&self) -> *mut sys::fid {
        self.as_ptr().cast()
    }

    fn check(&self, operation: &'static str, status: c_int) -> Result<(), Error> {
        if status == 0 { Ok(()) } else { Err(T::library(&self.parents).error(operation, status)) }
    }

    /// Closes the object: `fi_close(3)`. Where that fails the object is counted as leaked, and keeps its parents for good.
    pub(crate) fn close(mut self) -> Result<(), Error> {
        self.end()
    }

    fn end(&mut self) -> Result<(), Error> {
        if std::mem::replace(&mut self.is_closed, true) {
            return Ok(());
        }
        // SAFETY: the object is live, and its children are closed (invariants). This is its end: `close` and the drop have the handle for themselves,
        // and `is_closed` keeps the second of them from coming here.
        let status = unsafe { sys::fi_close(self.fid()) };
        if status != 0 {
            leak::count(T::KIND);
            leak::keep(&self.parents);
        }
        self.check("fi_close", status)
    }
}

impl<T: Class> Drop for Handle<T> {
    #[doc(alias = "fi_close")]
    fn drop(&mut self) {
        // What fails is counted, and kept.
        let _ = self.end();
    }
}

// SAFETY: its first field is a `fid`.
unsafe impl Class for sys::fid_fabric {
    type Parents = Library;
    const KIND: Kind = Kind::Fabric;

    fn library(library: &Library) -> &Library {
        library
    }
}

impl Handle<sys::fid_fabric> {
    /// `fi_fabric(3)`
    pub(crate) fn open(library: &Library, info: &Info) -> Result<Self, Error> {
        let (attr, mut fabric) = (info.fabric_attr(), ptr::null_mut());
        // SAFETY: the structure is a part of the offer's, which is the library's own and is borrowed through the call. Where the function answers 0 it has
        // written a new fabric.
        unsafe {
            let status = library.functions().fi_fabric(attr, &raw mut fabric, ptr::null_mut())?;
            Self::opened("fi_fabric", status, fabric, *library)
        }
    }

    /// Asks whether a thread may sleep on the queue's descriptor: `fi_trywait(3)`.
    ///
    /// # Safety
    ///
    /// Where the provider leaves closed endpoints in what the queue sleeps on ([`close_spoils_waits`](crate::Profile::close_spoils_waits)), no endpoint that
    /// completes to the queue was closed before, and none is during the call.
    pub(crate) unsafe fn trywait(&self, cq: &Handle<sys::fid_cq>) -> c_int {
        let mut fids = [cq.fid()];
        // SAFETY: both objects are live (invariant), and the array has one entry. The caller vouches for what the provider looks into beside them.
        unsafe { sys::fi_trywait(self.as_ptr(), fids.as_mut_ptr(), 1) }
    }
}

// SAFETY: its first field is a `fid`.
unsafe impl Class for sys::fid_domain {
    type Parents = Fabric;
    const KIND: Kind = Kind::Domain;

    fn library(fabric: &Fabric) -> &Library {
        fabric.library()
    }
}

impl Handle<sys::fid_domain> {
    /// `fi_domain(3)`
    ///
    /// # Safety
    ///
    /// The offer has the threading level `FI_THREAD_SAFE`, and demands nothing that this crate does not do.
    pub(crate) unsafe fn open(fabric: &Fabric, info: &Info) -> Result<Self, Error> {
        let (raw, mut domain) = (info.as_raw_mut(), ptr::null_mut());
        // SAFETY: the fabric is live (invariant), and the offer is borrowed through the call, which only reads it. Where the function answers 0 it has written
        // a new domain, which any thread may call: the caller vouches for the level.
        unsafe {
            let status = sys::fi_domain(fabric.as_raw(), raw, &raw mut domain, ptr::null_mut());
            Self::opened("fi_domain", status, domain, fabric.clone())
        }
    }
}

// SAFETY: its first field is a `fid`.
unsafe impl Class for sys::fid_av {
    type Parents = Domain;
    const KIND: Kind = Kind::AddressVector;

    fn library(domain: &Domain) -> &Library {
        domain.library()
    }
}

impl Handle<sys::fid_av> {
    /// `fi_av_open(3)`
    pub(crate) fn open(domain: &Domain) -> Result<Self, Error> {
        let mut attr = sys::fi_av_attr {
            type_: match domain.info().av_type() {
                sys::FI_AV_MAP => sys::FI_AV_MAP,
                // What 2.x has kept.
                _ => sys::FI_AV_TABLE,
            },
            rx_ctx_bits: 0,
            count: 0,
            ep_per_node: 0,
            name: ptr::null(),
            map_addr: ptr::null_mut(),
            flags: 0,
        };
        let mut av = ptr::null_mut();
        // SAFETY: the domain is live (invariant), and the structure is a local. Where the function answers 0 it has written a new vector of the domain.
        unsafe {
            let status = sys::fi_av_open(domain.as_raw(), &raw mut attr, &raw mut av, ptr::null_mut());
            Self::opened("fi_av_open", status, av, domain.clone())
        }
    }

    /// The number that the provider gives the address; none where it does not take it: `fi_av_insert(3)`.
    pub(crate) fn insert(&self, address: &Address) -> Result<Option<sys::fi_addr_t>, Error> {
        let mut number = sys::FI_ADDR_UNSPEC;
        // The provider reads as many bytes as its addresses have, or up to a NUL, whatever it is given.
        let mut padded = [0_u8; Address::BYTES_MAX + 1];
        let Some(room) = padded.get_mut(..address.bytes().len()) else { return Ok(None) };
        room.copy_from_slice(address.bytes());
        let bytes = padded.as_ptr().cast();
        // SAFETY: the vector is live (invariant). The provider reads one address, which has `BYTES_MAX` bytes at most, and writes one number; both places
        // are locals, and behind the given bytes there are zeroes up to that length, and one more.
        let inserted =
            unsafe { sys::fi_av_insert(self.as_ptr(), bytes, 1, &raw mut number, 0, ptr::null_mut()) };
        match inserted {
            1 if number != sys::FI_ADDR_NOTAVAIL => Ok(Some(number)),
            status if status < 0 && status != -sys::FI_EINVAL => {
                Err(self.parents.library().error("fi_av_insert", status))
            }
            _ => Ok(None),
        }
    }

    /// The bytes of the address that was inserted: `fi_av_lookup(3)`.
    ///
    /// # Safety
    ///
    /// `number` is one that `insert` of this vector gave, and was not removed.
    pub(crate) unsafe fn lookup(&self, number: sys::fi_addr_t) -> Result<Vec<u8>, Error> {
        let mut bytes = vec![0_u8; Address::BYTES_MAX];
        let mut len = bytes.len();
        // SAFETY: the vector is live (invariant), and the caller vouches for the number. The provider writes as many bytes as `len` says, which is the
        // vector's length.
        let status =
            unsafe { sys::fi_av_lookup(self.as_ptr(), number, bytes.as_mut_ptr().cast(), &raw mut len) };
        self.check("fi_av_lookup", status)?;
        bytes.truncate(len);
        Ok(bytes)
    }

    /// `fi_av_remove(3)`
    ///
    /// # Safety
    ///
    /// `number` is one that `insert` of this vector gave, and was not removed. Nothing in flight names it, and nothing will.
    pub(crate) unsafe fn remove(&self, mut number: sys::fi_addr_t) -> Result<(), Error> {
        // SAFETY: the vector is live (invariant), and the caller vouches for the number, which is one.
        self.check("fi_av_remove", unsafe { sys::fi_av_remove(self.as_ptr(), &raw mut number, 1, 0) })
    }
}

// SAFETY: its first field is a `fid`.
unsafe impl Class for sys::fid_cq {
    type Parents = Domain;
    const KIND: Kind = Kind::CompletionQueue;

    fn library(domain: &Domain) -> &Library {
        domain.library()
    }
}

/// An entry of a completion queue that nobody has written.
pub(crate) const NO_ENTRY: sys::fi_cq_data_entry =
    sys::fi_cq_data_entry { op_context: ptr::null_mut(), flags: 0, len: 0, buf: ptr::null_mut(), data: 0 };

impl Handle<sys::fid_cq> {
    /// `fi_cq_open(3)`. The format is that of [`read`](Self::read).
    pub(crate) fn open(domain: &Domain, size: usize, has_fd: bool) -> Result<Self, Error> {
        let mut attr = sys::fi_cq_attr {
            size,
            flags: 0,
            format: sys::FI_CQ_FORMAT_DATA,
            wait_obj: if has_fd { sys::FI_WAIT_FD } else { sys::FI_WAIT_NONE },
            signaling_vector: 0,
            wait_cond: sys::FI_CQ_COND_NONE,
            wait_set: ptr::null_mut(),
        };
        let mut cq = ptr::null_mut();
        // SAFETY: the domain is live (invariant), and the structure is a local. Where the function answers 0 it has written a new queue of the domain.
        unsafe {
            let status = sys::fi_cq_open(domain.as_raw(), &raw mut attr, &raw mut cq, ptr::null_mut());
            Self::opened("fi_cq_open", status, cq, domain.clone())
        }
    }

    /// The descriptor, where the queue was opened with one. It is the provider's, and open as long as the queue.
    pub(crate) fn wait_fd(&self) -> Result<RawFd, Error> {
        let mut fd: RawFd = -1;
        // SAFETY: the queue is live (invariant). `open` asks for a descriptor or for nothing to wait on, so FI_GETWAIT writes an int, or fails.
        let status = unsafe { sys::fi_control(self.fid(), sys::FI_GETWAIT as i32, (&raw mut fd).cast()) };
        self.check("fi_control(FI_GETWAIT)", status)?;
        if fd < 0 {
            return Err(Error::Incomplete { operation: "fi_control(FI_GETWAIT)" });
        }
        Ok(fd)
    }

    /// Takes completions: `fi_cq_read(3)`. How many were written, or an error below zero.
    #[inline]
    pub(crate) fn read(&self, batch: &mut [sys::fi_cq_data_entry]) -> c_int {
        // SAFETY: the queue is live (invariant), `open` has given it the format of these entries, and there is room for as many as are asked for.
        let count = unsafe { sys::fi_cq_read(self.as_ptr(), batch.as_mut_ptr().cast(), batch.len()) };
        // The answers are small numbers, whose type is wider than that of the other functions' errors.
        count as c_int
    }

    /// Takes the error at the head of the queue, and the provider's own words for it: `fi_cq_readerr(3)`. None where there is none.
    ///
    /// # Safety
    ///
    /// Nobody else reads the queue during the call: the provider keeps the error's data only until the next read.
    pub(crate) unsafe fn read_error(&self) -> Result<Option<(sys::fi_cq_err_entry, String)>, Error> {
        // SAFETY: integers and pointers, for all of which zero is a value. It offers no buffer for the error's data, so the provider points to its own.
        let mut entry: sys::fi_cq_err_entry_2 = unsafe { std::mem::zeroed() };
        // SAFETY: the queue is live (invariant), and the entry is a local of the largest size that any release writes.
        let count = unsafe { sys::fi_cq_readerr(self.as_ptr(), (&raw mut entry).cast(), 0) };
        match count as c_int {
            status if status == -sys::FI_EAGAIN || status == 0 => return Ok(None),
            status if status < 0 => return Err(self.parents.library().error("fi_cq_readerr", status)),
            _ => {}
        }
        let entry = entry.base;
        let mut buffer = [0 as c_char; TEXT_MAX];
        let (room, len) = (buffer.as_mut_ptr(), buffer.len());
        // SAFETY: the queue is live (invariant). The error's data is what the provider has just written, and nobody has read since: the caller vouches for
        // it. The answer is null or a NUL-terminated text, a static one or one in our buffer, which has the length that is said.
        let text = unsafe {
            raw::text(sys::fi_cq_strerror(self.as_ptr(), entry.prov_errno, entry.err_data, room, len))
        };
        Ok(Some((entry, text.unwrap_or_default())))
    }
}

// SAFETY: its first field is a `fid`.
unsafe impl Class for sys::fid_mr {
    type Parents = Domain;
    const KIND: Kind = Kind::MemoryRegion;

    fn library(domain: &Domain) -> &Library {
        domain.library()
    }
}

impl Handle<sys::fid_mr> {
    /// `fi_mr_reg(3)`, with a key of the caller's choice.
    ///
    /// # Safety
    ///
    /// The memory is mapped until the region is closed, which may be never. The provider writes to it where `access` and operations
    /// say so; meanwhile nobody holds a reference into it.
    pub(crate) unsafe fn open(
        domain: &Domain,
        (start, len): (*mut u8, usize),
        access: u64,
        key: u64,
    ) -> Result<Self, Error> {
        let (raw, buffer, mut mr) = (domain.as_raw(), start.cast_const().cast(), ptr::null_mut());
        // SAFETY: the domain is live (invariant), and the caller vouches for the memory. Where the function answers 0 it has written a new region of the
        // domain.
        unsafe {
            let status = sys::fi_mr_reg(raw, buffer, len, access, 0, key, 0, &raw mut mr, ptr::null_mut());
            Self::opened("fi_mr_reg", status, mr, domain.clone())
        }
    }

    /// What peers name it by.
    pub(crate) fn key(&self) -> u64 {
        // SAFETY: the region is live (invariant), and this reads a field of it.
        unsafe { sys::fi_mr_key(self.as_ptr()) }
    }

    /// What own operations name it by, as a number.
    pub(crate) fn descriptor(&self) -> u64 {
        // SAFETY: the region is live (invariant), and this reads a field of it.
        unsafe { sys::fi_mr_desc(self.as_ptr()) }.expose_provenance() as u64
    }
}

// SAFETY: its first field is a `fid`.
unsafe impl Class for sys::fid_ep {
    type Parents = Bound;
    const KIND: Kind = Kind::Endpoint;

    fn library(bound: &Bound) -> &Library {
        bound.domain.library()
    }
}

impl Handle<sys::fid_ep> {
    /// `fi_endpoint(3)`, by the offer of its domain.
    ///
    /// # Safety
    ///
    /// The handle is closed or dropped only when nothing looks into the endpoint that does not hold it: other endpoints of this process, where the provider
    /// has them do so ([`siblings_look_in`](crate::Profile::siblings_look_in)), and who asks whether he may sleep, where it
    /// [spoils waits](crate::Profile::close_spoils_waits).
    pub(crate) unsafe fn open(bound: Bound) -> Result<Self, Error> {
        let (raw, mut ep) = (bound.domain.info().as_raw_mut(), ptr::null_mut());
        // SAFETY: the domain is live (invariant), and so is the offer, which it owns. Where the function answers 0 it has written a new endpoint of the
        // domain. What `bind_and_enable` binds to it is among its parents.
        unsafe {
            let status = sys::fi_endpoint(bound.domain.as_raw(), raw, &raw mut ep, ptr::null_mut());
            Self::opened("fi_endpoint", status, ep, bound)
        }
    }

    /// Binds it to its parents and enables it: `fi_ep_bind(3)`, `fi_enable(3)`.
    pub(crate) fn bind_and_enable(&self) -> Result<(), Error> {
        let Bound { transmit_cq, receive_cq, av, .. } = &self.parents;
        let bind = |fid: *mut sys::fid, flags: u64| {
            // SAFETY: both objects are live, and the bound one, a parent, outlives the endpoint (invariants).
            self.check("fi_ep_bind", unsafe { sys::fi_ep_bind(self.as_ptr(), fid, flags) })
        };
        bind(av.handle().fid(), 0)?;
        // Every operation has a completion: it is what brings the buffers back.
        if transmit_cq == receive_cq {
            bind(transmit_cq.handle().fid(), sys::FI_TRANSMIT | sys::FI_RECV)?;
        } else {
            bind(transmit_cq.handle().fid(), sys::FI_TRANSMIT)?;
            bind(receive_cq.handle().fid(), sys::FI_RECV)?;
        }
        // SAFETY: the endpoint is live (invariant). One that lacks something is refused by the provider.
        self.check("fi_enable", unsafe { sys::fi_enable(self.as_ptr()) })
    }

    /// The bytes of its address: `fi_getname(3)`.
    pub(crate) fn name(&self) -> Result<Vec<u8>, Error> {
        let mut bytes = vec![0_u8; Address::BYTES_MAX];
        let mut len = bytes.len();
        // SAFETY: the endpoint is live (invariant), and the provider writes as many bytes as `len` says, which is the vector's length.
        let status = unsafe { sys::fi_getname(self.fid(), bytes.as_mut_ptr().cast(), &raw mut len) };
        self.check("fi_getname", status)?;
        bytes.truncate(len);
        Ok(bytes)
    }

    /// Whether it has fetch and add, and compare and swap, of eight bytes: `fi_fetch_atomicvalid(3)`.
    pub(crate) fn has_atomics(&self) -> [bool; 2] {
        // Without the capability there may be no table to ask.
        if !self.parents.domain.info().capabilities().contains(Capabilities::ATOMIC) {
            return [false; 2];
        }
        let (ep, mut added, mut compared) = (self.as_ptr(), 0, 0);
        // SAFETY: the endpoint is live (invariant) and was opened by the offer that has the capability, so the table is there; both counts are locals.
        let statuses = unsafe {
            [
                sys::fi_fetch_atomicvalid(ep, sys::FI_UINT64, sys::FI_SUM, &raw mut added),
                sys::fi_compare_atomicvalid(ep, sys::FI_UINT64, sys::FI_CSWAP, &raw mut compared),
            ]
        };
        [statuses[0] == 0 && added >= 1, statuses[1] == 0 && compared >= 1]
    }
}
