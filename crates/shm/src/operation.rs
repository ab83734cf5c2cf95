//! An operation of this side: copies and atomics on memory of the peer, in steps.

use std::sync::atomic::{AtomicU64, Ordering};

use farreach_memory::{Buffer, Buffers};

use crate::copy::copy;
use crate::error::OperationError;
use crate::grants::Key;
use crate::remote::{Place, RemoteKeys};
use crate::segment::{Segment, Side};
use crate::words::Words;

/// The bytes that one step copies, so that one transfer does not delay others for long: some 20 µs.
pub(crate) const STEP: usize = 256 << 10;

/// A range of granted memory.
///
/// ```
/// use farreach_shm::Target;
///
/// let page = Target { key: 7, offset: 4096, len: 4096 };
/// assert_eq!(page.offset + page.len, 8192);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    /// The key, as the peer's [`Link::grant`](crate::Link::grant) has returned it.
    pub key: u64,
    /// The offset in the grant, in bytes.
    pub offset: u64,
    /// The length in bytes.
    pub len: u64,
}

/// A work request.
#[derive(Debug, Clone, Copy)]
pub enum Request<'a> {
    /// Writes the buffers to ranges of the peer's memory, one after the other.
    Write {
        /// The ranges: at least one, with as many bytes as the buffers.
        targets: &'a [Target],
        /// The immediate that the peer gets when all bytes are there.
        immediate: Option<u32>,
    },
    /// Reads ranges of the peer's memory into the buffers, one after the other.
    Read {
        /// The ranges: at least one, with as many bytes as the buffers.
        targets: &'a [Target],
    },
    /// Sends the buffers as a message.
    Send,
    /// Adds to a word. Stores the previous value in the buffer of eight bytes.
    FetchAdd {
        /// Eight bytes, aligned to eight.
        target: Target,
        /// The value to add.
        add: u64,
    },
    /// Replaces a word if it has the expected value. Stores the previous value in the buffer of
    /// eight bytes.
    CompareSwap {
        /// Eight bytes, aligned to eight.
        target: Target,
        /// The expected value.
        expected: u64,
        /// The new value.
        desired: u64,
    },
}

/// The direction of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// To the peer.
    Write,
    /// From the peer.
    Read,
}

/// A change of a word.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Change {
    Add(u64),
    Swap { expected: u64, desired: u64 },
}

/// How far a copy is.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Cursor {
    target: usize,
    in_target: u64,
    buffer: usize,
    in_buffer: usize,
}

impl Cursor {
    /// Begins at this byte of the first buffer.
    pub(crate) fn from_offset(in_buffer: usize) -> Self {
        Self { in_buffer, ..Self::default() }
    }
}

/// The result of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Done,
    More,
}

/// What operations look at: the keys of the peer, and their generations.
#[derive(Debug)]
pub(crate) struct View<'a> {
    pub(crate) keys: &'a RemoteKeys,
    pub(crate) segment: &'a Segment,
    pub(crate) peer: Side,
}

