//! Replaces the pages of exposed memory by copies of them, at the same address. Whoever has mapped
//! the old pages can no longer change the memory.
//!
//! Invariant: at every time, the range is mapped. A step replaces a mapping atomically.

use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, fstat, major, minor, open};
use rustix::io::{Errno, pread};
use rustix::mm::{MapFlags, MremapFlags, ProtFlags, mlock, mmap, mremap_fixed, munmap};

use crate::allocation::{Mapped, bind};
use crate::backing::is_whole_pages;
use crate::extents::Extent;
use crate::mem_file::MemFile;
use crate::{KeyGuard, Memory};

/// The bytes that one step exchanges. A step takes about a millisecond.
pub const EXCHANGE_STEP: usize = 2 << 20;

/// An exchange of the pages of exposed memory, in steps. It is meant for `farreach-shm`.
///
/// It proves that no process to which the memory's descriptor was passed can access the memory: such
/// a process has mapped the old pages. A write that is in the middle of its copy continues there.
///
/// While it runs, no key to the memory can be made ([`KeyError::Exchanging`](crate::KeyError)), whatever
/// the library. The owner can go on: [`Exposed::write_at`](crate::Exposed::write_at) repeats what it wrote
/// during a step. What is changed by a reference to an atomic cannot be repeated, so a step is refused while
/// the owner may have one.
///
/// Devices that have registered the allocation register it once more, with the new pages. The old
/// registration, and with it the old pages, stays until the allocation ends: operations in flight on
/// other parts of the allocation may use it.
#[derive(Debug)]
#[must_use = "dropping an exchange leaks the memory"]
pub struct Exchange {
    /// All guards of the memory, so that nobody else can end one or take another. Empty when it has ended.
    guards: Vec<KeyGuard>,
    memory: Memory,
    start: usize,
    /// A multiple of the page size.
    len: usize,
    done: usize,
    /// Whether all pages are exchanged, and devices have registered the new ones.
    is_registered: bool,
    file: Arc<MemFile>,
    /// The parts of the address range that are locked (`mlock`).
    locked: Vec<Range<usize>>,
    /// The list of mappings, which tells what a failed step has left.
    maps: OwnedFd,
}

impl Exchange {
    /// Begins an exchange. `guards` are those of all keys to the memory. An error returns them.
    ///
    /// # Safety
    ///
    /// Each key that a guard stands for leads to the memory only by the descriptor that
    /// [`KeyGuard::backing`] returned.
    pub unsafe fn begin(guards: Vec<KeyGuard>) -> Result<Self, (ExchangeError, Vec<KeyGuard>)> {
        match prepare(&guards) {
            Ok((memory, start, len, file, maps)) => {
                let address = memory.start().as_ptr().addr() + start;
                let locked = locked_parts(address, len);
                Ok(Self { guards, memory, start, len, done: 0, is_registered: false, file, locked, maps })
            }
            Err(error) => Err((error, guards)),
        }
    }

    /// Returns the number of bytes that are not exchanged yet.
    pub fn left(&self) -> usize {
        self.len - self.done
    }

    /// Exchanges the next pages, at most [`EXCHANGE_STEP`] bytes. The last step lets devices register
    /// the new pages. After an error, the memory is as it was, and the step can be repeated.
    ///
    /// `owner_has_handle` tells whether the owner may have a handle on the exposed memory, and with it a
    /// reference to an atomic that it has [had before](crate::Exposed::has_atomics).
    pub fn step(&mut self, owner_has_handle: bool) -> Result<(), ExchangeError> {
        // First: another thread may have held the lock when this process was forked.
        mapped(&self.memory)?;
        let Some(keys) = self.guards.first().map(|guard| Arc::clone(guard.keys())) else { return Ok(()) };
        let _pages = keys.lock_pages();
        // Under the lock: who gets a reference, or a slice, notes it under the same lock before.
        if keys.is_slice() || (owner_has_handle && keys.has_atomics()) {
            return Err(ExchangeError::OwnerMayWrite);
        }
        if self.left() > 0 {
            self.exchange_next()?;
        }
        if self.left() == 0 && !self.is_registered {
            let renewed = self.memory.renew_registrations();
            renewed.map_err(|cause| ExchangeError::Register { cause })?;
            self.is_registered = true;
        }
        Ok(())
    }

    fn exchange_next(&mut self) -> Result<(), ExchangeError> {
        let len = self.left().min(EXCHANGE_STEP);
        let at = self.start + self.done;
        let mapped = mapped(&self.memory)?;
        let files = mapped.files.as_ref().ok_or(ExchangeError::NoFile)?;
        let old = files.lock().of(at, len);
        let fresh = Fresh::map(&self.file, self.done, len)?;
        if let Some(node) = mapped.numa_node {
            bind(fresh.start, len, node).map_err(|error| ExchangeError::call("mbind", error))?;
        }
        for extent in &old {
            fresh.fill(extent.start - at, extent)?;
        }
        // SAFETY: `start` and `len` are within the allocation (`prepare`).
        let target = unsafe { self.memory.start().add(at) };
        let place = target.as_ptr().addr();
        for part in &self.locked {
            let (from, to) = (part.start.max(place), part.end.min(place + len));
            if from < to {
                fresh.lock(from - place, to - from)?;
            }
        }
        fresh.replace(target, &old, &self.maps)?;
        files.lock().replace(Extent {
            start: at,
            len,
            file: Arc::clone(&self.file),
            file_offset: self.done as u64,
        });
        self.done += len;
        for extent in &old {
            // Pages that stay cost memory until the other process ends, and nothing else.
            let _ = extent.file.punch(extent.file_offset, extent.len);
        }
        Ok(())
    }

