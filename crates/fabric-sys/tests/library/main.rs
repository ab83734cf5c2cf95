//! The declarations of libfabric against the library that the dynamic linker finds.

mod symbols;
mod write;
