//! The functions of the loaded library, and `struct fi_info`. Only this file dereferences its
//! pointers.

use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr::{self, NonNull};
use std::sync::{Mutex, PoisonError};

use farreach_fabric_sys as sys;
use farreach_fabric_sys::Libfabric;

use crate::{Error, Library, LinkState, Nic, PciAddress, SymbolMissing};

/// `fi_version(3)`
pub(crate) fn version(functions: &Libfabric) -> Result<u32, SymbolMissing> {
    // SAFETY: the function takes no argument and only reads a constant of the library.
    unsafe { functions.fi_version() }
}

/// `fi_strerror(3)`
pub(crate) fn strerror(functions: &Libfabric, errno: c_int) -> Option<String> {
    // SAFETY: the function accepts any number, and returns one of its static texts.
    unsafe { functions.fi_strerror(errno).ok().and_then(|message| text(message)) }
}

/// One `struct fi_info` that the library allocated and this value owns. Its `next` is null.
///
/// Invariant: each pointer in it, and in the structures that it leads to, is null or points to a
/// value of its C type, NUL-terminated if that is a text. All of it belongs to this value alone,
/// lives as long, and is freed by `fi_freeinfo`. Structures of a newer library are longer than the
/// ones bound here, and begin with them.
///
/// This holds because only `fi_getinfo` and `fi_dupinfo` create the structure, and no code outside
/// of this file can change a pointer in it: others have shared references only.
pub(crate) struct RawInfo {
    info: NonNull<sys::fi_info>,
    functions: &'static Libfabric,
}

// SAFETY: by the invariant everything behind the pointer belongs to this value alone. It is plain
// memory, which the library frees on any thread.
unsafe impl Send for RawInfo {}
// SAFETY: every method that takes `&self` only reads the structure, `fi_dupinfo` included.
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

/// As [`Parts`], mutably. It stays in this file: its owner can break the invariant of [`RawInfo`].
struct PartsMut<'a> {
    info: &'a mut sys::fi_info,
    transmit: &'a mut sys::fi_tx_attr,
    receive: &'a mut sys::fi_rx_attr,
    endpoint: &'a mut sys::fi_ep_attr,
    domain: &'a mut sys::fi_domain_attr,
    fabric: &'a mut sys::fi_fabric_attr,
}

/// The conditions of a query.
pub(crate) struct Wanted {
    pub(crate) capabilities: u64,
    pub(crate) mode: u64,
    pub(crate) endpoint_type: sys::fi_ep_type,
    pub(crate) mr_mode: c_int,
    pub(crate) threading: sys::fi_threading,
    pub(crate) traffic_class: u32,
    pub(crate) message_order: u64,
    pub(crate) provider: Option<CString>,
    pub(crate) fabric: Option<CString>,
    pub(crate) domain: Option<CString>,
}

impl RawInfo {
    /// Queries the providers: `fi_getinfo(3)`, one call at a time.
    pub(crate) fn query(
        library: &Library,
        hints: &Self,
        (node, service): (Option<CString>, Option<CString>),
        flags: u64,
    ) -> Result<Vec<Self>, Error> {
        /// The manual does not state that several threads may call the function, and the first call
        /// loads providers.
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

        let functions = library.functions();
        let c_str = |text: &Option<CString>| text.as_ref().map_or(ptr::null(), |text| text.as_ptr());
        let (node, service, mut list) = (c_str(&node), c_str(&service), ptr::null_mut());
        let status = {
            let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
            // SAFETY: node and service are null or texts of the two `CString`s, which live until
            // this function returns. The hints are a structure of the library, by the invariant,
            // and `list` is a local for the result.
            unsafe {
                functions.fi_getinfo(sys::API_VERSION, node, service, flags, hints.as_ptr(), &raw mut list)
            }?
        };
        if status != 0 {
            return Err(library.error("fi_getinfo", status));
        }
        let mut entries = Vec::new();
        while let Some(info) = NonNull::new(list) {
            // SAFETY: the call succeeded, so every entry of the list is a live structure without
            // another owner. fi_freeinfo frees an entry and those behind it, each of which is a
            // separate allocation: cut off here, each is freed by its own `RawInfo`.
            list = unsafe { ptr::replace(&raw mut (*info.as_ptr()).next, ptr::null_mut()) };
            entries.push(Self { info, functions });
        }
        Ok(entries)
    }

    /// Creates hints for [`query`](Self::query).
    pub(crate) fn hints(library: &Library, wanted: &Wanted) -> Result<Self, Error> {
        let mut raw = Self::dup(library, None)?;
        let parts = raw.parts_mut()?;
        parts.info.caps = wanted.capabilities;
        parts.info.mode = wanted.mode;
        parts.endpoint.type_ = wanted.endpoint_type;
        parts.domain.mr_mode = wanted.mr_mode;
        parts.domain.threading = wanted.threading;
        parts.domain.tclass = wanted.traffic_class;
        parts.transmit.tclass = wanted.traffic_class;
        parts.transmit.msg_order = wanted.message_order;
        parts.receive.msg_order = wanted.message_order;
        for (place, name) in [
            (&mut parts.fabric.prov_name, &wanted.provider),
            (&mut parts.fabric.name, &wanted.fabric),
            (&mut parts.domain.name, &wanted.domain),
        ] {
            let Some(name) = name else { continue };
            // SAFETY: a `CString` is NUL-terminated. The copy is allocated by malloc, as
            // `fi_freeinfo` requires of a name.
            let copy = unsafe { libc::strdup(name.as_ptr()) };
            if copy.is_null() {
                return Err(library.error("strdup", -sys::FI_ENOMEM));
            }
            *place = copy;
        }
        Ok(raw)
    }

