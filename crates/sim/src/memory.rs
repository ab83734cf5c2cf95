//! Memory accesses of simulated cards.

use std::convert::Infallible;
use std::ptr::NonNull;

use farreach_memory::{AttachError, Buffer, DomainId, Memory, Registration, Release};

/// The registration of a simulated card.
struct Forgotten;

impl Release for Forgotten {
    // A work request in flight owns its buffers, so pages that are freed belong to none.
    fn release(self: Box<Self>) -> bool {
        true
    }

    #[expect(unsafe_code, reason = "the trait demands it; a simulated card finds pages by address")]
    unsafe fn renew(&self, _: NonNull<u8>, _: usize) -> Result<Registration, String> {
        Ok(Registration::new(0, Box::new(Self)))
    }
}

/// Registers memory with a card, and calls `note`. A second call for the same memory does nothing.
#[expect(unsafe_code, reason = "a provider guarantees the properties of what it attaches")]
pub(super) fn register(
    memory: &Memory,
    domain: DomainId,
    note: impl FnOnce(),
) -> Result<(), AttachError<Infallible>> {
    let register = || {
        note();
        Ok(Registration::new(0, Box::new(Forgotten)))
    };
    // SAFETY: the domain belongs to one simulated card, which reaches the pages only through
    // buffers that it was handed, and never by a key.
    unsafe { memory.attach(domain, register) }
}

/// Reads a part of a work request's bytes.
#[expect(unsafe_code, reason = "the bytes of a lent slice can be reached in no other way")]
pub(super) fn gather(buffers: &[Buffer], mut offset: usize, mut into: &mut [u8]) {
    for buffer in buffers {
        let len = buffer.len().saturating_sub(offset).min(into.len());
        let (part, rest) = into.split_at_mut(len);
        if len > 0 {
            // SAFETY: `offset + len` is at most the buffer's length. The work request owns the
            // buffer, so its memory is mapped, and only cards of this network write to it, one at a
            // time, under the network's lock. `part` does not overlap it: it is memory of the
            // network itself.
            unsafe { buffer.address().as_ptr().add(offset).copy_to_nonoverlapping(part.as_mut_ptr(), len) };
        }
        (into, offset) = (rest, offset.saturating_sub(buffer.len()));
    }
}

/// Writes a part of the answer to a work request.
#[expect(unsafe_code, reason = "the bytes of a lent slice can be reached in no other way")]
pub(super) fn scatter(buffers: &[Buffer], mut offset: usize, mut from: &[u8]) {
    assert!(
        buffers.iter().all(Buffer::is_writable),
        "work requests that write to shared buffers are refused"
    );
    for buffer in buffers {
        let len = buffer.len().saturating_sub(offset).min(from.len());
        let (part, rest) = from.split_at(len);
        if len > 0 {
            // SAFETY: as in `gather`. In addition, no reference to a writable buffer exists while a
            // work request owns it.
            unsafe { buffer.address().as_ptr().add(offset).copy_from_nonoverlapping(part.as_ptr(), len) };
        }
        (from, offset) = (rest, offset.saturating_sub(buffer.len()));
    }
}

#[cfg(test)]
mod tests {
    use farreach_memory::Buffers;

    use super::*;

    #[test]
    fn parts_meet_the_right_bytes_of_several_buffers() {
        let [mut one, two, mut three] = [5, 0, 9].map(|len: usize| {
            let mut slice = Memory::allocate(len.max(1)).unwrap();
            drop(slice.split_off(len));
            slice
        });
        one.copy_from_slice(b"abcde");
        three.copy_from_slice(b"fghijklmn");
        let lent = three.lend();
        let buffers = Buffers::from(vec![one.into(), two.into(), lent.get(..).unwrap().into()]);
        for (offset, len) in [(0, 14), (3, 4), (5, 9), (13, 1), (4, 0)] {
            let mut bytes = vec![0; len];
            gather(buffers.as_slice(), offset, &mut bytes);
            assert_eq!(bytes, b"abcdefghijklmn"[offset..offset + len]);
        }
        scatter(buffers.as_slice(), 4, b"EFG");
        let mut bytes = [0; 14];
        gather(buffers.as_slice(), 0, &mut bytes);
        assert_eq!(&bytes, b"abcdEFGhijklmn");
    }
}
