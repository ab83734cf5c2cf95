//! One machine reads and writes another machine's memory.

pub mod provider;
mod rights;

pub use farreach_memory::{Buffer, Buffers, Memory, MemoryOptions, Shared, Slice};
pub use rights::Rights;
