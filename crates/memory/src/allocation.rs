//! Pages from the system, and back to it. The one place that maps memory.

use std::any::Any;
use std::ffi::{c_int, c_void};
use std::io;
use std::ptr::{self, NonNull};

use crate::options::{AllocateError, AllocateReason, HugePages};

/// Two MiB: the huge page that every x86-64 and most aarch64 kernels have.
const HUGE_PAGE: usize = 2 << 20;

/// Pages that are ours until this is dropped.
#[derive(Debug)]
pub(crate) struct Allocation {
    start: NonNull<u8>,
    len: usize,
    origin: Origin,
    notes: Vec<String>,
}

#[derive(Debug)]
enum Origin {
    /// Mapped here; so many bytes, a multiple of the page.
    Mapped { mapped_len: usize },
    /// The user's, alive as long as this is.
    Foreign { _owner: Box<dyn Any + Send + Sync> },
}

// SAFETY: an allocation is only an address and a length; who may touch the bytes is decided by the slices over it, which are
// `Send` by themselves.
unsafe impl Send for Allocation {}
// SAFETY: no method that takes `&self` touches the bytes, but `populate` and `touch`, which `map_pages` calls before anybody else has the allocation.
unsafe impl Sync for Allocation {}

impl Allocation {
    /// Maps zeroed pages, binds them, and touches each.
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

    /// The same with pages of one kind.
    fn map_pages(len: usize, huge: bool, numa_node: Option<u32>) -> Result<Self, AllocateReason> {
        let (start, mapped_len) = map(len, huge)?;
        let allocation = Self { start, len, origin: Origin::Mapped { mapped_len }, notes: Vec::new() };
        if let Some(node) = numa_node {
            // Before the pages are touched: that is when they come into being.
            bind(start, mapped_len, node).map_err(AllocateReason::Bind)?;
        }
        allocation.populate(huge)?;
        Ok(allocation)
    }

    /// Brings every page into being.
    fn populate(&self, huge: bool) -> Result<(), AllocateReason> {
        let Origin::Mapped { mapped_len } = self.origin else { return Ok(()) };
        // Miri has the pages already, and not this call.
        if cfg!(miri) {
            return Ok(());
        }
        // A huge page is promised when it is mapped, but not on a node: to touch one that the node does not have is SIGBUS. The kernel
        // answers with an error instead.
        // SAFETY: `map_pages` has just mapped this range, of which nobody knows yet. The call brings pages into being and changes no byte.
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
            // Before Linux 5.14. Whether a huge page is there can then only be found out by SIGBUS.
            (Some(libc::EINVAL), true) => Err(AllocateReason::NoHugePages(error)),
            (Some(libc::EINVAL), false) => {
                self.touch(mapped_len);
                Ok(())
            }
            _ => Err(AllocateReason::Map(error)),
        }
    }

    /// Writes to each page, which has no name yet.
    fn touch(&self, mapped_len: usize) {
        for offset in (0..mapped_len).step_by(page_size()) {
            // SAFETY: `map_pages` has just mapped this range for writing, nobody else knows of it, and the offset is below its length. Volatile, because the
            // store must happen though it writes the zero that is there.
            unsafe { self.start.as_ptr().add(offset).write_volatile(0) };
        }
    }

    /// Takes memory of the user's.
    ///
    /// # Safety
    ///
    /// `start` is valid for reads and writes of `len` bytes until `owner` is dropped, and until then nobody touches them but
    /// through this allocation.
    pub(crate) unsafe fn foreign(start: NonNull<u8>, len: usize, owner: Box<dyn Any + Send + Sync>) -> Self {
        Self { start, len, origin: Origin::Foreign { _owner: owner }, notes: Vec::new() }
    }

    #[inline]
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn notes(&self) -> &[String] {
        &self.notes
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if let Origin::Mapped { mapped_len } = self.origin {
            // It cannot fail for a mapping that exists; and if it did, the pages would stay, which harms nobody.
            // SAFETY: `map` has made this mapping, of this length, for this allocation. Nobody has a pointer into it that he may still use: `Memory` drops its
            // allocation after the last slice and the last registration, and `map_pages` drops one that nobody knew of.
            unsafe { libc::munmap(self.start.as_ptr().cast(), mapped_len) };
        }
    }
}

/// Anonymous pages for at least `len` bytes, and how many bytes they are.
fn map(len: usize, huge: bool) -> Result<(NonNull<u8>, usize), AllocateReason> {
    let page = if huge { HUGE_PAGE } else { page_size() };
    let mapped_len = len.checked_next_multiple_of(page).ok_or(AllocateReason::TooLarge)?;
    let huge_flags = if huge { libc::MAP_HUGETLB | libc::MAP_HUGE_2MB } else { 0 };
    // SAFETY: a new private mapping at an address of the kernel's choice touches nothing that exists.
    let start = unsafe {
        libc::mmap(
            ptr::null_mut(),
            mapped_len,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | huge_flags,
            -1,
            0,
        )
    };
    if start == libc::MAP_FAILED {
        let error = io::Error::last_os_error();
        return Err(if huge { AllocateReason::NoHugePages(error) } else { AllocateReason::Map(error) });
    }
    let start = NonNull::new(start.cast()).expect("the kernel gives no mapping at null unless asked to");
    Ok((start, mapped_len))
}

/// `mbind(2)` to one node, strictly.
fn bind(start: NonNull<u8>, len: usize, node: u32) -> io::Result<()> {
    const WORD_BITS: usize = usize::BITS as usize;
    // As many nodes as Linux can be built for.
    let mut nodes = [0_usize; 1024 / WORD_BITS];
    let node = node as usize;
    let word = nodes.get_mut(node / WORD_BITS).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    *word |= 1 << (node % WORD_BITS);
    let no_flags: c_int = 0;
    // SAFETY: `map_pages` has just mapped this range. The kernel reads the mask, a local, of as many bits as is said: it counts one less.
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
    // SAFETY: the call takes a number, of which any is allowed, and reads a constant of the system.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).expect("Linux has a page size")
}