    /// Ends the keys if all steps are done. Returns `self` otherwise.
    pub fn finish(mut self) -> Result<(), Self> {
        if !self.is_registered {
            return Err(self);
        }
        for guard in self.give_guards_back() {
            // SAFETY: the caller of `begin` guarantees that the key leads only to the file whose
            // descriptor was passed, and no page of the memory is in that file any more. The new
            // file was never passed: `backing` refuses the range while it is exchanged.
            unsafe { guard.end() };
        }
        Ok(())
    }

    /// Gives the exchange up. Returns the guards, of which none has ended: a part of the memory may still
    /// be within reach by their keys, and another proof may follow.
    pub fn give_up(mut self) -> Vec<KeyGuard> {
        self.give_guards_back()
    }

    /// Permits keys to the memory again.
    fn give_guards_back(&mut self) -> Vec<KeyGuard> {
        if let Some(guard) = self.guards.first() {
            if let Some(files) = self.memory.allocation().mapped().and_then(|mapped| mapped.files.as_ref()) {
                files.lock().end_exchange(self.start, self.len);
            }
            guard.keys().end_exchange();
        }
        std::mem::take(&mut self.guards)
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        // Dropping a guard leaks the memory.
        drop(self.give_guards_back());
    }
}

/// Returns the pages of memory that this process has mapped.
fn mapped(memory: &Memory) -> Result<&Mapped, ExchangeError> {
    let mapped = memory.allocation().mapped().ok_or(ExchangeError::NoFile)?;
    if mapped.is_of_parent() { Err(ExchangeError::Forked) } else { Ok(mapped) }
}

/// The parts of an exchange that begins: the allocation, the range in it, the file for the new pages, and
/// the list of mappings.
type Prepared = (Memory, usize, usize, Arc<MemFile>, OwnedFd);

/// Checks the guards, creates the file for the new pages, and marks the range and its keys.
fn prepare(guards: &[KeyGuard]) -> Result<Prepared, ExchangeError> {
    let first = guards.first().ok_or(ExchangeError::OtherKeys)?;
    let keys = first.keys();
    if !guards.iter().all(|guard| Arc::ptr_eq(guard.keys(), keys)) {
        return Err(ExchangeError::OtherKeys);
    }
    // The same bytes may be exposed once more, with keys of their own.
    if keys.is_shared() {
        return Err(ExchangeError::Shared);
    }
    let (memory, start, len) = first.place();
    let pages = mapped(memory)?;
    let files = pages.files.as_ref().ok_or(ExchangeError::NoFile)?;
    if len == 0 || !is_whole_pages(start, len, memory.len(), pages.page) {
        return Err(ExchangeError::NoFile);
    }
    // The last page belongs to the range also where it exceeds the allocation's length.
    let len = len.next_multiple_of(pages.page);
    let is_huge = files.lock().of(start, len).iter().any(|extent| extent.file.is_huge());
    let file = MemFile::create(len, is_huge).map_err(|error| ExchangeError::call("memfd_create", error))?;
    let maps = open_maps().map_err(|error| ExchangeError::call("open /proc/self/maps", error))?;
    // Last: nothing fails after it.
    if !keys.begin_exchange(guards.len()) {
        return Err(ExchangeError::OtherKeys);
    }
    files.lock().begin_exchange(start, len);
    Ok((memory.clone(), start, len, Arc::new(file), maps))
}

/// New pages, mapped at an address of their own until they replace others.
struct Fresh {
    start: NonNull<u8>,
    len: usize,
}

impl Fresh {
    fn map(file: &MemFile, offset: usize, len: usize) -> Result<Self, ExchangeError> {
        let start = file.map(offset as u64, len).map_err(|error| ExchangeError::call("mmap", error))?;
        Ok(Self { start, len })
    }

    /// Copies an extent to `offset`. The kernel copies, because the other process may be writing.
    fn fill(&self, offset: usize, extent: &Extent) -> Result<(), ExchangeError> {
        assert!(offset + extent.len <= self.len);
        let mut done = 0;
        while done < extent.len {
            // SAFETY: the range is within this mapping, of which this is the only pointer: its file
            // is known to nothing else. `MaybeUninit` bytes need no initialisation.
            let into = unsafe {
                std::slice::from_raw_parts_mut(
                    self.start.as_ptr().add(offset + done).cast::<MaybeUninit<u8>>(),
                    extent.len - done,
                )
            };
            match pread(extent.file.as_fd(), into, extent.file_offset + done as u64) {
                Ok((read, _)) if !read.is_empty() => done += read.len(),
                // The sizes of both files are sealed.
                Ok(_) => return Err(ExchangeError::call("pread", io::ErrorKind::UnexpectedEof.into())),
                Err(Errno::INTR) => {}
                Err(error) => return Err(ExchangeError::call("pread", error.into())),
            }
        }
        Ok(())
    }

    fn lock(&self, offset: usize, len: usize) -> Result<(), ExchangeError> {
        assert!(offset + len <= self.len);
        // SAFETY: the range is within this mapping. Locking changes no byte.
        let locked = unsafe { mlock(self.start.as_ptr().add(offset).cast(), len) };
        locked.map_err(|error| ExchangeError::call("mlock", error.into()))
    }

