//! One machine reads and writes another machine's memory.

mod error;
mod explain;
#[allow(dead_code)]
mod machine;
pub mod provider;
mod rights;
#[allow(dead_code)]
mod ticket;

pub use error::{SendError, WordError};
pub use explain::{Explanation, RailShare};
pub use farreach_memory::{Buffer, Buffers, Memory, MemoryOptions, Shared, Slice};
pub use rights::Rights;