    /// Returns an independent copy.
    pub(crate) fn duplicate(&self, library: &Library) -> Result<Self, Error> {
        Self::dup(library, Some(self))
    }

    /// Returns a copy as a hint that asks for completions that prove delivery.
    pub(crate) fn with_delivery(&self, library: &Library) -> Result<Self, Error> {
        let mut raw = self.duplicate(library)?;
        raw.parts_mut()?.transmit.op_flags |= sys::FI_DELIVERY_COMPLETE;
        Ok(raw)
    }

    /// Returns a copy, or an empty structure with all its parts: `fi_dupinfo(3)`.
    fn dup(library: &Library, info: Option<&Self>) -> Result<Self, Error> {
        let functions = library.functions();
        let info = info.map_or(ptr::null(), Self::as_ptr);
        // SAFETY: the pointer is null, or by the invariant a structure of the library, which the
        // call only reads. The result is a new allocation, with everything that it leads to; for
        // null it is what C calls `fi_allocinfo`.
        let copy = unsafe { functions.fi_dupinfo(info) }?;
        match NonNull::new(copy) {
            Some(info) => Ok(Self { info, functions }),
            None => Err(library.error("fi_dupinfo", -sys::FI_ENOMEM)),
        }
    }

    /// Returns the structure for a call that reads it.
    pub(crate) fn as_ptr(&self) -> *const sys::fi_info {
        self.info.as_ptr()
    }

    fn info(&self) -> &sys::fi_info {
        // SAFETY: by the invariant the structure lives as long as `self`, and it is changed only
        // through `&mut self`.
        unsafe { self.info.as_ref() }
    }

    /// Returns all parts. Fails if one is missing.
    pub(crate) fn parts(&self) -> Result<Parts<'_>, Error> {
        let info = self.info();
        // SAFETY: by the invariant each pointer is null or leads to such a structure, which lives
        // as long as `self` and is changed only through `&mut self`.
        let parts = unsafe {
            (
                info.tx_attr.as_ref(),
                info.rx_attr.as_ref(),
                info.ep_attr.as_ref(),
                info.domain_attr.as_ref(),
                info.fabric_attr.as_ref(),
            )
        };
        let (Some(transmit), Some(receive), Some(endpoint), Some(domain), Some(fabric)) = parts else {
            return Err(Error::Incomplete { operation: "fi_getinfo" });
        };
        Ok(Parts { info, transmit, receive, endpoint, domain, fabric })
    }

    /// Returns all parts, mutably. Fails if one is missing.
    fn parts_mut(&mut self) -> Result<PartsMut<'_>, Error> {
        // SAFETY: by the invariant each pointer is null or leads to such a structure, which belongs
        // to this value alone; `self` is borrowed exclusively. The structures are separate
        // allocations, so none overlaps another.
        let (info, parts) = unsafe {
            let info = self.info.as_mut();
            let parts = (
                info.tx_attr.as_mut(),
                info.rx_attr.as_mut(),
                info.ep_attr.as_mut(),
                info.domain_attr.as_mut(),
                info.fabric_attr.as_mut(),
            );
            (info, parts)
        };
        let (Some(transmit), Some(receive), Some(endpoint), Some(domain), Some(fabric)) = parts else {
            return Err(Error::Incomplete { operation: "fi_dupinfo" });
        };
        Ok(PartsMut { info, transmit, receive, endpoint, domain, fabric })
    }

    /// Returns the names of provider, fabric and domain; empty if there is none.
    pub(crate) fn names(&self) -> Result<[String; 3], Error> {
        let Parts { domain, fabric, .. } = self.parts()?;
        // SAFETY: by the invariant each name is null or a NUL-terminated text that lives as long as
        // `self`.
        let name = |name: *mut c_char| unsafe { text(name) }.unwrap_or_default();
        Ok([fabric.prov_name, fabric.name, domain.name].map(name))
    }

    /// Returns the bytes of the local address, if there is one.
    pub(crate) fn source(&self) -> Option<&[u8]> {
        let info = self.info();
        // SAFETY: by the invariant the address has as many bytes as the structure states, and lives
        // as long as `self`.
        unsafe { bytes(info.src_addr.cast(), info.src_addrlen) }
    }

    /// Returns the bytes of the peer's address, if there is one.
    pub(crate) fn destination(&self) -> Option<&[u8]> {
        let info = self.info();
        // SAFETY: by the invariant, as for the local address.
        unsafe { bytes(info.dest_addr.cast(), info.dest_addrlen) }
    }

    /// Returns the properties of the card, if there is one.
    pub(crate) fn nic(&self) -> Option<Nic> {
        // SAFETY: by the invariant each pointer is null or leads to a structure that lives as long
        // as `self`, and so do the texts in it.
        unsafe {
            let nic = self.info().nic.as_ref()?;
            Some(copy_nic(nic.device_attr.as_ref(), nic.bus_attr.as_ref(), nic.link_attr.as_ref()))
        }
    }
}

