//! The rails that an engine can have: RDMA cards through verbs, and providers of libfabric.
//!
//! No other module of the engine knows a transport.

pub mod fabric;
pub(crate) mod open;
pub mod verbs;