    /// Moves the pages to `target`, in place of what is mapped there. Attributes of the mapping move
    /// with it, so that a child that is forked at this moment does not inherit it.
    fn replace(self, target: NonNull<u8>, old: &[Extent], maps: &OwnedFd) -> Result<(), ExchangeError> {
        let (start, len) = (self.start.as_ptr().cast(), self.len);
        // SAFETY: `target` is a range of the allocation's own mapping, whole pages of one exposed
        // range, which the exchange's guards keep mapped. No reference to its bytes exists, and
        // accesses by its owner are atomics, for which the pages change at one moment.
        let moved = unsafe { mremap_fixed(start, len, len, MremapFlags::MAYMOVE, target.as_ptr().cast()) };
        match moved {
            Ok(_) => {
                std::mem::forget(self);
                Ok(())
            }
            Err(error) => {
                restore(target, old, maps);
                Err(ExchangeError::call("mremap", error.into()))
            }
        }
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        // SAFETY: `map` made this mapping, and its only pointer is this one: `replace` forgets
        // `self` when the pages have moved.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// Maps the old pages again where a failed `mremap` may have removed them.
///
/// The kernel checks its arguments and limits, removes what is mapped at the target, and moves the
/// pages. If a check fails (a process has too many mappings), the old pages are still there. If a later
/// part fails, for which the kernel needs a few hundred bytes of its own memory, there is a hole.
///
/// It ends the process if the hole cannot be filled, or if another thread has mapped something there
/// meanwhile. Nothing else is sound. The owner of the memory accesses the address without asking, so
/// an error does not keep it from memory of others. A leak does not either: the address is free. And
/// there is no call that replaces a mapping and cannot leave a hole, nor one that fills a hole without
/// memory of the kernel.
fn restore(target: NonNull<u8>, old: &[Extent], maps: &OwnedFd) {
    let mut at = target.as_ptr();
    for extent in old {
        // The kernel is not asked by `MAP_FIXED_NOREPLACE`: it fails with ENOMEM, and not with EEXIST,
        // where there are too many mappings, and EEXIST does not tell whose mapping exists.
        if !is_mapped(at.addr(), extent, maps).unwrap_or(false) {
            let access = ProtFlags::READ | ProtFlags::WRITE;
            let flags = MapFlags::SHARED | MapFlags::FIXED_NOREPLACE;
            // SAFETY: the flag lets the kernel map nothing over an existing mapping.
            let mapped = unsafe {
                mmap(at.cast(), extent.len, access, flags, extent.file.as_fd(), extent.file_offset)
            };
            if mapped.is_err() {
                std::process::abort();
            }
            // SAFETY: the range was mapped by the lines above. The advice changes no byte.
            let _ = unsafe { rustix::mm::madvise(at.cast(), extent.len, rustix::mm::Advice::LinuxDontFork) };
        }
        // SAFETY: the extents cover the range from `target` on, without gaps.
        at = unsafe { at.add(extent.len) };
    }
}

/// Returns whether an extent is mapped at an address, as the list of mappings reports it. It opens and
/// allocates nothing: a process that has reached one limit may have reached others.
fn is_mapped(start: usize, extent: &Extent, maps: &OwnedFd) -> io::Result<bool> {
    let stat = fstat(extent.file.as_fd())?;
    let (device, inode) = ((major(stat.st_dev), minor(stat.st_dev)), stat.st_ino);
    let (mut next, end) = (start, start + extent.len);
    let (mut line, mut len) = ([0; 128], 0);
    let (mut buffer, mut position) = ([0; 4096], 0);
    loop {
        let count = match pread(maps, &mut buffer[..], position) {
            Ok(0) => return Ok(false),
            Err(Errno::INTR) => continue,
            count => count?,
        };
        position += count as u64;
        for byte in &buffer[..count] {
            // Only the path may be longer, which is last.
            if *byte != b'\n' {
                if let Some(place) = line.get_mut(len) {
                    (*place, len) = (*byte, len + 1);
                }
                continue;
            }
            let mapping = MapsLine::parse(&line[..len]);
            len = 0;
            let Some(mapping) = mapping.filter(|it| it.start <= next && next < it.end) else { continue };
            let offset = mapping.offset + (next - mapping.start) as u64;
            let expected = extent.file_offset + (next - start) as u64;
            if (mapping.device, mapping.inode, offset) != (device, inode, expected) {
                return Ok(false);
            }
            next = mapping.end;
            if next >= end {
                return Ok(true);
            }
        }
    }
}

/// Opens the list of mappings of this process.
fn open_maps() -> io::Result<OwnedFd> {
    Ok(open(c"/proc/self/maps", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}

/// A line of `/proc/self/maps`, without its path.
#[derive(Debug, PartialEq, Eq)]
struct MapsLine {
    start: usize,
    end: usize,
    offset: u64,
    device: (u32, u32),
    inode: u64,
}

impl MapsLine {
    fn parse(line: &[u8]) -> Option<Self> {
        let mut words = line.split(|byte| *byte == b' ').map(|word| std::str::from_utf8(word).ok());
        let mut word = || words.next().flatten();
        let (start, end) = word()?.split_once('-')?;
        let _rights = word()?;
        let offset = u64::from_str_radix(word()?, 16).ok()?;
        let (major, minor) = word()?.split_once(':')?;
        let number = |text| usize::from_str_radix(text, 16).ok();
        let small = |text| u32::from_str_radix(text, 16).ok();
        let (start, end) = (number(start)?, number(end)?);
        Some(Self {
            start,
            end,
            offset,
            device: (small(major)?, small(minor)?),
            inode: word()?.parse().ok()?,
        })
    }
}

/// Returns the locked parts of an address range, as `/proc/self/smaps` reports them. Without that
/// file, nothing counts as locked.
fn locked_parts(start: usize, len: usize) -> Vec<Range<usize>> {
    let smaps = fs::read_to_string("/proc/self/smaps").unwrap_or_default();
    locked_in(&smaps, start..start + len)
}

fn locked_in(smaps: &str, range: Range<usize>) -> Vec<Range<usize>> {
    let number = |text| usize::from_str_radix(text, 16).ok();
    let (mut locked, mut current) = (Vec::new(), 0..0);
    for line in smaps.lines() {
        let first = line.split_ascii_whitespace().next().unwrap_or_default();
        if let Some((from, to)) = first.split_once('-').and_then(|(a, b)| Some((number(a)?, number(b)?))) {
            current = from..to;
        } else if first == "VmFlags:" && line.split_ascii_whitespace().any(|flag| flag == "lo") {
            let part = current.start.max(range.start)..current.end.min(range.end);
            if !part.is_empty() {
                locked.push(part);
            }
        }
    }
    locked
}

/// Pages could not be exchanged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExchangeError {
    /// The memory has no file of whole pages, so no descriptor of it was passed.
    #[error("no other process can have mapped the memory")]
    NoFile,
    /// The memory has keys besides those that are to be ended.
    #[error("the memory has other keys")]
    OtherKeys,
    /// A device that has registered the old pages could not register the new ones.
    #[error("a device could not register the new pages: {cause}")]
    Register {
        /// The device's reason.
        cause: String,
    },
    /// The memory is shared. It may be exposed with other keys too.
    #[error("the memory is shared")]
    Shared,
    /// The owner may change the memory at any time: by a reference to an atomic, or because it has taken
    /// the memory back as a slice.
    #[error("the owner of the memory may have a reference to an atomic of it, or a slice")]
    OwnerMayWrite,
    /// This process was forked from the one that has allocated the memory.
    #[error("the memory belongs to the process that this one was forked from")]
    Forked,
    /// A system call failed.
    #[error("{call}: {error}")]
    Call {
        /// Its name.
        call: &'static str,
        /// Its error.
        error: io::Error,
    },
}

impl ExchangeError {
    fn call(call: &'static str, error: io::Error) -> Self {
        Self::Call { call, error }
    }

    /// Returns an instruction that resolves the error.
    pub fn fix(&self) -> &'static str {
        match self {
            Self::NoFile => "end the key: there is nothing to exchange",
            Self::OtherKeys => "end the other keys of the memory first",
            Self::Register { .. } => "raise the limit of locked memory (`ulimit -l`)",
            Self::Shared => "wait for the end of the peer's process: the bytes stay shared until then",
            Self::OwnerMayWrite => "use `write_at` and `read_at` instead of `atomic_at`",
            Self::Forked => "revoke in the process that has granted the memory",
            Self::Call { .. } => "free memory, and raise `ulimit -n` and vm.max_map_count",
        }
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use std::sync::atomic::{AtomicU8, Ordering};

    use super::*;
    use crate::{BackingError, DomainId, Exposed, FileAccess, KeyAccess, KeyError, Registration, Release};

    /// A mapping of the memory's file, as another process has it.
    struct Peer(NonNull<u8>, usize);

    impl Peer {
        fn map(guard: &KeyGuard) -> Self {
            // SAFETY: this test is the other process, and keeps to the range.
            let backing = unsafe { guard.backing(FileAccess::ReadWrite) }.unwrap();
            let len = backing.len();
            let access = ProtFlags::READ | ProtFlags::WRITE;
            // SAFETY: a new mapping overlaps nothing that exists.
            let start = unsafe {
                mmap(std::ptr::null_mut(), len, access, MapFlags::SHARED, &backing, backing.offset())
            };
            Self(NonNull::new(start.unwrap().cast()).unwrap(), len)
        }

        fn byte(&self, offset: usize) -> &AtomicU8 {
            assert!(offset < self.1);
            // SAFETY: the byte is within the mapping, which is never unmapped.
            unsafe { AtomicU8::from_ptr(self.0.as_ptr().add(offset)) }
        }
    }

    fn begin(guards: Vec<KeyGuard>) -> Result<Exchange, (ExchangeError, Vec<KeyGuard>)> {
        // SAFETY: these keys lead only by the descriptors that `Peer::map` uses.
        unsafe { Exchange::begin(guards) }
    }

    fn run(mut exchange: Exchange) {
        while exchange.left() > 0 {
            exchange.step(true).unwrap();
        }
        exchange.finish().unwrap();
    }

    fn flags(exposed: &Exposed) -> Vec<String> {
        let address = exposed.address().as_ptr().addr();
        let smaps = fs::read_to_string("/proc/self/smaps").unwrap();
        let mut is_it = false;
        for line in smaps.lines() {
            let number = |text| usize::from_str_radix(text, 16).ok();
            let range = line.split(' ').next().and_then(|word| word.split_once('-'));
            if let Some((from, to)) = range.and_then(|(from, to)| Some((number(from)?, number(to)?))) {
                is_it = (from..to).contains(&address);
            } else if let Some(flags) = line.strip_prefix("VmFlags:").filter(|_| is_it) {
                return flags.split_whitespace().map(ToOwned::to_owned).collect();
            }
        }
        panic!("the memory is not mapped");
    }

    #[test]
    fn bytes_stay_and_late_bytes_do_not_appear() {
        let len = 2 * EXCHANGE_STEP + 4096 + 7;
        let mut before = Memory::allocate(4096 + len).unwrap();
        let mut slice = before.split_off(4096);
        before.fill(1);
        for (index, byte) in slice.iter_mut().enumerate() {
            *byte = (index % 251) as u8;
        }
        let exposed = slice.expose();
        let guard = exposed.guard_key(KeyAccess::Write).unwrap();
        let peer = Peer::map(&guard);
        peer.byte(5).store(99, Ordering::Relaxed);
        let mut exchange = begin(vec![guard]).unwrap();
        exchange.step(true).unwrap();
        // In the middle: the first step is out of the peer's reach, the last is not yet.
        peer.byte(6).store(98, Ordering::Relaxed);
        peer.byte(len - 1).store(97, Ordering::Relaxed);
        run(exchange);
        for offset in [5, 6, 4096, len - 1] {
            peer.byte(offset).store(100, Ordering::Relaxed);
        }
        let slice = exposed.try_into_slice().expect("the key is ended");
        let expected = |index: usize| match index {
            5 => 99,
            _ if index == len - 1 => 97,
            _ => (index % 251) as u8,
        };
        assert!(slice.iter().enumerate().all(|(index, byte)| *byte == expected(index)));
        assert!(before.iter().all(|byte| *byte == 1), "the page before it");
        // The old pages were punched before the late bytes.
        assert_eq!(
            [4095, 4096, len - 1].map(|offset| peer.byte(offset).load(Ordering::Relaxed)),
            [0, 100, 100]
        );
    }

    #[test]
    fn the_mapping_keeps_its_attributes() {
        let exposed = Memory::allocate(EXCHANGE_STEP + 4096).unwrap().expose();
        // SAFETY: the range is mapped, and locking changes no byte.
        unsafe { mlock(exposed.address().as_ptr().cast(), exposed.len()) }.unwrap();
        for round in 0..2 {
            let told = flags(&exposed);
            for flag in ["dc", "lo"] {
                assert!(told.iter().any(|it| it == flag), "{flag} in {told:?}, round {round}");
            }
            let guard = exposed.guard_key(KeyAccess::Write).unwrap();
            run(begin(vec![guard]).unwrap());
        }
    }

    #[test]
    fn memory_can_be_granted_again_when_it_has_been_exchanged() {
        let mut whole = Memory::allocate(3 * 4096).unwrap();
        let last = whole.split_off(2 * 4096);
        let exposed = whole.split_off(4096).expose();
        let guard = exposed.guard_key(KeyAccess::Write).unwrap();
        let exchange = begin(vec![guard]).unwrap();
        assert!(exposed.is_exchanging());
        assert!(matches!(exposed.guard_key(KeyAccess::Write), Err(KeyError::Exchanging(_))));
        // Other pages of the allocation meanwhile.
        let other = last.expose();
        run(begin(vec![other.guard_key(KeyAccess::Write).unwrap()]).unwrap());
        run(exchange);
        assert!(!exposed.is_exchanging());
        let fresh = exposed.guard_key(KeyAccess::Write).unwrap();
        let peer = Peer::map(&fresh);
        peer.byte(0).store(9, Ordering::Relaxed);
        assert_eq!(exposed.to_vec()[0], 9);
        run(begin(vec![fresh]).unwrap());
        // Three files now: the parts can be granted, and the whole cannot.
        let middle = exposed.try_into_slice().unwrap();
        whole.unsplit(middle).unwrap();
        whole.unsplit(other.try_into_slice().unwrap()).unwrap();
        let whole = whole.expose();
        let guard = whole.guard_key(KeyAccess::Write).unwrap();
        // SAFETY: no descriptor is passed.
        let refused = unsafe { guard.backing(FileAccess::ReadWrite) };
        assert!(matches!(refused, Err(BackingError::Fragmented { files: 3 })), "{refused:?}");
        run(begin(vec![guard]).unwrap());
        let guard = whole.guard_key(KeyAccess::Write).unwrap();
        Peer::map(&guard);
        // SAFETY: the test's peer does nothing more.
        unsafe { guard.end() };
    }

    #[test]
    fn other_keys_refuse_it() {
        let exposed = Memory::allocate(4096).unwrap().expose();
        let (one, other) =
            (exposed.guard_key(KeyAccess::Write).unwrap(), exposed.guard_key(KeyAccess::Write).unwrap());
        let (error, mut guards) = begin(vec![one]).unwrap_err();
        assert!(matches!(error, ExchangeError::OtherKeys) && !error.fix().is_empty());
        guards.push(other);
        for guard in guards {
            // SAFETY: no key was made.
            unsafe { guard.end() };
        }
        assert!(matches!(begin(Vec::new()), Err((ExchangeError::OtherKeys, _))));
    }

    /// A registration whose key counts how often it was renewed. Its first renewal fails.
    struct Counted(Arc<AtomicU8>, u64);

    impl Release for Counted {
        fn release(self: Box<Self>) -> bool {
            true
        }

        unsafe fn renew(&self, _: NonNull<u8>, len: usize) -> Result<Registration, String> {
            assert_eq!(len, 3 * EXCHANGE_STEP, "the whole allocation");
            match self.0.fetch_add(1, Ordering::Relaxed) {
                0 => Err("no memory may be locked".to_owned()),
                _ => Ok(Registration::new(self.1 + 1, Box::new(Self(Arc::clone(&self.0), self.1 + 1)))),
            }
        }
    }

    #[test]
    fn memory_comes_back_when_devices_have_registered_the_new_pages() {
        let mut slice = Memory::allocate(3 * EXCHANGE_STEP).unwrap();
        let (memory, domain) = (slice.memory().clone(), DomainId::unique());
        let registration = || Ok::<_, ()>(Registration::new(1, Box::new(Counted(Arc::default(), 1))));
        // SAFETY: no device knows the key.
        unsafe { memory.attach(domain, registration) }.unwrap();
        let mut rest = slice.split_off(2 * EXCHANGE_STEP);
        rest.fill(7);
        slice.fill(5);
        let exposed = slice.expose();
        let mut exchange = begin(vec![exposed.guard_key(KeyAccess::Write).unwrap()]).unwrap();
        exchange.step(true).unwrap();
        assert_eq!(memory.local_key(domain), Some(1), "not all pages are exchanged");
        let error = exchange.step(true).unwrap_err();
        assert!(matches!(error, ExchangeError::Register { .. }) && !error.fix().is_empty(), "{error}");
        assert_eq!(exchange.left(), 0);
        let mut exchange = exchange.finish().unwrap_err();
        assert_eq!(exposed.keys(), 1);
        exchange.step(true).unwrap();
        assert_eq!(memory.local_key(domain), Some(2));
        exchange.step(true).unwrap();
        assert_eq!(memory.local_key(domain), Some(2), "once");
        exchange.finish().unwrap();
        let slice = exposed.try_into_slice().unwrap();
        assert!(slice.iter().all(|byte| *byte == 5) && rest.iter().all(|byte| *byte == 7));
    }

    #[test]
    fn an_exchange_that_is_dropped_leaks_the_memory() {
        let exposed = Memory::allocate(4096).unwrap().expose();
        let guard = exposed.guard_key(KeyAccess::Write).unwrap();
        let exchange = begin(vec![guard]).unwrap().finish().unwrap_err();
        drop(exchange);
        assert_eq!(exposed.keys(), 1, "nothing was proven");
    }

    #[test]
    fn an_exchange_that_is_given_up_leaves_other_proofs() {
        let mut slice = Memory::allocate(2 * EXCHANGE_STEP).unwrap();
        slice.fill(5);
        let exposed = slice.expose();
        let peer = {
            let guard = exposed.guard_key(KeyAccess::Write).unwrap();
            let peer = Peer::map(&guard);
            let mut exchange = begin(vec![guard]).unwrap();
            exchange.step(true).unwrap();
            let mut guards = exchange.give_up();
            assert_eq!((guards.len(), exposed.keys(), exposed.is_exchanging()), (1, 1, false));
            // The first half is out of reach; the second one is not.
            for offset in [0, EXCHANGE_STEP] {
                peer.byte(offset).store(7, Ordering::Relaxed);
            }
            let bytes = exposed.to_vec();
            assert_eq!([bytes[0], bytes[EXCHANGE_STEP]], [5, 7]);
            // SAFETY: the peer does nothing until the memory is exposed again.
            unsafe { guards.pop().unwrap().end() };
            peer
        };
        let exposed = exposed.try_into_slice().expect("the end was proven").expose();
        run(begin(vec![exposed.guard_key(KeyAccess::Write).unwrap()]).unwrap());
        peer.byte(EXCHANGE_STEP).store(8, Ordering::Relaxed);
        assert_eq!(exposed.try_into_slice().unwrap()[EXCHANGE_STEP], 7);
    }

    #[test]
    fn what_the_owner_may_change_is_not_exchanged() {
        let exposed = Memory::allocate(4096).unwrap().expose();
        exposed.atomic_at(0).store(7, Ordering::Relaxed);
        let mut exchange = begin(vec![exposed.guard_key(KeyAccess::Write).unwrap()]).unwrap();
        let error = exchange.step(true).unwrap_err();
        assert!(matches!(error, ExchangeError::OwnerMayWrite) && !error.fix().is_empty(), "{error}");
        // Nobody has a handle, so nobody has the reference.
        exchange.step(false).unwrap();
        exchange.finish().unwrap();
        let mut exchange = begin(vec![exposed.guard_key(KeyAccess::Write).unwrap()]).unwrap();
        // SAFETY: no key was made.
        let slice = unsafe { exposed.into_slice_unchecked() };
        assert!(matches!(exchange.step(false), Err(ExchangeError::OwnerMayWrite)));
        assert_eq!(slice[..8], 7_u64.to_ne_bytes());
        for guard in exchange.give_up() {
            // SAFETY: no key was made.
            unsafe { guard.end() };
        }
    }

    #[test]
    fn a_reference_to_an_atomic_waits_for_the_end_of_an_exchange() {
        let exposed = Memory::allocate(2 * EXCHANGE_STEP).unwrap().expose();
        let mut exchange = begin(vec![exposed.guard_key(KeyAccess::Write).unwrap()]).unwrap();
        exchange.step(true).unwrap();
        std::thread::scope(|scope| {
            let owner = scope.spawn(|| exposed.atomic_at(0).store(7, Ordering::Relaxed));
            // It can be seen only by what it does not do.
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert!(!owner.is_finished() && !exposed.has_atomics());
            run(exchange);
            owner.join().unwrap();
        });
        assert_eq!(exposed.try_into_slice().unwrap()[..8], 7_u64.to_ne_bytes());
    }

    #[test]
    fn shared_memory_is_not_exchanged() {
        let shared = Memory::allocate(4096).unwrap().share();
        let exposed = Exposed::from(shared);
        let guard = exposed.guard_key(KeyAccess::Read).unwrap();
        let (error, guards) = begin(vec![guard]).unwrap_err();
        assert!(matches!(error, ExchangeError::Shared) && !error.fix().is_empty(), "{error}");
        assert!(!exposed.is_exchanging());
        for guard in guards {
            // SAFETY: no key was made.
            unsafe { guard.end() };
        }
    }

    /// Runs a role of these tests in a process of its own: holes and limits concern all threads.
    fn run_role(name: &str) -> std::process::ExitStatus {
        std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &format!("exchange::tests::{name}"), "--ignored", "--test-threads=1"])
            .stdout(std::process::Stdio::null())
            .status()
            .unwrap()
    }

    /// Returns memory of three extents, with bytes of its own in each page, and the extents.
    fn in_extents() -> (Exposed, Vec<Extent>) {
        let mut slice = Memory::allocate(4 * 4096).unwrap();
        for (index, byte) in slice.iter_mut().enumerate() {
            *byte = 1 + (index / 4096) as u8;
        }
        // The second page has a file of its own.
        let mut rest = slice.split_off(4096);
        let last = rest.split_off(4096);
        let middle = rest.expose();
        run(begin(vec![middle.guard_key(KeyAccess::Write).unwrap()]).unwrap());
        slice.unsplit(middle.try_into_slice().unwrap()).unwrap();
        slice.unsplit(last).unwrap();
        let mapped = slice.memory().allocation().mapped().unwrap();
        let old = mapped.files.as_ref().unwrap().lock().of(0, 4 * 4096);
        assert_eq!(old.len(), 3);
        (slice.expose(), old)
    }

    fn unmap(exposed: &Exposed, offset: usize, len: usize) {
        // SAFETY: this process has one thread, and the test maps the pages again before it uses them.
        unsafe { munmap(exposed.address().as_ptr().add(offset).cast(), len) }.unwrap();
    }

    fn has_its_bytes(exposed: &Exposed) -> bool {
        exposed.to_vec().iter().enumerate().all(|(index, byte)| *byte == 1 + (index / 4096) as u8)
    }

    #[test]
    fn old_pages_are_there_after_a_failed_move() {
        assert!(run_role("role_with_a_hole").success());
    }

    #[test]
    #[ignore = "a role in another test"]
    fn role_with_a_hole() {
        let (exposed, old) = in_extents();
        // The kernel has kept them.
        restore(exposed.address(), &old, &open_maps().unwrap());
        assert!(has_its_bytes(&exposed));
        unmap(&exposed, 0, exposed.len());
        restore(exposed.address(), &old, &open_maps().unwrap());
        assert!(has_its_bytes(&exposed));
        assert!(flags(&exposed).iter().any(|flag| flag == "dc"), "a child inherits them");
    }

    #[test]
    fn a_hole_that_is_taken_ends_the_process() {
        use std::os::unix::process::ExitStatusExt;
        assert_eq!(run_role("role_with_a_taken_hole").signal(), Some(6));
        assert_eq!(run_role("role_with_pages_of_another_file").signal(), Some(6));
    }

    #[test]
    #[ignore = "a role in another test"]
    fn role_with_a_taken_hole() {
        let (exposed, old) = in_extents();
        unmap(&exposed, 4096, 4096);
        let (access, flags) = (ProtFlags::READ, MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE);
        // SAFETY: the range was unmapped by the line above.
        let taken = unsafe {
            rustix::mm::mmap_anonymous(exposed.address().as_ptr().add(4096).cast(), 4096, access, flags)
        };
        taken.unwrap();
        restore(exposed.address(), &old, &open_maps().unwrap());
    }

    #[test]
    #[ignore = "a role in another test"]
    fn role_with_pages_of_another_file() {
        let (exposed, old) = in_extents();
        // The first page of the last extent is where its second one was.
        unmap(&exposed, 3 * 4096, 4096);
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::FIXED_NOREPLACE;
        let last = &old[2];
        // SAFETY: the range was unmapped by the line above.
        let taken = unsafe {
            let at = exposed.address().as_ptr().add(3 * 4096).cast();
            mmap(at, 4096, access, flags, last.file.as_fd(), last.file_offset)
        };
        taken.unwrap();
        restore(exposed.address(), &old, &open_maps().unwrap());
    }

    /// A registration that counts its end.
    struct Released(Arc<AtomicU8>);

    impl Release for Released {
        fn release(self: Box<Self>) -> bool {
            self.0.fetch_add(1, Ordering::Relaxed);
            true
        }

        unsafe fn renew(&self, _: NonNull<u8>, _: usize) -> Result<Registration, String> {
            Err("it is not renewed".to_owned())
        }
    }

    /// The child has the descriptors of the files, and not the pages.
    #[test]
    fn a_forked_child_changes_nothing_of_its_parent() {
        assert!(run_role("role_that_forks").success());
    }

    #[test]
    #[ignore = "a role in another test"]
    fn role_that_forks() {
        let mut slice = Memory::allocate(2 * EXCHANGE_STEP).unwrap();
        slice.fill(7);
        let exposed = slice.expose();
        let mut exchange = begin(vec![exposed.guard_key(KeyAccess::Write).unwrap()]).unwrap();
        exchange.step(true).unwrap();
        let other = Memory::allocate(4096).unwrap().expose();
        let released = Arc::new(AtomicU8::new(0));
        let registration = || Ok::<_, ()>(Registration::new(1, Box::new(Released(Arc::clone(&released)))));
        // Memory of its own: the child's refused exchange leaks the other one.
        let registered = Memory::allocate(4096).unwrap();
        // SAFETY: no device knows the key.
        unsafe { registered.memory().attach(DomainId::unique(), registration) }.unwrap();
        // SAFETY: this process has one thread that allocates, and the child ends by `_exit`.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let is_refused = |step| matches!(step, Err(ExchangeError::Forked));
            let files = exposed.memory().allocation().mapped().unwrap().files.as_ref().unwrap();
            let of_parent = files.lock().of(EXCHANGE_STEP, 4096).pop().unwrap();
            let begun = begin(vec![other.guard_key(KeyAccess::Write).unwrap()]);
            let is_right = is_refused(exchange.step(true))
                && is_refused(begun.map(drop).map_err(|(error, _)| error))
                && of_parent.file.punch(of_parent.file_offset, of_parent.len).is_err()
                && of_parent.file.seal(FileAccess::ReadOnly).is_err()
                && of_parent.file.map(0, 4096).is_err();
            drop((exchange, exposed, other, registered));
            let is_right = is_right && released.load(Ordering::Relaxed) == 0;
            // SAFETY: it ends the process.
            unsafe { libc::_exit(i32::from(!is_right)) };
        }
        let mut status = -1;
        // SAFETY: the kernel writes the status to the local.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert!(exposed.to_vec().iter().all(|byte| *byte == 7), "bytes of the parent are lost");
        assert_eq!(status, 0, "the child's exit status");
        run(exchange);
        assert!(exposed.try_into_slice().unwrap().iter().all(|byte| *byte == 7));
    }

