//! Options of an allocation, and the errors of one.

use std::fmt;
use std::io;

use crate::Slice;
use crate::allocation::Allocation;
use crate::memory::Memory;

/// Options of an allocation.
///
/// ```
/// use farreach_memory::{HugePages, MemoryOptions};
///
/// let slice = MemoryOptions::new().huge_pages(HugePages::Try).allocate(4 << 20)?;
/// for note in slice.memory().notes() {
///     println!("{note}");
/// }
/// # Ok::<(), farreach_memory::AllocateError>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct MemoryOptions {
    huge_pages: HugePages,
    numa_node: Option<u32>,
}

impl MemoryOptions {
    /// Creates options for ordinary pages on any NUMA node.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets whether to use huge pages. They reduce the number of translations that the device
    /// keeps.
    pub fn huge_pages(mut self, huge_pages: HugePages) -> Self {
        self.huge_pages = huge_pages;
        self
    }

    /// Binds the pages to a NUMA node, usually that of the device.
    pub fn numa_node(mut self, node: u32) -> Self {
        self.numa_node = Some(node);
        self
    }

    /// Allocates `len` bytes, page-aligned and zeroed. All pages are present, so the first transfer
    /// causes no page fault.
    pub fn allocate(&self, len: usize) -> Result<Slice, AllocateError> {
        let allocation = Allocation::map(len, self.huge_pages, self.numa_node)?;
        Ok(Slice::whole(Memory::new(allocation)))
    }
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
    fn options_are_kept() {
        let options = MemoryOptions::new().huge_pages(HugePages::Try).numa_node(3);
        assert_eq!((options.huge_pages, options.numa_node), (HugePages::Try, Some(3)));
    }

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