impl View<'_> {
    /// Copies at most `budget` bytes.
    #[inline]
    pub(crate) fn copy(
        &self,
        direction: Direction,
        targets: &[Target],
        buffers: &[Buffer],
        cursor: &mut Cursor,
        budget: usize,
    ) -> Result<Step, OperationError> {
        let first = cursor.target;
        let step = self.copy_some(direction, targets, buffers, cursor, budget)?;
        let last = cursor.target.min(targets.len() - 1);
        // Between the copy and the look at the generations: see `OwnGrants::raise`.
        self.segment.fence();
        self.check_generations(&targets[first..=last])?;
        Ok(step)
    }

    fn copy_some(
        &self,
        direction: Direction,
        targets: &[Target],
        buffers: &[Buffer],
        cursor: &mut Cursor,
        mut budget: usize,
    ) -> Result<Step, OperationError> {
        // In registers, and stored back at the end.
        let mut at = *cursor;
        // What is left of the current buffer. There may be none at all, for a target without bytes.
        let rest = |buffer: &Buffer, from: usize| {
            (buffer.address().as_ptr().wrapping_add(from), buffer.len() - from)
        };
        let (mut local, mut local_left) =
            buffers.get(at.buffer).map_or((std::ptr::null_mut(), 0), |buffer| rest(buffer, at.in_buffer));
        // The targets of a transfer have one key. It cannot end meanwhile: the keys are borrowed.
        let mut last: Option<(u64, &Place)> = None;
        for target in &targets[at.target..] {
            let place = match last {
                Some((key, place)) if key == target.key => place,
                _ => {
                    let place = self.place(target.key)?;
                    if direction == Direction::Write {
                        place.check_writable()?;
                    }
                    last = Some((target.key, place));
                    place
                }
            };
            let address = place.address(target.offset, target.len)?.as_ptr();
            let mut remote = address.wrapping_add(at.in_target as usize);
            let mut remote_left = (target.len - at.in_target) as usize;
            while remote_left > 0 {
                if local_left == 0 {
                    at.buffer += 1;
                    // There are as many bytes (`Link::post`, `Link::perform`), so a buffer is left.
                    (local, local_left) = rest(&buffers[at.buffer], 0);
                    continue;
                }
                let len = remote_left.min(local_left).min(budget);
                if len == 0 {
                    at.in_target = target.len - remote_left as u64;
                    at.in_buffer = buffers[at.buffer].len() - local_left;
                    *cursor = at;
                    return Ok(Step::More);
                }
                // SAFETY: `address` has checked that all of the target is within the grant, and that
                // many bytes of it are left. The operation owns its buffers, or has borrowed the only
                // one exclusively (`Link::perform`), and that many bytes are left of this one. A read
                // writes only to buffers that no one can refer to: `Link::post` and `Link::perform`
                // have checked that they are writable. The keys are borrowed, so the
                // mapping stays. Memory of the peer has no references in this process: it is either
                // of another process, or exposed.
                unsafe {
                    match direction {
                        Direction::Write => copy(local, remote, len),
                        Direction::Read => copy(remote, local, len),
                    }
                }
                (local, remote) = (local.wrapping_add(len), remote.wrapping_add(len));
                (local_left, remote_left, budget) = (local_left - len, remote_left - len, budget - len);
            }
            (at.target, at.in_target) = (at.target + 1, 0);
        }
        *cursor = at;
        Ok(Step::Done)
    }

    /// Returns an error if one of the grants was revoked.
    #[inline]
    pub(crate) fn check_generations(&self, targets: &[Target]) -> Result<(), OperationError> {
        let mut checked = None;
        for target in targets {
            if checked != Some(target.key) {
                checked = Some(target.key);
                if self.generation(target.key) != Key(target.key).generation() {
                    return Err(OperationError::Revoked);
                }
            }
        }
        Ok(())
    }

    /// Changes a word. Returns its previous value.
    pub(crate) fn change(&self, target: Target, change: Change) -> Result<u64, OperationError> {
        let place = self.place(target.key)?;
        place.check_writable()?;
        let address = place.address(target.offset, 8)?;
        if !address.as_ptr().addr().is_multiple_of(8) || target.len != 8 {
            return Err(OperationError::NotAWord);
        }
        self.check_generations(&[target])?;
        // SAFETY: eight bytes are within the grant, aligned, and mapped for writing while the keys
        // are borrowed. No reference to them exists in this process, as for copies.
        let word = unsafe { AtomicU64::from_ptr(address.cast().as_ptr()) };
        let before = match change {
            Change::Add(add) => word.fetch_add(add, Ordering::SeqCst),
            Change::Swap { expected, desired } => {
                let result = word.compare_exchange(expected, desired, Ordering::SeqCst, Ordering::SeqCst);
                result.unwrap_or_else(|before| before)
            }
        };
        self.segment.fence();
        self.check_generations(&[target]).map_err(|_| OperationError::InDoubt)?;
        Ok(before)
    }

    #[inline]
    fn place(&self, key: u64) -> Result<&Place, OperationError> {
        match self.keys.get(Key(key)) {
            Some(place) => place,
            // A key that was revoked is forgotten here, and has a higher generation there.
            None if self.generation(key) > Key(key).generation() => Err(OperationError::Revoked),
            None => Err(OperationError::UnknownKey { key }),
        }
    }

    #[inline]
    fn generation(&self, key: u64) -> u64 {
        self.segment.load(self.peer.generation_at(Key(key).slot()), Ordering::Relaxed)
    }
}

/// An operation that is queued.
#[derive(Debug)]
pub(crate) struct Operation {
    pub(crate) tag: u64,
    pub(crate) buffers: Buffers,
    pub(crate) work: Work,
}

#[derive(Debug)]
pub(crate) enum Work {
    Copy {
        direction: Direction,
        targets: Vec<Target>,
        immediate: Option<u32>,
        cursor: Cursor,
        is_copied: bool,
    },
    Send,
    Change {
        target: Target,
        change: Change,
    },
}

