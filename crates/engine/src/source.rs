//! The memory of this side of a transfer, in the forms that a program has it.

use farreach_memory::{Buffer, Shared, Slice};

/// Memory that a transfer takes, and returns in the same form: a [`Slice`], a [`Shared`], a [`Buffer`],
/// a `Vec<u8>` or a `Box<[u8]>`.
///
/// A vector is registered with cards in each transfer that needs it, which takes a system call.
/// Memory that is used often is better kept as a slice, which is registered once.
///
/// The trait is sealed.
pub trait Source: Sealed {}

/// Memory that a peer's bytes are read into: a [`Source`] that others cannot read meanwhile.
///
/// The length of a vector counts, and not its capacity.
///
/// A [`Shared`] is none:
///
/// ```compile_fail,E0277
/// # fn read(peer: &farreach::Peer, remote: &farreach::RemoteSlice, shared: farreach::Shared) {
/// let transfer = peer.read(remote, shared);
/// # }
/// ```
///
/// The trait is sealed.
pub trait Destination: Source {}

/// What a transfer does with its memory.
pub trait Sealed: Send + Sync + Sized + 'static {
    fn into_buffer(self) -> Buffer;

    /// Makes the form of before from the memory that came back. `None` if it is no such memory, which
    /// would be an error of the engine.
    fn from_buffer(buffer: Buffer) -> Option<Self>;
}

impl Source for Slice {}
impl Destination for Slice {}
impl Sealed for Slice {
    fn into_buffer(self) -> Buffer {
        self.into()
    }

    fn from_buffer(buffer: Buffer) -> Option<Self> {
        buffer.into_slice().ok()
    }
}

impl Source for Shared {}
impl Sealed for Shared {
    fn into_buffer(self) -> Buffer {
        self.into()
    }

    fn from_buffer(buffer: Buffer) -> Option<Self> {
        match buffer {
            Buffer::Shared(shared) => Some(shared),
            Buffer::Slice(_) | Buffer::Lent(_) | Buffer::Exposed(_) => None,
        }
    }
}

impl Source for Buffer {}
impl Sealed for Buffer {
    fn into_buffer(self) -> Buffer {
        self
    }

    fn from_buffer(buffer: Buffer) -> Option<Self> {
        Some(buffer)
    }
}

impl Source for Vec<u8> {}
impl Destination for Vec<u8> {}
impl Sealed for Vec<u8> {
    fn into_buffer(self) -> Buffer {
        Slice::from(self).into()
    }

    fn from_buffer(buffer: Buffer) -> Option<Self> {
        // Nothing else has a handle on the memory that was made for the transfer. If something had, the
        // bytes would be copied.
        let slice = buffer.into_slice().ok()?;
        Some(slice.into_vec().unwrap_or_else(|slice| slice.to_vec()))
    }
}

impl Source for Box<[u8]> {}
impl Destination for Box<[u8]> {}
impl Sealed for Box<[u8]> {
    fn into_buffer(self) -> Buffer {
        self.into_vec().into_buffer()
    }

    fn from_buffer(buffer: Buffer) -> Option<Self> {
        // It has no spare capacity, so nothing is copied.
        Vec::from_buffer(buffer).map(Vec::into_boxed_slice)
    }
}
