//! The scatter-gather list of a work request.

use std::mem::MaybeUninit;

use farreach_memory::{Buffer, DomainId};
use farreach_verbs_sys as sys;

use crate::wr::{Buffers, Refusal};

/// Maximum number of buffers of one work request: as many as any known device supports, and few
/// enough for the stack. Unused elements stay uninitialised.
pub(super) const BUFFERS_MAX: usize = 32;

/// How a queue names buffers to its device.
#[derive(Clone, Copy)]
pub(super) struct Naming {
    pub(super) domain: DomainId,
    /// Maximum number of buffers of a work request, at least one.
    pub(super) buffers_max: u32,
    /// `true` if the bytes are copied when the work request is posted, and need no key.
    pub(super) is_inline: bool,
}

/// The elements that were filled in.
#[derive(Clone, Copy)]
pub(super) struct Filled {
    pub(super) count: usize,
    /// The total length in bytes.
    pub(super) len: usize,
}

impl Naming {
    /// Fills in one element for each buffer, from the front of `elements`. `N` is 1 for work
    /// requests without a list.
    #[inline(always)]
    pub(super) fn fill<const N: usize>(
        self,
        elements: &mut [MaybeUninit<sys::ibv_sge>; N],
        buffers: &Buffers,
    ) -> Result<Filled, Refusal> {
        match buffers {
            Buffers::None => Ok(Filled { count: 0, len: 0 }),
            Buffers::One(buffer) => {
                elements[0].write(self.element(buffer)?);
                Ok(Filled { count: 1, len: buffer.len() })
            }
            Buffers::List(buffers) if N == 1 => Err(Refusal::too_many_buffers(buffers.len(), 1)),
            Buffers::List(buffers) => self.fill_list(elements, buffers),
        }
    }

    pub(super) fn fill_list(
        self,
        elements: &mut [MaybeUninit<sys::ibv_sge>],
        buffers: &[Buffer],
    ) -> Result<Filled, Refusal> {
        let max = self.buffers_max.min(BUFFERS_MAX as u32);
        if buffers.len() > max as usize {
            return Err(Refusal::too_many_buffers(buffers.len(), max));
        }
        let mut len = 0;
        for (element, buffer) in elements[..buffers.len()].iter_mut().zip(buffers) {
            element.write(self.element(buffer)?);
            len += buffer.len();
        }
        Ok(Filled { count: buffers.len(), len })
    }

    #[inline(always)]
    fn element(self, buffer: &Buffer) -> Result<sys::ibv_sge, Refusal> {
        let lkey = match buffer.local_key(self.domain) {
            Some(key) => key as u32,
            None if self.is_inline => 0,
            None => return Err(Refusal::not_registered()),
        };
        let len = buffer.len();
        let Ok(length) = u32::try_from(len) else {
            return Err(Refusal::too_long(len, u32::MAX as usize));
        };
        Ok(sys::ibv_sge { addr: buffer.address().as_ptr().expose_provenance() as u64, length, lkey })
    }
}

/// Checks that a device may write to all buffers, that is, that none is shared with readers.
#[inline(always)]
pub(super) fn writable(buffers: &Buffers) -> Result<(), Refusal> {
    match buffers.are_writable() {
        true => Ok(()),
        false => Err(Refusal::SharedDestination),
    }
}