impl Drop for RawInfo {
    fn drop(&mut self) {
        // If the function were missing, this value could not have been created.
        // SAFETY: by the invariant the structure is this value's alone, whose end this is. Its
        // `next` is null, so nothing else is freed.
        let _ = unsafe { self.functions.fi_freeinfo(self.info.as_ptr()) };
    }
}

/// Copies the content of a `struct fid_nic`.
///
/// # Safety
///
/// Every text of these structures is null or NUL-terminated.
unsafe fn copy_nic(
    device: Option<&sys::fi_device_attr>,
    bus: Option<&sys::fi_bus_attr>,
    link: Option<&sys::fi_link_attr>,
) -> Nic {
    // SAFETY: the caller guarantees the texts of all three structures, and no others are passed.
    let copy = |pointer: *mut c_char| unsafe { text(pointer) };
    let pci = bus.filter(|bus| bus.bus_type == sys::FI_BUS_PCI).map(|bus| {
        // SAFETY: the type of the bus states that the union holds this, and it consists of
        // integers.
        let pci = unsafe { bus.attr.pci };
        PciAddress {
            domain: pci.domain_id,
            bus: pci.bus_id,
            device: pci.device_id,
            function: pci.function_id,
        }
    });
    Nic {
        device: device.and_then(|device| copy(device.name)),
        device_id: device.and_then(|device| copy(device.device_id)),
        device_version: device.and_then(|device| copy(device.device_version)),
        vendor_id: device.and_then(|device| copy(device.vendor_id)),
        driver: device.and_then(|device| copy(device.driver)),
        firmware: device.and_then(|device| copy(device.firmware)),
        pci,
        link_address: link.and_then(|link| copy(link.address)),
        mtu: link.map_or(0, |link| link.mtu),
        speed_bits_per_second: link.map_or(0, |link| link.speed),
        link_state: link.map_or(LinkState::Unknown, |link| LinkState::from_c(link.state)),
        network_type: link.and_then(|link| copy(link.network_type)),
    }
}

/// # Safety
///
/// `pointer` is null or points to `len` bytes that live as long as `'a`.
unsafe fn bytes<'a>(pointer: *const u8, len: usize) -> Option<&'a [u8]> {
    // SAFETY: the pointer is not null, so the caller guarantees that many bytes.
    (!pointer.is_null() && len > 0).then(|| unsafe { std::slice::from_raw_parts(pointer, len) })
}

/// Copies a text of the library, if there is one. Replaces invalid UTF-8.
///
/// # Safety
///
/// `pointer` is null or points to a NUL-terminated text.
pub(crate) unsafe fn text(pointer: *const c_char) -> Option<String> {
    // SAFETY: the pointer is not null, so the caller guarantees the text.
    (!pointer.is_null()).then(|| unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_is_copied_out() {
        let device = sys::fi_device_attr {
            name: c"rdmap0".as_ptr().cast_mut(),
            device_id: c"0xefa1".as_ptr().cast_mut(),
            device_version: ptr::null_mut(),
            vendor_id: c"0x1d0f".as_ptr().cast_mut(),
            driver: c"efa".as_ptr().cast_mut(),
            firmware: ptr::null_mut(),
        };
        let pci = sys::fi_pci_attr { domain_id: 1, bus_id: 0x4f, device_id: 2, function_id: 0 };
        let mut bus =
            sys::fi_bus_attr { bus_type: sys::FI_BUS_PCI, attr: sys::fi_bus_attr__bindgen_ty_1 { pci } };
        let link = sys::fi_link_attr {
            address: ptr::null_mut(),
            mtu: 8760,
            speed: 100_000_000_000,
            state: sys::FI_LINK_UP,
            network_type: c"Ethernet".as_ptr().cast_mut(),
        };

        // SAFETY: every text is null or a C string literal.
        let nic = unsafe { copy_nic(Some(&device), Some(&bus), Some(&link)) };
        assert_eq!(nic.device.as_deref(), Some("rdmap0"));
        assert_eq!(nic.firmware, None);
        assert_eq!(nic.pci.map(|pci| pci.to_string()).as_deref(), Some("0001:4f:02.0"));
        assert_eq!((nic.mtu, nic.speed_bits_per_second), (8760, 100_000_000_000));
        assert_eq!(nic.link_state, LinkState::Up);

        bus.bus_type = sys::FI_BUS_UNKNOWN;
        // SAFETY: a bus has no text.
        let nic = unsafe { copy_nic(None, Some(&bus), None) };
        assert_eq!((nic.device, nic.pci, nic.link_state), (None, None, LinkState::Unknown));
    }
}
