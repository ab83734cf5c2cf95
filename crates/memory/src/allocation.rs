//! Maps pages and unmaps them. Only `exchange` maps memory, too: other pages at the same address.
//!
//! Pages belong to a file without a name, so that another process can map them. If there can be no
//! such file, they are anonymous.

use std::any::Any;
use std::ffi::{c_int, c_void};
use std::fmt;
use std::io;
use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use crate::epoch::process_epoch;
use crate::extents::Extents;
use crate::mem_file::MemFile;

/// The huge page size, 2 MiB, that every x86-64 kernel and most aarch64 kernels support.
const HUGE_PAGE: usize = 2 << 20;

/// Returns an error if the kernel would refuse as many anonymous pages. For pages of a file it does
/// not check whether the host can have them: it would end this process while they are faulted in.
fn check_room(len: usize, huge: bool) -> Result<(), AllocateReason> {
    // The kernel reserves huge pages, also for files.
    if huge {
        return Ok(());
    }
    let start = map_anonymous(len, false)?;
    // SAFETY: the mapping was just made with this length, and nothing has a pointer to it.
    unsafe { libc::munmap(start.as_ptr().cast(), len) };
    Ok(())
}

/// Owned pages. They are unmapped, or returned to their owner, on drop.
#[derive(Debug)]
pub(crate) struct Allocation {
    start: NonNull<u8>,
    len: usize,
    origin: Origin,
    notes: Vec<String>,
}

#[derive(Debug)]
enum Origin {
    /// Mapped by this module.
    Mapped(Mapped),
    /// Memory of the caller, valid until the owner is dropped.
    Foreign { _owner: Box<dyn Any + Send + Sync> },
    /// The bytes of a vector with this capacity. They go back to the allocator as a vector.
    Vector { capacity: usize },
    /// The bytes of a vector that was taken out.
    Taken,
}

/// Pages that this module has mapped.
#[derive(Debug)]
pub(crate) struct Mapped {
    /// A multiple of the page size.
    pub(crate) len: usize,
    /// The size of the pages.
    pub(crate) page: usize,
    pub(crate) numa_node: Option<u32>,
    /// The process that has mapped them.
    epoch: u64,
    /// The files that hold the pages. `None` for anonymous pages.
    pub(crate) files: Option<Extents>,
}

impl Mapped {
    /// Returns whether this process was forked from the one that has mapped the pages. They are not at
    /// their address here, and something else may be.
    pub(crate) fn is_of_parent(&self) -> bool {
        self.epoch != process_epoch()
    }
}

// SAFETY: an allocation holds only an address and a length. Access to the bytes is governed by the
// slices over it, each of which is `Send` by its own fields.
unsafe impl Send for Allocation {}
// SAFETY: only `populate` and `touch` access the bytes through `&self`, and `map_pages` calls them
// before the allocation is visible to anything else.
unsafe impl Sync for Allocation {}

impl Allocation {
    /// Maps zeroed pages, binds them to the node, and faults each one in.
    pub(crate) fn map(
        len: usize,
        huge_pages: HugePages,
        numa_node: Option<u32>,
    ) -> Result<Self, AllocateError> {
        let error = |reason| AllocateError { len, numa_node, reason };
        if len == 0 {
            return Err(error(AllocateReason::Empty));
        }
        match Self::map_pages(len, huge_pages != HugePages::No, numa_node) {
            Err(AllocateReason::NoHugePages(reason)) if huge_pages == HugePages::Try => {
                let mut allocation = Self::map_pages(len, false, numa_node).map_err(error)?;
                allocation.notes.push(format!("ordinary pages, because no huge pages are free ({reason})"));
                Ok(allocation)
            }
            mapped => mapped.map_err(error),
        }
    }

