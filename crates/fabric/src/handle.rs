//! Open objects of libfabric, and the calls on them that require only that they are open.
//!
//! Calls with further requirements are an `unsafe fn` here, or are made where the requirements are
//! proven: posting in `ep/post.rs` and `ep/inject.rs`.

use std::ffi::{c_char, c_int};
use std::os::fd::RawFd;
use std::ptr::{self, NonNull};

use farreach_fabric_sys as sys;

use crate::leak::{self, Kind};
use crate::{
    Address, AddressVector, Capabilities, CompletionQueue, Domain, Error, Fabric, Info, Library, raw,
};

/// The maximum length of a provider's text. Longer ones are cut.
const TEXT_MAX: usize = 256;

/// A class of objects.
///
/// # Safety
///
/// The structure begins with a `fid`, as C lays it out.
pub(crate) unsafe trait Class {
    /// The parents of an object: handles on objects that must not be closed before it.
    type Parents: Clone + Send + Sync;
    const KIND: Kind;

    fn library(parents: &Self::Parents) -> &Library;
}

/// An open object of libfabric, which is closed when this is dropped.
///
/// Invariants, from `opened` until `end` calls `fi_close`:
///
/// - **It is live.** The pointer was written by the library's own function when it succeeded, and
///   only `end` closes it, once: closing consumes the handle. The `as_raw` functions return the
///   pointer, and every call on it is unsafe.
/// - **Its parents outlive it.** It has clones of them, each of which keeps a handle open. They are
///   dropped after the close; if the close fails, never.
/// - **Its children are closed before it.** A child has, among its parents, the structure that this
///   handle is a field of, so this handle is dropped after the last child.
/// - **Any thread may call it, and several at once.** A domain is opened only by an offer of the
///   level `FI_THREAD_SAFE` (see `open` of a domain), and everything else is created from a domain.
///   A fabric has no level; the C functions on it need none.
/// - **Its tables are complete.** A provider fills every entry of a table that it installs. Every
///   provider in `profile.rs` installs the tables for messages and for reads and writes; the table
///   for atomics may be missing, and is used only if the offer has the capability.
///
/// A method here that is not `unsafe` relies on these alone, and on references that live through
/// the call.
pub(crate) struct Handle<T: Class> {
    object: NonNull<T>,
    parents: T::Parents,
    is_closed: bool,
}

// SAFETY: the object may be called and closed on any thread (invariant), and the parents are `Send`
// by the bound in `Class`.
unsafe impl<T: Class> Send for Handle<T> {}
// SAFETY: the object may be called by several threads at once (invariant), and the parents are
// `Sync` by the bound in `Class`.
unsafe impl<T: Class> Sync for Handle<T> {}

impl<T: Class> Handle<T> {
    /// Wraps the object that the function `operation` has written.
    ///
    /// # Safety
    ///
    /// If `status` is 0, `object` is null, or a live object without another owner, created from
    /// these parents and nothing else. Any thread may call it.
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

    /// Returns the base structure that all classes have in common.
    fn fid(&self) -> *mut sys::fid {
        self.as_ptr().cast()
    }

    fn check(&self, operation: &'static str, status: c_int) -> Result<(), Error> {
        if status == 0 { Ok(()) } else { Err(T::library(&self.parents).error(operation, status)) }
    }

    /// Closes the object: `fi_close(3)`. If that fails, the object is counted as leaked, and keeps
    /// its parents for good.
    pub(crate) fn close(mut self) -> Result<(), Error> {
        self.end()
    }

    fn end(&mut self) -> Result<(), Error> {
        if std::mem::replace(&mut self.is_closed, true) {
            return Ok(());
        }
        // SAFETY: the object is live, and its children are closed (invariants). It is closed only
        // once: `close` and the drop have exclusive access to the handle, and `is_closed` stops the
        // second of them.
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
        // Failures are counted, and the object is kept.
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
        // SAFETY: the structure is a part of the offer, which the library allocated and which is
        // borrowed through the call. If the function returns 0, it has written a new fabric.
        unsafe {
            let status = library.functions().fi_fabric(attr, &raw mut fabric, ptr::null_mut())?;
            Self::opened("fi_fabric", status, fabric, *library)
        }
    }

