//! The buffers of an operation, as C structures.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr;

use farreach_fabric_sys as sys;
use farreach_memory::{Buffer, Buffers};
use libc::iovec;

use super::Open;
use crate::Refusal;

/// The maximum number of buffers of one operation: as many as any known provider supports, and few
/// enough for the stack.
pub(super) const BUFFERS_MAX: usize = 16;

/// The scatter-gather list of one operation, with at most `N` buffers. Unused entries are not
/// initialised, so that an operation pays only for the buffers that it has.
pub(super) struct List<const N: usize> {
    iov: [MaybeUninit<iovec>; N],
    descriptors: [MaybeUninit<*mut c_void>; N],
}

/// The filled part of a list. It is separate from the list, whose address is passed to the
/// provider, so that it may stay in registers.
#[derive(Clone, Copy)]
pub(super) struct Filled {
    pub(super) count: usize,
    /// The number of bytes of all buffers.
    pub(super) len: usize,
}

impl<const N: usize> List<N> {
    #[inline(always)]
    pub(super) fn new() -> Self {
        Self { iov: [const { MaybeUninit::uninit() }; N], descriptors: [const { MaybeUninit::uninit() }; N] }
    }

    /// Lists the buffers for the provider, with their descriptors if it requires them.
    #[inline(always)]
    pub(super) fn fill(&mut self, buffers: &Buffers, open: &Open, max: usize) -> Result<Filled, Refusal> {
        match buffers {
            Buffers::None => Ok(self.fill_with_nothing(open)),
            Buffers::One(buffer) => {
                self.set(0, buffer, open)?;
                Ok(Filled { count: 1, len: buffer.len() })
            }
            Buffers::List(buffers) => self.fill_with_list(buffers, open, max.min(N)),
        }
    }

    #[inline(never)]
    fn fill_with_list(&mut self, buffers: &[Buffer], open: &Open, max: usize) -> Result<Filled, Refusal> {
        if buffers.len() > max {
            return Err(Refusal::TooManyBuffers { count: buffers.len(), max });
        }
        if buffers.is_empty() {
            return Ok(self.fill_with_nothing(open));
        }
        let mut len = 0;
        for (index, buffer) in buffers.iter().enumerate() {
            self.set(index, buffer, open)?;
            len += buffer.len();
        }
        Ok(Filled { count: buffers.len(), len })
    }

    /// Lists an empty buffer: one layer reads the first descriptor of any list, even of an empty
    /// one, and dereferences it.
    #[inline(never)]
    fn fill_with_nothing(&mut self, open: &Open) -> Filled {
        let key = open.local_domain().and_then(|domain| open.nothing.local_key(domain));
        self.iov[0].write(iovec { iov_base: open.nothing.address().as_ptr().cast(), iov_len: 0 });
        self.descriptors[0].write(key.map_or(ptr::null_mut(), pointer));
        Filled { count: 1, len: 0 }
    }

    #[inline(always)]
    fn set(&mut self, index: usize, buffer: &Buffer, open: &Open) -> Result<(), Refusal> {
        self.iov[index].write(iovec { iov_base: buffer.address().as_ptr().cast(), iov_len: buffer.len() });
        self.descriptors[index].write(ptr::null_mut());
        if let Some(domain) = open.local_domain() {
            let key = buffer.local_key(domain).ok_or(Refusal::NotRegistered)?;
            self.descriptors[index].write(pointer(key));
        }
        Ok(())
    }

    /// Returns the one buffer of an atomic operation, and its descriptor. They are uninitialised if
    /// the list is not filled.
    pub(super) fn first(&self) -> (MaybeUninit<iovec>, MaybeUninit<*mut c_void>) {
        (self.iov[0], self.descriptors[0])
    }

    #[inline(always)]
    pub(super) fn msg(
        &mut self,
        filled: Filled,
        addr: sys::fi_addr_t,
        context: *mut c_void,
        data: u64,
    ) -> sys::fi_msg {
        sys::fi_msg {
            msg_iov: self.iov.as_ptr().cast(),
            desc: self.descriptors.as_mut_ptr().cast(),
            iov_count: filled.count,
            addr,
            context,
            data,
        }
    }

    #[inline(always)]
    pub(super) fn msg_rma(
        &mut self,
        filled: Filled,
        addr: sys::fi_addr_t,
        ranges: &[sys::fi_rma_iov],
        context: *mut c_void,
        data: u64,
    ) -> sys::fi_msg_rma {
        sys::fi_msg_rma {
            msg_iov: self.iov.as_ptr().cast(),
            desc: self.descriptors.as_mut_ptr().cast(),
            iov_count: filled.count,
            addr,
            rma_iov: ranges.as_ptr(),
            rma_iov_count: ranges.len(),
            context,
            data,
        }
    }
}

/// Restores a descriptor that was kept as a number.
#[inline(always)]
pub(super) fn pointer(descriptor: u64) -> *mut c_void {
    ptr::with_exposed_provenance_mut(descriptor as usize)
}