    /// Maps pages of one size, without a fallback to others.
    fn map_pages(len: usize, huge: bool, numa_node: Option<u32>) -> Result<Self, AllocateReason> {
        let page = if huge { HUGE_PAGE } else { page_size() };
        let mapped_len = len.checked_next_multiple_of(page).ok_or(AllocateReason::TooLarge)?;
        let mut notes = Vec::new();
        // Miri knows no such files.
        let file = match (!cfg!(miri)).then(|| MemFile::create(mapped_len, huge)).transpose() {
            Ok(file) => file,
            Err(error) => {
                notes.push(format!("anonymous pages, which no other process can map ({error})"));
                None
            }
        };
        let start = match &file {
            Some(file) => {
                check_room(mapped_len, huge)?;
                file.map(0, mapped_len).map_err(|error| not_mapped(error, huge))?
            }
            None => map_anonymous(mapped_len, huge)?,
        };
        let files = file.map(|file| Extents::whole(Arc::new(file)));
        let origin =
            Origin::Mapped(Mapped { len: mapped_len, page, numa_node, epoch: process_epoch(), files });
        let allocation = Self { start, len, origin, notes };
        if let Some(node) = numa_node {
            // Binding comes first: the policy applies when a page is faulted in.
            bind(start, mapped_len, node).map_err(AllocateReason::Bind)?;
        }
        allocation.populate(huge)?;
        Ok(allocation)
    }

    /// Faults every page in.
    fn populate(&self, huge: bool) -> Result<(), AllocateReason> {
        let Origin::Mapped(Mapped { len: mapped_len, files, .. }) = &self.origin else { return Ok(()) };
        let mapped_len = *mapped_len;
        // Under Miri the pages are present already, and the call is not supported.
        if cfg!(miri) {
            return Ok(());
        }
        // mmap reserves huge pages, but not per node: touching one that the node lacks raises
        // SIGBUS. MADV_POPULATE_WRITE returns an error instead.
        // SAFETY: `map_pages` has just mapped this range, and nothing else has a pointer to it. The
        // call faults pages in and changes no byte.
        let status =
            unsafe { libc::madvise(self.start.as_ptr().cast(), mapped_len, libc::MADV_POPULATE_WRITE) };
        if status == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        match (error.raw_os_error(), huge) {
            (Some(libc::EFAULT | libc::ENOMEM), true) => {
                let cause = "the node has too few of them";
                Err(AllocateReason::NoHugePages(io::Error::new(io::ErrorKind::OutOfMemory, cause)))
            }
            // Linux before 5.14 has no MADV_POPULATE_WRITE. Only a SIGBUS would then show whether a
            // huge page is available.
            (Some(libc::EINVAL), true) => Err(AllocateReason::NoHugePages(error)),
            (Some(libc::EINVAL), false) => {
                if let Some(extent) = files.as_ref().and_then(|files| files.lock().of(0, mapped_len).pop()) {
                    extent.file.allocate().map_err(AllocateReason::Map)?;
                }
                self.touch(mapped_len);
                Ok(())
            }
            // The kernel's word for a page of a file that cannot be allocated.
            (Some(libc::EFAULT), false) => Err(AllocateReason::Map(io::ErrorKind::OutOfMemory.into())),
            _ => Err(AllocateReason::Map(error)),
        }
    }

    /// Writes to each page. No other pointer to the pages exists yet.
    fn touch(&self, mapped_len: usize) {
        for offset in (0..mapped_len).step_by(page_size()) {
            // SAFETY: `map_pages` has just mapped this range for writing, no other pointer to it
            // exists, and the offset is below its length. The write is volatile because the
            // compiler must not remove a store of the zero that is already there.
            unsafe { self.start.as_ptr().add(offset).write_volatile(0) };
        }
    }

    /// Takes over memory of the caller.
    ///
    /// # Safety
    ///
    /// `start` is valid for reads and writes of `len` bytes until `owner` is dropped. Until then,
    /// the bytes are accessed only through this allocation.
    pub(crate) unsafe fn foreign(start: NonNull<u8>, len: usize, owner: Box<dyn Any + Send + Sync>) -> Self {
        Self { start, len, origin: Origin::Foreign { _owner: owner }, notes: Vec::new() }
    }

    /// Takes over the bytes of a vector. Capacity beyond its length stays unused: it is not
    /// initialised.
    pub(crate) fn of_vec(vec: Vec<u8>) -> Self {
        // As pointer and lengths: a vector that is moved around would assert that nothing else
        // points to its bytes, and slices do.
        let mut vec = ManuallyDrop::new(vec);
        let start = NonNull::new(vec.as_mut_ptr()).expect("a vector points to no byte at address 0");
        let origin = Origin::Vector { capacity: vec.capacity() };
        Self { start, len: vec.len(), origin, notes: Vec::new() }
    }

