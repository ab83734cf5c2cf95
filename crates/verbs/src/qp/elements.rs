//! The scatter-gather list of a request.

use std::mem::MaybeUninit;

use farreach_memory::{Buffer, DomainId};
use farreach_verbs_sys as sys;

use crate::wr::{Buffers, Refusal};

/// Buffers of one request: as many as any device takes that we know of, and few enough for the stack, where nothing is
/// filled in for those that a request does not have.
pub(super) const BUFFERS_MAX: usize = 32;

/// How a queue names buffers to its device.
#[derive(Clone, Copy)]
pub(super) struct Naming {
    pub(super) domain: DomainId,
    /// How many buffers a request has at most: one always.
    pub(super) buffers_max: u32,
    /// The bytes are copied when the request is posted, and need no key.
    pub(super) is_inline: bool,
}

/// What was filled in.
#[derive(Clone, Copy)]
pub(super) struct Filled {
    pub(super) count: usize,
    /// The bytes of all of them.
    pub(super) len: usize,
}

impl Naming {
    /// Fills in one element for each buffer, from the front of `elements`: of which there is one, for requests without a list, or
    /// as many as a request has.
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

/// Nobody may read what a device writes to.
#[inline(always)]
pub(super) fn writable(buffers: &Buffers) -> Result<(), Refusal> {
    match buffers.are_writable() {
        true => Ok(()),
        false => Err(Refusal::SharedDestination),
    }
}
