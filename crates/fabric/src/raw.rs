//! The one place that follows the pointers of `struct fi_info`.

use std::ffi::{CStr, c_char};
use std::ptr::{self, NonNull};

use farreach_fabric_sys as sys;
use farreach_fabric_sys::Libfabric;

use crate::{Error, Library};

/// One `struct fi_info` that the library allocated and this value owns; its `next` is null.
pub(crate) struct RawInfo {
    info: NonNull<sys::fi_info>,
    functions: &'static Libfabric,
}

// SAFETY: the structure and all behind it belong to this value alone. The library frees it from any thread,
// and nothing in it is tied to one.
unsafe impl Send for RawInfo {}
// SAFETY: through a shared reference it is only read.
unsafe impl Sync for RawInfo {}

/// The parts that every `fi_info` of the library has.
pub(crate) struct Parts<'a> {
    pub(crate) info: &'a sys::fi_info,
    pub(crate) transmit: &'a sys::fi_tx_attr,
    pub(crate) receive: &'a sys::fi_rx_attr,
    pub(crate) endpoint: &'a sys::fi_ep_attr,
    pub(crate) domain: &'a sys::fi_domain_attr,
    pub(crate) fabric: &'a sys::fi_fabric_attr,
}

impl<'a> Parts<'a> {
    /// # Safety
    ///
    /// Each pointer of the structure is null, or what it points to lives as long and is not changed.
    unsafe fn of(info: &'a sys::fi_info) -> Option<Self> {
        // SAFETY: passed on to the caller.
        unsafe {
            Some(Self {
                info,
                transmit: info.tx_attr.as_ref()?,
                receive: info.rx_attr.as_ref()?,
                endpoint: info.ep_attr.as_ref()?,
                domain: info.domain_attr.as_ref()?,
                fabric: info.fabric_attr.as_ref()?,
            })
        }
    }
}

/// The same, to be filled in.
pub(crate) struct PartsMut<'a> {
    pub(crate) info: &'a mut sys::fi_info,
    pub(crate) transmit: &'a mut sys::fi_tx_attr,
    pub(crate) receive: &'a mut sys::fi_rx_attr,
    pub(crate) endpoint: &'a mut sys::fi_ep_attr,
    pub(crate) domain: &'a mut sys::fi_domain_attr,
    pub(crate) fabric: &'a mut sys::fi_fabric_attr,
}

impl<'a> PartsMut<'a> {
    /// # Safety
    ///
    /// Each pointer of the structure is null, or what it points to lives as long and is nobody else's.
    unsafe fn of(info: &'a mut sys::fi_info) -> Option<Self> {
        // SAFETY: passed on to the caller.
        unsafe {
            Some(Self {
                transmit: info.tx_attr.as_mut()?,
                receive: info.rx_attr.as_mut()?,
                endpoint: info.ep_attr.as_mut()?,
                domain: info.domain_attr.as_mut()?,
                fabric: info.fabric_attr.as_mut()?,
                info,
            })
        }
    }
}

impl RawInfo {
    /// An empty structure with all its parts: what C calls `fi_allocinfo`.
    pub(crate) fn allocate(library: &Library) -> Result<Self, Error> {
        let functions = library.functions();
        // SAFETY: null asks for an empty structure.
        let info = unsafe { functions.fi_dupinfo(ptr::null()) }?;
        match NonNull::new(info) {
            Some(info) => Ok(Self { info, functions }),
            None => Err(library.error("fi_dupinfo", -sys::FI_ENOMEM)),
        }
    }

    /// A copy that lives by itself.
    pub(crate) fn duplicate(&self, library: &Library) -> Result<Self, Error> {
        // SAFETY: the structure is one of the library's, and is only read.
        let info = unsafe { self.functions.fi_dupinfo(self.as_ptr()) }?;
        match NonNull::new(info) {
            Some(info) => Ok(Self { info, functions: self.functions }),
            None => Err(library.error("fi_dupinfo", -sys::FI_ENOMEM)),
        }
    }

