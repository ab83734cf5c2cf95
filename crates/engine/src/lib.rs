//! One machine reads and writes another machine's memory.

#[allow(dead_code, unused_imports, reason = "the engine is being built on it")]
mod control;
#[allow(dead_code, unused_imports, reason = "the engine is being built on it")]
mod helm;
pub mod provider;
mod rights;

pub use farreach_memory::{Buffer, Buffers, Memory, MemoryOptions, Shared, Slice};
pub use rights::Rights;
