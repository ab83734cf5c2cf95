//! Options of an allocation.

use crate::Slice;
use crate::allocation::{AllocateError, Allocation, HugePages};
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_kept() {
        let options = MemoryOptions::new().huge_pages(HugePages::Try).numa_node(3);
        assert_eq!((options.huge_pages, options.numa_node), (HugePages::Try, Some(3)));
    }
}