    /// Takes a list apart, so that each entry lives and dies by itself.
    ///
    /// # Safety
    ///
    /// `list` is null or what `fi_getinfo` of this library gave, and nobody else has it.
    pub(crate) unsafe fn from_list(list: *mut sys::fi_info, library: &Library) -> Vec<Self> {
        let mut entries = Vec::new();
        let mut next = list;
        while let Some(info) = NonNull::new(next) {
            // SAFETY: every entry of the list is live and ours. fi_freeinfo frees an entry and those behind it, each
            // allocated by itself, so cutting the list changes nothing but who is freed with whom.
            next = unsafe { ptr::replace(&raw mut (*info.as_ptr()).next, ptr::null_mut()) };
            entries.push(Self { info, functions: library.functions() });
        }
        entries
    }

    /// The structure for a call that reads it.
    pub(crate) fn as_ptr(&self) -> *const sys::fi_info {
        self.info.as_ptr()
    }

    /// All parts, unless one is missing.
    pub(crate) fn parts(&self) -> Result<Parts<'_>, Error> {
        // SAFETY: the structure is ours, and each of its pointers is null or points to a structure of its
        // type that lives as long. A newer library's is longer; its beginning is the one bound here.
        unsafe { Parts::of(self.info.as_ref()) }.ok_or(Error::Incomplete { operation: "fi_getinfo" })
    }

    /// All parts, to be filled in, unless one is missing.
    pub(crate) fn parts_mut(&mut self) -> Result<PartsMut<'_>, Error> {
        // SAFETY: as in `parts`; the parts do not overlap, and this value is borrowed exclusively.
        unsafe { PartsMut::of(self.info.as_mut()) }.ok_or(Error::Incomplete { operation: "fi_dupinfo" })
    }

    /// The bytes of the local address, if there is one.
    pub(crate) fn source(&self) -> Option<&[u8]> {
        // SAFETY: the structure is ours.
        let info = unsafe { self.info.as_ref() };
        // SAFETY: the library gives pointer and length of one address, which lives as long.
        unsafe { bytes(info.src_addr.cast(), info.src_addrlen) }
    }

    /// The bytes of the peer's address, if there is one.
    pub(crate) fn destination(&self) -> Option<&[u8]> {
        // SAFETY: the structure is ours.
        let info = unsafe { self.info.as_ref() };
        // SAFETY: as in `source`.
        unsafe { bytes(info.dest_addr.cast(), info.dest_addrlen) }
    }

    /// What is known of the card, if there is one: device, bus and link.
    pub(crate) fn nic(&self) -> Option<NicParts<'_>> {
        // SAFETY: the pointer is null or points to a structure that lives as long as this value, as do its parts.
        unsafe {
            let nic = self.info.as_ref().nic.as_ref()?;
            Some(NicParts {
                device: nic.device_attr.as_ref(),
                bus: nic.bus_attr.as_ref(),
                link: nic.link_attr.as_ref(),
            })
        }
    }
}

/// The parts of a `struct fid_nic`.
pub(crate) struct NicParts<'a> {
    pub(crate) device: Option<&'a sys::fi_device_attr>,
    pub(crate) bus: Option<&'a sys::fi_bus_attr>,
    pub(crate) link: Option<&'a sys::fi_link_attr>,
}

impl Drop for RawInfo {
    fn drop(&mut self) {
        // Where the function is missing, none of these could have been made.
        // SAFETY: the structure is ours, and this is its end.
        let _ = unsafe { self.functions.fi_freeinfo(self.info.as_ptr()) };
    }
}

/// # Safety
///
/// `pointer` is null or points to `len` bytes that live as long as `'a`.
unsafe fn bytes<'a>(pointer: *const u8, len: usize) -> Option<&'a [u8]> {
    // SAFETY: passed on to the caller.
    (!pointer.is_null() && len > 0).then(|| unsafe { std::slice::from_raw_parts(pointer, len) })
}

/// A text of the library, if there is one, with what is not UTF-8 replaced.
///
/// # Safety
///
/// `pointer` is null or points to a NUL-terminated text.
pub(crate) unsafe fn text(pointer: *const c_char) -> Option<String> {
    // SAFETY: passed on to the caller.
    (!pointer.is_null()).then(|| unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned())
}