    #[test]
    fn too_many_mappings_are_an_error_and_cost_nothing() {
        assert!(run_role("role_with_too_many_mappings").success());
    }

    #[test]
    #[ignore = "a role in another test"]
    fn role_with_too_many_mappings() {
        let mut slice = Memory::allocate(3 * 4096).unwrap();
        slice.fill(5);
        let exposed = slice.expose();
        let guard = exposed.guard_key(KeyAccess::Write).unwrap();
        let peer = Peer::map(&guard);
        let mut exchange = begin(vec![guard]).unwrap();
        let limit: usize = fs::read_to_string("/proc/sys/vm/max_map_count").unwrap().trim().parse().unwrap();
        let mut filler = Vec::with_capacity(limit);
        // Neighbours with different rights are not merged.
        let rights = [ProtFlags::READ, ProtFlags::empty()];
        loop {
            // SAFETY: a new mapping overlaps nothing that exists.
            let made = unsafe {
                let access = rights[filler.len() % 2];
                rustix::mm::mmap_anonymous(std::ptr::null_mut(), 4096, access, MapFlags::PRIVATE)
            };
            match made {
                Ok(start) => filler.push(start),
                Err(Errno::NOMEM) => break,
                Err(error) => panic!("{error}"),
            }
        }
        let free = |filler: &mut Vec<_>| {
            // SAFETY: the loop above made it, and nothing uses it.
            unsafe { munmap(filler.pop().expect("the step succeeds before"), 4096) }.unwrap();
        };
        let mut calls = Vec::with_capacity(64);
        while let Err(error) = exchange.step(true) {
            let ExchangeError::Call { call, .. } = &error else { panic!("{error}") };
            calls.push(*call);
            assert!(exchange.left() > 0 && exposed.to_vec() == [5; 3 * 4096]);
            free(&mut filler);
        }
        // The room that `mremap` wants is more than that of a mapping.
        assert!(calls.contains(&"mmap") && calls.contains(&"mremap"), "{calls:?}");
        while !filler.is_empty() {
            free(&mut filler);
        }
        run(exchange);
        peer.byte(0).store(100, Ordering::Relaxed);
        assert_eq!(exposed.try_into_slice().unwrap()[..], [5; 3 * 4096]);
    }

