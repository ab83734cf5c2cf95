//! Where the simulated cards touch memory.

use farreach_memory::{AttachReason, Buffers, DomainId, Memory, Registration, Release};

/// What a card that does not exist keeps of a registration.
struct Forgotten;

impl Release for Forgotten {
    // A request in flight has its buffers, so pages that are freed are in none.
    fn release(self: Box<Self>) -> bool {
        true
    }
}

/// Registers pages with a card; again it does nothing.
#[expect(unsafe_code, reason = "a provider vouches for what it attaches")]
pub(super) fn register(memory: &Memory, domain: DomainId) -> Result<(), AttachReason> {
    let registration = Registration::new(domain, 0, Box::new(Forgotten));
    // SAFETY: the domain is one simulated card's, which reaches the pages only by buffers that it was handed, and so never through a key.
    match unsafe { memory.attach(registration) } {
        Ok(()) => Ok(()),
        Err(error) if error.reason == AttachReason::AlreadyRegistered => Ok(()),
        Err(error) => Err(error.reason),
    }
}

/// A card reads a part of a request's bytes.
#[expect(unsafe_code, reason = "the bytes of a lent slice can be reached in no other way")]
pub(super) fn gather(buffers: &Buffers, mut offset: usize, mut into: &mut [u8]) {
    for buffer in buffers.as_slice() {
        let len = buffer.len().saturating_sub(offset).min(into.len());
        let (part, rest) = into.split_at_mut(len);
        if len > 0 {
            // SAFETY: `offset + len` is at most the buffer's length. The request has the buffer, so that its memory is there, and nobody but
            // cards of this network writes to it; those do it one at a time, under the network's lock. `part` is not that memory: it is
            // the network's own.
            unsafe { buffer.address().as_ptr().add(offset).copy_to_nonoverlapping(part.as_mut_ptr(), len) };
        }
        (into, offset) = (rest, offset.saturating_sub(buffer.len()));
    }
}

/// A card writes a part of what a request asked for.
#[expect(unsafe_code, reason = "the bytes of a lent slice can be reached in no other way")]
pub(super) fn scatter(buffers: &Buffers, mut offset: usize, mut from: &[u8]) {
    assert!(buffers.are_writable(), "such a request is not taken");
    for buffer in buffers.as_slice() {
        let len = buffer.len().saturating_sub(offset).min(from.len());
        let (part, rest) = from.split_at(len);
        if len > 0 {
            // SAFETY: as in `gather`; and what is writable is named by nobody while a request has it.
            unsafe { buffer.address().as_ptr().add(offset).copy_from_nonoverlapping(part.as_ptr(), len) };
        }
        (from, offset) = (rest, offset.saturating_sub(buffer.len()));
    }
}

#[cfg(test)]
mod tests {
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
            gather(&buffers, offset, &mut bytes);
            assert_eq!(bytes, b"abcdefghijklmn"[offset..offset + len]);
        }
        scatter(&buffers, 4, b"EFG");
        let mut bytes = [0; 14];
        gather(&buffers, 0, &mut bytes);
        assert_eq!(&bytes, b"abcdEFGhijklmn");
    }
}