    /// Returns `true` if the bytes are those of a vector.
    pub(crate) fn is_of_vec(&self) -> bool {
        matches!(self.origin, Origin::Vector { .. })
    }

    /// Takes the vector out, if the bytes are those of one. Afterwards, the allocation frees
    /// nothing.
    ///
    /// # Safety
    ///
    /// No slice over the bytes is left or made later.
    pub(crate) unsafe fn take_vec(&mut self) -> Option<Vec<u8>> {
        let Origin::Vector { capacity } = self.origin else { return None };
        self.origin = Origin::Taken;
        // SAFETY: `of_vec` took pointer, length and capacity from one vector, which it forgot, and
        // `Taken` remembers that it was made again. The bytes up to the length are initialised.
        // Nothing else accesses them: the caller guarantees that no slice is left.
        Some(unsafe { Vec::from_raw_parts(self.start.as_ptr(), self.len, capacity) })
    }

    #[inline]
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the pages, unless they are memory of the caller.
    pub(crate) fn mapped(&self) -> Option<&Mapped> {
        match &self.origin {
            Origin::Mapped(mapped) => Some(mapped),
            Origin::Foreign { .. } | Origin::Vector { .. } | Origin::Taken => None,
        }
    }

    pub(crate) fn notes(&self) -> &[String] {
        &self.notes
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // SAFETY: the allocation ends, and `Memory` drops it only after the last slice.
        drop(unsafe { self.take_vec() });
        if let Origin::Mapped(mapped) = &self.origin {
            // A forked child has not inherited the pages.
            if mapped.is_of_parent() {
                return;
            }
            // munmap of an existing mapping does not fail. If it did, the pages would stay mapped,
            // which is harmless.
            // SAFETY: `map_pages` made this mapping, with this length, for this allocation, and an
            // exchange replaces pages of it without changing its bounds. No usable
            // pointer into it is left: `Memory` drops its allocation after the last slice and the
            // last registration, and `map_pages` drops one that nothing else has seen.
            unsafe { libc::munmap(self.start.as_ptr().cast(), mapped.len) };
        }
    }
}

/// Maps anonymous pages, which a forked child does not inherit. `len` is a multiple of the page
/// size.
fn map_anonymous(len: usize, huge: bool) -> Result<NonNull<u8>, AllocateReason> {
    let huge_flags = if huge { libc::MAP_HUGETLB | libc::MAP_HUGE_2MB } else { 0 };
    // SAFETY: a new private mapping at an address chosen by the kernel overlaps nothing that
    // exists.
    let start = unsafe {
        libc::mmap(
            ptr::null_mut(),
            len,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | huge_flags,
            -1,
            0,
        )
    };
    if start == libc::MAP_FAILED {
        return Err(not_mapped(io::Error::last_os_error(), huge));
    }
    if !cfg!(miri) {
        // An old kernel or a small limit of mappings may refuse. The pages are private, so a child
        // cannot change them anyway.
        // SAFETY: the range was mapped above. The advice changes no byte.
        unsafe { libc::madvise(start, len, libc::MADV_DONTFORK) };
    }
    Ok(NonNull::new(start.cast()).expect("the kernel maps nothing at address 0 unless requested"))
}

fn not_mapped(error: io::Error, huge: bool) -> AllocateReason {
    if huge { AllocateReason::NoHugePages(error) } else { AllocateReason::Map(error) }
}

