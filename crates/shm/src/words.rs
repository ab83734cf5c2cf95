//! Words that two processes share.
//!
//! Whatever is loaded was possibly written by another process, and is untrusted.

use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Shared words, accessed by atomics only. A model replaces them by loom's atomics.
pub(crate) trait Words {
    fn load(&self, index: usize, order: Ordering) -> u64;
    fn store(&self, index: usize, value: u64, order: Ordering);
    fn swap(&self, index: usize, value: u64, order: Ordering) -> u64;
    /// A sequentially consistent fence.
    fn fence(&self);
}

impl<W: Words> Words for Arc<W> {
    #[inline(always)]
    fn load(&self, index: usize, order: Ordering) -> u64 {
        (**self).load(index, order)
    }

    #[inline(always)]
    fn store(&self, index: usize, value: u64, order: Ordering) {
        (**self).store(index, value, order);
    }

    #[inline(always)]
    fn swap(&self, index: usize, value: u64, order: Ordering) -> u64 {
        (**self).swap(index, value, order)
    }

    #[inline(always)]
    fn fence(&self) {
        (**self).fence();
    }
}

/// Words of one process, for tests under Miri and beside it.
#[cfg(all(test, not(loom)))]
#[derive(Debug)]
pub(crate) struct LocalWords(Vec<std::sync::atomic::AtomicU64>);

#[cfg(all(test, not(loom)))]
impl LocalWords {
    pub(crate) fn new(count: usize) -> Arc<Self> {
        Arc::new(Self((0..count).map(|_| std::sync::atomic::AtomicU64::new(0)).collect()))
    }
}

#[cfg(all(test, not(loom)))]
impl Words for LocalWords {
    fn load(&self, index: usize, order: Ordering) -> u64 {
        self.0[index].load(order)
    }

    fn store(&self, index: usize, value: u64, order: Ordering) {
        self.0[index].store(value, order);
    }

    fn swap(&self, index: usize, value: u64, order: Ordering) -> u64 {
        self.0[index].swap(value, order)
    }

    fn fence(&self) {
        std::sync::atomic::fence(Ordering::SeqCst);
    }
}
