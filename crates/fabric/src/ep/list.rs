//! The buffers of an operation, as C names them.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};

use farreach_fabric_sys as sys;
use farreach_memory::Buffers;
use libc::iovec;

use super::Open;
use crate::Refusal;

/// Buffers of one operation: as many as any provider takes that we know of, and few enough for the stack.
pub(super) const BUFFERS_MAX: usize = 16;

/// The scatter-gather list of one operation.
pub(super) struct List {
    /// Filled up to `count`: an operation pays for the buffers that it has.
    iov: [MaybeUninit<iovec>; BUFFERS_MAX],
    descriptors: [MaybeUninit<*mut c_void>; BUFFERS_MAX],
    count: usize,
    /// The bytes of all.
    pub(super) len: usize,
}

impl List {
    #[inline]
    pub(super) fn new() -> Self {
        Self {
            iov: [const { MaybeUninit::uninit() }; BUFFERS_MAX],
            descriptors: [const { MaybeUninit::uninit() }; BUFFERS_MAX],
            count: 0,
            len: 0,
        }
    }

    /// Names the buffers to the provider, with their descriptors where it asks for them.
    #[inline]
    pub(super) fn fill(&mut self, buffers: &Buffers, open: &Open, max: usize) -> Result<(), Refusal> {
        let buffers = buffers.as_slice();
        let domain = open.local_domain();
        if buffers.len() > max {
            return Err(Refusal::TooManyBuffers { count: buffers.len(), max });
        }
        for buffer in buffers {
            let descriptor = match domain {
                Some(domain) => pointer(buffer.local_key(domain).ok_or(Refusal::NotRegistered)?),
                None => ptr::null_mut(),
            };
            self.push(buffer.address(), buffer.len(), descriptor);
        }
        if buffers.is_empty() {
            // One layer reads the first descriptor of any list, also of one that has none, and follows it.
            let key = domain.and_then(|domain| open.nothing.local_key(domain));
            self.push(open.nothing.address(), 0, key.map_or(ptr::null_mut(), pointer));
        }
        Ok(())
    }

    #[inline]
    fn push(&mut self, address: NonNull<u8>, iov_len: usize, descriptor: *mut c_void) {
        self.iov[self.count].write(iovec { iov_base: address.as_ptr().cast(), iov_len });
        self.descriptors[self.count].write(descriptor);
        self.count += 1;
        self.len += iov_len;
    }

    /// The one buffer of an atomic operation, which was checked to have one.
    pub(super) fn first(&self) -> (*mut c_void, *mut c_void) {
        assert!(self.count >= 1, "an atomic operation has a buffer");
        // SAFETY: the first was filled in.
        unsafe { (self.iov[0].assume_init().iov_base, self.descriptors[0].assume_init()) }
    }

    pub(super) fn msg(&mut self, addr: sys::fi_addr_t, context: *mut c_void, data: u64) -> sys::fi_msg {
        sys::fi_msg {
            msg_iov: self.iov.as_ptr().cast(),
            desc: self.descriptors.as_mut_ptr().cast(),
            iov_count: self.count,
            addr,
            context,
            data,
        }
    }

    pub(super) fn msg_rma(
        &mut self,
        addr: sys::fi_addr_t,
        remote: *const sys::fi_rma_iov,
        context: *mut c_void,
        data: u64,
    ) -> sys::fi_msg_rma {
        sys::fi_msg_rma {
            msg_iov: self.iov.as_ptr().cast(),
            desc: self.descriptors.as_mut_ptr().cast(),
            iov_count: self.count,
            addr,
            rma_iov: remote,
            rma_iov_count: 1,
            context,
            data,
        }
    }
}

/// A descriptor that was kept as a number.
#[inline]
pub(super) fn pointer(descriptor: u64) -> *mut c_void {
    ptr::with_exposed_provenance_mut(descriptor as usize)
}
