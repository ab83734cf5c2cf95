//! Tests without libfabric: misuse that does not compile, and a host without the library.

mod missing;
mod misuse;
