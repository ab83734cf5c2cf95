//! The rails that an engine can have: RDMA cards by verbs, and libfabric's providers.
//!
//! Nothing else of the engine knows a transport.

pub mod fabric;
pub(crate) mod open;
pub mod verbs;
