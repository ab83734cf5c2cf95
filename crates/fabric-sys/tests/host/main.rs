//! The declarations of libfabric, without the library.

mod assembly;
mod inline;
mod missing;