/// Binds a range strictly to one node, by `mbind(2)`.
pub(crate) fn bind(start: NonNull<u8>, len: usize, node: u32) -> io::Result<()> {
    const WORD_BITS: usize = usize::BITS as usize;
    // The largest number of nodes that Linux supports.
    let mut nodes = [0_usize; 1024 / WORD_BITS];
    let node = node as usize;
    let word = nodes.get_mut(node / WORD_BITS).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    *word |= 1 << (node % WORD_BITS);
    let no_flags: c_int = 0;
    // SAFETY: the caller has just mapped this range, and a policy changes no byte. The kernel reads `maxnode - 1` bits of the
    // mask, which is why the argument is one more than the mask has; the mask is a local.
    let status = unsafe {
        libc::syscall(
            libc::SYS_mbind,
            start.as_ptr().cast::<c_void>(),
            len,
            libc::MPOL_BIND,
            nodes.as_ptr(),
            nodes.len() * WORD_BITS + 1,
            no_flags,
        )
    };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn page_size() -> usize {
    // SAFETY: `sysconf` accepts any number, and reads a constant of the system.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).expect("Linux has a page size")
}

/// Use of huge pages.
///
/// ```
/// use farreach_memory::HugePages;
///
/// assert_eq!(HugePages::default(), HugePages::No);
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum HugePages {
    /// Use ordinary pages.
    #[default]
    No,
    /// Use huge pages if enough are free; otherwise use ordinary pages and add a note.
    Try,
    /// Use huge pages, or return an error.
    Require,
}

/// Memory could not be allocated.
///
/// ```
/// use farreach_memory::Memory;
///
/// let error = Memory::allocate(0).unwrap_err();
/// assert_eq!(error.to_string(), "cannot allocate 0 bytes: the size is zero");
/// ```
#[derive(Debug, thiserror::Error)]
#[error("cannot allocate {len} bytes{}: {reason}", on_node(*.numa_node))]
#[non_exhaustive]
pub struct AllocateError {
    /// The requested number of bytes.
    pub len: usize,
    /// The requested NUMA node.
    pub numa_node: Option<u32>,
    /// The cause.
    pub reason: AllocateReason,
}

impl AllocateError {
    /// Returns an instruction that resolves the error.
    pub fn fix(&self) -> String {
        match &self.reason {
            AllocateReason::Empty | AllocateReason::TooLarge => "request another size".to_owned(),
            AllocateReason::Map(_) => "free memory, or raise `ulimit -v` and vm.max_map_count".to_owned(),
            AllocateReason::NoHugePages(_) => {
                "reserve huge pages of 2 MiB: sysctl vm.nr_hugepages=N".to_owned()
            }
            AllocateReason::Bind(_) => {
                "name a node that /sys/devices/system/node lists, and that this process may use".to_owned()
            }
        }
    }
}

/// The cause of a failed allocation.
#[derive(Debug)]
#[non_exhaustive]
pub enum AllocateReason {
    /// Zero bytes were requested.
    Empty,
    /// The size exceeds the address space.
    TooLarge,
    /// `mmap` failed.
    Map(io::Error),
    /// Not enough huge pages are free.
    NoHugePages(io::Error),
    /// The pages could not be bound to the node.
    Bind(io::Error),
}

impl fmt::Display for AllocateReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the size is zero"),
            Self::TooLarge => f.write_str("the size exceeds the address space"),
            Self::Map(error) => write!(f, "mmap: {error}"),
            Self::NoHugePages(error) => write!(f, "no huge pages are free: {error}"),
            Self::Bind(error) => write!(f, "mbind: {error}"),
        }
    }
}

fn on_node(node: Option<u32>) -> String {
    node.map(|node| format!(" on NUMA node {node}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_tells_where_why_and_what_to_do() {
        let error = |reason| AllocateError { len: 4096, numa_node: Some(3), reason };
        let none = || io::Error::from(io::ErrorKind::OutOfMemory);
        let told = [
            (error(AllocateReason::TooLarge), "exceeds the address space", "another size"),
            (error(AllocateReason::Map(none())), "mmap: ", "ulimit -v"),
            (error(AllocateReason::NoHugePages(none())), "no huge pages are free", "vm.nr_hugepages"),
            (error(AllocateReason::Bind(none())), "mbind: ", "/sys/devices/system/node"),
        ];
        for (error, why, fix) in told {
            let text = error.to_string();
            assert!(
                text.starts_with("cannot allocate 4096 bytes on NUMA node 3: ") && text.contains(why),
                "{text}"
            );
            assert!(error.fix().contains(fix), "{}", error.fix());
        }
    }
}