    #[test]
    fn lines_of_maps_are_parsed() {
        let line = b"7f1c00000000-7f1c00002000 rw-s 00003000 00:01 4097                       /memfd:a b";
        let expected = MapsLine {
            start: 0x7f1c_0000_0000,
            end: 0x7f1c_0000_2000,
            offset: 0x3000,
            device: (0, 1),
            inode: 4097,
        };
        assert_eq!(MapsLine::parse(line), Some(expected));
        assert_eq!(MapsLine::parse(b"7f1c00000000-7f1c00002000 rw-s"), None);
        assert_eq!(MapsLine::parse(b"\xff"), None);
    }

    #[test]
    fn locked_parts_are_read_from_the_kernel() {
        let smaps = "1000-3000 rw-s 0 0:1 5 /memfd:farreach\nSize: 8 kB\nVmFlags: rd wr dc\n\
                     3000-5000 rw-s 0 0:1 5 /memfd:farreach\nVmFlags: rd wr lo dc\n\
                     5000-6000 rw-p 0 0:0 0\nVmFlags: rd lo\n";
        assert_eq!(locked_in(smaps, 0x2000..0x4000), vec![0x3000..0x4000]);
        assert_eq!(locked_in(smaps, 0x4000..0x6000), [0x4000..0x5000, 0x5000..0x6000]);
        assert!(locked_in("", 0..10).is_empty());
    }
}