#[cfg(all(test, not(miri), not(loom)))]
mod tests {
    use std::os::fd::OwnedFd;

    use farreach_memory::Memory;
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

    use super::*;
    use crate::map::Access;
    use crate::wire::Announced;

    const KEY: u64 = (3 << 16) | 5;

    /// Returns a segment in which the acceptor has granted two pages, and the key at the other side.
    fn granted(access: Access) -> (Segment, RemoteKeys) {
        let (segment, _) = Segment::create().unwrap();
        let fd: OwnedFd = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&fd, 16384).unwrap();
        fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL).unwrap();
        let mut keys = RemoteKeys::default();
        keys.add(Announced { key: KEY, file_len: 16384, offset: 4096, len: 8192, access }, Some(fd)).unwrap();
        segment.store(Side::Acceptor.generation_at(5), 3, Ordering::Relaxed);
        (segment, keys)
    }

    fn write(segment: &Segment, keys: &RemoteKeys, targets: &[Target]) -> Result<Step, OperationError> {
        let len = targets.iter().map(|target| target.len as usize).sum();
        let buffers = Memory::allocate(len).map_or(Buffers::None, Buffers::from);
        let view = View { keys, segment, peer: Side::Acceptor };
        view.copy(Direction::Write, targets, buffers.as_slice(), &mut Cursor::default(), STEP)
    }

    #[test]
    fn a_copy_that_ends_after_a_revocation_is_revoked() {
        let (segment, keys) = granted(Access::ReadWrite);
        let targets = [Target { key: KEY, offset: 0, len: 8192 }];
        assert_eq!(write(&segment, &keys, &targets).unwrap(), Step::Done);
        // The peer has raised the generation, and its packet has not arrived: the key is known.
        segment.store(Side::Acceptor.generation_at(5), 4, Ordering::Relaxed);
        assert!(matches!(write(&segment, &keys, &targets), Err(OperationError::Revoked)));
        let view = View { keys: &keys, segment: &segment, peer: Side::Acceptor };
        let word = Target { key: KEY, offset: 8, len: 8 };
        assert!(matches!(view.change(word, Change::Add(1)), Err(OperationError::Revoked)));
    }

    #[test]
    fn nothing_beyond_the_grant_is_accessed() {
        let (segment, keys) = granted(Access::ReadWrite);
        for (offset, len) in [(0, 8193), (8192, 1), (8191, 2), (u64::MAX, 1), (u64::MAX - 1, 2)] {
            let outcome = write(&segment, &keys, &[Target { key: KEY, offset, len }]);
            assert!(matches!(outcome, Err(OperationError::OutOfBounds { .. })), "{offset} {len}");
        }
        assert_eq!(write(&segment, &keys, &[Target { key: KEY, offset: 8192, len: 0 }]).unwrap(), Step::Done);
    }

    #[test]
    fn a_grant_for_reading_is_not_written_to() {
        let (segment, keys) = granted(Access::ReadOnly);
        let outcome = write(&segment, &keys, &[Target { key: KEY, offset: 0, len: 1 }]);
        assert!(matches!(outcome, Err(OperationError::ReadOnly)), "{outcome:?}");
    }

    #[test]
    fn a_copy_goes_on_where_its_budget_ended() {
        let (segment, keys) = granted(Access::ReadWrite);
        let view = View { keys: &keys, segment: &segment, peer: Side::Acceptor };
        let targets = [Target { key: KEY, offset: 100, len: 50 }, Target { key: KEY, offset: 10, len: 51 }];
        let mut first = Memory::allocate(101).unwrap();
        for (index, byte) in first.iter_mut().enumerate() {
            *byte = index as u8;
        }
        let second = first.split_off(33);
        let buffers = Buffers::of_slices(vec![first, second]);
        let (mut cursor, mut steps) = (Cursor::default(), 1);
        while view.copy(Direction::Write, &targets, buffers.as_slice(), &mut cursor, 7).unwrap() == Step::More
        {
            steps += 1;
        }
        assert_eq!(steps, 101_usize.div_ceil(7));
        let back = Buffers::from(Memory::allocate(101).unwrap());
        view.copy(Direction::Read, &targets, back.as_slice(), &mut Cursor::default(), STEP).unwrap();
        let back = back.into_slice().unwrap();
        assert!(back.iter().enumerate().all(|(index, byte)| *byte == index as u8));
    }
}