    /// Asks whether a thread may sleep on the queue's descriptor: `fi_trywait(3)`.
    ///
    /// # Safety
    ///
    /// If the provider leaves closed endpoints in the wait set of the queue
    /// ([`close_spoils_waits`](crate::Profile::close_spoils_waits)), no endpoint that completes to
    /// the queue was closed before, and none is during the call.
    pub(crate) unsafe fn trywait(&self, cq: &Handle<sys::fid_cq>) -> c_int {
        let mut fids = [cq.fid()];
        // SAFETY: both objects are live (invariant), and the array has one entry. The caller
        // guarantees the rest that the provider accesses.
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
    /// The offer has the threading level `FI_THREAD_SAFE`, and has no requirement that this crate
    /// does not meet.
    pub(crate) unsafe fn open(fabric: &Fabric, info: &Info) -> Result<Self, Error> {
        let (raw, mut domain) = (info.as_raw_mut(), ptr::null_mut());
        // SAFETY: the fabric is live (invariant), and the offer is borrowed through the call, which
        // only reads it. If the function returns 0, it has written a new domain, which any thread
        // may call: the caller guarantees the level.
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
                // The type that 2.x has kept.
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
        // SAFETY: the domain is live (invariant), and the structure is a local. If the function
        // returns 0, it has written a new vector of the domain.
        unsafe {
            let status = sys::fi_av_open(domain.as_raw(), &raw mut attr, &raw mut av, ptr::null_mut());
            Self::opened("fi_av_open", status, av, domain.clone())
        }
    }

    /// Returns the number that the provider assigns to the address, or `None` if it does not accept
    /// it: `fi_av_insert(3)`.
    pub(crate) fn insert(&self, address: &Address) -> Result<Option<sys::fi_addr_t>, Error> {
        let mut number = sys::FI_ADDR_UNSPEC;
        // The provider reads as many bytes as its addresses have, or up to a NUL, whatever the
        // length of the input.
        let mut padded = [0_u8; Address::BYTES_MAX + 1];
        let Some(room) = padded.get_mut(..address.bytes().len()) else { return Ok(None) };
        room.copy_from_slice(address.bytes());
        let bytes = padded.as_ptr().cast();
        // SAFETY: the vector is live (invariant). The provider reads one address, which has at most
        // `BYTES_MAX` bytes, and writes one number. Both places are locals, and the given bytes are
        // followed by zeroes up to that length, and one more.
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

    /// Returns the bytes of the address that was inserted: `fi_av_lookup(3)`.
    ///
    /// # Safety
    ///
    /// `insert` of this vector returned `number`, and it was not removed.
    pub(crate) unsafe fn lookup(&self, number: sys::fi_addr_t) -> Result<Vec<u8>, Error> {
        let mut bytes = vec![0_u8; Address::BYTES_MAX];
        let mut len = bytes.len();
        // SAFETY: the vector is live (invariant), and the caller guarantees the number. The
        // provider writes at most `len` bytes, which is the length of `bytes`.
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
    /// `insert` of this vector returned `number`, and it was not removed. No operation in flight
    /// uses it, and none will.
    pub(crate) unsafe fn remove(&self, mut number: sys::fi_addr_t) -> Result<(), Error> {
        // SAFETY: the vector is live (invariant), and the caller guarantees the number. The count
        // is 1.
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

/// An entry of a completion queue that is not written yet.
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
        // SAFETY: the domain is live (invariant), and the structure is a local. If the function
        // returns 0, it has written a new queue of the domain.
        unsafe {
            let status = sys::fi_cq_open(domain.as_raw(), &raw mut attr, &raw mut cq, ptr::null_mut());
            Self::opened("fi_cq_open", status, cq, domain.clone())
        }
    }

    /// Returns the descriptor, if the queue was opened with one. The provider owns it, and it is
    /// open as long as the queue.
    pub(crate) fn wait_fd(&self) -> Result<RawFd, Error> {
        let mut fd: RawFd = -1;
        // SAFETY: the queue is live (invariant). `open` asks for a descriptor or for no wait
        // object, so FI_GETWAIT writes an int, or fails.
        let status = unsafe { sys::fi_control(self.fid(), sys::FI_GETWAIT as i32, (&raw mut fd).cast()) };
        self.check("fi_control(FI_GETWAIT)", status)?;
        if fd < 0 {
            return Err(Error::Incomplete { operation: "fi_control(FI_GETWAIT)" });
        }
        Ok(fd)
    }

    /// Takes completions: `fi_cq_read(3)`. Returns how many were written, or a negative error.
    #[inline]
    pub(crate) fn read(&self, batch: &mut [sys::fi_cq_data_entry]) -> c_int {
        // SAFETY: the queue is live (invariant), `open` has set the format of these entries, and
        // there is room for as many as are asked for.
        let count = unsafe { sys::fi_cq_read(self.as_ptr(), batch.as_mut_ptr().cast(), batch.len()) };
        // The results are small numbers, whose type is wider than that of the other functions'
        // errors.
        count as c_int
    }

    /// Takes the error at the head of the queue, with the provider's text: `fi_cq_readerr(3)`.
    /// Returns `None` if there is none.
    ///
    /// # Safety
    ///
    /// Nobody else reads the queue during the call: the provider keeps the error's data only until
    /// the next read.
    pub(crate) unsafe fn read_error(&self) -> Result<Option<(sys::fi_cq_err_entry, String)>, Error> {
        // SAFETY: the structure consists of integers and pointers, for which zero is valid. It
        // offers no buffer for the error's data, so the provider points to its own.
        let mut entry: sys::fi_cq_err_entry_2 = unsafe { std::mem::zeroed() };
        // SAFETY: the queue is live (invariant), and the entry is a local of the largest size that
        // any release writes.
        let count = unsafe { sys::fi_cq_readerr(self.as_ptr(), (&raw mut entry).cast(), 0) };
        match count as c_int {
            status if status == -sys::FI_EAGAIN || status == 0 => return Ok(None),
            status if status < 0 => return Err(self.parents.library().error("fi_cq_readerr", status)),
            _ => {}
        }
        let entry = entry.base;
        let mut buffer = [0 as c_char; TEXT_MAX];
        let (room, len) = (buffer.as_mut_ptr(), buffer.len());
        // SAFETY: the queue is live (invariant). The provider has just written the error's data,
        // and the caller guarantees that nobody has read the queue since. The result is null or a
        // NUL-terminated text, static or in `buffer`, whose length is `len`.
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
    /// The memory is mapped until the region is closed, which may be never. The provider writes to
    /// it as `access` and operations allow; nobody holds a reference into it meanwhile.
    pub(crate) unsafe fn open(
        domain: &Domain,
        (start, len): (*mut u8, usize),
        access: u64,
        key: u64,
    ) -> Result<Self, Error> {
        let (raw, buffer, mut mr) = (domain.as_raw(), start.cast_const().cast(), ptr::null_mut());
        // SAFETY: the domain is live (invariant), and the caller guarantees the requirements on the
        // memory. If the function returns 0, it has written a new region of the domain.
        unsafe {
            let status = sys::fi_mr_reg(raw, buffer, len, access, 0, key, 0, &raw mut mr, ptr::null_mut());
            Self::opened("fi_mr_reg", status, mr, domain.clone())
        }
    }

    /// Returns the key for peers.
    pub(crate) fn key(&self) -> u64 {
        // SAFETY: the region is live (invariant), and this reads a field of it.
        unsafe { sys::fi_mr_key(self.as_ptr()) }
    }

    /// Returns the descriptor for local operations, as a number.
    pub(crate) fn descriptor(&self) -> u64 {
        // SAFETY: the region is live (invariant), and this reads a field of it.
        unsafe { sys::fi_mr_desc(self.as_ptr()) }.expose_provenance() as u64
    }
}

/// The parents of an endpoint.
#[derive(Clone)]
pub(crate) struct Bound {
    pub(crate) transmit_cq: CompletionQueue,
    pub(crate) receive_cq: CompletionQueue,
    pub(crate) av: AddressVector,
    pub(crate) domain: Domain,
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
    /// The handle is closed or dropped only when nothing accesses the endpoint without holding it:
    /// other endpoints of this process, if the provider makes them do so
    /// ([`siblings_look_in`](crate::Profile::siblings_look_in)), and threads that prepare to sleep,
    /// if it [spoils waits](crate::Profile::close_spoils_waits).
    pub(crate) unsafe fn open(bound: Bound) -> Result<Self, Error> {
        let (raw, mut ep) = (bound.domain.info().as_raw_mut(), ptr::null_mut());
        // SAFETY: the domain is live (invariant), and so is the offer, which it owns. If the
        // function returns 0, it has written a new endpoint of the domain. Everything that
        // `bind_and_enable` binds to it is among its parents.
        unsafe {
            let status = sys::fi_endpoint(bound.domain.as_raw(), raw, &raw mut ep, ptr::null_mut());
            Self::opened("fi_endpoint", status, ep, bound)
        }
    }

    /// Binds it to its parents and enables it: `fi_ep_bind(3)`, `fi_enable(3)`.
    pub(crate) fn bind_and_enable(&self) -> Result<(), Error> {
        let Bound { transmit_cq, receive_cq, av, .. } = &self.parents;
        let bind = |fid: *mut sys::fid, flags: u64| {
            // SAFETY: both objects are live, and the bound one, a parent, outlives the endpoint
            // (invariants).
            self.check("fi_ep_bind", unsafe { sys::fi_ep_bind(self.as_ptr(), fid, flags) })
        };
        bind(av.handle().fid(), 0)?;
        // Every operation has a completion, because it returns the buffers.
        if transmit_cq == receive_cq {
            bind(transmit_cq.handle().fid(), sys::FI_TRANSMIT | sys::FI_RECV)?;
        } else {
            bind(transmit_cq.handle().fid(), sys::FI_TRANSMIT)?;
            bind(receive_cq.handle().fid(), sys::FI_RECV)?;
        }
        // SAFETY: the endpoint is live (invariant). The provider refuses an endpoint that lacks
        // something.
        self.check("fi_enable", unsafe { sys::fi_enable(self.as_ptr()) })
    }

    /// Returns the bytes of its address: `fi_getname(3)`.
    pub(crate) fn name(&self) -> Result<Vec<u8>, Error> {
        let mut bytes = vec![0_u8; Address::BYTES_MAX];
        let mut len = bytes.len();
        // SAFETY: the endpoint is live (invariant), and the provider writes at most `len` bytes,
        // which is the length of `bytes`.
        let status = unsafe { sys::fi_getname(self.fid(), bytes.as_mut_ptr().cast(), &raw mut len) };
        self.check("fi_getname", status)?;
        bytes.truncate(len);
        Ok(bytes)
    }

    /// Returns whether it has fetch-and-add and compare-and-swap of eight bytes:
    /// `fi_fetch_atomicvalid(3)`.
    pub(crate) fn has_atomics(&self) -> [bool; 2] {
        // Without the capability there may be no table.
        if !self.parents.domain.info().capabilities().contains(Capabilities::ATOMIC) {
            return [false; 2];
        }
        let (ep, mut added, mut compared) = (self.as_ptr(), 0, 0);
        // SAFETY: the endpoint is live (invariant) and was opened by the offer that has the
        // capability, so the table exists. Both counts are locals.
        let statuses = unsafe {
            [
                sys::fi_fetch_atomicvalid(ep, sys::FI_UINT64, sys::FI_SUM, &raw mut added),
                sys::fi_compare_atomicvalid(ep, sys::FI_UINT64, sys::FI_CSWAP, &raw mut compared),
            ]
        };
        [statuses[0] == 0 && added >= 1, statuses[1] == 0 && compared >= 1]
    }
}
